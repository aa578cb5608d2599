"""One tick, and the thread that ticks."""

from __future__ import annotations

import os
import threading
import time
import warnings
from types import SimpleNamespace

import pytest
from runferry.sampler import Probe, ProbeUnavailableError, Sample, Sampler, SamplerSettings, Tier, registry, sample_once
from runferry.sampler import engine as engine_module
from runferry.sampler.core import next_tick
from runferry.sampler.engine import LEAST_CLOSE, Engine
from runferry.sampler.runners import Runner, answer_within


class Fixed(Probe):
    """Gives fixed values; `act` may do more."""

    name = "fixed"

    def __init__(self, values=None, act=None, tier=Tier.INLINE, opening=None):
        self.values, self.act, self.tier, self.opening = values or {"a": 1}, act, tier, opening
        self.closed = 0

    def open(self, ctx):
        if self.opening:
            raise self.opening

    def sample(self, ctx, out):
        out.update(self.values)
        if self.act:
            self.act()

    def close(self):
        self.closed += 1


@pytest.fixture
def engine(clock, machine):
    """Build an engine of given probes; it keeps its samples and warnings."""
    engines = []

    def build(*probes, emit=None, **settings):
        samples, warnings = [], []
        built = Engine(
            SamplerSettings(**{"self_metrics": False, **settings}),
            emit or samples.append,
            clock=clock,
            root=str(machine.root),
            warn=warnings.append,
            probes=probes,
        )
        built.samples, built.warnings = samples, warnings
        built.open()
        engines.append(built)
        return built

    yield build
    for each in engines:
        each.close(1.0)


def test_one_merged_record_per_tick(engine, clock):
    """All probes' values go into one sample with the tick's wall clock, sorted, cleaned and labelled."""
    built = engine(
        Fixed({"b": 2, "n": float("nan")}), Fixed({"a": True}), Fixed({"c": 3.5}, tier=Tier.THREAD), label="n0"
    )
    built.tick()
    assert built.samples == [Sample(clock.time_ns(), {"a/l:n0": 1, "b/l:n0": 2, "c/l:n0": 3.5})]
    assert list(built.samples[0].values) == ["a/l:n0", "b/l:n0", "c/l:n0"]


def test_failing_probe_loses_its_own_keys_only(engine):
    """What a probe wrote before it failed counts; the user is told once; the others go on."""

    def fail():
        raise RuntimeError("boom")

    built = engine(Fixed({"x": 1}, act=fail), Fixed({"y": 2}))
    for _ in range(3):
        built.tick()
    assert [sample.values for sample in built.samples] == [{"x": 1, "y": 2}] * 3
    assert built.warnings == ["probe fixed failed: RuntimeError: boom"]


def test_notices_of_a_probe_are_told_once(engine):
    """What a probe has to say is a warning with its name, and one only."""
    probe = Fixed({"x": 1})
    probe.notices = ["a pattern is none"]
    built = engine(probe)
    built.tick()
    probe.notices.append("there are too many series")
    built.tick()
    built.tick()
    assert built.warnings == ["probe fixed: a pattern is none", "probe fixed: there are too many series"]


def test_a_legend_has_the_keys_of_the_record(engine):
    """Labelled as the keys are, and without those that were not admitted."""
    probe = Fixed({"m.0": 1, "m.1": 2})
    probe.legend = lambda: {"m.0": {"pool": "a"}, "m.1": {"pool": "b"}}
    built = engine(probe, label="n0", key_cap=1)
    assert built.legend() == {}
    built.tick()
    assert built.legend() == {"m.0/l:n0": {"pool": "a"}}


def test_probe_that_is_not_here(engine):
    """An absent source is no warning, a broken one is; neither stops the others."""
    built = engine(
        Fixed(opening=ProbeUnavailableError("not here")),
        Fixed({"y": 2}),
        Fixed(opening=ProbeUnavailableError("bad", loud=True)),
    )
    built.tick()
    assert built.samples[0].values == {"y": 2}
    assert built.warnings == ["probe fixed is left out: bad"]


def test_late_probe_has_a_sample_of_its_own(engine, clock):
    """A thread that is not ready in time delays nobody and is not asked twice; its values keep the time of asking."""
    release, asked = threading.Event(), []

    def slow():
        asked.append(1)
        release.wait(20)

    built = engine(Fixed({"slow": 1}, act=slow, tier=Tier.THREAD), Fixed({"fast": 1}), interval=1.0)
    built.tick()
    asked_at = clock.time_ns()
    clock.now += 1.0
    built.tick()
    assert [sample.values for sample in built.samples] == [{"fast": 1}] * 2
    assert built.warnings == ["probe fixed hangs; its metrics are missing until it answers"]
    assert len(asked) == 1
    release.set()
    settled(built)
    built.tick(grace=20)
    late, regular = built.samples[2:]
    assert late.values == {"slow": 1}
    assert abs(late.timestamp_ns - asked_at) < 1000
    assert regular == Sample(clock.time_ns(), {"fast": 1, "slow": 1})


def settled(engine):
    """Wait until the first probe of an engine has answered."""
    runner = engine.runners[0]
    with engine._ready:
        assert engine._ready.wait_for(lambda: not runner.waiting, 20)
    return runner


def test_values_that_are_too_old_are_dropped(engine, clock):
    """An answer that took more than two intervals, and than 2 s, is not true any more."""
    release = threading.Event()
    built = engine(Fixed({"slow": 1}, act=lambda: release.wait(20), tier=Tier.THREAD), Fixed({"fast": 1}), interval=0.1)
    built.tick()
    release.set()
    runner = settled(built)
    assert runner.take(clock.now + 2.01) == {}


def test_a_slow_probe_is_heard_at_short_intervals(engine, clock):
    """What takes longer than two ticks, yet is not said to hang, arrives with the time at which it was asked for."""
    release = threading.Event()
    built = engine(Fixed({"slow": 1}, act=lambda: release.wait(20), tier=Tier.THREAD), interval=0.1)
    built.tick(grace=0.0)
    asked_at = clock.time_ns()
    release.set()
    settled(built)
    clock.now += 0.7
    built.tick(grace=0.0)
    assert [sample.values for sample in built.samples][:1] == [{"slow": 1}]
    assert abs(built.samples[0].timestamp_ns - asked_at) < 1000
    assert built.warnings == []


def test_slow_inline_probe_is_moved_to_a_thread(engine, monkeypatch):
    """An inline probe that overruns twice must not delay the others again."""
    monkeypatch.setattr(engine_module, "OVERRUN", 0.0)
    built = engine(Fixed({"x": 1}))
    kinds = []
    for _ in range(3):
        built.tick(grace=5.0)
        kinds.append(type(built.runners[0]).__name__)
    assert kinds == ["InlineRunner", "ThreadRunner", "ThreadRunner"]
    assert [sample.values for sample in built.samples] == [{"x": 1}] * 3


def test_one_slow_sample_counts_once(engine, clock, monkeypatch):
    """A probe with an interval of its own stays inline, however many ticks go by after its one slow sample."""
    monkeypatch.setattr(engine_module, "OVERRUN", 0.0)
    built = engine(Fixed({"x": 1}), interval=1.0, probe_intervals={"fixed": 60.0})
    for _ in range(5):
        built.tick(grace=5.0)
        clock.now += 1.0
    assert [type(runner).__name__ for runner in built.runners] == ["InlineRunner"]


def test_emit_that_raises_does_not_end_sampling(engine):
    """A writer in trouble is told of once; the next sample is offered all the same."""
    calls = []

    def emit(sample):
        calls.append(sample)
        raise OSError("disk full")

    built = engine(Fixed(), emit=emit)
    built.tick()
    built.tick()
    assert len(calls) == 2
    assert built.warnings == ["a sample could not be handed over: OSError: disk full"]


def test_tick_without_values_emits_nothing(engine):
    """An empty sample is no record."""
    built = engine(Fixed({"x": float("inf")}))
    built.tick()
    assert built.samples == []


def test_self_metrics(engine, clock):
    """Cost, errors and stalls of each probe are in every record, of threads the lag too; the setting leaves them out."""
    release = threading.Event()

    def slow():
        clock.now += 0.25
        release.wait(20)

    quiet = engine(Fixed())
    quiet.tick()
    assert set(quiet.samples[0].values) == {"a"}
    assert SamplerSettings().self_metrics

    absent = Fixed({"z": 1}, opening=ProbeUnavailableError("not here"))
    built = engine(Fixed({"x": 1}), named("slow", act=slow), absent, interval=2.0, self_metrics=True)
    built.tick()
    first = built.samples[0].values
    assert set(first) == {"x"} | {f"sampler.fixed.{name}" for name in ("durationMs", "errors", "stalled")} | {
        f"sampler.slow.{name}" for name in ("durationMs", "errors", "stalled", "lagMs")
    }
    assert first["sampler.fixed.durationMs"] > 0
    assert (first["sampler.slow.stalled"], first["sampler.slow.errors"]) == (0, 0)
    asked = 1000.0
    clock.now = asked + 2
    built.tick()
    assert built.samples[1].values["sampler.slow.stalled"] == 1
    assert built.samples[1].values["sampler.slow.lagMs"] == pytest.approx(2000)
    release.set()
    runner = built.runners[1]
    with built._ready:
        assert built._ready.wait_for(lambda: not runner.waiting, 20)
    clock.now = asked + 3
    built.tick(grace=0.0)
    assert built.samples[-1].values["sampler.slow.lagMs"] >= 3000
    assert built.samples[-1].values["sampler.slow.stalled"] == 0
    for sample in built.samples:
        keys = [key for key in sample.values if key.startswith("sampler.")]
        assert all(any(metric.matches(key) for metric in engine_module.SELF_METRICS) for key in keys)


def named(name, values=None, act=None, tier=Tier.THREAD, interval=0.0):
    """A probe of a name of its own."""
    return type("Named", (Fixed,), {"name": name, "interval": interval})(values or {name: 1}, act, tier)


@pytest.mark.parametrize("tier", [Tier.INLINE, Tier.THREAD])
def test_a_probe_has_an_interval_of_its_own(engine, clock, tier):
    """A probe is sampled at the first tick that is its least interval after the last, whatever the ticks' jitter."""
    built = engine(named("rare", tier=tier, interval=15.0), Fixed({"often": 1}), interval=5.0)
    begun, asked = clock.now, []
    for at in (0.0, 5.0, 10.4, 15.0, 20.0, 25.0, 29.9, 35.0, 40.0, 45.3, 50.0, 55.0, 60.0):
        clock.now = begun + at
        built.tick(grace=5.0)
        asked += [at] if "rare" in built.samples[-1].values else []
    assert asked == [0.0, 15.0, 29.9, 45.3, 60.0]
    assert all("often" in sample.values for sample in built.samples)


def test_the_user_decides_how_often_a_probe_runs(engine, clock):
    """`probe_intervals` goes before what a probe says of itself, in both directions."""
    probes = (named("rare", interval=15.0), named("usual", tier=Tier.INLINE))
    built = engine(*probes, interval=5.0, probe_intervals={"rare": 0, "usual": 10})
    for _ in range(3):
        built.tick(grace=5.0)
        clock.now += 5
    assert [set(sample.values) for sample in built.samples] == [{"rare", "usual"}, {"rare"}, {"rare", "usual"}]


def test_a_rare_probe_may_take_its_time(engine, clock):
    """What a probe with a long interval found is true for long: a slow command is heard at short intervals, too."""
    release = threading.Event()
    built = engine(named("slow", act=lambda: release.wait(20), interval=15.0), interval=0.1)
    built.tick(grace=0.0)
    release.set()
    settled(built)
    clock.now += 3
    built.tick(grace=0.0)
    assert [sample.values for sample in built.samples] == [{"slow": 1}]


def test_close_is_bounded_and_complete(engine):
    """A thread that hangs is left behind; every other probe is closed."""
    release = threading.Event()
    good = Fixed()
    built = engine(Fixed(act=lambda: release.wait(20), tier=Tier.THREAD), good)
    built.tick(grace=0.0)
    started = time.monotonic()
    built.close(0.2)
    assert time.monotonic() - started < 2.0
    assert good.closed == 1
    release.set()


def test_all_are_asked_to_end_before_any_is_waited_for(engine):
    """A thread that hangs does not keep the next from ending its program."""
    release, sampling, asked = threading.Event(), threading.Event(), []

    class Waiting(Probe):
        name = "waiting"
        tier = Tier.THREAD

        def sample(self, ctx, out):
            sampling.set()
            ctx.closing.wait(20)
            asked.append(time.monotonic())

    built = engine(named("hung", act=lambda: release.wait(20)), Waiting())
    built.tick(grace=0.0)
    assert sampling.wait(20)
    started = time.monotonic()
    built.close(0.5)
    assert asked[0] - started < 0.25
    release.set()


def test_deadlines_are_absolute_and_missed_ones_are_skipped():
    """Ticks stay on start + n * interval; after a long stall the next is the next in the future."""
    assert next_tick(0.0, 15.0, 0) == 1
    assert next_tick(14.9, 15.0, 0) == 1
    assert next_tick(15.2, 15.0, 1) == 2
    assert next_tick(99.0, 15.0, 1) == 7


def test_no_tick_comes_twice():
    """Neither where a wait ended early, nor where floats make the quotient of a deadline and the interval too small."""
    assert next_tick(14.99, 15.0, 1) == 2
    assert [next_tick(number * 0.1, 0.1, number) for number in range(1000)] == list(range(1, 1001))


def proc_files(machine):
    machine.write({"/proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"})


@pytest.fixture
def pass_deadlines(clock, monkeypatch):
    """Start a sampler and let so many of its deadlines come at once: when this returns it waits for its stop.

    `at` has what happens at which wait, counted from 1; each wait ends `early` s before its time.
    """

    def run(sampler, deadlines, *, at=None, early=0.0):
        done = threading.Event()

        def wait(event, timeout):
            clock.waits.append(timeout)
            (at or {}).get(len(clock.waits), lambda: None)()
            if len(clock.waits) > deadlines:
                done.set()
                return event.wait(20)
            clock.now += timeout - early
            return False

        monkeypatch.setattr(clock, "wait", wait)
        sampler.start()
        assert done.wait(20)

    return run


def seconds_of(samples):
    return [sample.timestamp_ns / 1e9 - 1_700_000_000 for sample in samples]


def test_sampler_emits_at_start_then_on_deadlines_and_at_the_end(machine, clock, pass_deadlines):
    """First sample at start, one per deadline, a last one at stop; nothing after that."""
    proc_files(machine)
    samples = []
    sampler = Sampler(
        SamplerSettings(interval=15.0, probes=("memory",), self_metrics=False),
        samples.append,
        clock=clock,
        root=str(machine.root),
    )
    pass_deadlines(sampler, 3)
    sampler.start()
    sampler.stop()
    sampler.stop()
    sampler.start()
    assert seconds_of(samples) == [1000, 1015, 1030, 1045, 1045]
    assert clock.waits == [15.0] * 4
    assert all(sample.values == {"memory_percent": 75.0, "proc.memory.availableMB": 1.0} for sample in samples)


def test_waits_that_end_early(machine, clock, pass_deadlines):
    """As on Windows: each deadline has one sample, and the next ones keep to the grid."""
    proc_files(machine)
    samples = []
    settings = SamplerSettings(interval=1.0, probes=("memory",))
    sampler = Sampler(settings, samples.append, clock=clock, root=str(machine.root))
    pass_deadlines(sampler, 3, early=0.0156)
    sampler.stop()
    assert seconds_of(samples) == pytest.approx([1000, 1000.9844, 1001.9844, 1002.9844, 1002.9844], abs=1e-4)


def test_a_paused_sampler_takes_the_first_and_the_last_sample_only(machine, clock, pass_deadlines):
    """Ticks while paused are dropped, not made up for; after it the deadlines are those of before."""
    proc_files(machine)
    samples = []
    settings = SamplerSettings(interval=10.0, probes=("memory",))
    sampler = Sampler(settings, samples.append, clock=clock, root=str(machine.root))
    pass_deadlines(sampler, 5, at={2: sampler.pause, 4: sampler.resume, 6: sampler.pause})
    sampler.stop()
    assert seconds_of(samples) == [1000, 1010, 1040, 1050, 1050]


def test_first_sample_comes_at_once_and_stop_is_quick(monkeypatch):
    """On this machine: a first record within a moment of start, real keys, and an end without delay."""
    monkeypatch.setattr("runferry.sampler.probes.cpu.LEAST_STRETCH", 0.0)
    others = set(threading.enumerate())  # of samplers of other tests in this process that are still being ended
    first = threading.Event()
    samples = []
    sampler = Sampler(SamplerSettings(), lambda sample: (samples.append(sample), first.set()))
    sampler.start()
    assert first.wait(5)
    started = time.monotonic()
    sampler.stop()
    assert time.monotonic() - started < 2.0
    assert len(samples) == 2
    assert {"memory_percent", "proc.memory.rssMB", "network.sent", "disk.in"} <= set(samples[0].values)
    assert "cpu" in samples[1].values
    assert not any(thread.name.startswith("runferry") for thread in set(threading.enumerate()) - others)


def test_stop_does_not_wait_for_a_slow_probe(machine):
    """A stop in the middle of a tick's grace ends the wait."""
    release, sampling = threading.Event(), threading.Event()

    def slow():
        sampling.set()
        release.wait(20)

    sampler = Sampler(SamplerSettings(interval=600.0), lambda _: None, root=str(machine.root))
    sampler._engine._given = [Fixed(act=slow, tier=Tier.THREAD)]
    sampler.start()
    assert sampling.wait(5)
    started = time.monotonic()
    sampler.stop()
    assert time.monotonic() - started < 2.0
    release.set()


def test_a_tick_ends_its_grace_when_woken(engine):
    """Who stops in the middle of a long grace does not wait for a slow probe."""
    release = threading.Event()
    built = engine(Fixed(act=lambda: release.wait(20), tier=Tier.THREAD), interval=600.0)
    built.wake()
    started = time.monotonic()
    built.tick()
    assert time.monotonic() - started < engine_module.LONGEST_GRACE / 2
    release.set()


def test_probe_that_could_not_be_opened_is_tried_again(engine):
    """Garbage in a system file at the start costs the samples until it is gone."""
    probe = Fixed(opening=ValueError("garbage"))
    built = engine(probe)
    built.tick()
    assert (built.samples, list(built.absent), len(built.warnings)) == ([], ["fixed"], 1)
    probe.opening = None
    built.tick()
    assert [sample.values for sample in built.samples] == [{"a": 1}]
    assert built.absent == {}


@pytest.mark.parametrize("garbage", ["", "\0\0", "x" * 5000, "cpu a b\n: : :\n8 0 sda x y z a b c d e\n", "9" * 5000])
def test_garbage_in_system_files_ends_no_probe(machine, clock, garbage):
    """Whatever stands in /proc and /sys, sampling goes on, and is whole again when they are."""
    names = ["net/dev", "net/snmp", "diskstats", "stat", "meminfo", "self/mountinfo"]
    names += [f"4242/{name}" for name in ("stat", "status", "cgroup", "mountinfo", "task/4242/children")]
    machine.load("cgroup-v2-k8s.json")
    good = {name: path.read_text() for name in names if (path := machine.root / "proc" / name).exists()}
    samples, settings = (
        [],
        SamplerSettings(pid=4242, per_core=True, extended=True, skip_probes=("disk_usage", "nvidia")),
    )
    built = Engine(settings, samples.append, clock=clock, root=str(machine.root), warn=lambda text: None)
    machine.write({f"/proc/{name}": garbage for name in good})
    built.open()
    for texts in (dict.fromkeys(good, garbage), good, good):
        machine.write({f"/proc/{name}": text for name, text in texts.items()})
        clock.now += 1
        built.tick()
    built.close(1.0)

    assert "memory_percent" in samples[-1].values


def test_stop_without_start():
    """A sampler that never started stops silently."""
    Sampler(SamplerSettings(), lambda _: None).stop()


def test_forked_child_is_inert(machine):
    """In a forked child nothing is emitted and start and stop do nothing; the parent goes on."""
    proc_files(machine)
    samples, first = [], threading.Event()
    sampler = Sampler(
        SamplerSettings(probes=("memory",)),
        lambda sample: (samples.append(sample), first.set()),
        root=str(machine.root),
    )
    sampler.start()
    assert first.wait(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking with threads
        child = os.fork()
    if child == 0:
        sampler.stop()
        sampler.start()
        os._exit(len(samples) + 40)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 41
    sampler.stop()
    assert len(samples) == 2


def test_sample_once_has_rates(machine, clock):
    """One call, two readings: rates are there."""
    machine.process(4242)
    machine.write({"/proc/stat": "", "/sys/devices/system/cpu/online": "0\n"})
    sample = sample_once(
        SamplerSettings(pid=4242, probes=("cpu",), self_metrics=False), root=str(machine.root), clock=clock
    )
    assert sample.values == {"cpu": 0.0, "proc.cpu.threads": 1.0}


def test_sample_once_has_what_only_an_earlier_reading_had(machine, clock, monkeypatch):
    """What comes seldom is there, below the newest value of each key; the time is the last reading's."""
    readings = iter([{"often": 1, "seldom": 7}, {"often": 2}])
    probe = Fixed()
    probe.sample = lambda ctx, out: out.update(next(readings))
    monkeypatch.setattr(registry, "built_in", lambda settings, warn, root="/": [probe])
    settings = SamplerSettings(probes=("fixed",), self_metrics=False)
    sample = sample_once(settings, root=str(machine.root), clock=clock, warn=lambda line: None)
    assert list(sample.values.items()) == [("often", 2), ("seldom", 7)]
    assert sample.timestamp_ns == clock.time_ns()


def test_probes_of_other_packages(monkeypatch):
    """Entry points add probes; one that fails to load or takes a name of ours is named; allow and deny lists hold."""

    def broken():
        raise ImportError("no module")

    entries = [
        SimpleNamespace(name="mine", value="pkg:Mine", load=lambda: Fixed),
        SimpleNamespace(name="cpu", value="pkg:Cpu", load=lambda: Fixed),
        SimpleNamespace(name="broken", value="pkg:Broken", load=broken),
        SimpleNamespace(name="unwanted", value="pkg:Unwanted", load=broken),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries if group == "runferry.probes" else [])
    monkeypatch.setattr(registry, "_may_be_offered", lambda places: True)
    warnings = []
    found = list(registry.third_party(SamplerSettings(skip_probes=("unwanted",)), warnings.append))
    assert [type(probe) for probe in found] == [Fixed]
    assert len(warnings) == 2
    assert not list(registry.third_party(SamplerSettings(probes=("memory",)), warnings.append))
    assert len(warnings) == 3  # cpu again: its name is taken
    assert not list(registry.third_party(SamplerSettings(probes=("memroy",)), warnings.append))
    assert "no probe 'memroy'" in warnings[3]


def test_every_built_in_probe_loads_under_its_name():
    """Names agree with the registry."""
    assert [registry.load(reference).name for reference in registry.BUILT_IN.values()] == [*registry.BUILT_IN]


@pytest.mark.parametrize(("interval", "longest"), [(1.0, 0.1), (5.0, 0.5), (60.0, 1.0)])
def test_how_long_a_tick_waits(engine, monkeypatch, interval, longest):
    """A tenth of the interval, 1 s at most, for what runs elsewhere."""
    built, waits = engine(Fixed(), interval=interval), []
    monkeypatch.setattr(built._ready, "wait_for", lambda done, timeout: waits.append(timeout))
    built.tick()
    assert waits == [pytest.approx(longest)]


def test_devices_of_two_vendors_are_told_of_in_one(engine):
    """Their counts add up; the type is the first one's."""
    first, second = Fixed(), Fixed()
    first.metadata = lambda: {"gpu_type": "A", "gpu_count": 2, "gpu_nvidia": [1]}
    second.metadata = lambda: {"gpu_type": "B", "gpu_count": 1, "gpu_amd": [2]}
    told = engine(first, second).metadata()
    assert told == {"gpu_type": "A", "gpu_count": 3, "gpu_nvidia": [1], "gpu_amd": [2]}


def test_child_processes_are_closed_first_and_within_half_the_time(engine, clock):
    """A thread may be left behind, a process may not: the other half is for those that have to be killed after all."""
    closed = []

    class Taking(Runner):
        def close(self, timeout):
            closed.append((self.probe.tier.name, timeout))
            clock.now += timeout

    built = engine()
    built.runners = [Taking(Fixed(tier=tier), SamplerSettings()) for tier in (Tier.THREAD, Tier.HELPER, Tier.HELPER)]
    built.close(1.0)
    assert closed == [("HELPER", 0.5), ("HELPER", LEAST_CLOSE), ("THREAD", pytest.approx(0.45))]
    built.runners = []


def test_a_call_that_was_said_to_hang_and_then_fails_is_told_once(engine, clock):
    """Its own timeout, after the deadline, is the same story; a failure at once is another."""
    built = engine(Fixed(tier=Tier.THREAD), interval=1.0)
    settled(built)
    stats = built.runners[0].stats
    stats.stalled = True
    built._look_after_runners()
    stats.stalled, stats.errors, stats.last_error, stats.duration = False, 1, "no answer in time", 5.0
    built._look_after_runners()
    assert built.warnings == ["probe fixed hangs; its metrics are missing until it answers"]
    stats.last_error, stats.duration = "refused", 0.1
    built._look_after_runners()
    assert built.warnings[1:] == ["probe fixed failed: refused"]


def test_a_probe_that_is_moved_keeps_its_count_of_errors(engine, clock, monkeypatch):
    """`errors` is a total."""
    monkeypatch.setattr(engine_module, "OVERRUN", 0.0)
    built = engine(Fixed(act=lambda: 1 / 0), self_metrics=True)
    for _ in range(3):
        built.tick(grace=5.0)
        clock.now += 1.0
    assert [sample.values["sampler.fixed.errors"] for sample in built.samples] == [1, 2, 3]


def test_how_long_an_answer_may_take(engine, clock):
    """A period, within 1 s and 5 s."""
    assert [answer_within(interval) for interval in (0.1, 1.0, 3.0, 15.0)] == [1.0, 1.0, 3.0, 5.0]


def test_a_thread_that_has_ended_is_not_asked(engine, clock):
    """A source that is not there does not hang, however often it would be asked."""
    built = engine(Fixed(tier=Tier.THREAD, opening=ProbeUnavailableError("not here")))
    runner = settled(built)
    runner._thread.join(10)
    assert [runner.request(now) for now in (0.0, 100.0, 200.0)] == [False] * 3
    assert (runner.stats.stalled, runner.waiting) == (False, False)
