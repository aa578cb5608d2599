"""ROCm's C library through ctypes in a helper, beside the peer on the same library."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runferry.logformat import read_records
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.amd import AmdProbe
from runferry.sampler.probes.amd_rsmi import RocmSmiSource, pci_text
from runferry.sampler.probes.amd_sysfs import SysfsSource
from runferry.sampler.supervisor import HelperRunner
from support import peer

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures" / "sampler"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """A folder with a librocm_smi64.so of two dies, and a library that redirects reads of /sys."""
    folder = tmp_path_factory.mktemp("rocm")
    for source, name in (("rsmi_shim.c", "librocm_smi64.so"), ("redirect.c", "redirect.so")):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, HERE / "fake" / source, "-ldl"], check=True)
    return folder


FIRST_DIE = {
    "gpu.0.gpu": 90.0,
    "gpu.0.memoryAllocated": 25.0,
    "gpu.0.memoryReadWriteActivity": 31.0,
    "gpu.0.memoryOverDrive": 0.0,
    "gpu.0.temp": 45.0,
    "gpu.0.powerWatts": 312.5,
    "gpu.0.powerPercent": 62.5,
    "gpu.0.energyJoules": 108500.0,
}
SECOND_DIE = {
    "gpu.1.gpu": 89.0,
    "gpu.1.memoryAllocated": 75.0,
    "gpu.1.memoryOverDrive": 5.0,
    "gpu.1.temp": -4.5,
    "gpu.1.energyJoules": 108500.0000155,
}


def in_a_helper(machine):
    """Three samples of the probe in its own process, and its metadata."""
    ready = threading.Condition()
    context = Context(SamplerSettings(pid=4242, interval=1.0), root=str(machine.root), own_pids=set())
    runner = HelperRunner(AmdProbe(), context, ready)
    told = []
    try:
        for now in range(4):
            runner.request(float(now))
            with ready:
                assert ready.wait_for(lambda: not (runner.waiting or runner.opening), 20)
            told.append(runner.take(float(now)))
        assert (runner.reason, runner.stats.last_error) == (None, None)
        return *told[1:], runner.metadata()
    finally:
        runner.close(2.0)


@needs_compiler
def test_the_library_in_a_helper(shim, machine, monkeypatch):
    """Through process and ctypes: units, a die without power, an unknown figure, and one passing error."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(shim))
    first, second, third, metadata = in_a_helper(machine)
    assert first == third == FIRST_DIE | SECOND_DIE
    assert second == FIRST_DIE | {key: value for key, value in SECOND_DIE.items() if key != "gpu.1.gpu"}
    assert metadata["gpu_count"] == 2
    assert metadata["gpu_amd"][0]["unique_id"] == "0x51a0000000000000"


def test_the_binding_in_a_helper(tmp_path, machine, monkeypatch):
    """An installed binding is found without being loaded here, and is used in the helper."""
    code = (HERE / "fake" / "amdsmi.py").read_text()
    code += "\n\n_smi = FakeAmdSmi()\nglobals().update({n: getattr(_smi, n) for n in dir(_smi) if n.startswith('amdsmi_')})\n"
    (tmp_path / "amdsmi.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    machine.write({"/sys/module/amdgpu/initstate": "live\n"})
    assert AmdProbe().discover(machine.context()) is None
    first, _, _, metadata = in_a_helper(machine)
    assert (first["gpu.0.powerPercent"], first["gpu.1.gpu"]) == (80.0, 98.0)
    assert metadata["gpu_type"] == "AMD Instinct MI300X"
    assert "amdsmi" not in sys.modules


def test_the_commands_in_a_helper(tmp_path, machine, monkeypatch):
    """Where neither libraries nor files can be opened after all, the helper asks the program, no more often than else."""
    program = tmp_path / "rocm-smi"
    program.write_text(f"#!/bin/sh\nexec cat {FIXTURES}/rocm-smi-6x-mi300x.json\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    first, second, third, _ = in_a_helper(machine)
    assert first["gpu.1.powerWatts"] == 612.0
    assert second == third == {}


@pytest.mark.parametrize("failure", ["raise SystemExit(1)", "raise RuntimeError('no driver')", "import no_such_module"])
def test_a_binding_that_fails_at_its_import(tmp_path, machine, monkeypatch, failure):
    """Raising anything, or ending the process as scripts do: the next source is opened, in the same helper."""
    (tmp_path / "amdsmi.py").write_text(failure)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine.write({"/sys/class/drm/card0/device/vendor": "0x1002", "/sys/class/drm/card0/device/gpu_busy_percent": "7"})
    assert in_a_helper(machine)[0] == {"gpu.0.gpu": 7.0}


@needs_compiler
def test_a_library_without_a_function_or_device(tmp_path, machine, monkeypatch):
    """An old library lacks functions, which costs their values; one without devices or that does not start gives way."""
    code = "unsigned rsmi_init(unsigned long long f) { return %d; }\nint ended;\n"
    code += "unsigned rsmi_shut_down(void) { ended++; return 0; }\n"
    code += "unsigned rsmi_num_monitor_devices(unsigned *n) { *n = %d; return 0; }\n"
    code += (
        "unsigned rsmi_dev_power_ave_get(unsigned d, unsigned s, unsigned long long *v) { *v = 7000000; return 0; }\n"
    )
    for status, count in ((0, 1), (0, 0), (8, 1)):
        folder = tmp_path / f"{status}{count}"
        (folder / "opt" / "rocm" / "lib").mkdir(parents=True)
        (folder / "shim.c").write_text(code % (status, count))
        library = folder / "opt" / "rocm" / "lib" / "librocm_smi64.so.5"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "shim.c"], check=True)
        ctx = Context(SamplerSettings(), root=str(folder), own_pids=set())
        source = RocmSmiSource()
        if (status, count) == (0, 1):
            source.open(ctx)
            assert source.read(ctx) == {0: {"powerWatts": 7.0}}
            source.close()
            source.close()
            with pytest.raises(RuntimeError, match="no device tells anything"):
                source.read(ctx)
        else:
            with pytest.raises(ProbeUnavailableError, match="finds no device" if not count else "status 8"):
                source.open(ctx)
            source.close()
        assert ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "ended").value == (status == 0)


PEER = """
import time, wandb
run = wandb.init(settings=wandb.Settings(x_stats_sampling_interval=0.2, x_stats_pid=1, console="off"))
time.sleep(1.5)
run.finish()
"""


@needs_compiler
@pytest.mark.peer
@pytest.mark.skipif(bool(peer.missing()), reason=peer.missing() or "there")
def test_the_peer_on_the_same_library(shim, tmp_path, machine, monkeypatch):
    """The peer (wandb 0.31) and we agree on every value and every field of the record, but for what the driver does not know.

    The exception: a figure of all ones, which the peer writes as 4294967295.
    """
    machine.write({"/sys/module/amdgpu/initstate": "live\n"})
    folder = tmp_path / "peer"
    folder.mkdir()
    environ = peer.environment(
        folder,
        LD_LIBRARY_PATH=str(shim),
        LD_PRELOAD=str(shim / "redirect.so"),
        REDIRECTED="/sys/module/amdgpu",
        REDIRECT_TO=str(machine.root),
        WANDB_CONSOLE="off",
    )
    subprocess.run([peer.PYTHON, "-c", PEER], cwd=folder, env=environ, check=True, capture_output=True, timeout=60)
    (log,) = folder.glob("wandb/*run-*/run-*.wandb")
    theirs, devices = {}, []
    for record in read_records(log):
        if record.kind == "stats":
            theirs |= {item.key: json.loads(item.value_json) for item in record.message().item}
        elif record.kind == "environment":
            devices += record.message().gpu_amd
    monkeypatch.setenv("LD_LIBRARY_PATH", str(shim))
    first, _, _, metadata = in_a_helper(machine)
    assert {key: value for key, value in theirs.items() if key.startswith("gpu.")} == first | {
        "gpu.1.memoryReadWriteActivity": 4294967295.0
    }
    described = [{field.name: value for field, value in device.ListFields()} for device in devices]
    assert described == metadata["gpu_amd"]


@needs_compiler
def test_another_library_of_that_name(tmp_path, machine):
    """A library without the functions at all is a reason to go on, not the end of all sources."""
    library = tmp_path / "opt" / "rocm" / "lib" / "librocm_smi64.so"
    library.parent.mkdir(parents=True)
    subprocess.run(["cc", "-shared", "-x", "c", "-fPIC", "-o", library, "/dev/null"], check=True)
    machine.write(
        {
            f"/sys/class/drm/card0/device/{name}": text
            for name, text in (("vendor", "0x1002"), ("gpu_busy_percent", "7"))
        }
    )
    probe, values = AmdProbe([RocmSmiSource(), SysfsSource()]), {}
    probe.open(machine.context())
    probe.sample(machine.context(), values)
    assert values == {"gpu.0.gpu": 7.0}
    with pytest.raises(ProbeUnavailableError, match=r"librocm_smi64: .*rsmi_init"):
        AmdProbe([RocmSmiSource()]).open(machine.context())


def test_no_library(machine):
    """Nothing to load is a reason, not an error."""
    with pytest.raises(ProbeUnavailableError, match="cannot be loaded"):
        RocmSmiSource().open(machine.context())


def test_addresses_of_the_library():
    """Domain, bus, device and function as the kernel writes them."""
    assert pci_text(0x0001_0000_C1FB) == "0001:c1:1f.3"
