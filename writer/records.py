"""The rare records as bytes: each function gives one record without its number, which comes with the frame.

Written by hand like the rows, so that starting a run needs no protobuf runtime (its import alone costs more than
`init` may). The one exception is the environment, built away from the training thread from the sampler's dicts.
Field numbers stand beside their names in `logformat/messages.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .encoding import nested_key, to_json, utf8, varint
from .values import Path

if TYPE_CHECKING:
    from .metrics import MetricDefinition

FORMAT_SDK_VERSION = "0.31.0"
"""The peer's version whose format this writer speaks. Readers and servers choose their behaviour by the SDK version
that a log claims, so the log claims the one that it was proven against (and says who wrote it behind the `+`)."""
MIN_SERVER_VERSION = "0.70.0"

STDERR, STDOUT = 0, 1

Update = tuple[Path, bytes]
"""Where, and the JSON text that now stands there."""


def message(number: int, body: bytes) -> bytes:
    """A field that holds a message; present even if empty."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str | None) -> bytes:
    """A string field; nothing for an empty one."""
    return message(number, utf8(value)) if value else b""


def integer(number: int, value: int) -> bytes:
    """An integer or bool field; nothing for 0."""
    return varint(number << 3) + varint(int(value)) if value else b""


def timestamp(number: int, ns: int) -> bytes:
    """A Timestamp field from nanoseconds since the epoch."""
    seconds, nanos = divmod(ns, 1_000_000_000)
    return message(number, integer(1, seconds) + integer(2, nanos))


def _item(path: Path, value: bytes) -> bytes:
    key = message(1, utf8(path[0])) if len(path) == 1 else nested_key(path)
    return key + (message(16, value) if value else b"")


def _updates(updates: Iterable[Update], removals: Iterable[Path]) -> bytes:
    parts = [message(1, _item(path, value)) for path, value in updates]
    parts += [message(2, _item(path, b"")) for path in removals]
    return b"".join(parts)


def header(version: str) -> bytes:
    """Who wrote the log: our version, as `logformat.runinfo.node_version` has it for a further node of a run."""
    producer = f"{FORMAT_SDK_VERSION}+runferry.{version}"
    return message(21, message(1, text(1, producer) + text(2, MIN_SERVER_VERSION)))


class RunInfo(NamedTuple):
    """What a run record says besides the config."""

    run_id: str
    project: str
    entity: str = ""
    group: str = ""
    job_type: str = ""
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    sweep_id: str = ""
    host: str = ""
    start_ns: int = 0
    resume: bool = False
    starting_step: int = 0
    runtime_s: int = 0
    """Seconds that the run had taken before this log; the times of its rows go on from there."""


def run(info: RunInfo, config: Iterable[Update], telemetry_body: bytes = b"") -> bytes:
    """The run: identity and the whole config, by top-level key."""
    body = [
        text(1, info.run_id),
        text(2, info.entity),
        text(3, info.project),
        message(4, _updates([*config, (("_wandb",), b"{}")], ())),
        text(6, info.group),
        text(7, info.job_type),
        text(8, info.name),
        text(9, info.notes),
        *(text(10, tag) for tag in info.tags),
        text(12, info.sweep_id),
        text(13, info.host),
        integer(14, info.starting_step),
        timestamp(17, info.start_ns // 1000 * 1000),  # microseconds, as the peer keeps it
        message(19, telemetry_body) if telemetry_body else b"",
        integer(20, info.runtime_s),
        integer(24, info.resume),
    ]
    return message(17, b"".join(body))


def config(updates: Iterable[Update], removals: Iterable[Path] = ()) -> bytes:
    """Changes of the config."""
    return message(5, _updates(updates, removals))


def summary(updates: Iterable[Update], removals: Iterable[Path] = ()) -> bytes:
    """Changes of the summary."""
    return message(3, _updates(updates, removals))


def stats(timestamp_ns: int, values: Mapping[str, float]) -> bytes:
    """One sample of the system's metrics."""
    items = (message(3, message(1, utf8(key)) + message(16, to_json(value))) for key, value in values.items())
    return message(7, timestamp(2, timestamp_ns) + b"".join(items))


def output(stream: int, timestamp_ns: int, line: str) -> bytes:
    """What was written to the console: raw text, whole lines or parts of one."""
    return message(13, integer(1, stream) + timestamp(2, timestamp_ns) + text(3, line))


NOW, END, LIVE = 0, 1, 2
"""When a backend gets a saved file: at once, at the end, or whenever it changed."""
OTHER, WANDB = 0, 1
"""What a file is: the user's, or the run's own (its code, its requirements)."""


FILES_TAG = b"\x32"
"""What a record of a file begins with."""


def files(path: str, policy: int = NOW, kind: int = OTHER) -> bytes:
    """A file of the run: its path below `files/`."""
    return message(6, message(1, text(1, path) + integer(2, policy) + integer(3, kind)))


def output_logger(line: str) -> bytes:
    """A line that the user logged as console output."""
    return message(27, text(1, line))


def exit_(code: int, runtime_s: int) -> bytes:
    """The end of the run."""
    return message(18, integer(1, code) + integer(2, runtime_s))


def preempting() -> bytes:
    """The scheduler is about to stop the run."""
    return message(23, b"")


def alert(title: str, body: str, level: str, wait_ms: int) -> bytes:
    """A message for whoever watches the run. `wait_ms`: how long the same title stays silent afterwards."""
    return message(10, text(1, title) + text(2, body) + text(3, level) + integer(4, wait_ms))


def metric(definition: MetricDefinition) -> bytes:
    """The definition of a metric."""
    options = integer(1, definition.step_sync) + integer(2, definition.hidden) + integer(3, 1)
    kinds = b"".join(integer(number, 1) for number in sorted(definition.summary_numbers))
    return message(
        12,
        text(2 if definition.is_glob else 1, definition.name)
        + text(4, definition.step_metric)
        + message(6, options)
        + (message(7, kinds) if kinds else b"")
        + integer(8, definition.goal_number)
        + (message(9, integer(1, 1)) if definition.overwrite else b""),
    )


# Telemetry's switches that this writer sets, by field number of its `feature` message.
FEATURE_FINISH, FEATURE_OFFLINE, FEATURE_METRIC = 2, 4, 7
FEATURE_INIT_NAME, FEATURE_INIT_ID, FEATURE_INIT_TAGS, FEATURE_INIT_CONFIG = 13, 14, 15, 16
FEATURE_RUN_NAME, FEATURE_RUN_TAGS, FEATURE_CONFIG_ITEM = 17, 18, 19
FEATURE_STEP_LOG, FEATURE_SUMMARY = 61, 62
FEATURE_METRIC_SUMMARY, FEATURE_METRIC_GOAL, FEATURE_METRIC_HIDDEN, FEATURE_METRIC_STEP_SYNC = 63, 64, 65, 66


class Telemetry:
    """How the run uses the format: cumulative, so each record holds all that went before."""

    def __init__(self) -> None:
        self.features = {FEATURE_OFFLINE}

    def body(self) -> bytes:
        """The TelemetryRecord message."""
        version = ".".join(map(str, sys.version_info[:3]))
        switches = b"".join(integer(number, 1) for number in sorted(self.features))
        return (
            message(3, switches)
            + text(4, version)
            + text(5, FORMAT_SDK_VERSION)
            + text(12, FORMAT_SDK_VERSION)
            + text(13, f"{sys.platform}-{_machine()}")
        )

    def record(self) -> bytes:
        """The record."""
        return message(11, self.body())


def _machine() -> str:
    import os

    return os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "unknown").lower()


def environment(facts: Mapping[str, Any], writer_id: str, warn: Callable[[str], None] | None = None) -> bytes:
    """The machine, from a dict with the record's own field names; a name that the format lacks is left out.

    A value that its field cannot hold costs that field alone, and is told.
    Imports the protobuf runtime: never call it on the training thread.
    """
    from google.protobuf.json_format import ParseDict, ParseError

    from ..logformat import messages

    fields = dict(facts) | {"writer_id": writer_id}
    if started_ns := fields.pop("started_at", None):
        seconds, nanos = divmod(int(started_ns), 1_000_000_000)
        fields["started_at"] = {"seconds": seconds, "nanos": nanos}
    record = messages.EnvironmentRecord()
    for name, value in fields.items():
        try:
            part = ParseDict({name: _well_formed(value)}, messages.EnvironmentRecord(), ignore_unknown_fields=True)
        except ParseError as error:  # devices are told by probes, also those of other packages
            if warn is not None:
                warn(f"the record of the machine lacks {name}: {str(error).splitlines()[0]}")
            continue
        record.MergeFrom(part)
    return message(26, record.SerializeToString())


def _well_formed(value: Any) -> Any:
    """What no UTF-8 can hold, bytes of names in other encodings, is shown as what it is: unreadable."""
    if isinstance(value, str):
        return utf8(value).decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {name: _well_formed(inner) for name, inner in value.items()}
    return [_well_formed(inner) for inner in value] if isinstance(value, (list, tuple)) else value
