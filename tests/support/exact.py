"""Records of an exact size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def payload_of(size: int, build: Callable[[str, str], Any]) -> bytes:
    """The payload of a record of exactly `size` bytes, with two texts in it.

    A length in front of a text takes a byte more from 128 and from 16,384 on, so some sizes need the first text, too.

    Raises:
        ValueError: the record is larger than `size` even without the texts.
    """
    for more in ("", "m", "mm"):
        rest = max(0, size - build(more, "x" * size).ByteSize() + size)
        for length in range(rest, rest + 8):
            record = build(more, "x" * length)
            if record.ByteSize() == size:
                return bytes(record.SerializeToString())
    raise ValueError(f"no record of {size} bytes")
