"""NVIDIA devices through NVML (module `pynvml` of the distribution nvidia-ml-py), in a helper process."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from ..context import Context
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import walk
from .nvml_calls import LIBRARY_MISMATCH, NO_LIBRARY, LibraryClosedError, code_of
from .nvml_device import Device, read_identity, read_metadata
from .nvml_select import select

# Any of these says that a driver is there: the kernel module, its control device, Windows' driver under WSL.
DRIVER_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


class NvidiaProbe(Probe):
    """`gpu.{i}.*` and `gpu.process.{i}.*`, `i` being the NVML index.

    `gpu.process.{i}.*` repeats values of a device that any monitored process uses. `nvml` replaces the module.
    """

    name = "nvidia"
    tier = Tier.HELPER
    prefixes = ("gpu.",)

    def __init__(self, nvml: ModuleType | Any = None) -> None:
        self._nvml = nvml
        self._open = False
        self._tick = -1  # samples taken, less one
        self._devices: list[Device] = []
        self._metadata: dict[str, Any] = {}

    def discover(self, ctx: Context) -> str | None:
        """Looks for the driver, not for the library: loading that takes a while."""
        return None if any(map(ctx.exists, DRIVER_SIGNS)) else f"no NVIDIA driver: none of {', '.join(DRIVER_SIGNS)}"

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
            nvml.nvmlInit()
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
        self._devices = [Device(nvml, index, turn) for turn, index in enumerate(chosen)]
        self._metadata = read_metadata(ctx, nvml, range(len(identities)))

    def sample(self, ctx: Context, out: Values) -> None:
        """One device after the other; a lost one is asked again each minute."""
        pids = set(walk(ctx, ctx.settings.pid, ctx.own_pids))
        self._tick += 1
        for device in self._devices:
            try:
                device.sample(ctx, out, pids, tick=self._tick, turns=len(self._devices))
            except LibraryClosedError:
                self._nvml.nvmlInit()
                return

    def metadata(self) -> dict[str, Any]:
        """gpu_type, gpu_count, cuda_version, gpu_nvidia: one entry per device in NVML order, whatever is sampled."""
        return self._metadata

    def close(self) -> None:
        """Shut the library down."""
        if self._open:
            self._open = False
            for device in self._devices:
                device.close()
            self._nvml.nvmlShutdown()
