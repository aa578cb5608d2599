"""Numbers in the texts that vendors' tools print."""

from __future__ import annotations

import math

_EXACT = 1 << 53  # up to here a float holds every whole number


def number(text: str) -> int | float | None:
    """The finite number that `text` is: an int where that is exact. None for "N/A", "1.3.0", "" and their like."""
    try:
        value = float(text)
    except ValueError:
        return None
    if "_" in text or not math.isfinite(value):  # Python's own spelling of thousands is nobody else's
        return None
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value
