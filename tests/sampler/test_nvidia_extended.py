"""What `extended` adds for NVIDIA devices: throttling, wear, links, engines, energy, Xid errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from runferry.sampler.probes.nvml_events import PAUSE, XidWatch
from runferry.sampler.probes.nvml_kmsg import KernelLog


def of(values, prefix="gpu.0."):
    """The values below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


@pytest.fixture
def board(fixture_json):
    """The data of a machine with one H100, to be changed; its dict of device 0."""
    data = fixture_json("nvml-h100x2.json")
    del data["devices"][1]
    return data, data["devices"][0]


def test_only_on_request(gpus):
    """Without the setting none of these keys is written, and no event is waited for."""
    probe = gpus("nvml-h100x2.json")
    values = probe.next() | probe.next()
    assert not {"pstate", "clockRatio", "memoryTemp", "energyIntervalJ", "throttle.swPowerCap"} & set(of(values))
    assert "run.energyKWh" not in values
    assert ("nvmlDeviceGetFieldValues", 0) not in probe.probe._nvml.calls


def test_h100_extended(gpus, board):
    """What a training engineer asks for beyond the list, by the fixture's own numbers."""
    data, device = board
    device["max_clocks"] = {"sm": 3960}
    values = of(gpus(data, extended=True).next())
    expected = {
        "pstate": 0,
        "clockRatio": 0.5,
        "memoryTemp": 74,
        "remappedRows.corr": 0,
        "remappedRows.uncorr": 1,
        "remappedRows.pending": 0,
        "remappedRows.failure": 0,
        "eccAggregate.corrected": 12,
        "eccAggregate.uncorrected": 0,
        "pcieReplays": 0,
        "pcieLinkGen": 5,
        "pcieLinkWidth": 16,
        "pcieLinkSpeed": 32_000_000_000,
        "maxPcieLinkGen": 5,
        "maxPcieLinkWidth": 16,
    }
    assert {name: values.get(name) for name in expected} == expected
    assert not {"retiredPages", "bar1Used", "nvlink.errors", "fabric.state", "xid.count", "decoderUtilization"} & set(
        values
    )


def test_slow_values_come_every_fourth_tick(gpus):
    """Counters of wear and links change little and take long: they are asked for at every fourth sample."""
    probe = gpus("nvml-h100x2.json", extended=True)
    told = ["gpu.0.remappedRows.corr" in probe.next() for _ in range(6)]
    assert told == [True, False, False, False, True, False]


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (4, "swPowerCap"),
        (8, "hwSlowdown"),
        (16, "syncBoost"),
        (32, "swThermal"),
        (64, "hwThermal"),
        (128, "powerBrake"),
    ],
)
def test_throttling(gpus, board, bit, name):
    """Each reason is its bit, and its share of the interval the rise of its counter in nanoseconds."""
    data, device = board
    device["clocks_event_reasons"] = bit
    numbers = {"swPowerCap": 74, "syncBoost": 76, "swThermal": 269, "hwThermal": 270, "powerBrake": 271}
    device["fields"] = {f"{number}/0": 10**9 for number in numbers.values()}
    probe = gpus(data, extended=True)
    first = of(probe.next())
    reasons = {key: value for key, value in first.items() if key.startswith("throttle.")}
    assert len(reasons) == 6
    assert [key for key, value in reasons.items() if value] == [f"throttle.{name}"]
    if name in numbers:
        device["fields"][f"{numbers[name]}/0"] += 500_000_000
    second = of(probe.next(after=2.0))
    shares = {key: value for key, value in second.items() if key.startswith("throttle.") and key.endswith("Percent")}
    assert len(shares) == 5
    assert shares.get(f"throttle.{name}Percent", 25.0) == 25.0
    assert sum(shares.values()) == (25.0 if name in numbers else 0.0)


def test_throttling_of_older_drivers(gpus, board):
    """Without those fields the violation times tell of power and heat; a tick that was missed does not count twice."""
    data, device = board
    probe = gpus(
        data, extended=True, script=[{"fn": "nvmlDeviceGetViolationStatus", "call": 4, "raise": "NVML_ERROR_UNKNOWN"}]
    )
    probe.next()  # three calls, one of which (sync boost) is not supported and not repeated
    device["violation_ns"]["power"] += 10**9
    assert "throttle.swPowerCapPercent" not in of(probe.next())
    device["violation_ns"]["power"] += 10**9
    device["violation_ns"]["thermal"] += 10**8
    values = of(probe.next(after=3.0))
    assert values["throttle.swPowerCapPercent"] == pytest.approx(50.0)
    assert values["throttle.thermalPercent"] == pytest.approx(100 / 30)
    assert "throttle.swThermalPercent" not in values


def test_throttle_reasons_by_their_former_name(gpus, board, monkeypatch):
    """Drivers before 535 have the reasons under their older name."""
    data, device = board
    device["clocks_event_reasons"] = 64
    probe = gpus(data, extended=True, script=[fault("nvmlDeviceGetCurrentClocksEventReasons", "FUNCTION_NOT_FOUND")])
    assert of(probe.next())["throttle.hwThermal"] == 1
    probe.next()
    calls = probe.probe._nvml.calls
    assert calls["nvmlDeviceGetCurrentClocksEventReasons", 0] == 1
    assert calls["nvmlDeviceGetCurrentClocksThrottleReasons", 0] == 2


def fault(fn, error, call="all", device=0):
    return {"fn": fn, "device": device, "call": call, "raise": f"NVML_ERROR_{error}"}


def test_nvlink_traffic_without_profiling_counters(gpus):
    """Before Hopper the links' own counters (KiB) give bytes/s over all of them; one that goes back adds nothing."""
    probe = gpus("nvml-a100-mig.json", extended=True)
    assert "nvlinkTxBytes" not in of(probe.next())
    links = probe.probe._nvml.data["devices"][0]["nvlink_throughput_kib"]
    links["tx"][0] += 1000
    links["tx"][17] += 500
    links["tx"][3] = 7  # reset
    links["rx"][1] += 200
    values = of(probe.next(after=2.0))
    assert values["nvlinkTxBytes"] == 1500 * 1024 / 2
    assert values["nvlinkRxBytes"] == 200 * 1024 / 2


def test_nvlink_traffic_of_newer_links(gpus, board):
    """Where the links count bytes instead, those are used; a missed reading makes one average over longer."""
    data, device = board
    device |= {"gpm_supported": False, "nvlink_throughput_kib": "NVML_ERROR_NOT_SUPPORTED"}
    device["fields"] = {"202/0": 100, "202/5": 0, "204/0": 50}
    probe = gpus(data, extended=True)
    probe.next()
    device["fields"] = {"202/0": "NVML_ERROR_UNKNOWN", "202/5": 40, "204/0": 60}
    values = of(probe.next())
    assert "nvlinkTxBytes" not in values  # of one link it is not known
    assert values["nvlinkRxBytes"] == 10.0
    device["fields"] = {"202/0": 300, "202/5": 40, "204/0": 60}
    values = of(probe.next())
    assert values["nvlinkTxBytes"] == 100.0
    assert values["nvlinkRxBytes"] == 0.0


def test_traffic_is_of_one_source(gpus):
    """Where there are profiling counters, a tick that they miss is not filled in from the links' own counters."""
    script = [fault("nvmlGpmSampleGet", "UNKNOWN", call=call) for call in (3, 4)]
    probe = gpus("nvml-h100x2.json", extended=True, script=script)
    told = ["gpu.0.nvlinkTxBytes" in probe.next() for _ in range(5)]
    assert told == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("told", "errors", "recoveries"),
    [
        ({"fields": {"208/0": 3, "208/1": 4, "211/0": 10, "212/1": 100, "215/1": 2, "161/0": 99}}, 117, 2),
        ({"fields": {"161/0": 5, "163/1": 6, "162/0": 1}}, 11, 1),
        ({"nvlink_errors": [[1, 2, 10, 100]] * 18}, 18 * 111, 18 * 2),
    ],
)
def test_nvlink_errors_of_three_generations(gpus, board, told, errors, recoveries):
    """Errors and recoveries of all links, by the newest counters that the board has."""
    data, device = board
    device.update(told)
    values = of(gpus(data, extended=True).next())
    assert (values["nvlink.errors"], values["nvlink.recoveries"]) == (errors, recoveries)


def test_link_that_goes_silent_or_away(gpus, board):
    """Errors never go back for want of an answer; traffic goes on without a link that is refused for good."""
    data, device = board
    device |= {"gpm_supported": False, "nvlink_throughput_kib": "NVML_ERROR_NOT_SUPPORTED"}
    device["fields"] = {"202/0": 0, "202/35": 0, "208/0": 3, "208/35": 4}
    probe = gpus(data, extended=True)
    assert of(probe.next())["nvlink.errors"] == 7
    device["fields"] = {"202/0": 50, "208/0": 5, "208/35": "NVML_ERROR_UNKNOWN"}
    assert of(probe.next())["nvlinkTxBytes"] == 50.0
    probe.next()
    probe.next()
    assert of(probe.next())["nvlink.errors"] == 9


def test_older_counters_of_links_are_no_stopgap(gpus, board):
    """While the newer ones fail for a moment nothing is told, rather than what the older ones say."""
    data, device = board
    device |= {"gpm_supported": False, "nvlink_throughput_kib": "NVML_ERROR_NOT_SUPPORTED"}
    device["fields"] = {"208/0": "NVML_ERROR_UNKNOWN", "161/0": 99, "138/0": "NVML_ERROR_UNKNOWN", "202/0": 7}
    probe = gpus(data, extended=True)
    assert "nvlink.errors" not in of(probe.next())
    device["fields"]["208/0"] = 3
    for _ in range(3):
        assert "nvlinkTxBytes" not in of(probe.next())
    assert of(probe.next())["nvlink.errors"] == 3


def test_driver_without_fields_tells_errors_of_links_by_the_older_call(gpus, board):
    """A driver that refuses the question as a whole is asked the one before it."""
    data, device = board
    device["nvlink_errors"] = [[1, 2, 10, 100]] * 4
    values = of(gpus(data, extended=True, script=[fault("nvmlDeviceGetFieldValues", "FUNCTION_NOT_FOUND")]).next())
    assert (values["nvlink.errors"], values["nvlink.recoveries"]) == (4 * 111, 4 * 2)


def test_board_without_links(gpus):
    """A board that has none is not asked about its links again."""
    probe = gpus("nvml-rtx4090.json", extended=True)
    assert not [key for key in probe.next() if "nvlink" in key]
    asked = probe.probe._nvml.calls["nvmlDeviceGetNvLinkErrorCounter", 0]
    for _ in range(8):
        probe.next()
    assert probe.probe._nvml.calls["nvmlDeviceGetNvLinkErrorCounter", 0] == asked


def test_pcie_errors(gpus, board):
    """The three kinds of PCIe errors, each where it is counted."""
    data, device = board
    device["fields"] = {"173/0": 8, "180/0": 0}
    values = of(gpus(data, extended=True).next())
    assert (values["pcieErrors.correctable"], values["pcieErrors.fatal"]) == (8, 0)
    assert "pcieErrors.nonFatal" not in values


def test_wear_of_older_boards(gpus, board):
    """Pages that were retired for either cause are counted together, and not at all if one count is missing."""
    data, device = board
    device["retired_pages"] = [[0x1000, 0x2000], [0x9000]]
    script = [fault("nvmlDeviceGetRetiredPages", "UNKNOWN", call=4)]
    probe = gpus(data, extended=True, script=script)
    told = [of(probe.next()).get("retiredPages") for _ in range(9)]
    assert (told[0], told[4], told[8]) == (3, None, 3)


def test_blank_values_of_extended(gpus, board):
    """Unknown states and values that are not available are left out."""
    data, device = board
    device |= {"pstate": 32, "decoder": [2**32 - 1, 0], "memory_temp_field82": 2**32 - 1, "compute_processes": []}
    device["bar1"] = {"bar1Total": 1, "bar1Free": 1, "bar1Used": 2**64 - 1}
    device["graphics_processes"] = [{"pid": 4242, "used": None}]
    device["process_utilization"] = [{"pid": 4242, "timeStamp": 10, "smUtil": 2**32 - 1}]
    values = gpus(data, extended=True).next()
    assert not {"pstate", "decoderUtilization", "memoryTemp", "bar1Used"} & set(of(values))
    assert not {"memoryUsedBytes", "smUtil"} & set(of(values, "gpu.process.0."))


def test_engines_and_bar1(gpus, board):
    """Decoder, JPEG and optical flow engines; memory mapped through BAR1."""
    data, device = board
    device |= {"decoder": [11, 167000], "jpg": [0, 167000], "ofa": [3, 167000]}
    device["bar1"] = {"bar1Total": 1 << 37, "bar1Free": 1 << 36, "bar1Used": 1 << 36}
    values = of(gpus(data, extended=True).next())
    assert (values["decoderUtilization"], values["jpgUtilization"], values["ofaUtilization"]) == (11.0, 0.0, 3.0)
    assert values["bar1Used"] == 1 << 36


@pytest.mark.parametrize(
    ("state", "expected"),
    [(0, {}), (2, {"fabric.state": 2}), (3, {"fabric.state": 3, "fabric.status": 15})],
)
def test_fabric(gpus, board, state, expected):
    """How far the device's registration with the NVLink fabric is; its result once it is complete."""
    data, device = board
    device["fabric"] = {"state": state, "status": 15}
    values = of(gpus(data, extended=True).next())
    assert {key: value for key, value in values.items() if key.startswith("fabric.")} == expected


def test_energy(gpus):
    """Energy of each interval, and of the run over all devices; a counter that a driver reload set back adds nothing."""
    probe = gpus("nvml-h100x2.json", extended=True)
    first = probe.next()
    assert first["run.energyKWh"] == 0
    assert "gpu.0.energyIntervalJ" not in first
    devices = probe.probe._nvml.data["devices"]
    devices[0]["energy_mj"] += 3_600_000
    devices[1]["energy_mj"] = 5
    values = probe.next()
    assert values["gpu.0.energyIntervalJ"] == pytest.approx(3600)
    assert "gpu.1.energyIntervalJ" not in values
    devices[1]["energy_mj"] += 7_200_000
    values = probe.next()
    assert values["run.energyKWh"] == pytest.approx(0.003)


def test_energy_that_no_device_tells(gpus, board):
    """Where no energy is known, that of the run is not said to be 0."""
    data, device = board
    del device["energy_mj"]
    assert "run.energyKWh" not in gpus(data, extended=True).next()


def test_what_the_processes_use_themselves(gpus, board):
    """Memory and multiprocessor share of the monitored processes alone; each driver sample counts once."""
    data, device = board
    device["process_utilization"] = [
        {"pid": 4242, "timeStamp": 10, "smUtil": 99},
        {"pid": 4242, "timeStamp": 20, "smUtil": 30},
        {"pid": 4242, "timeStamp": 12, "smUtil": 98},
        {"pid": 4300, "timeStamp": 15, "smUtil": 12},
        {"pid": 1, "timeStamp": 20, "smUtil": 50},
    ]
    device["graphics_processes"] = [{"pid": 4242, "used": None}]
    probe = gpus(data, extended=True, pids=(4242, 4300))
    values = probe.next()
    assert values["gpu.process.0.smUtil"] == 42
    assert values["gpu.process.0.memoryUsedBytes"] == 2 * 37580963840
    for _ in range(5):
        values = probe.next()
    assert "gpu.process.0.smUtil" not in values
    device["process_utilization"] = [{"pid": 4242, "timeStamp": 30, "smUtil": 7}]
    assert probe.next()["gpu.process.0.smUtil"] == 7  # five ticks without a sample were no failures


def test_memory_of_processes_on_an_instance(gpus):
    """Processes of a partitioned device are told by its instances."""
    assert gpus("nvml-a100-mig.json", extended=True).next()["gpu.process.0.memoryUsedBytes"] == 18000000000


def test_xid_errors_are_counted_as_they_happen(gpus, fixture_json):
    """Each device has its own count and last code; a passing failure of the wait ends nothing."""
    data = fixture_json("nvml-h100x2.json")
    for device in data["devices"]:
        device["event_types"] = 0xFF
    probe = gpus(data, extended=True)
    first = probe.next()
    assert first["gpu.0.xid.count"] == first["gpu.1.xid.count"] == 0
    assert "gpu.0.xid.last" not in first
    other = SimpleNamespace(device=("device", 1), eventType=1, eventData=5)  # one that was not asked for
    probe.probe._nvml._happens((1, 63), other, (1, 79))
    values = settled(probe, lambda values: values["gpu.1.xid.count"] == 2)
    assert values["gpu.1.xid.last"] == 79
    assert values["gpu.0.xid.count"] == 0


def settled(probe, condition):
    """The first values for which the event thread has done what it was told of (its counts follow at once)."""
    for _ in range(1000):
        values = probe.next()
        if condition(values):
            return values
    raise AssertionError(values)


def test_device_that_is_lost_still_tells_of_its_error(gpus, fixture_json):
    """The Xid that says why is the one thing known of a device that fell off the bus."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][1]["event_types"] = 8
    probe = gpus(data, extended=True, script=[fault("nvmlDeviceGetTemperature", "GPU_IS_LOST", call=2, device=1)])
    probe.next()
    probe.probe._nvml._happens((1, 79))
    probe.next()
    values = settled(probe, lambda values: "gpu.1.xid.last" in values)
    assert of(values, "gpu.1.") == {"lost": 1, "xid.count": 1, "xid.last": 79}


def test_driver_that_reports_no_events(gpus, fixture_json):
    """Where no Xid can be reported, nothing is said about them: neither zero nor later."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["event_types"] = 1
    probe = gpus(data, extended=True)
    assert not [key for key in probe.next() if "xid" in key]


def test_errors_from_the_kernel_log(gpus, fixture_json, machine):
    """A driver without events is heard by way of the kernel's log, if that may be read; what was there before is not new."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][1]["event_types"] = 8
    before = "4,1,1,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=python, Ch 00000010\n"
    machine.write({"/dev/kmsg": before})
    probe = gpus(data, extended=True)
    first = probe.next()
    assert first["gpu.0.xid.count"] == first["gpu.1.xid.count"] == 0
    with (machine.root / "dev" / "kmsg").open("a") as log:
        log.write("6,2,2,-;usb 1-1: new device\n")
        log.write("4,3,3,-;NVRM: Xid (PCI:0000:1c:00): 94, pid=7, name=python\n")  # of a device that reports itself
        log.write("4,4,4,-;NVRM: Xid (PCI:0000:1b:00): 63, pid=7\n4,5,5,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=7\n")
    values = probe.next()
    assert (values["gpu.0.xid.count"], values["gpu.0.xid.last"]) == (2, 79)
    assert values["gpu.1.xid.count"] == 0


class Pipe:
    """/dev/kmsg as the kernel has it: a record per read, an error where some were lost, another where there are no more."""

    def __init__(self, *reads):
        self.reads = list(reads)

    def read(self, fd, size):
        answer = self.reads.pop(0) if self.reads else BlockingIOError()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_kernel_log_that_lost_records(tmp_path, monkeypatch):
    """Records that were overwritten are lost, those behind them are not."""
    (tmp_path / "kmsg").touch()
    log = KernelLog(str(tmp_path / "kmsg"))
    assert log.open()
    kernel = Pipe(BrokenPipeError(), b"4,9,9,-;NVRM: Xid (PCI:0000:1b:00): 48, pid=7\n")
    with monkeypatch.context() as patch:
        patch.setattr("runferry.sampler.probes.nvml_kmsg.os.read", kernel.read)
        assert list(log.new_xids()) == [((0, 0x1B, 0), 48)]
        assert list(log.new_xids()) == []
    log.close()
    assert list(log.new_xids()) == []


def test_wait_that_can_never_work_ends(gpus, fixture_json):
    """If waiting itself is refused, the counts stop: what is not watched is not known."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["event_types"] = 8
    probe = gpus(data, extended=True)
    probe.next()
    probe.probe._nvml._happens("NVML_ERROR_NOT_SUPPORTED")
    settled(probe, lambda values: "gpu.0.xid.count" not in values)


def test_events_after_the_library_lost_its_state(gpus, fixture_json):
    """When the library is initialised anew, so is the watch; what was counted stays."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["event_types"] = 8
    probe = gpus(data, extended=True, script=[fault("nvmlDeviceGetTemperature", "UNINITIALIZED", call=2)])
    probe.next()
    nvml = probe.probe._nvml
    nvml._happens((0, 31))
    nvml._happens("NVML_ERROR_UNINITIALIZED")
    probe.probe._session.xids._thread.join(5)
    probe.next()  # finds out
    assert probe.next()["gpu.0.xid.count"] == 1
    nvml._happens((0, 43))
    assert settled(probe, lambda values: values["gpu.0.xid.count"] == 2)["gpu.0.xid.last"] == 43


def test_library_that_begins_anew_while_events_are_waited_for(gpus, fixture_json):
    """The next watch does not depend on the last one's thread, which may take a second to find out."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["event_types"] = 8
    probe = gpus(data, extended=True, script=[fault("nvmlDeviceGetTemperature", "UNINITIALIZED", call=2)])
    probe.next()
    before = probe.probe._session.xids._thread
    probe.next()
    assert probe.next()["gpu.0.xid.count"] == 0
    assert probe.probe._session.xids._thread is not before
    before.join(5)
    assert not before.is_alive()
    probe.probe._nvml._happens((0, 43))
    assert settled(probe, lambda values: values["gpu.0.xid.count"] == 1)["gpu.0.xid.last"] == 43


@pytest.mark.parametrize(("error", "pauses"), [("UNKNOWN", [PAUSE] * 3), ("GPU_IS_LOST", [PAUSE] * 3), ("TIMEOUT", [])])
def test_wait_that_fails_at_once_is_not_repeated_at_once(fake_pynvml, tmp_path, error, pauses):
    """A wait that ends early with an error would keep a core busy; one that ended in its own time is made again."""
    nvml = fake_pynvml.FakeNvml({})
    left, waited = iter([False] * 3), []
    stop = SimpleNamespace(is_set=lambda: next(left, True), wait=waited.append)
    nvml.nvmlEventSetWait = lambda *_: nvml._called("nvmlEventSetWait")
    nvml.script = [{"fn": "nvmlEventSetWait", "call": "all", "raise": f"NVML_ERROR_{error}"}]
    XidWatch(nvml, KernelLog(str(tmp_path / "kmsg")))._run("event set", {}, stop)
    assert waited == pauses
    assert nvml.calls["nvmlEventSetWait", None] == 3
