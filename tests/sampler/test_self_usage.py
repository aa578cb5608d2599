"""What the sampler says of its own use."""

from __future__ import annotations

import threading

import pytest
from runferry.sampler import Sampler, SamplerSettings, proctree
from runferry.sampler.probes import self_usage
from runferry.sampler.probes.self_usage import SelfUsageProbe
from runferry.sampler.proctree import Ended, Process


@pytest.fixture
def thread():
    """A thread that is named as ours are, and one of somebody else."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, name=name, daemon=True) for name in ("runferry-x", "trainer")]
    for each in threads:
        each.start()
    yield threads
    over.set()


def test_helpers_and_threads_count(machine, sampled, thread):
    """CPU time of helpers and of our threads since the last sample, over the available CPUs; memory of helpers only."""
    ours, theirs = (f"/proc/self/task/{each.native_id}/stat" for each in thread)
    machine.process(4242, cpu=1000, rss=5000)
    machine.process(500, parent=4242, cpu=10, rss=256)
    machine.own_pids.add(500)
    machine.write({"/proc/stat": "", "/sys/devices/system/cpu/online": "0-1\n"})

    def spent(mine, other):
        for path, cpu in ((ours, mine), (theirs, other)):
            machine.process(7, cpu=cpu, rss=5000, reaped=cpu)
            machine.write({path: (machine.root / "proc/7/stat").read_text()})

    spent(100, 100)
    ctx = machine.context(self_usage=True)
    probe = sampled(SelfUsageProbe(), ctx)
    assert probe.next() == {"sampler.memory.rssMB": 256 * ctx.page_size / 2**20}
    spent(115, 900)
    machine.process(500, parent=4242, cpu=15, rss=512)
    values = probe.next(after=10.0)
    assert values["sampler.memory.rssMB"] == 512 * ctx.page_size / 2**20
    assert values["sampler.cpu"] == pytest.approx(100 * (15 + 5) / ctx.ticks_per_second / 10 / 2)


def test_programs_that_have_ended_count(machine, sampled, monkeypatch):
    """What a program used that began and ended between two samples, once, and the last stretch of one that was seen."""
    machine.process(4242, started=100)
    machine.process(500, parent=4242, cpu=10, started=200)
    machine.own_pids.add(500)
    machine.write({"/proc/stat": "", "/sys/devices/system/cpu/online": "0\n"})
    monkeypatch.setattr(proctree, "_ended", [])
    monkeypatch.setattr(self_usage, "OURS", "nobody's")
    ctx = machine.context(self_usage=True)
    probe = sampled(SelfUsageProbe(), ctx)
    probe.next()
    machine.own_pids.clear()
    seen, unseen = Process(500, 4242, 200, 30, 0, 1, 0), Process(501, 4242, 300, 40, 5, 1, 0)
    proctree._ended += [Ended(seen, {}), Ended(unseen, {})]
    assert probe.next()["sampler.cpu"] == pytest.approx(100 * (20 + 45) / ctx.ticks_per_second)
    assert probe.next()["sampler.cpu"] == 0.0


def test_only_on_request(machine):
    """Without the setting, and where there is no /proc, the probe is not there."""
    machine.write({"/proc/stat": ""})
    assert SelfUsageProbe().discover(machine.context()) == "only with the setting self_usage"
    assert SelfUsageProbe().discover(machine.context(self_usage=True)) is None
    (machine.root / "proc/stat").unlink()
    assert SelfUsageProbe().discover(machine.context(self_usage=True)) == "no /proc/stat"


def test_on_this_machine():
    """A real sampler finds itself cheap: well below a core."""
    samples, enough = [], threading.Event()

    def emit(sample):
        samples.append(sample.values)
        if len(samples) > 3:
            enough.set()

    sampler = Sampler(SamplerSettings(interval=0.1, self_usage=True, probes=("self_usage",)), emit)
    sampler.start()
    assert enough.wait(10)
    sampler.stop()
    assert all(0 <= values["sampler.cpu"] < 50 for values in samples[1:])
    assert {values["sampler.memory.rssMB"] for values in samples} == {0.0}
