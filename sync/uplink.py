"""How fast bodies get through to a server, and what follows: how large they should be, and whether to pack them.

A body should take some seconds: long enough that a request more or less does not matter, and short enough to get through before
an attempt is over. Packing (gzip, level 1) takes a quarter of the bytes off the line and a core's time: it pays where the line is
much slower than the packer, and makes a sync slower where it is not.
"""

from __future__ import annotations

import threading
import zlib

SMALLEST_BODY = 64 * 1024
FIRST_BODY = 1024 * 1024
"""Bytes of the first body, from which the line is known: at 0.1 Mbit/s it takes 84 s."""
LOCAL_BODY = 4 * 1024 * 1024
"""Bytes for a server on this machine, which works on one body while the next is gathered: the last one is waited for."""
_GOAL_S = 8.0
_TELLING_FROM = 64 * 1024  # bytes; less disappears in the system's buffers, however slow the line is
_PACKED_FROM = 32 * 1024
_PACKER = 100e6  # bytes/s that the packer takes in on one core
_GAIN = 0.5  # of the plain body's time or less must be what a packed one takes
_FIRST_RATIO = 3.4  # of rows as text to packed ones


class Uplink:
    """The line to one server, as the bodies of all workers have found it. Any thread may use it."""

    def __init__(self, *, is_local: bool = False) -> None:
        self._is_local = is_local
        self._lock = threading.Lock()
        self._rate: float | None = None
        self._ratio = _FIRST_RATIO
        self._is_packing = False

    def sent(self, size: int, seconds: float, plain: int) -> None:
        """A body of `size` bytes on the line got through; `plain` is its size before packing."""
        with self._lock:
            if size >= _TELLING_FROM and not self._is_local:
                rate = size / seconds if seconds > 0.0 else float("inf")
                self._rate = rate if self._rate is None else 0.5 * (self._rate + rate)
            self._is_packing = size < plain
            if self._is_packing:
                self._ratio = 0.5 * (self._ratio + plain / size)

    def late(self, size: int) -> None:
        """A body of `size` bytes did not get through in its time: half of it may."""
        with self._lock:
            slower = size / (2.0 * _GOAL_S)
            self._rate = slower if self._rate is None else min(self._rate, slower)

    def body_bytes(self, most: int) -> int:
        """How large the next body should be, before packing."""
        with self._lock:
            if self._rate is None:
                return min(most, LOCAL_BODY if self._is_local else FIRST_BODY)
            fitting = self._rate * _GOAL_S * (self._ratio if self._is_packing else 1.0)
            return min(most, max(SMALLEST_BODY, int(min(most, fitting))))

    def should_pack(self, size: int) -> bool:
        """Whether a body of `size` bytes gets there sooner if it is packed."""
        with self._lock:
            if self._is_local or self._rate is None or size < _PACKED_FROM:
                return False
            plain = size / self._rate
            return size / _PACKER + plain / self._ratio <= _GAIN * plain


def pack(body: bytes) -> bytes:
    """`body` as gzip; the same bytes each time."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
