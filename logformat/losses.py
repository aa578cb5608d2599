"""What a gap took: the numbers of the records, and the steps of the rows, that lie between what was read on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .history import STEP, decode_history, place_of
from .record import Gap, Record
from .steps import StepCounter
from .wire import WireError

Span = tuple[int | None, int | None]
"""First and last of what is, or may be, lost: None for a first one where nothing stands before, and for a last one where the log ends."""


@dataclass(slots=True)
class Loss:
    """A gap, and what stands on both sides of it; None where nothing does, or does not tell."""

    gap: Gap
    num_before: int | None = None
    num_after: int | None = None
    step_before: int | None = None
    """Of the last row before it."""
    step_after: int | None = None
    """Of the first row behind it; rows between the gap and that one are none."""
    is_last: bool = field(default=True)
    """No record follows."""

    @property
    def records(self) -> Span | None:
        """The numbers of the records that are lost; None if there are none, or nobody can tell."""
        if self.num_before is None or (self.num_after is None and not self.is_last):
            return None
        return _between(self.num_before, self.num_after)

    @property
    def steps(self) -> Span | None:
        """The steps that lost rows may have had; None if there is no room for any. Steps may be logged with spaces between."""
        if self.step_before is None:
            return (None, self.step_after - 1) if self.step_after else None
        return _between(self.step_before, self.step_after)

    def as_json(self) -> dict[str, Any]:
        """Plain data, by the names that stand in the documentation."""
        gap = self.gap
        place = {"offset": gap.offset, "length": gap.length, "reason": gap.reason.value}
        spans = {"records": self.records, "steps": self.steps}
        return {**place, "records_lost": gap.records_lost, **spans, **({"note": gap.note} if gap.note else {})}

    def __str__(self) -> str:
        """In one line, without its note."""
        parts = [f"bytes {self.gap.offset}-{self.gap.end} ({self.gap.reason.value})"]
        parts += [_said("record", self.records)] if self.records else []
        parts += [_said("step", self.steps)] if self.steps else []
        return ", ".join(parts)


def losses(items: Iterable[Record | Gap]) -> Iterator[Loss]:
    """What each gap among the records of one log took."""
    watch = LossWatch()
    for item in items:
        yield from watch.add(item)
    yield from watch.rest()


class LossWatch:
    """`losses`, for who walks the items himself."""

    def __init__(self) -> None:
        self._num: int | None = 0  # 0: before the first record
        self._step: int | None = None
        self._counter = StepCounter()
        self._open: list[Loss] = []

    def add(self, item: Record | Gap) -> Iterator[Loss]:
        """Take the next item; the losses that are known in full by it."""
        if isinstance(item, Gap):
            self._open.append(Loss(item, self._num, step_before=self._step))
            return
        for loss in self._open:
            if loss.is_last:
                loss.is_last, loss.num_after = False, item.num or None
        self._num = item.num or None
        if item.kind != "history":
            return
        step = self._step_of(item)
        if step is None:
            return
        self._step = step
        for loss in self._open:
            loss.step_after = step
        yield from self._open
        self._open.clear()

    def rest(self) -> Iterator[Loss]:
        """Those behind which no row came."""
        yield from self._open
        self._open.clear()

    def _step_of(self, record: Record) -> int | None:
        try:
            paths, texts = decode_history(record.body)
        except WireError:
            return None
        place = place_of(STEP, paths)
        self._counter.keeps(texts[place] if place >= 0 else None)
        return self._counter.step


def _between(before: int, after: int | None) -> Span | None:
    """What lies between two numbers, these not included."""
    if after is None:
        return before + 1, None
    return (before + 1, after - 1) if after > before + 1 else None


def _said(word: str, span: Span) -> str:
    first, last = span
    if first is None:
        return f"{word}s up to {last}"
    if last is None:
        return f"{word}s from {first} on"
    return f"{word} {first}" if first == last else f"{word}s {first}-{last}"
