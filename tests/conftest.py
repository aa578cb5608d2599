"""What holds for all tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.server import Server, serve

# How long an example takes says how loaded the machine is, and nothing of what is tested. Each run has the same examples,
# and neither reads nor writes those of others in this folder; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("runferry", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("runferry")

_COUNT = itertools.count()


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a state directory of its own: none hears from another how long a server wants to be left alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state" / str(next(_COUNT))))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server for the tests of one module."""
    with serve(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, server: Server) -> Path:
    """An empty folder of runs, beside a server that behaves."""
    server.set_faults([])
    (tmp_path / "wandb").mkdir()
    return tmp_path / "wandb"
