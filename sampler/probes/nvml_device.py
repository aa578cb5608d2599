"""One NVIDIA device: identity, metadata, and the values of a tick."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from ..context import Context
from ..probe import Values
from .nvml_calls import Calls, DeviceLostError, LibraryClosedError
from .nvml_gpm import Profiler
from .nvml_select import Identity

ASK_LOST_AGAIN = 60.0  # s
SELDOM_EVERY = 4  # ticks between two readings of what is slow and changes little
KIB = 1 << 10

# NVML's enumerations
_TEMPERATURE_CORE = 0
_CLOCK_GRAPHICS, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2
_ECC_CORRECTED, _ECC_UNCORRECTED = 0, 1
_ECC_SINCE_DRIVER_LOAD, _ECC_DEVICE_MEMORY = 0, 2
_PCIE_TX, _PCIE_RX = 0, 1
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip

# The device's values that are repeated for the processes on it.
OF_PROCESSES = (
    "gpu", "memory", "memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "enforcedPowerLimitWatts",
    "powerPercent",
)  # fmt: skip


def text_of(value: str | bytes) -> str:
    """Text as the binding gives it: bytes in old versions."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def mig_handles(nvml: Any, handle: Any) -> list[Any]:
    """Handles of the MIG instances of a device; empty where the mode is off or unknown."""
    with contextlib.suppress(Exception):  # not supported on most boards
        if nvml.nvmlDeviceGetMigMode(handle)[0] == 1:
            found = []
            for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with contextlib.suppress(Exception):  # an empty slot
                    found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
            return found
    return []


def read_identity(nvml: Any, index: int) -> Identity:
    """Who device `index` is; without UUID if it cannot be reached now."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
        return Identity(index, uuid, tuple(text_of(nvml.nvmlDeviceGetUUID(mig)) for mig in mig_handles(nvml, handle)))
    except Exception:  # lost or not permitted: the other devices are still of use
        return Identity(index, "")


def read_memory(nvml: Any, handle: Any, calls: Calls, name: str = "memory") -> Any:
    """Memory info; version 2 leaves out what the driver reserves, older drivers have only version 1."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    info = calls.get(f"{name} v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=version)) if version else None
    return info or calls.get(f"{name} v1", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))


def _numa_node(ctx: Context, bus_id: str) -> int | None:
    domain, _, rest = bus_id.lower().partition(":")
    node = ctx.read_int(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    return node if node is not None and node >= 0 else None


def read_metadata(ctx: Context, nvml: Any, indices: Sequence[int]) -> dict[str, Any]:
    """The GPU fields of the hardware record."""
    boards = []
    for index in indices:
        calls = Calls()

        def ask(name: str, *args: Any, index: int = index, calls: Calls = calls) -> Any:
            with contextlib.suppress(DeviceLostError, LibraryClosedError):
                return calls.get(name, lambda: getattr(nvml, name)(nvml.nvmlDeviceGetHandleByIndex(index), *args))
            return None

        memory = ask("nvmlDeviceGetMemoryInfo")
        pci = ask("nvmlDeviceGetPciInfo")
        bus_id = text_of(pci.busId) if pci is not None else ""
        name = ask("nvmlDeviceGetName")
        uuid = ask("nvmlDeviceGetUUID")
        board = {
            "name": text_of(name) if name else None,
            "memory_total": memory.total if memory is not None else None,
            "cuda_cores": ask("nvmlDeviceGetNumGpuCores"),
            "architecture": _ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture")),
            "uuid": text_of(uuid) if uuid else None,
            "pci_bus_id": bus_id or None,
            "numa_node": _numa_node(ctx, bus_id),
        }
        boards.append({field: value for field, value in board.items() if value is not None})
    fields: dict[str, Any] = {"gpu_count": len(boards), "gpu_nvidia": boards}
    if boards and "name" in boards[0]:
        fields["gpu_type"] = boards[0]["name"]
    with contextlib.suppress(Exception):  # not told by the oldest drivers
        version = int(nvml.nvmlSystemGetCudaDriverVersion())
        fields["cuda_version"] = f"{version // 1000}.{version % 1000 // 10}"
    return fields


class Device:
    """Device `index`. `turn` tells it apart from the others where they take turns at slow calls."""

    def __init__(self, nvml: Any, index: int, turn: int) -> None:
        self.index = index
        self._nvml = nvml
        self._turn = turn
        self._calls = Calls()
        self._handle: Any = None
        self._profiler: Profiler | None = None
        self._minor: int | None = None
        self._migs: list[tuple[int, Any]] = []  # (GPU instance id, handle)
        self._lost_at: float | None = None

    def _attach(self) -> None:
        """Get the handle. Calls start with a clean slate: the device may be back from a reset."""
        nvml = self._nvml
        self._calls = Calls()
        handle = self._calls.get("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(self.index))
        if handle is None:
            return
        self._profiler = Profiler.of(nvml, handle, self._calls)
        self._minor = self._calls.get("minor", lambda: nvml.nvmlDeviceGetMinorNumber(handle))
        self._migs = []
        for position, mig in enumerate(mig_handles(nvml, handle)):
            instance = self._calls.get(f"instance {position}", partial(nvml.nvmlDeviceGetGpuInstanceId, mig))
            if instance is not None:
                self._migs.append((instance, mig))
        self._handle = handle

    def sample(self, ctx: Context, out: Values, pids: Collection[int], *, tick: int, turns: int) -> None:
        """Write the values of sample number `tick`; `turns` devices take turns at slow calls.

        A device that is lost has one key, `gpu.{i}.lost`, until it answers again.
        """
        if self._lost_at is not None and ctx.now - self._lost_at < ASK_LOST_AGAIN:
            out[f"gpu.{self.index}.lost"] = 1
            return
        try:
            if self._handle is None:
                self._attach()
            self._lost_at = None
            if self._handle is not None:
                self._calls.tick = tick
                self._sample_all(ctx, out, pids, my_turn=tick % turns == self._turn)
        except DeviceLostError:
            self.close()
            self._handle, self._lost_at = None, ctx.now
            out[f"gpu.{self.index}.lost"] = 1

    def _sample_all(self, ctx: Context, out: Values, pids: Collection[int], *, my_turn: bool) -> None:
        values: Values = {}
        used_by = self._processes(self._handle, "device")
        try:
            self._sample_load(values)
            self._sample_power(values)
            self._sample_clocks(values)
            self._sample_errors(values, aliases=ctx.settings.seed_aliases)
            self._sample_traffic(values, mine=my_turn)
        finally:  # what was read before the device was lost is true
            for name, value in values.items():
                out[f"gpu.{self.index}.{name}"] = value
        in_use = self._sample_migs(ctx, out, pids)
        if in_use or self._in_use(ctx, used_by, pids):
            for name in OF_PROCESSES:
                if name in values:
                    out[f"gpu.process.{self.index}.{name}"] = values[name]
            ours = [used for pid, used in used_by.items() if pid in pids and used is not None]
            if ctx.settings.extended and ours:
                out[f"gpu.process.{self.index}.memoryUsedBytes"] = sum(ours)

    def _get(self, name: str, *args: Any) -> Any:
        """Result of the NVML function `nvmlDeviceGet<name>` for this device, None if it has none now."""
        function: Callable[..., Any] | None = getattr(self._nvml, f"nvmlDeviceGet{name}", None)
        if function is None:
            return None
        return self._calls.get(f"{name}{args}", lambda: function(self._handle, *args))

    def _sample_load(self, values: Values) -> None:
        rates = self._get("UtilizationRates")
        if rates is not None:
            values["gpu"] = float(rates.gpu)  # % of the driver's window in which a kernel ran
            values["memory"] = int(rates.memory)  # % of it with memory traffic, not memory used
        memory = read_memory(self._nvml, self._handle, self._calls)
        if memory is not None:
            values["memoryAllocatedBytes"] = int(memory.used)
            if memory.total:
                values["memoryAllocated"] = 100 * memory.used / memory.total
        temperature = self._get("Temperature", _TEMPERATURE_CORE)
        if temperature is not None:
            values["temp"] = float(temperature)

    def _sample_power(self, values: Values) -> None:
        power = self._get("PowerUsage")  # mW
        limit = self._get("EnforcedPowerLimit") if power is not None else None
        if power is not None:
            values["powerWatts"] = power / 1000
        if limit:
            values["enforcedPowerLimitWatts"] = limit / 1000
            values["powerPercent"] = 100 * power / limit
        energy = self._get("TotalEnergyConsumption")  # mJ since the driver was loaded
        if energy is not None:
            values["energyJoules"] = energy / 1000

    def _sample_clocks(self, values: Values) -> None:
        for name, clock in (("smClock", _CLOCK_SM), ("memoryClock", _CLOCK_MEMORY)):
            self._put_int(values, name, self._get("ClockInfo", clock))
        self._put_int(values, "fanSpeed", self._get("FanSpeed_v2", 0))
        if self._calls.tick % SELDOM_EVERY == 0:
            self._put_int(values, "graphicsClock", self._get("ClockInfo", _CLOCK_GRAPHICS))
            encoder = self._get("EncoderUtilization")
            if encoder is not None:
                values["encoderUtilization"] = float(encoder[0])

    def _sample_errors(self, values: Values, *, aliases: bool) -> None:
        scope = (_ECC_SINCE_DRIVER_LOAD, _ECC_DEVICE_MEMORY)
        self._put_int(values, "correctedMemoryErrors", self._get("MemoryErrorCounter", _ECC_CORRECTED, *scope))
        uncorrected = self._get("MemoryErrorCounter", _ECC_UNCORRECTED, *scope)
        self._put_int(values, "uncorrectedMemoryErrors", uncorrected)
        if aliases:  # the documented spelling
            self._put_int(values, "unCorrectedMemoryErrors", uncorrected)

    def _sample_traffic(self, values: Values, *, mine: bool) -> None:
        """Profiling counters where there are any; else PCIe, a device per tick: each call measures for 20 ms."""
        if self._profiler is not None:
            values.update(self._profiler.sample())
        elif mine:
            for name, direction in (("pcieTxBytes", _PCIE_TX), ("pcieRxBytes", _PCIE_RX)):
                rate = self._get("PcieThroughput", direction)  # KiB/s
                if rate is not None:
                    values[name] = float(rate * KIB)

    def _sample_migs(self, ctx: Context, out: Values, pids: Collection[int]) -> bool:
        """Memory of each MIG instance; whether a monitored process runs on one."""
        any_in_use = False
        for instance, handle in self._migs:
            prefix = f"mig.{instance}"
            memory = read_memory(self._nvml, handle, self._calls, prefix)
            if memory is None:
                continue
            values: Values = {
                f"{prefix}.memoryAllocatedBytes": int(memory.used),
                f"{prefix}.memoryTotal": int(memory.total),
            }
            if memory.total:
                values[f"{prefix}.memoryAllocated"] = 100 * memory.used / memory.total
            in_use = self._in_use(ctx, self._processes(handle, prefix), pids)
            any_in_use = any_in_use or in_use
            for name, value in values.items():
                out[f"gpu.{self.index}.{name}"] = value
                if in_use and not name.endswith("Total"):
                    out[f"gpu.process.{self.index}.{name}"] = value
        return any_in_use

    def _processes(self, handle: Any, name: str) -> dict[int, int | None]:
        """Processes on the device: pid -> bytes used, None where the driver does not tell."""
        found: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            function = getattr(self._nvml, f"nvmlDeviceGet{kind}RunningProcesses")
            for process in self._calls.get(f"{name} {kind}", partial(function, handle)) or ():
                found[process.pid] = process.usedGpuMemory
        return found

    def _in_use(self, ctx: Context, used_by: Collection[int], pids: Collection[int]) -> bool:
        """Whether a monitored process is on the device.

        NVML tells pids of the host. In a container none of them is ours by number: then an open device file decides.
        """
        if any(pid in pids for pid in used_by):
            return True
        if not used_by or self._minor is None or any(ctx.exists(f"/proc/{pid}") for pid in used_by):
            return False
        device = f"/dev/nvidia{self._minor}"
        return any(ctx.link(f"/proc/{pid}/fd/{name}") == device for pid in pids for name in ctx.list(f"/proc/{pid}/fd"))

    @staticmethod
    def _put_int(values: Values, name: str, value: int | None) -> None:
        if value is not None:
            values[name] = int(value)

    def close(self) -> None:
        """Release the profiling samples."""
        if self._profiler is not None:
            self._profiler.close()
            self._profiler = None
