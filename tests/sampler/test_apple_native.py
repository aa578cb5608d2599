"""Apple's libraries through ctypes, against a C library in their place, and the probes around them."""

from __future__ import annotations

import ctypes
import ctypes.util
import plistlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from runferry.sampler.command import CommandError
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes import apple_chip
from runferry.sampler.probes.apple import AppleProbe
from runferry.sampler.probes.apple_figures import chip_values
from runferry.sampler.probes.apple_ioreport import IoReport
from runferry.sampler.probes.apple_memory import AppleMemoryProbe
from runferry.sampler.probes.apple_native import LIBRARIES, Libraries, NativeError
from runferry.sampler.probes.apple_sensors import HidSensors, Smc, SmcMessage

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures" / "sampler"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

SYSCTL = f"""hw.memsize: {16 << 30}
hw.model: Mac14,9
hw.optional.arm64: 1
hw.perflevel0.physicalcpu: 6
hw.perflevel1.physicalcpu: 4
machdep.cpu.brand_string: Apple M2 Pro
vm.swapusage: total = 2048.00M  used = 512.00M  free = 1536.00M  (encrypted)
"""
TABLES = {
    "voltage-states1-sram": struct.pack("<4I", 912_000_000, 600, 2_424_000_000, 900),
    "voltage-states5-sram": struct.pack("<4I", 1_200_000_000, 600, 3_504_000_000, 900),
    "voltage-states9": struct.pack("<6I", 0, 0, 444_000_000, 600, 1_398_000_000, 900),
}


class Shim:
    """The C library, its switches and its counts."""

    def __init__(self, path):
        self.paths = dict.fromkeys(LIBRARIES, str(path))
        self._library = ctypes.CDLL(str(path))
        for name in ("fail_samples", "no_energy", "no_sensors", "busy"):
            self.set(name, 0)

    def set(self, name, value):
        ctypes.c_int.in_dll(self._library, name).value = value

    def live(self):
        return [ctypes.c_int.in_dll(self._library, name).value for name in ("live_objects", "live_handles")]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("apple") / "apple.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, HERE / "fake" / "apple_shim.c"], check=True)
    return path


@pytest.fixture
def shim(compiled):
    return Shim(compiled)


# --- the libraries


def test_the_controller_s_message():
    """80 bytes with the fields where the driver looks for them."""
    offsets = {name: getattr(SmcMessage, name).offset for name, _ in SmcMessage._fields_}
    assert ctypes.sizeof(SmcMessage) == 80
    assert offsets == {
        "key": 0,
        "version": 4,
        "limits": 12,
        "info": 28,
        "result": 40,
        "status": 41,
        "command": 42,
        "index": 44,
        "data": 48,
    }


@needs_compiler
def test_counters_between_two_readings(shim):
    """Each reading tells what was counted since the last one, over the time that passed; nothing is left behind."""
    before = shim.live()
    now = iter([10.0, 12.0, 12.5])
    counters = IoReport(Libraries(shim.paths), clock=lambda: next(now))
    (channels, seconds), (_, short) = counters.read(), counters.read()
    assert (seconds, short) == (2.0, 0.5)
    by_name = {channel.name: channel for channel in channels}
    assert by_name["GPU Energy"].value == 9120250000
    assert by_name["CPU Energy"].unit == "mJ"  # its label ends in a blank
    assert by_name["GPUPH"].states == [("OFF", 270000000), ("P1", 100000000), ("P2", 630000000)]
    assert by_name["PCPU040"].subgroup == "CPU Core Performance States"
    assert chip_values(channels, apple_chip.Tables(), seconds)["gpu.0.powerWatts"] == pytest.approx(4.560125)
    counters.close()
    counters.close()
    assert shim.live() == before


@needs_compiler
def test_a_thousand_readings_leave_nothing(shim):
    """What the libraries create is released at once, also where a reading fails."""
    libraries = Libraries(shim.paths)
    counters, controller, hid = IoReport(libraries), Smc(libraries), HidSensors(libraries)
    before = shim.live()
    for turn in range(1000):
        shim.set("fail_samples", turn % 10 == 5)
        if turn % 10 == 5:
            with pytest.raises(NativeError, match="no sample"):
                counters.read()
        else:
            assert len(counters.read()[0]) == 5
        assert controller.read("PSTR") == pytest.approx(21.4)
        assert len(hid.read()) == 3
    assert shim.live() == before
    controller.close()
    counters.close()


@needs_compiler
def test_a_missing_function_leaves_nothing(shim):
    """Samples are released although the function that compares them is gone."""
    libraries = Libraries(shim.paths)
    counters = IoReport(libraries)
    before = shim.live()

    def gone(*_):
        raise NativeError("gone")

    libraries.IOReportCreateSamplesDelta = gone
    for _ in range(3):
        with pytest.raises(NativeError, match="gone"):
            counters.read()
    assert shim.live() == before
    counters.close()


@needs_compiler
def test_a_refused_subscription_leaves_nothing(shim):
    """Counters that cannot be opened are an error that says so, and release what they had."""
    before = shim.live()
    shim.set("no_energy", 1)
    with pytest.raises(NativeError, match="refused"):
        IoReport(Libraries(shim.paths))
    assert shim.live() == before


@needs_compiler
def test_the_controller_is_let_go(shim):
    """Every service that was looked at, and the connection."""
    before = shim.live()
    controller = Smc(Libraries(shim.paths))
    assert shim.live()[1] == before[1] + 1
    controller.close()
    assert shim.live() == before


@needs_compiler
def test_the_controller_s_keys(shim):
    """Floats by prefix, found by their number; another type, and a key that is not there, are errors of that key."""
    controller = Smc(Libraries(shim.paths))
    assert controller.sensors(("Tg", "Tp", "Te")) == ["Te05", "Tg05", "Tg0D", "Tg\xfe\xff", "Tp01", "Tp05"]
    assert controller.read("Tp01") == 51.25
    for key in ("TpXX", "ZZZZ"):
        with pytest.raises(NativeError):
            controller.read(key)
    shim.set("busy", 1)
    with pytest.raises(NativeError, match="0x0, 3"):
        controller.read("Tp01")
    controller.close()
    controller.close()


@needs_compiler
def test_sensors_by_name(shim):
    """Those that have an event now, in degrees."""
    found = HidSensors(Libraries(shim.paths)).read()
    assert found == {"pACC MTR Temp Sensor0": 50.1, "eACC MTR Temp Sensor0": 46.4, "GPU MTR Temp Sensor1": 47.9}


def test_libraries_that_are_not_there():
    """No library, or one without a function or variable, is one kind of error, never a crash."""
    with pytest.raises(NativeError, match="/no/such/library cannot be loaded"):
        Libraries({"cf": "/no/such/library"}).release(1)
    libc = ctypes.util.find_library("c")
    libraries = Libraries(dict.fromkeys(LIBRARIES, libc))
    with pytest.raises(NativeError, match="has no IOReportCopyChannelsInGroup"):
        libraries.IOReportCopyChannelsInGroup(None)
    with pytest.raises(NativeError, match="has no mach_task_self_"):
        _ = libraries.task


# --- the probes


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The system's tools as shell scripts on PATH; a test may write others over them."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    (folder / "pmgr.plist").write_bytes(plistlib.dumps([{"IOName": "pmgr", **TABLES}]))
    (folder / "sysctl.txt").write_text(SYSCTL)

    def write(name, body):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    write("sysctl", f"cat {folder}/sysctl.txt")
    write("vm_stat", f"cat {FIXTURES}/apple-vm_stat.txt")
    write(
        "ioreg",
        f'case "$*" in *pmgr*) cat {folder}/pmgr.plist ;; *) cat {FIXTURES}/apple-ioreg-IOAccelerator.plist ;; esac',
    )
    write("powermetrics", f"cat {FIXTURES}/apple-powermetrics.plist")
    return write


def no_function(_):
    raise NativeError("this system has no such function")


@needs_compiler
def test_everything_at_once(shim, tools, machine, sampled):
    """Counters, sensors and the graphics driver in one sample; load by frequency, not the driver's."""
    probe = sampled(AppleProbe(shim.paths), machine.context())
    values = probe.next()
    seconds = 9.12025 / values["gpu.0.powerWatts"]
    assert values == {
        "gpu.0.gpu": pytest.approx(66.18, abs=0.01),
        "gpu.0.freq": pytest.approx(1267.3, abs=0.1),
        "gpu.0.temp": 48.5,
        "gpu.0.powerWatts": pytest.approx(9.12025 / seconds),
        "gpu.0.memoryAllocated": 37.5,
        "cpu.pcpu_percent": pytest.approx(60.27, abs=0.01),
        "cpu.pcpu_freq": pytest.approx(2640.0),
        "cpu.avg_temp": pytest.approx(50.667, abs=0.001),
        "cpu.powerWatts": pytest.approx(4.812 / seconds),
        "ane.power": 0.0,
        "system.powerWatts": pytest.approx(max(21.4, (9.12025 + 4.812) / seconds)),
    }
    metadata = probe.probe.metadata()
    assert (metadata["gpu_type"], metadata["gpu_count"]) == ("Apple M2 Pro", 1)
    assert metadata["apple"]["gpu_cores"] == 19
    before = shim.live()[1]
    probe.probe.close()
    probe.probe.close()
    assert shim.live()[1] == before - 1  # the controller's connection


@needs_compiler
@pytest.mark.parametrize(
    ("body", "error"),
    [("exit 1", "status 1"), ("exec yes", "more than"), ("kill -9 $$", "status -9")],
)
def test_a_tool_that_fails_costs_its_keys(shim, tools, machine, sampled, body, error):
    """Without the driver's figures the chip's are there, and what failed is told; next time it is asked again."""
    probe = sampled(AppleProbe(shim.paths), machine.context())
    tools("ioreg", body)
    out = {}
    with pytest.raises(CommandError, match=error):
        probe.probe.sample(probe.ctx, out)
    assert {"gpu.0.gpu", "gpu.0.temp"} <= set(out)
    tools("ioreg", f"cat {FIXTURES}/apple-ioreg-IOAccelerator.plist")
    assert probe.next()["gpu.0.memoryAllocated"] == 37.5


@needs_compiler
def test_counters_that_pause_do_not_change_what_load_means(shim, tools, machine, sampled):
    """Where load is by frequency, a moment without counters has none; sensors and memory stay."""
    probe = sampled(AppleProbe(shim.paths), machine.context())
    shim.set("fail_samples", 1)
    out = {}
    with pytest.raises(NativeError):
        probe.probe.sample(probe.ctx, out)
    assert set(out) == {"gpu.0.temp", "gpu.0.memoryAllocated", "cpu.avg_temp", "system.powerWatts"}


@needs_compiler
def test_one_library_that_is_gone_costs_what_it_told(shim, tools, machine, sampled):
    """Without IOReport the controller's sensors and the driver's figures are there, and the user is told why not all is."""
    probe = sampled(AppleProbe(shim.paths | {"ioreport": "/none"}), machine.context())
    assert set(probe.next()) == {
        "gpu.0.gpu",
        "gpu.0.memoryAllocated",
        "gpu.0.temp",
        "cpu.avg_temp",
        "system.powerWatts",
    }
    assert [notice.partition(":")[0] for notice in probe.probe.notices] == ["/none cannot be loaded"]


def test_one_question_of_two_that_fails(tools, machine, tmp_path):
    """A tool that does not tell the tables is still asked for the graphics driver."""
    fixture = FIXTURES / "apple-ioreg-IOAccelerator.plist"
    tools("ioreg", f'case "$*" in *pmgr*) exit 1 ;; *) cat {fixture} ;; esac')
    probe = AppleProbe(dict.fromkeys(LIBRARIES, "/none"))
    probe.open(machine.context())
    assert probe.metadata()["apple"]["gpu_cores"] == 19
    probe.close()


@needs_compiler
def test_before_macos_14(shim, tools, machine, sampled):
    """Where the controller has no temperatures the sensors' own interface tells them; one that fails is given up, told."""
    shim.set("no_sensors", 1)
    probe = sampled(AppleProbe(shim.paths), machine.context())
    values = probe.next()
    assert values["gpu.0.temp"] == 47.9
    assert values["cpu.avg_temp"] == pytest.approx(48.25)
    probe.probe._chip._hid._lib.IOHIDEventSystemClientCreate = no_function
    for _ in range(2):
        assert "gpu.0.temp" not in probe.next()
    assert list(probe.probe.notices) == ["this system has no such function"]


@pytest.mark.parametrize(("asked", "user", "powers"), [(True, 0, True), (True, 501, False), (False, 0, False)])
def test_without_ioreport(tools, machine, sampled, monkeypatch, asked, user, powers):
    """The graphics driver tells load and memory; powermetrics the rest, as root and where it is asked for."""
    monkeypatch.setattr(apple_chip.os, "geteuid", lambda: user)
    values = sampled(AppleProbe(dict.fromkeys(LIBRARIES, "/none")), machine.context(powermetrics=asked)).next()
    assert (values["gpu.0.gpu"], values["gpu.0.memoryAllocated"]) == (73.0, 37.5)
    assert ("gpu.0.powerWatts" in values) == powers
    assert values.get("cpu.pcpu_freq") == (3100.0 if powers else None)


def test_not_an_apple_chip(tools, machine):
    """On Intel, and where nothing tells anything, the probe is left out with the reason."""
    tools("sysctl", "echo 'hw.memsize: 1'; exit 1")
    with pytest.raises(ProbeUnavailableError, match="not an Apple chip"):
        AppleProbe().open(machine.context())
    tools("sysctl", "echo 'hw.optional.arm64: 1'")
    tools("ioreg", "exit 1")
    with pytest.raises(ProbeUnavailableError, match=r"ioreg.* ended with status 1.*cannot be loaded"):
        AppleProbe(dict.fromkeys(LIBRARIES, "/none")).open(machine.context())


def test_not_an_apple_system(machine):
    """Elsewhere nothing is run: the tools' files tell."""
    assert "no Apple system" in AppleProbe().discover(machine.context())
    assert "no Apple system" in AppleMemoryProbe().discover(machine.context())
    machine.write({"/usr/sbin/ioreg": "", "/usr/bin/vm_stat": ""})
    assert AppleProbe().discover(machine.context()) is AppleMemoryProbe().discover(machine.context()) is None


def test_memory_by_two_tools(tools, machine, sampled):
    """Either tool's figures are there without the other, and its error is told."""
    probe = sampled(AppleMemoryProbe(), machine.context())
    assert set(probe.next()) == {"memory.used", "memory.used_percent", "swap.used", "swap.used_percent"}
    tools("vm_stat", "echo out of memory >&2; exit 3")
    out = {}
    with pytest.raises(CommandError, match="status 3: out of memory"):
        probe.probe.sample(probe.ctx, out)
    assert out == {"swap.used": 512 << 20, "swap.used_percent": 25.0}
