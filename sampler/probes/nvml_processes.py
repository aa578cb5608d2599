"""Processes on an NVIDIA device, and whether one of them is monitored."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial
from typing import Any

from ..context import Context
from .nvml_calls import BLANKS, Calls

_MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"  # lines such as "gpu0/gi2/access 21"
_MIG_MINOR = re.compile(r"^gpu(\d+)/gi(\d+)/\S* (\d+)$", re.MULTILINE)


Processes = dict[int, "int | None"]  # pid -> bytes used, None where the driver does not tell


class Monitored:
    """The monitored processes at one tick."""

    def __init__(self, ctx: Context, pids: Iterable[int]) -> None:
        self._ctx = ctx
        self.pids = frozenset(pids)

    @cached_property
    def device_files(self) -> frozenset[str]:
        """Files below /dev/nvidia* that they hold open: looked up once for all devices, there may be many descriptors."""
        ctx = self._ctx
        targets = (
            ctx.link(f"/proc/{pid}/fd/{name}") or "" for pid in self.pids for name in ctx.list(f"/proc/{pid}/fd")
        )
        return frozenset(target for target in targets if target.startswith("/dev/nvidia"))


def _variants(nvml: Any, kind: str, handle: Any) -> list[Callable[[], Any]]:
    """The call for processes, newest first: drivers before 510 know no version 3, old bindings no version 2."""
    names = (f"nvmlDeviceGet{kind}RunningProcesses", f"nvmlDeviceGet{kind}RunningProcesses_v2")
    return [partial(getattr(nvml, name), handle) for name in names if hasattr(nvml, name)]


def read_processes(nvml: Any, handle: Any, calls: Calls) -> Processes:
    """The processes on a device, empty where the driver tells none."""
    found: Processes = {}
    for kind in ("Compute", "Graphics"):
        for process in calls.get(kind, *_variants(nvml, kind, handle)) or ():
            used = process.usedGpuMemory
            found[process.pid] = found.get(process.pid) if used is None else used
    return found


class SmShares:
    """The share of a device's multiprocessors that processes used, from the driver's own samples."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._seen = 0  # µs, time of the newest sample that was read

    def of(self, pids: Collection[int]) -> int | None:
        """% since the last call, of all of `pids` together. None where the driver has no sample: idle, or not told."""
        samples = self._calls.get("ProcessUtilization", self._ask) or ()
        newest: dict[int, Any] = {}
        for sample in samples:
            if sample.pid in pids and (sample.pid not in newest or sample.timeStamp > newest[sample.pid].timeStamp):
                newest[sample.pid] = sample
        self._seen = max([self._seen, *(sample.timeStamp for sample in samples)])
        shares = [int(sample.smUtil) for sample in newest.values() if sample.smUtil not in BLANKS]
        return sum(shares) if shares else None

    def _ask(self) -> Any:
        return self._nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen)


def device_files(minor: int | None) -> list[str]:
    """The device file of the device with that minor number; none where the number is not known."""
    return [] if minor is None else [f"/dev/nvidia{minor}"]


def instance_files(ctx: Context, minor: int | None, instance: int) -> list[str]:
    """The device files through which GPU instance `instance` of /dev/nvidia{minor} is used."""
    if minor is None:
        return []
    found = _MIG_MINOR.findall(ctx.read(_MIG_MINORS) or "")
    return [f"/dev/nvidia-caps/nvidia-cap{cap}" for gpu, gi, cap in found if (int(gpu), int(gi)) == (minor, instance)]


def in_use(ctx: Context, on_device: Collection[int], ours: Monitored, files: Callable[[], Iterable[str]]) -> bool:
    """Whether a monitored process is among those on a device.

    NVML tells pids of the host. In a container none of them is there by number: then it counts whether a monitored
    process holds one of the device's `files` open.
    """
    if not ours.pids.isdisjoint(on_device):
        return True
    if not on_device or any(ctx.exists(f"/proc/{pid}") for pid in on_device):
        return False
    return any(file in ours.device_files for file in files())
