"""What the NVIDIA probe says of each of its keys."""

from __future__ import annotations

from ..metric import Kind, Metric, Origin
from .nvml_gpm import METRICS as PROFILED

_TESTS = "tests/sampler/test_nvidia.py::"
_FIRST = f"{_TESTS}test_h100_first_tick"
_PROFILE = f"{_TESTS}test_h100_profiling_from_the_second_tick"
_BOARD = f"{_TESTS}test_rtx4090"
_USED = f"{_TESTS}test_values_of_a_device_in_use_are_repeated_for_the_processes"
_EXTENDED = "tests/sampler/test_nvidia_extended.py::"

_ECC = "nvmlDeviceGetMemoryErrorCounter, device memory, volatile"
_FIELDS = "nvmlDeviceGetFieldValues"
_NOW, _INTERVAL, _SINCE_LOAD = Kind.GAUGE, Kind.INTERVAL, Kind.COUNTER
_LISTED, _PEER, _OURS = Origin.LISTED, Origin.PEER, Origin.OURS

# key without `gpu.{i}.`, unit, NVML call, formula, kind, origin, test
_ALWAYS = (
    ("gpu", "%", "nvmlDeviceGetUtilizationRates", "time in which a kernel ran, of the driver's window", _NOW, _LISTED, _FIRST),
    ("memory", "%", "nvmlDeviceGetUtilizationRates", "time with memory traffic, of the same", _NOW, _LISTED, _FIRST),
    ("memoryAllocated", "%", "nvmlDeviceGetMemoryInfo_v2, else _v1", "100 * used / total", _NOW, _LISTED, _FIRST),
    ("memoryAllocatedBytes", "bytes", "nvmlDeviceGetMemoryInfo_v2, else _v1", "used", _NOW, _LISTED, _FIRST),
    ("temp", "degrees C", "nvmlDeviceGetTemperatureV, else Temperature", "core sensor", _NOW, _LISTED, _FIRST),
    ("powerWatts", "W", "nvmlDeviceGetPowerUsage", "/ 1000", _NOW, _LISTED, _FIRST),
    ("enforcedPowerLimitWatts", "W", "nvmlDeviceGetEnforcedPowerLimit", "/ 1000", _NOW, _PEER, _FIRST),
    ("powerPercent", "%", "both", "100 * power / limit in force", _NOW, _LISTED, _FIRST),
    ("energyJoules", "J", "nvmlDeviceGetTotalEnergyConsumption", "/ 1000", _SINCE_LOAD, _PEER, _FIRST),
    ("smClock", "MHz", "nvmlDeviceGetClockInfo, SM", "", _NOW, _LISTED, _FIRST),
    ("memoryClock", "MHz", "nvmlDeviceGetClockInfo, memory", "", _NOW, _LISTED, _FIRST),
    ("graphicsClock", "MHz", "nvmlDeviceGetClockInfo, graphics", "every fourth sample", _NOW, _LISTED, _FIRST),
    ("correctedMemoryErrors", "count", _ECC, "corrected", _SINCE_LOAD, _LISTED, _FIRST),
    ("uncorrectedMemoryErrors", "count", _ECC, "uncorrected", _SINCE_LOAD, _PEER, _FIRST),
    ("encoderUtilization", "%", "nvmlDeviceGetEncoderUtilization", "every fourth sample", _NOW, _LISTED, _BOARD),
    ("fanSpeed", "%", "nvmlDeviceGetFanSpeed_v2, else FanSpeed", "first fan", _NOW, _PEER, _BOARD),
)  # fmt: skip

# Of profiling counters: what they are a share of.
_SHARES = {
    "smActive": "time in which a multiprocessor had a warp, mean of all",
    "smOccupancy": "warps on a multiprocessor, of the most it can hold",
    "pipeTensorActive": "time in which the tensor pipe was busy",
    "pipeTensorHmmaActive": "time in which the tensor pipe worked on half precision",
    "dramActive": "memory bandwidth used",
    "pipeFp64Active": "time in which the FP64 pipe was busy",
    "pipeFp32Active": "time in which the FP32 pipe was busy",
    "pipeFp16Active": "time in which the FP16 pipe was busy",
    "pcieTxBytes": "MiB/s * 1024^2; without counters nvmlDeviceGetPcieThroughput, KiB/s * 1024, one device per sample",
    "pcieRxBytes": "MiB/s * 1024^2; without counters nvmlDeviceGetPcieThroughput, KiB/s * 1024, one device per sample",
    "nvlinkTxBytes": "MiB/s * 1024^2 of all links; without counters and with `extended` fields 138 or 202, rise / time",
    "nvlinkRxBytes": "MiB/s * 1024^2 of all links; without counters and with `extended` fields 139 or 204, rise / time",
}

# Repeated for the processes on a device.
_OF_PROCESSES = {
    "gpu": "%", "memory": "%", "memoryAllocated": "%", "memoryAllocatedBytes": "bytes", "temp": "degrees C",
    "powerWatts": "W", "enforcedPowerLimitWatts": "W", "powerPercent": "%",
}  # fmt: skip

# key without `gpu.{i}.`, unit, source, formula, kind, test
_EXTENSIONS = (
    ("throttle.{reason}", "0 or 1", "nvmlDeviceGetCurrentClocksEventReasons", "swPowerCap, hwSlowdown, syncBoost, swThermal, hwThermal, powerBrake", _NOW, "test_throttling"),
    ("throttle.{reason}Percent", "%", f"{_FIELDS} 74, 76, 269-271; else nvmlDeviceGetViolationStatus", "100 * rise / time, both in ns; `thermal` where the driver does not tell the two apart", _INTERVAL, "test_throttling"),
    ("pstate", "0-15", "nvmlDeviceGetPerformanceState", "0 is fastest; 32, unknown, is left out", _NOW, "test_h100_extended"),
    ("clockRatio", "ratio", "nvmlDeviceGetMaxClockInfo", "SM clock / its maximum", _NOW, "test_h100_extended"),
    ("memoryTemp", "degrees C", f"{_FIELDS} 82", "", _NOW, "test_h100_extended"),
    ("energyIntervalJ", "J", "nvmlDeviceGetTotalEnergyConsumption", "rise", _INTERVAL, "test_energy"),
    ("xid.count", "count", "nvmlEventSetWait, critical Xid; else /dev/kmsg", "from 0 again if the helper had to be replaced", Kind.TOTAL, "test_xid_errors_are_counted_as_they_happen"),
    ("xid.last", "code", "nvmlEventSetWait, critical Xid; else /dev/kmsg", "", _NOW, "test_xid_errors_are_counted_as_they_happen"),
    ("remappedRows.corr", "count", "nvmlDeviceGetRemappedRows", "for correctable errors", _SINCE_LOAD, "test_h100_extended"),
    ("remappedRows.uncorr", "count", "nvmlDeviceGetRemappedRows", "for uncorrectable errors", _SINCE_LOAD, "test_h100_extended"),
    ("remappedRows.pending", "0 or 1", "nvmlDeviceGetRemappedRows", "", _NOW, "test_h100_extended"),
    ("remappedRows.failure", "0 or 1", "nvmlDeviceGetRemappedRows", "", _NOW, "test_h100_extended"),
    ("retiredPages", "count", "nvmlDeviceGetRetiredPages", "for both causes", _SINCE_LOAD, "test_wear_of_older_boards"),
    ("eccAggregate.corrected", "count", "nvmlDeviceGetMemoryErrorCounter, device memory, aggregate", "of the board's life", _SINCE_LOAD, "test_h100_extended"),
    ("eccAggregate.uncorrected", "count", "nvmlDeviceGetMemoryErrorCounter, device memory, aggregate", "of the board's life", _SINCE_LOAD, "test_h100_extended"),
    ("nvlink.errors", "count", f"{_FIELDS} 208 + 211 + 212; else 161 + 163; else nvmlDeviceGetNvLinkErrorCounter", "of all links", _SINCE_LOAD, "test_nvlink_errors_of_three_generations"),
    ("nvlink.recoveries", "count", f"{_FIELDS} 215; else 162; else nvmlDeviceGetNvLinkErrorCounter", "of all links", _SINCE_LOAD, "test_nvlink_errors_of_three_generations"),
    ("pcieReplays", "count", "nvmlDeviceGetPcieReplayCounter", "", _SINCE_LOAD, "test_h100_extended"),
    ("pcieErrors.correctable", "count", f"{_FIELDS} 173", "", _SINCE_LOAD, "test_pcie_errors"),
    ("pcieErrors.nonFatal", "count", f"{_FIELDS} 179", "", _SINCE_LOAD, "test_pcie_errors"),
    ("pcieErrors.fatal", "count", f"{_FIELDS} 180", "", _SINCE_LOAD, "test_pcie_errors"),
    ("pcieLinkGen", "generation", "nvmlDeviceGetCurrPcieLinkGeneration", "", _NOW, "test_h100_extended"),
    ("pcieLinkWidth", "lanes", "nvmlDeviceGetCurrPcieLinkWidth", "", _NOW, "test_h100_extended"),
    ("pcieLinkSpeed", "bytes/s", "nvmlDeviceGetPcieSpeed", "MB/s * 10^6", _NOW, "test_h100_extended"),
    ("maxPcieLinkGen", "generation", "nvmlDeviceGetMaxPcieLinkGeneration", "", _NOW, "test_h100_extended"),
    ("maxPcieLinkWidth", "lanes", "nvmlDeviceGetMaxPcieLinkWidth", "", _NOW, "test_h100_extended"),
    ("bar1Used", "bytes", "nvmlDeviceGetBAR1MemoryInfo", "", _NOW, "test_engines_and_bar1"),
    ("decoderUtilization", "%", "nvmlDeviceGetDecoderUtilization", "", _NOW, "test_engines_and_bar1"),
    ("jpgUtilization", "%", "nvmlDeviceGetJpgUtilization", "", _NOW, "test_engines_and_bar1"),
    ("ofaUtilization", "%", "nvmlDeviceGetOfaUtilization", "", _NOW, "test_engines_and_bar1"),
    ("fabric.state", "1-3", "nvmlDeviceGetGpuFabricInfoV", "not started, in progress, completed", _NOW, "test_fabric"),
    ("fabric.status", "NVML code", "nvmlDeviceGetGpuFabricInfoV", "result of the registration; 0 is success", _NOW, "test_fabric"),
)  # fmt: skip

METRICS = (
    *(
        Metric(f"gpu.{{i}}.{name}", unit, source, formula, kind, origin, test=test)
        for name, unit, source, formula, kind, origin, test in _ALWAYS
    ),
    Metric(
        "gpu.{i}.unCorrectedMemoryErrors",
        "count",
        _ECC,
        "uncorrected",
        _SINCE_LOAD,
        setting="seed_aliases",
        test=_FIRST,
    ),
    *(
        Metric(
            f"gpu.{{i}}.{name}",
            "bytes/s" if name.endswith("Bytes") else "%",
            f"nvmlGpmMetricsGet {number}",
            _SHARES[name],
            _INTERVAL,
            _PEER,
            test=_PROFILE,
        )
        for number, name in PROFILED.items()
    ),
    Metric(
        "gpu.{i}.lost",
        "1",
        "any call that says lost, reset required or not found",
        "asked again each minute",
        origin=_OURS,
        test=f"{_TESTS}test_lost_device_is_marked_and_asked_again_each_minute",
    ),
    *(
        Metric(f"gpu.process.{{i}}.{name}", unit, f"gpu.{{i}}.{name}", "while a monitored process uses it", test=_USED)
        for name, unit in _OF_PROCESSES.items()
    ),
    *(
        Metric(
            f"gpu.{{i}}.mig.{{instance}}.{name}",
            unit,
            "nvmlDeviceGetMemoryInfo of the MIG device",
            formula,
            origin=_OURS,
            test=f"{_TESTS}test_mig",
        )
        for name, unit, formula in (
            ("memoryAllocated", "%", "100 * used / total"),
            ("memoryAllocatedBytes", "bytes", "used"),
            ("memoryTotal", "bytes", ""),
        )
    ),
    *(
        Metric(
            f"gpu.{{i}}.mig.{{instance}}.{name}",
            "bytes/s" if name.endswith("Bytes") else "%",
            f"nvmlGpmMigSampleGet, nvmlGpmMetricsGet {number}",
            "as of the whole device",
            _INTERVAL,
            _OURS,
            test=f"{_TESTS}test_profiling_counters_of_instances",
        )
        for number, name in PROFILED.items()
    ),
    *(
        Metric(
            f"gpu.process.{{i}}.mig.{{instance}}.{name}",
            unit,
            f"gpu.{{i}}.mig.{{instance}}.{name}",
            "while a monitored process uses the instance",
            origin=_OURS,
            test=f"{_TESTS}test_mig",
        )
        for name, unit in (("memoryAllocated", "%"), ("memoryAllocatedBytes", "bytes"))
    ),
    *(
        Metric(f"gpu.{{i}}.{name}", unit, source, formula, kind, _OURS, "extended", f"{_EXTENDED}{test}")
        for name, unit, source, formula, kind, test in _EXTENSIONS
    ),
    Metric(
        "gpu.process.{i}.memoryUsedBytes",
        "bytes",
        "nvmlDeviceGetComputeRunningProcesses, GraphicsRunningProcesses",
        "sum over the monitored processes",
        origin=_OURS,
        setting="extended",
        test=f"{_EXTENDED}test_what_the_processes_use_themselves",
    ),
    Metric(
        "gpu.process.{i}.smUtil",
        "%",
        "nvmlDeviceGetProcessUtilization",
        "sum over the monitored processes",
        _INTERVAL,
        _OURS,
        "extended",
        f"{_EXTENDED}test_what_the_processes_use_themselves",
    ),
    Metric(
        "run.energyKWh",
        "kWh",
        "nvmlDeviceGetTotalEnergyConsumption",
        "rise of all sampled devices; from 0 again if the helper had to be replaced",
        Kind.TOTAL,
        _OURS,
        "extended",
        f"{_EXTENDED}test_energy",
    ),
)
