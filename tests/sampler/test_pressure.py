"""Pressure stall information."""

from __future__ import annotations

from runferry.sampler.probes.psi import PsiProbe


def pressure(some, full=None):
    lines = [f"some avg10=1.00 avg60=2.00 avg300=3.00 total={some}\n"]
    lines += [f"full avg10=1.00 avg60=2.00 avg300=3.00 total={full}\n"] if full is not None else []
    return "".join(lines)


def test_pressure_of_the_host_and_of_the_own_group(machine, sampled):
    """Per cent of the interval in which tasks stood still, by the totals; the group's beside the host's."""
    machine.load("cgroup-v2-k8s.json")
    group = "/sys/fs/cgroup/c1"
    machine.write({"/proc/pressure/cpu": pressure(1_000_000, 0), "/proc/pressure/io": pressure(5_000, 4_000)})
    probe = sampled(PsiProbe(), machine.context(extended=True))
    machine.write({"/proc/pressure/cpu": pressure(1_500_000, 0), "/proc/pressure/io": pressure(5_000, 4_000)})
    machine.write({f"{group}/io.pressure": pressure(998_877_665 + 2_000_000, 887_766_554 + 1_000_000)})
    assert probe.next(after=2.0) == {
        "psi.cpu.some": 25.0,
        "psi.cpu.full": 0.0,
        "psi.io.some": 0.0,
        "psi.io.full": 0.0,
        "cgroup.psi.cpu.some": 0.0,
        "cgroup.psi.cpu.full": 0.0,
        "cgroup.psi.memory.some": 0.0,
        "cgroup.psi.memory.full": 0.0,
        "cgroup.psi.io.some": 100.0,
        "cgroup.psi.io.full": 50.0,
    }


def test_pressure_is_where_either_source_is(machine, sampled):
    """The host's without a group, the group's without the host's, none without the setting or both."""
    ctx = machine.context(extended=True)
    assert PsiProbe().discover(ctx) == "no /proc/pressure"
    machine.load("cgroup-v2-k8s.json")
    assert PsiProbe().discover(machine.context(extended=True)) is None
    assert "extended" in PsiProbe().discover(machine.context())
    assert set(sampled(PsiProbe(), machine.context(extended=True)).next()) == {
        f"cgroup.psi.{resource}.{kind}" for resource in ("cpu", "memory", "io") for kind in ("some", "full")
    }
    machine.write({"/proc/pressure/cpu": pressure(1)})
    assert set(sampled(PsiProbe(), machine.context(extended=True, no_cgroup=True)).next()) == {"psi.cpu.some"}
