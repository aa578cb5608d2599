"""What a person sees of a sync: the live table at several sizes, and the lines elsewhere."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from runferry.cli.syncframe import frame
from runferry.cli.syncview import PROGRESS_EVERY_S, STARTED_AFTER_S, JsonLines, PlainLines, Terminal, Ticking
from runferry.sync.board import Board
from runferry.sync.report import (
    FileProgress,
    Finished,
    Paused,
    Planned,
    Progress,
    Retrying,
    RunReport,
    Started,
    Verdict,
)
from support.clock import FakeClock

FRAMES = Path(__file__).with_name("frames")
NAMES = ["a1b2c3d4", "sweep-run-with-a-long-name-0001", "日本語のラン", "x9", "k2", "z7", "q5", "m3"]


def at_work(clock: FakeClock) -> Board:
    """A sync of 10,000 logs: eight at work, one of them waiting, a closed lane, some trouble behind it."""
    board = Board(clock.monotonic)
    board(Planned(runs=9_998, logs=10_000))
    for number in range(40):
        verdict = Verdict.FAILED if number % 13 == 0 else Verdict.SYNCED
        board(RunReport(f"done{number}", "r", verdict, "reason"))
    for number, name in enumerate(NAMES):
        board(Started(f"log{number}", name, f"me/p/{name}", 50_000 * (number + 1), 50_000 * (number + 1)))
    clock.advance(20)
    for number in range(len(NAMES)):
        board(Progress(f"log{number}", 12_345 * (number + 1), 50_000 * (number + 1)))
    board(Progress("log4", 250_000, 250_000))
    board(FileProgress("log4", 3, 12))
    board(Retrying("rows of x9", "file_stream: HTTP 503: upstream\x1b[31m is away", 12.0, 0.0, 3))
    board(Retrying("CreateRunFiles", "cannot reach backend.test: refused", 41.0, 0.0, 1))
    return board


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (44, 8), (20, 5)])
def test_the_table_looks_like_this(width: int, height: int) -> None:
    """Snapshots: what stands in which column, what is cut, and how a table that has no room says so."""
    lines = frame(at_work(FakeClock()), width, height - 1, bytes_per_second=1_234_567.0)
    expected = FRAMES / f"{width}x{height}.txt"

    assert "\n".join(lines) + "\n" == expected.read_text()


@pytest.mark.parametrize("width", [1, 5, 10, 30, 59, 80, 200])
@pytest.mark.parametrize("height", [0, 1, 2, 3, 5, 10, 50])
def test_no_terminal_is_too_small(width: int, height: int) -> None:
    """Never more lines or columns than there are, and the totals are what stays longest."""
    from rich.cells import cell_len

    clock = FakeClock()
    board = at_work(clock)
    board(Paused("rows of a1b2c3d4", "the server's rate limit (429)", 28.0))
    lines = frame(board, width, height)

    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert height == 0 or width < 10 or lines[-1].startswith("40 of 10")


def test_a_closed_lane_has_a_countdown() -> None:
    """What everybody waits for stands in the totals, and each run says that it waits for it."""
    clock = FakeClock()
    board = at_work(clock)
    board(Paused("rows of a1b2c3d4", "the server's rate limit (429)", 28.0))
    clock.advance(3)
    lines = frame(board, 120, 30)

    assert "limit of the server: 25 s" in lines[-1]
    assert sum("waits for the server's limit" in line for line in lines) == 7


def terminal(clock: FakeClock, **options) -> tuple[Terminal, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, **options)
    return Terminal(console, now=clock.monotonic), screen


def test_verdicts_scroll_above_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict that goes to a pipe is printed at once, on standard output; news wait for the next frame."""
    clock = FakeClock()
    view, screen = terminal(clock)
    view(Planned(1, 1))
    view(Started("log", "a1", "me/p/a1", 5, 5))
    view.tick()
    view(RunReport("log", "a1", Verdict.SYNCED, "", rows=5, rows_sent=5, url="http://b.test/me/p/runs/a1"))
    view(Finished(0, {"synced": 1}))
    view.close()

    assert capsys.readouterr().out == "synced  log  5 rows, 5 new, 0 files sent  http://b.test/me/p/runs/a1\n"
    assert "a1" in screen.getvalue()
    assert screen.getvalue().rstrip().endswith("1 synced")


def test_drawing_does_not_follow_events() -> None:
    """Ten thousand runs draw nothing by themselves: a frame is drawn per tick, and holds all lines since the last one."""
    clock = FakeClock()
    view, screen = terminal(clock)
    before = screen.tell()
    for number in range(10_000):
        view(Started(str(number), str(number), "t", 1, 1))
        view(Retrying(f"rows of {number}", "HTTP 503", 1.0, 0.0, 1))
        view(RunReport(str(number), str(number), Verdict.SYNCED, ""))
    drawn = screen.tell() - before
    view.close()

    assert drawn == 0
    assert screen.getvalue().count("retrying") == 1


def test_no_color_and_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR no colour is set, and what a log says is shown, not obeyed."""
    monkeypatch.setenv("NO_COLOR", "1")
    clock = FakeClock()
    view, screen = terminal(clock)
    view(Started("log", "a\x1b[31mb", "t", 5, 5))
    view.tick()
    view.close()

    assert "\x1b[31m" not in screen.getvalue()
    assert "a\\x1b[31mb" in screen.getvalue()


def plain(
    capsys: pytest.CaptureFixture[str], events: list, clock: FakeClock | None = None
) -> tuple[list[str], list[str]]:
    """Standard output and error of a sync that is told without a terminal; numbers between events are seconds."""
    clock = clock or FakeClock()
    view = PlainLines(clock.monotonic)
    for event in events:
        if isinstance(event, int):
            for _ in range(event):
                clock.advance(1)
                view.tick()
        else:
            view(event)
    view.close()
    said = capsys.readouterr()
    return said.out.splitlines(), said.err.splitlines()


def small(number: int, verdict: Verdict = Verdict.SYNCED, reason: str = "") -> list:
    return [Started(f"log{number}", f"r{number}", "t", 1, 1), RunReport(f"log{number}", f"r{number}", verdict, reason)]


def test_a_small_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty-five small runs are twenty-five verdicts, one line of what was found and one of what became of it."""
    events = [Planned(25, 25), *(event for number in range(25) for event in small(number)), Finished(0, {"synced": 25})]
    out, err = plain(capsys, events)

    assert len(out) == 25
    assert err == ["25 logs of 25 runs", "25 synced"]


def test_a_long_run_is_announced_and_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """After five seconds it is named; then there is a line after 30 s of silence, and not more."""
    events = [Planned(1, 1), Started("log", "r1", "me/p/r1", 100, 90), 20, Progress("log", 40, 100), 46]
    _, err = plain(capsys, events)

    assert err == [
        "1 log of 1 run",
        "r1: 90 of 100 rows to me/p/r1",
        "0 of 1 log done, 30 rows sent, r1 at 40 of 100",
        "0 of 1 log done, 30 rows sent, r1 at 40 of 100",
    ]


def test_a_server_that_is_down_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight workers that fail alike, again and again for two minutes, are told twice a minute: why and until when."""
    events: list = [Planned(8, 8)]
    for second in range(120):
        for worker in range(8):
            reason = f"cannot reach backend.test: refused ({worker})"
            events.append(Retrying(f"rows of r{worker}", reason, 4.0, 1_000_000.0 + second, second + 1))
        events.append(1)
    _, err = plain(capsys, events)

    assert len(err) - 1 <= 6
    assert err[1].startswith("retrying rows of r0 in 4.0 s (at ")
    assert "after attempt 1): cannot reach backend.test: refused (0)" in err[1]
    assert err[2] == "0 of 8 logs done, 0 rows sent, next attempt in 3 s"
    assert "(479 more since the last such line)" in err[4]


def test_a_closed_lane_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One limit that closes the lane for eight workers is one line."""
    events = [Planned(8, 8), *(Paused(f"rows of r{n}", "the server's rate limit (429)", 20.0 + n) for n in range(8))]
    _, err = plain(capsys, events)

    assert err[1:] == ["waiting 20.0 s before rows of r0: the server's rate limit (429)"]


def test_what_was_not_synced_is_listed_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Many verdicts scroll away, so the end says how many logs share which reason, and names the first."""
    events = [
        event for n in range(40) for event in small(n, Verdict.FAILED if n % 2 else Verdict.SYNCED, f"HTTP 500 ({n})")
    ]
    events.append(RunReport("locked", "x", Verdict.SKIPPED, "another sync holds it", try_again=True))
    _, err = plain(capsys, [Planned(41, 41), *events, Finished(1, {"failed": 20, "skipped": 1, "synced": 20})])

    assert err[1:] == [
        "20 failed: HTTP 500 (1): log1, log3, log5 and 17 more",
        "1 skipped: another sync holds it: locked",
        "20 failed, 1 skipped, 20 synced",
    ]


def test_a_watch_of_ten_thousand_runs_costs_what_fits_on_the_screen() -> None:
    """Runs that go on stay in the table; drawing it looks at those that have room, and the others are counted."""
    clock = FakeClock()
    board = Board(clock.monotonic)
    for number in range(10_000):
        board(Started(str(number), f"r{number}", "t", 5, 5))
    lines = frame(board, 80, 10)

    assert (len(lines), lines[-2]) == (10, "and 9993 more")


def test_no_line_holds_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    """Names from logs and words of servers, in waits, announcements, progress and groups: escapes, newlines, marks of direction."""
    clock = FakeClock()
    evil = "a\x1b[2J\r\n\u202eb\x07" + "x" * 10_000
    view = PlainLines(clock.monotonic)
    view(Planned(12, 12))
    view(Started("log", evil, evil, 5, 5))
    view(Retrying(evil, evil, 40.0, 0.0, 1))
    view(Paused(evil, evil, 40.0))
    clock.advance(STARTED_AFTER_S)
    view.tick()
    clock.advance(PROGRESS_EVERY_S)
    view.tick()
    for number in range(12):
        view(RunReport(f"{number}{evil}", evil, Verdict.FAILED, evil))
    view(Finished(1, {"failed": 12}))
    out, err = capsys.readouterr()

    assert len(out.splitlines()) == 12
    assert len(err.splitlines()) == 7
    assert all(line.isprintable() for line in (out + err).splitlines())


def test_an_event_is_one_line_of_json_that_no_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON itself lets controls of C1, line separators and marks of direction pass; text that is none of these stays readable."""
    evil = "ü\x9b2J\x85\u2028\u202e\x7f\udcff\x1b\n"
    JsonLines()(RunReport(evil, evil, Verdict.FAILED, evil))
    (line,) = capsys.readouterr().out.splitlines()

    assert line.isprintable()
    assert "ü" in line
    assert json.loads(line)["log"] == evil


def test_a_page_for_an_answer_is_cut_where_it_is_news(capsys: pytest.CaptureFixture[str]) -> None:
    """A wait is told in a line, however much the server says; the verdict says all of it."""
    view = PlainLines(FakeClock().monotonic)
    view(Retrying("rows of r", "y" * 1000, 4.0, 0.0, 1))
    view(RunReport("log", "r", Verdict.FAILED, "y" * 1000))
    out, err = capsys.readouterr()

    assert err.count("y") < 250
    assert "y" * 1000 in out


def test_a_key_that_is_refused_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The first verdict says all of it, the others point to it, and what else is wrong is told all the same."""
    view = PlainLines(FakeClock().monotonic)
    refused = "the server does not accept the key from WANDB_API_KEY (RunResumeStatus: HTTP 401: no)"
    for number in range(3):
        view(RunReport(f"log{number}", "r", Verdict.FAILED, refused, credentials=True))
    view(RunReport("log3", "r", Verdict.FAILED, "empty"))

    assert [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()] == [
        "the server does not accept the key from WANDB_API_KEY (ask for the run: HTTP 401: no)",
        "as above: the key",
        "as above: the key",
        "empty",
    ]


def test_a_view_without_a_thread_is_ticked_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more often than a thread would, and a disk that is full at that moment stops nothing."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    told: list[Any] = []

    class Told:
        def __call__(self, event: object) -> None:
            told.append(event)

        def tick(self) -> None:
            told.append("tick")
            raise OSError(28, "no space left")

        def close(self) -> None:
            told.append("end")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock, event = FakeClock(), Planned(1, 1)
    view = Ticking(Told(), 2.0, clock.monotonic)
    for _ in range(5):
        view(event)
        clock.advance(0.9)
    view.close()

    assert told == [event, event, event, event, "tick", event, "end"]


@pytest.mark.parametrize(("logs", "words"), [(1, "0 of 1 log |"), (2, "0 of 2 logs |"), (12_000, "0 of 12,000 logs |")])
def test_one_log_is_no_logs(logs: int, words: str) -> None:
    """The last line of the table counts in words that fit."""
    board = Board(FakeClock().monotonic)
    board(Planned(logs, logs))

    assert words in frame(board, 80, 10)[-1]
