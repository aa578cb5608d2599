"""NVIDIA devices through a fake NVML that answers from recorded shapes."""

from __future__ import annotations

import pytest
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.nvidia import NvidiaProbe
from support import nvml


def of(values, prefix):
    """The values below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def fault(fn, error, call="all", device=0):
    return {"fn": fn, "device": device, "call": call, "raise": f"NVML_ERROR_{error}"}


def test_h100_first_tick(gpus):
    """Every documented key with its unit and JSON type; both spellings of uncorrected errors; no profiling yet."""
    values = gpus("nvml-h100x2.json").next()
    first = of(values, "gpu.0.")
    assert first == nvml.H100
    assert first["memoryAllocated"] == pytest.approx(84.60, abs=0.005)
    assert first["powerPercent"] == pytest.approx(93.59, abs=0.005)
    assert {name: type(value) for name, value in first.items()} == {
        name: type(value) for name, value in nvml.H100.items()
    }
    assert values["gpu.1.temp"] == 62.0


def test_h100_profiling_from_the_second_tick(gpus):
    """Hardware counters need two readings; byte rates are scaled from MiB/s; slow calls come every fourth tick."""
    probe = gpus("nvml-h100x2.json")
    assert "gpu.0.smActive" not in probe.next()
    values = of(probe.next(), "gpu.1.")
    assert values["smActive"] == 87.1
    assert values["pipeFp64Active"] == 0.0
    assert values["nvlinkTxBytes"] == 77471.0 * 1024**2
    assert values["pcieRxBytes"] == 96.6 * 1024**2
    assert "graphicsClock" not in values
    probe.next()
    probe.next()
    assert "gpu.1.graphicsClock" in probe.next()


@pytest.mark.parametrize("pids", [(4242,), (1, 4300)])
def test_values_of_a_device_in_use_are_repeated_for_the_processes(gpus, pids):
    """If the monitored process or a child runs on a device, the fixed subset is repeated under gpu.process.{i}."""
    values = gpus("nvml-h100x2.json", pids=pids).next()
    assert set(of(values, "gpu.process.0.")) == {
        "gpu",
        "memory",
        "memoryAllocated",
        "memoryAllocatedBytes",
        "temp",
        "powerWatts",
        "enforcedPowerLimitWatts",
        "powerPercent",
    }
    assert values["gpu.process.0.gpu"] == 98.0
    assert not of(values, "gpu.process.1.")


def test_device_of_others_has_no_process_keys(gpus):
    """A device that nobody of ours uses has no gpu.process keys."""
    assert not of(gpus("nvml-h100x2.json", pids=(7,)).next(), "gpu.process.")


def test_in_a_container_the_open_device_file_decides(gpus, machine):
    """NVML tells host pids, which a container cannot see: a descriptor on /dev/nvidia{minor} shows who uses what."""
    probe = gpus("nvml-h100x2.json", pids=(7,))
    machine.link("/proc/7/fd/11", "/dev/nvidia0")
    assert of(probe.next(), "gpu.process.0.")["gpu"] == 98.0
    machine.process(4300)  # now host pids are visible, and the ones on the device are not ours
    assert not of(probe.next(), "gpu.process.")


def test_rtx4090(gpus):
    """A consumer board: no ECC, no profiling counters; fan, encoder, PCIe rates; memory by the older call."""
    probe = gpus("nvml-rtx4090.json")
    values = of(probe.next(), "gpu.0.")
    assert values["fanSpeed"] == 38
    assert values["encoderUtilization"] == 3.0
    assert (values["pcieTxBytes"], values["pcieRxBytes"]) == (1200 * 1024.0, 900 * 1024.0)
    assert values["memoryAllocatedBytes"] == 11811160064
    assert not {"correctedMemoryErrors", "uncorrectedMemoryErrors", "smActive"} & set(values)
    assert "gpu.0.smActive" not in probe.next()


def test_mig(gpus):
    """A partitioned board has no utilisation; memory is told per instance, and for the processes on it."""
    values = gpus("nvml-a100-mig.json").next()
    assert "gpu.0.gpu" not in values
    assert values["gpu.0.mig.2.memoryAllocated"] == pytest.approx(44.71, abs=0.005)
    assert values["gpu.0.mig.7.memoryTotal"] == 10468982784
    assert values["gpu.0.temp"] == 61.0
    assert values["gpu.process.0.mig.2.memoryAllocatedBytes"] == 18920505344
    assert not of(values, "gpu.process.0.mig.7.")


def test_profiling_counters_of_instances(gpus, fixture_json):
    """A partitioned Hopper has counters for each instance, from the second tick on, and none for the whole."""
    data = fixture_json("nvml-a100-mig.json")
    board = data["devices"][0]
    board["gpm_supported"] = True
    for mig, active in zip(board["mig_devices"], (55.5, 7.25), strict=True):
        mig["gpm"] = {"2": active, "60": 3.0}
    probe = gpus(data, script=[fault("nvmlGpmSampleGet", "NOT_SUPPORTED")])
    assert not [key for key in probe.next() if key.endswith("smActive")]
    values = probe.next()
    assert values["gpu.0.mig.2.smActive"] == 55.5
    assert values["gpu.0.mig.7.smActive"] == 7.25
    assert values["gpu.0.mig.7.nvlinkRxBytes"] == 3 * 1024.0**2
    assert "gpu.0.smActive" not in values
    assert values["gpu.0.pcieTxBytes"] == 196000 * 1024.0  # of the whole, by the call that works without counters


def test_instances_are_looked_up_again_each_minute(gpus, fixture_json):
    """An instance that is destroyed leaves, one that is made comes; compute instances of one share its memory."""
    data = fixture_json("nvml-a100-mig.json")
    migs = data["devices"][0]["mig_devices"]
    probe = gpus(data)
    probe.next()
    migs[1] = {**migs[0], "ci": 1, "uuid": "MIG-other", "compute_processes": []}
    migs.append({**migs[0], "gi": 9, "uuid": "MIG-new", "compute_processes": []})
    assert "gpu.0.mig.9.memoryTotal" not in probe.next(after=30)
    values = probe.next(after=31)
    assert sorted(of(values, "gpu.0.mig.")) == sorted(
        f"{number}.{name}" for number in (2, 9) for name in ("memoryAllocated", "memoryAllocatedBytes", "memoryTotal")
    )
    assert "gpu.process.0.mig.2.memoryAllocated" in values


def test_instances_that_the_process_cannot_see_are_not_its_own(gpus, monkeypatch):
    """Only instances that CUDA_VISIBLE_DEVICES leaves have keys of the process."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-aaaa0000-0000-5000-8000-000000000002")
    values = gpus("nvml-a100-mig.json").next()
    assert "gpu.0.mig.2.memoryAllocated" in values
    assert not of(values, "gpu.process.0.mig.2.")


def test_instance_in_a_container(gpus, machine):
    """There an open capability file of the instance decides, by the driver's list of their numbers."""
    probe = gpus("nvml-a100-mig.json", pids=(7,))
    machine.write({"/proc/driver/nvidia-caps/mig-minors": "config 1\ngpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\n"})
    machine.link("/proc/7/fd/11", "/dev/nvidia-caps/nvidia-cap22")
    values = probe.next()
    assert values["gpu.process.0.mig.2.memoryAllocatedBytes"] == 18920505344
    assert values["gpu.process.0.temp"] == 61.0


def test_pcie_rates_rotate_over_devices(gpus, fixture_json, fake_pynvml, machine, sampled):
    """Each PCIe reading takes 20 ms, so that every tick reads one device only."""
    data = fixture_json("nvml-rtx4090.json")
    data["devices"] = data["devices"] * 3
    probe = sampled(NvidiaProbe(fake_pynvml.FakeNvml(data)), machine.context())
    told = [[key for key in probe.next() if key.endswith("pcieTxBytes")] for _ in range(4)]
    assert all(len(keys) == 1 for keys in told)
    assert len({keys[0] for keys in told}) == 3


def test_transient_error_costs_one_tick(gpus):
    """One unknown error leaves the keys out once and never ends a metric; the other keys are not touched."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetUtilizationRates", "UNKNOWN", call=2)])
    told = [probe.next() for _ in range(3)]
    assert ["gpu.0.gpu" in values for values in told] == [True, False, True]
    assert all("gpu.0.temp" in values and "gpu.1.gpu" in values for values in told)


@pytest.mark.parametrize(
    ("fn", "key"),
    [
        ("nvmlGpmQueryDeviceSupport", "gpu.0.smActive"),
        ("nvmlGpmSampleGet", "gpu.0.smActive"),
        ("nvmlDeviceGetMigMode", "gpu.2.mig.2.memoryTotal"),
        ("nvmlDeviceGetHandleByIndex", "gpu.0.temp"),
    ],
)
def test_transient_error_at_the_first_tick(gpus, fixture_json, fn, key):
    """What is found out once per device is found out later if it failed at first."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"] += fixture_json("nvml-a100-mig.json")["devices"]
    first = {"nvmlDeviceGetHandleByIndex": 3, "nvmlDeviceGetMigMode": 2}.get(fn, 1)  # opening asks for these, too
    probe = gpus(data, script=[fault(fn, "UNKNOWN", call=first, device=device) for device in range(3)])
    assert key not in probe.next()
    probe.next()
    assert key in probe.next()


def test_in_a_container_the_device_s_number_is_asked_until_it_is_known(gpus, machine):
    """One failure to tell /dev/nvidia{n} does not cost the process keys for good."""
    probe = gpus("nvml-h100x2.json", pids=(7,), script=[fault("nvmlDeviceGetMinorNumber", "UNKNOWN", call=2)])
    machine.link("/proc/7/fd/11", "/dev/nvidia0")
    assert ["gpu.process.0.gpu" in probe.next() for _ in range(2)] == [False, True]


def test_lasting_transient_error_is_asked_seldom_but_for_ever(gpus):
    """After three failures in a row the call is tried every eighth tick, and comes back when it works."""
    script = [fault("nvmlDeviceGetTemperature", "NO_DATA", call=call) for call in range(1, 6)]
    probe = gpus("nvml-h100x2.json", script=script)
    calls, told = [], []
    for _ in range(30):
        told.append("gpu.0.temp" in probe.next())
        calls.append(probe.probe._nvml.calls["nvmlDeviceGetTemperature", 0])
    assert calls[:3] == [1, 2, 3]
    assert calls[9] == 3
    assert told.index(True) == 2 + 3 * 8
    assert all(told[told.index(True) :])


def test_unsupported_call_is_not_repeated(gpus):
    """What a board cannot do is asked once."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetPowerUsage", "NOT_SUPPORTED", device=1)])
    for _ in range(3):
        values = probe.next()
    assert "gpu.1.powerWatts" not in values
    assert "gpu.0.powerWatts" in values
    assert probe.probe._nvml.calls["nvmlDeviceGetPowerUsage", 1] == 1


def test_processes_without_permission(gpus):
    """Who may not see processes gets the device's values all the same."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetComputeRunningProcesses", "NO_PERMISSION")])
    values = probe.next()
    assert "gpu.0.gpu" in values
    assert not of(values, "gpu.process.")


def test_lost_device_is_marked_and_asked_again_each_minute(gpus):
    """A device that fell off the bus has the key `lost` only, until it answers again; the others go on."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetTemperature", "GPU_IS_LOST", call=2, device=1)])
    probe.next()
    values = probe.next()
    assert values["gpu.1.lost"] == 1
    assert values["gpu.1.gpu"] == 97.0  # read before it was lost
    assert of(probe.next(after=30), "gpu.1.") == {"lost": 1}
    back = probe.next(after=31)
    assert "gpu.1.lost" not in back
    assert back["gpu.1.temp"] == 62.0


@pytest.mark.parametrize(
    ("error", "loud"), [("LIBRARY_NOT_FOUND", False), ("DRIVER_NOT_LOADED", False), ("LIB_RM_VERSION_MISMATCH", True)]
)
def test_no_library(gpus, error, loud):
    """Without a driver the probe is left out; a driver of another version than the library is worth a warning."""
    with pytest.raises(ProbeUnavailableError, match="NVML") as caught:
        gpus("nvml-h100x2.json", script=[{"fn": "nvmlInit", "call": 1, "raise": f"NVML_ERROR_{error}"}])
    assert caught.value.loud is loud


def test_library_that_lost_its_state_is_initialised_again(gpus):
    """UNINITIALIZED costs one tick."""
    probe = gpus("nvml-h100x2.json", script=[fault("nvmlDeviceGetTemperature", "UNINITIALIZED", call=2)])
    told = ["gpu.0.temp" in probe.next() for _ in range(3)]
    assert told == [True, False, True]
    calls = probe.probe._nvml.calls
    assert calls["nvmlInit", None] == 2
    # Twice while opening, then once in each of the library's lives: old handles are of no use in a new one.
    assert calls["nvmlDeviceGetHandleByIndex", 0] == 4


def test_metadata(gpus, machine):
    """The hardware record tells name, memory, cores, architecture, UUID, bus and NUMA node of every device."""
    machine.write({"/sys/bus/pci/devices/0000:1b:00.0/numa_node": "1\n"})
    metadata = gpus("nvml-h100x2.json", gpu_device_ids="1").probe.metadata()
    assert metadata["gpu_count"] == 2
    assert metadata["gpu_type"] == "NVIDIA H100 80GB HBM3"
    assert metadata["cuda_version"] == "12.4"
    assert metadata["gpu_nvidia"][0] == {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total": 85520809984,
        "cuda_cores": 16896,
        "architecture": "Hopper",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "pci_bus_id": "00000000:1B:00.0",
        "numa_node": 1,
    }


def test_device_without_uuid_is_sampled_by_its_number(gpus, fixture_json):
    """A device that cannot tell who it is has all other values."""
    data = fixture_json("nvml-h100x2.json")
    del data["devices"][1]["uuid"]
    assert gpus(data).next()["gpu.1.temp"] == 62.0


def test_instance_that_does_not_answer_now_costs_nothing_for_long(gpus):
    """A slot that fails for a moment is looked at again at the next tick, and what was known goes on."""
    script = [
        fault("nvmlDeviceGetGpuInstanceId", "UNKNOWN", call=5),  # two in each look
        fault("nvmlDeviceGetGpuInstanceId", "UNKNOWN", call=7),
    ]
    probe = gpus("nvml-a100-mig.json", script=script)
    key = "gpu.0.mig.2.memoryTotal"
    assert [key in probe.next(after=after) for after in (1, 61, 1, 1)] == [True] * 4
    assert probe.probe._nvml.calls["nvmlDeviceGetGpuInstanceId", 0] == 2 + 2 + 3 * 2


def test_instance_that_is_missed_at_first_is_looked_for_again(gpus):
    """What failed at the first look is there at the second, a tick later."""
    probe = gpus("nvml-a100-mig.json", script=[fault("nvmlDeviceGetGpuInstanceId", "UNKNOWN", call=3)])
    told = [{key[:10] for key in probe.next() if key.startswith("gpu.0.mig.")} for _ in range(2)]
    assert told == [{"gpu.0.mig."}, {"gpu.0.mig."}]
    values = probe.next()
    assert {"gpu.0.mig.2.memoryTotal", "gpu.0.mig.7.memoryTotal"} <= set(values)


def test_instance_that_is_made_anew_under_its_number(gpus, monkeypatch):
    """Calls that the old one refused are asked of the new one, and the old one's name is forgotten."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-aaaa0000-0000-5000-8000-000000000001")
    # Of all three devices: of the whole by the newer call, then of the instances.
    script = [fault("nvmlDeviceGetMemoryInfo", "INVALID_ARGUMENT", call=call) for call in range(6, 8)]
    probe = gpus("nvml-a100-mig.json", script=script)
    first = probe.next()
    assert "gpu.process.0.mig.2.memoryAllocated" in first
    assert "gpu.0.mig.2.memoryTotal" not in probe.next()
    assert "gpu.0.mig.2.memoryTotal" not in probe.next()
    probe.probe._nvml.data["devices"][0]["mig_devices"][0]["uuid"] = "MIG-new"
    values = probe.next(after=60)
    assert "gpu.0.mig.2.memoryTotal" in values
    assert "gpu.process.0.mig.2.memoryAllocated" not in values


def test_descriptors_are_looked_through_once_for_all_devices(gpus, fixture_json, machine, monkeypatch):
    """In a container each tick reads the processes' descriptors once, however many devices and instances there are."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"] = [{**data["devices"][0], "uuid": f"GPU-{n}", "minor": n} for n in range(8)]
    probe = gpus(data, pids=(7, 8))
    machine.link("/proc/8/fd/11", "/dev/nvidia5")
    read = []
    listed = type(probe.ctx).list
    monkeypatch.setattr(type(probe.ctx), "list", lambda ctx, path: read.append(path) or listed(ctx, path))
    assert {key[:13] for key in probe.next() if key.startswith("gpu.process.")} == {"gpu.process.5"}
    assert sorted(path for path in read if path.endswith("/fd")) == ["/proc/7/fd", "/proc/8/fd"]
    (machine.root / "proc/8/fd/11").unlink()
    assert not of(probe.next(), "gpu.process.")


@pytest.mark.parametrize(
    ("bus", "folder"), [("00000001:00:00.0", "0001:00:00.0"), ("00010000:01:00.0", "10000:01:00.0")]
)
def test_numa_node_of_any_bus(gpus, fixture_json, machine, bus, folder):
    """The kernel writes the domain of a bus with four digits, or with more where it is larger."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["pci_bus_id"] = bus
    machine.write({f"/sys/bus/pci/devices/{folder}/numa_node": "3\n"})
    assert gpus(data).probe.metadata()["gpu_nvidia"][0]["numa_node"] == 3


@pytest.mark.parametrize(("told", "expected"), [("0", {0}), ("-1", set())])
def test_numa_node_is_known_or_not(gpus, machine, told, expected):
    """The first node counts as one; -1 is how the kernel says that it knows none."""
    machine.write({"/sys/bus/pci/devices/0000:1b:00.0/numa_node": f"{told}\n"})
    board = gpus("nvml-h100x2.json").probe.metadata()["gpu_nvidia"][0]
    assert {board[key] for key in ("numa_node",) if key in board} == expected


def test_corrected_errors_are_told_from_others(gpus, fixture_json):
    """Each kind under its own name, the second under both of its spellings."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["ecc_volatile"] = {"corrected": 5, "uncorrected": 2}
    values = of(gpus(data).next(), "gpu.0.")
    kinds = ("correctedMemoryErrors", "uncorrectedMemoryErrors", "unCorrectedMemoryErrors")
    assert [values[kind] for kind in kinds] == [5, 2, 2]


def test_memory_without_a_total(gpus, fixture_json):
    """What is used is told where its share is not known."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["memory_v2"] |= {"total": 0, "used": 7}
    values = of(gpus(data).next(), "gpu.0.")
    assert values["memoryAllocatedBytes"] == 7
    assert "memoryAllocated" not in values
    assert "temp" in values


def test_profiling_readings_too_close_together(gpus):
    """Two readings lie apart as far as the library wants; one that comes too early is not made."""
    probe = gpus("nvml-h100x2.json")
    told = ["gpu.0.smActive" in probe.next(after=after) for after in (1.0, 0.05, 0.05, 0.05, 0.05)]
    assert told == [False, False, True, False, True]
    assert probe.probe._nvml.calls["nvmlGpmSampleGet", 0] == 3


def test_profiling_counter_that_a_device_lacks(gpus, fixture_json):
    """One counter that fails costs its own key only, and is not told as 0."""
    data = fixture_json("nvml-h100x2.json")
    del data["devices"][0]["gpm"]["12"]
    probe = gpus(data)
    probe.next()
    values = of(probe.next(), "gpu.0.")
    assert "pipeFp32Active" not in values
    assert "pipeFp16Active" in values


def test_in_a_container_a_device_without_processes_is_not_in_use(gpus, fixture_json, machine):
    """A device file that is open says nothing where the driver tells no process on the device."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0] |= {"compute_processes": [], "graphics_processes": []}
    probe = gpus(data, pids=(7,))
    machine.link("/proc/7/fd/11", "/dev/nvidia0")
    assert not of(probe.next(), "gpu.process.")


def test_link_that_is_slow_now_and_then_is_not_told(gpus, fixture_json):
    """Only readings in a row count."""
    data = fixture_json("nvml-h100x2.json")
    link = data["devices"][0]["pcie"]
    probe = gpus(data)
    for tick in range(24):
        link["gen"] = 5 if tick // 4 % 3 == 2 else 3
        probe.next()
    assert list(probe.probe.notices) == []


def test_sixteen_boards_of_seven_instances(gpus, fixture_json):
    """The largest machines: every instance of every board has its own values, and a crowd of processes costs nothing."""
    data = fixture_json("nvml-a100-mig.json")
    board = data["devices"][0]
    crowd = [{"pid": 100_000 + n, "used": 1} for n in range(1000)]
    board["mig_devices"] = [
        {**board["mig_devices"][0], "gi": n, "uuid": f"MIG-{n}", "compute_processes": crowd} for n in range(7)
    ]
    data["devices"] = [{**board, "uuid": f"GPU-{n}", "minor": n} for n in range(16)]
    values = gpus(data).next()
    assert len([key for key in values if key.endswith(".memoryTotal")]) == 16 * 7
    assert not of(values, "gpu.process.")


def test_slow_link_of_a_busy_device_is_told(gpus, fixture_json):
    """A link below its best is told after three readings under load; at rest it may save power."""
    data = fixture_json("nvml-h100x2.json")
    first, second = data["devices"]
    first["pcie"] |= {"gen": 3, "width": 8}
    second["pcie"] |= {"gen": 1}
    second["utilization"] = {"gpu": 2, "memory": 0}
    probe = gpus(data)
    told = []
    for _ in range(13):
        probe.next()
        told.append(list(probe.probe.notices))
    assert told[:8] == [[]] * 8
    assert (
        told[12]
        == told[8]
        == [
            "the PCIe link of GPU 0 is slower under load than it could be: generation 3 with 8 lanes instead of 5 with 16"
        ]
    )


def test_no_driver_no_library(machine):
    """Where nothing of a driver is there, the probe says so without loading anything."""
    assert "no NVIDIA driver" in NvidiaProbe().discover(machine.context())
    machine.write({"/dev/nvidiactl": ""})
    assert NvidiaProbe().discover(machine.context()) is None
