"""The host's metrics through psutil, for systems without /proc (macOS, Windows, BSD)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ..context import Context
from ..metric import Metric
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import Key, TreeCounter, Use
from ..rates import Totals
from .cpu import CpuProbe
from .disk_io import DiskIoProbe
from .disk_usage import DiskUsageProbe
from .memory import MemoryProbe
from .network import NetworkProbe

if TYPE_CHECKING:
    import psutil

MIB = 1 << 20
GIB = 1 << 30
_LOOPBACK = ("lo", "lo0", "Loopback Pseudo-Interface 1")
_NOT_HERE = ("proc.cpu.throttledPercent", "proc.memory.oomKills", "network.tcpRetransmits", "cpu.{i}.cpu_percent")
_MICROSECONDS = 1_000_000  # CPU times are counted in whole ones


class PortableProbe(Probe):
    """The keys of the probes `cpu`, `memory`, `disk_io` and `network` (and on Windows `disk_usage`), without limits."""

    name = "portable"
    tier = Tier.THREAD  # process lists take long on some systems
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        replace(metric, source="psutil", test="tests/sampler/test_host.py::test_portable_probe_agrees_with_ours")
        for probe in (CpuProbe, MemoryProbe, DiskUsageProbe, DiskIoProbe, NetworkProbe)
        for metric in probe.metrics
        if not metric.setting and metric.key not in _NOT_HERE
    )

    def __init__(self) -> None:
        self._tree = TreeCounter()
        self._last_read: float | None = None
        self._network = {way: Totals[str]() for way in ("sent", "recv")}
        self._disks = {way: Totals[str]() for way in ("in", "out")}

    def discover(self, ctx: Context) -> str | None:
        """Where /proc tells, the other probes do."""
        return "the probes that read /proc do it" if ctx.exists("/proc/stat") else None

    def open(self, ctx: Context) -> None:
        """Load psutil; take the baseline."""
        try:
            import psutil  # noqa: F401 - needed only on these systems
        except ImportError as error:
            raise ProbeUnavailableError(str(error)) from error
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """See the probes that this one stands in for. What one call cannot tell costs its own keys only."""
        failed = None
        for read in (self._sample_memory, self._sample_network, self._sample_disks, self._sample_usage):
            try:
                read(ctx, out)
            except Exception as error:  # systems refuse one thing or another
                failed = error
        if failed is not None:
            raise failed

    def _sample_memory(self, ctx: Context, out: Values) -> None:
        import psutil

        memory = psutil.virtual_memory()
        out["memory_percent"] = 100 * (1 - memory.available / memory.total)
        out["proc.memory.availableMB"] = memory.available / MIB
        self._sample_processes(ctx, out, memory.total)

    def _sample_network(self, ctx: Context, out: Values) -> None:  # noqa: ARG002 - as the others
        import psutil

        links = psutil.net_io_counters(pernic=True)
        counted = {name: link for name, link in links.items() if name not in _LOOPBACK}
        self._network["sent"].update({name: link.bytes_sent for name, link in counted.items()})
        self._network["recv"].update({name: link.bytes_recv for name, link in counted.items()})
        if links:
            out.update({f"network.{way}": float(totals.total) for way, totals in self._network.items()})

    def _sample_disks(self, ctx: Context, out: Values) -> None:  # noqa: ARG002 - as the others
        import psutil

        disks = psutil.disk_io_counters(perdisk=True) or {}
        self._disks["in"].update({name: disk.read_bytes for name, disk in disks.items()})
        self._disks["out"].update({name: disk.write_bytes for name, disk in disks.items()})
        for way, totals in self._disks.items() if disks else ():
            out.update({f"disk.{name}.{way}": totals.risen[name] / MIB for name in disks})
            out[f"disk.{way}"] = totals.total / MIB

    @staticmethod
    def _sample_usage(ctx: Context, out: Values) -> None:
        """Elsewhere `disk_usage` does it, with statvfs."""
        import psutil

        for path in ctx.settings.disk_paths if psutil.WINDOWS else ():
            usage = psutil.disk_usage(path)
            out[f"disk.{path}.usagePercent"] = usage.percent
            out[f"disk.{path}.usageGB"] = usage.used / GIB

    def _sample_processes(self, ctx: Context, out: Values, total: int) -> None:
        import psutil

        try:
            root = psutil.Process(ctx.settings.pid)
            found = [root, *(root.children(recursive=True) if ctx.settings.process_tree else ())]
        except psutil.Error:
            return
        used, threads, resident = self._read([process for process in found if process.pid not in ctx.own_pids])
        others, _, _ = self._read([process for process in found if process.pid in ctx.own_pids])
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        self._last_read = ctx.now
        rise = self._tree.rise(used, others)
        if rise is not None and elapsed > 0:
            out["cpu"] = 100 * rise / _MICROSECONDS / elapsed / (psutil.cpu_count() or 1)
        if used:
            out["proc.cpu.threads"] = float(threads)
            out["proc.memory.rssMB"] = resident / MIB
            out["proc.memory.percent"] = 100 * resident / total

    @staticmethod
    def _read(processes: list[psutil.Process]) -> tuple[dict[Key, Use], int, int]:
        """(CPU time by process, threads, resident bytes) of those that still live and may be read."""
        import psutil

        used: dict[Key, Use] = {}
        threads = resident = 0
        for process in processes:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    own = round((times.user + times.system) * _MICROSECONDS)
                    # Where the system does not tell of ended children, psutil says 0.
                    reaped = round((times.children_user + times.children_system) * _MICROSECONDS)
                    key = process.pid, round(process.create_time() * _MICROSECONDS)
                    used[key] = Use(process.ppid(), own, reaped)
                    threads += process.num_threads()
                    resident += process.memory_info().rss
            except psutil.Error:
                continue
        return used, threads, resident
