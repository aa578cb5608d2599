"""Which CPUs and how much memory a process may really use: control groups v1 and v2, affinity, ancestors' limits.

A limit may sit on any directory between the process's own group and the mount point: Slurm puts it on the job, not
on the task; Kubernetes on the pod. The smallest one binds, and usage must be read from the directory that owns it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .mounts import Mount, is_below, read_mounts
from .tables import read_table, read_whole, whole

if TYPE_CHECKING:
    from .context import Context

_V1_NO_MEMORY_LIMIT = 1 << 60  # v1 writes LONG_MAX rounded down to a page for "none"


class MemoryLimit(NamedTuple):
    """A finite memory limit: `limit` bytes, set on `folder` of hierarchy `version`."""

    limit: int
    folder: str
    version: int


class CpuQuota(NamedTuple):
    """A finite CPU quota: `cpus` may be a fraction; set on `folder`."""

    cpus: float
    folder: str


class Group(NamedTuple):
    """A control group: its directory, in a hierarchy of `version`."""

    folder: str
    version: int


class Limits(NamedTuple):
    """What binds a process. `cpus` is the smallest of quota, affinity and CPUs of the host; None if nothing tells."""

    cpus: float | None
    quota: CpuQuota | None
    memory: MemoryLimit | None
    groups: Groups | None = None
    """The groups that it is in; None if they are to be ignored."""


def count_cpus(text: str) -> int:
    """How many CPUs a list such as `0-7,16-23` names; 0 for an empty or broken list."""
    count = 0
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        try:
            count += int(last or first) - int(first) + 1
        except ValueError:
            return 0
    return max(count, 0)  # a range that runs backwards is no range


def _folders(ctx: Context, mount: Mount, path: str) -> list[str]:
    """The group's directory and its ancestors up to the mount point, the group first.

    `path` lies outside the mount in a cgroup namespace (`/../..`) or under another root: then the mount point is
    the nearest directory that can be seen.
    """
    relative = ""
    if ".." not in path.split("/") and is_below(path, mount.root):
        relative = path[len(mount.root.rstrip("/")) :].strip("/")
    if relative and not ctx.exists(f"{mount.point}/{relative}"):
        relative = ""
    folders = [mount.point]
    for part in relative.split("/") if relative else ():
        folders.append(f"{folders[-1]}/{part}")
    return folders[::-1]


class Groups:
    """The directories of one process, per controller, whichever version serves it (hybrid hosts have both)."""

    def __init__(self, ctx: Context, pid: int) -> None:
        self._ctx = ctx
        self._paths: dict[str, str] = {}
        for line in (ctx.read(f"/proc/{pid}/cgroup") or "").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            for controller in controllers.split(","):
                self._paths[controller] = path
        self._mounts = read_mounts(ctx, pid)

    @property
    def known(self) -> bool:
        """Whether the process tells: one that has ended sees no mounts any more, even while it is not reaped."""
        return bool(self._mounts)

    def folders(self, controller: str) -> tuple[int, list[str]]:
        """(version, directories from the group up to the mount point); (0, []) where it is not mounted."""
        if controller in self._paths:
            for mount in self._mounts:
                if mount.kind == "cgroup" and controller in mount.options:
                    return 1, _folders(self._ctx, mount, self._paths[controller])
        if "" in self._paths:
            for mount in self._mounts:
                if mount.kind == "cgroup2":
                    return 2, _folders(self._ctx, mount, self._paths[""])
        return 0, []

    def own(self, controller: str = "") -> Group | None:
        """The group of the process itself; without a controller that of version 2, where pressure is told."""
        version, folders = self.folders(controller)
        return Group(folders[0], version) if folders else None


def _memory_limit(ctx: Context, groups: Groups) -> MemoryLimit | None:
    version, folders = groups.folders("memory")
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    found = [
        MemoryLimit(limit, folder, version)
        for folder in folders
        if (limit := read_whole(ctx, f"{folder}/{name}")) is not None and limit > 0
    ]
    binding = min(found, default=None)
    if binding is None or binding.limit >= _V1_NO_MEMORY_LIMIT:
        return None
    total = read_meminfo(ctx, ("MemTotal",)).get("MemTotal")
    return None if total is not None and binding.limit >= total else binding


def _quota(ctx: Context, folder: str, version: int) -> float | None:
    """CPUs' worth of time per period that `folder` grants, None if unlimited."""
    if version == 2:
        fields = (ctx.read(f"{folder}/cpu.max") or "").split()
        quota, period = (whole(field) for field in (*fields, "", "")[:2])
    else:
        quota, period = (read_whole(ctx, f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota / period if quota and period and min(quota, period) > 0 else None  # v1 writes -1 for "none"


def _cpu_quota(ctx: Context, groups: Groups) -> CpuQuota | None:
    version, folders = groups.folders("cpu")
    found = [CpuQuota(cpus, folder) for folder in folders if (cpus := _quota(ctx, folder, version)) is not None]
    return min(found, default=None)


def _cpuset(ctx: Context, groups: Groups) -> int:
    """CPUs of the nearest cpuset that says so; 0 if none does."""
    _, folders = groups.folders("cpuset")
    for folder in folders:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            count = count_cpus(ctx.read(f"{folder}/{name}") or "")
            if count:
                return count
    return 0


def _affinity(ctx: Context, pid: int) -> int:
    for line in (ctx.read(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return count_cpus(line.partition(":")[2])
    return 0


def logical_cpus(ctx: Context) -> int:
    """CPUs that are online on the host."""
    return count_cpus(ctx.read("/sys/devices/system/cpu/online") or "") or (
        os.cpu_count() or 1 if ctx.root == "/" else 0
    )


def find_limits(ctx: Context, pid: int, *, ignore: bool) -> Limits:
    """The limits of process `pid`; with `ignore`, only affinity and the host's CPUs count."""
    counts: list[float] = [_affinity(ctx, pid), logical_cpus(ctx)]
    quota = memory = groups = None
    if not ignore:
        groups = Groups(ctx, pid)
        quota, memory = _cpu_quota(ctx, groups), _memory_limit(ctx, groups)
        counts += [_cpuset(ctx, groups), quota.cpus if quota else 0]
    return Limits(min((count for count in counts if count > 0), default=None), quota, memory, groups)


def read_meminfo(ctx: Context, names: tuple[str, ...] = ()) -> dict[str, int]:
    """/proc/meminfo in bytes; with `names` only lines that begin with one of them."""
    table = {}
    for line in (ctx.read("/proc/meminfo") or "").splitlines():
        if names and not line.startswith(names):
            continue
        name, _, rest = line.partition(":")
        fields = rest.split()
        number = whole(fields[0]) if fields else None
        if number is not None:
            table[name] = number * (1024 if fields[-1] == "kB" else 1)
    return table


def memory_use(ctx: Context, group: MemoryLimit | Group) -> int | None:
    """Bytes charged to the group now, page cache included; None if it is gone."""
    return read_whole(ctx, f"{group.folder}/{'memory.current' if group.version == 2 else 'memory.usage_in_bytes'}")


def page_cache(ctx: Context, group: MemoryLimit | Group) -> tuple[int | None, int | None]:
    """(page cache in all, that of it which is easily reclaimed) in bytes, of the group with those below it."""
    names = ("file", "inactive_file") if group.version == 2 else ("cache", "total_cache", "total_inactive_file")
    stat = read_table(ctx.read(f"{group.folder}/memory.stat"), names=names)
    if group.version == 2:
        return stat.get("file"), stat.get("inactive_file")
    return stat.get("total_cache", stat.get("cache")), stat.get("total_inactive_file")


def oom_kills(ctx: Context, group: MemoryLimit | Group) -> int | None:
    """Processes that the kernel killed in the group since it exists."""
    name = "memory.events" if group.version == 2 else "memory.oom_control"
    return read_table(ctx.read(f"{group.folder}/{name}")).get("oom_kill")


class Throttling(NamedTuple):
    """Since the group exists: periods that passed, those in which it was held back, and for how many ms."""

    periods: int
    throttled: int
    milliseconds: float | None


def throttling(ctx: Context, quota: CpuQuota) -> Throttling | None:
    """How the group that owns the quota was held back; None where nothing tells."""
    stat = read_table(ctx.read(f"{quota.folder}/cpu.stat"))
    if "nr_periods" not in stat or "nr_throttled" not in stat:
        return None
    held = stat["throttled_usec"] / 1e3 if "throttled_usec" in stat else None  # version 2: us, version 1: ns
    held = stat["throttled_time"] / 1e6 if "throttled_time" in stat else held
    return Throttling(stat["nr_periods"], stat["nr_throttled"], held)
