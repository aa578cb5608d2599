"""Whole syncs against a backend that is a Python object: what it holds in the end, what was asked of it, and the verdict."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import Report, SyncSettings, UsageError, Verdict, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.transport import Answer, Request
from support import logs
from support.clock import FakeClock
from support.fakebackend import KEY, URL, FakeBackend, reset


class Rig:
    """A folder of logs, a backend, and a clock at which the logs are one minute old."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "wandb"
        self.folder.mkdir()
        self.state = folder / "state"
        self.backend = FakeBackend()
        self.events: list[Any] = []
        self.clock = FakeClock()

    def run(self, **options: Any) -> Path:
        """A run directory with an ordinary log."""
        log = logs.simple_run(self.folder, **options)
        self.settle(log)
        return log

    def settle(self, log: Path, age: float = 60.0) -> None:
        """Make a log look as if it last grew `age` seconds ago."""
        logs.set_age(log, age, now=self.clock.time())

    def sync(self, *paths: Path, **options: Any) -> Report:
        """One sync; `options` are settings."""
        settings = SyncSettings(base_url=URL, state_dir=self.state, **options)
        return sync(
            paths or [self.folder],
            settings,
            key=ApiKey(KEY, base_url=URL, source="test"),
            transport=self.backend,
            clock=self.clock,
            rng=random.Random(5),
            reporter=self.events.append,
        )

    def only(self, report: Report) -> Any:
        """The report of the only log."""
        assert len(report.runs) == 1
        return report.runs[0]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def marker(log: Path) -> Path:
    return log.with_name(log.name + ".synced")


def cursor(log: Path) -> Path:
    return log.with_name(log.name + ".cursor")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without the side files of a sync."""
    side = (".cursor", ".lock", ".synced")
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix not in side}


# -- the ordinary case -------------------------------------------------------------------------------------------------


def test_everything_in_a_log_is_at_the_server(rig: Rig) -> None:
    """Rows, samples, console, summary, config, the four files of every run, and the exit, equal to what the reader gives."""
    log = rig.run(rows=7, exit_code=3)
    before = tree(rig.folder)

    report = rig.sync()

    state = load(log)
    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == state.rows
    assert [json.loads(line)["system.cpu"] for line in run.stream("events")] == [12.5, 12.5]
    assert [line.partition(" ")[2] for line in run.stream("console")] == [f"step {step}" for step in range(7)]
    assert run.summary == {**state.summary, "_step": 6, "_wandb": {"runtime": 7}}
    assert run.config["lr"] == {"value": 0.001}
    assert run.config["_wandb"]["value"]["t"] == {"3": [2, 4], "4": "3.11.7", "5": "0.1.0"}
    assert run.config["_wandb"]["value"]["e"]["writer-1"]["startedAt"] == "2026-09-21T14:13:20.500Z"
    assert run.variables["program"] == "train.py"
    assert sorted(run.files) == ["config.yaml", "output.log", "wandb-metadata.json", "wandb-summary.json"]
    assert run.files["output.log"] == b"".join(b"step %d\n" % step for step in range(7))
    assert json.loads(run.files["wandb-summary.json"]) == run.summary
    assert (run.complete, run.exit_code) == (True, 3)
    assert sorted(run.uploaded) == sorted(run.files)
    assert (report.exit_code, rig.only(report).verdict) == (0, Verdict.SYNCED)
    assert marker(log).exists()
    assert tree(rig.folder) == before


def test_rows_go_before_files_and_the_exit_last(rig: Rig) -> None:
    """The exit is said only when all rows are acknowledged and the files have been tried."""
    rig.run()

    rig.sync()

    assert rig.backend.operations() == [
        "RunResumeStatus", "UpsertBucket", "ServerFeaturesQuery", "stream", "CreateRunFiles",
        "put", "put", "put", "put", "stream",
    ]  # fmt: skip
    first, last = rig.backend.bodies()
    assert "complete" not in first
    assert (last["complete"], last["exitcode"]) == (True, 0)


def test_a_second_sync_asks_nothing_of_the_server(rig: Rig) -> None:
    """Nothing has changed, so there is no request at all, and the verdict is the same."""
    rig.run()
    rig.sync()
    rig.backend.forget()

    report = rig.sync()

    assert rig.backend.requests == []
    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.only(report).rows_sent == 0


def test_a_log_that_grew_sends_only_the_new_rows(rig: Rig) -> None:
    """The marker of the shorter log does not count, and no line is written twice."""
    log = rig.run(rows=5, exit_code=None)
    rig.sync()
    rig.backend.forget()
    logs.make_log(log, logs.row(5), logs.sample(9), logs.output("more\n"), logs.row(6), logs.exit_record(), append=True)
    rig.settle(log)

    report = rig.sync()

    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == load(log).rows
    assert sorted(rig.backend.written) == [
        ("a1b2c3d4", "console", 5), ("a1b2c3d4", "events", 2), ("a1b2c3d4", "history", 5), ("a1b2c3d4", "history", 6),
    ]  # fmt: skip
    assert rig.backend.operations().count("UpsertBucket") == 1
    assert run.complete
    assert rig.only(report).rows_sent == 2
    assert marker(log).exists()


def test_an_unfinished_console_line_is_written_again_when_it_is_complete(rig: Rig) -> None:
    """What stands behind the last newline is shown, and replaced under the same number once its rest is there."""
    log = rig.run(rows=0, exit_code=None)
    logs.make_log(log, logs.output("whole\npart"), append=True)
    rig.settle(log)
    rig.sync()
    assert [line.partition(" ")[2] for line in rig.backend.runs["a1b2c3d4"].stream("console")] == ["whole", "part"]
    logs.make_log(log, logs.output("ial\n", 3), logs.output("next\n", 4), append=True)
    rig.settle(log)

    rig.sync()

    lines = rig.backend.runs["a1b2c3d4"].stream("console")
    assert [line.partition(" ")[2] for line in lines] == ["whole", "partial", "next"]


def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two syncs to two fresh servers send equal requests, so a retry can be compared and nothing depends on the hour."""
    seen = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rig = Rig(tmp_path / name)
        rig.clock.advance(0 if name == "a" else 5_000_000)
        rig.run(rows=20)
        rig.sync()
        seen.append(
            sorted((request.url, request.body) for operation, request in rig.backend.requests if operation != "put")
        )

    assert seen[0] == seen[1]


def test_large_logs_go_in_bodies_of_bounded_size(rig: Rig) -> None:
    """Bodies are cut by bytes; the cursor follows each of them."""
    rig.run(rows=300)

    rig.sync(body_bytes=4000)

    run = rig.backend.runs["a1b2c3d4"]
    assert [row["_step"] for row in run.rows] == list(range(300))
    assert len(rig.backend.bodies()) > 5
    for body in rig.backend.bodies():
        assert sum(len(line) for part in body.get("files", {}).values() for line in part["content"]) <= 4400
    assert set(rig.backend.written.values()) == {1}


# -- the run goes on, or has died --------------------------------------------------------------------------------------


def test_a_young_log_without_exit_is_live(rig: Rig) -> None:
    """Rows are sent, the run is not closed, nothing is marked, and the exit code is 0."""
    log = rig.run(exit_code=None)

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.LIVE, 0)
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 5
    assert not rig.backend.runs["a1b2c3d4"].complete
    assert not marker(log).exists()
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    assert rig.backend.requests == []


def test_a_stale_log_without_exit_is_complete_and_never_called_finished(rig: Rig) -> None:
    """All rows are there and the verdict says so and that it crashed; no end is made up, so the server shows a crash."""
    log = rig.run(exit_code=None)
    rig.settle(log, 3600)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert "crashed" in rig.only(report).reason
    assert not rig.backend.runs["a1b2c3d4"].complete
    assert marker(log).exists()


def test_a_live_log_whose_last_write_is_in_flight_is_not_damaged(rig: Rig) -> None:
    """A record that ends on the edge of a page, in a log that was written just now, is still being written."""
    log = rig.run(rows=60, exit_code=None)
    os.truncate(log, 4096)
    rig.settle(log)

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.LIVE, 0)


# -- damage ------------------------------------------------------------------------------------------------------------


def flip(data: bytearray) -> None:
    data[40_000] ^= 4


def zero_block(data: bytearray) -> None:
    data[32_768:65_536] = bytes(32_768)


def cut_tail(data: bytearray) -> None:
    del data[-33:]


@pytest.mark.parametrize("damage", [flip, zero_block, cut_tail])
def test_damage_costs_what_it_touched_and_is_reported(rig: Rig, damage: Callable[[bytearray], None]) -> None:
    """All rows outside the damage arrive, the verdict names the bytes, the exit code is 1, nothing is marked; again too."""
    log = rig.run(rows=900)
    whole = load(log).rows
    data = bytearray(log.read_bytes())
    damage(data)
    log.write_bytes(data)
    rig.settle(log)

    report = rig.sync()

    rows = rig.backend.runs["a1b2c3d4"].rows
    assert rows == load(log).rows
    assert len(whole) > len(rows) >= len(whole) - 360 or damage is cut_tail
    assert all(row in whole for row in rows[:: max(1, len(rows) // 50)])
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert "bytes" in rig.only(report).reason
    assert not marker(log).exists()
    rig.backend.forget()
    again = rig.sync()
    assert (rig.only(again).verdict, again.exit_code) == (Verdict.PARTIAL, 1)
    assert rig.backend.requests == []


def test_a_run_record_that_was_lost_is_replaced_by_the_file_name(rig: Rig) -> None:
    """The rows behind it still arrive, under the run id of the file, and the verdict says what is missing."""
    log = rig.run(rows=20)
    data = bytearray(log.read_bytes())
    data[data.index(b"a1b2c3d4")] ^= 1
    log.write_bytes(data)
    rig.settle(log)

    report = rig.sync(project="rescued")

    assert rig.backend.runs["a1b2c3d4"].variables["project"] == "rescued"
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 20
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)


def test_one_bad_log_never_stops_the_others(rig: Rig) -> None:
    """Empty, header-only, foreign, linked into nowhere, a folder: each is named, the good ones are synced, exit code 1."""
    for name in ("one", "two", "three"):
        rig.run(run_id=name)
    contents = {
        "empty": b"",
        "head": b":W&B\xe1\xbe\x00",
        "lfs": b"version https://git-lfs.github.com/spec/v1\n",
        "html": b"<html>",
    }
    for name, content in contents.items():
        (rig.folder / f"run-{name}.wandb").write_bytes(content)
    (rig.folder / "run-gone.wandb").symlink_to("nowhere")
    (rig.folder / "run-folder.wandb").mkdir()
    logs.make_log(rig.folder / "run-norun.wandb", logs.header_record(), logs.row(0))

    report = rig.sync()

    verdicts = {Path(run.log).name: (run.verdict.value, run.reason) for run in report.runs}
    assert {name: verdict for name, (verdict, _) in verdicts.items() if verdict == "synced"}.keys() == {
        "run-one.wandb", "run-two.wandb", "run-three.wandb",
    }  # fmt: skip
    for name, word in {
        "empty": "0 bytes", "head": "header", "lfs": "git lfs pull", "html": "web page", "gone": "cannot be read",
        "folder": "not a file", "norun": "no run record",
    }.items():  # fmt: skip
        verdict, reason = verdicts[f"run-{name}.wandb"]
        assert verdict == "failed"
        assert word in reason
    assert report.exit_code == 1


def test_a_path_that_is_not_there_is_a_usage_error(rig: Rig) -> None:
    """A mistyped path is told before anything is sent."""
    with pytest.raises(UsageError, match="nowhere"):
        rig.sync(rig.folder / "nowhere")


# -- servers that misbehave --------------------------------------------------------------------------------------------


def on(operation: str, answer: Answer | Exception, times: int = 10**9) -> Callable[[int, str, Request], Any]:
    """A fault for the first `times` requests of one operation."""
    left = [times]

    def fault(_: int, name: str, __: Request) -> Answer | Exception | None:
        if name != operation or left[0] == 0:
            return None
        left[0] -= 1
        return answer

    return fault


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


# -- files -------------------------------------------------------------------------------------------------------------


def with_files(rig: Rig, *names: str) -> Path:
    """A run whose log names files."""
    log = rig.folder / "run-20260921_141320-f" / "run-f.wandb"
    records = logs.simple_records("f")
    logs.make_log(log, *records[:3], logs.files_record(*names), *records[3:])
    (log.parent / "files").mkdir()
    rig.settle(log)
    return log


def test_recorded_files_arrive_under_their_names(rig: Rig) -> None:
    """Any depth, empty, unicode, names that look like patterns, patterns; the key goes to none of the upload URLs."""
    names = ["requirements.txt", "media/images/a_0_b.png", "empty", "ü #%[1].txt", "logs/*.txt"]
    log = with_files(rig, *names)
    for name in [*names[:4], "logs/a.txt", "logs/b.txt", "logs/c.bin", "unnamed"]:
        path = log.parent / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name == "empty" else f"content of {name}")

    report = rig.sync()

    files = rig.backend.runs["f"].files
    for name in [*names[:4], "logs/a.txt", "logs/b.txt"]:
        assert files[name] == (b"" if name == "empty" else f"content of {name}".encode())
    assert "unnamed" not in files
    assert "logs/c.bin" not in files
    assert rig.only(report).verdict is Verdict.SYNCED


def test_names_that_lead_out_are_refused_and_named(rig: Rig, tmp_path: Path) -> None:
    """Absolute paths, dots, links out of the run directory and pipes are not read; the rows arrive all the same."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    names = ["../../../secret", str(secret), "link", "folder/secret", "nul\0l", "pipe", "dir", "inside", "../*"]
    log = with_files(rig, *names)
    files = log.parent / "files"
    (files / "link").symlink_to(secret)
    (files / "folder").symlink_to(tmp_path)
    (files / "dir").mkdir()
    (files / "real").write_text("fine")
    (files / "inside").symlink_to(files / "real")
    os.mkfifo(files / "pipe")

    report = rig.sync()

    run = rig.backend.runs["f"]
    assert {name for name in run.files if not name.startswith(("wandb-", "config", "output"))} == {"inside"}
    assert b"secret" not in run.files.values()
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert len(rig.only(report).missing) == 8
    assert len(run.rows) == 5
    assert run.complete
    assert not marker(log).exists()


def test_a_missing_file_is_reported_until_it_is_there(rig: Rig) -> None:
    """Partial while it is missing, without a request at each sync; synced once it is there, and only it is sent."""
    log = with_files(rig, "late.bin")
    report = rig.sync()
    assert (rig.only(report).verdict, rig.only(report).missing) == (Verdict.PARTIAL, ("late.bin: missing",))
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []
    (log.parent / "files" / "late.bin").write_bytes(b"here")

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.operations() == ["CreateRunFiles", "put", "stream"]
    assert rig.backend.runs["f"].files["late.bin"] == b"here"


def test_a_changed_file_is_sent_again_and_a_touched_one_is_not(rig: Rig) -> None:
    """Size and time tell a possible change, the hash whether there was one."""
    log = with_files(rig, "a", "b")
    for name in ("a", "b"):
        (log.parent / "files" / name).write_text("same")
    rig.sync()
    rig.backend.forget()
    os.utime(log.parent / "files" / "a", (1, 1))
    (log.parent / "files" / "b").write_text("more than before")

    rig.sync()

    assert [request.url.rpartition("/")[2] for name, request in rig.backend.requests if name == "put"] == ["b"]


@pytest.mark.parametrize("answer", [Answer(403, {}, b"expired"), Answer(500, {}, b"")], ids=["403", "500"])
def test_a_file_that_does_not_get_through_never_stops_the_rows(rig: Rig, answer: Answer) -> None:
    """Storage may be behind a firewall: rows, summary and exit arrive, the verdict names the files."""
    log = rig.run()
    rig.backend.before = on("put", answer)

    report = rig.sync(retry_for=5.0)

    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == load(log).rows
    assert run.complete
    assert rig.only(report).verdict is Verdict.PARTIAL
    assert report.exit_code == (1 if answer.status == 403 else 75)
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(run.files) == 4


def test_an_expired_upload_url_is_asked_for_again(rig: Rig) -> None:
    """A 403 on a signed URL gets one new URL before the file counts as missing."""
    rig.run()
    rig.backend.before = on("put", Answer(403, {}, b"expired"), times=1)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


# -- what other syncs did ----------------------------------------------------------------------------------------------


def test_a_log_that_another_tool_marked_is_skipped_unless_asked_for(rig: Rig) -> None:
    """The peer's marker without a cursor of ours is believed; --include-synced sends the log all the same."""
    log = rig.run()
    marker(log).touch()

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.SKIPPED, 0)
    assert "--include-synced" in rig.only(report).reason
    assert rig.backend.requests == []
    assert rig.only(rig.sync(include_synced=True)).verdict is Verdict.SYNCED


def test_include_synced_writes_the_same_lines_again(rig: Rig) -> None:
    """Forcing a second time leaves the server as it was."""
    log = rig.run()
    rig.sync()

    report = rig.sync(include_synced=True)

    assert rig.only(report).rows_sent == 5
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows


def test_a_sync_goes_on_where_another_client_stopped(rig: Rig) -> None:
    """Without a cursor, the server's last row is compared with ours at that place: equal means go on behind it."""
    log = rig.run(rows=10)
    rig.sync()
    run = rig.backend.runs["a1b2c3d4"]
    for number in range(4, 10):
        del run.lines["history"][number]
    cursor(log).unlink()
    marker(log).unlink()
    rig.backend.forget()

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert run.rows == load(log).rows
    assert sorted(number for _, stream, number in rig.backend.written if stream == "history") == [4, 5, 6, 7, 8, 9]


def test_rows_of_an_unknown_writer_are_never_overwritten(rig: Rig) -> None:
    """The server holds rows under this id that are not ours: refused before anything is changed there."""
    rig.run()
    rig.sync()
    run = rig.backend.runs["a1b2c3d4"]
    before = (json.dumps(run.lines), run.variables["config"])
    other = logs.make_log(
        rig.folder.parent / "elsewhere" / "run-a1b2c3d4.wandb",
        logs.run_record("a1b2c3d4", start=logs.START_S + 999),
        *(logs.row(step, {"loss": 7}, start=logs.START_S + 999) for step in range(50)),
        logs.exit_record(),
    )
    rig.settle(other)

    report = rig.sync(other)

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.FAILED, 1)
    assert "--id" in rig.only(report).reason
    assert (json.dumps(run.lines), run.variables["config"]) == before


def test_a_replaced_log_is_not_sent_from_the_middle(rig: Rig) -> None:
    """The cursor of the old log does not count for a new one of the same name."""
    log = rig.run(rows=5)
    rig.sync()
    logs.make_log(log, *logs.simple_records(rows=9, start=logs.START_S + 50))
    rig.settle(log)

    report = rig.sync()

    assert rig.only(report).verdict in {Verdict.SYNCED, Verdict.FAILED}
    rows = rig.backend.runs["a1b2c3d4"].rows
    assert rows == load(log).rows or len(rows) == 5


def test_a_log_that_is_being_synced_is_skipped(rig: Rig) -> None:
    """Two syncs of one log at a time: the second says who is at work and asks to be tried again."""
    log = rig.run()
    started, go_on = threading.Event(), threading.Event()

    def before(number: int, *_: Any) -> None:
        if number == 1:
            started.set()
            assert go_on.wait(20)

    rig.backend.before = before
    reports: list[Report] = []
    first = threading.Thread(target=lambda: reports.append(rig.sync()))
    first.start()
    assert started.wait(20)

    second = rig.sync()

    go_on.set()
    first.join(20)
    assert (rig.only(second).verdict, second.exit_code) == (Verdict.SKIPPED, 75)
    assert str(os.getpid()) in rig.only(second).reason
    assert rig.only(reports[0]).verdict is Verdict.SYNCED
    assert not log.with_name(log.name + ".lock").exists()


def test_a_read_only_directory_is_synced_from_the_state_directory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written beside the log, and the second sync still knows that all was sent."""
    log = rig.run()
    monkeypatch.setattr("runferry.sync.replay.is_writable", lambda _: False)
    before = sorted(path.name for path in log.parent.iterdir())
    monkeypatch.setattr(Path, "touch", lambda *_: (_ for _ in ()).throw(PermissionError(30, "read-only file system")))

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert sorted(path.name for path in log.parent.iterdir()) == before
    assert [path.name for path in rig.state.rglob("*.cursor")] == ["run-a1b2c3d4.wandb.cursor"]
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.requests == []


# -- segments ----------------------------------------------------------------------------------------------------------


def segment(
    rig: Rig, name: str, start: float, rows: int, *, exit_code: int | None, resume: bool, console: str = ""
) -> Path:
    """One log of the run `seg`, begun `start` seconds after the first."""
    log = rig.folder / f"run-2026092{name}_141320-seg" / "run-seg.wandb"
    records = [
        logs.run_record("seg", start=logs.START_S + start, resume=resume),
        *(logs.row(step, {name: step}, start=logs.START_S + start) for step in range(rows)),
        *([logs.output(console, start)] if console else []),
        logs.sample(1, start=logs.START_S + start),
    ]
    logs.make_log(log, *records, *([] if exit_code is None else [logs.exit_record(exit_code)]))
    rig.settle(log, 3600 if exit_code is None else 60)
    return log


def test_the_segments_of_a_run_become_one_run(rig: Rig) -> None:
    """Ordered by start time whatever their names: lines and steps go on, the last segment's exit is the run's."""
    segment(rig, "9", 0, 4, exit_code=None, resume=False, console="first\n")
    segment(rig, "1", 100, 3, exit_code=0, resume=True, console="second\n")

    report = rig.sync()

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert [("9" in row, "1" in row) for row in run.rows] == [(True, False)] * 4 + [(False, True)] * 3
    assert [line.partition(" ")[2] for line in run.stream("console")] == ["first", "second"]
    assert len(run.stream("events")) == 2
    assert run.summary["_step"] == 6
    assert (run.complete, run.exit_code) == (True, 0)
    assert [run_report.verdict for run_report in report.runs] == [Verdict.SYNCED] * 2
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []


def test_a_segment_added_later_goes_behind_the_others(rig: Rig) -> None:
    """The rows of the first are not sent again."""
    segment(rig, "1", 0, 4, exit_code=None, resume=False)
    rig.sync()
    rig.backend.forget()
    segment(rig, "2", 100, 3, exit_code=0, resume=True)

    rig.sync()

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert sorted(number for _, stream, number in rig.backend.written if stream == "history") == [4, 5, 6]


def test_segments_may_come_in_any_order(rig: Rig) -> None:
    """The second segment alone first, then both: the lines move to where they belong."""
    first = segment(rig, "1", 0, 4, exit_code=None, resume=False)
    second = segment(rig, "2", 100, 3, exit_code=0, resume=True)
    rig.sync(second)

    rig.sync(first, second)

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert run.complete


def test_a_resumed_segment_goes_behind_what_the_server_has(rig: Rig) -> None:
    """Synced alone, elsewhere: lines and steps go on from the server's, and a second sync changes nothing."""
    first = segment(rig, "1", 0, 4, exit_code=None, resume=False)
    second = segment(rig, "2", 100, 3, exit_code=0, resume=True)
    rig.sync(first)
    rig.sync(second)

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    rig.sync(second, include_synced=True)
    rig.sync(first, second)
    assert [row["_step"] for row in run.rows] == list(range(7))


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_overrides_reach_rows_and_files(rig: Rig) -> None:
    """Project, entity, id and job type of the command replace those of the log everywhere."""
    rig.run()

    rig.sync(project="p2", entity="e2", run_id="new", job_type="eval")

    assert list(rig.backend.runs) == ["new"]
    variables = rig.backend.runs["new"].variables
    assert (variables["project"], variables["entity"], variables["jobType"]) == ("p2", "e2", "eval")
    assert {request.url for name, request in rig.backend.requests if name == "stream"} == {
        f"{URL}/files/e2/p2/new/file_stream"
    }


def test_a_dry_run_tells_and_sends_nothing(rig: Rig) -> None:
    """Rows, samples, lines, files and target are named; no request, no file beside the log."""
    log = rig.run(rows=12)
    before = sorted(log.parent.iterdir())

    report = rig.sync(dry_run=True)

    assert "12 of 12 rows, 2 samples, 12 console lines" in rig.only(report).reason
    assert rig.backend.requests == []
    assert sorted(log.parent.iterdir()) == before
    assert report.exit_code == 0


def test_config_changes_and_metrics_arrive_with_the_first_upsert(rig: Rig) -> None:
    """Later changes and deletions are in the one config that is sent; metric definitions point to their step metric."""
    from runferry.logformat import messages

    metric = messages.MetricRecord(
        glob_name="val/*", step_metric="epoch", options=messages.MetricOptions(step_sync=True)
    )
    low = messages.MetricRecord(name="loss", options=messages.MetricOptions(defined=True))
    low.summary.min = True
    log = logs.make_log(
        rig.folder / "run-c.wandb",
        logs.run_record("c", config={"a": 1, "gone": 2, "nest": {"x": 1}}),
        logs.config_record({"b": 2, "nest": {"y": 2}}, remove=("gone",)),
        messages.Record(metric=metric),
        messages.Record(metric=low),
        logs.row(0, {"loss": 3}),
        logs.row(1, {"loss": 5}),
        logs.exit_record(),
    )
    rig.settle(log)

    rig.sync()

    run = rig.backend.runs["c"]
    assert {key: entry["value"] for key, entry in run.config.items() if key != "_wandb"} == {
        "a": 1, "b": 2, "nest": {"x": 1, "y": 2},
    }  # fmt: skip
    assert run.config["_wandb"]["value"]["m"] == [
        {"1": "epoch", "6": [3], "7": []}, {"2": "val/*", "5": 1, "6": [1], "7": []}, {"1": "loss", "6": [3], "7": [1]},
    ]  # fmt: skip
    assert run.summary["loss"] == {"min": 3}
    assert rig.backend.operations().count("UpsertBucket") == 1


def test_an_oversized_value_is_left_out_and_remembered(rig: Rig) -> None:
    """The row keeps its place and its other keys; the verdict is partial now and at every later sync."""
    log = logs.make_log(
        rig.folder / "run-o.wandb",
        logs.run_record("o"),
        logs.row(0, {"a": 1}),
        logs.row(1, {"a": 2, "huge": "x" * 11_000_000}),
        logs.row(2, {"a": 3}),
        logs.exit_record(),
    )
    rig.settle(log)

    report = rig.sync()

    assert [row["a"] for row in rig.backend.runs["o"].rows] == [1, 2, 3]
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert any("step 1: huge" in item for item in rig.only(report).missing)
    assert any("step 1: huge" in item for item in rig.only(rig.sync()).missing)


def test_a_fault_of_ours_in_one_run_does_not_stop_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is that run's verdict, with its place, and nobody else's."""
    for name in ("bad", "good"):
        rig.run(run_id=name)
    from runferry.sync import replay

    real = replay.scan

    def scan(log: Path, *arguments: Any, **options: Any) -> Any:
        if log.name == "run-bad.wandb":
            raise ZeroDivisionError("oops")
        return real(log, *arguments, **options)

    monkeypatch.setattr(replay, "scan", scan)

    report = rig.sync()

    verdicts = {run.run: run for run in report.runs}
    assert verdicts["good"].verdict is Verdict.SYNCED
    assert verdicts["bad"].verdict is Verdict.FAILED
    assert "ZeroDivisionError" in verdicts["bad"].reason


def test_artifacts_are_named_as_missing_and_alerts_as_not_sent(rig: Rig) -> None:
    """What this version does not send is said, and a log with artifacts is never marked as synced."""
    from runferry.logformat import messages

    artifact = messages.Record(artifact=messages.ArtifactRecord(name="model", type="model"))
    alert = messages.Record(alert=messages.AlertRecord(title="t", text="x", level="INFO"))
    logs.make_log(rig.folder / "run-a.wandb", logs.run_record("a"), logs.row(0), artifact, logs.exit_record())
    logs.make_log(rig.folder / "run-b.wandb", logs.run_record("b"), logs.row(0), alert, logs.exit_record())

    runs = {run.run: run for run in rig.sync().runs}

    assert runs["a"].verdict is Verdict.PARTIAL
    assert "artifact model" in runs["a"].reason
    assert runs["b"].verdict is Verdict.SYNCED
    assert "alerts" in runs["b"].reason


def test_the_package_is_the_function_of_the_public_face(rig: Rig) -> None:
    """`runferry.sync(paths)` works although `runferry.sync` is a package as well."""
    import runferry

    log = rig.run()

    report = runferry.sync([log], SyncSettings(base_url=URL, state_dir=rig.state, dry_run=True))

    assert [run.verdict for run in report.runs] == [Verdict.SKIPPED]


def test_a_reporter_that_fails_does_not_stop_the_sync(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """A closed pipe costs the progress shown, and nothing else."""
    rig.run()

    def fail(_: Any) -> None:
        raise BrokenPipeError("gone")

    rig.events = type("Broken", (list,), {"append": lambda _, event: fail(event)})()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert capsys.readouterr().err.count("no more progress") == 1


def test_output_that_failed_to_arrive_is_made_again(rig: Rig) -> None:
    """output.log is made from the log, so a sync that has nothing but it to send reads the console once more."""
    log = rig.run()
    rig.backend.before = lambda _, operation, request: (
        Answer(403, {}, b"no") if operation == "put" and request.url.endswith("output.log") else None
    )
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    rig.backend.before = lambda *_: None
    rig.backend.forget()

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.operations() == ["CreateRunFiles", "put", "stream"]
    assert rig.backend.runs["a1b2c3d4"].files["output.log"].count(b"\n") == 5


@pytest.mark.parametrize("seed", range(8))
def test_the_summary_is_the_fold_of_the_log_whatever_the_rows(tmp_path: Path, seed: int) -> None:
    """Rows of changing keys, nulls, whole objects, summary records between them: the server's summary is the reader's."""
    rig = Rig(tmp_path)
    rng = random.Random(seed)
    records = [logs.run_record("s")]
    for step in range(60):
        keys = rng.choice([("a", "b"), ("a", "b"), ("a", ("n", "x")), ("n", "c")])
        values = {key: rng.choice([None, step, step / 3, "text", {"y": step}, b"NaN"]) for key in keys}
        records.append(logs.row(step, values))
        if rng.random() < 0.1:
            records.append(logs.summary_record({"a": "set", "_wandb": {"runtime": step}}))
    log = logs.make_log(rig.folder / "run-s.wandb", *records, logs.exit_record())
    rig.settle(log)

    rig.sync()

    expected = {"_wandb": {"runtime": 7}, **load(log).summary, "_step": 59}
    assert json.dumps(rig.backend.runs["s"].summary) == json.dumps(expected, sort_keys=True)
    cursor(log).write_text(cursor(log).read_text().replace('"complete": true', '"complete": false'))
    rig.backend.forget()
    rig.sync()  # reads the log by the other way
    assert rig.backend.requests == []


def test_a_row_that_is_no_row_is_damage_and_takes_no_line(rig: Rig) -> None:
    """A history record with a good checksum that cannot be decoded is left out and reported; its neighbours move up."""
    from runferry.logformat import FILE_HEADER, Framer

    out, framer = bytearray(FILE_HEADER), Framer()
    broken = b"\x08\x03\x12\x04\x0a\x7f\x0a\x01"  # an item that runs past its record
    payloads = [logs.run_record("r").SerializeToString(), logs.row(0).SerializeToString(), broken]
    for payload in [*payloads, logs.row(2).SerializeToString(), logs.exit_record().SerializeToString()]:
        framer.append(payload, out)
    log = rig.folder / "run-r.wandb"
    log.write_bytes(out)
    rig.settle(log)

    report = rig.sync()

    assert [row["_step"] for row in rig.backend.runs["r"].rows] == [0, 2]
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert "bad_proto" in rig.only(report).reason
    again = rig.sync()
    assert rig.only(again).missing == rig.only(report).missing
