"""Sensors of Apple's machines: the system management controller, and temperature sensors as input devices."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Iterator
from ctypes import Structure, byref, c_char, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p, sizeof
from typing import Any

from .apple_native import Libraries, NativeError

_MOST_KEYS = 10_000  # of the controller; there are about 1,600
_SINT32 = 3  # kCFNumberSInt32Type


class _Version(Structure):
    _fields_ = (
        ("major", c_uint8),
        ("minor", c_uint8),
        ("build", c_uint8),
        ("reserved", c_uint8),
        ("release", c_uint16),
    )


class _Limits(Structure):
    _fields_ = (("version", c_uint16), ("length", c_uint16), ("cpu", c_uint32), ("gpu", c_uint32), ("memory", c_uint32))


class _KeyInfo(Structure):
    _fields_ = (("size", c_uint32), ("type", c_uint32), ("attributes", c_uint8))


class SmcMessage(Structure):
    """Request and answer of the system management controller: 80 bytes, aligned as C aligns them."""

    _fields_ = (
        ("key", c_uint32),
        ("version", _Version),
        ("limits", _Limits),
        ("info", _KeyInfo),
        ("result", c_uint8),
        ("status", c_uint8),
        ("command", c_uint8),
        ("index", c_uint32),
        ("data", c_uint8 * 32),
    )


class Smc:
    """The system management controller's keys of four letters. Only floats are read, little-endian as on Apple silicon."""

    _READ, _KEY_AT, _INFO = 5, 8, 9  # commands
    _CALL = 2  # the method of the driver that takes them
    _FLOAT = int.from_bytes(b"flt ", "big")

    def __init__(self, libraries: Libraries) -> None:
        self._lib = libraries
        self._connection = self._connect()
        self._infos: dict[str, _KeyInfo] = {}

    def _connect(self) -> int:
        lib = self._lib
        iterator, connection = c_uint32(), c_uint32()
        if lib.IOServiceGetMatchingServices(0, lib.IOServiceMatching(b"AppleSMC"), byref(iterator)) != 0:
            raise NativeError("no AppleSMC")
        name = ctypes.create_string_buffer(128)
        try:
            while service := lib.IOIteratorNext(iterator):
                wanted = lib.IORegistryEntryGetName(service, name) == 0 and name.value == b"AppleSMCKeysEndpoint"
                opened = wanted and lib.IOServiceOpen(service, lib.task, 0, byref(connection)) == 0
                lib.IOObjectRelease(service)
                if opened:
                    return connection.value
        finally:
            lib.IOObjectRelease(iterator)
        raise NativeError("AppleSMC cannot be opened")

    def sensors(self, prefixes: tuple[str, ...]) -> list[str]:
        """The float keys that begin with one of `prefixes`; takes some ten milliseconds."""
        found = []
        for index in range(min(self._count(), _MOST_KEYS)):
            with contextlib.suppress(NativeError):
                key = self._call(command=self._KEY_AT, index=index).key.to_bytes(4, "big").decode("latin-1")
                if key.startswith(prefixes) and self._info(key).type == self._FLOAT:
                    found.append(key)
        return sorted(set(found))

    def read(self, key: str) -> float:
        """The number under a key. NativeError if there is none."""
        info = self._info(key)
        if info.type != self._FLOAT or info.size != 4:
            raise NativeError(f"{key} is no float")
        answer = self._call(command=self._READ, key=_number_of(key), info=info)
        (value,) = struct.unpack("<f", bytes(answer.data[:4]))
        return float(value)

    def _count(self) -> int:
        """How many keys there are; this one is big-endian."""
        answer = self._call(command=self._READ, key=_number_of("#KEY"), info=self._info("#KEY"))
        return int.from_bytes(bytes(answer.data[:4]), "big")

    def _info(self, key: str) -> _KeyInfo:
        if key not in self._infos:
            self._infos[key] = self._call(command=self._INFO, key=_number_of(key)).info
        return self._infos[key]

    def _call(self, **fields: Any) -> SmcMessage:
        request, answer = SmcMessage(**fields), SmcMessage()
        size = c_size_t(sizeof(answer))
        status = self._lib.IOConnectCallStructMethod(
            self._connection, self._CALL, byref(request), sizeof(request), byref(answer), byref(size)
        )
        if status != 0 or answer.result != 0:
            raise NativeError(f"the controller answers {status:#x}, {answer.result}")
        return answer

    def close(self) -> None:
        """Close the connection; may be called twice."""
        connection, self._connection = self._connection, 0
        if connection:
            self._lib.IOServiceClose(connection)


def _number_of(key: str) -> int:
    return int.from_bytes(key.encode("latin-1"), "big")


class HidSensors:
    """Temperature sensors by name, which tell what the controller does not before macOS 14."""

    _PAGE, _USAGE = 0xFF00, 5  # the vendor's page, temperature sensors
    _TEMPERATURE = 15  # type of event; its first field is the type shifted by 16

    def __init__(self, libraries: Libraries) -> None:
        self._lib = libraries

    def read(self) -> dict[str, float]:
        """Degrees C by name."""
        lib = self._lib
        system = lib.IOHIDEventSystemClientCreate(None)
        if not system:
            return {}
        matching = self._matching()
        services = None
        try:
            lib.IOHIDEventSystemClientSetMatching(system, matching)
            services = lib.IOHIDEventSystemClientCopyServices(system)
            return dict(self._read(services))
        finally:
            lib.release(services, matching, system)

    def _matching(self) -> int | None:
        """A CFDictionary of two numbers. Without callbacks it would not compare its keys as texts."""
        lib = self._lib
        of_keys = lib.symbol("cf", "kCFTypeDictionaryKeyCallBacks", c_char)
        of_values = lib.symbol("cf", "kCFTypeDictionaryValueCallBacks", c_char)
        numbers = [lib.CFNumberCreate(None, _SINT32, byref(c_int32(value))) for value in (self._PAGE, self._USAGE)]
        with lib.string("PrimaryUsagePage") as page, lib.string("PrimaryUsage") as usage:
            keys = (c_void_p * 2)(page, usage)
            found: int | None = lib.CFDictionaryCreate(
                None, keys, (c_void_p * 2)(*numbers), 2, byref(of_keys), byref(of_values)
            )
        lib.release(*numbers)
        return found

    def _read(self, services: int | None) -> Iterator[tuple[str, float]]:
        lib = self._lib
        with lib.string("Product") as key:
            for service in lib.items(services):
                name = lib.IOHIDServiceClientCopyProperty(service, key)
                event = lib.IOHIDServiceClientCopyEvent(service, self._TEMPERATURE, 0, 0)
                if name and event:
                    yield lib.text(name), lib.IOHIDEventGetFloatValue(event, self._TEMPERATURE << 16)
                lib.release(name, event)
