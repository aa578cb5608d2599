"""Fakes for the sampler: a machine as a folder, a clock turned by hand, a vendor library."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path

import pytest
from runferry.sampler import SamplerSettings, runners
from runferry.sampler.context import Context
from runferry.sampler.probes.nvidia import NvidiaProbe
from runferry.sampler.supervisor import HelperRunner
from support.declared import assert_declared

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
FAKES = Path(__file__).parent / "fake"


class Machine:
    """A root folder that holds the /proc and /sys of a machine that is not here."""

    def __init__(self, root):
        self.root = root
        self.own_pids = set()

    def write(self, files):
        for path, text in files.items():
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def load(self, name):
        self.write(json.loads((FIXTURES / name).read_text()))

    def link(self, path, target):
        where = self.root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(target)

    def partition(self, device, target):
        """A partition `sda/sda1` of a disk, with device number `device`."""
        self.write({f"/sys/devices/block/{target}/partition": "1\n"})
        self.link(f"/sys/dev/block/{device}", f"../../devices/block/{target}")
        self.link(f"/sys/class/block/{target.rpartition('/')[2]}", f"../../devices/block/{target}")

    def process(
        self,
        pid,
        *,
        parent=1,
        children=(),
        cpu=0,
        reaped=0,
        threads=1,
        rss=0,
        started=100,
        name="python3",
        state="S",
        faults=(0, 0),
    ):
        """A process; times in clock ticks, rss in pages, faults of its own and of children it has waited for."""
        own, others = faults
        before = [state, parent, pid, pid, 0, -1, 0, 0, 0, own, others]
        fields = [*before, cpu, 0, reaped, 0, 20, 0, threads, 0, started, 0, rss]
        self.write(
            {
                f"/proc/{pid}/stat": f"{pid} ({name}) {' '.join(map(str, fields))} 0 0\n",
                f"/proc/{pid}/task/{pid}/children": " ".join(map(str, children)),
            }
        )

    def context(self, **settings):
        ctx = Context(SamplerSettings(**{"pid": 4242, **settings}), root=str(self.root), own_pids=self.own_pids)
        ctx.begin(1000.0)
        return ctx


class HandClock:
    """Stands still until it is moved; `wait` moves it."""

    def __init__(self):
        self.now = 1000.0
        self.waits = []

    def monotonic(self):
        return self.now

    def time_ns(self):
        return int((1_700_000_000 + self.now) * 1e9)

    def wait(self, event, timeout):
        self.waits.append(timeout)
        self.now += timeout
        return event.is_set()


@pytest.fixture(autouse=True)
def _declared_keys(monkeypatch):
    """Whatever a test samples in this process, probes write only keys that they declare; those without any are fakes."""
    keys, sample_once = {}, runners.sample_once

    def watched(runner, ctx):
        values = sample_once(runner, ctx)
        keys.setdefault(runner.probe, set()).update(values)
        return values

    monkeypatch.setattr(runners, "sample_once", watched)
    yield
    for probe, written in keys.items():
        if probe.metrics:
            assert_declared(probe, written)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def fake_pynvml():
    spec = importlib.util.spec_from_file_location("fake_pynvml", FAKES / "pynvml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fixture_json():
    return lambda name: json.loads((FIXTURES / name).read_text())


@pytest.fixture
def sampled():
    """Open a probe once and give its values tick by tick; all their keys must be declared."""

    class Sampled:
        def __init__(self, probe, ctx):
            self.probe, self.ctx = probe, ctx
            probe.open(ctx)

        def next(self, after=1.0):
            self.ctx.begin(self.ctx.now + after)
            values = {}
            self.probe.sample(self.ctx, values)
            if self.probe.metrics:
                assert_declared(self.probe, values)
            return values

    return Sampled


@pytest.fixture
def from_helper():
    """What a probe tells from a real helper process: its metadata and one sample."""

    def ask(probe, ctx):
        ready = threading.Condition()
        runner = HelperRunner(probe, ctx, ready)
        try:
            runner.request(0.0)
            with ready:
                assert ready.wait_for(lambda: not runner.opening, 20)
            assert runner.reason is None
            runner.request(1.0)
            with ready:
                assert ready.wait_for(lambda: not runner.waiting, 20)
            return runner.metadata(), runner.take(1.0)
        finally:
            runner.close(2.0)

    return ask


@pytest.fixture
def gpus(machine, sampled, fixture_json, fake_pynvml):
    """Open the NVIDIA probe on a fixture's name or data; `pids` are the monitored process and its children."""
    probes = []

    def start(name, *, script=(), pids=(4242,), **settings):
        root, *children = pids
        machine.process(root, children=children)
        for child in children:
            machine.process(child, parent=root)
        nvml = fake_pynvml.FakeNvml(fixture_json(name) if isinstance(name, str) else name, script)
        probes.append(NvidiaProbe(nvml))
        return sampled(probes[-1], machine.context(pid=root, **settings))

    yield start
    for probe in probes:
        probe.close()
