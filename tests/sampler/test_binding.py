"""The real binding (nvidia-ml-py) against a small C library in place of the driver's."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pynvml
import pytest
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probes.nvidia import NvidiaProbe
from runferry.sampler.supervisor import HelperRunner

SOURCE = Path(__file__).parent / "fake" / "nvml_shim.c"


def test_the_fake_has_the_binding_s_surface(fake_pynvml):
    """Every name that the fake offers exists in the binding, so that no test passes on an invented call."""
    names = [name for name in vars(fake_pynvml.FakeNvml) if not name.startswith("_")]
    assert [name for name in names if not hasattr(pynvml, name)] == []
    assert {name: getattr(pynvml, name) for name in fake_pynvml.CODES} == fake_pynvml.CODES
    assert pynvml.nvmlMemory_v2 == fake_pynvml.FakeNvml.nvmlMemory_v2


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_real_binding_in_a_helper(tmp_path, machine, monkeypatch):
    """Through process, ctypes and structures: values, profiling order and scaling, one passing error, one unsupported."""
    library = tmp_path / "lib" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    machine.process(4242)
    ready = threading.Condition()
    context = Context(SamplerSettings(pid=4242, interval=1.0), root=str(machine.root))
    runner = HelperRunner(NvidiaProbe(), context, ready)
    told = []
    try:
        for now in range(4):
            runner.request(float(now))
            with ready:
                assert ready.wait_for(lambda: not (runner.waiting or runner.opening), 20)
            told.append(runner.take(float(now)))
        metadata = runner.metadata()
    finally:
        runner.close(2.0)
    assert runner.stats.last_error is None
    _, first, second, third = told
    assert metadata["gpu_nvidia"] == [{"name": "Shim H100", "architecture": "Hopper", "uuid": "GPU-5417"}]
    assert metadata["cuda_version"] == "12.4"
    common = {
        "gpu.0.memoryAllocated": 25.0,
        "gpu.0.memoryAllocatedBytes": 20 << 30,
        "gpu.0.temp": 61.0,
        "gpu.0.powerWatts": 350.0,
        "gpu.0.enforcedPowerLimitWatts": 700.0,
        "gpu.0.powerPercent": 50.0,
        "gpu.0.energyJoules": 123.456,
        "gpu.0.smClock": 1001,
        "gpu.0.memoryClock": 1002,
        "gpu.0.correctedMemoryErrors": 7,
        "gpu.0.uncorrectedMemoryErrors": 1,
        "gpu.0.unCorrectedMemoryErrors": 1,
    }
    load = {"gpu.0.gpu": 98.0, "gpu.0.memory": 54}

    def device(values):
        return {key: value for key, value in values.items() if not key.startswith("gpu.process.")}

    profiling = {
        "gpu.0.smActive": 2.5,
        "gpu.0.smOccupancy": 3.5,
        "gpu.0.pipeTensorActive": 5.5,
        "gpu.0.pipeTensorHmmaActive": 7.5,
        "gpu.0.dramActive": 10.5,
        "gpu.0.pipeFp64Active": 11.5,
        "gpu.0.pipeFp16Active": 13.5,
        "gpu.0.pcieTxBytes": 20.5 * 1024**2,
        "gpu.0.pcieRxBytes": 21.5 * 1024**2,
        "gpu.0.nvlinkRxBytes": 60.5 * 1024**2,
        "gpu.0.nvlinkTxBytes": 61.5 * 1024**2,
    }
    assert device(first) == common | load | {"gpu.0.graphicsClock": 1000}
    assert device(second) == common | profiling
    assert device(third) == common | load | profiling
    assert third["gpu.process.0.gpu"] == 98.0
