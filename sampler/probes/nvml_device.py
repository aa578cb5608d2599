"""One NVIDIA device: all its values of a tick, and what becomes of it when it is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ..context import Context
from ..probe import Values
from ..rates import Counter
from .nvml_calls import INVALID_ARGUMENT, Calls, DeviceLostError, Getters, code_of
from .nvml_events import XidWatch
from .nvml_extended import Extended
from .nvml_gauges import Gauges
from .nvml_link import LinkWatch
from .nvml_metadata import text_of
from .nvml_mig import Mig
from .nvml_processes import Monitored, Processes, SmShares, device_files, in_use, read_processes

ASK_LOST_AGAIN = 60.0  # s
SELDOM_EVERY = 4  # ticks between two readings of what is slow and changes little

# The device's values that are repeated for the processes on it.
OF_PROCESSES = (
    "gpu", "memory", "memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "enforcedPowerLimitWatts",
    "powerPercent",
)  # fmt: skip


class _Attached:
    """What is asked of a device while it answers. It starts anew when the device comes back from a reset."""

    def __init__(self, nvml: Any, index: int, handle: Any, calls: Calls, sees: Callable[[str], bool]) -> None:
        self._nvml = nvml
        self._index = index
        self._handle = handle
        self._calls = calls
        self._get = Getters(nvml, handle, calls)
        self._gauges = Gauges(nvml, handle, calls)
        self._extended = Extended(nvml, handle, calls)
        self._mig = Mig(nvml, handle, index, calls, sees)
        self._shares = SmShares(nvml, handle, calls)
        self.link = LinkWatch(nvml, handle, calls, index)
        self._minor: int | None = None

    def sample(self, ctx: Context, out: Values, ours: Monitored, tick: int, *, pcie: bool) -> None:
        """Write `gpu.{i}.*` and `gpu.process.{i}.*`; what was read before an exception counts."""
        settings = ctx.settings
        self._calls.tick = tick
        seldom = tick % SELDOM_EVERY == 0
        values: Values = {}
        processes = read_processes(self._nvml, self._handle, self._calls)
        try:
            profiled = self._gauges.sample(ctx.now, values, aliases=settings.seed_aliases, seldom=seldom, pcie=pcie)
            if settings.extended:
                self._extended.sample(ctx.now, values, links=not profiled)
                if seldom:
                    self._extended.sample_seldom(values)
        finally:
            for name, value in values.items():
                out[f"gpu.{self._index}.{name}"] = value
        if seldom:
            self.link.look(values.get("gpu"))
        self._sample_processes(ctx, out, ours, values, processes)

    def _sample_processes(
        self, ctx: Context, out: Values, ours: Monitored, values: Values, processes: Processes
    ) -> None:
        if self._minor is None:
            self._minor = self._get("MinorNumber")
        on_instances = self._mig.sample(ctx, out, ours, self._minor)
        if on_instances is None and not in_use(ctx, processes, ours, partial(device_files, self._minor)):
            return
        prefix = f"gpu.process.{self._index}"
        for name in OF_PROCESSES:
            if name in values:
                out[f"{prefix}.{name}"] = values[name]
        if ctx.settings.extended:  # what they use themselves
            told = {**processes, **(on_instances or {})}
            used = [each for pid, each in told.items() if pid in ours.pids and each is not None]
            if used:
                out[f"{prefix}.memoryUsedBytes"] = sum(used)
            share = self._shares.of(ours.pids)
            if share is not None:
                out[f"{prefix}.smUtil"] = share

    def close(self) -> None:
        """Release what the library holds for us."""
        self._gauges.close()
        self._mig.close()


class Device:
    """Device `index` (of that `uuid`, empty if it is not known yet).

    `turn` tells it apart from the others where they take turns at slow calls.
    `sees` tells whether the monitored process may see the MIG device of a UUID; `xids` watches for the driver's errors.
    """

    def __init__(
        self, nvml: Any, index: int, uuid: str, *, turn: int, sees: Callable[[str], bool], xids: XidWatch
    ) -> None:
        self.index = index
        self._uuid = uuid
        self.energy = Counter()  # J; goes on when the device comes back
        self._nvml = nvml
        self._turn = turn
        self._sees = sees
        self._xids = xids
        self._attached: _Attached | None = None
        self._lost_at: float | None = None

    def _attach(self, ctx: Context) -> _Attached | None:
        """Get the handle. Calls start with a clean slate: the device may be back from a reset."""
        if self._attached is None:
            calls = Calls()
            handle = calls.get("handle", self._find)
            if handle is not None:
                self._attached = _Attached(self._nvml, self.index, handle, calls, self._sees)
                if ctx.settings.extended:
                    self._xids.watch(self.index, handle)
        return self._attached

    def _find(self) -> Any:
        """The handle. When the library is initialised anew without a lost device, the others move up by one."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
            if not self._uuid:
                with contextlib.suppress(Exception):  # not told by this device, or not now
                    self._uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
                return handle
            if text_of(nvml.nvmlDeviceGetUUID(handle)) == self._uuid:
                return handle
        except Exception as error:  # classes are built at run time
            if code_of(error) != INVALID_ARGUMENT:  # there are fewer devices than there were
                raise
        for other in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(Exception):  # of another device
                handle = nvml.nvmlDeviceGetHandleByIndex(other)
                if text_of(nvml.nvmlDeviceGetUUID(handle)) == self._uuid:
                    return handle
        raise DeviceLostError(f"no device has the UUID {self._uuid} any more")

    def sample(self, ctx: Context, out: Values, ours: Monitored, *, tick: int, turns: int) -> None:
        """Write the values of sample number `tick`; `turns` devices take turns at slow calls.

        A device that is lost has `gpu.{i}.lost`, and no more than is known of its Xid errors, until it answers again.

        Raises:
            LibraryClosedError: the library must be initialised again.
        """
        prefix = f"gpu.{self.index}"
        if self._lost_at is None or ctx.now - self._lost_at >= ASK_LOST_AGAIN:
            try:
                attached = self._attach(ctx)
                if attached is not None:
                    attached.sample(ctx, out, ours, tick, pcie=tick % turns == self._turn)
                    self._lost_at = None
            except DeviceLostError:
                self.detach()
                self._lost_at = ctx.now
        if self._lost_at is not None:
            out[f"{prefix}.lost"] = 1
        energy = out.get(f"{prefix}.energyJoules")
        used = None if energy is None else self.energy.rise(energy)
        if ctx.settings.extended:
            if used is not None:
                out[f"{prefix}.energyIntervalJ"] = used
            for name, value in self._xids.sample(self.index).items():
                out[f"{prefix}.{name}"] = value

    @property
    def notice(self) -> str | None:
        """What the user should know of the device."""
        return self._attached.link.notice if self._attached is not None else None

    def detach(self) -> None:
        """Let go of the handle and what hangs on it; the next sample gets it anew."""
        if self._attached is not None:
            self._attached.close()
            self._attached = None
