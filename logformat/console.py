r"""Console output to lines that are final once they are complete: what a sync sends.

A fragment ends anywhere, and `\r` returns to the start of the line, so that a progress bar overwrites itself. Bars that go up
to lines above are for who may still change those: see `terminal`.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_LINE = 1024 * 1024
"""Characters. A longer line is cut there into the next one: memory stays bounded whatever a program prints."""


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """One line as shown, without its newline."""

    timestamp_ns: int
    """When its first fragment was written, nanoseconds since the epoch; 0 if the log does not say."""
    stream: str
    """`stdout` or `stderr`."""
    text: str


class LineAssembler:
    """Joins the fragments of one stream into lines."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._text = ""
        self._column = 0
        self._begun_ns = 0

    def feed(self, timestamp_ns: int, fragment: str) -> list[ConsoleLine]:
        """The lines that `fragment` completes."""
        lines: list[ConsoleLine] = []
        pieces = fragment.split("\n")
        for index, piece in enumerate(pieces):
            if piece:
                self._write(timestamp_ns, piece)
            if index < len(pieces) - 1 or len(self._text) > MAX_LINE:
                lines.extend(self._take(timestamp_ns))
        return lines

    def rest(self) -> list[ConsoleLine]:
        """The last line, if the output did not end in a newline."""
        return self._cut(self._text, self._begun_ns) if self._text else []

    def _write(self, timestamp_ns: int, piece: str) -> None:
        if not self._text:
            self._begun_ns = timestamp_ns
        if "\r" not in piece and self._column == len(self._text):
            self._text += piece
            self._column = len(self._text)
            return
        first, *returns = piece.split("\r")
        self._overwrite(first)
        if returns:
            # Each part overwrites the front of what is there. From the last one back, every character is copied once:
            # a part adds what reaches beyond all later ones.
            shown = returns[-1]
            for under in (*reversed(returns[:-1]), self._text):
                if len(under) > len(shown):
                    shown += under[len(shown) :]
            self._text, self._column = shown, len(returns[-1])

    def _overwrite(self, part: str) -> None:
        end = self._column + len(part)
        self._text = self._text[: self._column] + part + self._text[end:]
        self._column = end

    def _take(self, timestamp_ns: int) -> list[ConsoleLine]:
        lines = self._cut(self._text, self._begun_ns if self._text else timestamp_ns)
        self._text, self._column = "", 0
        return lines

    def _cut(self, text: str, timestamp_ns: int) -> list[ConsoleLine]:
        starts = range(0, len(text), MAX_LINE) if text else (0,)
        return [ConsoleLine(timestamp_ns, self.stream, text[start : start + MAX_LINE]) for start in starts]
