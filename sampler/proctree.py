"""The monitored process and its descendants, from /proc."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import Context

MOST_PROCESSES = 4096  # a fork bomb must not hold the sampler
LONGEST_WALK = 2.0  # s; what was found until then is used


class Process(NamedTuple):
    """One line of /proc/<pid>/stat. CPU times in clock ticks (USER_HZ), `rss` in pages."""

    pid: int
    parent: int
    started: int  # clock ticks after boot; with the pid it names a process for ever
    cpu: int  # user + system time of its own
    reaped: int  # the same of children it has waited for, theirs included
    threads: int
    rss: int


class Snapshot(NamedTuple):
    """The processes of one tick: those to be counted, and the sampler's own helpers."""

    counted: list[Process]
    own: list[Process]


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
    )


def _process(ctx: Context, pid: int) -> Process | None:
    text = ctx.read(f"/proc/{pid}/stat")
    if text is None:
        return None
    try:
        return parse_stat(text)
    except (ValueError, IndexError):
        return None


def _children_by_thread(ctx: Context, pid: int) -> Iterator[int]:
    for thread in ctx.list(f"/proc/{pid}/task"):
        for child in (ctx.read(f"/proc/{pid}/task/{thread}/children") or "").split():
            yield int(child)


def _children_by_scan(ctx: Context) -> dict[int, list[int]]:
    """Children of every process: for kernels without CONFIG_PROC_CHILDREN; reads all of /proc."""
    children: dict[int, list[int]] = {}
    for name in ctx.list("/proc"):
        process = _process(ctx, int(name)) if name.isdecimal() else None
        if process is not None:
            children.setdefault(process.parent, []).append(process.pid)
    return children


def walk(ctx: Context, pid: int, skip: Collection[int] = ()) -> Iterator[int]:
    """`pid` and its descendants breadth first, without those in `skip` and what is below them."""
    scan = None if ctx.exists(f"/proc/{pid}/task/{pid}/children") else _children_by_scan(ctx)
    deadline = time.monotonic() + LONGEST_WALK
    queue, seen = [pid], {pid, *skip}
    for found in queue:
        yield found
        if len(seen) >= MOST_PROCESSES or time.monotonic() > deadline:
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
    counted = [process for process in (_process(ctx, each) for each in pids) if process is not None]
    return Snapshot(counted, [process for process in (_process(ctx, each) for each in helpers) if process is not None])
