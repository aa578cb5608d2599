"""The console lines of a log one after the other, as a terminal showed them in the end, and what had been logged by then.

A line is given once it can change no more: programs go up to lines above to draw their bars again (`terminal`). So memory holds
what fits on a screen, and no more than `MOST_HELD` lines where one stream is silent while the other prints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from .console import ConsoleLine
from .elapsed import nanoseconds, seconds_of
from .history import STEP, TIMESTAMP, decode_history, place_of
from .record import Gap, GapReason, Record
from .steps import StepCounter
from .terminal import SCREEN_ROWS, Terminal, plain
from .wire import WireError

MOST_HELD = 10_000
SEARCHED = 1 << 16
"""Characters of a line that are searched: some patterns take time by the square of a line's length, or worse."""

_STREAMS = {0: "stderr", 1: "stdout"}
_KINDS = frozenset({"output", "output_raw", "output_logger"})


class Said(NamedTuple):
    """A line, and what had been logged when it was printed."""

    line: ConsoleLine
    step: int | None
    """Of the row before it; None if it came before the first one."""
    values: dict[str, bytes]
    """Watched key -> JSON text of its latest value."""


class ConsoleStream:
    """Makes lines of the records of one log."""

    def __init__(self, watched: Collection[str] = ()) -> None:
        """`watched`: names of keys, their components joined by dots."""
        self._watched = frozenset(watched)
        self._latest = _Latest()
        lines: Any = self._latest
        self._terminals = {name: Terminal(name, lines) for name in ("stdout", "stderr")}
        self._counter = StepCounter()
        self._step: int | None = None
        self._values: dict[str, bytes] = {}
        self._time_ns = 0

    def lines(self, items: Iterable[Record | Gap], lost: Callable[[Gap], object]) -> Iterator[Said]:
        """All lines of a log in their order; `lost` is told of what could not be read."""
        for item in items:
            if isinstance(item, Gap):
                lost(item)
                continue
            try:
                self._add(item)
            except (WireError, ValueError):
                lost(Gap(item.offset, item.end - item.offset, GapReason.BAD_PROTO, 1))
            yield from self._latest.settled()
        yield from self._latest.settled(final=True)
        for terminal in self._terminals.values():
            yield from (Said(line, self._step, self._values) for line in terminal.rest())

    def _add(self, record: Record) -> None:
        if record.kind == "history":
            self._row(record)
        elif record.kind in _KINDS:
            message = record.message()
            if record.kind == "output_logger":
                stream, time_ns = "stdout", self._time_ns
            else:
                stream, time_ns = _STREAMS.get(message.output_type, "stdout"), nanoseconds(message.timestamp)
                self._time_ns = max(self._time_ns, time_ns)
            self._latest.context = self._step, self._values
            self._terminals[stream].feed(time_ns, message.line)

    def _row(self, record: Record) -> None:
        paths, texts = decode_history(record.body)
        step, time = place_of(STEP, paths), place_of(TIMESTAMP, paths)
        self._counter.keeps(texts[step] if step >= 0 else None)
        self._step = self._counter.step
        if time >= 0:
            seconds = seconds_of(texts[time])
            self._time_ns = max(self._time_ns, int(seconds * 1e9)) if 0 < seconds < 1e11 else self._time_ns
        if self._watched:
            found = {
                name: text for path, text in zip(paths, texts, strict=True) if (name := ".".join(path)) in self._watched
            }
            self._values = {**self._values, **found} if found else self._values


class _Latest:
    """The lines that may still change, each at its place among all: as much of a list as terminals need."""

    def __init__(self) -> None:
        self.context: tuple[int | None, dict[str, bytes]] = (None, {})
        """What had been logged when the next lines come."""
        self._held: dict[int, tuple[ConsoleLine, int, tuple[int | None, dict[str, bytes]]]] = {}
        self._first = self._count = 0
        self._of_stream = {"stdout": 0, "stderr": 0}

    def __len__(self) -> int:
        return self._count

    def __iadd__(self, lines: list[ConsoleLine]) -> _Latest:  # noqa: PYI034 - it is no more than this
        for line in lines:
            self._of_stream[line.stream] += 1
            self._held[self._count] = line, self._of_stream[line.stream], self.context
            self._count += 1
        return self

    def __setitem__(self, place: int, line: ConsoleLine) -> None:
        if place in self._held:
            _, number, context = self._held[place]
            self._held[place] = line, number, context

    def settled(self, *, final: bool = False) -> Iterator[Said]:
        """Those that change no more."""
        while self._first < self._count:
            line, number, context = self._held[self._first]
            is_settled = self._of_stream[line.stream] - number >= SCREEN_ROWS
            if not (final or is_settled or len(self._held) > MOST_HELD):
                return
            del self._held[self._first]
            self._first += 1
            yield Said(line, *context)


class Hit(NamedTuple):
    """A line that was looked for, or one around it."""

    said: Said
    matches: bool
    follows: bool
    """It stands directly behind the hit before it."""


def search(
    lines: Iterable[Said], matches: Callable[[str], object], *, context: int = 0, most: int | None = None
) -> Iterator[Hit]:
    """The lines that match, with so many lines of `context` around each.

    Args:
        lines: all of them.
        matches: whether a text, without its colours, is what is looked for.
        context: lines before and behind.
        most: lines that match, behind which the search ends.
    """
    before: deque[Said] = deque(maxlen=context)
    found = behind = 0
    last, number = -2, -1
    for said in lines:
        number += 1
        if (most is None or found < most) and matches(plain(said.line.text)[:SEARCHED]):
            for place, earlier in enumerate(before, number - len(before)):
                yield Hit(earlier, matches=False, follows=place == last + 1)
                last = place
            before.clear()
            yield Hit(said, matches=True, follows=number == last + 1)
            found, behind, last = found + 1, context, number
        elif behind:
            yield Hit(said, matches=False, follows=True)
            behind, last = behind - 1, number
        else:
            before.append(said)
        if most is not None and found >= most and not behind:
            return
