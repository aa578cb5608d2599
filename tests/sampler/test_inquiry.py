"""Both environment records and the side record, of machines whose parts do not answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from runferry.sampler import (
    Probe,
    ProbeUnavailableError,
    SamplerSettings,
    Tier,
    environment,
    execution_context,
    hardware,
)
from runferry.sampler.clock import SystemClock
from runferry.sampler.engine import Engine
from runferry.sampler.environment import Inquiry
from runferry.sampler.gathering import Gathering, merge
from runferry.sampler.hostinfo import cpu_model
from runferry.sampler.machine import machine_facts


@pytest.fixture
def hold():
    """An event that hanging calls wait for; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


class Fixed:
    """Devices that are told as given."""

    def __init__(self, *told):
        self.told = list(told)

    def settle(self, timeout):
        return timeout > 0

    def metadata(self):
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


def inquiry(machine, devices=None, **given):
    told = {"argv": ["train.py"], "started_at_ns": 1, "folder": machine.root, "environ": {}, **given}
    return Inquiry(SamplerSettings(), devices=devices or Fixed({}), root=str(machine.root), **told)


def test_a_fact_that_hangs_or_fails_costs_only_its_own_fields(hold):
    """The others are there at the deadline, it is named with the reason, and a late answer is not lost."""
    facts = {
        "quick": lambda: {"a": 1, "empty": "", "none": None},
        "broken": lambda: 1 / 0,
        "slow": lambda: hold.wait(20) and {"late": 2},
    }
    gathering = Gathering(facts)

    assert gathering.take(0.1) == {"a": 1}
    assert gathering.missing["broken"] == "ZeroDivisionError: division by zero"
    assert gathering.missing["slow"].startswith("no answer for 0.")
    hold.set()
    assert gathering.take(20) == {"late": 2}
    assert set(gathering.missing) == {"broken"}
    assert set(gathering.seconds) == set(facts)


def test_a_wait_for_facts_ends_when_it_is_hurried(hold):
    """The end of a run waits for none of them."""
    gathering = Gathering({"slow": lambda: hold.wait(20) and {}})
    threading.Timer(0.05, gathering.hurry).start()
    begun = time.monotonic()

    assert gathering.take(20) == {}
    assert time.monotonic() - begun < 10


def test_all_is_known_before_the_deadline_where_all_answers():
    """Nobody waits for the clock: an hour's deadline costs nothing."""
    assert Gathering({"a": lambda: {"a": 1}}).take(3600) == {"a": 1}


def test_fields_of_several_facts_join():
    """Entry by entry where they are maps; what is not known takes nothing away."""
    fields = {"disk": {"/": 1}, "host": "n"}
    merge(fields, {"disk": {"/data": 2}, "host": "", "gpu": None})

    assert fields == {"disk": {"/": 1, "/data": 2}, "host": "n"}


@pytest.mark.parametrize("call", ["getuser", "statvfs", "find", "_system", "_program"])
def test_whatever_hangs_both_records_come(machine, monkeypatch, hold, call):
    """A dead home, directory service or disk: the records come with the rest, and the third has it when it answers."""
    where = {"getuser": environment.getpass, "statvfs": os, "find": environment.gitinfo}.get(call, environment)
    real = getattr(where, call)

    def hang(*given, **named):
        hold.wait(20)
        return real(*given, **named)

    monkeypatch.setattr(environment, "FIRST_WITHIN", 0.5)
    monkeypatch.setattr(where, call, hang)
    (machine.root / ".git").mkdir()
    (machine.root / ".git" / "HEAD").write_text("0" * 40)
    machine.write({"/proc/meminfo": "MemTotal: 1024 kB\n", "/proc/cpuinfo": "model name: EPYC\n"})
    lost = {
        "getuser": {"username"},
        "statvfs": {"disk"},
        "find": {"git", "code_path"},
        "_system": {"os"},
        "_program": {"program", "code_path", "code_path_local", "git"},
    }[call]
    asked = inquiry(machine)
    told = {**asked.context(), **asked.hardware()}

    assert {"python", "host", "root", "memory", "cpu"} <= set(told)
    assert not lost & set(told)
    assert asked.missing
    hold.set()
    assert set(asked.rest()) == lost
    assert asked.missing == {}


def test_devices_that_come_late_are_told_once(machine):
    """What was known in time is in the second record; the third has what is new, and no list again."""
    first = {"gpu_count": 1, "gpu_type": "A", "gpu_nvidia": [{"name": "A"}]}
    more = {**first, "gpu_count": 2, "gpu_amd": [{"id": "0"}], "driver_version": "550"}
    asked = inquiry(machine, Fixed(first, more))
    asked.context()

    assert asked.hardware().items() >= first.items()
    assert asked.rest() == {"gpu_count": 2, "gpu_amd": [{"id": "0"}]}
    assert asked.side["driver_version"] == "550"


def test_settings_say_what_devices_do_not(machine):
    """The number and kind of GPUs may be told, whether there are any or not."""
    settings = SamplerSettings(gpu_count=8, gpu_type="B200", cpu_count=4, cpu_logical_count=6)
    record = hardware(settings, root=str(machine.root), devices_within=0)

    assert (record["gpu_count"], record["gpu_type"]) == (8, "B200")
    assert (record["cpu_count"], record["cpu_count_logical"]) == (4, 6)


class Told(Probe):
    """A probe that knows of devices."""

    tier = Tier.THREAD

    def __init__(self, name, fields, hold=None):
        self.name, self._fields, self._hold = name, fields, hold

    def open(self, ctx):
        if self._hold is not None:
            self._hold.wait(20)

    def sample(self, ctx, out):
        pass

    def metadata(self):
        if isinstance(self._fields, Exception):
            raise self._fields
        return self._fields


def engine(*probes):
    warnings = []
    found = Engine(SamplerSettings(), print, clock=SystemClock(), root="/", warn=warnings.append, probes=probes)
    found.open()
    found.tick(grace=0.0)
    return found, warnings


def test_devices_of_several_vendors_add_up(hold):
    """One that fails or hangs leaves the others'; the first names the kind."""
    probes = (
        Told("a", {"gpu_count": 2, "gpu_type": "A", "gpu_nvidia": [{}]}),
        Told("broken", ValueError("x")),
        Told("slow", {"gpu_count": 9}, hold),
        Told("b", {"gpu_count": 1, "gpu_type": "B", "gpu_amd": [{}]}),
    )
    found, warnings = engine(*probes)
    found.settle(0.3)

    assert found.metadata() == {"gpu_count": 3, "gpu_type": "A", "gpu_nvidia": [{}], "gpu_amd": [{}]}
    assert warnings == ["probe broken does not tell: ValueError: x"]
    hold.set()
    assert found.settle(20)
    assert found.metadata()["gpu_count"] == 12
    found.close(1.0)


def test_without_a_sampler_the_devices_are_opened_and_closed(machine, monkeypatch):
    """Where metrics are not wanted, the record still has the devices, and no probe stays open."""
    closed = []
    probe = Told("a", {"gpu_count": 2})
    monkeypatch.setattr(probe, "close", lambda: closed.append(1))
    monkeypatch.setattr(environment.registry, "built_in", lambda settings, warn, root="/": [probe])
    asked = Inquiry(
        SamplerSettings(), argv=[], started_at_ns=1, folder=machine.root, environ={}, root=str(machine.root)
    )
    asked.context()

    assert asked.hardware()["gpu_count"] == 2
    assert asked.rest() == {}
    assert closed


def test_an_unavailable_device_is_no_device(machine, monkeypatch):
    """A library without a device ends the wait at once."""

    class Absent(Told):
        def open(self, ctx):
            raise ProbeUnavailableError("none here")

    monkeypatch.setattr(environment.registry, "built_in", lambda settings, warn, root="/": [Absent("a", {})])
    assert "gpu_count" not in hardware(SamplerSettings(), root=str(machine.root), devices_within=3600)


def test_the_mail_address_is_that_of_the_settings(tmp_path):
    """Only where the user gave one; the repository's is not looked at."""
    told = execution_context(SamplerSettings(), argv=[], folder=tmp_path, environ={"WANDB_USER_EMAIL": "a@b"})
    assert told["email"] == "a@b"


def side(machine, environ=None, paths=("/data",)):
    gathering = Gathering(machine_facts(machine.context(), environ or {}, paths))
    found = gathering.take(20)
    assert gathering.missing == {}
    return found


def test_the_side_record_tells_limits_and_visible_devices(machine):
    """Of a pod: the quota and memory that bind, the CPUs it may run on, the devices it was given."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/var/run/secrets/kubernetes.io/serviceaccount/token": "secret"})
    found = side(machine, {"CUDA_VISIBLE_DEVICES": "0,1", "SECRET_VISIBLE": "x"})

    assert found["limits"]["cpus"] == 8
    assert found["limits"]["cpu_quota"]["cpus"] == 8
    assert found["limits"]["memory"]["bytes"] == 32 << 30
    assert found["visible_devices"] == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert found["container"] == "kubernetes"
    assert "secret" not in str(found)


def test_the_side_record_tells_cards_file_systems_and_nodes(machine):
    """Interfaces with hardware, kinds of the watched paths' file systems, NUMA nodes, pages, the kernel."""
    machine.write(
        {
            "/sys/class/net/eth0/device/vendor": "",
            "/sys/class/net/eth0/speed": "100000\n",
            "/sys/class/net/eth0/mtu": "9000\n",
            "/sys/class/net/eth0/operstate": "up\n",
            "/sys/class/net/eth1/device/vendor": "",
            "/sys/class/net/eth1/speed": "-1\n",
            "/sys/class/net/veth9/mtu": "1500\n",
            "/sys/class/net/lo/mtu": "65536\n",
            "/sys/class/infiniband/mlx5_0/ports/1/state": "4",
            "/sys/devices/system/node/node0/cpulist": "0-3\n",
            "/sys/devices/system/node/node1/cpulist": "4-7\n",
            "/proc/meminfo": "SwapTotal: 4 kB\nHugePages_Total: 7\nHugepagesize: 2048 kB\n",
            "/proc/cmdline": "root=/dev/sda password=hunter2\n",
            "/proc/sys/kernel/osrelease": "6.8.0\n",
            "/proc/4242/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /data rw - nfs4 host:/secret rw\n",
        }
    )
    machine.link("/sys/class/net/eth0/device/driver", "../../../bus/pci/drivers/mlx5_core")
    found = side(machine)

    eth0 = {"name": "eth0", "driver": "mlx5_core", "speed_mbps": 100_000, "mtu": 9000, "state": "up"}
    assert found["network"] == [eth0, {"name": "eth1"}, {"name": "mlx5_0", "driver": "infiniband"}]
    assert found["file_systems"] == {"/data": "nfs4", "/dev/shm": "ext4"}
    assert found["numa"] == {"0": "0-3", "1": "4-7"}
    assert found["memory"] == {"swap_total": 4096, "huge_pages": 7, "huge_page_size": 2 << 20}
    assert found["kernel"]["release"] == "6.8.0"
    assert len(found["kernel"]["command_line_sha256"]) == 64
    assert "container" not in found
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("implementer", "part", "model"),
    [("0x41", "0xd4f", "Neoverse-V2"), ("0xc0", "0xac3", "Ampere-1"), ("0x41", "0xfff", None), ("?", "0xd4f", None)],
)
def test_a_cpu_without_a_name(machine, implementer, part, model):
    """On Arm the design of the core names it; one that is not known has no name."""
    machine.write({"/proc/cpuinfo": f"processor: 0\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"})
    assert cpu_model(machine.context()) == model


def test_a_git_program_that_hangs_is_never_started(tmp_path):
    """The records of a run in a repository come at once though `git` on the path would hang for ever."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("0" * 40)
    code = "from runferry.sampler import *; print(execution_context(SamplerSettings())['git'])"
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout == f"{{'commit': '{'0' * 40}'}}\n"
