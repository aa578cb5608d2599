"""NVML from its initialisation on: the devices that were chosen, tick by tick."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ..context import Context
from ..probe import ProbeUnavailableError, Values
from ..proctree import walk
from .amd_source import no_driver
from .nvml_calls import LIBRARY_MISMATCH, NO_LIBRARY, LibraryClosedError, code_of
from .nvml_device import Device
from .nvml_events import XidWatch
from .nvml_kmsg import KernelLog
from .nvml_library import initialise
from .nvml_metadata import read_identity, read_metadata
from .nvml_processes import Monitored
from .nvml_select import Named, not_named, select, unknown, visible

JOULES_PER_KWH = 3.6e6
KERNEL_LOG = "/dev/kmsg"


class Session:
    """An open library. Building it loads and initialises NVML, chooses the devices and reads what does not change.

    Attributes:
        metadata: see `nvml_metadata.read_metadata`.
        notices: what the user should know.

    Raises:
        ProbeUnavailableError: no driver, no library, one of another version than the other, or no device.
    """

    def __init__(self, nvml: Any, ctx: Context) -> None:
        self._nvml = nvml
        self._tick = -1  # samples taken, less one
        try:
            initialise(nvml, sys.platform, os.environ)
        except Exception as error:  # classes are built at run time
            loud = code_of(error) == LIBRARY_MISMATCH
            hint = "; reload the kernel module or reboot" if loud else ""
            if loud or code_of(error) in NO_LIBRARY:
                raise ProbeUnavailableError(f"NVML: {error}{hint}", loud=loud) from error
            raise
        identities = [read_identity(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        if not identities:
            nvml.nvmlShutdown()
            raise ProbeUnavailableError("NVML finds no device")
        chosen = select(ctx.settings.gpu_device_ids, identities, os.environ)
        seen = visible(identities, os.environ)
        self.xids = XidWatch(nvml, KernelLog(ctx.path(KERNEL_LOG)))
        uuids = {identity.number: identity.uuid for identity in identities}
        self._devices = [
            Device(nvml, index, uuids[index], turn=turn, sees=_Sees(index, seen), xids=self.xids)
            for turn, index in enumerate(chosen)
        ]
        alone = no_driver(ctx) is not None  # AMD's are numbered on from here
        self._named_in_vain = [
            not_named(text) for text in unknown(ctx.settings.gpu_device_ids, identities, alone=alone)
        ]
        self.notices = list(self._named_in_vain)
        self.metadata = read_metadata(ctx, nvml, identities, sampled=chosen, seen=seen)

    def sample(self, ctx: Context, out: Values) -> None:
        """Write the values of all devices, one after the other."""
        ours = Monitored(ctx, walk(ctx, ctx.settings.pid, ctx.own_pids))
        self._tick += 1
        for device in self._devices:
            try:
                device.sample(ctx, out, ours, tick=self._tick, turns=len(self._devices))
            except LibraryClosedError:
                self._initialise_again()
                return
        self.notices = self._named_in_vain + [device.notice for device in self._devices if device.notice is not None]
        if ctx.settings.extended and any(f"gpu.{device.index}.energyJoules" in out for device in self._devices):
            out["run.energyKWh"] = sum(device.energy.total for device in self._devices) / JOULES_PER_KWH

    def _initialise_again(self) -> None:
        for device in self._devices:  # handles of the library's last life are of no use
            device.detach()
        self.xids.forget()
        with contextlib.suppress(Exception):  # it may not be initialised at all
            self._nvml.nvmlShutdown()
        self._nvml.nvmlInit()

    def close(self) -> None:
        """Shut the library down."""
        for device in self._devices:
            device.detach()
        self.xids.close()
        self._nvml.nvmlShutdown()


class _Sees:
    """Whether the monitored process may see a MIG device of device `index`, by what CUDA_VISIBLE_DEVICES leaves."""

    def __init__(self, index: int, seen: list[Named]) -> None:
        self._named = {named.instance for named in seen if named.number == index}

    def __call__(self, uuid: str) -> bool:
        return None in self._named or uuid in self._named
