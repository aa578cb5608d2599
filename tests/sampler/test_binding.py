"""The real binding (nvidia-ml-py) in our real helper process, against a small C library in place of the driver's."""

from __future__ import annotations

import itertools
import threading
import time

import psutil
import pynvml
import pytest
from runferry.sampler import Sampler, SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probes.nvidia import NvidiaProbe
from runferry.sampler.supervisor import HelperRunner
from support import nvml

BETWEEN_PROFILES = 0.1  # s that two samples of the profiling counters must lie apart, really

pytestmark = pytest.mark.skipif(bool(nvml.missing()), reason=nvml.missing())


def test_the_fake_has_the_binding_s_surface(fake_pynvml):
    """Every name that the fake offers exists in the binding, so that no test passes on an invented call."""
    names = [name for name in vars(fake_pynvml.FakeNvml) if not name.startswith("_")]
    assert [name for name in names if not hasattr(pynvml, name)] == []
    assert {name: getattr(pynvml, name) for name in fake_pynvml.CODES} == fake_pynvml.CODES
    assert pynvml.nvmlMemory_v2 == fake_pynvml.FakeNvml.nvmlMemory_v2
    assert pynvml.nvmlEventTypeXidCriticalError == fake_pynvml.XID_EVENT


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The folder of the compiled library."""
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def with_driver(shim, tmp_path, monkeypatch):
    """Give this process's children a driver that answers from a table."""

    def give(data, faults=()):
        (tmp_path / "table").write_text(nvml.table(data, faults))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(shim))
        monkeypatch.setenv("NVML_SHIM_TABLE", str(tmp_path / "table"))

    return give


@pytest.fixture
def helped(machine):
    """Ticks of the probe in a helper, on the table's machine."""
    runners = []

    class Helped:
        def __init__(self, **settings):
            self.ready = threading.Condition()
            context = Context(SamplerSettings(pid=4242, interval=1.0, **settings), root=str(machine.root))
            self.runner = HelperRunner(NvidiaProbe(), context, self.ready)
            self.now = 0.0
            runners.append(self.runner)
            self.next()  # opens

        def next(self):
            self.now += 1.0
            self.runner.request(self.now)
            with self.ready:
                assert self.ready.wait_for(lambda: not (self.runner.waiting or self.runner.opening), 20)
            assert self.runner.stats.last_error is None
            return self.runner.take(self.now)

    machine.process(4242)
    yield Helped
    for runner in runners:
        runner.close(2.0)


def of_device(values):
    return {key.removeprefix("gpu.0."): value for key, value in values.items() if key.startswith("gpu.0.")}


def test_every_structure_reaches_us_whole(with_driver, helped, fixture_json):
    """Through process, ctypes and structures come the numbers of the table, each with its unit and JSON type."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["temperature"] = 63
    with_driver(data)
    gpus = helped()
    first = of_device(gpus.next())
    assert first == nvml.H100 | {"temp": 63.0}
    time.sleep(BETWEEN_PROFILES)
    second = gpus.next()
    assert of_device(second)["smActive"] == 87.1
    assert of_device(second)["nvlinkTxBytes"] == 77471.0 * 1024**2
    assert second["gpu.process.0.gpu"] == 98.0
    metadata = gpus.runner.metadata()
    assert metadata["gpu_nvidia"][1] == {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total": 85520809984,
        "cuda_cores": 16896,
        "architecture": "Hopper",
        "uuid": "GPU-00000000-0000-0000-0000-000000000001",
        "pci_bus_id": "00000000:1C:00.0",
    }
    assert (metadata["cuda_version"], metadata["nvidia"]["driver"]) == ("12.4", "550.54.15")


def test_one_passing_and_one_lasting_error(with_driver, helped, fixture_json):
    """An unknown error costs one tick of its keys; what is not supported costs its keys only; a list that grew is read again."""
    with_driver(
        fixture_json("nvml-h100x2.json"),
        ["0 utilization 2 2 999 0", "0 power 1 999 3 0", "0 gpm.12 1 999 3 0", "0 compute 2 2 7 0"],
    )
    gpus = helped()
    told = []
    for _ in range(3):
        told.append(gpus.next())
        time.sleep(BETWEEN_PROFILES)
    assert ["gpu.0.gpu" in values for values in told] == [True, False, True]
    assert not any("gpu.0.powerWatts" in values for values in told)
    assert "gpu.0.pipeFp32Active" not in told[1]
    assert told[1]["gpu.0.pipeFp16Active"] == 0.6
    assert all("gpu.process.0.memory" in values for values in (told[0], told[2]))


def test_extended_values_and_xid_events(with_driver, helped, fixture_json):
    """Field values, reasons, rows, pages, engines, the fabric and events have the structures that NVML gives them."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0] |= {
        "event_types": 8,
        "xids": [79],
        "max_clocks": {"sm": 1980},
        "retired_pages": [[4096], []],
        "fabric": {"state": 3, "status": 0},
        "bar1": [1 << 37, 1 << 36, 1 << 36],
        "decoder": [11, 167000],
        "shares": [4242, 1000, 37],
        "fields": {"208/2": 5, "215/2": 1, "173/0": 4},
    }
    data["devices"][0]["gpm_supported"] = False
    with_driver(data)
    gpus = helped(extended=True)
    first = gpus.next()
    assert of_device(first) | {
        "pstate": 0,
        "throttle.swPowerCap": 1,
        "throttle.hwThermal": 0,
        "clockRatio": 1.0,
        "memoryTemp": 74,
        "remappedRows.uncorr": 1,
        "retiredPages": 1,
        "eccAggregate.corrected": 12,
        "nvlink.errors": 5,
        "nvlink.recoveries": 1,
        "pcieReplays": 0,
        "pcieErrors.correctable": 4,
        "pcieLinkSpeed": 32_000_000_000,
        "bar1Used": 1 << 36,
        "decoderUtilization": 11.0,
        "fabric.state": 3,
        "fabric.status": 0,
    } == of_device(first)
    assert first["gpu.process.0.smUtil"] == 37
    assert first["gpu.process.0.memoryUsedBytes"] == 37580963840
    assert of_device(gpus.next())["nvlinkRxBytes"] == 0.0
    deadline = time.monotonic() + 10
    while "gpu.0.xid.last" not in (values := gpus.next()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (values["gpu.0.xid.last"], values["gpu.0.xid.count"]) == (79, 1)


def test_instances_of_a_partitioned_device(with_driver, helped, fixture_json):
    """MIG handles, their memory, processes and profiling counters."""
    data = fixture_json("nvml-a100-mig.json")
    data["devices"][0]["gpm_supported"] = True
    data["devices"][0]["mig_devices"][0]["gpm"] = {"2": 55.5}
    with_driver(data)
    gpus = helped()
    values = gpus.next()
    assert values["gpu.0.mig.2.memoryAllocated"] == pytest.approx(44.71, abs=0.005)
    assert values["gpu.process.0.mig.2.memoryAllocatedBytes"] == 18920505344
    time.sleep(BETWEEN_PROFILES)
    assert gpus.next()["gpu.0.mig.2.smActive"] == 55.5
    assert [mig["gpu_instance"] for mig in gpus.runner.metadata()["nvidia"]["devices"][0]["mig"]] == [2, 7]


@pytest.fixture
def run_sampler(machine):
    """A sampler of the host's and the GPU's probe, ten times a second, on the table's machine."""
    started = []

    def start():
        machine.write({"/dev/nvidiactl": "", "/proc/stat": "cpu 0 0 0 0\n"})
        machine.process(4242)
        samples, warnings = [], []
        settings = SamplerSettings(pid=4242, interval=0.1, probes=("cpu", "nvidia"))
        sampler = Sampler(settings, samples.append, root=str(machine.root), warn=warnings.append)
        sampler.start()
        started.append(sampler)
        return sampler, samples, warnings

    yield start
    for sampler in started:
        sampler.stop()


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def children():
    """The processes that this test has started and that are there; those of tests before may be."""
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


def test_call_that_takes_25_seconds(with_driver, run_sampler, fixture_json, children):
    """While NVML hangs all other keys tick, with one line of warning; the end takes no longer for it and leaves no child."""
    with_driver(fixture_json("nvml-h100x2.json"), ["0 power 3 3 0 25000"])
    sampler, samples, warnings = run_sampler()
    wait_for(lambda: any("gpu.0.temp" in sample.values for sample in samples))
    wait_for(lambda: warnings)
    seen = len(samples)
    wait_for(lambda: len(samples) >= seen + 10)
    hung = samples[seen:]
    assert all("proc.cpu.threads" in sample.values and "gpu.0.temp" not in sample.values for sample in hung)
    before = time.monotonic()
    sampler.stop()
    assert time.monotonic() - before < 2.0
    assert children() == set()
    assert len(warnings) == 1
    assert "probe nvidia hangs" in warnings[0]


def test_slow_link_is_told_from_the_helper(with_driver, run_sampler, fixture_json):
    """What the probe has to tell the user comes from the other process, once."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["pcie"]["width"] = 4
    with_driver(data)
    _, samples, warnings = run_sampler()
    wait_for(lambda: warnings)
    seen = len(samples)
    wait_for(lambda: len(samples) > seen + 2)
    assert len(warnings) == 1
    assert "generation 5 with 4 lanes instead of 5 with 16" in warnings[0]


@pytest.mark.slow
def test_call_that_takes_6_seconds(with_driver, run_sampler, fixture_json, children):
    """A call that comes back brings its keys back, from the same helper; meanwhile the other keys missed no tick."""
    with_driver(fixture_json("nvml-h100x2.json"), ["0 power 3 3 0 6000"])
    _, samples, warnings = run_sampler()
    wait_for(lambda: warnings)
    seen = len(samples)
    wait_for(lambda: any("gpu.0.temp" in sample.values for sample in samples[seen:]))
    hung = [sample.timestamp_ns / 1e9 for sample in samples if "gpu.0.temp" not in sample.values]
    assert len(hung) > 50
    assert hung[-1] - hung[0] > 5.0
    # Deadlines are absolute: a tick that this machine delays does not move the next, and none is made up for.
    gaps = [later - earlier for earlier, later in itertools.pairwise(hung)]
    assert sum(abs(gap - 0.1) < 0.01 for gap in gaps) > 0.8 * len(gaps)
    assert len(children()) == 1
    assert len(warnings) == 1
