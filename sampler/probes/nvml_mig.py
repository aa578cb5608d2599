"""MIG: a device cut into GPU instances, each with memory, processes and counters of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..context import Context
from ..probe import Values
from .nvml_calls import Calls
from .nvml_gpm import Profiler
from .nvml_memory import put_memory
from .nvml_metadata import read_mig_devices
from .nvml_processes import Monitored, Processes, in_use, instance_files, read_processes

LOOK_AGAIN = 60.0  # s; instances are made and destroyed while the machine runs
REPEATED = ("memoryAllocated", "memoryAllocatedBytes")  # for the processes on an instance


class GpuInstance:
    """One GPU instance. Its compute instances (`handles`) share its memory."""

    def __init__(self, nvml: Any, device: Any, number: int) -> None:
        self.number = number
        self.handles: list[Any] = []
        self.uuids: set[str] = set()
        self._nvml = nvml
        self._calls = Calls()
        self._profiler = Profiler(nvml, device, self._calls, number)

    def begin(self) -> None:
        """Forget its MIG devices before they are looked up: one of this number may have been made anew since."""
        self.handles, self.uuids = [], set()
        self._calls.forgive()

    def sample(self, ctx: Context, tick: int) -> tuple[Values, Processes]:
        """Its values, and the processes on it."""
        self._calls.tick = tick
        values: Values = {}
        total = put_memory(values, self._nvml, self.handles[0], self._calls)
        if total is not None:
            values["memoryTotal"] = total
        values.update(self._profiler.sample(ctx.now) or {})
        processes: Processes = {}
        for handle in self.handles:
            processes.update(read_processes(self._nvml, handle, self._calls))
        return values, processes

    def close(self) -> None:
        """Release the profiling samples."""
        self._profiler.close()


class Mig:
    """The GPU instances of device `index`, looked up again each minute."""

    def __init__(self, nvml: Any, handle: Any, index: int, calls: Calls, sees: Callable[[str], bool]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._index = index
        self._calls = calls
        self._sees = sees  # whether the monitored process may see the MIG device of that UUID
        self._instances: dict[int, GpuInstance] = {}
        self._looked_at: float | None = None

    def _look(self, now: float) -> None:
        if self._looked_at is not None and now - self._looked_at < LOOK_AGAIN:
            return
        devices = self._calls.get("mig", lambda: read_mig_devices(self._nvml, self._handle))
        if devices is None or not (devices.complete or self._looked_at is None):
            return  # asked again at the next tick
        self._looked_at = now if devices.complete else None
        for instance in self._instances.values():
            instance.begin()
        for mig, (uuid, number, _) in devices.found:
            known = self._instances.get(number)
            if known is None:
                known = self._instances[number] = GpuInstance(self._nvml, self._handle, number)
            known.handles.append(mig)
            known.uuids.add(uuid)
        for gone in [number for number, instance in self._instances.items() if not instance.handles]:
            self._instances.pop(gone).close()

    def sample(self, ctx: Context, out: Values, ours: Monitored, minor: int | None) -> Processes | None:
        """Write `gpu.{i}.mig.{instance}.*` and what is repeated for the processes on it.

        Returns the processes of all instances if a monitored one is among them, else None.
        """
        self._look(ctx.now)
        found: Processes = {}
        any_in_use = False
        for number, instance in self._instances.items():
            values, processes = instance.sample(ctx, self._calls.tick)
            for name, value in values.items():
                out[f"gpu.{self._index}.mig.{number}.{name}"] = value
            found.update(processes)
            files = partial(instance_files, ctx, minor, number)
            if any(map(self._sees, instance.uuids)) and in_use(ctx, processes, ours, files):
                any_in_use = True
                for name in REPEATED:
                    if name in values:
                        out[f"gpu.process.{self._index}.mig.{number}.{name}"] = values[name]
        return found if any_in_use else None

    def close(self) -> None:
        """Release what the instances hold."""
        for instance in self._instances.values():
            instance.close()
        self._instances = {}
