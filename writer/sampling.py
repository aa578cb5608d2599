"""What a run's settings mean to the sampler, and the samples that stay in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from .settings import Resolved

if TYPE_CHECKING:
    from ..sampler import SamplerSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def sampler_settings(given: Resolved, *, pid: int, label: str) -> SamplerSettings:
    """The sampler's settings: those of the run, which may name another process than `pid` and another label."""
    from ..sampler import SamplerSettings

    return SamplerSettings(
        interval=given.sample_interval,
        pid=given.stats_pid or pid,
        process_tree=given.process_tree,
        disk_paths=given.disk_paths,
        label=given.label or label or None,
        probes=given.probes or None,
        skip_probes=given.skip_probes,
        probe_intervals=given.probe_intervals,
        gpu_device_ids=given.gpu_device_ids or None,
        no_cgroup=given.no_cgroup,
        cpu_norm="physical" if given.cpu_norm == "physical" else "available",
        per_core=given.per_core,
        per_interface=given.per_interface,
        extended=given.extended,
        seed_aliases=given.seed_aliases,
        self_metrics=given.self_metrics,
        self_usage=given.self_usage,
        key_cap=given.key_cap,
        cpu_count=given.cpu_count or None,
        cpu_logical_count=given.cpu_logical_count or None,
        gpu_count=given.gpu_count or None,
        gpu_type=given.gpu_type or None,
        neuron_monitor_config_path=given.neuron_monitor_config_path or None,
        open_metrics_endpoints=given.open_metrics_endpoints,
        open_metrics_filters=given.open_metrics_filters,
        open_metrics_http_headers=given.open_metrics_http_headers,
        dcgm_exporter=given.dcgm_exporter or None,
        dcgm_profiling=given.dcgm_profiling,
        powermetrics=given.powermetrics,
        coreweave_metadata_base_url=given.coreweave_metadata_base_url.rstrip("/"),
        coreweave_metadata_endpoint=given.coreweave_metadata_endpoint,
    )


class SampleBuffer:
    """The last values of each system metric; `size` of each, -1 for all, 0 for none. For use by several threads."""

    def __init__(self, size: int, label: str | None) -> None:
        self._size = None if size < 0 else size
        self._suffix = f"/l:{label}" if label else ""
        self._lock = threading.Lock()
        self._values: dict[str, deque[tuple[datetime, float]]] = {}

    def add(self, timestamp_ns: int, values: Mapping[str, float]) -> None:
        """Keep a sample, taken at `timestamp_ns` (ns since 1970, UTC), under its keys without the run's own label."""
        if self._size == 0:
            return
        at = _EPOCH + timedelta(microseconds=timestamp_ns // 1000)
        with self._lock:
            for key, value in values.items():
                name = key.removesuffix(self._suffix)
                self._values.setdefault(name, deque(maxlen=self._size)).append((at, float(value)))

    def by_key(self) -> dict[str, list[tuple[datetime, float]]]:
        """Time (UTC) and value, the oldest first, by key."""
        with self._lock:
            return {key: list(values) for key, values in self._values.items()}
