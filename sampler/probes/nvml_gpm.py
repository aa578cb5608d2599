"""Profiling counters of Hopper and later through NVML's GPM calls, measured between two ticks."""

from __future__ import annotations

import contextlib
from typing import Any

from ..probe import Values
from .nvml_calls import Calls

MIB = 1 << 20

# GPM metric id -> key. Percentages are 0-100; names in Bytes come as MiB/s and are written as bytes/s.
METRICS = {
    2: "smActive",
    3: "smOccupancy",
    5: "pipeTensorActive",
    7: "pipeTensorHmmaActive",
    10: "dramActive",
    11: "pipeFp64Active",
    12: "pipeFp32Active",
    13: "pipeFp16Active",
    20: "pcieTxBytes",
    21: "pcieRxBytes",
    60: "nvlinkRxBytes",
    61: "nvlinkTxBytes",
}


class Profiler:
    """Two samples of the hardware counters in turn: each tick measures the time since the last one, nothing waits."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        self._has_last = False

    @classmethod
    def of(cls, nvml: Any, handle: Any, calls: Calls) -> Profiler | None:
        """A profiler, or None where the device has no such counters."""
        support = calls.get("gpm support", lambda: nvml.nvmlGpmQueryDeviceSupport(handle))
        if support is None or not support.isSupportedDevice:
            return None
        return calls.get("gpm alloc", lambda: cls(nvml, handle, calls))

    def sample(self) -> Values:
        """Values since the last call; empty on the first, and after a failure."""
        nvml, (last, now) = self._nvml, self._samples
        if self._calls.get("gpm sample", lambda: nvml.nvmlGpmSampleGet(self._handle, now)) is None:
            return {}
        had_last, self._has_last = self._has_last, True
        self._samples = [now, last]
        return self._compare(last, now) if had_last else {}

    def _compare(self, last: Any, now: Any) -> Values:
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = last, now
        for slot, metric in enumerate(METRICS):
            request.metrics[slot].metricId = metric
        if self._calls.get("gpm metrics", lambda: self._nvml.nvmlGpmMetricsGet(request)) is None:
            return {}
        values: Values = {}
        for slot in range(len(METRICS)):
            result = request.metrics[slot]
            key = METRICS.get(result.metricId)
            if key is not None and result.nvmlReturn == 0:
                values[key] = result.value * MIB if key.endswith("Bytes") else float(result.value)
        return values

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            with contextlib.suppress(Exception):  # the library may be gone
                self._nvml.nvmlGpmSampleFree(sample)
        self._samples = []
