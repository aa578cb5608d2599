"""Many runs at a time: none stops another, several syncs share a tree, and memory does not grow with their number."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import runferry
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.sync import UsageError, Verdict, engine, preview
from runferry.sync.clock import SystemClock
from runferry.sync.replay import RunReplay
from runferry.sync.settings import SyncSettings
from support import logs
from support.clock import FakeClock
from support.server import Server, serve
from support.syncrig import Rig, cursor, marker, tree

ERRORS: list[type[Exception]] = [
    OSError,
    ValueError,
    RuntimeError,
    MemoryError,
    RecursionError,
    KeyError,
    AssertionError,
]


@given(broken=st.dictionaries(st.integers(0, 9), st.sampled_from(ERRORS), max_size=9))
@settings(max_examples=20, deadline=None)
def test_no_run_stops_another_whatever_happens_in_it(
    broken: dict[int, type[Exception]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Runs in which something is raised fail, with the reason; all others are synced; the exit code says so."""
    rig = Rig(tmp_path_factory.mktemp("fleet"))
    for number in range(10):
        rig.run(run_id=f"r{number}", rows=1)
    real = RunReplay.run

    def run(replay: RunReplay) -> Any:
        error = broken.get(int(replay.plan.run_id[1:]))
        if error is not None:
            raise error("a fault")
        return real(replay)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunReplay, "run", run)
        report = rig.sync(jobs=3)

    failed = {f"r{number}" for number in broken}
    assert {run.run for run in report.runs if run.verdict is Verdict.FAILED} == failed
    assert {run.run for run in report.runs if run.verdict is Verdict.SYNCED} == set(rig.backend.runs)
    assert len(report.runs) == 10
    assert all("a fault" in run.reason for run in report.runs if run.run in failed)
    assert report.exit_code == bool(broken)


def test_an_interrupted_fleet_reports_every_run(rig: Rig) -> None:
    """Runs that were done, under way and waiting are all told; the last two are to be tried again."""
    for number in range(40):
        rig.run(run_id=f"r{number:02d}", rows=1)
    seen = []

    def interrupt(event: Any) -> None:
        if event.type == "run_done":
            seen.append(event)
            if len(seen) == 5:
                raise KeyboardInterrupt

    rig.events = type("Events", (), {"append": staticmethod(interrupt)})()  # type: ignore[assignment]
    report = rig.sync(jobs=2)

    assert report.interrupted
    assert len({run.log for run in report.runs}) == len(report.runs) == 40
    assert all(run.try_again for run in report.runs if run.verdict is not Verdict.SYNCED)


def test_a_server_is_asked_once_what_it_can_do(rig: Rig) -> None:
    """However many runs ask at the same time."""
    for number in range(6):
        rig.run(run_id=f"r{number}", rows=1)
    rig.sync(jobs=3)

    assert rig.backend.operations().count("ServerFeaturesQuery") == 1


def test_a_reporter_that_fails_is_told_no_more(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """The sync goes on without it, and says so once."""
    for number in range(3):
        rig.run(run_id=f"r{number}", rows=1)
    told = []

    def fail(event: Any) -> None:
        told.append(event)
        raise ValueError("a fault of the reporter")

    rig.events = type("Events", (), {"append": staticmethod(fail)})()  # type: ignore[assignment]

    assert rig.sync().exit_code == 0
    assert len(told) == 1
    assert capsys.readouterr().err.count("a fault of the reporter") == 1


def test_few_runs_wait_for_a_worker(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for each, however many there are: what becomes of a run is told and let go before others are handed over."""
    for number in range(12):
        rig.run(run_id=f"r{number:02d}", rows=1)
    handed, real = [], engine.wait

    def wait(running: Any, **options: Any) -> Any:
        handed.append(len(running))
        return real(running, **options)

    monkeypatch.setattr(engine, "wait", wait)

    assert rig.sync(jobs=2).exit_code == 0
    assert max(handed) == 4


def test_two_syncs_share_a_tree(rig: Rig) -> None:
    """Both go through all runs at the same time: each run is synced once, and skipped, to be tried again, by who comes second."""
    rig.clock = SystemClock()  # type: ignore[assignment]  # a lock that is just being written is judged by its file's time
    for number in range(30):
        rig.run(run_id=f"r{number:02d}", rows=1)
    reports: list[Any] = []
    twins = [threading.Thread(target=lambda: reports.append(rig.sync(jobs=2))) for _ in range(2)]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()

    assert all(rig.backend.written[key] == 1 for key in rig.backend.written), "a line was written twice"
    assert set(rig.backend.runs) == {f"r{number:02d}" for number in range(30)}
    skipped = [run for report in reports for run in report.runs if run.verdict is Verdict.SKIPPED]
    assert all(run.try_again and "is syncing it" in run.reason for run in skipped)
    assert rig.sync().exit_code == 0


def test_a_preview_says_what_there_is_to_do(rig: Rig) -> None:
    """New, sent in part, done, marked by another tool, of two logs, and no log at all; no request, nothing written."""
    new, grown, done, foreign = (rig.run(run_id=name, rows=2) for name in ("new", "grown", "done", "foreign"))
    rig.sync(grown, done)
    logs.make_log(grown, logs.row(7), append=True)
    rig.settle(grown)
    marker(foreign).touch()
    rig.settle(marker(foreign))
    rig.run(run_id="new", rows=1, prefix="run-20260921_150000", start=logs.START_S + 100, exit_code=None, resume=True)
    (rig.folder / "run-bad.wandb").write_bytes(b"")
    rig.backend.forget()
    before = sorted(new.parent.iterdir()), tree(rig.folder)
    at = SyncSettings(base_url="http://backend.test", state_dir=rig.state)
    found = preview(rig.folder, at, clock=rig.clock)

    assert {run.run: (run.todo.value, run.rows_sent, run.state) for run in found.runs} == {
        "new": ("all", 0, "running"),
        "grown": ("rest", 2, "finished"),
        "done": ("nothing", 2, "finished"),
        "foreign": ("skip", 0, "finished"),
    }
    assert [Path(log).parent.name for log in found.runs[-1].logs] == [
        "run-20260921_141320-new",
        "run-20260921_150000-new",
    ]
    assert [reason.split(":")[0] for reason in found.problems.values()] == ["empty (0 bytes)"]
    assert (rig.backend.requests, (sorted(new.parent.iterdir()), tree(rig.folder))) == ([], before)
    assert not cursor(new).exists()


def test_a_preview_heeds_overrides_and_filters(rig: Rig) -> None:
    """What it says is what a sync with these settings does."""
    for number in range(4):
        rig.run(run_id=f"r{number}", rows=number)
    rig.sync()
    at = SyncSettings(base_url="http://backend.test", state_dir=rig.state, min_rows=2)
    elsewhere = SyncSettings(base_url="http://backend.test", state_dir=rig.state, project="other")
    retagged = SyncSettings(base_url="http://backend.test", state_dir=rig.state, replace_tags={"a": "b"})

    assert (len(preview(rig.folder, at).runs), preview(rig.folder, at).left_out) == (2, {"min_rows": 2})
    assert {(run.todo.value, run.project) for run in preview(rig.folder, elsewhere).runs} == {("all", "other")}
    assert {run.todo.value for run in preview(rig.folder, retagged).runs} == {"rest"}
    again = SyncSettings(base_url="http://backend.test", state_dir=rig.state, include_synced=True)
    assert {run.todo.value for run in preview(rig.folder, again).runs} == {"all"}


def test_a_preview_knows_of_the_logs_that_join_in(rig: Rig) -> None:
    """Named alone, a log of a run that was sent before is shown with the others of that run, as a sync takes it."""
    first = rig.run(rows=2)
    second = rig.run(rows=2, prefix="run-20260921_150000", start=logs.START_S + 100, resume=True)
    at = SyncSettings(base_url="http://backend.test", state_dir=rig.state)
    assert [run.logs for run in preview(second, at).runs] == [(str(second),)]
    rig.sync()

    assert [run.logs for run in preview(second, at).runs] == [(str(first), str(second))]


def test_copies_of_a_run_that_goes_on_are_synced_as_it_grows(rig: Rig, tmp_path: Path) -> None:
    """A copy that ends inside a record is partial; the next one brings the rest, and nothing twice."""
    node = logs.simple_run(tmp_path / "node", rows=5)
    whole = node.read_bytes()
    copy = rig.folder / node.parent.name / node.name
    verdicts = []
    for end in (len(whole) // 2, len(whole) * 3 // 4, len(whole)):
        copy.parent.mkdir(exist_ok=True)
        arriving = copy.with_name(".arriving")  # a new file takes the place of the old one, as rsync has it
        arriving.write_bytes(whole[:end])
        arriving.replace(copy)
        rig.settle(copy, age=1)
        verdicts.append(rig.only(rig.sync()).verdict)

    assert verdicts == [Verdict.PARTIAL, Verdict.PARTIAL, Verdict.SYNCED]
    assert [row["_step"] for row in rig.backend.runs["a1b2c3d4"].rows] == [0, 1, 2, 3, 4]
    assert all(count == 1 for key, count in rig.backend.written.items() if key[1] == "history")


def test_a_sync_is_a_function(rig: Rig) -> None:
    """One path or several, settings by name, and a report that travels between processes."""
    log = rig.run()
    ports: dict[str, Any] = {"transport": rig.backend, "clock": FakeClock(), "base_url": "http://backend.test"}
    report = runferry.sync(log, project="other", dry_run=True, **ports)

    assert report.runs[0].log == str(log)
    assert runferry.sync(str(log), SyncSettings(dry_run=True), **ports).verdicts == report.verdicts
    assert pickle.loads(pickle.dumps(report)) == report
    assert pickle.loads(pickle.dumps(runferry.sync)) is runferry.sync
    with pytest.raises(TypeError, match="projekt"):
        runferry.sync(log, projekt="x")
    with pytest.raises(UsageError, match="shard"):
        runferry.sync(log, shard="9/8", **ports)


_SLOWEST_FLEET_S = 1200


def make_fleet(folder: Path, count: int) -> Path:
    """So many small runs below `folder`."""
    for number in range(count):
        logs.simple_run(folder / "wandb", run_id=f"r{number:06d}", rows=20, age=3600, start=logs.START_S + number)
    return folder / "wandb"


def sync_process(server: Server, state: Path, *arguments: object) -> subprocess.Popen[str]:
    """The command, on its way."""
    command = [sys.executable, "-m", "runferry.cli", "sync", "--json", "--base-url", server.url]
    environ = {**os.environ, "WANDB_API_KEY": server.key, "RUNFERRY_STATE_DIR": str(state)}
    return subprocess.Popen(
        [*command, *map(str, arguments)], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def events(said: str) -> list[dict[str, Any]]:
    """The lines of a command's output."""
    return [json.loads(line) for line in said.splitlines()]


def test_processes_on_one_tree_bring_all_runs_over_once(tmp_path: Path) -> None:
    """Two whole syncs and three shares at the same time: every run has its rows, none twice, and a last sync finds nothing to do."""
    folder = make_fleet(tmp_path, 60)
    with serve(tmp_path / "server") as server:
        asked = [[], [], ["--shard", "1/3"], ["--shard", "2/3"], ["--shard", "3/3"]]
        processes = [sync_process(server, tmp_path / "state", *options, folder) for options in asked]
        for process in processes:
            said, errors = process.communicate(timeout=120)
            assert process.returncode in {0, 75}, errors
        said, errors = sync_process(server, tmp_path / "state", folder).communicate(timeout=60)

        assert Counter(event["reason"] for event in events(said) if event["type"] == "run_done") == {"nothing new": 60}
        runs = server.runs()
        assert Counter((run["history_lines"], run["state"]) for run in runs) == {(20, "finished"): 60}


def highest_mb(pid: int) -> float:
    """The most memory that a process had so far, in MB; its own, where `wait4` counts that of who started it, too."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(_SLOWEST_FLEET_S + 60)])]
)
def test_a_fleet_needs_little_memory(tmp_path: Path, count: int) -> None:
    """Under the documented limits every run is synced, hardly a request is refused, and the process stays below 150 MB.

    How long it takes is printed, and judged by nobody here: it says more of the machine.
    """
    folder = make_fleet(tmp_path, count)
    with serve(tmp_path / "server", arguments=["--limits", "documented"]) as server:
        began = time.monotonic()
        process = sync_process(server, tmp_path / "state", folder)
        with ThreadPoolExecutor(1) as reader, process.stdout, process.stderr:
            errors_read = reader.submit(process.stderr.read)
            peak, lines = 0.0, []
            for line in process.stdout:  # each a moment to look; the mark of a process only rises
                lines.append(line)
                peak = max(peak, highest_mb(process.pid))
            said, errors = "".join(lines), errors_read.result()
        process.wait(60)
        took = time.monotonic() - began
        assert process.returncode == 0, errors
        told = events(said)
        statuses = Counter(request["status"] for request in server.requests())
        per_run = statuses.total() / count

    assert told[0] == {"type": "plan", "runs": count, "logs": count}
    assert told[-1]["counts"] == {"synced": count}
    assert statuses[429] < 0.001 * statuses.total()
    assert per_run < 10
    assert peak < 150
    print(f"{count} runs: {took:.1f} s, {per_run:.2f} requests per run, peak {peak:.0f} MB")  # noqa: T201 - for `-s`


@pytest.mark.parametrize("at", range(1, 61, 3))
def test_an_interrupt_at_any_line_loses_no_run(rig: Rig, at: int) -> None:
    """Wherever Ctrl-C comes in the loop over the runs: each of them has one verdict or one reason to be left out, and none two."""
    for number in range(6):
        rig.run(run_id=f"r{number}", rows=1, exit_code=number % 2)
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_name not in {"_replay_all", "note", "add"} or "engine" not in frame.f_code.co_filename:
            return None
        if event == "line" and (frame.f_code.co_name != "_replay_all" or frame.f_lineno in loop):
            lines += 1
            if lines == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    loop = lines_of_loop()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        report = rig.sync(jobs=2, states=["finished"])
    finally:
        sys.settrace(before)

    assert len({run.log for run in report.runs}) == len(report.runs)
    assert len(report.runs) + sum(report.left_out.values()) == 6
    assert report.interrupted
    # What was done is told as done, but for one that was just being handed to a worker.
    done = {name for name, run in rig.backend.runs.items() if run.complete}
    assert len(done - {run.run for run in report.runs if run.verdict is Verdict.SYNCED}) <= 1


def lines_of_loop() -> range:
    """Where the engine hands runs to its workers."""
    source, first = inspect.getsourcelines(engine._replay_all)
    begin = next(number for number, line in enumerate(source) if line.strip() == "try:")
    end = next(number for number, line in enumerate(source) if line.strip().startswith("except KeyboardInterrupt"))
    return range(first + begin + 1, first + end)


@pytest.mark.parametrize("allowed", range(6))
def test_a_system_that_allows_few_threads_takes_longer(rig: Rig, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Every run is synced by the threads that there may be, if need be by none but the caller's; no lock stays."""
    for number in range(8):
        rig.run(run_id=f"r{number}", rows=5)
    real, mine = threading.Thread.start, threading.active_count()

    def start(thread: threading.Thread) -> None:
        if threading.active_count() >= mine + allowed:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    report = rig.sync(jobs=3)

    assert {run.verdict for run in report.runs} == {Verdict.SYNCED}
    assert (len(report.runs), report.exit_code) == (8, 0)
    assert set(rig.backend.written.values()) == {1}
    assert not list(rig.folder.rglob("*.lock*"))


def test_an_interrupt_without_threads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync is at a run itself when it comes: each run has its verdict, no lock stays, and the next sync does the rest."""
    for number in range(5):
        rig.run(run_id=f"r{number}", rows=5)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    def interrupt(number: int, *_: object) -> None:
        if number == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", refuse)
    rig.backend.before = interrupt
    report = rig.sync()

    assert (report.interrupted, report.exit_code, len(report.runs)) == (True, 130, 5)
    assert {run.verdict for run in report.runs} == {Verdict.SYNCED, Verdict.SKIPPED}
    assert not list(rig.folder.rglob("*.lock*"))
    rig.backend.before = lambda *_: None
    assert rig.sync().exit_code == 0
    assert set(rig.backend.written.values()) == {1}


@pytest.mark.parametrize(("files", "jobs"), [(16, 1), (64, 4), (1024, 10), (-1, 10)])
def test_no_more_runs_at_a_time_than_files_may_be_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, files: int, jobs: int
) -> None:
    """Under a low limit of open files runs wait for their turn instead of failing."""
    for number in range(10):
        rig.run(run_id=f"r{number}", rows=1)
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, files))
    rooms = []
    real = engine.open_context

    def opened(*arguments: Any, **options: Any) -> Any:
        rooms.append(options["jobs"])
        return real(*arguments, **options)

    monkeypatch.setattr(engine, "open_context", opened)

    assert rig.sync(jobs=32).exit_code == 0
    assert rooms == [jobs]


def test_a_folder_that_cannot_be_searched_is_a_failure(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether all is done where a folder may not be looked into: exit code 1, and its name."""
    rig.run(run_id="mine")
    shut = rig.run(run_id="theirs").parent
    real = os.scandir

    def scandir(folder: object) -> object:
        if folder == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)  # type: ignore[call-overload]

    monkeypatch.setattr("runferry.logformat.rundir.find_logs.__kwdefaults__", {"unreadable": None, "scan": scandir})
    report = rig.sync()

    assert report.verdicts[str(shut)] is Verdict.FAILED
    assert report.exit_code == 1
    assert len(rig.backend.runs) == 1
