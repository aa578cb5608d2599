"""Rows and metric keys of a run, for `runferry show --steps`, `--metric` and `--keys`."""

from __future__ import annotations

import fnmatch
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from ..logformat import Gap, GapReason, Record, WireError, decode_history
from ..logformat.history import STEP, Path, place_of
from ..logformat.keystats import AllKeys, KeyStats
from ..logformat.nested import row_of
from ..logformat.rowstream import Row
from ..logformat.steps import StepCounter
from ..logformat.values import loads
from .showrecords import Lines, gap_words, loss_words
from .text import clip, plain_json, printable

_WINDOW = 500  # rows that are looked at before the columns of a table are decided
_CELL = 24  # characters of a value in a table


class Damage:
    """What could not be read among rows: told as it comes, on standard error or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.is_there = False
        self._as_json = as_json

    def add(self, gap: Gap, log: str, *, is_loss: bool = True) -> None:
        """Tell a gap."""
        self.is_there |= is_loss
        if self._as_json:
            place = {"type": "gap", "log": log, "offset": gap.offset, "length": gap.length}
            click.echo(plain_json({**place, "reason": gap.reason.value, "records_lost": gap.records_lost}))
        else:
            words = f"GAP      bytes {gap.offset}-{gap.end} of {log}: {gap_words(gap)}{loss_words(gap)}"
            click.echo(printable(words), err=True)

    def rows_in(self, items: Iterable[Record | Gap | str], log: str) -> Iterator[Row]:
        """Each history record as a row, as it comes: one that comes in parts is several."""
        counter = StepCounter()
        for item in items:
            if isinstance(item, str):
                click.echo(printable(item), err=True)
            elif isinstance(item, Gap):
                self.add(item, log)
            elif item.kind == "history":
                try:
                    paths, texts = decode_history(item.body)
                except WireError:
                    self.add(Gap(item.offset, item.end - item.offset, GapReason.BAD_PROTO, 1), log)
                    continue
                place = place_of(STEP, paths)
                counter.keeps(texts[place] if place >= 0 else None)
                yield Row(counter.step, dict(zip(paths, texts, strict=True)), item.offset)


class RowChoice:
    """Which rows, and which of their keys."""

    def __init__(self, steps: tuple[int | None, int | None], metrics: Sequence[str], tail: int | None) -> None:
        """`steps`: the first one and the one behind the last; `metrics`: patterns of names, none for all that are no `_` names."""
        self._low, self._high = steps
        self._metrics, self._tail = metrics, tail
        self._is_wanted: dict[Path, bool] = {}

    @property
    def is_picky(self) -> bool:
        """Whether keys were named."""
        return bool(self._metrics)

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those that are wanted, with the keys that are."""
        chosen = filter(None, map(self._cut, rows))
        yield from chosen if self._tail is None else deque(chosen, maxlen=self._tail)

    def wants(self, path: Path) -> bool:
        """Whether a key is."""
        found = self._is_wanted.get(path)
        if found is None:
            name = ".".join(path)
            found = any(fnmatch.fnmatchcase(name, pattern) for pattern in self._metrics)
            found = found or (not self._metrics and not path[0].startswith("_"))
            self._is_wanted[path] = found
        return found

    def _cut(self, row: Row) -> Row | None:
        if (self._low is not None and row.step < self._low) or (self._high is not None and row.step >= self._high):
            return None
        values = {path: text for path, text in row.values.items() if self.wants(path)}
        return row._replace(values=values) if values or not self._metrics else None


def print_rows(rows: Iterable[Row], *, as_json: bool, live: bool = False) -> int:
    """Print rows: as JSON, as a table, or, `live`, each by itself as it comes; how many there were."""
    count = 0
    if as_json or live:
        say = Lines(live=live)
        try:
            for row in rows:
                count += 1
                say(_json_line(row) if as_json else _live_line(row))
        finally:
            say.flush()
        return count
    columns: list[Path] = []
    widths: list[int] = []
    for window in _windows(rows):
        found = list(dict.fromkeys(path for row in window for path in row.values if path != STEP))
        lines = [[str(row.step), *(_cell(row.values.get(path)) for path in found)] for row in window]
        heads = ["step", *(clip(printable(".".join(path)), 2 * _CELL) for path in found)]
        needed = [max(map(len, cells)) for cells in zip(heads, *lines, strict=True)]
        if found != columns or not widths or any(new > old for new, old in zip(needed, widths, strict=True)):
            columns, widths = found, needed
            click.echo(_line(heads, widths))
        click.echo("\n".join(_line(line, widths) for line in lines))
        count += len(window)
    return count


def print_keys(rows: Iterable[Row], choice: RowChoice, *, as_json: bool) -> int:
    """Print what is known of each key, in the order in which they were first logged; how many there are."""
    keys = AllKeys()
    for row in rows:
        keys.add(row)
    chosen = [stats for path, stats in keys.stats.items() if choice.wants(path)]
    if as_json:
        for stats in chosen:
            named = {"type": "key", "key": ".".join(stats.path), "path": stats.path}
            click.echo(plain_json({**named, **stats.as_json()}))
        return len(chosen)
    heads = ["key", "kind", "count", "steps", "last", "min", "max", "NaN"]
    lines = [heads, *map(_key_cells, chosen)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for cells in lines:
        first = "  ".join(cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True))
        click.echo(f"{first}  {_line(cells[2:], widths[2:])}".rstrip())
    return len(chosen)


def _key_cells(stats: KeyStats) -> list[str]:
    nans = str(stats.nans) if stats.nans else ""
    steps = f"{stats.first_step}-{stats.last_step}" if stats.count else ""
    name = clip(printable(".".join(stats.path)), 3 * _CELL)
    ends = ["" if value is None else _said(value) for value in (stats.low, stats.high)]
    last = _said(stats.last) if stats.count else ""
    broken = f" ({stats.broken} broken)" if stats.broken else ""
    return [name, stats.kind, f"{stats.count}{broken}", steps, last, *ends, nans]


def _windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    window: list[Row] = []
    for row in rows:
        window.append(row)
        if len(window) == _WINDOW:
            yield window
            window = []
    if window:
        yield window


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _json_line(row: Row) -> str:
    values = row_of(tuple(row.values), list(row.values.values()))
    return plain_json({"type": "row", "step": row.step, "offset": row.offset, "values": values})


def _live_line(row: Row) -> str:
    values = (f"{printable('.'.join(path))}={_cell(text)}" for path, text in row.values.items() if path != STEP)
    return "  ".join([f"step {row.step}", *values])


def _cell(text: bytes | None) -> str:
    """A value in a table, empty if there is none."""
    if text is None:
        return ""
    try:
        return _said(loads(text))
    except ValueError:
        return "(broken)"


def _said(value: Any) -> str:
    said = repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)
    return clip(printable(said), _CELL)
