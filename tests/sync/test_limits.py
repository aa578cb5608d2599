"""Whole syncs against servers with limits, hosts that are down, and headers for one server only."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest
from runferry.sync import SyncSettings, Verdict, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.errors import Interrupted, Retryable, UsageError
from runferry.sync.network import Network
from runferry.sync.report import Paused, Report
from runferry.sync.session import Session
from runferry.sync.transport import Answer, Request
from support import logs
from support.fakebackend import KEY, URL
from support.rawserver import RawServer
from support.syncrig import Rig, on


def test_lanes_are_shared_in_the_state_directory(rig: Rig) -> None:
    """One small file per project, by whose numbers another process on the quota goes on; nothing secret in it."""
    rig.run()
    rig.sync()

    (path,) = (rig.state / "pacer").iterdir()
    text = path.read_text()
    assert KEY not in text
    assert "proj" not in path.name + text
    assert json.loads(text.partition(" ")[2])["sent"] == len(rig.backend.operations()) - rig.backend.operations().count(
        "put"
    )


def test_a_state_directory_that_cannot_be_made_stops_nothing(rig: Rig) -> None:
    """A read-only home costs the sharing and nothing else."""
    rig.state.write_text("in the way")
    rig.run()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


def test_a_quota_that_is_spent_is_waited_for_and_told_once(rig: Rig) -> None:
    """A 429 with a Reset in the middle of a sync: one piece of news, all rows, nothing sent before the reset."""
    rig.run(rows=50)
    rig.backend.before = on("stream", Answer(429, {"ratelimit-reset": "40"}, b""), times=1)
    begun = rig.clock.monotonic()

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 50
    assert rig.clock.monotonic() - begun >= 40.0
    assert len([event for event in rig.events if isinstance(event, Paused) and "429" in event.reason]) == 1


class SlowStorage:
    """Holds each upload until the rows of both runs are there, and those of run b until the uploads hang."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.uploads, self.rows = threading.Semaphore(0), threading.Event()
        self.in_time = True

    def send(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.uploads.release()
            self.in_time &= self.rows.wait(20)
        elif request.url.endswith("/b/file_stream"):
            for _ in range(8):
                self.uploads.acquire(timeout=20)
        answer = self.rig.backend.send(request)
        if len(self.rig.backend.runs) == 2 and all(run.lines["history"] for run in self.rig.backend.runs.values()):
            self.rows.set()
        return answer


def test_a_storage_host_that_hangs_stops_no_row(rig: Rig) -> None:
    """All uploads of one run hang; the rows of another one go on all the same."""
    log = logs.simple_run(rig.folder, run_id="a", rows=2)
    logs.make_log(log, *[logs.files_record(f"{number}.bin") for number in range(20)], append=True)
    for number in range(20):
        (log.parent / "files" / f"{number}.bin").write_bytes(b"x")
    rig.settle(log)
    rig.settle(logs.simple_run(rig.folder, run_id="b", rows=2))
    storage = SlowStorage(rig)

    report = sync(
        [rig.folder],
        SyncSettings(base_url=URL, state_dir=rig.state, jobs=2),
        key=ApiKey(KEY, base_url=URL, source="test"),
        transport=storage,
        clock=rig.clock,
    )

    assert storage.in_time
    assert {run.verdict for run in report.runs} == {Verdict.SYNCED}


def test_runs_do_not_each_wait_for_a_dead_server(rig: Rig) -> None:
    """Two hundred runs and a server that is down: one budget for all, and the code for another time."""
    for number in range(200):
        rig.settle(logs.simple_run(rig.folder, run_id=f"s{number:03d}", rows=1))
    rig.backend.before = lambda *_: Retryable("connection refused")
    begun = rig.clock.monotonic()

    report = rig.sync(jobs=1)

    assert report.exit_code == 75
    assert len(report.runs) == 200
    assert rig.clock.monotonic() - begun <= 700.0


def test_extra_headers_go_to_the_base_url_and_to_no_upload_host(rig: Rig) -> None:
    """With the key, and as secret as it: a server that repeats one shows it to nobody."""
    rig.run()
    rig.backend.after = on("CreateRunFiles", Answer(400, {}, b"your gate is s3cret-gate"))
    session = Session(rig.backend, rig.clock, random.Random(5), network=Network(headers={"X-Gate": "s3cret-gate"}))

    report = sync(
        [rig.folder],
        SyncSettings(base_url=URL, state_dir=rig.state),
        key=ApiKey(KEY, base_url=URL, source="test"),
        session=session,
        reporter=rig.events.append,
    )

    for operation, request in rig.backend.requests:
        assert ("X-Gate" in request.headers) is (operation != "put")
    assert "s3cret" not in repr(report) + repr(rig.events)
    assert "***" in repr(report)


def test_certificates_that_cannot_be_read_are_a_usage_error_at_once(rig: Rig) -> None:
    """Not a failure of each run: nothing is sent, and the code is that of a wrong setting."""
    rig.run()
    network = Network(trusted_file=str(rig.folder / "nothing.pem"), trusted_by="SSL_CERT_FILE")
    session = Session(rig.backend, rig.clock, random.Random(5), network=network)
    url = "https://backend.test"

    with pytest.raises(UsageError, match="SSL_CERT_FILE"):
        sync(
            [rig.folder],
            SyncSettings(base_url=url, state_dir=rig.state),
            key=ApiKey(KEY, base_url=url, source="test"),
            session=session,
        )


def test_an_environment_that_cannot_be_followed_is_a_usage_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent, with the name of the variable."""
    rig.run()
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "soon")

    with pytest.raises(UsageError, match="WANDB_HTTP_TIMEOUT"):
        rig.sync()
    assert rig.backend.requests == []


class DeadStorage:
    """A storage that refuses connections until `back_at`; the backend behind it is well."""

    def __init__(self, rig: Rig, back_at: float = float("inf")) -> None:
        self.rig, self.back_at = rig, back_at
        self.puts = 0
        self.rows_at: dict[str, float] = {}

    def send(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.puts += 1
            if self.rig.clock.monotonic() < self.back_at:
                raise Retryable("connection refused")
        elif request.url.endswith("/file_stream"):
            self.rows_at.setdefault(request.url, self.rig.clock.monotonic())
        return self.rig.backend.send(request)


def sync_with(rig: Rig, storage: DeadStorage, runs: int, **options: Any) -> Report:
    for number in range(runs):
        rig.settle(logs.simple_run(rig.folder, run_id=f"d{number:03d}", rows=1))
    return sync(
        [rig.folder],
        SyncSettings(base_url=URL, state_dir=rig.state, **options),
        key=ApiKey(KEY, base_url=URL, source="test"),
        transport=storage,
        clock=rig.clock,
        rng=random.Random(5),
    )


def test_a_storage_that_is_down_holds_up_no_rows(rig: Rig) -> None:
    """Thirty runs, one worker, a dead storage: all rows are there within a minute, and the files are still waited for."""
    begun = rig.clock.monotonic()
    storage = DeadStorage(rig)

    report = sync_with(rig, storage, 30, jobs=1)

    assert len(storage.rows_at) == 30
    assert max(storage.rows_at.values()) - begun <= 60.0
    assert rig.clock.monotonic() - begun >= 500.0
    assert report.exit_code == 75
    assert [(run.verdict, run.rows_sent, run.try_again) for run in report.runs] == [(Verdict.PARTIAL, 1, True)] * 30


def test_files_of_a_storage_that_comes_back_arrive(rig: Rig) -> None:
    """What was put off gets its second turn, and each log one verdict with what both turns have sent."""
    storage = DeadStorage(rig, rig.clock.monotonic() + 300.0)

    report = sync_with(rig, storage, 12, jobs=2)

    assert report.exit_code == 0
    assert [(run.verdict, run.rows_sent) for run in report.runs] == [(Verdict.SYNCED, 1)] * 12
    assert all(run.files_sent for run in report.runs)
    assert len({run.log for run in report.runs}) == 12


def test_nothing_is_put_off_where_nobody_waits(rig: Rig) -> None:
    """As many workers as runs: each waits for its own storage, in one turn."""
    storage = DeadStorage(rig, rig.clock.monotonic() + 300.0)

    report = sync_with(rig, storage, 2, jobs=2)

    assert report.exit_code == 0
    asked = [name for name, _ in rig.backend.requests if name == "CreateRunFiles"]
    assert len(asked) == 2


def test_a_session_that_is_aborted_ends_what_is_under_way() -> None:
    """A request that waits for a server which says nothing ends at once, not when its time is over."""
    released, asked = threading.Event(), threading.Event()

    def say_nothing(_: object) -> None:
        asked.set()
        released.wait(20)

    session = Session(network=Network())
    ended: list[BaseException] = []

    def ask(url: str) -> None:
        try:
            session.transport.send(Request("GET", url))
        except Interrupted as error:
            ended.append(error)

    with RawServer(say_nothing) as server:
        thread = threading.Thread(target=ask, args=(server.url,), daemon=True)
        thread.start()
        assert asked.wait(20)
        session.abort()
        thread.join(5)
        released.set()
    session.close()

    assert len(ended) == 1
