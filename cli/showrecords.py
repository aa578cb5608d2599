"""The records of a log, one line each, for `runferry show`."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from ..logformat import Gap, GapReason, Record, WireError
from ..logformat.anatomy import AnatomyReader, Part, shape_of
from ..logformat.describe import describe
from ..sync.report import counted
from .text import clip, plain_json, printable

Named = Callable[[Path], str]
"""How a log is called by its user."""
Reader = Callable[[], AnatomyReader]
"""What gave the latest record."""

Item = TypeVar("Item")

_AT_ONCE = 500  # lines
_WIDTH = 160  # characters of what a record says


class Lines:
    """Prints lines; many at once, where nobody waits for each."""

    def __init__(self, *, live: bool) -> None:
        self._held: list[str] = []
        self._most = 1 if live else _AT_ONCE

    def __call__(self, line: str) -> None:
        """Print a line, now or later."""
        self._held.append(line)
        if len(self._held) >= self._most:
            self.flush()

    def flush(self) -> None:
        """Print what is held."""
        held, self._held = self._held, []
        if held:
            click.echo("\n".join(held))


class RecordPrinter:
    """Prints what comes of one log; whether anything was lost is in `is_damaged`."""

    def __init__(
        self,
        name: str,
        reader: Reader,
        kinds: tuple[str, ...],
        *,
        as_json: bool,
        tail: int | None,
        live: bool = False,
        is_no_loss: Callable[[Gap], bool] = lambda _gap: False,
    ) -> None:
        """`tail`: print only so many of the last ones, once there are no more; `live`: print each as it comes.

        `is_no_loss`: whether a gap is a record that is being written.
        """
        self._lines = Lines(live=live)
        self._is_no_loss = is_no_loss
        self.is_damaged = False
        self.is_empty = False
        """Not a record came, and no gap."""
        self._name, self._reader, self._kinds, self._as_json = name, reader, kinds, as_json
        self._counts: Counter[str] = Counter()
        self._held: deque[Callable[[], str]] | None = None if tail is None else deque(maxlen=tail)
        self._warned: int | None = 0

    def print_all(self, items: Iterable[Record | Gap | str]) -> None:
        """Print records and gaps as they come; words go to standard error."""
        if not self._as_json:
            click.echo(printable(f"log {self._name}"))
            click.echo(f"{'offset':>10}  {'num':>6}  {'kind':<14}  {'length':>8}  chunks")
        try:
            for item in items:
                self._add(item)
            for line in self._held or ():
                self._lines(line())
        finally:
            self._lines.flush()
        self._warn()
        self.is_empty = not (self._counts or self.is_damaged)
        if self.is_empty:
            click.echo(printable(f"no record in {self._name}"), err=True)
        elif self._kinds:
            self._tell_missing()

    def _add(self, item: Record | Gap | str) -> None:
        self._warn()
        if isinstance(item, str):
            self._tell(item)
        elif isinstance(item, Gap):
            self.is_damaged |= not self._is_no_loss(item)
            self._say(partial(self._gap_line, item))
        else:
            self._record(item)

    def _record(self, record: Record) -> None:
        self._counts[record.kind] += 1
        parts = self._reader().parts_of(record)
        if self._kinds and record.kind not in self._kinds:
            return
        self._say(partial(self._record_line, record, parts))

    def _record_line(self, record: Record, parts: tuple[Part, ...]) -> str:
        try:
            said, problem = describe(record), None
        except WireError as error:
            said, problem = {}, str(error)
            self.is_damaged = True
        line = self._json_line if self._as_json else _text_line
        return line(record, parts, said, problem)

    def _json_line(self, record: Record, parts: tuple[Part, ...], said: dict[str, Any], problem: str | None) -> str:
        line: dict[str, Any] = {"type": "record", "num": record.num, "kind": record.kind, "offset": record.offset}
        line |= {"length": record.end - record.offset, "size": len(record.payload), "chunks": shape_of(parts)}
        healed = [[bit.offset, bit.bit] for part in parts for bit in part.healed]
        line |= {"crc": "healed", "healed": healed} if healed else {"crc": "ok"}
        return plain_json({**line, "value": said, **({"error": problem} if problem else {})})

    def _gap_line(self, gap: Gap) -> str:
        if self._as_json:
            place = {"type": "gap", "offset": gap.offset, "length": gap.length, "reason": gap.reason.value}
            return plain_json({**place, "records_lost": gap.records_lost, **({"note": gap.note} if gap.note else {})})
        words = f"{gap_words(gap)}, {counted(gap.length, 'byte')}{loss_words(gap)}"
        return f"{gap.offset:>10}          GAP             {printable(words)}"

    def _say(self, line: Callable[[], str]) -> None:
        if self._held is None:
            self._lines(line())
        else:
            self._held.append(line)

    def _tell(self, words: str) -> None:
        if self._as_json:
            self._say(partial(plain_json, {"type": "notice", "text": words}))
        click.echo(printable(words), err=True)

    def _warn(self) -> None:
        version = getattr(self._reader(), "header_version", None)
        if version != self._warned and version:
            self._tell(
                f"{self._name}: its header names version {version} of the format, which is not known: read as version 0"
            )
            self._warned = version

    def _tell_missing(self) -> None:
        missing = sorted({kind for kind in self._kinds if not self._counts[kind]})
        if missing:
            hint = "; what the program printed is output_raw" if "output" in missing else ""
            has = ", ".join(sorted(self._counts)) or "no record"
            click.echo(
                printable(f"no record of kind {', '.join(missing)} in {self._name}, which has {has}{hint}"), err=True
            )


def _text_line(record: Record, parts: tuple[Part, ...], said: dict[str, Any], problem: str | None) -> str:
    healed = [f"healed at byte {bit.offset}, bit {bit.bit}" for part in parts for bit in part.healed]
    length, shape = record.end - record.offset, "; ".join([shape_of(parts), *healed])
    words = problem or clip(printable(_flat(said)), _WIDTH)
    return f"{record.offset:>10}  {record.num:>6}  {record.kind:<14}  {length:>8}  {shape:<6}  {words}"


def _flat(said: dict[str, Any]) -> str:
    return "  ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in said.items())


def loss_words(gap: Gap) -> str:
    """How many records are lost, behind a comma; empty where nothing tells."""
    return "" if gap.records_lost is None else f", {counted(gap.records_lost, 'record')} lost"


def gap_words(gap: Gap) -> str:
    """Why bytes could not be read."""
    if gap.reason is GapReason.BAD_HEADER:
        return f"{gap.note or 'not a log: it does not begin as one'} (bad_header)"
    return f"{gap.reason.value} ({gap.note})" if gap.note else gap.reason.value


def named_errors(items: Iterator[Item], name: str) -> Iterator[Item]:
    """`items`; an error of reading names the log, so that it is told from one of printing."""
    while True:
        try:
            item = next(items, None)
        except OSError as error:
            error.filename = error.filename or name
            raise
        if item is None:
            return
        yield item
