"""How long a run took over all of its logs, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load, messages
from runferry.logformat.elapsed import Elapsed, shifted_runtime
from support import logs

S = logs.START_S


def log(folder: Path, number: int, *records: Any, **run: Any) -> Path:
    """A log that begins an hour after the one before."""
    start = S + 3600 * number
    return logs.make_log(folder / f"{number}.wandb", logs.run_record("r", start=start, **run), *records)


def row(runtime: float, number: int, step: int = 0) -> Any:
    items = {"_step": step, "_runtime": runtime, "_timestamp": S + 3600 * number + runtime}
    history = messages.HistoryRecord()
    for key, value in items.items():
        history.item.add(nested_key=[key], value_json=json.dumps(value))
    return messages.Record(history=history)


def test_logs_that_count_from_0_are_summed(tmp_path: Path) -> None:
    """Rows, exit records and summary records of the second log are shifted by what the first one took."""
    said = logs.summary_record({"_runtime": 9.5, "_wandb": {"runtime": 9}})
    first = log(tmp_path, 0, row(3.25, 0), logs.exit_record(0, 100))
    second = log(tmp_path, 1, row(2.5, 1, 1), said, logs.exit_record(0, 50))

    state = load(first, second)

    assert [found["_runtime"] for found in state.rows] == [3.25, 102.5]
    assert (state.summary["_runtime"], state.summary["_wandb"]) == (109.5, {"runtime": 109})
    assert (state.runtime, state.last_runtime) == (150, 102.5)


def test_a_log_that_goes_on_is_left_as_it_is(tmp_path: Path) -> None:
    """Our writer says in the run record how long the run had taken."""
    first = log(tmp_path, 0, row(3.25, 0), logs.exit_record(0, 100))
    second = log(tmp_path, 1, row(102.5, 1, 1), logs.exit_record(0, 150), runtime=100, starting_step=1)

    state = load(first, second)

    assert [found["_runtime"] for found in state.rows] == [3.25, 102.5]
    assert state.runtime == 150


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_log_without_an_end_counts_up_to_the_last_time_in_it(tmp_path: Path, goes_on: bool) -> None:
    """A sample behind the last row counts; what passed between the logs does not."""
    first = log(tmp_path, 0, row(3.0, 0), logs.sample(20, start=S))
    second = log(tmp_path, 1, logs.sample(5, start=S + 3600), runtime=20 if goes_on else 0)

    assert load(first).runtime == 20
    assert load(first, second).runtime == 25


def test_logs_that_are_not_read_can_be_told_of() -> None:
    """What they took is set before the first one that is read."""
    elapsed = Elapsed()
    elapsed.before = 60.0
    elapsed.begin_log()
    elapsed.begin_run(10**9, goes_on=False, runtime=0)
    elapsed.saw(6 * 10**9)

    assert (elapsed.offset, elapsed.shift, elapsed.total) == (60.0, 60.0, 65.0)


@pytest.mark.parametrize(
    ("text", "shifted"),
    [(b"1", b"101"), (b"0.1", b"100.1"), (b"1e-07", b"100.0"), (b'"x"', b'"x"'), (b"true", b"true"), (b"NaN", b"NaN")],
)
def test_a_runtime_is_shifted_to_the_microsecond(text: bytes, shifted: bytes) -> None:
    """Whole numbers stay whole, and what is no number stays as it is."""
    assert shifted_runtime(text, 100.0) == shifted
