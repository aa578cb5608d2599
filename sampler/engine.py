"""One tick: ask every probe, merge what arrived in time into one sample. Deadlines are the sampler's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import registry
from .clock import Clock
from .context import Context
from .keys import KeyTable
from .metric import Kind, Metric, Origin
from .misfits import idle_probes, misfits
from .probe import Probe, Tier, Values, in_one_line, in_words
from .runners import InlineRunner, Runner, ThreadRunner, answer_within
from .settings import SamplerSettings

OVERRUN = (
    0.5  # s; an inline probe that takes longer twice is moved to a thread. Waiting for a busy interpreter counts too
)
LONGEST_GRACE = 1.0  # s
ENDPOINTS = ("openmetrics", "dcgm_exporter")  # probes whose number of keys is up to somebody else
CROWDS = ("{interface}", "{mount}", "disk.{device}")  # in keys: of these a machine may have thousands
LEAST_CLOSE = 0.05  # s, for each child process to be killed, however long the others took
MOST_WARNINGS = 100  # of a run; what a probe has to say may change with each sample
SHORT_GRACE = 0.05  # s; for the first sample, and for the last, which must not hold up the end of a run

_TEST = "tests/sampler/test_engine.py::test_self_metrics"
SELF_METRICS = (
    Metric(
        "sampler.{probe}.durationMs",
        "ms",
        "perf_counter around the probe's call",
        "of the last sample",
        origin=Origin.OURS,
        test=_TEST,
    ),
    Metric(
        "sampler.{probe}.lagMs",
        "ms",
        "monotonic clock",
        "from asking a thread or a helper to the record with its values; of a call that is still out, if longer: so far",
        origin=Origin.OURS,
        test=_TEST,
    ),
    Metric(
        "sampler.{probe}.errors",
        "count",
        "the engine",
        "samples that failed, ends of its helper",
        kind=Kind.TOTAL,
        origin=Origin.OURS,
        test=_TEST,
    ),
    Metric(
        "sampler.{probe}.stalled",
        "0 or 1",
        "the engine",
        "1: a call has been out for longer than its period, within 1 s to 5 s",
        origin=Origin.OURS,
        test=_TEST,
    ),
)
"""What the engine adds of each probe that is here; on unless the setting says otherwise."""


class Sample(NamedTuple):
    """One record of system metrics: wall clock (ns since 1970, UTC) and finite numbers, sorted by key."""

    timestamp_ns: int
    values: dict[str, int | float]


class Engine:
    """The probes of one sampler and the clockwork around them; used by one thread.

    `emit` gets each sample. What it raises is counted and told once: sampling goes on.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        emit: Callable[[Sample], None],
        *,
        clock: Clock,
        root: str,
        warn: Callable[[str], None],
        probes: Iterable[Probe] | None = None,
    ) -> None:
        self._settings = settings
        self._emit = emit
        self._clock = clock
        self._tell = warn
        self._keys = KeyTable(label=settings.label, cap=settings.key_cap, warn=self._warn)
        self._ready = threading.Condition()
        self._ctx = Context(settings, root=root)
        self._given = probes
        self._of_others: set[int] = set()  # `id` of probes of other packages, which may not hash
        self._claims: dict[str, list[Runner]] = {}  # key of such a probe -> those of ours that declare it
        self._woken = False
        self._warned_of: set[str] = set()
        self.runners: list[Runner] = []
        self.absent: dict[str, str] = {}  # probe -> why its source is not here

    def open(self) -> None:
        """Open the inline probes and start the others."""
        self._ctx.begin(self._clock.monotonic())
        probes = self._given
        if probes is None:
            for line in (*misfits(self._ctx), *idle_probes(self._ctx)):
                self._warn(line)
        self._start(registry.built_in(self._settings, self._warn, root=self._ctx.root) if probes is None else probes)

    def open_third_party(self) -> None:
        """Join the probes of other packages; finding them takes a while."""
        if self._given is None:
            self._start(registry.third_party(self._settings, self._warn), of_others=True)

    def _start(self, probes: Iterable[Probe], *, of_others: bool = False) -> None:
        for probe in probes:
            label = type(probe).__name__  # of one that has no name
            try:
                label = probe.label
                reason = probe.discover(self._ctx)
                if reason is None:
                    self._of_others.update((id(probe),) if of_others else ())
                    self.runners.append(self._runner(probe))
                else:
                    self.absent[label] = reason
                    if probe.name in (self._settings.probes or ()):  # asked for by name
                        self._warn(f"probe {label} is left out: {reason}")
            except Exception as error:  # the other probes go on without it
                self.absent[label] = in_words(error)
                self._warn(f"probe {label} is left out: {in_words(error)}")

    def _runner(self, probe: Probe) -> Runner:
        if probe.tier is Tier.INLINE:
            return InlineRunner(probe, self._ctx)
        if probe.tier is Tier.HELPER:
            from .supervisor import HelperRunner  # loads subprocess, which most hosts never need

            return HelperRunner(probe, self._own_context(), self._ready)
        return ThreadRunner(probe, self._own_context(), self._ready)

    def _own_context(self) -> Context:
        return Context(self._settings, root=self._ctx.root, own_pids=self._ctx.own_pids)

    def tick(self, *, grace: float | None = None) -> None:
        """Sample and emit once. Deferred probes that do not answer within `grace` s are heard at the next tick.

        Unless given, the grace is a tenth of the interval, at most 1 s, and ends at `wake`.
        """
        now, timestamp = self._clock.monotonic(), self._clock.time_ns()
        self._ctx.begin(now)
        values: Values = {}
        deferred = [runner for runner in self.runners if not isinstance(runner, InlineRunner)]
        for runner in deferred:
            self._collect(runner, now, timestamp, values)
        asked = [runner for runner in deferred if runner.request(now)]
        for runner in self.runners:
            if isinstance(runner, InlineRunner):
                runner.overruns += runner.request(now) and runner.stats.duration > OVERRUN
                values.update(self._take(runner, now))
        hurried = grace is None
        longest = min(self._settings.interval / 10, LONGEST_GRACE) if grace is None else grace
        with self._ready:
            self._ready.wait_for(
                lambda: (hurried and self._woken) or not any(runner.waiting for runner in asked), longest
            )
        for runner in asked:
            self._collect(runner, now, timestamp, values)
        self._look_after_runners()
        if self._settings.self_metrics:
            self._sample_ourselves(self._clock.monotonic(), values)
        self._send(Sample(timestamp, self._keys.clean(values)))

    def _collect(self, runner: Runner, now: float, timestamp: int, values: Values) -> None:
        """Add what has arrived to `values`; an answer that belongs to an earlier tick is a sample of its own."""
        arrived = self._take(runner, now)
        if arrived:
            runner.stats.lag = self._clock.monotonic() - runner.asked_at
        late_by = now - runner.asked_at
        if arrived and late_by > self._settings.interval / 2:
            self._send(Sample(timestamp - round(late_by * 1e9), self._keys.clean(arrived)))
        else:
            values.update(arrived)

    def _take(self, runner: Runner, now: float) -> Values:
        """What has arrived, without what may not be in a record: see `KeyTable.guests`."""
        probe, arrived = runner.probe, runner.take(now)
        if id(probe) in self._of_others:
            return self._keys.guests({key: arrived[key] for key in arrived if not self._is_ours(key, probe)})
        if probe.name in ENDPOINTS:
            return self._keys.guests(arrived)
        if all(map(self._keys.final, arrived)):  # as at all ticks but the first
            return arrived
        forms = [metric for metric in probe.metrics if any(crowd in metric.key for crowd in CROWDS)]
        guests = {key: arrived[key] for key in arrived if any(form.matches(key) for form in forms)}
        kept = self._keys.guests(guests)
        return {key: arrived[key] for key in arrived if key not in guests or key in kept}

    def _is_ours(self, key: object, probe: Probe) -> bool:
        """Whether one of our probes, which is here, writes a key that a probe of others has written."""
        if not isinstance(key, str):
            return False
        if key not in self._claims:
            if len(self._claims) > self._settings.key_cap:  # a name at each sample has no end
                self._claims.clear()
            ours = [runner for runner in self.runners if id(runner.probe) not in self._of_others]
            self._claims[key] = [runner for runner in ours if self._declares(runner.probe, key)]
        claimed = [runner.probe.label for runner in self._claims[key] if runner.reason is None]
        if claimed:
            self._warn_once(
                f"claim {probe.label}",
                f"probe {probe.label}: keys that probe {claimed[0]} writes are left out, the first is {key!r}",
            )
        return bool(claimed)

    def _declares(self, probe: Probe, key: str) -> bool:
        return any(
            metric.matches(key)
            for metric in probe.metrics
            if key.startswith(metric.key.partition("{")[0])
            and (not metric.setting or getattr(self._settings, metric.setting))
        )

    def settle(self, timeout: float) -> bool:
        """Wait until no probe is opening any more, at most `timeout` s or until `wake`; whether one has opened."""
        opening = [runner for runner in self.runners if runner.opening]
        with self._ready:
            self._ready.wait_for(lambda: self._woken or not any(runner.opening for runner in opening), timeout)
        return any(runner.reason is None and not runner.opening for runner in opening)

    @property
    def idle(self) -> bool:
        """Whether no probe can deliver anything any more; from any thread."""
        return all(runner.reason is not None and not runner.broken for runner in list(self.runners))

    def wake(self) -> None:
        """End a wait in `settle`, now and later; from any thread."""
        with self._ready:
            self._woken = True
            self._ready.notify_all()

    def _send(self, sample: Sample) -> None:
        if not sample.values:
            return
        try:
            self._emit(sample)
        except Exception as error:  # the writer's trouble must not end sampling, and it tells its own story
            self._warn_once("emit", f"a sample could not be handed over: {in_words(error)}")

    def _look_after_runners(self) -> None:
        if self._ctx.cut:
            self._warn_once("cut", f"{self._ctx.cut}: metrics of processes leave some of them out")
        for index, runner in enumerate(self.runners):
            label = runner.probe.label
            self.absent.pop(label, None)
            if runner.reason is not None:
                self.absent[label] = runner.reason
                if runner.loud or runner.probe.name in (self._settings.probes or ()):  # asked for by name
                    self._warn_once(f"absent {label}", f"probe {label} is left out: {runner.reason}")
            if runner.stats.stalled:
                self._warn_once(f"stall {label}", f"probe {label} hangs; its metrics are missing until it answers")
            if runner.stats.errors and not self._told_as_stall(runner):
                self._warn_once(f"error {label}", f"probe {label} failed: {runner.stats.last_error}")
            for notice in runner.probe.notices:
                self._warn_once(f"notice {label} {notice}", f"probe {label}: {notice}")
            if isinstance(runner, InlineRunner) and runner.overruns > 1:
                with contextlib.suppress(RuntimeError):  # the system's bound of threads: it stays
                    self.runners[index] = self._moved_to_thread(runner)

    def _told_as_stall(self, runner: Runner) -> bool:
        """Whether the last error only ended a call that was said to hang, such as by a timeout of its own."""
        told = f"stall {runner.probe.label}" in self._warned_of
        return told and runner.stats.duration >= answer_within(runner.period)

    def _moved_to_thread(self, runner: InlineRunner) -> ThreadRunner:
        moved = ThreadRunner(runner.probe, self._own_context(), self._ready, opened=True)
        moved.stats = runner.stats
        return moved

    def _sample_ourselves(self, now: float, values: Values) -> None:
        for runner in self.runners:
            if runner.reason is not None:
                continue
            prefix, stats = f"sampler.{runner.probe.label}", runner.stats
            values[f"{prefix}.durationMs"] = 1000 * stats.duration
            values[f"{prefix}.errors"] = stats.errors
            values[f"{prefix}.stalled"] = stats.stalled
            if not isinstance(runner, InlineRunner):
                since = runner.waiting_since
                values[f"{prefix}.lagMs"] = 1000 * (stats.lag if since is None else max(stats.lag, now - since))

    def _warn(self, message: str) -> None:
        self._tell(in_one_line(message))

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned_of and len(self._warned_of) < MOST_WARNINGS:
            self._warned_of.add(about)
            self._warn(message)
            if len(self._warned_of) == MOST_WARNINGS:
                self._warn("nothing more is said of the probes of this run")

    def metadata(self) -> dict[str, Any]:
        """Fields for the hardware record, of the probes that have opened: counts of GPUs add up, other fields join."""
        merged: dict[str, Any] = {}
        for runner in list(self.runners):
            try:
                found = {} if runner.opening else dict(runner.metadata())
                count = merged.get("gpu_count", 0) + int(found.get("gpu_count", 0))
            except Exception as error:  # code of others: the other probes are told of all the same
                self._warn_once(
                    f"metadata {runner.probe.label}", f"probe {runner.probe.label} does not tell: {in_words(error)}"
                )
                continue
            kept = {name: value for name, value in merged.items() if name == "gpu_type"}  # that of the first vendor
            merged.update({**found, **kept})
            if count:
                merged["gpu_count"] = count
        return merged

    def legend(self) -> dict[str, dict[str, str]]:
        """Key in the record -> its labels, of the keys of which only a number tells them; from any thread."""
        found: dict[str, dict[str, str]] = {}
        for runner in list(self.runners):
            try:
                found.update(runner.probe.legend())
            except Exception as error:  # code of others: it runs while a sample is handed over
                self._warn_once(
                    f"legend {runner.probe.label}", f"probe {runner.probe.label} does not tell: {in_words(error)}"
                )
        return {final: labels for key, labels in found.items() if (final := self._keys.final(key)) is not None}

    def close(self, timeout: float) -> None:
        """Close every probe within `timeout` s in all: child processes first, since a thread may be left behind."""
        begun = self._clock.monotonic()
        for runner in self.runners:
            runner.dismiss()
        for runner in sorted(self.runners, key=lambda runner: -runner.probe.tier):
            helper = runner.probe.tier is Tier.HELPER
            left = begun + timeout * (0.5 if helper else 1.0) - self._clock.monotonic()
            try:
                runner.close(max(LEAST_CLOSE if helper else 0.0, left))
            except Exception as error:  # the others are to be closed too
                self._warn_once(
                    f"close {runner.probe.label}", f"probe {runner.probe.label} did not close: {in_words(error)}"
                )

    def forget(self) -> None:
        """In a forked child: see `Runner.forget`."""
        for runner in self.runners:
            runner.forget()
        self._ctx.own_pids.clear()  # the parent's; their numbers may become those of processes that count
