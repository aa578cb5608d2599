"""A stand-in for the module `pynvml`, answering from the JSON of fixtures/sampler/nvml-*.json.

Used in two ways: `FakeNvml(data, script)` in the test's process, and as the module itself in a helper process, where
the variables FAKE_NVML (JSON file) and FAKE_NVML_SCRIPT (JSON list of faults) say what to answer.
"""

# ruff: noqa: N802, N815 - the names are NVML's

from __future__ import annotations

import ctypes
import json
import os
import queue
import time
from pathlib import Path
from types import SimpleNamespace

CODES = {
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_INSUFFICIENT_SIZE": 7,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_IN_USE": 19,
    "NVML_ERROR_MEMORY": 20,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED": 22,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": 23,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": 25,
    "NVML_ERROR_DEPRECATED": 26,
    "NVML_ERROR_NOT_READY": 27,
    "NVML_ERROR_GPU_NOT_FOUND": 28,
    "NVML_ERROR_UNKNOWN": 999,
}
NOT_FOUND = "NVML_ERROR_NOT_FOUND"
XID_EVENT = 8


class NVMLError(Exception):
    def __init__(self, name):
        super().__init__(name)
        self.value = CODES[name]


class FabricInfo(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint), ("status", ctypes.c_uint)]


class GpmRequest:
    """The structure of nvmlGpmMetricsGet: fields are set before the call, results read after it."""

    def __init__(self):
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)]


class FakeNvml:
    """`script`: a list of {"fn", "device", "call" (number from 1, or "all"), "raise" or "sleep"}."""

    nvmlMemory_v2 = 0x02000028
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = GpmRequest
    c_nvmlGpuFabricInfoV_t = FabricInfo
    nvmlLib = None

    def __init__(self, data, script=()):
        self.data = data
        self.script = list(script)
        self.calls = {}
        self._events = queue.Queue()

    def _called(self, fn, device=None):
        count = self.calls[fn, device] = self.calls.get((fn, device), 0) + 1
        for fault in self.script:
            if fault["fn"] == fn and fault.get("device", device) == device and fault["call"] in ("all", count):
                time.sleep(fault.get("sleep", 0))
                if "raise" in fault:
                    raise NVMLError(fault["raise"])

    def _read(self, fn, handle, field):
        self._called(fn, handle[1])
        device = self.data["devices"][handle[1]]
        if handle[0] == "mig":
            device = device["mig_devices"][handle[2]]
        value = device.get(field, "NVML_ERROR_NOT_SUPPORTED")
        if isinstance(value, str) and value.startswith("NVML_ERROR"):
            raise NVMLError(value)
        return value

    def nvmlInit(self):
        self._called("nvmlInit")

    def nvmlShutdown(self):
        self._called("nvmlShutdown")

    def nvmlSystemGetCudaDriverVersion(self):
        return self.data["cuda"]

    def nvmlSystemGetDriverVersion(self):
        return self.data["driver"].encode()

    def nvmlDeviceGetCount(self):
        return len(self.data["devices"])

    def nvmlDeviceGetHandleByIndex(self, index):
        self._called("nvmlDeviceGetHandleByIndex", index)
        if index >= len(self.data["devices"]):
            raise NVMLError("NVML_ERROR_INVALID_ARGUMENT")
        return ("device", index)

    def nvmlDeviceGetUUID(self, handle):
        return self._read("nvmlDeviceGetUUID", handle, "uuid")

    def nvmlDeviceGetName(self, handle):
        return self._read("nvmlDeviceGetName", handle, "name").encode()  # old bindings give bytes

    def nvmlDeviceGetNumGpuCores(self, handle):
        return self._read("nvmlDeviceGetNumGpuCores", handle, "cores")

    def nvmlDeviceGetArchitecture(self, handle):
        return self._read("nvmlDeviceGetArchitecture", handle, "architecture")

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=self._read("nvmlDeviceGetPciInfo", handle, "pci_bus_id"))

    def nvmlDeviceGetMinorNumber(self, handle):
        return self._read("nvmlDeviceGetMinorNumber", handle, "minor")

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(**self._read("nvmlDeviceGetUtilizationRates", handle, "utilization"))

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        field = "memory" if handle[0] == "mig" else "memory_v2" if version else "memory_v1"
        if field == "memory_v1" and "memory_v1" not in self.data["devices"][handle[1]]:
            field = "memory_v2"
        return SimpleNamespace(**self._read("nvmlDeviceGetMemoryInfo", handle, field))

    def nvmlDeviceGetTemperatureV(self, handle, sensor):
        assert sensor == 0
        if "temperature_signed" not in self.data["devices"][handle[1]]:
            raise NVMLError("NVML_ERROR_FUNCTION_NOT_FOUND")  # a driver before 560
        return self._read("nvmlDeviceGetTemperatureV", handle, "temperature_signed")

    def nvmlDeviceGetTemperature(self, handle, sensor):
        assert sensor == 0
        return self._read("nvmlDeviceGetTemperature", handle, "temperature")

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._read("nvmlDeviceGetPowerUsage", handle, "power_mw")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return self._read("nvmlDeviceGetEnforcedPowerLimit", handle, "enforced_limit_mw")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self._read("nvmlDeviceGetTotalEnergyConsumption", handle, "energy_mj")

    def nvmlDeviceGetClockInfo(self, handle, clock):
        return self._read("nvmlDeviceGetClockInfo", handle, "clocks")[("graphics", "sm", "mem")[clock]]

    def nvmlDeviceGetMemoryErrorCounter(self, handle, kind, counter, location):
        assert location == 2
        counts = self._read("nvmlDeviceGetMemoryErrorCounter", handle, ("ecc_volatile", "ecc_aggregate")[counter])
        return counts[("corrected", "uncorrected")[kind]]

    def nvmlDeviceGetFanSpeed_v2(self, handle, fan):
        return self._read("nvmlDeviceGetFanSpeed_v2", handle, "fan")[fan]

    def nvmlDeviceGetFanSpeed(self, handle):
        return self._read("nvmlDeviceGetFanSpeed", handle, "fan")[0]

    def nvmlDeviceGetEncoderUtilization(self, handle):
        return self._read("nvmlDeviceGetEncoderUtilization", handle, "encoder")

    def nvmlDeviceGetPcieThroughput(self, handle, direction):
        return self._read("nvmlDeviceGetPcieThroughput", handle, "pcie")[("tx_kbps", "rx_kbps")[direction]]

    def _processes(self, fn, handle, field):
        return [
            SimpleNamespace(pid=each["pid"], usedGpuMemory=each["used"]) for each in self._read(fn, handle, field) or ()
        ]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self._processes("nvmlDeviceGetComputeRunningProcesses", handle, "compute_processes")

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):
        return self._processes("nvmlDeviceGetGraphicsRunningProcesses", handle, "graphics_processes")

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        samples = self._read("nvmlDeviceGetProcessUtilization", handle, "process_utilization")
        fresh = [SimpleNamespace(**sample) for sample in samples if sample["timeStamp"] > since]
        if not fresh:
            raise NVMLError(NOT_FOUND)
        return fresh

    def nvmlDeviceGetFieldValues(self, handle, wanted):
        self._called("nvmlDeviceGetFieldValues", handle[1])
        return [self._field(self.data["devices"][handle[1]], number, link) for number, link in wanted]

    def _field(self, device, number, link):
        value = device.get("fields", {}).get(f"{number}/{link}")
        if number == 82:
            value = device.get("memory_temp_field82")
        elif number in {138, 139} and isinstance(device["nvlink_throughput_kib"], dict):
            value = dict(enumerate(device["nvlink_throughput_kib"][("tx", "rx")[number - 138]])).get(link)
        code = 3 if value is None else CODES.get(value, 0)
        numbers = {"dVal": float("nan")} if code else {"ullVal": value, "dVal": value}
        return SimpleNamespace(
            fieldId=number,
            scopeId=link,
            nvmlReturn=code,
            valueType=0 if isinstance(value, float) else 3,
            value=SimpleNamespace(**numbers),
        )

    def nvmlDeviceGetNvLinkErrorCounter(self, handle, link, counter):
        links = self._read("nvmlDeviceGetNvLinkErrorCounter", handle, "nvlink_errors")
        if link >= len(links):
            raise NVMLError("NVML_ERROR_INVALID_ARGUMENT")
        return links[link][counter]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self._read("nvmlDeviceGetCurrentClocksEventReasons", handle, "clocks_event_reasons")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self._read("nvmlDeviceGetCurrentClocksThrottleReasons", handle, "clocks_event_reasons")

    def nvmlDeviceGetViolationStatus(self, handle, policy):
        violations = self._read("nvmlDeviceGetViolationStatus", handle, "violation_ns")
        name = {0: "power", 1: "thermal"}.get(policy)
        if name is None:
            raise NVMLError("NVML_ERROR_NOT_SUPPORTED")
        return SimpleNamespace(referenceTime=0, violationTime=violations[name])

    def nvmlDeviceGetPerformanceState(self, handle):
        return self._read("nvmlDeviceGetPerformanceState", handle, "pstate")

    def nvmlDeviceGetMaxClockInfo(self, handle, clock):
        return self._read("nvmlDeviceGetMaxClockInfo", handle, "max_clocks")[("graphics", "sm", "mem")[clock]]

    def nvmlDeviceGetRemappedRows(self, handle):
        rows = self._read("nvmlDeviceGetRemappedRows", handle, "remapped_rows")
        return rows["correctable"], rows["uncorrectable"], rows["pending"], rows["failure"]

    def nvmlDeviceGetRetiredPages(self, handle, cause):
        return self._read("nvmlDeviceGetRetiredPages", handle, "retired_pages")[cause]

    def nvmlDeviceGetPcieReplayCounter(self, handle):
        return self._read("nvmlDeviceGetPcieReplayCounter", handle, "pcie")["replay"]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle):
        return self._read("nvmlDeviceGetCurrPcieLinkGeneration", handle, "pcie")["gen"]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):
        return self._read("nvmlDeviceGetCurrPcieLinkWidth", handle, "pcie")["width"]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):
        return self._read("nvmlDeviceGetMaxPcieLinkGeneration", handle, "pcie")["max_gen"]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle):
        return self._read("nvmlDeviceGetMaxPcieLinkWidth", handle, "pcie")["max_width"]

    def nvmlDeviceGetPcieSpeed(self, handle):
        return self._read("nvmlDeviceGetPcieSpeed", handle, "pcie")["speed_mbps"]

    def nvmlDeviceGetBAR1MemoryInfo(self, handle):
        return SimpleNamespace(**self._read("nvmlDeviceGetBAR1MemoryInfo", handle, "bar1"))

    def nvmlDeviceGetDecoderUtilization(self, handle):
        return self._read("nvmlDeviceGetDecoderUtilization", handle, "decoder")

    def nvmlDeviceGetJpgUtilization(self, handle):
        return self._read("nvmlDeviceGetJpgUtilization", handle, "jpg")

    def nvmlDeviceGetOfaUtilization(self, handle):
        return self._read("nvmlDeviceGetOfaUtilization", handle, "ofa")

    def nvmlDeviceGetGpuFabricInfoV(self, handle, reference):
        found = self._read("nvmlDeviceGetGpuFabricInfoV", handle, "fabric")
        reference._obj.state, reference._obj.status = found["state"], found["status"]

    def nvmlDeviceGetSupportedEventTypes(self, handle):
        return self._read("nvmlDeviceGetSupportedEventTypes", handle, "event_types")

    def nvmlEventSetCreate(self):
        return "event set"

    def nvmlDeviceRegisterEvents(self, handle, kinds, event_set):
        self._called("nvmlDeviceRegisterEvents", handle[1])
        assert (kinds, event_set) == (XID_EVENT, "event set")

    def nvmlEventSetWait(self, event_set, timeout_ms):
        assert event_set == "event set"
        try:
            event = self._events.get(timeout=min(timeout_ms, 10) / 1000)
        except queue.Empty:
            raise NVMLError("NVML_ERROR_TIMEOUT") from None
        if isinstance(event, str):
            self._events.task_done()
            raise NVMLError(event)
        self._events.task_done()
        return event

    def nvmlEventSetFree(self, event_set):
        self._called("nvmlEventSetFree")

    def _happens(self, *events):
        """Let the driver report (index, Xid) pairs, or fail with an error's name; returns when all were taken."""
        for event in events:
            if isinstance(event, tuple):
                index, xid = event
                event = SimpleNamespace(device=("device", index), eventType=XID_EVENT, eventData=xid)  # noqa: PLW2901 - the driver's form
            self._events.put(event)
        self._events.join()

    def nvmlDeviceGetMigMode(self, handle):
        return self._read("nvmlDeviceGetMigMode", handle, "mig_mode")

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index >= len(self.data["devices"][handle[1]]["mig_devices"]):
            raise NVMLError("NVML_ERROR_INVALID_ARGUMENT")
        return ("mig", handle[1], index)

    def nvmlDeviceGetGpuInstanceId(self, handle):
        return self._read("nvmlDeviceGetGpuInstanceId", handle, "gi")

    def nvmlDeviceGetComputeInstanceId(self, handle):
        return self._read("nvmlDeviceGetComputeInstanceId", handle, "ci")

    def nvmlGpmQueryDeviceSupport(self, handle):
        return SimpleNamespace(isSupportedDevice=self._read("nvmlGpmQueryDeviceSupport", handle, "gpm_supported"))

    def nvmlGpmSampleAlloc(self):
        return SimpleNamespace(device=None)

    def nvmlGpmSampleFree(self, sample):
        self._called("nvmlGpmSampleFree")

    def nvmlGpmSampleGet(self, handle, sample):
        self._called("nvmlGpmSampleGet", handle[1])
        sample.device = handle[1]
        return sample

    def nvmlGpmMigSampleGet(self, handle, instance, sample):
        self._called("nvmlGpmMigSampleGet", handle[1])
        sample.device = (handle[1], instance)
        return sample

    def nvmlGpmMetricsGet(self, request):
        assert request.sample1.device == request.sample2.device is not None
        device = request.sample1.device
        if isinstance(device, tuple):
            migs = self.data["devices"][device[0]]["mig_devices"]
            values = next(mig["gpm"] for mig in migs if mig["gi"] == device[1])
        else:
            values = self.data["devices"][device]["gpm"]
        for metric in request.metrics[: request.numMetrics]:
            value = values.get(str(metric.metricId))
            metric.nvmlReturn, metric.value = (0, value) if value is not None else (3, 0.0)
        return request


def _from_environment():
    data = json.loads(Path(os.environ["FAKE_NVML"]).read_text())
    return FakeNvml(data, json.loads(os.environ.get("FAKE_NVML_SCRIPT", "[]")))


_instance = None


def __getattr__(name):
    global _instance
    if name.startswith("__"):
        raise AttributeError(name)
    if _instance is None:
        _instance = _from_environment()
    return getattr(_instance, name)
