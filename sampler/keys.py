"""From what probes wrote to what a record may hold: finite numbers under capped, labelled, sorted keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .probe import Values

LONGEST_KEY = 256  # bytes of UTF-8, label included
_LARGEST = 1 << 64  # no counter goes beyond; the text of an integer can be as long as memory


def _is_finite(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _LARGEST


def numbers(values: Mapping[Any, object]) -> Values:
    """Of what a probe wrote what JSON can hold and a record may: finite numbers under keys that are text."""
    return {
        key: value
        for key, value in values.items()
        if isinstance(key, str) and isinstance(value, (int, float)) and _is_finite(value)
    }


class KeyTable:
    """The keys of one run. A key is judged once and then looked up.

    Keys that nothing on this machine bounds (`guests`) have half of the cap, so that a device that opens late has room.
    """

    def __init__(self, *, label: str | None, cap: int, warn: Callable[[str], None]) -> None:
        self._suffix = f"/l:{label}" if label else ""
        self._cap = cap
        self._warn = warn
        self._known: dict[str, str] = {}  # key as the probe wrote it -> key in the record
        self._guests = 0  # of the known
        self._warned: set[str] = set()

    def clean(self, values: Mapping[str, object]) -> dict[str, int | float]:
        """Sorted by key; without NaN, infinities and what is no number; True and False become 1 and 0."""
        result: dict[str, int | float] = {}
        for key, value in values.items():
            if isinstance(value, bool):
                value = int(value)  # noqa: PLW2901 - the same value, as JSON wants it
            if not isinstance(value, (int, float)) or not _is_finite(value):
                continue
            final = self._known.get(key) or self._admit(key)
            if final is not None:
                result[final] = value
        return dict(sorted(result.items()))

    def guests(self, values: Values) -> Values:
        """Of values of endpoints, interfaces, mounts, disks and other packages' probes those whose keys there is room for."""
        return {key: value for key, value in values.items() if key in self._known or self._has_room(key, value)}

    def _has_room(self, key: object, value: object) -> bool:
        number = isinstance(value, (int, float)) and _is_finite(value)
        return number and self._admit(key, guest=True) is not None

    def final(self, key: str) -> str | None:
        """What stands in the record for a key of a probe; None if it was not admitted, or not yet."""
        return self._known.get(key)

    def _admit(self, key: object, *, guest: bool = False) -> str | None:
        if not isinstance(key, str) or not key:
            self._once("text", f"metric keys that are no text, or empty, are dropped, the first is {key!r}")
            return None
        final = key + self._suffix
        if len(final.encode("utf-8", "surrogatepass")) > LONGEST_KEY:
            self._once("long", f"metric keys over {LONGEST_KEY} bytes are dropped, the first is {key[:64]!r}...")
            return None
        if len(self._known) >= self._cap:
            self._once("cap", f"more than {self._cap} metric keys: further ones are dropped, the first is {key!r}")
            return None
        half = self._cap // 2
        if guest and self._guests >= half:
            whose = f"more than {half} metric keys (half of key_cap) of endpoints, interfaces, mounts, disks and other packages"
            self._once("guests", f"{whose}: further ones are dropped, the first is {key!r}")
            return None
        self._guests += guest
        self._known[key] = final
        return final

    def _once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(message)
