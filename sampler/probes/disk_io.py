"""What the disks behind the given paths read and write, and how busy they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, NamedTuple

from ..context import LIMITS_EVERY, Context
from ..metric import Kind, Metric, Origin
from ..mounts import disks_of, mount_of, read_mounts, real_path, whole_disks
from ..probe import Probe, Values
from ..rates import Rises, Totals
from ..tables import wholes

SECTOR = 512  # bytes; the unit of diskstats whatever the disk's own sector size
MIB = 1 << 20
_TEST = "tests/sampler/test_host.py::"
_SOURCE = "/proc/diskstats"


class DiskCounts(NamedTuple):
    """Eleven columns of /proc/diskstats behind the name; times in ms, all since boot but `in_flight`."""

    reads: int
    reads_merged: int
    sectors_read: int
    read_ms: int
    writes: int
    writes_merged: int
    sectors_written: int
    write_ms: int
    in_flight: int
    busy_ms: int
    weighted_ms: int  # ms * requests in flight


def read_diskstats(ctx: Context, wanted: Collection[str] | None = None) -> dict[str, DiskCounts]:
    """Counters since boot by device, of all or of the `wanted` ones."""
    table = {}
    for line in (ctx.read("/proc/diskstats") or "").splitlines():
        fields = line.split()
        if len(fields) < 14 or (wanted is not None and fields[2] not in wanted):
            continue
        numbers = wholes(fields[3:14])
        if numbers is not None:
            table[fields[2]] = DiskCounts(*numbers)
    return table


def disks_behind(ctx: Context, paths: tuple[str, ...], names: dict[str, DiskCounts]) -> set[str]:
    """The disks that hold `paths`. If one has no disk of its own (overlay in a container), all disks of the host."""
    mounts = read_mounts(ctx, "self")
    found: set[str] = set()
    for path in paths:
        mount = mount_of(real_path(ctx, path, mounts), mounts)
        disks = disks_of(ctx, mount, names) if mount is not None else set()
        if not disks and (mount is None or mount.kind == "overlay"):
            disks = whole_disks(ctx, names)
        found |= disks
    return found or whole_disks(ctx, names)


def _ours(key: str, unit: str, formula: str, *, kind: Kind = Kind.INTERVAL) -> Metric:
    test = _TEST + "test_how_busy_a_disk_is"
    return Metric("disk.{device}." + key, unit, _SOURCE, formula, kind, Origin.OURS, "extended", test)


class DiskIoProbe(Probe):
    """`disk.in`, `disk.out` and `disk.{device}.in|out`: MiB read from and written to disk; `extended` adds to these."""

    name = "disk_io"
    metrics: ClassVar = (
        Metric(
            "disk.in",
            "MiB",
            _SOURCE,
            "sectors read * 512, summed over the disks behind the paths",
            Kind.TOTAL,
            test=_TEST + "test_disk_io_watches_the_disk_behind_each_path",
        ),
        Metric(
            "disk.out",
            "MiB",
            _SOURCE,
            "sectors written * 512, summed over the disks behind the paths",
            Kind.TOTAL,
            test=_TEST + "test_disk_io_watches_the_disk_behind_each_path",
        ),
        Metric(
            "disk.{device}.in",
            "MiB",
            _SOURCE,
            "the same of each disk; partitions, volumes and RAIDs count on their disks",
            Kind.TOTAL,
            Origin.PEER,
            test=_TEST + "test_disk_io_watches_the_disk_behind_each_path",
        ),
        Metric(
            "disk.{device}.out",
            "MiB",
            _SOURCE,
            "the same of each disk",
            Kind.TOTAL,
            Origin.PEER,
            test=_TEST + "test_disk_io_watches_the_disk_behind_each_path",
        ),
        _ours("readRate", "bytes/s", "sectors read * 512 / time"),
        _ours("writeRate", "bytes/s", "sectors written * 512 / time"),
        _ours("iops", "1/s", "(reads + writes completed) / time"),
        _ours("utilPercent", "%", "time with a request in flight / time"),
        _ours("awaitMs", "ms", "time that requests took / requests completed; absent if there were none"),
        _ours("queue", "count", "requests in flight, mean over the interval"),
    )

    def __init__(self) -> None:
        self._disks: set[str] = set()
        self._looked: int | None = None  # tick
        self._read, self._written = Totals[str](), Totals[str]()
        self._rises = Rises[tuple[str, str]]()

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/diskstats") else "no /proc/diskstats"

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A disk that vanished keeps its total in the sum and has no key of its own; new ones are looked for."""
        look = self._looked is None or ctx.tick - self._looked >= LIMITS_EVERY
        table = read_diskstats(ctx, None if look else self._disks)
        if not table:
            return
        if look:
            self._looked = ctx.tick
            self._disks |= disks_behind(ctx, ctx.settings.disk_paths, table)
        present = {disk: table[disk] for disk in self._disks if disk in table}
        self._read.update({disk: counts.sectors_read for disk, counts in present.items()})
        self._written.update({disk: counts.sectors_written for disk, counts in present.items()})
        for disk, counts in present.items():
            out[f"disk.{disk}.in"] = self._read.risen[disk] * SECTOR / MIB
            out[f"disk.{disk}.out"] = self._written.risen[disk] * SECTOR / MIB
            if ctx.settings.extended:
                self._sample_load(disk, counts, ctx.now, out)
        if self._disks:
            out["disk.in"] = self._read.total * SECTOR / MIB
            out["disk.out"] = self._written.total * SECTOR / MIB

    def _sample_load(self, disk: str, counts: DiskCounts, now: float, out: Values) -> None:
        def per_second(name: str, raw: int) -> float | None:
            return self._rises.per_second((disk, name), raw, now)

        iops = per_second("requests", counts.reads + counts.writes)
        waited = per_second("waited", counts.read_ms + counts.write_ms)
        busy = per_second("busy", counts.busy_ms)
        queue = per_second("queue", counts.weighted_ms)
        found = {
            "readRate": per_second("read", counts.sectors_read * SECTOR),
            "writeRate": per_second("written", counts.sectors_written * SECTOR),
            "iops": iops,
            "utilPercent": busy / 10 if busy is not None else None,  # ms per s
            "awaitMs": waited / iops if iops and waited is not None else None,
            "queue": queue / 1000 if queue is not None else None,
        }
        out.update({f"disk.{disk}.{key}": value for key, value in found.items() if value is not None})
