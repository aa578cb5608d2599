"""Runs to export, and what was exported read again by those who will read it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runferry.export import FORMATS, Options, Outcome, Selection, export
from runferry.logformat import RunState
from support import logs

MIXED: tuple[dict[Any, Any], ...] = (
    {"loss": 0.1 + 0.2, "count": 1, "ok": True, "word": "a,b", ("opt", "lr"): 1e-5, "any": [1, {"a": None}]},
    {"loss": math.nan, "count": None, "word": 'say "hi"\nand go', ("opt", "lr"): 3, "any": "text"},
    {"loss": math.inf, "big": 2**53 + 1, "word": "", "ok": False, "only.null": None},
    {"loss": -math.inf, "count": -(2**62), "word": " blank ", "any": 7},
    {"loss": 5e-324, "word": "NaN", "Grüße/ß": 1.5, "any": math.nan},
)
"""Rows of all kinds of values: every number that is hard to write, nulls, keys that come and go."""


def mixed_run(wandb: Path, run_id: str = "mixed", rows: Sequence[Mapping[Any, Any]] = MIXED, **fields: Any) -> Path:
    """A run with those rows, samples with gaps, console lines, an alert and a file."""
    start = fields.pop("start", logs.START_S)
    end = fields.pop("exit_code", 0)
    alert = logs.messages.Record(alert=logs.messages.AlertRecord(title="hot", text="95 C", level="WARN"))
    records = [
        logs.header_record(),
        logs.run_record(run_id, start=start, config={"lr": 0.001, "net": {"depth": 3, "act": "relu"}}, **fields),
        logs.sample(0, {"cpu": 12.5}, start=start),
        *(logs.row(step, values, start=start) for step, values in enumerate(rows)),
        logs.output("one\ntwo", 1, start=start),
        logs.output("warn\n", 1.5, stderr=True, start=start),
        alert,
        logs.files_record("model.pt", "../escape"),
        logs.sample(2.25, {"cpu": 50.0, "gpu.0.temp": 61}, start=start),
        *([] if end is None else [logs.exit_record(end)]),
    ]
    return logs.make_log(wandb / f"run-20260921_141320-{run_id}" / f"run-{run_id}.wandb", *records)


def export_to(out: Path, *paths: Path, to: str, **options: Any) -> list[Outcome]:
    """Export with these options."""
    return export(paths, out, Options(to, **options))


def cells(state: RunState) -> dict[str, list[Any]]:
    """What a wide table has to hold: for each flat name the value of each row, None where there is none, JSON parsed."""
    return {column.name: [column.get(row) for row in range(len(state.rows))] for column in state.rows.columns}


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal and of one kind, NaN like NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)


def suffix(to: str) -> str:
    """What a file of a format ends with."""
    return FORMATS[to].suffix


def accumulated(folder: Path) -> Any:
    """A TensorBoard event file, read by TensorBoard with nothing left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that it brings
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(folder), dict.fromkeys(("scalars", "tensors", "images", "histograms"), 0))
        found.Reload()
    return found


def array(tensor_event: Any) -> Any:
    """The values of a tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.util import tensor_util

        return tensor_util.make_ndarray(tensor_event.tensor_proto)


def keys(*patterns: str) -> Selection:
    """Only these keys."""
    return Selection(keys=patterns)
