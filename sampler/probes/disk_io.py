"""Bytes read and written by the disks behind the given paths, since the sampler started."""

from __future__ import annotations

from ..context import Context
from ..counter import Counter
from ..mounts import disk_of, mount_of, read_mounts, whole_disks
from ..probe import Probe, Values

SECTOR = 512  # bytes; the unit of diskstats whatever the disk's own sector size
MIB = 1 << 20
_READ, _WRITTEN = 5, 9  # columns of diskstats: sectors read, sectors written


def read_diskstats(ctx: Context) -> dict[str, tuple[int, int]]:
    """Bytes (read, written) since boot by device."""
    table = {}
    for line in (ctx.read("/proc/diskstats") or "").splitlines():
        fields = line.split()
        if len(fields) > _WRITTEN:
            table[fields[2]] = (int(fields[_READ]) * SECTOR, int(fields[_WRITTEN]) * SECTOR)
    return table


def disks_behind(ctx: Context, paths: tuple[str, ...], names: list[str]) -> list[str]:
    """The disks that hold `paths`. If one has no disk of its own (overlay in a container), all disks of the host."""
    mounts = read_mounts(ctx, "self")
    found: set[str] = set()
    for path in paths:
        mount = mount_of(path, mounts)
        disk = disk_of(ctx, mount.device) if mount is not None else None
        if disk is not None:
            found.add(disk)
        elif mount is None or mount.kind == "overlay":
            found.update(whole_disks(ctx, names))
    return sorted(found & set(names) or whole_disks(ctx, names))


class DiskIoProbe(Probe):
    """`disk.in`, `disk.out` and `disk.{device}.in|out`: MiB read from and written to disk."""

    name = "disk_io"
    prefixes = ("disk.",)

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Counter, Counter]] = {}

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/diskstats") else "no /proc/diskstats"

    def open(self, ctx: Context) -> None:
        """Choose the disks and take the baseline."""
        names = list(read_diskstats(ctx))
        self._counters = {disk: (Counter(), Counter()) for disk in disks_behind(ctx, ctx.settings.disk_paths, names)}
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A disk that vanished keeps its total in the sum and has no key of its own."""
        table = read_diskstats(ctx)
        for disk, counters in self._counters.items():
            if disk in table:
                for name, counter, raw in zip(("in", "out"), counters, table[disk], strict=True):
                    out[f"disk.{disk}.{name}"] = counter.since_first(raw) / MIB
        if self._counters:
            read, written = zip(*self._counters.values(), strict=True)
            out["disk.in"] = sum(counter.total for counter in read) / MIB
            out["disk.out"] = sum(counter.total for counter in written) / MIB
