"""Apple's libraries through ctypes: CoreFoundation, IOReport, IOKit. For the helper process only.

IOReport and the temperature sensors are private: there are no headers, so that each function may be missing one day.
The signatures are those that open tools use. Rule of CoreFoundation: what a function with Create or Copy in its name
returns is ours to release; what others return lives as long as what it came from.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_long,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

from .apple_figures import CPU, CPU_STATES, ENERGY, GPU, GPU_STATES, Channel

LIBRARIES = {
    "cf": "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation",
    "iokit": "/System/Library/Frameworks/IOKit.framework/IOKit",
    "ioreport": "/usr/lib/libIOReport.dylib",
    "system": "/usr/lib/libSystem.B.dylib",
}
_UTF8 = 0x08000100
_SINT32 = 3  # kCFNumberSInt32Type
_LONGEST = 256  # bytes of a name
_CHANNELS = ((ENERGY, None), (CPU, CPU_STATES), (GPU, GPU_STATES))
_MOST_KEYS = 10_000  # of the controller; there are about 1,600

_SIGNATURES: dict[str, dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "cf": {
        "CFStringCreateWithCString": (c_void_p, (c_void_p, c_char_p, c_uint32)),
        "CFStringGetCString": (c_bool, (c_void_p, c_char_p, c_long, c_uint32)),
        "CFNumberCreate": (c_void_p, (c_void_p, c_long, c_void_p)),
        "CFDictionaryCreate": (c_void_p, (c_void_p, c_void_p, c_void_p, c_long, c_void_p, c_void_p)),
        "CFDictionaryCreateMutableCopy": (c_void_p, (c_void_p, c_long, c_void_p)),
        "CFDictionaryGetCount": (c_long, (c_void_p,)),
        "CFDictionaryGetValue": (c_void_p, (c_void_p, c_void_p)),
        "CFArrayGetCount": (c_long, (c_void_p,)),
        "CFArrayGetValueAtIndex": (c_void_p, (c_void_p, c_long)),
        "CFRelease": (None, (c_void_p,)),
    },
    "ioreport": {
        "IOReportCopyChannelsInGroup": (c_void_p, (c_void_p, c_void_p, c_uint64, c_uint64, c_uint64)),
        "IOReportMergeChannels": (None, (c_void_p, c_void_p, c_void_p)),
        "IOReportCreateSubscription": (c_void_p, (c_void_p, c_void_p, POINTER(c_void_p), c_uint64, c_void_p)),
        "IOReportCreateSamples": (c_void_p, (c_void_p, c_void_p, c_void_p)),
        "IOReportCreateSamplesDelta": (c_void_p, (c_void_p, c_void_p, c_void_p)),
        "IOReportChannelGetGroup": (c_void_p, (c_void_p,)),
        "IOReportChannelGetSubGroup": (c_void_p, (c_void_p,)),
        "IOReportChannelGetChannelName": (c_void_p, (c_void_p,)),
        "IOReportChannelGetUnitLabel": (c_void_p, (c_void_p,)),
        "IOReportSimpleGetIntegerValue": (c_int64, (c_void_p, c_int)),
        "IOReportStateGetCount": (c_int, (c_void_p,)),
        "IOReportStateGetNameForIndex": (c_void_p, (c_void_p, c_int)),
        "IOReportStateGetResidency": (c_int64, (c_void_p, c_int)),
    },
    "iokit": {
        "IOServiceMatching": (c_void_p, (c_char_p,)),
        "IOServiceGetMatchingServices": (c_int, (c_uint32, c_void_p, POINTER(c_uint32))),
        "IOIteratorNext": (c_uint32, (c_uint32,)),
        "IORegistryEntryGetName": (c_int, (c_uint32, c_char_p)),
        "IOObjectRelease": (c_int, (c_uint32,)),
        "IOServiceOpen": (c_int, (c_uint32, c_uint32, c_uint32, POINTER(c_uint32))),
        "IOServiceClose": (c_int, (c_uint32,)),
        "IOConnectCallStructMethod": (
            c_int,
            (c_uint32, c_uint32, c_void_p, c_size_t, c_void_p, POINTER(c_size_t)),
        ),
        "IOHIDEventSystemClientCreate": (c_void_p, (c_void_p,)),
        "IOHIDEventSystemClientSetMatching": (c_int, (c_void_p, c_void_p)),
        "IOHIDEventSystemClientCopyServices": (c_void_p, (c_void_p,)),
        "IOHIDServiceClientCopyProperty": (c_void_p, (c_void_p, c_void_p)),
        "IOHIDServiceClientCopyEvent": (c_void_p, (c_void_p, c_int64, c_int32, c_int64)),
        "IOHIDEventGetFloatValue": (c_double, (c_void_p, c_int64)),
    },
    "system": {},
}


class NativeError(Exception):
    """A library, a function or a device is not there, or refused."""


class Libraries:
    """The functions above as attributes; `paths` replaces the files. NativeError if one cannot be loaded."""

    def __init__(self, paths: Mapping[str, str] = LIBRARIES) -> None:
        self._loaded: dict[str, ctypes.CDLL] = {}
        for name, path in paths.items():
            try:
                self._loaded[name] = ctypes.CDLL(path)
            except OSError as error:
                raise NativeError(f"{path} cannot be loaded: {error}") from error

    def __getattr__(self, name: str) -> Any:
        for library, functions in _SIGNATURES.items():
            if name in functions:
                function = getattr(self._loaded[library], name, None)
                if function is None:
                    raise NativeError(f"this system has no {name}")
                function.restype, function.argtypes = functions[name]
                setattr(self, name, function)
                return function
        raise AttributeError(name)

    @property
    def task(self) -> int:
        """The port of this process, which opening a device asks for."""
        return int(self.symbol("system", "mach_task_self_", c_uint32).value)

    def symbol(self, library: str, name: str, kind: Any) -> Any:
        """A variable of a library."""
        try:
            return kind.in_dll(self._loaded[library], name)
        except ValueError as error:
            raise NativeError(f"this system has no {name}") from error

    def text(self, reference: int | None) -> str:
        """A CFString as text; empty if there is none."""
        buffer = ctypes.create_string_buffer(_LONGEST)
        if not reference or not self.CFStringGetCString(reference, buffer, _LONGEST, _UTF8):
            return ""
        return buffer.value.decode("utf-8", "replace").strip()

    @contextlib.contextmanager
    def string(self, text: str | None) -> Iterator[int | None]:
        """A CFString for the time of a call; nothing for None."""
        reference = None if text is None else self.CFStringCreateWithCString(None, text.encode(), _UTF8)
        try:
            yield reference
        finally:
            self.release(reference)

    def items(self, array: int | None) -> Iterator[int]:
        """What a CFArray refers to."""
        for index in range(self.CFArrayGetCount(array) if array else 0):
            item = self.CFArrayGetValueAtIndex(array, index)
            if item:
                yield item

    def release(self, *references: int | None) -> None:
        """Let go of objects; None is nothing."""
        for reference in references:
            if reference:
                self.CFRelease(reference)


class IoReport:
    """Counters of power and of the states of cores. `read` gives what they counted since it was last called."""

    def __init__(self, libraries: Libraries, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lib = libraries
        self._clock = clock
        self._owned: list[int] = []
        self._last: tuple[int, float] | None = None  # a sample, and when it was taken
        try:
            self._subscribe()
            self._last = self._sample()
        except NativeError:
            self.close()
            raise

    def _subscribe(self) -> None:
        lib = self._lib
        merged: int | None = None
        for group, subgroup in _CHANNELS:
            with lib.string(group) as group_text, lib.string(subgroup) as subgroup_text:
                found = lib.IOReportCopyChannelsInGroup(group_text, subgroup_text, 0, 0, 0)
            if not found:  # this chip has no such counters
                continue
            self._owned.append(found)
            if merged is None:
                merged = found
            else:
                lib.IOReportMergeChannels(merged, found, None)
        if merged is None:
            raise NativeError("IOReport has none of the channels")
        wanted = lib.CFDictionaryCreateMutableCopy(None, lib.CFDictionaryGetCount(merged), merged)
        self._owned.append(wanted)
        channels = c_void_p()
        self._subscription = lib.IOReportCreateSubscription(None, wanted, byref(channels), 0, None)
        self._channels = channels.value
        self._owned += [reference for reference in (self._subscription, self._channels) if reference]
        if not self._subscription:
            raise NativeError("IOReport refused the subscription")

    def _sample(self) -> tuple[int, float]:
        sample = self._lib.IOReportCreateSamples(self._subscription, self._channels, None)
        if not sample:
            raise NativeError("IOReport gave no sample")
        return sample, self._clock()

    def read(self) -> tuple[list[Channel], float]:
        """(channels, seconds that they counted). NativeError where there is no sample now; the next one spans both."""
        now = self._sample()
        last, self._last = self._last, now
        if last is None:
            return [], 0.0
        delta = self._lib.IOReportCreateSamplesDelta(last[0], now[0], None)
        try:
            return list(self._decode(delta)), now[1] - last[1]
        finally:
            self._lib.release(delta, last[0])

    def _decode(self, delta: int | None) -> Iterator[Channel]:
        lib = self._lib
        if not delta:
            return
        with lib.string("IOReportChannels") as key:
            array = lib.CFDictionaryGetValue(delta, key)
        for item in lib.items(array):
            group = lib.text(lib.IOReportChannelGetGroup(item))
            subgroup = lib.text(lib.IOReportChannelGetSubGroup(item))
            name = lib.text(lib.IOReportChannelGetChannelName(item))
            if group == ENERGY:
                unit = lib.text(lib.IOReportChannelGetUnitLabel(item))
                yield Channel(group, subgroup, name, unit, lib.IOReportSimpleGetIntegerValue(item, 0))
            else:
                states = [
                    (
                        lib.text(lib.IOReportStateGetNameForIndex(item, index)),
                        lib.IOReportStateGetResidency(item, index),
                    )
                    for index in range(lib.IOReportStateGetCount(item))
                ]
                yield Channel(group, subgroup, name, states=states)

    def close(self) -> None:
        """Release everything; may be called twice."""
        owned, self._owned = self._owned, []
        last, self._last = self._last, None
        self._lib.release(*owned, last[0] if last is not None else None)


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
                key = self._call(command=self._KEY_AT, index=index).key.to_bytes(4, "big").decode("ascii", "replace")
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
    return int.from_bytes(key.encode("ascii"), "big")


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
