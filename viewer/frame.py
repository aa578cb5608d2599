"""What stands around the dots of a chart: title, axes with their ticks, legend; and where they leave room for dots."""

from __future__ import annotations

import datetime as dt
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .canvas import BLANK, Cell
from .scale import Scale, value_ticks, x_place, x_ticks

Grid = list[list[Cell]]


def text_cells(
    text: str, width: int, colour: int | str, *, bright: bool = True, ascii_only: bool = False
) -> list[Cell]:
    """The cells of a text, cut to `width` columns with an ellipsis; nothing in it can move the cursor of a terminal.

    Names come from logs: control and format characters become `?` or nothing.
    """
    cells: list[Cell] = []
    # Longer texts are cut anyway; a name of a megabyte costs nothing.
    for char in text[: 4 * width + 4]:
        wide = columns_of(char)
        if ascii_only and not " " <= char <= "~":
            cells += [Cell("?", colour, bright)] * wide
        elif unicodedata.category(char) in {"Cc", "Cs", "Cn", "Co", "Zl", "Zp"}:
            cells.append(Cell("?", colour, bright))
        elif wide:
            cells += [Cell(char, colour, bright), *[Cell("", colour, bright)] * (wide - 1)]
    if len(cells) <= width:
        return cells
    del cells[max(width - 1, 0) :]
    if cells and columns_of(cells[-1].char) == 2:  # its second half is beyond the cut
        cells[-1] = Cell(" ", colour, bright)
    return [*cells, Cell("~" if ascii_only else "…", colour, bright)][:width]


def columns_of(char: str) -> int:
    """Columns that a terminal gives to a character: 0 for one that goes onto another, 2 for wide ones, else 1."""
    if not char or unicodedata.category(char) in {"Mn", "Me", "Cf"} or "\u1160" <= char <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows and columns of a chart are for what. What has no room is left out, the legend first."""

    width: int
    height: int
    left: int
    """Columns before the plot: labels of y and the axis."""
    titles: int
    """Rows of the title, 0 or 1."""
    axes: int
    """Rows of the x axis: its line, and its labels below."""
    legends: int

    @property
    def columns(self) -> int:
        """Of the plot."""
        return self.width - self.left

    @property
    def rows(self) -> int:
        """Of the plot."""
        return self.height - self.titles - self.axes - self.legends


def _vertical_layout(width: int, height: int, legends: int) -> Layout:
    """Rows only: at least two are left to the plot where there are three; `legends`: rows that a legend would like."""
    titles = 1 if height >= 3 else 0
    axes = 2 if height >= 6 else 1 if height >= 5 else 0
    legends = min(legends, height // 4) if height >= 7 else 0
    return Layout(width, height, 0, titles, axes, legends)


def _with_labels(layout: Layout, labels: Iterable[str]) -> Layout:
    """With columns for these labels of y; without them, or even the axis, where the chart is too narrow."""
    width = layout.width
    widest = max((len(label) for label in labels if len(label) <= width // 3), default=0)
    left = widest + 2 if width >= 16 and widest else 1 if width >= 4 else 0
    return Layout(width, layout.height, left, layout.titles, layout.axes, layout.legends)


def write(grid: Grid, row: int, column: int, cells: Sequence[Cell]) -> None:
    """Put cells into a row; what is beyond its ends is left out."""
    for at, cell in enumerate(cells, column):
        if 0 <= row < len(grid) and 0 <= at < len(grid[row]):
            grid[row][at] = cell


class Surround:
    """The grid of a chart with its axes; the plot within is for others to fill."""

    def __init__(
        self,
        width: int,
        height: int,
        y: Scale,
        x: Scale,
        *,
        x_kind: str = "step",
        zone: dt.tzinfo | None = None,
        ascii_only: bool = False,
        legends: int = 0,
        dots: int = 0,
        cursor: float | None = None,
    ) -> None:
        """`dots`: per row of the plot, where values stand in the middle of dots; 0 where rows are equal parts of y."""
        layout = _vertical_layout(width, height, legends)
        ticks = value_ticks(y, min((layout.rows + 1) // 2, 10))
        self.layout = layout = _with_labels(layout, [text for _, text in ticks])
        self.grid: Grid = [[BLANK] * width for _ in range(height)]
        self._ascii_only = ascii_only
        self._lines = (
            "|+-++" if ascii_only else "│┤─┬└"
        )  # the y axis, a tick on it; the x axis, a tick on it; the corner
        self.tick_rows: dict[int, str] = {}
        """Row of the plot -> the label of y there."""
        for value, text in ticks if layout.rows else []:
            if dots:
                row = math.floor((1 - y.fraction(value)) * (layout.rows * dots - 1) + 0.5) // dots
            else:
                row = layout.rows - 1 - y.column(value, layout.rows)
            self.tick_rows.setdefault(row, text)
        self.cursor: int | None = None
        """The column of the plot in which the cursor is."""
        pointer = None
        if cursor is not None and x.low <= cursor <= x.high and layout.columns:
            self.cursor = x.column(cursor, layout.columns)
            pointer = self.cursor, x_place(cursor, x_kind, zone)
        marked = x_ticks(x, max(layout.columns // (12 if x_kind == "wall" else 9), 2), x_kind, zone)
        self._y_axis()
        if layout.columns:
            self._x_axis(
                [(x.column(at, layout.columns), text) for at, text in marked if x.low <= at <= x.high], pointer
            )

    def title(self, left: Sequence[tuple[str, int | str]], right: str = "") -> None:
        """The row above the plot: a name, which is cut, and perhaps a value at the left, and a mark at the right."""
        width = self.layout.width if self.layout.titles else 0
        name, *rest = left
        mark = self.text(right, width - min(len(name[0]), width // 3) - 2, "mark")
        write(self.grid, 0, width - len(mark), mark)
        room = width - len(mark) - (2 if mark else 0)
        value = self.text(rest[0][0], room, rest[0][1]) if rest else []
        if len(value) + 6 > room:
            value = []
        head = self.text(name[0], max(room - len(value) - (2 if value else 0), 0), name[1])
        write(self.grid, 0, 0, head)
        write(self.grid, 0, len(head) + 2, value)

    def say(self, text: str) -> None:
        """A text in the middle of a plot that has nothing else."""
        cells = self.text(text, self.layout.columns, "text")
        column = self.layout.left + (self.layout.columns - len(cells)) // 2
        if self.layout.rows:
            write(self.grid, self.layout.titles + (self.layout.rows - 1) // 2, column, cells)

    def text(self, text: str, width: int, colour: int | str) -> list[Cell]:
        """The cells of a text in the characters of this chart."""
        return text_cells(text, max(width, 0), colour, ascii_only=self._ascii_only)

    def _y_axis(self) -> None:
        layout = self.layout
        for row in range(layout.rows if layout.left else 0):
            label = self.tick_rows.get(row, "")
            fits = 0 < len(label) <= layout.left - 2
            write(self.grid, layout.titles + row, layout.left - 1, [Cell(self._lines[1 if fits else 0], "axis")])
            if fits:
                write(
                    self.grid, layout.titles + row, layout.left - 2 - len(label), self.text(label, len(label), "text")
                )

    def _x_axis(self, ticks: Sequence[tuple[int, str]], pointer: tuple[int, str] | None) -> None:
        """The line below the plot, and labels at (column, label): none on another, the cursor's before all."""
        layout = self.layout
        if not layout.axes:
            return
        row = layout.titles + layout.rows
        write(self.grid, row, layout.left, [Cell(self._lines[2], "axis")] * layout.columns)
        if layout.left:
            write(self.grid, row, layout.left - 1, [Cell(self._lines[4], "axis")])
        taken = [layout.axes < 2] * layout.width
        for column, label in [pointer, *ticks] if pointer else ticks:
            role = "cursor" if (column, label) == pointer else "axis"
            if self.cursor != column or role == "cursor":
                write(self.grid, row, layout.left + column, [Cell(self._lines[3], role)])
            first = min(max(layout.left + column - (len(label) - 1) // 2, 0), layout.width - len(label))
            if first >= 0 and not any(taken[max(first - 1, 0) : first + len(label) + 1]):
                taken[first : first + len(label)] = [True] * len(label)
                colour = "cursor" if role == "cursor" else "text"
                write(self.grid, row + 1, first, self.text(label, len(label), colour))


@dataclass(frozen=True, slots=True)
class Entry:
    """A series in a legend."""

    series: int
    sign: str
    name: str
    value: str


def legend_rows(entries: Sequence[Entry], width: int, rows: int, *, ascii_only: bool) -> list[list[Cell]]:
    """At most `rows` rows of signs, names and values; the last one tells how many had no room."""
    made: list[list[list[Cell]]] = []
    for number, entry in enumerate(entries):
        cells = _entry_cells(entry, width, ascii_only=ascii_only)
        if made and _length([*made[-1], cells]) <= width:
            made[-1].append(cells)
        elif len(made) < rows:
            made.append([cells])
        elif made:
            left_out = len(entries) - number
            more = text_cells(f"+{left_out} more", width, "text", ascii_only=ascii_only)
            while made[-1] and _length([*made[-1], more]) > width:
                made[-1].pop()
                left_out += 1
                more = text_cells(f"+{left_out} more", width, "text", ascii_only=ascii_only)
            made[-1].append(more)
            break
    return [[cell for part in row for cell in (BLANK, BLANK, *part)][2:] for row in made]


def _length(parts: Sequence[Sequence[Cell]]) -> int:
    """Columns of entries with two blanks between them."""
    return sum(len(part) + 2 for part in parts) - 2


def _entry_cells(entry: Entry, width: int, *, ascii_only: bool) -> list[Cell]:
    value = text_cells(entry.value, max(width - 3, 0), "text", ascii_only=ascii_only)
    name = text_cells(entry.name, max(width - len(value) - 3, 0), entry.series, ascii_only=ascii_only)
    cells = [Cell(entry.sign, entry.series), BLANK, *name, BLANK, *value]
    return cells[:width]
