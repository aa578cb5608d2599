"""Many rows to lines at once: blocks of plain rows, with the text that a server gets of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..logformat.plainrows import Block, Gathered, PlainRows

_BETWEEN = b"}\n"  # rows


@dataclass
class LineBlock(Block):
    """Rows that stand one behind the other, and their lines."""

    text: str
    """Their lines, with line ends between them."""


class LineRows(PlainRows):
    """Makes blocks of rows with their lines."""

    def __init__(self, step_shift: int, *, folds: bool) -> None:
        """`step_shift` is added to the steps in the lines; what else blocks tell is as the log has it."""
        super().__init__(folds=folds, nests=False)
        self._shift = step_shift
        self._latest: Gathered | None = None
        self._pieces: list[bytes] = []  # of the latest batch

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> LineBlock:
        """See `PlainRows`."""
        block = super().block(rows, first, end, place, spoken)
        if rows is not self._latest:
            self._latest, self._pieces = rows, _pieces(rows)
        where = rows.items(first, end - 1)
        pieces = self._pieces[2 * where.start + 1 : 2 * where.stop + 1]
        if self._shift:
            for row in range(first, end):
                at = self.place_of_step(rows, row) - where.start
                pieces[2 * at + 1] = b"%d" % (int(pieces[2 * at + 1]) + self._shift)
        pieces.append(b"}")
        return LineBlock(**vars(block), text=b"".join(pieces).decode())


def _pieces(rows: Gathered) -> list[bytes]:
    """What the lines of a batch are joined from: a name and a value in turn, from the second one on."""
    pieces = [b""] * (2 * len(rows.values) + 1)
    pieces[1::2] = [name or _BETWEEN for name in rows.names]
    pieces[2::2] = rows.values
    lengths = list(map(len, rows.signs))
    if rows.alike:
        stride = 2 * lengths[0] + 2
        pieces[::stride] = [b""] * len(lengths)
        pieces[1::stride] = [b"{" + name[1:] for name in pieces[1::stride]]
    else:
        for begin, length in zip(rows.begins, lengths, strict=True):
            if length:
                pieces[2 * begin], pieces[2 * begin + 1] = b"", b"{" + pieces[2 * begin + 1][1:]
    return pieces
