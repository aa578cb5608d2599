"""Console capture: what Python code writes to sys.stdout and sys.stderr goes to the log too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Sink = Callable[[str, str], None]
"""Told the stream ("stdout" or "stderr") and the text of each write."""


class ConsoleTee:
    """Wraps the `write` of both streams. The stream comes first: what the log makes of the text never disturbs it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._wrapped: list[tuple[Any, Any]] = []

    def start(self) -> None:
        """Begin to capture. A stream whose `write` cannot be replaced is left alone."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # a process without a console
                continue
            write = self._tee(name, stream.write)
            with suppress(AttributeError, TypeError):
                stream.write = write
                self._wrapped.append((stream, write))

    def _tee(self, name: str, original: Callable[[str], int]) -> Callable[[str], int]:
        def write(text: str) -> int:
            count = original(text)
            with suppress(Exception):  # a fault of ours must not look like one of print
                self._sink(name, text)
            return count

        return write

    def stop(self) -> None:
        """End the capture, unless somebody has wrapped the stream again since: then the text is passed on unlogged."""
        self._sink = lambda _name, _text: None
        for stream, write in self._wrapped:
            with suppress(AttributeError):
                if stream.write is write:
                    del stream.write
        self._wrapped.clear()
