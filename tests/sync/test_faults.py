"""Servers that misbehave: what is retried, what fails, and what the server holds in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import Verdict
from runferry.sync.transport import Answer, Request
from support import logs
from support.fakebackend import reset
from support.syncrig import Rig, marker, on


def test_403_on_the_file_stream_is_a_failure_and_a_later_sync_mends_it(rig: Rig) -> None:
    """failed, exit code 1, not marked; when the server lets us, everything arrives."""
    log = rig.run()
    rig.backend.before = on("stream", Answer(403, {}, b"not yours"))

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.FAILED, 1)
    assert "not yours" in rig.only(report).reason
    assert not marker(log).exists()
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows


def test_401_fails_all_runs_without_asking_for_each(rig: Rig) -> None:
    """A key that the server does not know ends the sync with exit code 2."""
    for name in ("one", "two", "three"):
        rig.run(run_id=name)
    rig.backend.before = lambda *_: Answer(401, {}, b"unknown key")

    report = rig.sync(jobs=1)

    assert {run.verdict for run in report.runs} == {Verdict.FAILED}
    assert report.exit_code == 2
    assert len(rig.backend.requests) == 1


def test_429_with_only_a_reset_stops_the_whole_project(rig: Rig) -> None:
    """For the 7 s that the server asks for, no worker sends anything to the project; then all arrives."""
    for name in ("one", "two", "three"):
        rig.run(run_id=name)
    times: list[tuple[float, str]] = []
    refuse = on("stream", Answer(429, {"RateLimit-Reset": "7"}, b""), times=1)

    def before(number: int, operation: str, request: Request) -> Any:
        times.append((rig.clock.monotonic(), operation))
        answer = refuse(number, operation, request)
        if answer is not None:
            times.append((rig.clock.monotonic(), "refused"))
        return answer

    rig.backend.before = before

    report = rig.sync(jobs=1)

    refused_at = next(at for at, what in times if what == "refused")
    after = [at for at, what in times if at > refused_at]
    assert min(after) - refused_at >= 7.0
    assert not [what for at, what in times if refused_at < at < refused_at + 7.0]
    assert report.exit_code == 0
    assert {run.verdict for run in report.runs} == {Verdict.SYNCED}


@pytest.mark.parametrize(
    "fault",
    [
        Answer(500, {}, b""), Answer(503, {"Retry-After": "2"}, b""), Answer(429, {"Retry-After": "1"}, b""),
        Answer(429, {}, b""), Answer(408, {}, b""), Answer(200, {}, b'{"exitc'), reset(),
    ],
    ids=["500", "503", "429", "429-bare", "408", "half-answer", "reset"],
)  # fmt: skip
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_passing_fault_at_any_request_changes_nothing_in_the_end(
    tmp_path: Path, fault: Answer | Exception, *, applied: bool
) -> None:
    """At each request in turn, applied or not: the end state is that of a clean sync, and at most one body is re-sent."""
    clean = Rig(tmp_path)
    clean.run(rows=30)
    clean.sync(body_bytes=2000)
    count = len(clean.backend.requests)
    expected = clean.backend.runs["a1b2c3d4"]
    for number in range(1, count + 1):
        (tmp_path / str(number)).mkdir()
        rig = Rig(tmp_path / str(number))
        rig.run(rows=30)

        def at(now: int, operation: str, _: Request, number: int = number) -> Any:
            half_put = operation == "put" and isinstance(fault, Answer) and fault.status == 200
            return fault if now == number and not half_put else None

        if applied:
            rig.backend.after = at
        else:
            rig.backend.before = at

        report = rig.sync(body_bytes=2000)

        run = rig.backend.runs["a1b2c3d4"]
        assert (run.lines, run.summary, run.files) == (expected.lines, expected.summary, expected.files)
        assert (run.complete, run.exit_code) == (True, 0)
        assert max(rig.backend.written.values()) <= 2
        assert rig.only(report).verdict is Verdict.SYNCED


def test_a_server_that_is_down_is_for_another_time(rig: Rig) -> None:
    """After the retry budget the verdict says why, the exit code is 75, and the waits were announced."""
    rig.run()
    rig.backend.before = lambda *_: reset("connection refused")

    report = rig.sync(retry_for=60.0)

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.FAILED, 75)
    assert "connection refused" in rig.only(report).reason
    assert [event.type for event in rig.events].count("retry") > 3


def test_a_server_that_takes_small_bodies_only_gets_small_ones(rig: Rig) -> None:
    """413 halves what is sent, down to what fits; no line is lost or moved."""
    log = rig.run(rows=200)

    def before(_: int, operation: str, request: Request) -> Answer | None:
        return Answer(413, {}, b"too large") if operation == "stream" and len(request.body) > 5000 else None

    rig.backend.before = before

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows


def test_the_size_that_a_server_takes_is_learnt(rig: Rig) -> None:
    """After a few refusals the bodies behind them are of a size that is taken, and none of those is refused."""
    rig.run(rows=6000)
    sizes: list[tuple[int, bool]] = []

    def before(_: int, operation: str, request: Request) -> Answer | None:
        if operation != "stream":
            return None
        sizes.append((len(request.body), len(request.body) > 200_000))
        return Answer(413, {}, b"") if sizes[-1][1] else None

    rig.backend.before = before

    report = rig.sync(body_bytes=500_000)

    assert rig.only(report).verdict is Verdict.SYNCED
    refused = [at for at, (_, refused) in enumerate(sizes) if refused]
    assert 1 <= len(refused) <= 4
    assert refused[-1] < len(sizes) / 2


def test_a_deleted_run_fails_alone_and_says_what_to_do(rig: Rig) -> None:
    """409 of one run is final for it; the others are synced."""
    for name in ("dead", "alive"):
        rig.run(run_id=name)

    def before(_: int, operation: str, request: Request) -> Answer | None:
        if operation == "UpsertBucket" and b'"dead"' in request.body:
            return Answer(409, {}, b"run dead was previously deleted")
        return None

    rig.backend.before = before

    report = rig.sync()

    verdicts = {run.run: run for run in report.runs}
    assert verdicts["alive"].verdict is Verdict.SYNCED
    assert verdicts["dead"].verdict is Verdict.FAILED
    assert "--id" in verdicts["dead"].reason
    assert report.exit_code == 1


def test_a_server_that_lost_the_run_gets_all_of_it_again(rig: Rig) -> None:
    """The cursor is believed only as long as the server's run is the one that it was made for."""
    log = rig.run(exit_code=None)
    rig.sync()
    rig.backend.runs.clear()
    logs.make_log(log, logs.row(5), logs.exit_record(), append=True)
    rig.settle(log)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows
