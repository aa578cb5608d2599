"""Logs of the real peer and of the same scripts by us, each made once, two at a time, for all workers of a session."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support import peer


class Runs:
    """`runs(kind)` is the run of that script: the folder with its logs, its exit code, what it said."""

    def __init__(self, make, folder, ahead):
        self._make, self._folder = make, folder
        self._pool = ThreadPoolExecutor(2)
        self._futures: dict[str, Future] = {}
        for kind in ahead:
            self._begin(kind)

    def __call__(self, kind):
        return self._begin(kind).result()

    def close(self):
        self._pool.shutdown(cancel_futures=True)

    def _begin(self, kind):
        if kind not in self._futures:
            self._futures[kind] = self._pool.submit(self._once, kind)
        return self._futures[kind]

    def _once(self, kind):
        """Whichever worker comes first makes the run; the others wait and find it."""
        self._folder.mkdir(exist_ok=True)
        done = self._folder / f"{kind}.json"
        with (self._folder / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder = self._folder / kind
                folder.mkdir()
                run = self._make(kind, folder)
                done.write_text(json.dumps(dataclasses.asdict(run) | {"folder": str(folder)}))
        said = json.loads(done.read_text())
        return peer.PeerRun(**said | {"folder": Path(said["folder"])})


def _runs(request, tmp_path_factory, make, reason=""):
    if reason := reason or peer.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    asking = [item for item in request.session.items if request.fixturename in item.fixturenames]
    ahead = {item.callspec.params.get("kind") for item in asking if hasattr(item, "callspec")}
    runs = Runs(make, folder / request.fixturename, sorted(ahead - {None}))
    yield runs
    runs.close()


@pytest.fixture(scope="session")
def made(request, tmp_path_factory):
    """The runs by the peer."""
    yield from _runs(request, tmp_path_factory, peer.make)


@pytest.fixture(scope="session")
def ours(request, tmp_path_factory):
    """The same by us."""
    yield from _runs(request, tmp_path_factory, peer.make_ours)


@pytest.fixture(scope="session")
def trained(request, tmp_path_factory):
    """The runs of training scripts by the peer."""
    yield from _runs(request, tmp_path_factory, peer.make_training, peer.training_missing())


@pytest.fixture(scope="session")
def trained_by_us(request, tmp_path_factory):
    """The same by us."""
    yield from _runs(request, tmp_path_factory, peer.make_our_training, peer.training_missing())
