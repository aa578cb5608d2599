"""Watching: passes over what has grown, verdicts when they change, and an end. No test waits for real."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import SyncSettings, UsageError, Verdict
from runferry.sync.errors import Retryable
from runferry.sync.transport import Answer
from runferry.sync.watch import FIRST_RETRY_S, LAST_RETRY_S, REST, Watching, watch
from support import logs
from support.fakebackend import URL
from support.server import serve
from support.syncrig import cursor, marker, on
from support.watchrig import Step, Story, WatchRig


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    return WatchRig(tmp_path)


def test_a_run_is_followed_to_its_end(rig: WatchRig) -> None:
    """Rows arrive while the run goes on; its exit ends the watch of its directory; each verdict is told once."""
    log = rig.begin()
    counts: list[int] = []
    report = rig.watch(
        log.parent,
        story=Story(
            lambda: rig.grow(log, logs.row(2)),
            lambda: counts.append(len(rig.backend.runs["live"].rows)),
            lambda: rig.grow(log, logs.row(3), logs.row(4)),
            None,
            lambda: rig.grow(log, logs.row(5), logs.exit_record(0)),
        ),
    )

    run = rig.backend.runs["live"]
    assert counts == [3]
    assert [row["_step"] for row in run.rows] == list(range(6))
    assert (run.complete, run.exit_code) == (True, 0)
    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert (report.exit_code, rig.only(report).rows_sent) == (0, 6)
    assert [event.counts for event in rig.told("done")] == [{"synced": 1}]
    assert marker(log).exists()


def test_a_folder_that_cannot_be_looked_into_is_named(rig: WatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told once while the watch goes on, and a failure in the end: nobody knows whether all is done."""
    rig.run(run_id="done")
    shut = rig.folder / "theirs"
    shut.mkdir()
    real = os.scandir

    def scandir(folder: object) -> object:
        if folder == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)  # type: ignore[call-overload]

    monkeypatch.setattr("runferry.logformat.rundir.find_logs.__kwdefaults__", {"unreadable": None, "scan": scandir})
    report = rig.watch(rig.folder, story=Story(), idle=30.0)

    told = [event for event in rig.told() if event.log == str(shut)]
    assert [(event.verdict, "Permission denied" in event.reason) for event in told] == [(Verdict.FAILED, True)]
    assert (report.exit_code, report.verdicts[str(shut)]) == (1, Verdict.FAILED)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SSL_CERT_FILE", "/nowhere"), ("https_proxy", "socks5://127.0.0.1:1"), ("WANDB_USERNAME", "ä")],
)
def test_an_environment_that_cannot_be_followed_ends_it(
    rig: WatchRig, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """It is the same in every pass, so it is told, and not tried again and again."""
    log = rig.begin()
    monkeypatch.setattr("runferry.sync.network.find_spec", lambda _: None)
    monkeypatch.setenv(variable, value)
    settings = SyncSettings(base_url="https://backend.example", state_dir=rig.state)

    with pytest.raises(UsageError, match=variable):
        watch([log], settings, **rig.ports(Story(longest=5)))


def test_paths_are_those_that_a_sync_takes(rig: WatchRig) -> None:
    """One path by itself, and patterns, looked up when the watch begins; one that nothing matches is an error."""
    log = rig.run(run_id="done")

    for paths in (str(log), [rig.folder / "run-*-done"], f"{rig.folder}/*/*.wandb"):
        report = watch(paths, SyncSettings(base_url=URL, state_dir=rig.state), **rig.ports(Story()))
        assert list(report.verdicts) == [str(log)]
    with pytest.raises(UsageError, match="no file matches"):
        watch([rig.folder / "none-*"], SyncSettings(base_url=URL), **rig.ports(Story()))


def test_a_new_row_is_on_its_way_within_two_seconds(rig: WatchRig) -> None:
    """The longest wait between two looks is one second, unless a look is expensive."""
    log = rig.begin()
    rig.watch(log, story=Story(*[None] * 5, lambda: rig.grow(log, logs.exit_record(0))))

    assert set(rig.clock.sleeps) == {1.0}


def test_nothing_is_asked_while_nothing_grows(rig: WatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request, and no log is opened."""
    log = rig.begin()
    finished = rig.run(run_id="done")
    seen: list[tuple[int, int]] = []
    opened: list[Path] = []
    real = Path.open

    def watched(path: Path, *args: Any, **options: Any) -> Any:
        opened.append(path)
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", watched)

    def note() -> None:
        seen.append((len(rig.backend.requests), len(opened)))

    def grow() -> None:
        opened.clear()
        rig.grow(log, logs.exit_record(0))
        opened.clear()

    rig.watch(rig.folder, idle=30, story=Story(note, *[None] * 8, note, grow))

    assert seen[0] == seen[1]
    assert seen[0][0] > 0
    assert finished not in opened


def test_new_runs_are_picked_up(rig: WatchRig) -> None:
    """Below a folder that is no run a watch goes on until nothing has grown for the time given."""
    first = rig.run(run_id="first")
    report = rig.watch(
        rig.folder, idle=20, story=Story(*[None] * 15, lambda: rig.run(run_id="second"), lambda: rig.begin("third"))
    )

    assert set(rig.backend.runs) == {"first", "second", "third"}
    assert {Path(log).name: verdict for log, verdict in report.verdicts.items()} == {
        "run-first.wandb": Verdict.SYNCED,
        "run-second.wandb": Verdict.SYNCED,
        "run-third.wandb": Verdict.LIVE,
    }
    assert sum(rig.clock.sleeps) == pytest.approx(17 + 20, abs=1)
    assert [(event.runs, event.logs) for event in rig.told("plan")] == [(1, 1), (2, 2), (3, 3)]
    assert first.exists()


def test_a_folder_without_idle_is_watched_until_interrupted(rig: WatchRig) -> None:
    """An interrupt while it waits gets a last pass; the exit code says that it was interrupted."""
    log = rig.begin()

    def stop() -> None:
        rig.grow(log, logs.row(2))
        raise KeyboardInterrupt

    report = rig.watch(rig.folder, story=Story(*[None] * 50, stop))

    assert len(rig.backend.runs["live"].rows) == 3
    assert (report.exit_code, report.interrupted) == (130, True)


def test_an_interrupt_during_a_pass_ends_at_once(rig: WatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was acknowledged stays so; there is no other pass."""
    log = rig.begin()
    monkeypatch.setattr("runferry.sync.engine.wait", _interrupt)

    report = rig.watch(log, story=Story())

    assert report.exit_code == 130
    assert rig.clock.sleeps == []


def _interrupt(_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_run_that_died_ends_as_crashed_after_the_grace(rig: WatchRig) -> None:
    """No exit record, no growth: the verdict changes when the log is stale, and the watch ends with it."""
    log = rig.begin()
    report = rig.watch(log.parent, stale_after=90, story=Story())

    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert "crashed" in rig.only(report).reason
    assert sum(rig.clock.sleeps) == pytest.approx(91, abs=2)
    assert not rig.backend.runs["live"].complete


def test_where_the_writer_is_known_its_life_decides(rig: WatchRig) -> None:
    """A run that logs once a day is not taken for dead; once its process is gone, nobody waits for the grace."""
    log = rig.begin()
    alive = [True]
    story = Story(*[None] * 1_000, lambda: rig.grow(log, logs.row(2)), None, None, alive.clear)
    report = rig.watch(log.parent, stale_after=60, writer_lives=lambda: bool(alive), story=story)

    assert len(rig.backend.runs["live"].rows) == 3
    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert "crashed" in rig.only(report).reason
    assert len(story.sleeps) < 1_010


def test_a_writer_that_ended_in_good_order_is_no_crash(rig: WatchRig) -> None:
    """The exit record counts, also where the process was gone before it was read."""
    log = rig.begin()
    alive = [True]

    def end() -> None:
        rig.grow(log, logs.exit_record(0))
        alive.clear()

    report = rig.watch(log.parent, writer_lives=lambda: bool(alive), story=Story(None, end))

    assert rig.only(report).reason == ""
    assert rig.backend.runs["live"].complete


@pytest.mark.parametrize("end", ["finish", "die"])
@pytest.mark.parametrize("is_back", [True, False])
def test_a_writers_watch_does_not_wait_for_a_server_for_ever(rig: WatchRig, end: str, is_back: bool) -> None:
    """While the run goes on it is tried again and again; behind its end as long as a sync would."""
    log = rig.begin()
    alive = [True]
    ended: list[float] = []

    def refuse(*_: Any) -> Exception | None:
        is_up = is_back and ended and rig.clock.monotonic() - ended[0] > 400
        return None if is_up else Retryable("cannot reach backend.test: no route")

    rig.backend.before = refuse

    def over() -> None:
        ended.append(rig.clock.monotonic())
        if end == "die":
            alive.clear()
        else:
            rig.grow(log, logs.exit_record(0))

    looks: list[float] = []
    story = Story(*[lambda: looks.append(rig.clock.monotonic())] * 500, over)
    report = rig.watch(log.parent, retry_for=600, writer_lives=lambda: bool(alive), story=story)

    assert max(after - before for before, after in pairwise(looks)) < 2 * LAST_RETRY_S  # it sees who has gone
    took = rig.clock.monotonic() - ended[0]
    if is_back:
        assert (report.exit_code, len(rig.backend.runs["live"].rows)) == (0, 2)
        assert 400 < took < 400 + 2 * LAST_RETRY_S
    else:
        assert report.exit_code == 75
        assert 600 <= took < 600 + 2 * LAST_RETRY_S


def test_a_writers_watch_of_nothing_ends_with_the_writer(rig: WatchRig) -> None:
    """Also where its log was taken away before it came, so that one might still appear."""
    folder = rig.folder / "run-20260921_141300-live"
    folder.mkdir(parents=True)
    alive = [True]
    report = rig.watch(folder, writer_lives=lambda: bool(alive), story=Story(None, None, alive.clear))

    assert report.runs == ()


def test_a_server_that_is_down_is_tried_again_and_told_once(rig: WatchRig) -> None:
    """With growing waits, and without a line for each of them; when it is back, everything arrives."""
    log = rig.run()
    down = [True]

    def refuse(_: int, __: str, ___: Any) -> Exception | None:
        return Retryable("cannot reach backend.test: no route") if down else None

    rig.backend.before = refuse
    story = Story(*[None] * 300, down.clear)
    report = rig.watch(log.parent, retry_for=0, story=story)

    attempts = len([name for name in rig.backend.operations() if name == "RunResumeStatus"])
    assert 300 / LAST_RETRY_S < attempts < 300 / FIRST_RETRY_S
    assert [event.verdict for event in rig.told()] == [Verdict.FAILED, Verdict.SYNCED]
    assert report.exit_code == 0


def test_waits_of_one_cause_are_told_once(rig: WatchRig) -> None:
    """Also while one request is tried for long."""
    log = rig.run()
    rig.backend.before = on("UpsertBucket", Answer(503, {}, b"busy"), times=6)
    rig.watch(log.parent, story=Story())

    assert len(rig.told("retry")) == 1


def test_a_second_outage_is_told_too(rig: WatchRig) -> None:
    """Once something went through, the same wait is news again."""
    log = rig.begin()

    def fail(step: int) -> None:
        rig.backend.before = on("stream", Answer(503, {}, b"busy"), times=3)
        rig.grow(log, logs.row(step))

    end = partial(rig.grow, log, logs.exit_record(0))
    rig.watch(log.parent, story=Story(partial(fail, 2), None, partial(fail, 3), None, end))

    assert len(rig.told("retry")) == 2


def test_a_log_that_was_only_touched_is_no_news(rig: WatchRig) -> None:
    """Its time has changed and nothing else: the verdict stands, and is not told again."""
    log = rig.run()
    rig.begin("other")
    report = rig.watch(rig.folder, idle=20, story=Story(None, lambda: rig.settle(log, 0)))

    assert [event.verdict for event in rig.told() if event.log == str(log)] == [Verdict.SYNCED]
    assert report.verdicts[str(log)] is Verdict.SYNCED


def test_the_last_report_counts_what_all_passes_sent(rig: WatchRig) -> None:
    """Rows and files, each once."""
    log = rig.begin()

    def save(name: str) -> Step:
        def happen() -> None:
            (log.parent / "files").mkdir(exist_ok=True)
            (log.parent / "files" / name).write_bytes(b"1")
            rig.grow(log, logs.row(ord(name)), logs.files_record(name))

        return happen

    report = rig.watch(
        log.parent, story=Story(save("a"), None, save("b"), None, lambda: rig.grow(log, logs.exit_record(0)))
    )

    assert (rig.only(report).rows_sent, rig.told()[-1].rows_sent) == (4, 4)
    # Config and summary at the beginning, the two, and the summary again at the end.
    assert rig.only(report).files_sent == rig.told()[-1].files_sent == 5


def test_a_row_of_a_run_that_goes_on_is_one_request(rig: WatchRig) -> None:
    """The run is announced again only when its config changed; the files that change with every row wait for the end."""
    log = rig.begin()
    passes: list[list[str]] = []

    def then(*records: Any) -> Step:
        def happen() -> None:
            passes.append(rig.backend.operations())
            rig.backend.forget()
            rig.grow(log, *records)

        return happen

    story = Story(then(logs.row(2)), then(logs.config_record({"lr": 1})), then(logs.row(3), logs.exit_record(0)))
    rig.watch(log.parent, story=story)
    passes.append(rig.backend.operations())

    assert passes[0].count("UpsertBucket") == 1
    assert passes[1] == ["stream"]
    assert "UpsertBucket" in passes[2]
    assert "UpsertBucket" not in passes[3]
    run = rig.backend.runs["live"]
    assert run.config["lr"]["value"] == 1
    assert b'"_step":3' in run.files["wandb-summary.json"]


def test_what_waited_for_the_end_is_brought_by_the_next_sync(rig: WatchRig) -> None:
    """Watch and run were killed: the log has not changed since the last pass, but it is not done."""
    log = rig.begin()

    def stop() -> None:
        raise KeyboardInterrupt

    rig.watch(log.parent, story=Story(lambda: rig.grow(log, logs.row(2), logs.output("line\n", 1)), None, stop))
    assert b'"_step":2' not in rig.backend.runs["live"].files["wandb-summary.json"]
    rig.settle(log, 3600)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert b'"_step":2' in rig.backend.runs["live"].files["wandb-summary.json"]
    assert b"line" in rig.backend.runs["live"].files["output.log"]
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []


def test_a_run_that_is_deleted_at_the_server_is_sent_again(rig: WatchRig) -> None:
    """It is not announced with every row, so it is missed with the next ones: then all of it goes."""
    log = rig.begin()

    def delete() -> None:
        del rig.backend.runs["live"]

    story = Story(None, delete, lambda: rig.grow(log, logs.row(2), logs.row(3), logs.exit_record(0)))
    report = rig.watch(log.parent, story=story)

    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(4))
    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert rig.only(report).verdict is Verdict.SYNCED


def test_a_bad_log_stops_nobody(rig: WatchRig) -> None:
    """It is told once, the others go on; its failure is the exit code."""
    bad = rig.folder / "run-20260921_141300-bad" / "run-bad.wandb"
    bad.parent.mkdir()
    bad.write_bytes(b"<html>")
    rig.settle(bad, 3600)
    log = rig.begin()
    report = rig.watch(
        rig.folder,
        idle=10,
        story=Story(lambda: rig.grow(log, logs.row(2)), None, lambda: rig.grow(log, logs.exit_record(0))),
    )

    assert report.exit_code == 1
    assert rig.backend.runs["live"].complete
    assert [event.verdict for event in rig.told() if event.log == str(bad)] == [Verdict.FAILED]


def test_a_run_that_is_refused_is_not_asked_for_at_every_row(rig: WatchRig) -> None:
    """A server's no is not answered with a request per second."""
    log = rig.begin()
    rig.backend.before = on("UpsertBucket", Answer(404, {}, b"no such project"))
    rows = iter(range(2, 1_000))
    story = Story(*[lambda: rig.grow(log, logs.row(next(rows)))] * 60, lambda: rig.grow(log, logs.exit_record(0)))
    report = rig.watch(log.parent, story=story)

    assert rig.only(report).verdict is Verdict.FAILED
    assert rig.backend.operations().count("UpsertBucket") < 60 / FIRST_RETRY_S
    assert len(rig.told()) == 1


def test_a_log_that_is_still_empty_may_become_one(rig: WatchRig) -> None:
    """Writers of the peer make an empty file first."""
    log = rig.folder / "run-20260921_141300-new" / "run-new.wandb"
    log.parent.mkdir()
    log.touch()
    rig.settle(log, 0)

    def begin() -> None:
        logs.make_log(log, logs.run_record("new"), logs.row(0), logs.exit_record(0))
        rig.settle(log, 0)

    report = rig.watch(log.parent, story=Story(None, None, begin))

    assert rig.only(report).verdict is Verdict.SYNCED


def test_a_missing_file_of_a_run_that_goes_on_does_not_end_the_watch(rig: WatchRig) -> None:
    """Partial for now; what comes later is sent."""
    log = rig.begin()
    rig.grow(log, logs.files_record("model.bin"))

    def end() -> None:
        (log.parent / "files").mkdir(exist_ok=True)
        (log.parent / "files" / "model.bin").write_bytes(b"1")
        rig.grow(log, logs.exit_record(0))

    report = rig.watch(log.parent, story=Story(*[None] * 5, end))

    assert rig.only(report).verdict is Verdict.SYNCED
    assert [event.verdict for event in rig.told()] == [Verdict.PARTIAL, Verdict.SYNCED]
    assert rig.backend.runs["live"].files["model.bin"] == b"1"


def test_the_logs_of_a_run_go_together(rig: WatchRig) -> None:
    """A segment that appears later is stitched behind the first, whatever grew."""
    rig.begin(rows=3)

    def resume() -> None:
        log = rig.begin(rows=0, start=30, resume=True)
        rig.grow(log, logs.row(3), logs.row(4), logs.exit_record(0))

    report = rig.watch(rig.folder, idle=10, story=Story(None, resume))

    assert [(event.runs, event.logs) for event in rig.told("plan")] == [(1, 1), (1, 2)]
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(5))
    assert set(report.verdicts.values()) == {Verdict.SYNCED}


def test_a_log_that_is_moved_or_taken_away(rig: WatchRig, tmp_path: Path) -> None:
    """Moved within the folder it goes on from its cursor; taken away, nobody can send its end."""
    log = rig.begin()
    other = rig.begin("other")
    place = rig.folder / "archive" / log.parent.name

    def move() -> None:
        place.parent.mkdir()
        log.parent.rename(place)
        other.parent.rename(tmp_path / "away")
        rig.backend.forget()
        rig.grow(place / log.name, logs.row(2), logs.exit_record(0))

    report = rig.watch(rig.folder, idle=10, story=Story(None, move))

    assert [number for _, stream, number in rig.backend.written if stream == "history"] == [2]
    assert report.verdicts[str(place / log.name)] is Verdict.SYNCED
    assert report.verdicts[str(other)] is Verdict.FAILED
    assert "taken away" in [event.reason for event in rig.told() if event.log == str(other)][-1]


def test_a_log_that_is_taken_away_between_two_passes_is_told(rig: WatchRig, tmp_path: Path) -> None:
    """However many passes were before: the last event of it, the report and the counts say the same."""
    log = rig.begin()
    taken = Story(lambda: rig.grow(log, logs.row(2)), None, lambda: log.parent.rename(tmp_path / "away"))
    report = rig.watch(log.parent, story=taken)

    assert [(event.verdict, event.rows_sent) for event in rig.told()] == [(Verdict.LIVE, 2), (Verdict.FAILED, 3)]
    assert "taken away" in rig.told()[-1].reason
    assert report.verdicts == {str(log): Verdict.FAILED}
    assert rig.events[-1].counts == report.counts() == {"failed": 1}
    assert report.exit_code == rig.events[-1].exit_code == 1


def test_a_finished_log_may_be_taken_away(rig: WatchRig) -> None:
    """Its last verdict stands: cleaning up behind a watch is no failure."""
    log = rig.run()
    report = rig.watch(rig.folder, idle=10, story=Story(None, lambda: shutil.rmtree(log.parent)))

    assert (report.exit_code, rig.only(report).verdict) == (0, Verdict.SYNCED)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_file_system_that_does_not_answer_takes_nothing_away(
    rig: WatchRig, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The watch waits for it: the run may go on meanwhile."""
    log = rig.begin()
    stat_of, open_file = Path.stat, os.open
    silent: list[bool] = []

    def stat(path: Path, **options: Any) -> Any:
        if silent and path == log:
            raise OSError(error, os.strerror(error))
        return stat_of(path, **options)

    def opened(path: Any, *rest: Any, **options: Any) -> int:
        if silent and path == log:
            raise OSError(error, os.strerror(error))
        return open_file(path, *rest, **options)

    def back() -> None:
        silent.clear()
        rig.grow(log, logs.row(2), logs.exit_record(0))

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "open", opened)
    report = rig.watch(log.parent, story=Story(None, lambda: silent.append(True), None, None, None, back))

    assert rig.only(report).verdict is Verdict.SYNCED
    assert len(rig.backend.runs["live"].rows) == 3


def test_a_key_that_is_refused_ends_the_watch(rig: WatchRig) -> None:
    """Nothing that time could mend."""
    log = rig.begin()
    rig.backend.before = lambda *_: Answer(401, {}, b"who are you")
    report = rig.watch(log.parent, story=Story())

    assert report.exit_code == 2


def test_a_locked_log_is_waited_for(rig: WatchRig) -> None:
    """Another sync holds it: when it lets go, the watch goes on."""
    log = rig.run()
    lock = log.with_name(log.name + ".lock")
    story = Story(*[None] * 12, lock.unlink)
    rig.clock = story
    lock.write_text(f'{{"host": "elsewhere", "pid": 1, "heartbeat": {story.time()}, "token": "x"}}')
    report = rig.watch(log.parent, story=story)

    assert rig.only(report).verdict is Verdict.SYNCED
    assert cursor(log).exists()


def test_it_rests_four_times_as_long_as_it_works(rig: WatchRig) -> None:
    """Large logs and large trees cost a fifth of a core at most."""
    log = rig.begin()
    spent = iter(range(0, 100_000, 10))
    rig.watch(log.parent, cpu=lambda: float(next(spent)), story=Story(None, lambda: rig.grow(log, logs.exit_record(0))))

    assert set(rig.clock.sleeps) == {10.0 * REST}


def test_sending_everything_again_happens_once(rig: WatchRig) -> None:
    """`include_synced` is for what was there before."""
    log = rig.begin()
    rig.watch(
        log.parent,
        include_synced=True,
        story=Story(lambda: rig.grow(log, logs.row(2)), None, lambda: rig.grow(log, logs.exit_record(0))),
    )

    assert rig.backend.written["live", "history", 0] == 1


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_in_between_the_server_holds_the_log(rig: WatchRig, seed: int) -> None:
    """Rows in pieces, torn writes, refusals and resets at random: in the end all rows once, in order."""
    rng = random.Random(seed)
    log = rig.begin(rows=0)
    number = iter(range(1_000))

    def happen() -> None:
        choice = rng.randrange(4)
        if choice == 0:
            rig.grow(log, *(logs.row(next(number)) for _ in range(rng.randrange(1, 40))))
        elif choice == 1:
            rig.backend.before = on(rng.choice(["stream", "UpsertBucket", "put"]), Answer(503, {}, b""), times=2)
        elif choice == 2:
            rig.backend.after = on("stream", Retryable("reset"), times=1)

    def end() -> None:
        rig.grow(log, logs.exit_record(0))

    report = rig.watch(log.parent, retry_for=1, story=Story(*[happen] * 30, end))

    assert rig.only(report).verdict is Verdict.SYNCED
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(next(number)))


@pytest.mark.parametrize("bad", [{"interval": 0}, {"interval": float("nan")}, {"idle": -1}, {"idle": float("nan")}])
def test_times_that_make_no_sense(bad: dict[str, float]) -> None:
    """They are refused before anything is looked at."""
    with pytest.raises(UsageError):
        Watching(**bad)


def test_what_cannot_be_watched(rig: WatchRig) -> None:
    """A path that is not there, and a dry run."""
    with pytest.raises(UsageError, match="no such file"):
        rig.watch(rig.folder / "nothing", story=Story())
    with pytest.raises(UsageError, match="dry run"):
        rig.watch(story=Story(), dry_run=True)


# -- the command -----------------------------------------------------------------------------------------------------


def command(url: str, key: str, *arguments: Any) -> subprocess.Popen[str]:
    """`runferry sync --watch`."""
    environ = {**os.environ, "RUNFERRY_API_KEY": key}
    line = [sys.executable, "-m", "runferry.cli", "sync", "--watch", "--json", "--base-url", url, *arguments]
    return subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def events(said: str) -> list[dict[str, Any]]:
    """What `--json` printed."""
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_the_command_follows_and_ends_in_good_order(tmp_path: Path) -> None:
    """Against the real server: a finished run ends it; a signal ends it too, after a last pass."""
    log = logs.simple_run(tmp_path / "wandb", rows=3)
    live = logs.make_log(tmp_path / "wandb" / "run-20260921_150000-live" / "run-live.wandb", logs.run_record("live"))
    with serve(tmp_path / "server") as server:
        process = command(server.url, server.key, log.parent)
        said, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert [event["type"] for event in events(said) if event["type"] not in {"progress", "files"}] == [
            "plan",
            "run_started",
            "run_done",
            "done",
        ]

        process = command(server.url, server.key, tmp_path / "wandb")
        assert process.stdout is not None
        while json.loads(process.stdout.readline()).get("verdict") != "live":
            pass
        while (
            len([*Path(f"/proc/{process.pid}/task").iterdir()]) > 1
        ):  # the pass winds up its workers, and then it rests
            time.sleep(0.01)
        logs.make_log(live, logs.row(0), append=True)
        process.terminate()
        said, errors = process.communicate(timeout=60)

        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert events(said)[-1] == {
            "type": "done",
            "exit_code": 130,
            "counts": {"synced": 1, "live": 1},
            "left_out": {},
        }
        assert [row["_step"] for row in server.history("local", "proj", "live")] == [0]


def test_the_options_of_a_watch_need_one(tmp_path: Path) -> None:
    """`--idle` alone would say something that is not done."""
    line = [sys.executable, "-m", "runferry.cli", "sync", "--idle", "5", tmp_path]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "go with --watch" in done.stderr


def test_a_copy_that_was_taken_meanwhile_is_no_part_of_the_run(rig: WatchRig) -> None:
    """A backup of a live log is passed over, is not waited for, and doubles no row."""
    log = rig.begin()
    backup = rig.folder.parent / "backup" / log.parent.name / log.name
    shutil.copytree(log.parent, backup.parent)

    report = rig.watch(
        log.parent,
        backup.parent,
        story=Story(lambda: rig.grow(log, logs.row(2)), None, lambda: rig.grow(log, logs.row(3), logs.exit_record(0))),
    )

    assert report.verdicts == {str(log): Verdict.SYNCED, str(backup): Verdict.SKIPPED}
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == [0, 1, 2, 3]
    assert report.exit_code == 0
