"""The metrics file of a sync: its own counters in the OpenMetrics text format, for node_exporter's textfile collector.

A scrape may come at any moment, so the file is replaced and never written into.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .board import Board
from .counters import CLASSES, Counters
from .places import write_durably
from .report import Event, Finished, Verdict

WRITE_EVERY_S = 10.0
_PREFIX = "runferry_sync_"
_MAX_OLD = 1024 * 1024  # bytes; a file of ours is a few kB
_LAST_SUCCESS = re.compile(rf"^{_PREFIX}last_success_timestamp_seconds ([0-9.e+]+)$", re.MULTILINE)


@dataclass
class Family:
    """A metric: name without prefix and `_total`, kind (`counter` or `gauge`), help, and values by labels."""

    name: str
    kind: str
    help: str
    values: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


class MetricsFile:
    """A reporter that counts; `tick` and `close` write the file.

    A file that cannot be written is an error at the start, and no reason to stop later.
    """

    def __init__(
        self,
        path: Path,
        counters: Counters,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        version: str,
    ) -> None:
        """Write the file for the first time; `now` gives epoch seconds.

        Raises:
            OSError: it cannot be written.
        """
        self._path = path
        self._counters = counters
        self._now = now
        self._board = Board(monotonic)
        self._monotonic = monotonic
        self._version = version
        self._began = now()
        self._last_success = _last_success(path)
        self._exit_code: int | None = None
        self.write()

    def __call__(self, event: Event) -> None:
        """Count it."""
        self._board(event)
        if isinstance(event, Finished):
            self._exit_code = event.exit_code

    def tick(self) -> None:
        """Write the file as things stand."""
        with contextlib.suppress(OSError):  # a full disk is told by whoever looks at the age of the file
            self.write()

    def close(self) -> None:
        """Write the file for the last time."""
        self.tick()

    def write(self) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written.
        """
        write_durably(self._path, exposition(self.families()).encode())

    def families(self) -> list[Family]:
        """All metrics, with their values now."""
        board, traffic = self._board, self._counters.read()
        all_told = board.verdicts and len(board.verdicts) >= board.logs  # and a watch goes on
        if self._exit_code == 0 or (self._exit_code is None and all_told and not board.undone):
            self._last_success = self._now()
        counts = board.counts()
        families = [
            # (Not of type `info`: node_exporter's parser would refuse the file for it.)
            _one("build_info", "gauge", "The version that wrote this.", 1, {"version": self._version}),
            _one("start_time_seconds", "gauge", "When this sync began, in seconds since the epoch.", self._began),
            _one("duration_seconds", "gauge", "How long this sync has taken.", self._monotonic() - board.began),
            _one("logs", "gauge", "Logs that were found.", board.logs),
            _one("runs", "gauge", "Runs that they belong to.", board.runs),
            Family(
                "verdicts",
                "gauge",
                "Logs by their last verdict.",
                {(("verdict", verdict.value),): counts.get(verdict.value, 0) for verdict in Verdict},
            ),
            _one("active_logs", "gauge", "Logs that are being sent now.", len(board.active)),
            _one("rows", "counter", "History rows that the server acknowledged.", board.sent),
            _one("files", "counter", "Files that the server took.", board.files_sent),
            Family(
                "requests",
                "counter",
                "Requests by class of their answer; none: not answered.",
                {(("code", kind),): traffic.answers[kind] for kind in CLASSES},
            ),
            _one("sent_bytes", "counter", "Bytes of request bodies that were answered.", traffic.sent),
            _one("received_bytes", "counter", "Bytes of the answers' bodies.", traffic.received),
            _one("retries", "counter", "Attempts after a failure.", traffic.retries),
            Family(
                "wait_seconds",
                "counter",
                "Time that requests were made to wait, added up over requests.",
                {(("cause", "retry"),): traffic.retry_wait, (("cause", "limit"),): traffic.limit_wait},
            ),
        ]
        if self._last_success is not None:
            text = "When a sync last brought over all that it found, in seconds since the epoch."
            families.append(_one("last_success_timestamp_seconds", "gauge", text, self._last_success))
        if self._exit_code is not None:
            families.append(_one("exit_code", "gauge", "The exit code of this sync.", self._exit_code))
        return families


def exposition(families: list[Family]) -> str:
    """The families as OpenMetrics text."""
    lines = []
    for family in families:
        name = f"{_PREFIX}{family.name}"
        unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")
        lines.append(f"# TYPE {name} {family.kind}")
        if unit:
            lines.append(f"# UNIT {name} {unit}")
        lines.append(f"# HELP {name} {_escaped(family.help, quotes=False)}")
        suffix = "_total" if family.kind == "counter" else ""
        for labels, value in family.values.items():
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            lines.append(f"{name}{suffix}{f'{{{inner}}}' if inner else ''} {value!r}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _one(name: str, kind: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Family:
    return Family(name, kind, text, {tuple((labels or {}).items()): value})


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _last_success(path: Path) -> float | None:
    """What the file of an earlier sync says of the last success."""
    try:
        with path.open("rb") as file:
            match = _LAST_SUCCESS.search(file.read(_MAX_OLD).decode("utf-8", "replace"))
        return float(match[1]) if match else None
    except (OSError, ValueError):
        return None
