"""TensorBoard event files: one for each run.

Scalars are floats of 32 bits: TensorBoard keeps no others, and its own loader passes over doubles. Field numbers below are
those of its protocol: event, summary, tensor and the data of plugins.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from ..logformat.elapsed import in_seconds
from ..logformat.history import RUNTIME, STEP, TIMESTAMP
from .contents import facts, leaves, rows_table, samples_table
from .report_media import media_file
from .runs import LoadedRun
from .selection import PLACE, Selection
from .tables import Logged, Wide, free_name
from .tfrecord import double, float32, inner, text, whole, write_record

_DOUBLE, _STRING = 2, 7  # of DataType
_SCALAR, _TENSOR, _BLOBS = 1, 2, 3  # of DataClass
_MOST_IMAGE = 32 << 20  # bytes
_MOST_IMAGES = 16  # of one value
_MOST_HPARAMS = 200
_STATUS = {"finished": 1, "failed": 2, "crashed": 2, "running": 3}  # success, failure, running; 0 is unknown
_SAMPLES = "system"
_INT64 = 2**63
_FLOAT = struct.Struct("<f")


class Plugin(NamedTuple):
    """What shows the values of a tag."""

    name: str
    data_class: int


_SCALARS = Plugin("scalars", _SCALAR)
_TEXTS = Plugin("text", _TENSOR)
_HISTOGRAMS = Plugin("histograms", _TENSOR)
_IMAGES = Plugin("images", _BLOBS)
_HPARAMS = Plugin("hparams", _TENSOR)


def write_run(file: BinaryIO, run: LoadedRun, whats: Sequence[str], selection: Selection) -> list[str]:
    """Write a run's events; gives what they cannot say, in words."""
    rows, samples = rows_table(run, selection, "wide"), samples_table(run, selection, "wide")
    assert isinstance(rows, Wide)  # noqa: S101 - asked for so
    assert isinstance(samples, Wide)  # noqa: S101
    events = _Events(file, run, [field.name for field in rows.fields])
    events.begin()
    if "config" in whats:
        events.hparams()
        events.document("config", run.state.config)
    if "rows" in whats:
        events.rows(rows)
    if "samples" in whats:
        events.samples(samples)
    if "summary" in whats:
        events.document("summary", run.state.summary)
    if "run" in whats:
        events.document("run", facts(run))
    return events.left_out()


class _Events:
    """Writes the events of one run."""

    def __init__(self, file: BinaryIO, run: LoadedRun, keys: Sequence[str]) -> None:
        """`keys` are the tags of the rows, which keep their names."""
        self._file, self._run = file, run
        self._taken = {part for key in keys for part in (key, key.partition("/")[0])}
        self._start = in_seconds(run.state.info.start_time_ns)
        self._plugins: dict[str, Plugin] = {}  # of the tags so far: all values of a tag are of one
        self._prefixes: dict[str, bytes] = {}  # of scalars: what stands before the number
        self._lost: Counter[str] = Counter()

    def begin(self) -> None:
        """What opens a file."""
        write_record(self._file, double(1, self._start) + text(3, "brain.Event:2") + inner(10, text(1, "runferry")))

    def left_out(self) -> list[str]:
        """The keys of which not all values could be said."""
        return [
            f"left out: {key}: {count} of its values are nothing that TensorBoard shows"
            for key, count in self._lost.items()
        ]

    # -- what a run has ----------------------------------------------------------------------------------------------

    def rows(self, table: Wide) -> None:
        """The rows: one event for each, at its step."""
        columns = [source for source in table.sources if source.path not in PLACE]
        place = {path: self._column(path) for path in (STEP, RUNTIME, TIMESTAMP)}
        for rows in table.parts():
            values: dict[int, list[bytes]] = {row: [] for row in rows}
            for source in columns:
                for row, value in source.items(rows):
                    values[row] += self._said(source.field.name, value)
            where = zip(*(place[path](rows) for path in (STEP, RUNTIME, TIMESTAMP)), strict=True)
            for (row, said), (step, runtime, timestamp) in zip(values.items(), where, strict=True):
                if said:
                    is_step = type(step) is int and -_INT64 <= step < _INT64
                    self._event(self._time(timestamp, runtime), step if is_step else row, said)

    def samples(self, table: Wide) -> None:
        """The system metrics below a tag of their own; steps are whole seconds of the run."""
        above = free_name(_SAMPLES, self._taken)
        times, runtimes, *metrics = table.sources
        for rows in table.parts():
            values: dict[int, list[bytes]] = {row: [] for row in rows}
            for source in metrics:
                for row, value in source.items(rows):
                    values[row] += self._said(f"{above}/{source.field.name}", value)
            for (_, said), time, runtime in zip(values.items(), times.cells(rows), runtimes.cells(rows), strict=True):
                self._event(time, int(runtime), said)

    def document(self, tag: str, tree: dict[str, Any]) -> None:
        """A nested object as text, indented so that Markdown leaves it alone."""
        lines = json.dumps(tree, ensure_ascii=False, indent=2).splitlines()
        tag = free_name(tag, self._taken)
        self._event(self._start, 0, [self._value(tag, _TEXTS, _strings("\n".join(f"    {line}" for line in lines)))])

    def hparams(self) -> None:
        """The config, of which the first values are shown beside those of other runs."""
        found = leaves(self._run.state.config)
        found = [(path, value) for path, value in found if path[0] != "_wandb"][:_MOST_HPARAMS]
        given = [inner(1, text(1, ".".join(path)), inner(2, _hparam(value))) for path, value in found]
        group = text(4, self._run.name)
        self._session("_hparams_/session_start_info", inner(3, *given, group, double(5, self._start)))
        status = whole(1, _STATUS.get(self._run.status, 0))
        end = self._start + self._run.state.runtime
        self._session("_hparams_/session_end_info", inner(4, status, double(2, end)))

    # -- events ------------------------------------------------------------------------------------------------------

    def _column(self, path: tuple[str, ...]) -> Callable[[Sequence[int]], list[Any]]:
        rows = self._run.state.rows
        return Logged(rows.column(path)).cells if path in rows.paths else lambda wanted: [None] * len(wanted)

    def _time(self, timestamp: Any, runtime: Any) -> float:
        """Seconds since the epoch: as a row says, or by the run's start."""
        if isinstance(timestamp, (int, float)) and math.isfinite(timestamp):
            return float(timestamp)
        known = isinstance(runtime, (int, float)) and math.isfinite(runtime)
        return self._start + float(runtime) if known else self._start

    def _event(self, time: float, step: int, values: Sequence[bytes]) -> None:
        write_record(self._file, double(1, time) + whole(2, step) + inner(5, *values))

    def _said(self, tag: str, value: Any) -> list[bytes]:
        """A value for an event; empty, and counted, if it cannot be said."""
        number = _number(value)
        if number is not None and self._plugins.setdefault(tag, _SCALARS) is _SCALARS:
            return self._scalar(tag, number)
        for plugin, tensor in self._tensors(value) if number is None else ():
            if self._plugins.get(tag, plugin) is plugin:
                return [self._value(tag, plugin, tensor)]
        if value is not None:
            self._lost[tag] += 1
        return []

    def _tensors(self, value: Any) -> Iterator[tuple[Plugin, bytes]]:
        if isinstance(value, str):
            yield _TEXTS, _strings(value)
        elif isinstance(value, dict):
            if (bars := _histogram(value)) is not None:
                yield _HISTOGRAMS, bars
            elif images := self._images(value):
                width, height = _whole(value.get("width")), _whole(value.get("height"))
                yield _IMAGES, _strings(str(width), str(height), *images)

    def _images(self, value: dict[str, Any]) -> list[bytes]:
        if value.get("_type") == "image-file":
            names = [value.get("path")]
        elif value.get("_type") == "images/separated" and isinstance(value.get("filenames"), list):
            names = value["filenames"][:_MOST_IMAGES]
        else:
            return []
        folders = [log.parent for log in self._run.logs]
        found = [media_file(folders, name, _MOST_IMAGE) for name in names if isinstance(name, str)]
        return [image for image in found if image is not None]

    def _scalar(self, tag: str, number: float) -> list[bytes]:
        prefix = self._prefixes.get(tag)
        if prefix is None:
            prefix = self._prefixes[tag] = inner(1, text(1, tag), float32(2, 0.0))[:-4]
        try:
            return [prefix + _FLOAT.pack(number)]
        except OverflowError:  # beyond floats of 32 bits
            self._lost[tag] += 1
            return []

    def _value(self, tag: str, plugin: Plugin, tensor: bytes) -> bytes:
        """A Summary.Value; the first one of a tag says what the tag is."""
        is_first = tag not in self._plugins
        self._plugins[tag] = plugin
        return inner(1, text(1, tag), _metadata(plugin) if is_first else b"", inner(8, tensor))

    def _session(self, tag: str, data: bytes) -> None:
        nothing = whole(1, 1) + inner(2) + inner(5, bytes(4))  # a float; the plugin reads the metadata alone
        self._event(self._start, 0, [inner(1, text(1, tag), _metadata(_HPARAMS, data), inner(8, nothing))])


def _metadata(plugin: Plugin, content: bytes = b"") -> bytes:
    return inner(9, inner(1, text(1, plugin.name), inner(2, content)), whole(4, plugin.data_class))


def _strings(*values: str | bytes) -> bytes:
    """A tensor of texts or bytes."""
    parts = [value if isinstance(value, bytes) else value.encode("utf-8", "replace") for value in values]
    shape = inner(2, whole(1, len(parts)))
    return b"".join((whole(1, _STRING), inner(2, shape), *(inner(8, part) for part in parts)))


def _histogram(value: dict[str, Any]) -> bytes | None:
    """A tensor of (left edge, right edge, count) for each bin; None if the value is no histogram."""
    if value.get("_type") != "histogram":
        return None
    counts = _numbers(value.get("values"))
    edges = _edges(value, len(counts))
    if not counts or len(edges) != len(counts) + 1:
        return None
    bars = [
        number for left, right, count in zip(edges, edges[1:], counts, strict=False) for number in (left, right, count)
    ]
    shape = inner(2, whole(1, len(counts))) + inner(2, whole(1, 3))
    return whole(1, _DOUBLE) + inner(2, shape) + inner(4, struct.pack(f"<{len(bars)}d", *bars))


def _edges(value: dict[str, Any], count: int) -> list[float]:
    """The edges of the bins: listed, or as first edge, number of bins and width."""
    if "bins" in value:
        return _numbers(value["bins"])
    packed = value.get("packedBins")
    if not isinstance(packed, dict) or packed.get("count") != count:
        return []
    ends = _numbers([packed.get("min"), packed.get("size")])
    return [ends[0] + ends[1] * number for number in range(count + 1)] if len(ends) == 2 else []


def _numbers(values: Any) -> list[float]:
    """A list of numbers; empty if it is none."""
    found = [_number(value) for value in values] if isinstance(values, list) else []
    return [number for number in found if number is not None] if None not in found else []


def _number(value: Any) -> float | None:
    """A number or bool as a double; None if it is none."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def _hparam(value: Any) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return whole(4, value)
    number = _number(value)
    if number is not None:
        return double(2, number)
    return text(3, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
