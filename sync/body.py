"""Bodies of `file_stream` requests: lines gathered until a body is full, each with its line number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import orjson

from .jsontext import compact

HISTORY = "wandb-history.jsonl"
EVENTS = "wandb-events.jsonl"
SUMMARY = "wandb-summary.json"
CONSOLE = "output.log"

FULL_BODY = 8 * 1024 * 1024
"""Bytes of all lines, before JSON escapes, at which a body is sent: servers take 10 MiB."""
_PLACE = {"_step", "_timestamp", "_runtime", "_wandb"}
"""Keys without which a line says nothing of where it belongs."""


@dataclass
class Body:
    """The lines of one request. `offsets` are the line numbers of the first line of each stream."""

    history_offset: int
    events_offset: int
    console_offset: int
    history: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    summary: str | None = None
    uploaded: list[str] = field(default_factory=list)
    preempting: bool = False
    exit_code: int | None = None
    size: int = 0
    """Characters of all lines; kept by who adds them (a sum per line would make a body quadratic)."""

    @property
    def lines(self) -> int:
        """Lines of rows, samples and console."""
        return len(self.history) + len(self.events) + len(self.console)

    def split(self) -> tuple[Body, Body] | None:
        """The same lines as two bodies, for a server that takes smaller ones; None for a body of one line."""
        streams = (self.history, self.events, self.console)
        cuts = [len(stream) // 2 for stream in streams]
        if not any(cuts):  # at most one line each: the first of them goes alone
            index = next((index for index, stream in enumerate(streams) if stream), None)
            if index is None:
                return None
            cuts[index] = 1
        first = Body(self.history_offset, self.events_offset, self.console_offset, preempting=self.preempting)
        first.history, first.events, first.console = (stream[:cut] for stream, cut in zip(streams, cuts, strict=True))
        second = Body(
            self.history_offset + cuts[0],
            self.events_offset + cuts[1],
            self.console_offset + cuts[2],
            self.history[cuts[0] :],
            self.events[cuts[1] :],
            self.console[cuts[2] :],
            self.summary,
            self.uploaded,
            exit_code=self.exit_code,
        )
        if second.lines == 0 and second.summary is None:
            return None
        return first, second

    def leave_out(self) -> str | None:
        """Take the largest value out of a body that `split` cannot halve, and name it; None where nothing is left."""
        lines = self.history or self.events or ([self.summary] if self.summary is not None else [])
        try:
            values = json.loads(lines[0])
        except (IndexError, ValueError, RecursionError):
            return None
        sizes = {key: len(compact(value)) for key, value in values.items() if key not in _PLACE}
        if not sizes:
            return None
        key = max(sizes, key=sizes.__getitem__)
        del values[key]
        line = compact(values)
        if self.history or self.events:
            lines[0] = line
        else:
            self.summary = line
        what = f"step {values.get('_step', '?')}" if self.history else "a sample" if self.events else "summary"
        return f"{what}: {key} ({sizes[key] / 1e6:.1f} MB, more than this server takes)"

    def encode(self) -> bytes:
        """The JSON of the request: streams in the order of the protocol, whatever is empty left out."""
        files: dict[str, Any] = {}
        for name, offset, lines in (
            (HISTORY, self.history_offset, self.history),
            (EVENTS, self.events_offset, self.events),
            (SUMMARY, 0, [self.summary] if self.summary is not None else []),
            (CONSOLE, self.console_offset, self.console),
        ):
            if lines:
                files[name] = {"offset": offset, "content": lines}
        document: dict[str, Any] = {"files": files} if files else {}
        if self.uploaded:
            document["uploaded"] = self.uploaded
        if self.preempting:
            document["preempting"] = True
        if self.exit_code is not None:
            document["complete"] = True
            document["exitcode"] = self.exit_code
        return orjson.dumps(document)
