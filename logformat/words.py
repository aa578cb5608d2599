"""Words for numbers."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """How many of what: "1 row", "2 rows"; `word` is the singular of one that takes an s."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
