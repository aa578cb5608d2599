"""Functions of Apple's libraries through ctypes: CoreFoundation, IOReport, IOKit. For the helper process only.

IOReport and the temperature sensors are private: there are no headers, so that each function may be missing one day.
The signatures are those that open tools use. Rule of CoreFoundation: what a function with Create or Copy in its name
returns is ours to release; what others return lives as long as what it came from.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_long,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

LIBRARIES = {
    "cf": "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation",
    "iokit": "/System/Library/Frameworks/IOKit.framework/IOKit",
    "ioreport": "/usr/lib/libIOReport.dylib",
    "system": "/usr/lib/libSystem.B.dylib",
}
_UTF8 = 0x08000100
_LONGEST = 256  # bytes of a name

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
    """The functions above as attributes; `paths` replaces the files.

    A library is loaded for the first of its functions, so that one which is missing costs only what needs it; then, as
    for a missing function, there is a NativeError.
    """

    def __init__(self, paths: Mapping[str, str] = LIBRARIES) -> None:
        self._paths = paths
        self._loaded: dict[str, ctypes.CDLL] = {}

    def _library(self, name: str) -> ctypes.CDLL:
        if name not in self._loaded:
            try:
                self._loaded[name] = ctypes.CDLL(self._paths[name])
            except OSError as error:
                raise NativeError(f"{self._paths[name]} cannot be loaded: {error}") from error
        return self._loaded[name]

    def __getattr__(self, name: str) -> Any:
        for library, functions in _SIGNATURES.items():
            if name in functions:
                function = getattr(self._library(library), name, None)
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
            return kind.in_dll(self._library(library), name)
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
