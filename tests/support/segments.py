"""Logs of one run that was resumed: A has steps 0-99, B goes back to 60 and on to 159, C has 160-199."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runferry.logformat import messages
from support import logs
from support.syncrig import Rig

RUN = "seg"
NAMES = "ABC"
SPANS = {"A": (0, 100), "B": (60, 100), "C": (160, 40)}
"""First step, and how many rows; each row takes a second."""


def start_of(name: str) -> float:
    """When a log of that name begins, epoch seconds: each an hour after the one before."""
    return logs.START_S + 3600 * (ord(name) - ord("A"))


def row(step: int | None, second: float, start: float, **values: Any) -> Any:
    """A row as a writer that counts `_runtime` from the log's start has it."""
    items = {**values, "_runtime": second, "_timestamp": start + second}
    if step is not None:
        items["_step"] = step
    history = messages.HistoryRecord()
    for key, value in items.items():
        history.item.add(nested_key=[key], value_json=json.dumps(value))
    return messages.Record(history=history)


def segment(
    rig: Rig,
    name: str,
    span: tuple[int, int] | None = None,
    *,
    exit_code: int | None = 0,
    more: list[Any] | None = None,
    **run: Any,
) -> Path:
    """A log of the run: rows with their log's name, a line of output each 20 rows, two samples, and an end."""
    first, rows = span or SPANS[name]
    start = start_of(name)
    fields = {"resume": name != "A", "config": {f"from_{name}": 1}, **run}
    records = [logs.run_record(RUN, start=start, **fields), *(more or []), logs.sample(0, start=start)]
    for number in range(rows):
        records.append(row(first + number, float(number), start, who=name))
        if number % 20 == 0:
            records.append(logs.output(f"{name}{number}\n", number, start=start))
    records.append(logs.sample(rows, start=start))
    if exit_code is not None:
        records.append(logs.exit_record(exit_code, rows))
    log = rig.folder / f"run-2026092{1 + ord(name) - ord('A')}_141320-{RUN}" / f"run-{RUN}.wandb"
    logs.make_log(log, *records)
    rig.settle(log, 3600)
    return log


def held(rig: Rig) -> dict[str, Any]:
    """What the server holds of the run, in short."""
    run = rig.backend.runs[RUN]
    spans: list[list[Any]] = []
    for found in run.rows:
        if spans and spans[-1][0] == found["who"] and spans[-1][2] + 1 == found["_step"]:
            spans[-1][2] = found["_step"]
        else:
            spans.append([found["who"], found["_step"], found["_step"]])
    return {
        "rows": [tuple(span) for span in spans],
        "last_runtime": run.rows[-1]["_runtime"] if run.rows else None,
        "samples": [json.loads(line)["_runtime"] for line in run.stream("events")],
        "console": [line.partition(" ")[2] for line in run.stream("console")],
        "summary": run.summary,
        "config": sorted(key for key in run.config if key != "_wandb"),
        "complete": (run.complete, run.exit_code),
    }
