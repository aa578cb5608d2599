r"""A small terminal per stream: what a program's output looked like, bars that redraw themselves included.

Progress bars return to the start of their line (`\r`) and go up to lines above (`ESC [ A`). The last `SCREEN_ROWS` lines can
still be changed so, as on a screen; a line that is changed is changed where it stands among all lines.

| written | does |
|---|---|
| `\n` | down to the start of the next row |
| `\r`, `\b` | back to the start of the row; by one column |
| `ESC [ n` `A` `B` `C` `D` `E` `F` `G` | up, down, right, left; to the start of a row below, above; to a column |
| `ESC [ n K` | erase to the end of the row, to its start, all of it |
| `ESC [ J`, `ESC [ 0 J` | erase from here to the end of the screen |
| `ESC [ ... m` | colour: stays in the text before the character that it was written with |
| other escape sequences (titles, links, modes, `ESC [ H`, `ESC [ 2 J`) | nothing: what was printed stays in a log |

Every character is one column wide. Other control characters stay in the text.
"""

from __future__ import annotations

import re

from .console import MAX_LINE, ConsoleLine

SCREEN_ROWS = 100
"""Rows that can still change. Screens that draw bars are smaller."""

_COLUMNS = 512
"""Of a wide screen: the cursor moves no further to the right, unless the row is longer."""
_WIDEST = 1 << 14  # characters of a row that can be changed; no bar is wider
_LONGEST_SEQUENCE = 4096  # characters; what begins like a sequence and goes on longer is none
_SEQUENCE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequence
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # title, link
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # other strings
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
)
_TOKENS = re.compile(rf"{_SEQUENCE}|[\x1b\n\r\b]|[^\x1b\n\r\b]+")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)")
_COLOURS = re.compile(r"(\x1b\[[0-9;:]*m)")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_MOVE = re.compile(r"\x1b\[([0-9]*)([A-GJK])")


def plain(text: str) -> str:
    """The text of a line without its colours."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


class Terminal:
    """Makes lines of the fragments of one stream."""

    def __init__(self, stream: str, lines: list[ConsoleLine] | None) -> None:
        """`lines`: where lines go, maybe those of several streams; they are changed there. None keeps none."""
        self.stream = stream
        self._lines = lines
        self._screen = [_Row()]
        self._at = 0  # the row of the cursor
        self._column = 0
        self._colour = ""  # written before a character that is still to come
        self._begun = ""  # a sequence whose end is still to come

    def feed(self, timestamp_ns: int, fragment: str) -> list[ConsoleLine]:
        """Write a fragment; the lines that are new, as they were when the cursor went below them."""
        new: list[ConsoleLine] = []
        if self._begun:
            fragment, self._begun = self._begun + fragment, ""
        if "\x1b" in fragment:
            fragment = self._hold_back(fragment)
        changed: dict[int, _Row] = {}
        for token in _TOKENS.findall(fragment):
            first = token[0]
            if first == "\n":
                self._down(timestamp_ns, new)
            elif first == "\r":
                self._column = 0
            elif first == "\b":
                self._column = max(0, self._column - 1)
            elif first != "\x1b":
                self._write(token, timestamp_ns, new)
            elif _COLOUR.fullmatch(token):
                self._colour = (self._colour + token)[-_LONGEST_SEQUENCE:]
                continue
            else:
                move = _MOVE.fullmatch(token)
                if move:
                    self._move(move[2], min(int(move[1][:9] or "0"), _WIDEST))
            row = self._screen[self._at]
            if row.place >= 0:
                changed[row.place] = row
        if self._screen[-1].width > MAX_LINE:
            self._at = len(self._screen) - 1
            self._down(timestamp_ns, new)
        for place, row in changed.items():
            if self._lines is not None:
                self._lines[place] = ConsoleLine(row.begun_ns, self.stream, row.text)
        return new

    def rest(self) -> list[ConsoleLine]:
        """The last row, if anything stands in it."""
        row = self._screen[-1]
        return self._cut(row) if row.text else []

    def _hold_back(self, fragment: str) -> str:
        """The fragment without a sequence at its end that is not complete."""
        for _ in range(2):  # the end of one may itself begin with ESC
            at = fragment.rfind("\x1b", 0, len(fragment) - len(self._begun))
            if at < 0 or len(fragment) - at > _LONGEST_SEQUENCE or not _BEGUN.fullmatch(fragment, at):
                break
            self._begun = fragment[at:]
        return fragment[: len(fragment) - len(self._begun)]

    def _write(self, text: str, timestamp_ns: int, new: list[ConsoleLine]) -> None:
        row = self._screen[self._at]
        if row.width > _WIDEST and self._column < row.width:  # a terminal would have wrapped it long ago
            self._at = len(self._screen) - 1
            self._down(timestamp_ns, new)
            row = self._screen[self._at]
        if not row.width:
            row.begun_ns = timestamp_ns
        self._column = min(self._column, max(_COLUMNS, row.width))
        row.write(self._column, text, self._colour)
        self._column += len(text)
        self._colour = ""

    def _down(self, timestamp_ns: int, new: list[ConsoleLine]) -> None:
        """To the start of the next row. Behind the last one it is a new one, and that one has become a line."""
        if self._colour:
            self._screen[self._at].close(self._colour)
            self._colour = ""
        self._column = 0
        self._at += 1
        if self._at < len(self._screen):
            return
        row = self._screen[-1]
        if not row.width:
            row.begun_ns = timestamp_ns
        lines = self._cut(row)
        if self._lines is not None:
            row.place = len(self._lines)
            self._lines += lines
        new += lines
        if row.width > _WIDEST:
            self._screen = []  # nothing can be changed that stands above a row of many screens
        self._screen.append(_Row())
        del self._screen[:-SCREEN_ROWS]
        self._at = len(self._screen) - 1

    def _move(self, kind: str, number: int) -> None:
        """Do what a control sequence says."""
        row = self._screen[self._at]
        if kind == "K":
            row.erase(self._column, number)
        elif kind == "J":
            if number == 0:
                row.erase(self._column, 0)
                for below in self._screen[self._at + 1 :]:
                    if not below.width:
                        continue
                    below.erase(0, 2)
                    if below.place >= 0 and self._lines is not None:
                        self._lines[below.place] = ConsoleLine(below.begun_ns, self.stream, "")
        elif kind in "CDG":
            to = {"C": self._column + max(number, 1), "D": self._column - max(number, 1), "G": number - 1}[kind]
            self._column = min(max(0, to), max(_COLUMNS, row.width))
        else:
            self._at = min(max(0, self._at + max(number, 1) * (1 if kind in "BE" else -1)), len(self._screen) - 1)
            if kind in "EF":
                self._column = 0

    def _cut(self, row: _Row) -> list[ConsoleLine]:
        """A row as lines of at most `MAX_LINE` characters."""
        text = row.text
        starts = range(0, len(text), MAX_LINE) if text else (0,)
        return [ConsoleLine(row.begun_ns, self.stream, text[start : start + MAX_LINE]) for start in starts]


class _Row:
    """One row: its text while it is only added to, then its cells, each a character with the colours before it."""

    __slots__ = ("_cells", "_tail", "_text", "begun_ns", "place", "width")

    def __init__(self) -> None:
        self._text = ""
        self._cells: list[str] | None = None
        self._tail = ""  # colours behind the last character
        self.width = 0
        """Columns."""
        self.begun_ns = 0
        """When its first fragment was written."""
        self.place = -1
        """Where its line stands among the lines; -1 for one that is none yet."""

    @property
    def text(self) -> str:
        """What stands in it."""
        return (self._text if self._cells is None else "".join(self._cells)) + self._tail

    def write(self, column: int, text: str, colour: str) -> None:
        """Put text at a column, over what stands there."""
        if column == self.width and self._cells is None:
            self._text += self._tail + colour + text
            self._tail = ""
            self.width += len(text)
            return
        cells = self._as_cells()
        if column > len(cells):
            cells.extend(" " * (column - len(cells)))
        if self._tail and column + len(text) > len(cells):
            colour, self._tail = self._tail + colour, ""
        cells[column : column + len(text)] = [colour + text[0], *text[1:]]
        self.width = len(cells)

    def erase(self, column: int, how: int) -> None:
        """Erase from a column on (0), up to it (1), or all (2)."""
        if not self.width or how not in {0, 1, 2}:
            return
        cells = self._as_cells()
        if how == 1:
            cells[: column + 1] = " " * min(column + 1, len(cells))
        else:
            del cells[column if how == 0 else 0 :]
            self._tail = ""
        self.width = len(cells)

    def close(self, colour: str) -> None:
        """The row is left with this colour set."""
        self._tail = (self._tail + colour)[-_LONGEST_SEQUENCE:]

    def _as_cells(self) -> list[str]:
        if self._cells is None:
            self._cells = []
            colour = ""
            for part in _COLOURS.split(self._text) if "\x1b" in self._text else [self._text]:
                if part.startswith("\x1b"):
                    colour += part
                elif part:
                    self._cells += [colour + part[0], *part[1:]]
                    colour = ""
            self._text = ""
        return self._cells
