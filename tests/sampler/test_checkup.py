"""What a look at all probes finds, where some hang, fail or are not here."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from runferry.sampler import Probe, ProbeUnavailableError, SamplerSettings, Tier, checkup
from runferry.sampler.checkup import check
from runferry.sampler.probes.disk_usage import DiskUsageProbe
from runferry.sampler.probes.nvidia import NvidiaProbe

FAKES = Path(__file__).parent / "fake"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


class Acted(Probe):
    """Does at each step what it is given: an exception to raise, or an event to wait for."""

    def __init__(self, name, tier=Tier.INLINE, *, reason=None, values=None, **steps):
        self.name, self.tier, self._reason, self._steps = name, tier, reason, steps
        self._values = {"a.x": 1} if values is None else values
        self.closed = False

    def _act(self, step):
        what = self._steps.get(step)
        if isinstance(what, Exception):
            raise what
        if what is not None:
            what.wait(20)

    def discover(self, ctx):
        self._act("discover")
        return self._reason

    def open(self, ctx):
        self._act("open")

    def sample(self, ctx, out):
        self._act("sample")
        out.update(self._values)

    def close(self):
        self.closed = True


@pytest.fixture
def hold():
    event = threading.Event()
    yield event
    event.set()


def checked(machine, *probes, within=20.0, **settings):
    found = check(
        SamplerSettings(**settings), root=str(machine.root), within=within, folder=str(machine.root), probes=probes
    )
    return {finding.probe: finding for finding in found.findings}, found


def test_what_is_here_and_what_it_costs(machine):
    """Keys, and milliseconds to open and to sample."""
    probe = Acted("a", values={"b": 2, "a": 1})
    found, whole = checked(machine, probe)

    assert (found["a"].state, found["a"].why, found["a"].keys) == ("ok", "", ("a", "b"))
    assert 0 <= found["a"].open_ms < 1000
    assert 0 <= found["a"].sample_ms < 1000
    assert whole.healthy
    assert probe.closed


@pytest.mark.parametrize(
    ("probe", "state", "why"),
    [
        (Acted("a", reason="no such driver"), "absent", "no such driver"),
        (Acted("a", reason="only with the setting extended"), "off", "only with the setting extended"),
        (Acted("a", open=ProbeUnavailableError("no device")), "absent", "no device"),
        (Acted("a", discover=ValueError("x")), "failed", "ValueError: x"),
        (Acted("a", open=PermissionError(13, "Permission denied")), "failed", "Permission denied"),
        (Acted("a", sample=ValueError("x")), "failed", "ValueError: x"),
        (Acted("a", values={}), "absent", "it is here, and has nothing to tell"),
    ],
)  # fmt: skip
def test_why_there_is_nothing(machine, probe, state, why):
    """What is not here is told apart from what is here and cannot be read; only the latter is ill."""
    found, whole = checked(machine, probe)

    assert (found["a"].state, found["a"].why, found["a"].keys) == (state, why, ())
    assert whole.healthy == (state != "failed")


@pytest.mark.parametrize("step", ["discover", "open", "sample"])
def test_a_probe_that_hangs_is_named_within_the_bound(machine, hold, step):
    """With the step that it hangs in, whatever its tier; the others are told as ever."""
    begun = time.monotonic()
    found, whole = checked(machine, Acted("ill", **{step: hold}), Acted("well"), within=0.6)

    assert time.monotonic() - begun < 5
    words = {"discover": "its source was looked for", "open": "it was opened", "sample": "it was sampled"}[step]
    assert (found["ill"].state, found["ill"].why) == ("hangs", f"no answer within 0.6 s, while {words}")
    assert found["well"].state == "ok"
    assert not whole.healthy


def test_a_library_is_tried_in_its_helper(machine, monkeypatch):
    """As a sampler does it, and the process is gone afterwards."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setenv("FAKE_NVML", str(FIXTURES / "nvml-rtx4090.json"))
    machine.write({"/dev/nvidiactl": ""})
    found, _ = checked(machine, NvidiaProbe(), probe_intervals={"nvidia": 3600})

    assert found["nvidia"].state == "ok", found["nvidia"]
    assert "gpu.0.temp" in found["nvidia"].keys
    assert found["nvidia"].open_ms > 0


def test_a_library_that_hangs_is_named_and_its_helper_ended(machine, monkeypatch):
    """A call that never returns costs the bound, and no process stays."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setenv("FAKE_NVML", str(FIXTURES / "nvml-rtx4090.json"))
    hang = {"fn": "nvmlDeviceGetTemperature", "device": 0, "call": 1, "sleep": 3600}
    monkeypatch.setenv("FAKE_NVML_SCRIPT", json.dumps([hang]))
    machine.write({"/dev/nvidiactl": ""})
    found, _ = checked(machine, NvidiaProbe(), within=1.5)

    assert found["nvidia"].state == "hangs"
    assert "helper process" in found["nvidia"].why


def test_a_probe_that_cannot_be_loaded_is_a_finding(machine, monkeypatch):
    """The others are tried all the same."""
    monkeypatch.setattr(
        checkup.registry, "BUILT_IN", {"broken": "no.such:Probe", "memory": checkup.registry.BUILT_IN["memory"]}
    )
    machine.write({"/proc/meminfo": "MemTotal: 4 kB\nMemAvailable: 1 kB\n"})
    found = check(SamplerSettings(), root=str(machine.root), folder=str(machine.root))
    states = {finding.probe: finding.state for finding in found.findings}

    assert states["broken"] == "failed"
    assert states["memory"] == "ok"


def test_the_limits_of_a_pod_are_told(machine):
    """What binds, and what the host has."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/devices/system/cpu/online": "0-63\n"})
    _, found = checked(machine, pid=4242)

    assert (found.limits["cpus"], found.limits["host_cpus"]) == (8, 64)
    assert found.limits["memory"]["bytes"] == 32 << 30


def test_facts_that_do_not_answer_are_named(machine, monkeypatch, hold):
    """A run's record of the machine will lack them: a dead directory service, a disk that is not there."""
    monkeypatch.setattr("getpass.getuser", lambda: hold.wait(20) and "ada")
    _, found = checked(machine, within=0.5, disk_paths=("/", "/no/such"))

    assert [text.partition(": ")[2].split(":")[0] for text in found.warnings] == ["disk /no/such", "user"]
    assert "no answer for" in found.warnings[1]


def test_what_a_run_will_stumble_over_is_a_warning(machine, monkeypatch):
    """Hidden processes, no interpreter for helpers, no room and no permission for logs: each with what to do."""
    line = "1 0 0:5 / /proc rw - proc proc rw,hidepid=invisible\n"
    machine.write({"/proc/4242/mountinfo": line})
    real = os.statvfs(machine.root)
    full = os.statvfs_result((*real[:2], real[2], 0, 0, *real[5:]))
    monkeypatch.setattr(checkup.os, "statvfs", lambda path: full)
    monkeypatch.setattr(checkup.os, "access", lambda path, mode: False)
    monkeypatch.setattr(checkup.sys, "executable", "")
    _, found = checked(machine, pid=4242)

    for words in ("hidepid", "sys.executable", "MiB left", "no permission"):
        assert any(words in warning for warning in found.warnings), found.warnings


def test_a_notice_is_told(machine):
    """Of a probe without values it is what went wrong: a path that is not there."""
    found, whole = checked(machine, *DiskUsageProbe.instances(SamplerSettings(disk_paths=("/nope",))))
    assert (found["disk_usage:/nope"].state, whole.healthy) == ("failed", False)
    assert found["disk_usage:/nope"].why == "this path cannot be reached: No such file or directory"


def test_settings_that_name_nothing_are_warnings(machine):
    """A process and a probe that are not there; errors in words, not Python's."""
    machine.write({"/proc/stat": "cpu0 1 0 0 1\n"})
    _, whole = checked(machine, pid=99, skip_probes=("nope",), disk_paths=("/nope",))
    assert [line for line in whole.warnings if "no process 99" in line]
    assert [line for line in whole.warnings if "no probe 'nope'" in line]
    assert not [line for line in whole.warnings if "Error" in line]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("new/er", None),
        (".", None),
        ("file", "file takes no logs: it is no folder (--dir)"),
        ("file/below", "/file is no folder (--dir)"),
    ],
)
def test_where_logs_are_to_go(machine, monkeypatch, name, words):
    """A folder that is yet to be made is none the worse; what is no folder is told."""
    monkeypatch.chdir(machine.root)
    (machine.root / "file").touch()
    whole = check(SamplerSettings(), root=str(machine.root), folder=name, probes=())
    of_logs = [line for line in whole.warnings if "logs" in line or "statvfs" in line]
    assert len(of_logs) == (words is not None)
    assert words is None or of_logs[0].endswith(words)


def test_a_working_directory_that_is_gone(machine, tmp_path, monkeypatch):
    """It is told, and everything else is looked at; a folder by its whole path needs none."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = check(SamplerSettings(), root=str(machine.root), folder=".", probes=())
    assert ". takes no logs: the working directory is gone (--dir)" in found.warnings
    whole = check(SamplerSettings(), root=str(machine.root), folder=str(tmp_path), probes=())
    assert not [line for line in whole.warnings if "takes no logs" in line]
