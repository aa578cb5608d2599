"""What a sampler is told: one frozen dataclass, checked when it is built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

LEAST_INTERVAL = 0.1  # s; below it the sampler would disturb what it measures
LONGEST_INTERVAL = 1e6  # s, 11 days; waits have a limit
DEFAULT_INTERVAL = 15.0  # s
COREWEAVE_URL = "http://169.254.169.254"
COREWEAVE_PATH = "/api/v2/cloud-init/meta-data"


def parse_list(text: str) -> tuple[str, ...]:
    """The items of a JSON list, else of a comma- or colon-separated list (as an environment variable gives it)."""
    text = text.strip()
    if text.startswith("["):
        import json

        items = json.loads(text)
        if not isinstance(items, list):
            raise ValueError(f"expected a JSON list, got {text!r}")
        return tuple(str(item) for item in items)
    separator = "," if "," in text else ":"
    return tuple(item.strip() for item in text.split(separator) if item.strip())


def parse_mapping(text: str) -> dict[str, Any]:
    """The items of a JSON object, else of `name=value` pairs between commas."""
    text = text.strip()
    if text.startswith("{"):
        import json

        items: dict[str, Any] = json.loads(text)
        return items
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise ValueError("expected a JSON object or name=value pairs between commas")
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of a `Sampler`; sequences and mappings may also be given as text (`parse_list`, `parse_mapping`).

    Attributes:
        interval: seconds between samples, 0.1 to 1,000,000; else ValueError.
        pid: root of the process metrics (`cpu`, `proc.*`); this process unless given.
        process_tree: count the descendants of `pid` too. The sampler's own helper processes are never counted.
        disk_paths: each gets `disk.{path}.*`; the devices behind them get `disk.{device}.in|out`.
        label: appended to every key as `/l:<label>`, so that several writers of one run stay apart.
        probes: names of the probes to run; None runs all.
        skip_probes: names of probes not to run.
        probe_intervals: probe -> least seconds between two of its samples, in place of what the probe says.
        gpu_device_ids: NVML indices or UUIDs (or prefixes) to sample; ("visible",) resolves
            CUDA_VISIBLE_DEVICES, or ROCm's variables.
        no_cgroup: ignore the limits of control groups; percentages then refer to the host.
        cpu_norm: what 100 % of `cpu` means: the CPUs this process may use, or the host's physical cores.
        per_core: also `cpu.{i}.cpu_percent` for each logical core.
        per_interface: also `network.{interface}.sent|recv`.
        extended: also keys that neither the documented list nor the peer has (rates, working set, cores).
        seed_aliases: write `unCorrectedMemoryErrors` beside the peer's `uncorrectedMemoryErrors`.
        self_metrics: `sampler.{probe}.durationMs|lagMs|errors|stalled`.
        self_usage: also `sampler.cpu` and `sampler.memory.rssMB`, of the sampler's own processes.
        key_cap: distinct keys per run; further ones are dropped with one warning. Endpoints, interfaces, mounts, disks and
            probes of other packages have half of them together.
        cpu_count: overrides the physical cores in the hardware record; the next three likewise.
        cpu_logical_count: overrides the logical cores.
        gpu_count: overrides the number of GPUs.
        gpu_type: overrides the name of the GPU.
        neuron_monitor_config_path: configuration for neuron-monitor, in place of one made for the interval.
        open_metrics_endpoints: name -> URL of an OpenMetrics or Prometheus endpoint; the name is part of its keys.
        open_metrics_filters: patterns of the metrics to keep, searched in `name.metric`; a mapping gives each pattern
            a mapping from labels to patterns. All metrics are kept without.
        open_metrics_http_headers: header -> value, sent to every endpoint; endpoint -> mapping, sent to that one.
        dcgm_exporter: URL of a query to a Prometheus server that has DCGM's metrics, or of DCGM exporter itself.
        dcgm_profiling: read profiling counters from the DCGM daemon of this host.
        powermetrics: ask Apple's program of that name where IOReport is missing; it needs root and takes 0.3 s.
        coreweave_metadata_base_url: server that tells the cluster's name; asked only where a sign of one is found.
        coreweave_metadata_endpoint: path on it.
    """

    interval: float = DEFAULT_INTERVAL
    pid: int = field(default_factory=os.getpid)
    process_tree: bool = True
    disk_paths: tuple[str, ...] = ("/",)
    label: str | None = None
    probes: tuple[str, ...] | None = None
    skip_probes: tuple[str, ...] = ()
    probe_intervals: Mapping[str, float] = field(default_factory=dict)
    gpu_device_ids: tuple[str, ...] | None = None
    no_cgroup: bool = False
    cpu_norm: Literal["available", "physical"] = "available"
    per_core: bool = False
    per_interface: bool = False
    extended: bool = False
    seed_aliases: bool = True
    self_metrics: bool = True
    self_usage: bool = False
    key_cap: int = 2000
    cpu_count: int | None = None
    cpu_logical_count: int | None = None
    gpu_count: int | None = None
    gpu_type: str | None = None
    neuron_monitor_config_path: str | None = None
    open_metrics_endpoints: Mapping[str, str] = field(default_factory=dict, repr=False)
    open_metrics_filters: tuple[str, ...] | Mapping[str, Mapping[str, str]] = ()
    open_metrics_http_headers: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict, repr=False)
    dcgm_exporter: str | None = field(default=None, repr=False)  # URLs and headers may hold a secret
    dcgm_profiling: bool = False
    powermetrics: bool = False
    coreweave_metadata_base_url: str = COREWEAVE_URL
    coreweave_metadata_endpoint: str = COREWEAVE_PATH

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", _seconds("sampling interval", self.interval))
        if not self.interval >= LEAST_INTERVAL:  # written so that NaN fails too
            raise ValueError(f"sampling interval {self.interval!r} s: cannot be less than {LEAST_INTERVAL} seconds")
        if self.interval > LONGEST_INTERVAL:
            raise ValueError(
                f"sampling interval {self.interval!r} s: cannot be more than {LONGEST_INTERVAL:.0f} seconds"
            )
        if self.cpu_norm not in {"available", "physical"}:
            raise ValueError(f"cpu_norm {self.cpu_norm!r}: expected 'available' or 'physical'")
        for name in ("disk_paths", "probes", "skip_probes", "gpu_device_ids"):
            value = getattr(self, name)
            if value is not None:
                items = parse_list(value) if isinstance(value, str) else tuple(str(item) for item in value)
                object.__setattr__(self, name, items)
        for name in ("probe_intervals", "open_metrics_endpoints", "open_metrics_http_headers"):
            object.__setattr__(self, name, _mapping(name, getattr(self, name)))
        object.__setattr__(self, "open_metrics_filters", _filters(self.open_metrics_filters))
        intervals = {
            probe: _seconds(f"interval of probe {probe!r}", seconds) for probe, seconds in self.probe_intervals.items()
        }
        for probe, seconds in intervals.items():
            if not 0 <= seconds <= LONGEST_INTERVAL:
                raise ValueError(f"interval of probe {probe!r}: {seconds!r} s is not from 0 to {LONGEST_INTERVAL:.0f}")
        object.__setattr__(self, "probe_intervals", intervals)

    def shown(self) -> dict[str, Any]:
        """Name -> value for JSON, of all that `repr` shows: no secret is among it."""
        hidden = {each.name for each in fields(self) if not each.repr}
        return {name: value for name, value in asdict(self).items() if name not in hidden}


def _seconds(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} {value!r}: expected a number of seconds") from None


def _mapping(name: str, value: Any) -> dict[str, Any]:
    found = parse_mapping(value) if isinstance(value, str) else value or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{name}: expected a mapping, got {type(value).__name__}")  # noqa: TRY004 - as other values
    return dict(found)


def _filters(value: Any) -> tuple[str, ...] | dict[str, dict[str, str]]:
    if isinstance(value, str):
        value = parse_mapping(value) if value.strip().startswith("{") else parse_list(value)
    if isinstance(value, Mapping):
        return {str(pattern): dict(labels) for pattern, labels in value.items()}
    return tuple(str(item) for item in value or ())
