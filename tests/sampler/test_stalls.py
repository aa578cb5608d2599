"""Whatever hangs, and however: the other keys tick on, the end is quick, nothing is left, and one line says so."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from runferry.sampler import Probe, Sampler, SamplerSettings, Tier
from runferry.sampler.command import run
from runferry.sampler.engine import Engine
from runferry.sampler.probes.disk_usage import DiskUsageProbe
from runferry.sampler.probes.openmetrics import OpenMetricsProbe
from runferry.sampler.supervisor import FIRST_BACKOFF, KILL_AFTER, KILL_OPENING_AFTER, HelperRunner

FAKES = Path(__file__).parent / "fake"


class Beat(Probe):
    """Is there at every tick."""

    name = "beat"

    def sample(self, ctx, out):
        out["beat"] = 1


class HangingCommand(Probe):
    """Runs a program that never ends and leaves another behind."""

    name = "command"
    tier = Tier.THREAD

    def __init__(self, program):
        self.program = program

    def sample(self, ctx, out):
        run(ctx, [self.program], timeout=30)


def children():
    """Pids of this process's children, zombies included."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            found += (thread / "children").read_text().split()
    return found


@pytest.fixture
def mute():
    """An HTTP server that takes connections and never says a word: its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def dead_mount(monkeypatch):
    """A path below which `statvfs` blocks, as on a network file system whose server is gone; freed at the end."""
    released, statvfs = threading.Event(), os.statvfs

    def blocking(path):
        if str(path) == "/dead/nfs":
            released.wait(60)
            raise OSError(5, "Input/output error")
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", blocking)
    yield "/dead/nfs"
    released.set()


def test_everything_hangs_at_once(monkeypatch, tmp_path, mute, dead_mount):
    """What does not hang ticks within a tenth of the interval, and the end takes 2 s, with six ways to hang at once.

    In real time: helpers whose calls take 6 s and 25 s, one that is stopped, an endpoint that is mute, a program that
    ignores SIGTERM, a mount whose server is gone. No process is left, and each is told of in one line.
    """
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.syspath_prepend(str(FAKES))
    import helper_probes

    program = tmp_path / "rocm-smi"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 60 & echo $! > {tmp_path}/left\nsleep 60\n")
    program.chmod(0o755)
    settings = SamplerSettings(interval=1.0, open_metrics_endpoints={"mute": f"http://127.0.0.1:{mute}/metrics"})
    helped = [helper_probes.Slow6(), helper_probes.Slow25(), helper_probes.Stopped()]
    probes = [Beat(), *helped, HangingCommand(str(program)), DiskUsageProbe(dead_mount)]
    probes += OpenMetricsProbe.instances(settings)
    beats, warnings, enough = [], [], threading.Event()

    def emit(sample):
        if "beat" in sample.values:
            beats.append((time.time(), sample))
            if len(beats) > 5:
                enough.set()

    sampler = Sampler(settings, emit, warn=warnings.append)
    sampler._engine._given = probes
    started = time.time()
    sampler.start()
    assert enough.wait(20)
    stopping = time.monotonic()
    sampler.stop()
    assert time.monotonic() - stopping < 2.0
    assert children() == []
    left = int((tmp_path / "left").read_text())
    assert not Path(f"/proc/{left}").exists() or Path(f"/proc/{left}/stat").read_text().split()[2] == "Z"

    # The record of a tick that has just asked somebody waits for them for a tenth of the interval.
    grid = [(sample.timestamp_ns / 1e9 - started) % 1.0 for _, sample in beats[2:-1]]
    handed_over = [at - sample.timestamp_ns / 1e9 for at, sample in beats[2:-1]]
    assert len(grid) >= 3
    assert max(grid) < 0.1
    assert max(handed_over) < 0.2
    assert {probe.label for probe in probes[1:]} == {line.split()[1] for line in warnings}
    assert len(warnings) == len(probes) - 1
    assert all("hangs; its metrics are missing until it answers" in line for line in warnings)


class Child:
    """A helper process that is not there: what is asked of it can be read, and is answered by hand."""

    pid = 1 << 30
    returncode = None

    def __init__(self):
        requests, self._to_child = os.pipe()
        self._from_child, answers = os.pipe()
        self.requests = os.fdopen(requests, "rb")
        self.answers = os.fdopen(answers, "wb", buffering=0)
        self.stdin = os.fdopen(self._to_child, "wb", buffering=0)
        self.stdout = os.fdopen(self._from_child, "rb", buffering=0)
        self.kills = 0

    def answer(self, **fields):
        request = json.loads(self.requests.readline())
        self.answers.write(json.dumps({"id": request["id"], **fields}).encode() + b"\n")

    def poll(self):
        return self.returncode

    def kill(self):
        self.kills += 1
        self.end(-9)

    def end(self, status):
        self.returncode = status
        self.answers.close()
        self.requests.close()

    def wait(self, timeout=None):
        if self.returncode is None:
            self.end(0)
        return self.returncode


class Library(Probe):
    """A vendor's library, of which nothing is loaded here."""

    name = "library"
    tier = Tier.HELPER


@pytest.fixture
def helped(clock, machine):
    """An engine with a probe that is always there and one whose helper is a `Child`; ticks each second without grace."""
    spawned, samples, warnings = [], [], []

    def spawn():
        spawned.append(Child())
        return spawned[-1]

    settings = SamplerSettings(interval=1.0, self_metrics=False)
    built = Engine(settings, samples.append, clock=clock, root=str(machine.root), warn=warnings.append, probes=[Beat()])
    built.open()
    runner = HelperRunner(Library(), built._own_context(), built._ready, spawn=spawn)
    built.runners.append(runner)

    def heard():
        with built._ready:
            assert built._ready.wait_for(lambda: not (runner.waiting or runner.opening), 20)

    def tick():
        clock.now += 1.0
        built.tick(grace=0.0)

    built.samples, built.warnings, built.spawned, built.heard, built.second = samples, warnings, spawned, heard, tick
    yield built
    built.close(1.0)


@pytest.mark.parametrize("seconds", [6, 25])
def test_a_call_that_takes_long(helped, seconds):
    """A call of 6 s or 25 s costs its own keys for as long as it lasts: no tick is late, nothing is killed, one warning."""
    helped.second()
    (child,) = helped.spawned
    child.answer(metadata={})
    helped.heard()
    helped.second()  # asks
    for _ in range(seconds):
        helped.second()
    child.answer(values={"library": 1}, duration=float(seconds), error=None, notices=[])
    helped.heard()
    helped.second()  # too old to be true; asks again
    child.answer(values={"library": 2}, duration=0.01, error=None, notices=[])
    helped.heard()
    helped.second()
    times = [sample.timestamp_ns for sample in helped.samples if "beat" in sample.values]
    assert [round((at - times[0]) / 1e9, 3) for at in times] == list(range(seconds + 4))
    assert [sample.values["library"] for sample in helped.samples if "library" in sample.values] == [2]
    assert helped.warnings == ["probe library hangs; its metrics are missing until it answers"]
    assert (len(helped.spawned), child.kills) == (1, 0)


def test_a_call_that_never_ends(helped):
    """After 30 s the helper is killed and after 5 s replaced; that is told once, however often it happens."""
    for _ in range(3):
        while not helped.spawned or helped.spawned[-1].returncode is not None:
            helped.second()
        child = helped.spawned[-1]
        child.answer(metadata={})
        helped.heard()
        helped.second()
        waited = 0
        while child.returncode is None:
            helped.second()
            waited += 1
        assert waited == KILL_AFTER
        assert child.kills == 1
    assert len(helped.spawned) == 3
    times = [sample.timestamp_ns for sample in helped.samples]
    assert [round((at - times[0]) / 1e9, 3) for at in times] == list(range(len(times)))
    assert helped.warnings == ["probe library hangs; its metrics are missing until it answers"]


def test_a_driver_that_takes_long_to_open(helped):
    """The first start of a driver may take more than the 30 s of a sample; after 120 s the helper is killed."""
    helped.second()
    (child,) = helped.spawned
    waited = 0
    while child.returncode is None:
        helped.second()
        waited += 1
    assert waited == KILL_OPENING_AFTER
    assert child.kills == 1


def test_a_helper_that_answered_is_replaced_soon(helped):
    """Each end in a row doubles the wait for the next helper; an answer makes it 5 s again."""

    def wait_for_the_next():
        count, waited = len(helped.spawned), 0
        while len(helped.spawned) == count:
            helped.second()
            waited += 1
        return waited

    helped.second()
    waits = []
    for answers in (False, False, True):
        child = helped.spawned[-1]
        child.answer(metadata={})
        helped.heard()
        helped.second()
        if answers:
            child.answer(values={"library": 1}, duration=0.01, error=None, notices=[])
            helped.heard()
        child.end(1)
        waits.append(wait_for_the_next() - 1)  # one tick to notice the end
    assert waits == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, FIRST_BACKOFF]


@pytest.mark.parametrize("fields", [{"values": {"library": 1}}, {"values": 5, "duration": "long"}, {}])
def test_an_answer_of_another_version(helped, fields):
    """A package that was updated under a run starts helpers that answer otherwise: an error, and another try."""
    helped.second()
    (child,) = helped.spawned
    child.answer(metadata={})
    helped.heard()
    helped.second()
    child.answer(**fields)
    helped.heard()
    while len(helped.spawned) < 2:
        helped.second()
        assert len(helped.samples) < 20
    assert child.kills == 1
    assert len(helped.warnings) == 1
    assert helped.warnings[0].startswith("probe library failed: not an answer: ")


def test_a_stall_that_ends_in_an_error_is_told_once(clock, machine):
    """A timeout of the call's own ends a stall and is no news; an error of a quick call later is."""
    release, errors = threading.Event(), []

    class Timing(Probe):
        name = "timing"
        tier = Tier.THREAD

        def sample(self, ctx, out):
            if not errors:
                release.wait(20)
            raise TimeoutError(f"error {len(errors)}")

    warnings = []
    built = Engine(
        SamplerSettings(interval=1.0),
        lambda sample: None,
        clock=clock,
        root=str(machine.root),
        warn=warnings.append,
        probes=[Timing()],
    )
    built.open()
    (runner,) = built.runners

    def tick():
        clock.now += 1.0
        built.tick(grace=0.0)
        if release.is_set():
            with built._ready:
                assert built._ready.wait_for(lambda: not runner.waiting, 20)

    tick()
    tick()
    assert warnings == ["probe timing hangs; its metrics are missing until it answers"]
    release.set()
    with built._ready:
        assert built._ready.wait_for(lambda: not runner.waiting, 20)
    runner.stats.duration = 5.0  # as a call of 5 s leaves it
    built._look_after_runners()
    assert len(warnings) == 1
    errors.append(1)
    tick()
    tick()
    assert warnings[1:] == ["probe timing failed: TimeoutError: error 1"]
    built.close(1.0)


def test_a_hanging_system_file_does_not_hold_the_end(machine):
    """An inline probe that blocks for good costs the last sample: `stop` returns within 2 s and says so."""
    release, inside = threading.Event(), threading.Event()

    class Blocked(Probe):
        name = "blocked"

        def sample(self, ctx, out):
            inside.set()
            release.wait(60)

    warnings = []
    sampler = Sampler(SamplerSettings(), lambda sample: None, root=str(machine.root), warn=warnings.append)
    sampler._engine._given = [Blocked()]
    sampler.start()
    assert inside.wait(5)
    started = time.monotonic()
    sampler.stop()
    assert time.monotonic() - started < 2.0
    assert warnings == ["a system file, or a probe of another package, does not answer; the last sample is missing"]
    release.set()
    sampler._thread.join(5)


def test_a_hanging_system_file_leaves_no_helper(monkeypatch, machine):
    """Whoever stops ends the helpers where the sampler's thread cannot."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.syspath_prepend(str(FAKES))
    import helper_probes

    release, inside = threading.Event(), threading.Event()

    class Blocked(Probe):
        name = "blocked"

        def sample(self, ctx, out):
            if children():
                inside.set()
                release.wait(60)

    sampler = Sampler(SamplerSettings(), lambda sample: None, root=str(machine.root), warn=lambda line: None)
    sampler._engine._given = [helper_probes.Steady(), Blocked()]
    sampler.start()
    assert inside.wait(5)
    sampler.stop()
    assert children() == []
    release.set()
    sampler._thread.join(5)


def test_probes_of_others_are_not_looked_for_at_the_end(monkeypatch, machine):
    """Loading other packages takes long: a run that is already over does not wait for it."""
    first, stopped, looked = threading.Event(), threading.Event(), []

    def emit(sample):
        first.set()
        stopped.wait(20)

    sampler = Sampler(SamplerSettings(), emit, root=str(machine.root))
    sampler._engine._given = [Beat()]
    monkeypatch.setattr(sampler._engine, "open_third_party", lambda: looked.append(1))
    sampler.start()
    assert first.wait(5)
    sampler._stopping.set()
    stopped.set()
    sampler.stop()
    assert looked == []
