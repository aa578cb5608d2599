"""What a sync is doing at a moment, from nothing but its events."""

from __future__ import annotations

import time

import pytest
from runferry.sync.board import Board, groups
from runferry.sync.report import FileProgress, Paused, Planned, Progress, Retrying, RunReport, Started, Verdict
from support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def board(clock: FakeClock) -> Board:
    return Board(clock.monotonic)


def started(log: str, rows: int = 100, new: int = 100) -> Started:
    return Started(log, f"id-{log}", f"me/proj/id-{log}", rows, new)


def done(log: str, verdict: Verdict = Verdict.SYNCED, reason: str = "", **fields) -> RunReport:
    return RunReport(log, f"id-{log}", verdict, reason, **fields)


def test_rows_are_counted_once(board: Board) -> None:
    """Rows that were there before do not count, and a verdict repeats what progress has told."""
    board(started("a", rows=100, new=60))
    board(Progress("a", 70, 100))
    assert (board.sent, board.active["a"].rows) == (30, 70)
    board(Progress("a", 100, 100))
    board(done("a", rows=100, rows_sent=60))

    assert (board.sent, list(board.active)) == (60, [])


def test_a_watch_adds_up_its_passes(board: Board) -> None:
    """A log whose verdict stands is sent again without a word: its rows count, and a later verdict tells totals."""
    board(started("a", rows=10, new=10))
    board(Progress("a", 10, 10))
    board(done("a", Verdict.LIVE, rows=10, rows_sent=10))
    board(Progress("a", 25, 30))
    assert (board.sent, board.active["a"].rows) == (25, 25)
    board(done("a", rows=30, rows_sent=30))

    assert (board.sent, board.active, board.counts()) == (30, {}, {"synced": 1})


def test_totals_that_are_told_again_count_once(board: Board) -> None:
    """A watch tells how many rows and files of a log it has sent in all, each time: without progress between, too."""
    board(done("a", Verdict.LIVE, rows=10, rows_sent=10, files_sent=2))
    board(done("a", Verdict.LIVE, rows=30, rows_sent=30, files_sent=5))

    assert (board.sent, board.files_sent) == (30, 5)


def test_a_wait_ends_by_itself_or_with_progress(board: Board, clock: FakeClock) -> None:
    """What waits is listed until its time is over, or until its run goes on."""
    board(started("a"))
    board(Retrying("rows of id-a", "HTTP 503", 10.0, 0.0, 1))
    board(Retrying("UpsertBucket", "HTTP 503", 2.0, 0.0, 1))
    assert [wait.what for wait in board.waits] == ["rows of id-a", "UpsertBucket"]
    clock.advance(3)
    assert [wait.what for wait in board.waits] == ["rows of id-a"]
    board(Progress("a", 50, 100))

    assert board.waits == []


def test_a_lane_is_closed_until_the_latest_reset(board: Board, clock: FakeClock) -> None:
    """Workers are refused one after the other; the countdown is that of the one which waits longest."""
    board(Paused("rows of a", "429", 30.0))
    board(Paused("rows of b", "429", 10.0))
    clock.advance(5)

    assert board.closed_for == pytest.approx(25.0)
    clock.advance(26)
    assert board.closed_for == 0


def test_the_rate_is_of_late_and_the_time_left_follows(board: Board, clock: FakeClock) -> None:
    """A fast start does not hide that it is slow now; with logs to come, the time for those done says what is left."""
    board(Planned(runs=4, logs=4))
    board(started("a", rows=10_000, new=10_000))
    for second in range(1, 31):
        clock.advance(1)
        board(Progress("a", 1000 if second <= 5 else 1000 + (second - 5) * 10, 10_000))
    assert board.rate() == pytest.approx(10.0, rel=0.2)
    board(done("a"))

    assert board.seconds_left == pytest.approx(90.0)


def test_files_are_told_beside_rows(board: Board) -> None:
    """Files of a log that is being sent are counted where they belong."""
    board(started("a"))
    board(FileProgress("a", 2, 5))

    assert (board.active["a"].files, board.active["a"].files_of) == (2, 5)


def test_the_same_trouble_of_many_runs_is_one_group() -> None:
    """Ten thousand runs that failed alike are one line: numbers and run ids make no difference, verdicts do."""
    reports = [done(f"r{n}", Verdict.FAILED, f"HTTP 500 for id-r{n}, tried {n} s") for n in range(10_000)]
    found = groups([*reports, done("x", Verdict.PARTIAL, "missing: bytes 7-9 (bad_crc)")])

    assert [(group.count, group.verdict) for group in found] == [(10_000, Verdict.FAILED), (1, Verdict.PARTIAL)]
    assert (found[0].reason, found[0].names) == ("HTTP 500 for id-r0, tried 0 s", ("r0", "r1", "r2"))


def test_an_event_costs_the_same_with_ten_thousand_runs(board: Board, clock: FakeClock) -> None:
    """Nothing grows with the runs that are done but what is kept of each: a fleet of 10,000 is told in well under 5 s."""
    began = time.perf_counter()
    for number in range(10_000):
        clock.advance(0.01)
        board(started(str(number)))
        board(Progress(str(number), 100, 100))
        board(done(str(number), rows_sent=100))

    assert time.perf_counter() - began < 5
    assert (board.sent, len(board.active), len(board._samples) < 50) == (1_000_000, 0, True)
