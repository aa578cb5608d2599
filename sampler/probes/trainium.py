"""AWS Trainium and Inferentia through `neuron-monitor`, which goes on printing a line of JSON per period."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..command import LineChild
from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import walk
from ..tables import read_whole
from .neuron_report import Json, Who, our_runtimes, read_devices, read_executions, read_hardware, read_runtimes

PROGRAM = "neuron-monitor"
DEFAULT_PLACE = "/opt/aws/neuron/bin/neuron-monitor"
DEVICES = "/sys/devices/virtual/neuron_device"
LONGEST_PERIOD = 3600  # s
DEFAULT_PERIOD = 5.0  # s; neuron-monitor's own, where a configuration says nothing
PERIODS_KEPT = 3  # after so many without a new line the last one says nothing about now
_DEVICE = re.compile(r"neuron\d+")
_TESTS = "tests/sampler/test_trainium.py::"


def configuration(interval: float, *, extended: bool) -> dict[str, Any]:
    """What neuron-monitor is to tell, each `interval` s (whole ones, its unit)."""
    groups = ["neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", *["execution_stats"] * extended]
    return {
        "period": f"{period_of(interval)}s",
        "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": group} for group in groups]}],
        "system_metrics": [{"type": group} for group in ("vcpu_usage", "memory_info", "neuron_hw_counters")],
    }


def period_of(interval: float) -> int:
    """Seconds between two lines."""
    return min(max(1, round(interval)), LONGEST_PERIOD)


def _interval(ctx: Context) -> float:
    """Seconds between two samples of this probe."""
    return max(ctx.settings.interval, ctx.settings.probe_intervals.get(TrainiumProbe.name, 0.0))


def period_in(path: str) -> float:
    """Seconds between two lines, as a configuration of the user says; one that cannot be read is the program's to refuse."""
    try:
        period = json.loads(Path(path).read_text(encoding="utf-8"))["period"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return DEFAULT_PERIOD
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", str(period))
    return float(match[1]) * {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}[match[2]] if match else DEFAULT_PERIOD


def _runtime(key: str, unit: str, path: str, formula: str = "", **more: Any) -> Metric:
    return Metric(key, unit, f"neuron-monitor, report.{path}", formula, **{"test": f"{_TESTS}test_trn1", **more})


_USED = "memory_used.neuron_runtime_used_bytes"
_EXTENDED: dict[str, Any] = {"origin": Origin.OURS, "setting": "extended", "test": f"{_TESTS}test_extended"}


class TrainiumProbe(Probe):
    """`trn.{i}.*` by core, `trn.*` of the runtimes that monitored processes run (`our_runtimes` says which).

    `environ` replaces the environment of this process.
    """

    name = "trainium"
    tier = Tier.THREAD
    metrics: ClassVar[tuple[Metric, ...]] = (
        _runtime(
            "trn.{i}.neuroncore_utilization",
            "%",
            "neuroncore_counters.neuroncores_in_use.{i}.neuroncore_utilization",
            "over neuron-monitor's period",
            kind=Kind.INTERVAL,
        ),
        _runtime("trn.host_total_memory_usage", "bytes", f"{_USED}.host", "sum of the runtimes"),
        _runtime("trn.neuron_device_total_memory_usage", "bytes", f"{_USED}.neuron_device", "sum of the runtimes"),
        _runtime(
            "trn.host_total_memory_usage.{kind}",
            "bytes",
            f"{_USED}.usage_breakdown.host.{{kind}}",
            "sum of the runtimes",
            setting="seed_aliases",
        ),
        _runtime(
            "trn.host_memory_usage.{kind}",
            "bytes",
            f"{_USED}.usage_breakdown.host.{{kind}}",
            "sum of the runtimes",
            origin=Origin.PEER,
        ),
        _runtime(
            "trn.{i}.neuroncore_memory_usage.{kind}",
            "bytes",
            f"{_USED}.usage_breakdown.neuroncore_memory_usage.{{i}}.{{kind}}",
        ),
        _runtime(
            "trn.executions.{kind}",
            "count",
            "execution_stats.execution_summary.{kind}",
            "sum of the runtimes, in neuron-monitor's period",
            kind=Kind.INTERVAL,
            **_EXTENDED,
        ),
        _runtime(
            "trn.execution_errors.{kind}",
            "count",
            "execution_stats.error_summary.{kind}",
            "sum of the runtimes, in neuron-monitor's period",
            kind=Kind.INTERVAL,
            **_EXTENDED,
        ),
        _runtime(
            "trn.execution_latency_{quantile}_seconds",
            "s",
            "execution_stats.latency_stats.total_latency.{quantile}",
            "p50 and p99, of the slowest runtime",
            kind=Kind.INTERVAL,
            **_EXTENDED,
        ),
        Metric(
            "trn.device.{i}.{memory}_ecc_{kind}",
            "count",
            "neuron-monitor, system_data.neuron_hw_counters.neuron_devices",
            kind=Kind.COUNTER,
            **_EXTENDED,
        ),
    )

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._child: LineChild | None = None
        self._folder: Path | None = None
        self._line: Json = {}
        self._line_from: float | None = None  # monotonic s; of the first sample until there is a line
        self._period = 0.0
        self._hardware: dict[str, int] = {}

    def discover(self, ctx: Context) -> str | None:
        """Looks for the driver's devices."""
        found = any(map(_DEVICE.fullmatch, ctx.list("/dev"))) or ctx.exists(DEVICES)
        return None if found else f"no Neuron device: no /dev/neuron0, no {DEVICES}"

    def open(self, ctx: Context) -> None:
        """Find the program; count the devices. The program is started by the first sample."""
        program = shutil.which(PROGRAM, path=self._environ.get("PATH"))
        if program is None and ctx.exists(DEFAULT_PLACE):
            program = ctx.path(DEFAULT_PLACE)
        if program is None:
            raise ProbeUnavailableError(
                f"a Neuron device, but no {PROGRAM} on PATH and no {DEFAULT_PLACE} (package aws-neuronx-tools)",
                loud=True,
            )
        devices = [name for name in ctx.list(DEVICES) if _DEVICE.fullmatch(name)]
        cores = read_whole(ctx, f"{DEVICES}/{devices[0]}/core_count") if devices else None
        known = {"neuron_device_count": len(devices), "neuroncore_per_device_count": cores}
        self._hardware = {name: count for name, count in known.items() if count}
        given = ctx.settings.neuron_monitor_config_path
        self._period = period_of(_interval(ctx)) if given is None else period_in(given)
        self._child = LineChild(ctx, [program, "-c", given or self._write_configuration(ctx)])

    def _write_configuration(self, ctx: Context) -> str:
        """A file that no other user can read, replace or collide with."""
        self._folder = Path(tempfile.mkdtemp(prefix="runferry-neuron-"))
        path = self._folder / "config.json"
        path.write_text(json.dumps(configuration(_interval(ctx), extended=ctx.settings.extended)))
        return str(path)

    def sample(self, ctx: Context, out: Values) -> None:
        """The newest line, or the last one while it is young.

        Raises:
            ValueError: the program prints what is no JSON; what an earlier line said is written all the same.
            RuntimeError: the program has ended, cannot be started, or is silent.
        """
        if self._child is None:
            return
        if self._child.error is not None and self._folder is not None and not self._folder.exists():
            self._child.argv[-1] = self._write_configuration(ctx)  # a cleaner of old files took it
        text = self._child.newest(ctx.now)
        garbage = text is not None and not self._take(ctx.now, text)
        if self._line_from is None:
            self._line_from = ctx.now
        keep = PERIODS_KEPT * max(self._period, _interval(ctx))
        silent = ctx.now - self._line_from > keep
        if silent:
            self._line = {}
        who = Who(
            pids=frozenset(walk(ctx, ctx.settings.pid, ctx.own_pids)),
            tag=self._environ.get("NEURON_PROCESS_TAG", ""),
            rank=self._environ.get("LOCAL_RANK", ""),
            is_here=lambda pid: ctx.exists(f"/proc/{pid}"),
        )
        runtimes = our_runtimes(self._line, who)
        read_runtimes(runtimes, out, aliases=ctx.settings.seed_aliases)
        if ctx.settings.extended:
            read_executions(runtimes, out)
            read_devices(self._line, out)
        if garbage:
            raise ValueError(f"{PROGRAM} printed what is no JSON object: {(text or b'')[:80]!r}")
        if not self._line and self._child.error is not None:
            raise RuntimeError(self._child.error)
        if silent:
            raise RuntimeError(f"{PROGRAM} has printed nothing for {keep:g} s")

    def _take(self, now: float, text: bytes) -> bool:
        """Make a line the newest; False if it is none."""
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(line, dict):
            return False
        self._line, self._line_from = line, now
        self._hardware |= read_hardware(line)
        return True

    def metadata(self) -> dict[str, Any]:
        """trainium: {name, vendor, neuron_device_count, neuroncore_per_device_count}, of the whole host."""
        return {"trainium": {"name": "Trainium", "vendor": "AWS", **self._hardware}} if self._hardware else {}

    def close(self) -> None:
        """End the program; remove its configuration."""
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
