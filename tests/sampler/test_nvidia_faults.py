"""NVML that fails anywhere, at any time: nothing of it escapes, and nothing that may pass ends a metric."""

from __future__ import annotations

import random

import pytest
from runferry.sampler.probes.nvidia import NvidiaProbe

PASSING = (
    "UNKNOWN",
    "NO_DATA",
    "TIMEOUT",
    "NOT_READY",
    "IN_USE",
    "MEMORY",
    "INSUFFICIENT_RESOURCES",
    "INSUFFICIENT_SIZE",
)
LOST = ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND", "UNINITIALIZED")
LASTING = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "DEPRECATED", "ARGUMENT_VERSION_MISMATCH")
SPARED = {"nvmlInit", "nvmlShutdown", "nvmlEventSetWait", "nvmlErrorString"}


class Flaky:
    """A fake NVML of which each call fails with some probability."""

    def __init__(self, nvml, error, seed):
        self._nvml, self._error = nvml, error
        self._random = random.Random(seed)
        self.codes, self.probability = (), 0.0

    def __getattr__(self, name):
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found) or name in SPARED:
            return found

        def call(*args, **kwargs):
            if self._random.random() < self.probability:
                raise self._error(f"NVML_ERROR_{self._random.choice(self.codes)}")
            return found(*args, **kwargs)

        return call


@pytest.fixture
def flaky(fixture_json, fake_pynvml, machine, sampled):
    """A probe of three boards whose library can be made to fail; closed at the end."""
    probes = []

    def start(seed):
        data = fixture_json("nvml-h100x2.json")
        data["devices"][1] = fixture_json("nvml-a100-mig.json")["devices"][0]
        data["devices"] += fixture_json("nvml-rtx4090.json")["devices"]
        for device in data["devices"]:
            device |= {"max_clocks": {"sm": 2000}, "event_types": 8}
        machine.process(4242)
        nvml = Flaky(fake_pynvml.FakeNvml(data), fake_pynvml.NVMLError, seed)
        probes.append(NvidiaProbe(nvml))
        return nvml, sampled(probes[-1], machine.context(extended=True))

    yield start
    for probe in probes:
        probe._session._nvml.probability = 0.0
        probe.close()


def keys_of(probe, ticks=24):
    """All keys of so many ticks: those that come seldom, and those that are tried seldom after failures, too."""
    return {key for _ in range(ticks) for key in probe.next()}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("codes", [PASSING, PASSING + LOST], ids=["passing", "lost"])
def test_every_metric_comes_back(flaky, seed, codes):
    """After any storm of errors that may pass, and of lost devices and library state, all keys are there again."""
    nvml, probe = flaky(seed)
    whole = keys_of(probe)
    assert len(whole) > 100
    nvml.codes, nvml.probability = codes, 0.3
    for _ in range(40):
        told = probe.next(after=20)
        assert set(told) <= whole | {f"gpu.{index}.lost" for index in range(3)}
    nvml.probability = 0.0
    probe.next(after=61)
    assert keys_of(probe) == whole


TRAFFIC = ("pcieTxBytes", "pcieRxBytes", "nvlinkTxBytes", "nvlinkRxBytes")  # from elsewhere where counters are refused


@pytest.mark.parametrize("seed", range(5))
def test_errors_that_last_cost_keys_and_no_more(flaky, seed):
    """Calls that are refused for good leave their keys out, and never a value that is not true."""
    nvml, probe = flaky(seed)
    whole = [probe.next() for _ in range(9)]
    nvml.codes, nvml.probability = LASTING, 0.05
    for tick in range(40):
        same = whole[5 + tick % 4]  # the fixtures' values do not change; those of every fourth tick come then
        told = {key: value for key, value in probe.next().items() if key.rpartition(".")[2] not in TRAFFIC}
        assert {key: same.get(key) for key in told} == told


def of(values, prefix):
    """The values below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def fault(fn, error, call="all", device=0):
    return {"fn": fn, "device": device, "call": call, "raise": f"NVML_ERROR_{error}"}


def test_device_keeps_its_number_when_others_move_up(gpus):
    """When the library is initialised anew without a lost device, no key goes over to another device."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetTemperature", "UNINITIALIZED", call=2, device=1)])
    probe.next()
    probe.next()
    devices = probe.probe._nvml.data["devices"]
    gone = devices.pop(0)
    values = probe.next()
    assert of(values, "gpu.0.") == {"lost": 1}
    assert values["gpu.1.temp"] == 62.0
    devices.append(gone)  # back, behind the other
    assert "gpu.0.lost" in probe.next(after=59)
    back = probe.next(after=2)
    assert (back["gpu.0.temp"], back["gpu.1.temp"]) == (61.0, 62.0)
    assert "gpu.0.lost" not in back


def test_lost_device_stays_lost_until_it_answers(gpus):
    """A failure while it is asked again is no answer."""
    script = [
        fault("nvmlDeviceGetTemperature", "GPU_IS_LOST", call=1, device=1),
        fault("nvmlDeviceGetHandleByIndex", "UNKNOWN", call=4, device=1),
    ]
    probe = gpus("nvml-h100x2.json", script=script)
    told = [probe.next(after=61).get("gpu.1.lost") for _ in range(3)]
    assert told == [1, 1, None]


@pytest.mark.parametrize("error", ["LIB_RM_VERSION_MISMATCH", "DRIVER_NOT_LOADED"])
def test_driver_that_is_replaced_in_the_middle(gpus, error):
    """While the driver is away that is the probe's error; when it is back the library begins anew."""
    script = [
        fault("nvmlDeviceGetTemperature", error, call=2),
        {"fn": "nvmlInit", "call": 2, "raise": f"NVML_ERROR_{error}"},
        fault("nvmlDeviceGetHandleByIndex", "UNINITIALIZED", call=4),
    ]
    probe = gpus("nvml-h100x2.json", script=script)
    probe.next()
    with pytest.raises(Exception, match=error):
        probe.next()
    assert "gpu.0.temp" not in probe.next()
    assert "gpu.0.temp" in probe.next()
    assert probe.probe._nvml.calls["nvmlShutdown", None] == 2


def test_blank_values_are_left_out(gpus, fixture_json):
    """All ones is how the library says that a value is not available, wherever it stands; shares above 100 % are told."""
    data = fixture_json("nvml-h100x2.json")
    blank, first = 2**32 - 1, data["devices"][0]
    first |= {"power_mw": blank, "energy_mj": 2**64 - 1, "temperature": blank, "fan": [blank], "encoder": [blank, 0]}
    first["utilization"] = {"gpu": blank, "memory": 130}
    first["memory_v2"] = {"total": 2**64 - 1, "used": 2**64 - 1, "free": 0, "reserved": 0}
    first["clocks"]["sm"] = blank
    data["devices"][1]["utilization"] = {"gpu": 101, "memory": blank}
    values = gpus(data).next()
    told = {"memory", "memoryClock", "graphicsClock", "correctedMemoryErrors", "uncorrectedMemoryErrors"}
    assert set(of(values, "gpu.0.")) == told | {"unCorrectedMemoryErrors"}
    assert values["gpu.0.memory"] == 130
    assert values["gpu.1.gpu"] == 101.0
    assert "gpu.1.memory" not in values
