"""Rows of steps that do not count: neither counted, folded nor sent, and no line is theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runferry.logformat.steps import Steps
from support import logs
from support.lane import fresh, read, sent

BROKEN = b"\x12\x03\x0a\x7fx"  # a history record's body that is no message


def row(step: int | bytes | None, n: int) -> Any:
    return logs.row(None, {"n": n, **({} if step is None else {"_step": step})})


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (Steps(), [0, 1, 2, 3, 4]),
        (Steps(above=1), [2, 3, 4]),
        (Steps(below=3), [0, 1, 2]),
        (Steps(0, 4), [1, 2, 3]),
        (Steps(above=4), []),
    ],
)
def test_both_bounds_lie_outside(steps: Steps, kept: list[int]) -> None:
    """A bound names the first step that does not count any more."""
    assert [step for step in range(5) if steps.keep(step)] == kept


def test_rows_that_are_cut_are_not_there(tmp_path: Path) -> None:
    """Counts, steps, fold and lines are those of the rows that count; lines are numbered without the others, steps shifted."""
    log = tmp_path / "run-x.wandb"
    logs.make_log(log, logs.run_record("x"), *(row(step, step * 10) for step in range(100)), logs.exit_record())

    facts, state = read(log, Steps(19, 60))
    bodies = sent(facts, fresh(1000), body_bytes=300)

    assert (facts.lines.history, facts.cut, facts.row_records) == (40, 60, 100)
    assert (state.row_count, state.last_step, state.summary["n"]) == (40, 59, 590)
    assert bodies.rows() == [{"n": step * 10, "_step": step + 1000} for step in range(20, 60)]
    counts = [len(files["wandb-history.jsonl"]["content"]) for files in bodies.taken]
    assert bodies.offsets() == [100 + sum(counts[:at]) for at in range(len(counts))]


def test_what_the_server_has_of_them_is_not_sent_again(tmp_path: Path) -> None:
    """A cursor counts the lines of rows that count."""
    log = tmp_path / "run-x.wandb"
    logs.make_log(log, logs.run_record("x"), *(row(step, step) for step in range(10)))
    facts, _ = read(log, Steps(above=3))
    cursor = fresh()
    cursor.sent.history = 4

    bodies = sent(facts, cursor)

    assert [found["n"] for found in bodies.rows()] == [8, 9]
    assert bodies.offsets() == [104]


def test_a_row_in_parts_is_cut_whole(tmp_path: Path) -> None:
    """Its parts count as one row that was cut; those of a row that counts are joined as ever."""
    log = tmp_path / "run-x.wandb"
    logs.make_log(log, logs.run_record("x"), row(1, 1), row(1, 2), row(5, 3), row(5, 4), row(6, 5))

    facts, _ = read(log, Steps(below=5))

    assert (facts.lines.history, facts.parts, facts.cut) == (1, 1, 2)
    assert sent(facts, fresh()).rows() == [{"n": 2, "_step": 1}]


@pytest.mark.parametrize(
    ("steps", "kept"), [(Steps(below=7), [(1, 5), (2, 6)]), (Steps(above=6), [(3, 7), (4, 9), (5, 10)])]
)
def test_a_row_without_a_step_follows_the_one_before_it(
    tmp_path: Path, steps: Steps, kept: list[tuple[int, int]]
) -> None:
    """Also one that was cut; a broken record has no step and counts for none."""
    log = tmp_path / "run-x.wandb"
    records = [row(5, 1), row(None, 2), row(None, 3), row(9, 4), row(None, 5)]
    broken = logs.messages.Record(history=logs.messages.HistoryRecord())
    logs.make_log(log, logs.run_record("x"), *records[:2])
    data = broken.SerializeToString()[:1] + bytes([len(BROKEN)]) + BROKEN
    assert broken.SerializeToString()[1:] == b"\0"
    log.write_bytes(_with(log.read_bytes(), data))
    logs.make_log(log, *records[2:], append=True)

    facts, state = read(log, steps)

    assert facts.lines.history == len(kept) == state.row_count
    assert facts.cut == 5 - len(kept)
    assert len(facts.damage) == 1
    assert [(found["n"], found["_step"]) for found in sent(facts, fresh()).rows()] == kept


def _with(data: bytes, payload: bytes) -> bytes:
    """A log with one more record."""
    out = bytearray(data)
    logs.Framer(len(data)).append(payload, out)
    return bytes(out)
