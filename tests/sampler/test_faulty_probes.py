"""Probes of others that do what they should not, and a system that refuses: the other metrics go on."""

from __future__ import annotations

import errno
import sys
import threading
import time

import pytest
from runferry.sampler import Probe, Sampler, SamplerSettings, Tier, core
from runferry.sampler.checkup import check
from runferry.sampler.command import CommandError, LineChild, run
from runferry.sampler.context import Context
from runferry.sampler.engine import MOST_WARNINGS, Engine
from runferry.sampler.interpreter import interpreter
from runferry.sampler.probe import LONGEST_LINE
from runferry.sampler.supervisor import FIRST_BACKOFF, HelperRunner
from support.openfiles import lowest_free_descriptor


class Beat(Probe):
    """Is there at every tick."""

    name = "beat"

    def sample(self, ctx, out):
        out["beat"] = 1


class Faulty(Probe):
    """Raises in one of its methods."""

    name = "faulty"

    def __init__(self, method, tier):
        self.tier = tier
        setattr(self, method, self.fail)

    def fail(self, *args):
        raise RuntimeError("boom")

    def sample(self, ctx, out):
        out["faulty"] = 1


@pytest.fixture
def engine(clock, machine):
    """Build an engine of given probes; it keeps its samples and warnings."""

    def build(*probes, **settings):
        samples, warnings = [], []
        settings = SamplerSettings(**{"self_metrics": False, **settings})
        built = Engine(
            settings, samples.append, clock=clock, root=str(machine.root), warn=warnings.append, probes=probes
        )
        built.samples, built.warnings = samples, warnings
        built.open()
        return built

    return build


def tick(engine, clock):
    clock.now += 15.0
    engine.tick(grace=5.0)


@pytest.mark.parametrize("tier", [Tier.INLINE, Tier.THREAD])
@pytest.mark.parametrize("method", ["discover", "open", "sample", "metadata", "legend", "close"])
def test_whichever_method_raises(engine, clock, tier, method):
    """The other probes are sampled, told of and closed; the fault is told once, by the probe's name."""
    built = engine(Faulty(method, tier), Beat())
    for _ in range(3):
        tick(built, clock)
        built.metadata()
        built.legend()
    built.close(1.0)
    assert [sample.values["beat"] for sample in built.samples] == [1, 1, 1]
    assert len(built.warnings) == 1
    assert built.warnings[0].startswith("probe faulty ")
    assert "boom" in built.warnings[0]


def test_a_probe_without_a_name(engine, clock):
    """It is left out, and told of by its class."""

    class Nameless(Probe):
        pass

    built = engine(Nameless(), Beat())
    tick(built, clock)
    assert built.samples[0].values == {"beat": 1}
    assert len(built.warnings) == 1
    assert built.warnings[0].startswith("probe Nameless is left out: ")


def test_keys_and_values_that_no_record_can_hold(engine, clock):
    """Keys that are no text, and integers beyond any counter, cost themselves only."""

    class Odd(Beat):
        def sample(self, ctx, out):
            out.update({None: 1, 5: 1, "": 1, "huge": 10**5000, "none": None, "text": "1", "most": 2**64})

    built = engine(Odd(), Beat(), label="n0")
    tick(built, clock)
    tick(built, clock)
    assert [sample.values for sample in built.samples] == [{"beat/l:n0": 1, "most/l:n0": 2**64}] * 2
    assert built.warnings == ["metric keys that are no text, or empty, are dropped, the first is None"]


def test_a_thread_opens_a_probe_again(engine, clock):
    """As on the sampler's thread, an opening that failed for no reason that lasts is tried again."""
    failures = [ValueError("not yet")]

    class Late(Beat):
        tier = Tier.THREAD

        def open(self, ctx):
            if failures:
                raise failures.pop()

    built = engine(Late())
    assert not built.settle(5.0)
    tick(built, clock)
    tick(built, clock)
    built.close(1.0)
    assert [sample.values for sample in built.samples][-1] == {"beat": 1}
    assert built.warnings == ["probe beat failed: ValueError: not yet"]


def test_many_that_hang_do_not_add_up(engine, clock, monkeypatch):
    """The time in which all are to be closed is for all, however many threads hang."""
    release = threading.Event()
    monkeypatch.setattr(clock, "monotonic", time.monotonic)

    class Hung(Probe):
        name = "hung"
        tier = Tier.THREAD

        def sample(self, ctx, out):
            release.wait(20)

    built = engine(*(Hung() for _ in range(40)), Beat())
    built.tick(grace=0.0)
    begun = time.monotonic()
    built.close(0.2)
    assert time.monotonic() - begun < 1.0
    release.set()


def no_threads(self):
    raise RuntimeError("can't start new thread")


def test_no_thread_to_read_a_helper(monkeypatch):
    """The helper is ended, not left without a reader, and another try comes later."""

    class Library(Probe):
        name = "library"
        tier = Tier.HELPER

    runner = HelperRunner(Library(), Context(SamplerSettings()), threading.Condition())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_threads)
        assert not runner.request(0.0)
    child = runner._child
    assert child.wait(5) == -9
    assert "can't start new thread" in runner.stats.last_error
    runner.request(1.0)
    assert (runner._child, runner._start_at) == (None, 1.0 + FIRST_BACKOFF)
    assert child.stdout.closed


def test_no_thread_to_read_a_program(monkeypatch):
    """As with a helper: a program whose lines nobody reads is ended."""
    ctx = Context(SamplerSettings(), own_pids=set())
    lines = LineChild(ctx, ["sleep", "60"])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_threads)
        assert lines.newest(0.0) is None
    assert "can't start new thread" in lines.error
    assert ctx.own_pids == set()
    lines.close()


def _no_descriptors(*_given):
    raise OSError(errno.EMFILE, "Too many open files")


def test_no_descriptor_to_read_a_program(monkeypatch):
    """It is ended and the reason told; no thread ends with a traceback, and no pipe stays open."""
    ctx = Context(SamplerSettings(), own_pids=set())
    lines = LineChild(ctx, ["sleep", "60"])
    before = lowest_free_descriptor()
    monkeypatch.setattr("runferry.sampler.command.selectors.DefaultSelector", _no_descriptors)
    assert lines.newest(0.0) is None
    assert lines.error == "sleep cannot be read: [Errno 24] Too many open files"
    with pytest.raises(CommandError, match="Too many open files"):
        run(ctx, ["sleep", "60"])
    assert (ctx.own_pids, lowest_free_descriptor()) == (set(), before)
    lines.close()


def test_no_thread_for_the_sampler(machine, monkeypatch):
    """A run is told in one line that it has no metrics; neither its start nor its end fails, and it may be forked."""
    samples, warnings = [], []
    sampler = Sampler(SamplerSettings(), samples.append, root=str(machine.root), warn=warnings.append)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_threads)
        sampler.start()
    assert warnings == ["no system metrics: can't start new thread"]
    assert (sampler.loading, sampler.idle, sampler.settle(5.0)) == (False, True, False)
    sampler.stop()
    sampler.start()
    sampler.stop()
    assert samples == []


def test_no_thread_for_a_slow_probe(engine, clock, monkeypatch):
    """An inline probe that is to be moved to a thread stays where it is."""
    monkeypatch.setattr("runferry.sampler.engine.OVERRUN", 0.0)
    monkeypatch.setattr(threading.Thread, "start", no_threads)
    built = engine(Beat())
    for _ in range(3):
        tick(built, clock)
    assert [sample.values for sample in built.samples] == [{"beat": 1}] * 3


def test_a_tick_that_fails_is_not_the_last(machine, clock, monkeypatch):
    """No memory at one moment costs one sample of a run that may take weeks; it is told once."""
    done, samples, warnings = threading.Event(), [], []
    sampler = Sampler(SamplerSettings(), samples.append, clock=clock, root=str(machine.root), warn=warnings.append)
    sampler._engine._given = [Beat()]
    ticks = iter([MemoryError(), None, MemoryError(), None, None])
    real = sampler._engine.tick

    def failing(**how):
        failure = next(ticks)
        if failure is not None:
            raise failure
        real(**how)

    def wait(event, timeout):
        clock.waits.append(timeout)
        if len(clock.waits) > 3:
            done.set()
            return event.wait(20)
        clock.now += timeout
        return False

    monkeypatch.setattr(sampler._engine, "tick", failing)
    monkeypatch.setattr(clock, "wait", wait)
    sampler.start()
    assert done.wait(20)
    sampler.stop()
    assert len(samples) == 3
    assert warnings == ["a sample is missing, and others may be: MemoryError"]


def test_nobody_to_warn(monkeypatch):
    """A program without standard error, or with one that was closed, is not disturbed by a warning."""
    monkeypatch.setattr(sys, "stderr", None)
    core.warn_on_stderr("nobody reads this")


@pytest.mark.parametrize(
    ("program", "frozen", "found"),
    [
        ("/usr/bin/python3.12", False, True),
        ("/opt/pypy3", False, True),
        ("/opt/app/python-app", True, False),
        ("/usr/bin/uwsgi", False, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_only_a_python_is_started_as_one(monkeypatch, program, frozen, found):
    """A frozen application started as a helper would train once more, and start helpers of its own."""
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert interpreter() == (program if found else None)


def test_a_number_that_has_become_another_process(machine):
    """When the monitored process has ended and its number is used again, the new one is not counted."""
    machine.process(4242, started=100, rss=10)
    ctx = machine.context(pid=4242)
    assert [process.rss for process in ctx.processes().counted] == [10]
    machine.process(4242, started=900, rss=99)
    ctx.begin(1015.0)
    assert ctx.processes().counted == []
    machine.process(4242, started=100, rss=11)
    ctx.begin(1030.0)
    assert [process.rss for process in ctx.processes().counted] == [11]


def test_a_forked_child_forgets_the_parents_helpers(engine):
    """Their numbers may become those of the child's own processes, which count."""
    built = engine(Beat())
    built._ctx.own_pids.add(4711)
    built.forget()
    assert built._ctx.own_pids == set()


class Loud(Probe):
    """Fails with all that a terminal must not be told."""

    name = "loud"

    def sample(self, ctx, out):
        raise RuntimeError("\x1b[2J\nline two\r\x9b " + "x" * 1_000_000)


def test_whatever_a_probe_says_is_one_line(engine, clock):
    """Short, and without what a terminal would obey; `doctor` tells it the same way."""
    built = engine(Loud())
    tick(built, clock)
    (line,) = built.warnings
    assert line.startswith("probe loud failed: RuntimeError: \ufffd[2J line two \ufffd xxx")
    assert line.isprintable()
    assert line.endswith("xxx...")
    assert len(line) == LONGEST_LINE + 3
    (finding,) = check(SamplerSettings(), probes=[Loud()]).findings
    assert (finding.state, finding.why.isprintable(), len(finding.why)) == ("failed", True, LONGEST_LINE + 3)


def test_a_probe_with_news_at_each_sample_is_not_heard_for_ever(engine, clock):
    """Neither memory nor the terminal fills up with what it says."""

    class News(Beat):
        def sample(self, ctx, out):
            super().sample(ctx, out)
            self.notices = [f"it is {ctx.now}"]

    built = engine(News())
    for _ in range(MOST_WARNINGS + 10):
        tick(built, clock)
    assert len(built.warnings) == MOST_WARNINGS + 1
    assert built.warnings[-1] == "nothing more is said of the probes of this run"
