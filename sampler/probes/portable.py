"""The host's metrics through psutil, for systems without /proc (macOS, Windows, BSD)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..context import Context
from ..counter import Counter
from ..probe import Probe, ProbeUnavailableError, Tier, Values

if TYPE_CHECKING:
    import psutil

MIB = 1 << 20
GIB = 1 << 30


class PortableProbe(Probe):
    """The keys of the probes `cpu`, `memory`, `disk_io` and `network` (and on Windows `disk_usage`), without limits."""

    name = "portable"
    tier = Tier.THREAD  # process lists take long on some systems

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # pid -> CPU seconds at the last reading
        self._last_read: float | None = None
        self._counters = {key: Counter() for key in ("network.sent", "network.recv", "disk.in", "disk.out")}

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
        """See the probes that this one stands in for."""
        import psutil

        memory = psutil.virtual_memory()
        out["memory_percent"] = 100 * (1 - memory.available / memory.total)
        out["proc.memory.availableMB"] = memory.available / MIB
        self._sample_processes(ctx, out, memory.total)
        network, disk = psutil.net_io_counters(), psutil.disk_io_counters()
        raw = {"network.sent": network.bytes_sent, "network.recv": network.bytes_recv} if network else {}
        raw |= {"disk.in": disk.read_bytes, "disk.out": disk.write_bytes} if disk else {}
        for key, value in raw.items():
            out[key] = self._counters[key].since_first(value) / (MIB if key.startswith("disk") else 1)
        if psutil.WINDOWS:
            for path in ctx.settings.disk_paths:
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
        counted = [process for process in found if process.pid not in ctx.own_pids]
        seconds, threads, resident = self._read(counted)
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        if elapsed > 0:
            used = sum(max(0.0, now - self._seconds[pid]) for pid, now in seconds.items() if pid in self._seconds)
            out["cpu"] = 100 * used / elapsed / (psutil.cpu_count() or 1)
        self._seconds, self._last_read = seconds, ctx.now
        out["proc.cpu.threads"] = float(threads)
        out["proc.memory.rssMB"] = resident / MIB
        out["proc.memory.percent"] = 100 * resident / total

    @staticmethod
    def _read(processes: list[psutil.Process]) -> tuple[dict[int, float], int, int]:
        """(CPU seconds by pid, threads, resident bytes) of those that still live and may be read."""
        import psutil

        seconds: dict[int, float] = {}
        threads = resident = 0
        for process in processes:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    seconds[process.pid] = times.user + times.system
                    threads += process.num_threads()
                    resident += process.memory_info().rss
            except psutil.Error:
                continue
        return seconds, threads, resident
