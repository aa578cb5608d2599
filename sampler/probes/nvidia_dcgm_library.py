"""DCGM's C library through ctypes: for the helper process only."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_ushort, c_void_p
from typing import Any, NamedTuple

DAEMON = "localhost:5555"
KEPT_SAMPLES = 2

# Of the library's headers
_ALL_GPUS = 0x7FFFFFFF
_ENTITY_GPU = 1
_BLANK_INTEGER, _BLANK_DOUBLE = 0x7FFFFFFFFFFFFFF0, float(1 << 47)  # and what is above: why there is no value
_MOST_GROUPS, _MOST_FIELDS = 10, 64
_NO_CONNECTION = -21


class _Group(ctypes.Structure):
    _fields_ = (("major", c_ushort), ("minor", c_ushort), ("count", c_uint), ("fields", c_ushort * _MOST_FIELDS))


class _Groups(ctypes.Structure):
    _fields_ = (
        ("version", c_uint), ("unused", c_uint), ("gpu", c_uint), ("count", c_uint), ("groups", _Group * _MOST_GROUPS),
    )  # fmt: skip


class _Value(ctypes.Union):
    _fields_ = (("integer", c_int64), ("double", c_double), ("text", c_char * 256), ("blob", c_char * 4096))


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("version", c_uint), ("field", c_ushort), ("kind", c_ushort), ("status", c_int), ("time", c_int64),
        ("value", _Value),
    )  # fmt: skip


_Receive = ctypes.CFUNCTYPE(c_int, c_uint, c_uint, POINTER(_FieldValue), c_int, c_void_p)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "dcgmInit": (),
    "dcgmConnect": (c_char_p, POINTER(c_size_t)),
    "dcgmProfGetSupportedMetricGroups": (c_size_t, POINTER(_Groups)),
    "dcgmFieldGroupCreate": (c_size_t, c_int, POINTER(c_ushort), c_char_p, POINTER(c_size_t)),
    "dcgmWatchFields": (c_size_t, c_size_t, c_size_t, c_int64, c_double, c_int),
    "dcgmUpdateAllFields": (c_size_t, c_int),
    "dcgmGetLatestValues_v2": (c_size_t, c_size_t, c_size_t, _Receive, c_void_p),
}


class Reading(NamedTuple):
    """A value of one device, by the daemon's number of the device."""

    device: int
    field: int
    value: int | float | str


class DcgmError(Exception):
    """A call failed; the text says which, and with what status."""


class DcgmLibrary:
    """The calls that are needed, on one connection. It is never closed: disconnecting has crashed processes."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._connection = c_size_t()
        self._connections = 0  # made so far
        self._fields = c_size_t()
        self.connected = False

    def _call(self, name: str, *args: Any) -> None:
        function = getattr(self._library, name)
        function.argtypes, function.restype = _ARGUMENTS[name], c_int
        status = function(*args)
        if status == _NO_CONNECTION:
            self.connected = False
        if status != 0:
            raise DcgmError(f"{name} failed with status {status}")

    def connect(self) -> None:
        """Connect to the daemon; DcgmError if there is none."""
        if not self._connections:
            self._call("dcgmInit")
        self._call("dcgmConnect", DAEMON.encode(), byref(self._connection))
        self._connections += 1

    def supported(self) -> set[int]:
        """The profiling fields that the first device has."""
        groups = _Groups()
        groups.version = ctypes.sizeof(_Groups) | 3 << 24
        self._call("dcgmProfGetSupportedMetricGroups", self._connection, byref(groups))
        found = groups.groups[: min(groups.count, _MOST_GROUPS)]
        return {field for group in found for field in group.fields[: min(group.count, _MOST_FIELDS)]}

    def watch(self, fields: list[int], every: float) -> None:
        """Let the daemon measure these fields of all devices each `every` s."""
        numbers = (c_ushort * len(fields))(*fields)
        name = f"runferry-{os.getpid()}-{self._connections}".encode()  # the daemon knows each name once
        self._call("dcgmFieldGroupCreate", self._connection, len(fields), numbers, name, byref(self._fields))
        period = round(every * 1e6)
        self._call("dcgmWatchFields", self._connection, _ALL_GPUS, self._fields, period, 0.0, KEPT_SAMPLES)
        self.connected = True

    def read(self) -> list[Reading]:
        """The newest values that there are; blank ones are left out."""
        readings: list[Reading] = []

        def receive(group: int, device: int, values: Any, count: int, _: Any) -> int:
            if group == _ENTITY_GPU:
                for position in range(count):
                    value = _decode(values[position])
                    if value is not None:
                        readings.append(Reading(device, values[position].field, value))
            return 0

        self._call("dcgmUpdateAllFields", self._connection, 0)
        self._call("dcgmGetLatestValues_v2", self._connection, _ALL_GPUS, self._fields, _Receive(receive), None)
        return readings


def _decode(found: Any) -> int | float | str | None:
    """The value by the letter of its kind; None for what is blank or failed."""
    if found.status != 0:
        return None
    kind = chr(found.kind)
    if kind == "d":
        return float(found.value.double) if found.value.double < _BLANK_DOUBLE else None
    if kind == "i":
        return int(found.value.integer) if found.value.integer < _BLANK_INTEGER else None
    text = bytes(found.value.text).decode("utf-8", "replace") if kind == "s" else ""
    return text if text and not text.startswith("<<<") else None
