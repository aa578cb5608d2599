"""Logs that are damaged after they were sent, and go on: every row that can be read is at the server, and each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Verdict
from runferry.sync.transport import Answer
from support import logs
from support.syncrig import Rig, cursor, marker, on, unsealed

ROWS = 900
FLIPPED = 100_000
"""A byte that is in neither end of the log, by which a cursor knows it."""


def records(first: int, behind: int, **options: Any) -> list[Any]:
    """Rows, samples and console lines of these steps; enough of them for a log that is known by its ends only."""
    return [
        record
        for step in range(first, behind)
        for record in (
            logs.row(step, {"loss": "x" * 100}, **options),
            logs.sample(step, **options),
            logs.output(f"line {step}\n", step, **options),
        )
    ]


def sent(rig: Rig, *, start: float = logs.START_S, name: str = "run-20260921_141320-d") -> Path:
    """A log that was sent whole, of a run that goes on."""
    log = rig.folder / name / "run-d.wandb"
    head = [logs.header_record(), logs.run_record("d", start=start, resume=start != logs.START_S)]
    logs.make_log(log, *head, *records(0, ROWS, start=start))
    rig.settle(log)
    rig.sync()
    return log


def flip(log: Path, at: int = FLIPPED) -> bytes:
    """Damage a log; what it was before."""
    whole = log.read_bytes()
    log.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    return whole


def grow(rig: Rig, log: Path, first: int, behind: int, *more: Any) -> None:
    logs.make_log(log, *records(first, behind), *more, append=True)
    rig.settle(log)


def steps(rig: Rig) -> list[int]:
    return [row["_step"] for row in rig.backend.runs["d"].rows]


@pytest.mark.parametrize("at", [FLIPPED, FLIPPED + 130, FLIPPED + 200])
@pytest.mark.parametrize("more", [1, 7])
def test_new_lines_of_a_log_that_was_damaged_meanwhile_arrive(rig: Rig, at: int, more: int) -> None:
    """They go behind those that were acknowledged: none is taken for one of the lost, and the damage is named."""
    log = sent(rig)
    flip(log, at)
    grow(rig, log, ROWS, ROWS + more)
    rig.backend.forget()

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.PARTIAL
    assert [line.startswith("bytes ") for line in report.missing] == [True]
    assert report.rows_sent == more
    assert steps(rig) == list(range(ROWS + more))
    run = rig.backend.runs["d"]
    assert (len(run.stream("events")), len(run.stream("console"))) == (ROWS + more, ROWS + more)
    assert run.stream("console")[-1].endswith(f"line {ROWS + more - 1}")
    assert not marker(log).exists()


def test_a_damaged_log_goes_on_growing(rig: Rig) -> None:
    """What was lost is known to later syncs too, also if more is lost."""
    log = sent(rig)
    flip(log)
    grow(rig, log, ROWS, ROWS + 3)
    rig.sync()
    assert sum(unsealed(log)["gone"].values()) >= 1
    grow(rig, log, ROWS + 3, ROWS + 5)
    rig.sync()
    assert steps(rig) == list(range(ROWS + 5))
    flip(log, FLIPPED + 20_000)
    grow(rig, log, ROWS + 5, ROWS + 300, logs.exit_record())

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL

    assert steps(rig) == list(range(ROWS + 300))
    assert rig.backend.runs["d"].complete
    assert rig.backend.runs["d"].files["output.log"].count(b"\n") >= ROWS + 290


def test_a_whole_copy_in_the_place_of_a_log_that_was_damaged(rig: Rig) -> None:
    """It is sent again, to the same lines, and nothing is missing any more."""
    log = sent(rig)
    whole = flip(log)
    grow(rig, log, ROWS, ROWS + 3)
    rig.sync()
    log.write_bytes(whole)
    grow(rig, log, ROWS, ROWS + 4, logs.exit_record())

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert steps(rig) == list(range(ROWS + 4))
    assert unsealed(log)["gone"] == {"history": 0, "events": 0, "console": 0}


def test_logs_behind_one_that_was_damaged_stay_where_they_are(rig: Rig) -> None:
    """Else their rows would be written over the last ones of the damaged log, which are there still."""
    first = sent(rig)
    second = first.parent.with_name("run-20260921_151320-d") / first.name
    start = logs.START_S + 3600
    head = [logs.header_record(), logs.run_record("d", start=start, resume=True)]
    logs.make_log(second, *head, *(logs.row(step, start=start) for step in range(ROWS, ROWS + 4)))
    rig.settle(second)
    rig.sync()
    assert steps(rig) == list(range(ROWS + 4))
    flip(first)
    logs.make_log(second, logs.row(ROWS + 4, start=start), logs.exit_record(), append=True)
    rig.settle(second)
    rig.backend.forget()

    assert [report.verdict for report in rig.sync().runs] == [Verdict.PARTIAL, Verdict.SYNCED]

    assert steps(rig) == list(range(ROWS + 5))
    assert {key[2] for key in rig.backend.written if key[1] == "history"} == {ROWS + 4}


def test_a_log_without_its_cursor_that_holds_less_than_the_server_says_why(rig: Rig) -> None:
    """It is damaged: nothing at the server is written over, and the reason says what would help."""
    log = sent(rig)
    cursor(log).unlink()
    flip(log)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "damaged are bytes" in report.reason
    assert len(steps(rig)) == ROWS


@pytest.mark.parametrize("change", ["damaged", "cut", "grown"])
def test_a_marker_does_not_outlive_what_it_was_set_for(rig: Rig, change: str) -> None:
    """Also where the sync that finds the change gets nowhere: the log is not the one that is at the server."""
    log = rig.run()
    rig.sync()
    assert marker(log).exists()
    if change == "grown":
        logs.make_log(log, logs.row(5), append=True)
        rig.backend.before = on("RunResumeStatus", Answer(500, {}, b""))
    elif change == "cut":
        log.write_bytes(log.read_bytes()[:-200])
    else:
        flip(log, log.stat().st_size - 300)
    rig.settle(log)

    assert rig.only(rig.sync(retry_for=0.0)).verdict in {Verdict.FAILED, Verdict.PARTIAL}

    assert not marker(log).exists()


def test_a_marker_of_an_unchanged_log_stays_where_nothing_can_be_asked(rig: Rig) -> None:
    """All of it is at the server, whatever becomes of a wish to send it again."""
    log = rig.run()
    rig.sync()
    rig.backend.before = on("RunResumeStatus", Answer(500, {}, b""))

    assert rig.only(rig.sync(retry_for=0.0, include_synced=True)).verdict is not Verdict.SYNCED

    assert marker(log).exists()
