"""Xid errors: what the driver reports when something goes wrong on a device, as it happens."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Hashable
from typing import Any

from ..probe import Values
from .nvml_calls import PERMANENT, TIMEOUT, UNINITIALIZED, code_of
from .nvml_kmsg import Bus, KernelLog, parse_bus
from .nvml_metadata import text_of

XID = 0x8  # nvmlEventTypeXidCriticalError
WAIT_MS = 1000  # how long one call waits; the thread looks between two whether it is to end
PAUSE = 1.0  # s after a call that fails, such as for a device that fell off the bus


def _identity(handle: Any) -> Hashable:
    """What two handles of one device share: the address they point to."""
    with contextlib.suppress(ValueError, AttributeError):  # null, not a pointer
        return ctypes.addressof(handle.contents)
    return handle if isinstance(handle, Hashable) else id(handle)


class XidWatch:
    """Waits for Xid errors of all devices on a thread of its own, since a wait blocks.

    Devices whose driver reports none (Windows' under WSL, virtual ones) are looked for in the kernel's `log`.
    """

    def __init__(self, nvml: Any, log: KernelLog) -> None:
        self._nvml = nvml
        self._log = log
        self._logged: dict[Bus, int] = {}  # device of the kernel's log -> index
        self._set: Any = None
        self._devices: dict[Hashable, int] = {}  # device -> index
        self._counts: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, index: int, handle: Any) -> None:
        """Count the errors of device `index` from now on, if its driver reports them; again after a reset."""
        nvml = self._nvml
        if self._thread is not None and not self._thread.is_alive():  # waiting was refused
            self.forget()
        try:
            if not nvml.nvmlDeviceGetSupportedEventTypes(handle) & XID:
                self._watch_log(index, handle)
                return
            if self._set is None:
                self._set = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, XID, self._set)
        except Exception:  # not on this system, or not now
            self._watch_log(index, handle)
            return
        self._logged = {bus: logged for bus, logged in self._logged.items() if logged != index}
        self._devices[_identity(handle)] = index
        self._counts.setdefault(index, 0)
        if self._thread is None:
            waiting = (self._set, self._devices, self._stop)
            self._thread = threading.Thread(target=self._run, args=waiting, name="xid", daemon=True)
            self._thread.start()

    def _watch_log(self, index: int, handle: Any) -> None:
        bus = None
        with contextlib.suppress(Exception):  # the device has no address: nothing will be known of its errors
            bus = parse_bus(text_of(self._nvml.nvmlDeviceGetPciInfo(handle).busId))
        if bus is not None and self._log.open():
            self._logged[bus] = index
            self._counts.setdefault(index, 0)

    def _note(self, index: int, code: int) -> None:
        self._last[index] = code
        self._counts[index] += 1

    def sample(self, index: int) -> Values:
        """`xid.count` since the sampler began, `xid.last` once there was one; empty where errors are not reported."""
        if index in self._logged.values():
            for bus, code in self._log.new_xids():
                if bus in self._logged:
                    self._note(self._logged[bus], code)
        elif index not in self._counts or self._thread is None or not self._thread.is_alive():
            return {}
        values: Values = {"xid.count": self._counts[index]}
        if index in self._last:
            values["xid.last"] = self._last[index]
        return values

    def forget(self) -> None:
        """Let go of the event set of a library that is initialised anew; who waits on it ends by itself."""
        self._stop.set()
        self._set, self._devices, self._stop, self._thread = None, {}, threading.Event(), None

    def _run(self, event_set: Any, devices: dict[Hashable, int], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                event = self._nvml.nvmlEventSetWait(event_set, WAIT_MS)
            except Exception as error:  # classes are built at run time
                code = code_of(error)
                if code is None or code in PERMANENT or code == UNINITIALIZED:
                    return
                if code != TIMEOUT:
                    stop.wait(PAUSE)
                continue
            index = devices.get(_identity(event.device))
            if index is not None and event.eventType & XID:
                self._note(index, int(event.eventData))

    def close(self) -> None:
        """End the thread. The event set is freed only when nobody waits on it any more."""
        self._log.close()
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * WAIT_MS / 1000)
        if self._set is not None and (self._thread is None or not self._thread.is_alive()):
            with contextlib.suppress(Exception):  # the library may be gone
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None
