"""The sizes and numbers up to which the peer's documentation promises a quick backend: passing one costs a warning.

Nothing is ever left out for it. Everything is measured on the writer's thread, where the sizes are known anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .values import Path

MB = 1_000_000
MAX_VALUE = 1 * MB
"""Bytes of JSON of one value of a row."""
MAX_CALL = 25 * MB
"""Bytes of one row."""
MAX_CONFIG = 10 * MB
"""Bytes of JSON of the whole config."""
MAX_FILES = 1000
"""Files of a run."""
MAX_CALLS = 1000
"""Calls of `log` a minute."""
MAX_VALUES = 100_000
"""Values logged a minute."""
MINUTE_S = 60.0

_END = "Nothing is left out, but a backend may be slow with it (setting log_guides=False: no such notes)."


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(seconds * 1000, 1):.0f} ms"


class Guides:
    """Warns once of each guide value that is passed."""

    def __init__(self, warn_once: Callable[[str, str], None]) -> None:
        """Take over where warnings go: a topic and one line for the user."""
        self._warn_once = warn_once
        self._minute_began = -MINUTE_S
        self._calls = self._values = self._files = 0

    def call(self, now: float, values: int) -> None:
        """A call of `log` at `now` (monotonic seconds). A minute begins with the first call after the last minute."""
        since = now - self._minute_began
        if since >= MINUTE_S:
            self._minute_began, self._calls, self._values = now, 0, 0
        self._calls += 1
        self._values += values
        if self._calls == MAX_CALLS + 1:
            self._tell(
                "calls", f"{self._calls:,} calls of log within {_shown(since)} are more than {MAX_CALLS:,} a minute"
            )
        if self._values > MAX_VALUES >= self._values - values:
            text = f"{self._values:,} values logged within {_shown(since)} are more than {MAX_VALUES:,} a minute"
            self._tell("values", text)

    def row(self, size: int, paths: Sequence[Path], parts: Sequence[bytes]) -> None:
        """A row of `size` bytes, more than `MAX_VALUE`, with the JSON text of each of its keys."""
        if size > MAX_CALL:
            self._tell("call", f"a row of {size / MB:.1f} MB is more than {MAX_CALL // MB} MB")
        for path, part in zip(paths, parts, strict=True):
            if len(part) > MAX_VALUE:
                text = f"{'.'.join(path)}: a value of {len(part) / MB:.1f} MB is more than {MAX_VALUE // MB} MB"
                self._tell("value", text)

    def file(self) -> None:
        """A further file."""
        self._files += 1
        if self._files == MAX_FILES + 1:
            self._tell("files", f"{self._files:,} files are more than {MAX_FILES:,} in one run")

    def config(self, size: int) -> None:
        """The config has `size` bytes of JSON."""
        if size > MAX_CONFIG:
            self._tell("config", f"a config of {size / MB:.1f} MB is more than {MAX_CONFIG // MB} MB")

    def _tell(self, topic: str, text: str) -> None:
        self._warn_once(f"guide {topic}", f"{text}. {_END}")
