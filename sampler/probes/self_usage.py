"""What sampling and logging themselves use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, Values
from ..proctree import Process, TreeCounter, cpu_use, parse_stat

MIB = 1 << 20
OURS = "runferry"  # what the names of this package's threads begin with
_TEST = "tests/sampler/test_self_usage.py::"


class SelfUsageProbe(Probe):
    """`sampler.cpu`, `sampler.memory.rssMB`: the helpers and other programs that probes run, and the threads in this process.

    What the peer calls `wandb.cpu` and `wandb.memory.rssMB`, of its own processes.
    """

    name = "self_usage"
    metrics: ClassVar = (
        Metric(
            "sampler.cpu",
            "%",
            "/proc/{pid}/stat of helpers, /proc/self/task/{tid}/stat of the threads of this package",
            "CPU time since the last sample / time / CPUs available to the process",
            Kind.INTERVAL,
            Origin.OURS,
            setting="self_usage",
            test=_TEST + "test_helpers_and_threads_count",
        ),
        Metric(
            "sampler.memory.rssMB",
            "MiB",
            "/proc/{pid}/stat rss of helpers",
            "summed; what the threads use is the process's",
            origin=Origin.OURS,
            setting="self_usage",
            test=_TEST + "test_helpers_and_threads_count",
        ),
    )

    def __init__(self) -> None:
        self._tree = TreeCounter()
        self._last: float | None = None

    def discover(self, ctx: Context) -> str | None:
        """On request, on Linux."""
        if not ctx.settings.self_usage:
            return "only with the setting self_usage"
        return None if ctx.exists("/proc/stat") else "no /proc/stat"

    def sample(self, ctx: Context, out: Values) -> None:
        """CPU time over the time since the last sample."""
        processes = ctx.processes()
        helpers = processes.own
        ended = [each.process for each in processes.own_ended]  # their use rises no more
        ticks = self._tree.rise(cpu_use([*helpers, *_threads(ctx), *ended]), {})
        elapsed = ctx.now - self._last if self._last is not None else 0.0
        self._last = ctx.now
        cpus = ctx.limits().cpus
        if ticks is not None and elapsed > 0 and cpus:
            out["sampler.cpu"] = 100 * ticks / ctx.ticks_per_second / elapsed / cpus
        out["sampler.memory.rssMB"] = sum(process.rss for process in helpers) * ctx.page_size / MIB


def _threads(ctx: Context) -> Iterator[Process]:
    """Each thread of this package, as a process without children: its times are its own."""
    for thread in threading.enumerate():
        text = ctx.read(f"/proc/self/task/{thread.native_id}/stat") if thread.name.startswith(OURS) else None
        if text:
            yield parse_stat(text)._replace(reaped=0)
