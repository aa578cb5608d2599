"""The monitored process and its descendants, from /proc."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .tables import read_table, whole

if TYPE_CHECKING:
    from .context import Context

MOST_PROCESSES = 4096  # a fork bomb must not hold the sampler
LONGEST_WALK = 2.0  # s; what was found until then is used


class Process(NamedTuple):
    """One line of /proc/<pid>/stat. CPU times in clock ticks (USER_HZ), `rss` in pages, of `statm` where it is there.

    Newer kernels count pages by CPU; `stat` leaves out what a CPU has not handed in yet, megabytes on large hosts.
    """

    pid: int
    parent: int
    started: int  # clock ticks after boot; with the pid it names a process for ever
    cpu: int  # user + system time of its own
    reaped: int  # the same of children it has waited for, theirs included
    threads: int
    rss: int
    name: str = ""  # at most 15 bytes, as the program or it itself says
    state: str = ""  # R runs, S sleeps, D waits for a disk or a device, Z has ended, ...
    faults: int = 0  # pages that had to be read from disk
    reaped_faults: int = 0  # the same of children it has waited for

    @property
    def alive(self) -> bool:
        """Whether it has not ended; of one that has, until it is reaped, CPU times are all that is left."""
        return self.state not in {"Z", "X"}

    @property
    def key(self) -> Key:
        """What names it for ever: pids are used again."""
        return self.pid, self.started


Key = tuple[int, int]  # pid, start


class Use(NamedTuple):
    """What a process has used of something since it began."""

    parent: int
    own: int
    reaped: int  # of children it has waited for, theirs included; a source may not tell it from its own


class Ended(NamedTuple):
    """A process at its end: what it has used in all."""

    process: Process
    io: Mapping[str, int]
    """/proc/<pid>/io; empty where it cannot be read."""


_NOTHING = Use(0, 0, 0)
_ended: deque[Ended] = deque(maxlen=256)  # programs that this process ran


def note_end(pid: int) -> None:
    """Keep what a program of the sampler's has used that has ended and is not reaped yet: its parent is given it then.

    Raises:
        OSError: there is no /proc, or no such process in it; ValueError, IndexError: what stands there is torn.
    """
    folder = Path("/proc", str(pid))
    process = parse_stat((folder / "stat").read_text())
    try:
        io = (folder / "io").read_text()
    except OSError:  # a kernel without accounting, a program of another user
        io = ""
    _ended.append(Ended(process, read_table(io, ":")))


def cpu_use(processes: Iterable[Process]) -> dict[Key, Use]:
    """CPU time of processes in clock ticks, for a `TreeCounter`."""
    return {process.key: Use(process.parent, process.cpu, process.reaped) for process in processes}


class TreeCounter:
    """What a changing set of processes used between two readings.

    Children that were born and died in between count too, by what their parent reaped; what was already counted
    while they lived is then not counted again.
    """

    def __init__(self) -> None:
        self._last: Mapping[Key, Use] = {}
        self._newest = -1  # start of the youngest process seen: a later one began after the last reading
        self._ended: set[Key] = set()  # of those to be left out that have ended, what was taken into account

    def rise(
        self, counted: Mapping[Key, Use], others: Mapping[Key, Use], ended: Mapping[Key, Use] | None = None
    ) -> int | None:
        """What `counted` used since the last call; None on the first, or if nothing is there to compare with.

        `others` are children that are not to be counted, also once they were reaped. `ended` has the whole use of such
        that have been, where that is known: they may never have been seen alive.
        """
        now = {**counted, **others}
        last, self._last = self._last, now
        newest, self._newest = self._newest, max((started for _, started in now), default=self._newest)
        reaped = {key: use for key, use in (ended or {}).items() if key not in now}
        fresh, self._ended = reaped.keys() - self._ended, set(reaped)
        if not any(key in last for key in counted):
            return None
        gone = _counted_of_the_gone(last, now)
        for key in fresh:
            use, seen = reaped[key], last.get(key, _NOTHING)
            gone[use.parent] = gone.get(use.parent, 0) + use.own + use.reaped - seen.own - seen.reaped
        total = 0
        for key, use in counted.items():
            before = last.get(key)
            if before is not None:
                total += max(0, use.own - before.own) + max(0, use.reaped - before.reaped - gone.get(key[0], 0))
            elif key[1] > newest:
                total += use.own + use.reaped
        return total


def _counted_of_the_gone(last: Mapping[Key, Use], now: Mapping[Key, Use]) -> dict[int, int]:
    """By pid: what of its reaped descendants had been counted while they lived.

    Whole branches end at once (a launcher with its workers): the nearest ancestor that lives has reaped them all.
    """
    parents = {pid: use.parent for (pid, _), use in last.items()}
    alive = {pid for pid, _ in now}
    gone: dict[int, int] = {}
    for key, use in last.items():
        if key in now:
            continue
        heir, seen = use.parent, {key[0]}
        while heir not in alive and heir in parents and heir not in seen:
            seen.add(heir)
            heir = parents[heir]
        gone[heir] = gone.get(heir, 0) + use.own + use.reaped
    return gone


class Snapshot(NamedTuple):
    """The processes of one tick: those to be counted, and those that the sampler started."""

    counted: list[Process]
    own: list[Process]
    own_ended: list[Ended]
    """The last of these that have ended."""


def parse_stat(text: str) -> Process:
    """Read /proc/<pid>/stat; the command name may hold spaces and brackets. ValueError or IndexError if torn."""
    name_end = text.rindex(")")
    fields = text[name_end + 2 :].split()
    return Process(
        pid=int(text[: text.index("(")]),
        parent=int(fields[1]),
        started=int(fields[19]),
        cpu=int(fields[11]) + int(fields[12]),
        reaped=int(fields[13]) + int(fields[14]),
        threads=int(fields[17]),
        rss=int(fields[21]),
        name=text[text.index("(") + 1 : name_end],
        state=fields[0],
        faults=int(fields[9]),
        reaped_faults=int(fields[10]),
    )


def read_process(ctx: Context, pid: int) -> Process | None:
    """The process, perhaps one that has ended and is not reaped yet; None if there is none."""
    text = ctx.read(f"/proc/{pid}/stat")
    if text is None:
        return None
    try:
        return parse_stat(text)
    except (ValueError, IndexError):
        return None


def _resident(ctx: Context, process: Process) -> int:
    fields = (ctx.read(f"/proc/{process.pid}/statm") or "").split(maxsplit=2)
    pages = whole(fields[1]) if len(fields) > 1 else None
    return process.rss if pages is None else pages


def _children_by_thread(ctx: Context, pid: int) -> Iterator[int]:
    for thread in ctx.list(f"/proc/{pid}/task"):
        for child in (ctx.read(f"/proc/{pid}/task/{thread}/children") or "").split():
            if (number := whole(child)) is not None:
                yield number


def _children_by_scan(ctx: Context) -> dict[int, list[int]]:
    """Children of every process: for kernels without CONFIG_PROC_CHILDREN; reads all of /proc."""
    children: dict[int, list[int]] = {}
    for name in ctx.list("/proc"):
        process = read_process(ctx, int(name)) if name.isascii() and name.isdecimal() else None
        if process is not None:
            children.setdefault(process.parent, []).append(process.pid)
    return children


def walk(ctx: Context, pid: int, skip: Collection[int] = ()) -> Iterator[int]:
    """`pid` and its descendants breadth first, without those in `skip` and what is below them.

    Notes in `ctx.cut` why some are left out.
    """
    scan = None if ctx.exists(f"/proc/{pid}/task/{pid}/children") else _children_by_scan(ctx)
    deadline = time.monotonic() + LONGEST_WALK
    queue, seen = [pid], {pid, *skip}
    for found in queue:
        yield found
        if len(seen) >= MOST_PROCESSES:
            ctx.cut = f"process {pid} has more than {MOST_PROCESSES:,} descendants"
            return
        if time.monotonic() > deadline:
            ctx.cut = f"finding the descendants of process {pid} takes longer than {LONGEST_WALK:g} s"
            return
        children = _children_by_thread(ctx, found) if scan is None else scan.get(found, ())
        for child in children:
            if child not in seen:
                seen.add(child)
                queue.append(child)


def snapshot(ctx: Context, pid: int, *, tree: bool, own: Collection[int]) -> Snapshot:
    """Read the processes to be counted; empty if `pid` is gone. `own` are helpers: read, but never counted."""
    helpers = tuple(own)
    pids = walk(ctx, pid, helpers) if tree else iter((pid,))
    counted = [
        process._replace(rss=_resident(ctx, process))
        for process in (read_process(ctx, each) for each in pids)
        if process is not None
    ]
    found = [process for process in (read_process(ctx, each) for each in helpers) if process is not None]
    return Snapshot(counted, found, list(_ended))
