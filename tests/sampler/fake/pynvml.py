"""A stand-in for the module `pynvml`, answering from the JSON of fixtures/sampler/nvml-*.json.

Used in two ways: `FakeNvml(data, script)` in the test's process, and as the module itself in a helper process, where
the variables FAKE_NVML (JSON file) and FAKE_NVML_SCRIPT (JSON list of faults) say what to answer.
"""

# ruff: noqa: N802, N815 - the names are NVML's

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

CODES = {
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_UNKNOWN": 999,
}


class NVMLError(Exception):
    def __init__(self, name):
        super().__init__(name)
        self.value = CODES[name]


class GpmRequest:
    """The structure of nvmlGpmMetricsGet: fields are set before the call, results read after it."""

    def __init__(self):
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)]


class FakeNvml:
    """`script`: a list of {"fn", "device", "call" (number from 1, or "all"), "raise" or "sleep"}."""

    nvmlMemory_v2 = 0x02000028
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = GpmRequest

    def __init__(self, data, script=()):
        self.data = data
        self.script = list(script)
        self.calls = {}

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

    def nvmlDeviceGetCount(self):
        return len(self.data["devices"])

    def nvmlDeviceGetHandleByIndex(self, index):
        self._called("nvmlDeviceGetHandleByIndex", index)
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
        assert (counter, location) == (0, 2)
        return self._read("nvmlDeviceGetMemoryErrorCounter", handle, "ecc_volatile")[("corrected", "uncorrected")[kind]]

    def nvmlDeviceGetFanSpeed_v2(self, handle, fan):
        return self._read("nvmlDeviceGetFanSpeed_v2", handle, "fan")[fan]

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

    def nvmlGpmMetricsGet(self, request):
        assert request.sample1.device == request.sample2.device is not None
        values = self.data["devices"][request.sample1.device]["gpm"]
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
