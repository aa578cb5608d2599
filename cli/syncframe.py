"""The live table of a sync, as lines of text that fit into a terminal of any size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rich.cells import cell_len, set_cell_size

from ..sync.board import Active, Board, Wait
from .text import printable, size, span

_LONGEST_NAME = 24  # columns of a run id where there is room
_FEWEST_ROWS = 3  # of the table, before waits get lines of their own


def frame(board: Board, width: int, height: int, bytes_per_second: float | None = None) -> list[str]:
    """At most `height` lines of at most `width` columns: runs that are being sent, what waits, and totals."""
    if height <= 0 or width <= 0:
        return []
    room = height - 1  # the totals take one
    alone = {wait.what: wait for wait in board.waits}
    rows: list[str] = []
    shown = list(islice(board.active.values(), room))
    states = {id(log): _state(board, log, alone) for log in shown}
    waits = [f"waiting {span(wait.until - board.now())} for {wait.what}: {wait.reason}" for wait in alone.values()]
    waits = [] if room < _FEWEST_ROWS + 2 else waits[-min(3, room - _FEWEST_ROWS - 1) :]
    fits = room - len(waits) - 1  # the heading takes one
    if shown and fits > 0:
        more = max(0, len(board.active) - fits)
        if more:  # a line says how many there are
            more, fits = more + 1, fits - 1
        rows = _table(board, shown[:fits] if more else shown, states, width)
        if more:
            rows.append(f"and {more} more")
    lines = [*rows, *waits, _totals(board, bytes_per_second)]
    return [_fit(printable(line), width) for line in lines[-height:]]


def _state(board: Board, log: Active, waits: dict[str, Wait]) -> str:
    """What a run is doing; a wait that is told here is taken from `waits`."""
    wait = waits.pop(f"rows of {log.run}", None)
    if wait is not None:
        return f"again in {span(wait.until - board.now())} (after attempt {wait.attempt}): {wait.reason}"
    if board.closed_for:
        return "waits for the server's limit"
    return "files" if log.files_of and log.rows >= log.of else "rows"


def _table(board: Board, logs: Sequence[Active], states: dict[int, str], width: int) -> list[str]:
    now = board.now()
    columns: list[tuple[str, list[str]]] = [
        ("run", [log.run for log in logs]),
        ("rows", [f"{log.rows:,}/{'~' if log.estimated else ''}{log.of:,}" for log in logs]),
    ]
    if width >= 60:
        columns.append(("rows/s", [f"{log.rate(now):,.0f}" for log in logs]))
    if width >= 50:
        columns.append(("files", [f"{log.files}/{log.files_of}" if log.files_of else "" for log in logs]))
    if width >= 40:
        columns.append(("state", [states[id(log)] for log in logs]))
    lines = [""] * (len(logs) + 1)
    for title, values in columns:
        cells = [title, *map(printable, values)]
        if title == "run":
            wide = min(max(map(cell_len, cells)), _LONGEST_NAME, max(width // 3, 4))
            cells = [_pad(_fit(cell, wide), wide) for cell in cells]
        elif title != "state":
            wide = max(map(cell_len, cells))
            cells = [cell.rjust(wide) for cell in cells]
        lines = [f"{line}  {cell}" if line else cell for line, cell in zip(lines, cells, strict=True)]
    return lines


def _totals(board: Board, bytes_per_second: float | None) -> str:
    counts = board.counts()
    done = f"{len(board.verdicts):,} of {board.logs:,} {'log' if board.logs == 1 else 'logs'}"
    undone = [f"{counts[name]:,} {name}" for name in ("partial", "failed", "skipped") if counts.get(name)]
    parts = [", ".join([done, *undone]), f"{board.rate():,.0f} rows/s"]
    if bytes_per_second is not None:
        parts.append(f"{size(round(bytes_per_second))}/s")
    if board.closed_for:
        parts.append(f"limit of the server: {span(board.closed_for)}")
    left = board.seconds_left
    if left is not None:
        parts.append(f"about {span(left)} left")
    return " | ".join(parts)


def _fit(text: str, width: int) -> str:
    """`text` in at most `width` columns; a cut shows."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
