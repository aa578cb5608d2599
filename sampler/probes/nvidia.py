"""NVIDIA devices through NVML (module `pynvml` of the distribution nvidia-ml-py), in a helper process."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from ..context import Context
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import walk
from .nvml_calls import LIBRARY_MISMATCH, NO_LIBRARY, LibraryClosedError, code_of
from .nvml_device import Device
from .nvml_events import XidWatch
from .nvml_kmsg import KernelLog
from .nvml_library import driver_signs, initialise
from .nvml_metadata import read_identity, read_metadata
from .nvml_metrics import METRICS
from .nvml_select import Named, select, visible

JOULES_PER_KWH = 3.6e6
KERNEL_LOG = "/dev/kmsg"


class NvidiaProbe(Probe):
    """`gpu.{i}.*` and `gpu.process.{i}.*`, `i` being the NVML index.

    `gpu.process.{i}.*` repeats values of a device that any monitored process uses. `nvml` replaces the module.
    """

    name = "nvidia"
    tier = Tier.HELPER
    metrics = METRICS

    def __init__(self, nvml: ModuleType | Any = None) -> None:
        self._nvml = nvml
        self._open = False
        self._tick = -1  # samples taken, less one
        self._devices: list[Device] = []
        self._xids: XidWatch | None = None
        self._metadata: dict[str, Any] = {}

    def discover(self, ctx: Context) -> str | None:
        """Looks for the driver, not for the library: loading that takes a while."""
        signs = driver_signs(sys.platform, os.environ)
        return None if any(map(ctx.exists, signs)) else f"no NVIDIA driver: none of {', '.join(signs)}"

    def open(self, ctx: Context) -> None:
        """Load and initialise NVML; choose the devices; read what does not change."""
        if self._nvml is None:
            try:
                import pynvml
            except ImportError as error:
                raise ProbeUnavailableError(f"module pynvml (nvidia-ml-py) cannot be loaded: {error}") from error
            self._nvml = pynvml
        nvml = self._nvml
        try:
            initialise(nvml, sys.platform, os.environ)
        except Exception as error:  # classes are built at run time
            loud = code_of(error) == LIBRARY_MISMATCH
            hint = "; reload the kernel module or reboot" if loud else ""
            if loud or code_of(error) in NO_LIBRARY:
                raise ProbeUnavailableError(f"NVML: {error}{hint}", loud=loud) from error
            raise
        self._open = True
        identities = [read_identity(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        if not identities:
            raise ProbeUnavailableError("NVML finds no device")
        chosen = select(ctx.settings.gpu_device_ids, identities, os.environ)
        seen = visible(identities, os.environ)
        self._xids = xids = XidWatch(nvml, KernelLog(ctx.path(KERNEL_LOG)))
        self._devices = [Device(nvml, index, turn, _Sees(index, seen), xids) for turn, index in enumerate(chosen)]
        self._metadata = read_metadata(ctx, nvml, identities, sampled=chosen, seen=seen)

    def sample(self, ctx: Context, out: Values) -> None:
        """One device after the other; a lost one is asked again each minute."""
        pids = set(walk(ctx, ctx.settings.pid, ctx.own_pids))
        self._tick += 1
        for device in self._devices:
            try:
                device.sample(ctx, out, pids, tick=self._tick, turns=len(self._devices))
            except LibraryClosedError:
                for each in self._devices:  # handles of the library's last life are of no use
                    each.detach()
                self._nvml.nvmlInit()
                return
        self.notices = [device.notice for device in self._devices if device.notice is not None]
        if ctx.settings.extended and any(f"gpu.{device.index}.energyJoules" in out for device in self._devices):
            out["run.energyKWh"] = sum(device.energy.total for device in self._devices) / JOULES_PER_KWH

    def metadata(self) -> dict[str, Any]:
        """See `nvml_metadata.read_metadata`."""
        return self._metadata

    def close(self) -> None:
        """Shut the library down."""
        if self._open:
            self._open = False
            for device in self._devices:
                device.detach()
            if self._xids is not None:
                self._xids.close()
            self._nvml.nvmlShutdown()


class _Sees:
    """Whether the monitored process may see a MIG device of device `index`, by what CUDA_VISIBLE_DEVICES leaves."""

    def __init__(self, index: int, seen: list[Named]) -> None:
        self._named = {named.instance for named in seen if named.number == index}

    def __call__(self, uuid: str) -> bool:
        return None in self._named or uuid in self._named
