"""Profiling counters of Hopper and later through NVML's GPM calls, measured between two ticks."""

from __future__ import annotations

import contextlib
from typing import Any

from ..probe import Values
from .nvml_calls import Calls

MIB = 1 << 20
SHORTEST = 0.095  # s between two samples: NVML wants 100 ms, a tick may come a little early

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
    """Two samples of the hardware counters in turn: each tick measures the time since the last one, nothing waits.

    `instance` is the number of a MIG GPU instance of the device; without it the device as a whole is measured.
    """

    def __init__(self, nvml: Any, device: Any, calls: Calls, instance: int | None = None) -> None:
        self._nvml = nvml
        self._device = device
        self._calls = calls
        self._instance = instance
        self._samples: list[Any] = []
        self._taken_at: float | None = None  # of the last sample, s
        self._supported: bool | None = None  # None: not known yet

    def sample(self, now: float) -> Values | None:
        """Values since the last call at `now` (s): none on the first and after a failure.

        None where the device has no such counters.
        """
        calls = self._calls
        if self._supported is None:
            self._supported = calls.get("gpm support", self._ask_support)
        if not self._supported:
            return None
        if self._taken_at is not None and now - self._taken_at < SHORTEST:
            return {}
        if not self._samples:
            self._samples = calls.get("gpm alloc", self._allocate) or []
        if not self._samples:
            return None
        last, current = self._samples
        if calls.get("gpm sample", lambda: self._take(current)) is None:
            return None if calls.refused("gpm sample") else {}
        had_last, self._taken_at = self._taken_at is not None, now
        self._samples = [current, last]
        return self._compare(last, current) if had_last else {}

    def _ask_support(self) -> bool:
        return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._device).isSupportedDevice)

    def _allocate(self) -> list[Any]:
        return [self._nvml.nvmlGpmSampleAlloc(), self._nvml.nvmlGpmSampleAlloc()]

    def _take(self, sample: Any) -> Any:
        if self._instance is None:
            return self._nvml.nvmlGpmSampleGet(self._device, sample)
        return self._nvml.nvmlGpmMigSampleGet(self._device, self._instance, sample)

    def _compare(self, last: Any, current: Any) -> Values:
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = last, current
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
