"""What a sampler is told: one frozen dataclass, checked when it is built."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

LEAST_INTERVAL = 0.1  # s; below it the sampler would disturb what it measures
LONGEST_INTERVAL = 1e6  # s, 11 days; waits have a limit
DEFAULT_INTERVAL = 15.0  # s


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


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of a `Sampler`; sequences may also be given as text (see `parse_list`).

    Attributes:
        interval: seconds between samples, 0.1 to 1,000,000; else ValueError.
        pid: root of the process metrics (`cpu`, `proc.*`); this process unless given.
        process_tree: count the descendants of `pid` too. The sampler's own helper processes are never counted.
        disk_paths: each gets `disk.{path}.*`; the devices behind them get `disk.{device}.in|out`.
        label: appended to every key as `/l:<label>`, so that several writers of one run stay apart.
        probes: names of the probes to run; None runs all.
        skip_probes: names of probes not to run.
        gpu_device_ids: NVML indices or UUIDs (or prefixes) to sample; ("visible",) resolves CUDA_VISIBLE_DEVICES.
        no_cgroup: ignore the limits of control groups; percentages then refer to the host.
        cpu_norm: what 100 % of `cpu` means: the CPUs this process may use, or the host's physical cores.
        per_core: also `cpu.{i}.cpu_percent` for each logical core.
        per_interface: also `network.{interface}.sent|recv`.
        extended: also keys that neither the documented list nor the peer has (rates, working set, cores).
        seed_aliases: write `unCorrectedMemoryErrors` beside the peer's `uncorrectedMemoryErrors`.
        self_metrics: also `sampler.{probe}.durationMs|errors|stalled`.
        key_cap: distinct keys per run; further ones are dropped with one warning.
        cpu_count: overrides the physical cores in the hardware record; the next three likewise.
        cpu_logical_count: overrides the logical cores.
        gpu_count: overrides the number of GPUs.
        gpu_type: overrides the name of the GPU.
    """

    interval: float = DEFAULT_INTERVAL
    pid: int = field(default_factory=os.getpid)
    process_tree: bool = True
    disk_paths: tuple[str, ...] = ("/",)
    label: str | None = None
    probes: tuple[str, ...] | None = None
    skip_probes: tuple[str, ...] = ()
    gpu_device_ids: tuple[str, ...] | None = None
    no_cgroup: bool = False
    cpu_norm: Literal["available", "physical"] = "available"
    per_core: bool = False
    per_interface: bool = False
    extended: bool = False
    seed_aliases: bool = True
    self_metrics: bool = False
    key_cap: int = 2000
    cpu_count: int | None = None
    cpu_logical_count: int | None = None
    gpu_count: int | None = None
    gpu_type: str | None = None

    def __post_init__(self) -> None:
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
