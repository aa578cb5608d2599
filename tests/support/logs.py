"""Building logs record by record, with the format's own messages and framer.

simple_run(dir, rows=3)                     a whole run: header, run, rows, samples, console, summary, exit
make_log(path, run_record("id"), row(0))    exactly these records
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runferry.logformat import FILE_HEADER, Framer, messages

START_S = 1_790_000_000.5
"""When the runs of these helpers begin, epoch seconds."""


def make_log(path: Path, *records: Any, append: bool = False) -> Path:
    """Write a log of `records` (Record messages, numbered here if they have no number); parents are made.

    With `append` the records go behind those of an existing log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if append else FILE_HEADER
    out = bytearray(before)
    framer = Framer(len(before))
    for number, record in enumerate(records, 1):
        if not record.num and not append:
            record.num = number
        framer.append(record.SerializeToString(), out)
    path.write_bytes(out)
    return path


def timestamp(seconds: float) -> Any:
    """A Timestamp message."""
    nanos = round(seconds * 1e6) * 1000
    return messages.Timestamp(seconds=nanos // 10**9, nanos=nanos % 10**9)


def value_text(value: Any) -> str:
    """JSON as logs hold it; bytes are taken as they are, for texts that are no JSON."""
    return value.decode() if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)


def run_record(
    run_id: str,
    *,
    project: str = "proj",
    start: float = START_S,
    config: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """A run record; `fields` as the message names them."""
    items = [messages.Item(key=key, value_json=value_text(value)) for key, value in (config or {}).items()]
    run = messages.RunRecord(
        run_id=run_id,
        project=project,
        start_time=timestamp(start),
        config=messages.ConfigRecord(update=items),
        **fields,
    )
    return messages.Record(run=run)


def row(step: int | None, values: Mapping[Any, Any] | None = None, *, start: float = START_S, num: int = 0) -> Any:
    """A history record; keys are texts or tuples of them. A row without step gets neither the item nor the field."""
    items: dict[tuple[str, ...], Any] = {}
    for key, value in (values if values is not None else {"loss": 1 / (1 + (step or 0))}).items():
        items[key if isinstance(key, tuple) else (key,)] = value
    if step is not None:
        items[("_step",)] = step
        items[("_runtime",)] = step * 0.5
        items[("_timestamp",)] = start + step * 0.5
    history = messages.HistoryRecord(
        item=[messages.HistoryItem(nested_key=path, value_json=value_text(value)) for path, value in items.items()]
    )
    if step is not None:
        history.step.num = step
    return messages.Record(num=num, history=history)


def sample(at: float, values: Mapping[str, Any] | None = None, *, start: float = START_S) -> Any:
    """A stats record, `at` seconds after the start."""
    items = (values if values is not None else {"cpu": 12.5, "memory_percent": 40.25}).items()
    stats = messages.StatsRecord(
        timestamp=timestamp(start + at),
        item=[messages.StatsItem(key=key, value_json=value_text(value)) for key, value in items],
    )
    return messages.Record(stats=stats)


def output(text: str, at: float = 0.0, *, stderr: bool = False, start: float = START_S) -> Any:
    """A console record, `at` seconds after the start."""
    raw = messages.OutputRecord(output_type=0 if stderr else 1, timestamp=timestamp(start + at), line=text)
    return messages.Record(output_raw=raw)


def config_record(values: Mapping[str, Any] | None = None, *, remove: tuple[str, ...] = ()) -> Any:
    """A config change."""
    config = messages.ConfigRecord(
        update=[messages.Item(key=key, value_json=value_text(value)) for key, value in (values or {}).items()],
        remove=[messages.Item(key=key) for key in remove],
    )
    return messages.Record(config=config)


def summary_record(values: Mapping[str, Any]) -> Any:
    """A summary change."""
    items = [messages.Item(key=key, value_json=value_text(value)) for key, value in values.items()]
    return messages.Record(summary=messages.SummaryRecord(update=items))


def files_record(*paths: str) -> Any:
    """A record that names files below `files/`."""
    return messages.Record(files=messages.FilesRecord(files=[messages.FilesItem(path=path) for path in paths]))


def environment_record(**fields: Any) -> Any:
    """An environment record."""
    given = {"os": "Linux", "python": "CPython 3.11.7", "program": "train.py", "writer_id": "writer-1", **fields}
    return messages.Record(environment=messages.EnvironmentRecord(started_at=timestamp(START_S), **given))


def telemetry_record() -> Any:
    """A telemetry record with two features."""
    flags = bytes([0x10, 1, 0x20, 1])  # fields 2 and 4, true
    telemetry = messages.TelemetryRecord(feature=flags, python_version="3.11.7", cli_version="0.1.0")
    return messages.Record(telemetry=telemetry)


def exit_record(code: int = 0, runtime: int = 7) -> Any:
    """An exit record."""
    return messages.Record(exit=messages.RunExitRecord(exit_code=code, runtime=runtime))


def header_record() -> Any:
    """The record that opens every log."""
    return messages.Record(header=messages.HeaderRecord(version_info=messages.VersionInfo(producer="0.31.0")))


def simple_records(
    run_id: str = "a1b2c3d4",
    *,
    rows: int = 5,
    exit_code: int | None = 0,
    project: str = "proj",
    start: float = START_S,
    parts: int = 1,
    **fields: Any,
) -> list[Any]:
    """The records of an ordinary run; `exit_code=None` for one that still goes on. Each row is in so many `parts`."""
    records = [
        header_record(),
        run_record(run_id, project=project, start=start, config={"lr": 0.001, "model": {"layers": 3}}, **fields),
        environment_record(),
        telemetry_record(),
        sample(0, start=start),
    ]
    for step in range(rows):
        records.append(row(step, start=start))
        records.append(output(f"step {step}\n", step * 0.5, start=start))
        records += [row(step, {f"part{number}": number, "loss": number}, start=start) for number in range(1, parts)]
    records.append(sample(rows * 0.5, start=start))
    records.append(summary_record({"best": 0.25}))
    if exit_code is not None:
        records.append(exit_record(exit_code))
    return records


def simple_run(
    folder: Path,
    *,
    run_id: str = "a1b2c3d4",
    rows: int = 5,
    exit_code: int | None = 0,
    age: float = 0.0,
    prefix: str = "run-20260921_141320",
    **fields: Any,
) -> Path:
    """A run directory below `folder` (usually named `wandb`) with an ordinary log, which last grew `age` seconds ago."""
    log = folder / f"{prefix}-{run_id}" / f"run-{run_id}.wandb"
    make_log(log, *simple_records(run_id, rows=rows, exit_code=exit_code, **fields))
    (log.parent / "files").mkdir()
    if age:
        set_age(log, age)
    return log


def set_age(log: Path, age: float, *, now: float | None = None) -> None:
    """Make a log look as if it last grew `age` seconds before `now` (default: the real time)."""
    when = (now if now is not None else log.stat().st_mtime) - age
    os.utime(log, (when, when))
