"""What each probe finds here, why not, and what it costs: each on a thread of its own, all of them within a bound."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from . import registry
from .cgroup import find_limits, logical_cpus, read_meminfo
from .context import Context
from .environment import context_facts, host_facts
from .gathering import Gathering
from .interpreter import interpreter
from .machine import limits_told, machine_facts
from .misfits import misfits
from .probe import Probe, ProbeUnavailableError, Tier, Values, in_one_line, in_words
from .registry import unknown_probes
from .settings import SamplerSettings

WITHIN = 10.0  # s for all
PAUSE = 0.25  # s between two samples, which rates need
_ON_REQUEST = "only with"  # how probes say that they run on request
_PARTING = 0.5  # s for what was left behind to end
_LOOK_EVERY = 0.25  # s between two looks whether a helper process has ended
_SHM = "/dev/shm"  # noqa: S108 - it is looked at
_SMALL_SHM = 64 << 20  # bytes; what container engines give unless told otherwise
_LITTLE_DISK = 1 << 30  # bytes


@dataclass
class Finding:
    """What came of one probe."""

    probe: str
    """Its name, with the source's where there are several."""
    tier: str
    """Where a sampler runs it: inline, thread or helper."""
    state: str = "hangs"
    """ok, off (it runs on request), absent (its source is not here), failed, or hangs."""
    why: str = "while it was loaded"
    """What is missing, went wrong or does not answer; of ok what there is to say of it, mostly nothing."""
    keys: tuple[str, ...] = ()
    open_ms: float | None = None
    """Milliseconds, of wall time: to find and open the source; a helper's start included."""
    sample_ms: float | None = None
    """Of the second sample."""

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return {"type": "probe", **asdict(self)}

    def end(self, state: str, why: str = "") -> None:
        """It has come to this."""
        self.state, self.why = state, in_one_line(why)


class Checkup(NamedTuple):
    """All that was found, and what to think of."""

    findings: list[Finding]
    limits: dict[str, Any]
    """What binds the process: `cpus`, and where set `cpu_quota` and `memory`; `host_cpus`, `host_memory` (bytes)."""
    warnings: list[str]

    @property
    def healthy(self) -> bool:
        """Whether all sources that are here can be read."""
        return all(finding.state in {"ok", "off", "absent"} for finding in self.findings)


def check(
    settings: SamplerSettings,
    *,
    root: str = "/",
    within: float = WITHIN,
    folder: str = ".",
    probes: Iterable[Probe] | None = None,
) -> Checkup:
    """Try every probe once, as a sampler would, and look at what bounds this process.

    Args:
        settings: which probes, and how; their least intervals are passed over.
        root: where the machine is looked at.
        within: seconds; what has not answered by then is said to hang, and is left behind.
        folder: where logs are to go.
        probes: those to try; all that the settings choose unless given.
    """
    deadline = time.monotonic() + within
    found: list[Finding] = []
    if probes is None:
        probes = _loaded(settings, found, within / 2)
    patients = [_Patient(probe, settings, root) for probe in probes]
    gathering = Gathering({f"{number} {one.finding.probe}": one.examine for number, one in enumerate(patients)})
    ctx = Context(settings, root=root)
    place = Path(_absolute(folder) or os.sep)
    facts = Gathering(
        {
            **context_facts(argv=sys.argv, started_at_ns=0, folder=place, environ=os.environ),
            **host_facts(ctx),
            **machine_facts(ctx, os.environ, [str(place)]),
        }
    )
    bounds = Gathering(
        {"limits": lambda: {"limits": _limits(ctx)}, "warnings": lambda: {"warnings": _warnings(ctx, folder)}}
    )
    gathering.take(deadline - time.monotonic())
    found += [replace(patient.finding) for patient in patients]  # as it is now: what hangs may yet go on
    for patient in patients:
        patient.leave()
    gathering.take(_PARTING)  # commands that were still out are being ended
    misfit = [*unknown_probes(settings, known_probes()), *misfits(ctx)]
    found_out = bounds.take(max(0.1, deadline - time.monotonic()))
    facts.take(max(0.1, deadline - time.monotonic()))
    unknown = [f"{name} cannot be told: {why}" for name, why in bounds.missing.items()]
    unknown += [f"a run's record of the machine will lack this: {name}: {why}" for name, why in facts.missing.items()]
    for finding in found:
        if finding.state == "hangs" and finding.why.startswith("while"):
            finding.why = f"no answer within {within:g} s, {finding.why}"
    return Checkup(found, found_out.get("limits", {}), [*misfit, *found_out.get("warnings", ()), *unknown])


def known_probes() -> list[str]:
    """The names of all probes: ours, and those of other packages."""
    from importlib.metadata import entry_points

    return sorted({*registry.BUILT_IN, *(entry.name for entry in entry_points(group=registry.ENTRY_POINTS))})


def _loaded(settings: SamplerSettings, found: list[Finding], within: float) -> list[Probe]:
    """The probes that the settings choose; what cannot be loaded is a finding."""
    from importlib.metadata import entry_points

    loaders: dict[str, Callable[[], type[Probe]]] = {
        name: partial(registry.load, reference) for name, reference in registry.BUILT_IN.items()
    }
    for entry in entry_points(group=registry.ENTRY_POINTS):
        loaders.setdefault(entry.name, entry.load)
    wanted = {name: loader for name, loader in loaders.items() if registry.chosen(settings, name)}

    def load(name: str) -> dict[str, list[Probe]]:
        return {name: list(wanted[name]().instances(settings))}

    gathering = Gathering({name: partial(load, name) for name in wanted})
    loaded = gathering.take(within)
    for name, why in gathering.missing.items():
        hangs = name not in gathering.seconds
        found.append(Finding(name, "", "hangs" if hangs else "failed", why if hangs else f"it cannot be loaded: {why}"))
    return [probe for name in wanted for probe in loaded.get(name, ())]


class _Patient:
    """One probe being tried, on a thread of its own."""

    def __init__(self, probe: Probe, settings: SamplerSettings, root: str) -> None:
        self._probe = probe
        self._settings = replace(settings, probe_intervals={probe.name: 0.0})
        self._ctx = Context(self._settings, root=root)
        self._runner: Any = None  # of a helper process
        self._left = False
        self.finding = Finding(probe.label, probe.tier.name.lower())

    def leave(self) -> None:
        """Wait no longer; a child process that is still there ends."""
        self._left = True
        self._ctx.closing.set()
        if self._runner is not None:
            self._runner.close(1.0)

    def examine(self) -> Mapping[str, Any]:
        finding, probe = self.finding, self._probe
        finding.why = "while its source was looked for"
        begun = time.perf_counter()
        self._ctx.begin(time.monotonic())
        try:
            reason = probe.discover(self._ctx)
            if reason is not None:
                finding.end("off" if reason.startswith(_ON_REQUEST) else "absent", reason)
            elif probe.tier is Tier.HELPER:
                self._examine_in_helper(begun)
            else:
                self._examine_here(begun)
        except ProbeUnavailableError as error:
            finding.end("absent", str(error))
        except Exception as error:  # what a probe raises is what is asked for
            finding.end("failed", in_words(error))
        return {}

    def _examine_here(self, begun: float) -> None:
        finding, probe, values = self.finding, self._probe, dict[str, "int | float"]()
        finding.why = "while it was opened"
        try:
            probe.open(self._ctx)
            finding.open_ms = _since(begun)
            finding.why = "while it was sampled"
            for last in (False, True):
                self._ctx.begin(time.monotonic())
                begun = time.perf_counter()
                probe.sample(self._ctx, values)
                finding.sample_ms = _since(begun)
                if not last:
                    self._ctx.closing.wait(PAUSE)
            self._conclude(values)
        finally:
            probe.close()

    def _examine_in_helper(self, begun: float) -> None:
        from .supervisor import HelperRunner

        finding, ready, values = self.finding, threading.Condition(), dict[str, "int | float"]()
        finding.why = "while it was opened in its helper process"
        runner = self._runner = HelperRunner(self._probe, self._ctx, ready)

        def until(done: Callable[[], bool]) -> None:
            """Wait; `request` notices the end of the process."""
            while not done() and not self._left:
                with ready:
                    ready.wait_for(done, _LOOK_EVERY)
                if not done():
                    runner.request(time.monotonic())

        runner.request(time.monotonic())
        until(lambda: not runner.opening)
        if runner.reason is None and runner.stats.last_error is None:
            finding.open_ms = _since(begun)
            finding.why = "while it was sampled in its helper process"
            for last in (False, True):
                runner.request(time.monotonic())
                until(lambda: not runner.waiting)
                values.update(runner.take(time.monotonic()))
                if not last:
                    self._ctx.closing.wait(PAUSE)
            finding.sample_ms = 1000 * runner.stats.duration
        if self._left:  # it did not answer: as it stands
            return
        if runner.reason is not None:
            finding.end("failed" if runner.loud else "absent", runner.reason)
        elif runner.stats.last_error is not None:
            finding.end("failed", runner.stats.last_error)
        else:
            self._conclude(values)
        runner.close(1.0)

    def _conclude(self, values: Values) -> None:
        self.finding.keys = tuple(sorted(values))
        notices = "; ".join(self._probe.notices)
        if values:
            self.finding.end("ok", notices)
        elif notices:
            self.finding.end("failed", notices)
        else:
            self.finding.end("absent", "it is here, and has nothing to tell")


def _since(begun: float) -> float:
    return 1000 * (time.perf_counter() - begun)


def _limits(ctx: Context) -> dict[str, Any]:
    told = limits_told(find_limits(ctx, ctx.settings.pid, ignore=ctx.settings.no_cgroup))
    host = {"host_cpus": logical_cpus(ctx), "host_memory": read_meminfo(ctx).get("MemTotal")}
    return {name: value for name, value in {**told, **host}.items() if value}


def _warnings(ctx: Context, folder: str) -> list[str]:
    """What makes metrics less than they could be, or will stop a run, and what to do about it."""
    found = []
    if interpreter() is None:
        found.append(f"no helper process can be started, so there are no GPUs: sys.executable is {sys.executable!r}")
    if any(line.partition(" - ")[2].startswith("proc ") and "hidepid=" in line for line in _mount_lines(ctx)):
        found.append("/proc hides the processes of others (hidepid): of other users' processes nothing is known")
    if ctx.exists(_SHM):
        shm = os.statvfs(ctx.path(_SHM))
        if shm.f_blocks * shm.f_frsize <= _SMALL_SHM:
            found.append(f"{_SHM} is small: data loaders with workers fail; give the container more (--shm-size)")
    return [*found, *_of_the_folder(folder)]


def _of_the_folder(folder: str) -> Iterator[str]:
    """What stands against logs below `folder`. A run makes it where it is not there: then it is that which is above."""
    where = _absolute(folder)
    if where is None:
        yield f"{folder} takes no logs: the working directory is gone (--dir)"
        return
    while not os.path.lexists(where):
        where = os.path.dirname(where)  # noqa: PTH120 - as above
    if not os.path.isdir(where):  # noqa: PTH112 - as above
        yield f"{folder} takes no logs: {'it' if _same(where, folder) else where} is no folder (--dir)"
        return
    place = os.statvfs(where) if hasattr(os, "statvfs") else None
    if place is not None and place.f_bavail * place.f_frsize < _LITTLE_DISK:
        yield f"{folder} has {place.f_bavail * place.f_frsize >> 20} MiB left, for logs"
    if place is not None and place.f_files and not place.f_favail:
        yield f"{folder} takes no more files: its inodes are used up"
    if not os.access(where, os.W_OK | os.X_OK):
        place_of = "there" if _same(where, folder) else f"to {where}, where it is to be made"
        yield f"{folder} takes no logs: no permission to write {place_of} (--dir)"


def _absolute(folder: str) -> str | None:
    """Links are not resolved, nor is any file system asked; None where the working directory is gone."""
    try:
        return os.path.abspath(folder)  # noqa: PTH100 - see above
    except OSError:
        return None


def _same(where: str, folder: str) -> bool:
    return where == _absolute(folder)


def _mount_lines(ctx: Context) -> list[str]:
    return (ctx.read(f"/proc/{ctx.settings.pid}/mountinfo") or "").splitlines()
