"""Google TPUs: through libtpu's SDK, and for what that does not tell through the runtime's server. In a helper process.

Both have values only while a program holds the TPU. Neither is loaded on a host without one: libtpu ends the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from .tpu_chips import PCI_DEVICES, find_chips
from .tpu_families import FAMILIES, Family, Shape
from .tpu_points import read_points
from .tpu_sdk import read_texts

PORT = 8431  # of the runtime's server
_TESTS = "tests/sampler/test_tpu.py::"
_PEER_KEYS = frozenset(
    {
        "tpu.{i}.runtimeHbmUtilization",
        "tpu.{i}.tensorcoreIdleDuration",
        "tpu.{i}.throttleScore",
        "tpu.inboundBufferTransferLatency",
    }
)  # which the public list does not have


def _metrics(family: Family) -> list[Metric]:
    source = "; ".join(
        [f"libtpu SDK: {', '.join(family.sdk)}"] * bool(family.sdk)
        + [f"runtime server: {family.rpc}"] * bool(family.rpc)
    )
    origin = Origin.PEER if family.key in _PEER_KEYS else Origin.LISTED
    if family.shape in {Shape.LABELLED, Shape.FLAT}:
        key = family.key + (".{label}" if family.shape is Shape.LABELLED else "") + f".{{stat}}{family.suffix}"
        formula = (
            "mean, p50, p90, p95 or p99, p999; stat0 ... of another number; of a histogram: linear within the bucket"
        )
        test = f"{_TESTS}test_multislice" if family.shape is Shape.LABELLED else f"{_TESTS}test_flat_statistics"
        return [Metric(key, family.unit, source, formula, Kind.COUNTER, origin, test=test)]
    if family.shape is Shape.COUNT:
        return [Metric(f"{family.key}.{{label}}", family.unit, source, test=f"{_TESTS}test_v5e")]
    if family.shape is Shape.LINK:
        test = f"{_TESTS}test_v5e"
        return [
            Metric(family.key, family.unit, source, "the device's worst link, 0 (good) to 10 (unusable)", test=test),
            Metric(f"{family.without_device}.{{label}}", family.unit, source, origin=Origin.OURS, test=test),
        ]
    formula = "one per chip, repeated for its devices" if family.shape is Shape.CHIP else ""
    only_server = not family.sdk
    test = f"{_TESTS}{'test_what_only_the_server_tells' if only_server else 'test_v5e'}"
    return [Metric(family.key, family.unit, source, formula, origin=origin, test=test)]


class RuntimeServerError(Exception):
    """The runtime's server is there, and did not tell all that it was asked."""


class TpuProbe(Probe):
    """`tpu.{i}.*` by device, `tpu.{family}.*` by label and statistic.

    `monitoring` replaces libtpu's module of that kind, `runtime` ours of that kind; False: as if it cannot be loaded.
    """

    name = "tpu"
    tier = Tier.HELPER
    metrics: ClassVar[tuple[Metric, ...]] = (
        *(metric for family in FAMILIES for metric in _metrics(family)),
        Metric(
            "tpu.{i}.hbmMemoryUsage",
            "%",
            "hbmCapacityUsage, hbmCapacityTotal",
            "100 * usage / total",
            origin=Origin.PEER,
            test=f"{_TESTS}test_v5e",
        ),
    )

    def __init__(self, monitoring: Any = None, runtime: Any = None, port: int = PORT) -> None:
        self._monitoring = monitoring
        self._runtime = runtime
        self._port = port
        self._duty_per_chip = 1
        self._metadata: dict[str, Any] = {}

    def discover(self, ctx: Context) -> str | None:
        """Looks for the chips on the PCI bus."""
        return None if find_chips(ctx) else f"no TPU among {PCI_DEVICES}"

    def open(self, ctx: Context) -> None:
        """Load what is installed of libtpu and h2."""
        found = find_chips(ctx)
        if found is None:
            raise ProbeUnavailableError(f"no TPU among {PCI_DEVICES}")
        chip, count = found
        self._duty_per_chip = chip.duty_per_chip
        self._metadata = {
            "tpu": {
                "name": chip.name,
                "hbm_gib": chip.hbm_gib,
                "devices_per_chip": chip.devices_per_chip,
                "count": count,
            }
        }
        missing = [*self._load_sdk(), *self._load_runtime()]
        if self._monitoring is None and self._runtime is None:
            raise ProbeUnavailableError(f"a TPU, but nothing to ask it with: {'; '.join(missing)}", loud=True)
        if self._runtime is None and missing:
            self.notices = [f"what the TPU runtime's server alone tells is left out: {missing[-1]}"]

    def _load_sdk(self) -> list[str]:
        if self._monitoring is None:
            try:
                from libtpu.sdk import tpumonitoring
            except Exception as error:  # one of two ways: whatever is wrong with it, the other may work
                return [f"libtpu cannot be loaded ({error!r})"]
            self._monitoring = tpumonitoring
        elif self._monitoring is False:
            self._monitoring = None
        return []

    def _load_runtime(self) -> list[str]:
        if self._runtime is None:
            try:
                from . import tpu_runtime
            except Exception as error:  # as above
                return [f"h2 cannot be loaded ({error!r}; runferry[tpu] brings it)"]
            self._runtime = tpu_runtime
        elif self._runtime is False:
            self._runtime = None
        return []

    def sample(self, ctx: Context, out: Values) -> None:  # noqa: ARG002 - the port's
        """Ask the SDK for every family, the server for those of which the SDK told nothing."""
        gaps = []
        supported = self._supported()
        for family in FAMILIES:
            values = self._ask_sdk(family, supported)
            out.update(values)
            if not values and family.rpc:
                gaps.append(family)
        trouble = self._fill(gaps, out)
        _derive(out)
        if trouble is not None:
            raise RuntimeServerError(
                f"the TPU runtime's server on port {self._port}: {trouble}; what it alone tells is incomplete"
            )

    def _fill(self, gaps: Sequence[Family], out: Values) -> Exception | None:
        """Write what the server tells of these families; what went wrong, where that is worth telling."""
        if not gaps or self._runtime is None:
            return None
        answers = self._runtime.fetch(self._port, [family.rpc for family in gaps])
        for family in gaps:
            out.update(read_points(family, answers.points.get(family.rpc, ()), self._duty_per_chip))
        return answers.trouble or (None if out else answers.refusal)

    def _supported(self) -> frozenset[str] | None:
        """The names that the SDK says it knows; None if it does not say."""
        try:
            return frozenset(self._monitoring.list_supported_metrics()) or None
        except Exception:  # the SDK's errors have no common class; without a list every name is tried
            return None

    def _ask_sdk(self, family: Family, supported: frozenset[str] | None) -> Values:
        """The values of the first of its names that has any."""
        if self._monitoring is None:
            return {}
        for name in family.sdk:
            if supported is not None and name not in supported:
                continue
            values: Values = {}
            with contextlib.suppress(Exception):  # as above: not known to this version, or no program holds the TPU
                metric = self._monitoring.get_metric(name)
                texts = [str(text) for text in metric.data()]
                values = read_texts(family, texts, _description(metric), self._duty_per_chip)
            if values:
                return values
        return {}

    def metadata(self) -> dict[str, Any]:
        """tpu: {name, hbm_gib, devices_per_chip, count}."""
        return self._metadata


def _description(metric: Any) -> str:
    description = getattr(metric, "description", "")
    return str(description() if callable(description) else description)


def _derive(out: Values) -> None:
    """Memory in use, in percent."""
    for key, total in list(out.items()):
        if key.endswith(".hbmCapacityTotal") and total > 0:
            device = key.removesuffix(".hbmCapacityTotal")
            usage = out.get(f"{device}.hbmCapacityUsage")
            if usage is not None:
                out[f"{device}.hbmMemoryUsage"] = 100 * usage / total
