"""A long run: nothing grows from tick to tick."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest
from runferry.sampler import SamplerSettings, registry
from runferry.sampler.engine import Engine

FAKES = Path(__file__).parent / "fake"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
WARM, TICKS = 200, 1000
MIB = 1 << 20


def use(pid):
    """Resident bytes, descriptors and threads of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    descriptors, threads = (len(list(Path(f"/proc/{pid}/{folder}").iterdir())) for folder in ("fd", "task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), descriptors, threads


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_a_thousand_ticks(monkeypatch, clock):
    """1,000 ticks at 0.1 s, all probes of this host and a helper with two GPUs: memory, descriptors, threads stay."""
    monkeypatch.setenv("FAKE_NVML", str(FIXTURES / "nvml-h100x2.json"))
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setattr("runferry.sampler.probes.nvml_library.LINUX_SIGNS", ("/proc/self",))
    samples, warnings = 0, []

    def emit(sample):
        nonlocal samples
        samples += bool(sample.values)

    settings = SamplerSettings(interval=0.1, extended=True, per_core=True, per_interface=True, self_usage=True)
    monkeypatch.setitem(registry.SIGNS, "nvidia", lambda ctx: True)
    probes = list(registry.built_in(settings, warnings.append))
    engine = Engine(settings, emit, clock=clock, root="/", warn=warnings.append, probes=probes)
    others = set(engine._ctx.own_pids)  # of samplers of other tests in this process that are still being ended
    engine.open()
    found = []
    try:
        engine.tick(grace=5.0)
        engine.settle(20.0)
        (helper,) = set(engine._ctx.own_pids) - others
        for tick in range(1, WARM + TICKS + 1):
            clock.now += 0.1
            engine.tick(grace=5.0)
            if tick in {WARM, WARM + TICKS}:
                gc.collect()
                found.append((use(os.getpid()), use(helper), len(threading.enumerate())))
    finally:
        engine.close(5.0)
    assert samples >= TICKS
    (before, helper_before, threads_before), (after, helper_after, threads_after) = found
    assert (after[1:], helper_after[1:], threads_after) == (before[1:], helper_before[1:], threads_before)
    assert after[0] - before[0] < MIB / 2
    assert helper_after[0] - helper_before[0] < MIB / 2
    assert warnings == []
