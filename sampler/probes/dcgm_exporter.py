"""NVIDIA devices by way of DCGM exporter: from a Prometheus server that collects it, or from the exporter itself."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..context import Context
from ..exposition import Exposition, parse_labels, parse_value
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..settings import SamplerSettings
from .openmetrics import NoMetricsError, headers_for, is_blank

if TYPE_CHECKING:
    from ..http import Endpoint

LONGEST_ANSWER = 4 << 20  # bytes; a thousand devices have half of that
MOST_SERIES = 5000  # taken of one answer
MOST_QUERIES = 32
LONGEST_NAME = 256  # characters of a device, a node
ANSWERED_WITHIN = 5.0  # s, for each query
DESCRIBED_WITHIN = 1.0  # s, of the records of the machine, which wait two for all devices

_DRIVER = "/proc/driver/nvidia"  # where it is, NVML describes the devices

_MIB = float(1 << 20)


class _Field(NamedTuple):
    key: str
    unit: str
    factor: float = 1.0
    """From DCGM's unit to ours, which is that of the same key by NVML: MiB to bytes, mJ to J, ratios to per cent."""
    divisible: bool = False
    """Whether MIG instances have values of their own; else each of them repeats the device's."""
    origin: Origin = Origin.PEER
    kind: Kind = Kind.GAUGE


FIELDS = {
    "DCGM_FI_DEV_GPU_TEMP": _Field("temp", "degrees C"),
    "DCGM_FI_DEV_MEMORY_TEMP": _Field("memoryTemp", "degrees C"),
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP": _Field("maxOpTemp", "degrees C"),
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP": _Field("memoryMaxOpTemp", "degrees C"),
    "DCGM_FI_DEV_POWER_USAGE": _Field("powerWatts", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _Field("totalEnergyConsumption", "J", 0.001, kind=Kind.COUNTER),
    "DCGM_FI_DEV_GPU_UTIL": _Field("gpu", "%", divisible=True),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _Field("memory", "%", divisible=True),
    "DCGM_FI_DEV_SM_CLOCK": _Field("smClock", "MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": _Field("memoryClock", "MHz", origin=Origin.OURS),
    "DCGM_FI_DEV_ENC_UTIL": _Field("encoderUtilization", "%", divisible=True, origin=Origin.OURS),
    "DCGM_FI_DEV_FB_USED": _Field("memoryUsed", "bytes", _MIB, divisible=True),
    "DCGM_FI_DEV_FB_TOTAL": _Field("memoryTotal", "bytes", _MIB, divisible=True),
    "DCGM_FI_DEV_FB_FREE": _Field("memoryFree", "bytes", _MIB, divisible=True),
    "DCGM_FI_PROF_SM_ACTIVE": _Field("smActive", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_SM_OCCUPANCY": _Field("smOccupancy", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _Field("pipeTensorActive", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": _Field("pipeFp64Active", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _Field("pipeFp32Active", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": _Field("pipeFp16Active", "%", 100.0, divisible=True),
    "DCGM_FI_PROF_DRAM_ACTIVE": _Field("dramActive", "%", 100.0, divisible=True, origin=Origin.OURS),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _Field("pcieTxBytes", "bytes/s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _Field("pcieRxBytes", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _Field("nvlinkTxBytes", "bytes/s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _Field("nvlinkRxBytes", "bytes/s"),
}
_BY_NAME = {name.encode(): name for name in FIELDS}
_TEST = "tests/sampler/test_dcgm_exporter.py::"


def _declared() -> Iterator[Metric]:
    for name, field in FIELDS.items():
        formula = "" if field.factor == 1 else f"value * {field.factor:.10g}"
        for form in ("gpu.{i}.", "gpu.{i}.mig.{instance}.") if field.divisible else ("gpu.{i}.",):
            yield Metric(
                form + field.key,
                unit=field.unit,
                source=name,
                formula=formula,
                kind=field.kind,
                origin=Origin.OURS if "mig" in form else field.origin,
                setting="dcgm_exporter",
                test=_TEST + ("test_instances_of_a_device" if "mig" in form else "test_every_field_has_its_unit"),
            )


class QueryError(Exception):
    """The server says that the query failed, or answers it with what is no list of series."""


class Series(NamedTuple):
    """One series of DCGM exporter with its newest value."""

    name: str
    labels: Mapping[str, str]
    value: float


class DcgmExporterProbe(Probe):
    """`gpu.{i}.*` with the node of each device as a label of the key (`/l:{node}`), of all that the query finds.

    The URL is that of a query to Prometheus (`.../api/v1/query?query=...`, `query` as often as needed), or of DCGM
    exporter itself (`.../metrics`). Keys and labels are the peer's; units are those that the same keys have by NVML.
    """

    name = "dcgm_exporter"
    tier = Tier.THREAD
    metrics: ClassVar[tuple[Metric, ...]] = tuple(_declared())

    def __init__(self, url: str, settings: SamplerSettings) -> None:
        self._url = url
        self._headers = headers_for(settings, self.name)
        self._endpoints: list[Endpoint] = []
        self._parse = read_answer
        self._metadata: dict[str, Any] = {}

    def __repr__(self) -> str:
        return "DcgmExporterProbe()"

    @classmethod
    def instances(cls, settings: SamplerSettings) -> Iterable[DcgmExporterProbe]:
        """One, if there is a URL."""
        return [cls(settings.dcgm_exporter, settings)] if settings.dcgm_exporter else []

    def discover(self, ctx: Context) -> str | None:  # noqa: ARG002 - the base's signature
        """Always: whether it answers is seen at each sample."""
        from .. import http  # noqa: F401 - loaded before there are threads, and only where there is a URL

        return None

    def open(self, ctx: Context) -> None:
        """See that the URL can be used, and where there is no driver on this host ask which devices there are."""
        from ..http import AddressError, Endpoint, HttpError

        try:
            self._endpoints = [Endpoint(url, self._headers) for url in queries(self._url)]
        except (AddressError, ValueError) as error:
            reason = str(error) if isinstance(error, AddressError) else "not a valid URL"
            raise ProbeUnavailableError(reason, loud=True) from None
        if not self._endpoints:
            raise ProbeUnavailableError("its URL holds no query=..., and is not /metrics of an exporter", loud=True)
        if urlsplit(self._url).path.endswith("/metrics"):
            self._parse = read_exposition
        if not ctx.exists(_DRIVER):
            with contextlib.suppress(HttpError, QueryError, NoMetricsError):  # the first sample will tell
                self._metadata = describe(self._ask(self._endpoints[0], DESCRIBED_WITHIN))

    def _ask(self, endpoint: Endpoint, within: float) -> list[Series]:
        return self._parse(endpoint.get(within=within, longest=LONGEST_ANSWER).body)

    def sample(self, ctx: Context, out: Values) -> None:  # noqa: ARG002 - the base's signature
        """One GET for each query; a query that fails costs its own values, and is raised after the others."""
        failed: Exception | None = None
        for endpoint in self._endpoints:
            try:
                found = self._ask(endpoint, ANSWERED_WITHIN)
            except Exception as error:  # the other queries have values of their own
                failed = failed or error
            else:
                if len(found) == MOST_SERIES and not self.notices:
                    self.notices = (f"its answer has more than {MOST_SERIES} series: the others are left out",)
                for series in found:
                    key = key_of(series)
                    if key is not None:
                        out[key] = series.value * FIELDS[series.name].factor
        if failed is not None:
            raise failed

    def metadata(self) -> dict[str, Any]:
        """gpu_type, gpu_count, gpu_nvidia: name and UUID of each device, if all are of one node and none is known here."""
        return self._metadata


def queries(url: str) -> list[str]:
    """The URLs to ask, one for each `query=`: Prometheus takes one at a time. That of an exporter as it is."""
    parts = urlsplit(url)
    if parts.path.endswith("/metrics"):
        return [url]
    given = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MOST_QUERIES)
    path = parts.path if parts.path.strip("/") else "/api/v1/query"
    others = [(name, value) for name, value in given if name != "query"]
    return [
        parts._replace(path=path, query=urlencode([("query", value), *others]), fragment="").geturl()
        for name, value in given
        if name == "query"
    ]


def read_answer(body: bytes) -> list[Series]:
    """The series of an instant vector, which is what `/api/v1/query` answers.

    Raises:
        QueryError: the answer is an error, or another kind of result.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise QueryError("the answer is no JSON") from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        kind = answer.get("errorType") if isinstance(answer, dict) else None
        known = isinstance(kind, str) and re.fullmatch("[a-z_]{1,40}", kind)
        raise QueryError(f"the query failed{f': {kind}' if known else ''}")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        raise QueryError("the query does not give an instant vector")
    return list(islice((series for entry in data["result"] if (series := _entry(entry)) is not None), MOST_SERIES))


def _entry(entry: Any) -> Series | None:
    try:
        metric, (_, text) = entry["metric"], entry["value"]
        labels = {str(label): value for label, value in metric.items() if isinstance(value, str)}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    value = parse_value(text.encode("utf-8", "replace")) if isinstance(text, str) else None
    return _kept(labels.get("__name__", ""), labels, value)


def read_exposition(body: bytes) -> list[Series]:
    """The same of what DCGM exporter itself answers.

    Raises:
        NoMetricsError: it is none of the text formats.
    """
    exposition = Exposition(body)
    found: list[Series] = []
    for line in exposition.lines(_BY_NAME.__contains__):
        parsed = parse_labels(line.labels) if line.labels else None
        series = _kept(_BY_NAME.get(line.name, ""), parsed[1], line.value) if parsed is not None else None
        if series is not None:
            found.append(series)
            if len(found) >= MOST_SERIES:
                break
    if not exposition.typed and body.strip():
        raise NoMetricsError("its answer declares no type of any metric")
    return found


def _kept(name: str, labels: Mapping[str, str], value: float | None) -> Series | None:
    known = name in FIELDS and value is not None and math.isfinite(value)
    return Series(name, labels, value) if known and value is not None and not is_blank(name.encode(), value) else None


def index_of(labels: Mapping[str, str]) -> str | None:
    """The device's number: label `gpu`, else `device` (`nvidia3`); None if there is none."""
    index = labels.get("gpu") or labels.get("device", "").removeprefix("nvidia")
    return index if re.fullmatch("[0-9]{1,4}", index) else None


def node_of(labels: Mapping[str, str]) -> str:
    """The host's name, empty if it is not told. DCGM exporter's own `Hostname` does not count, as in the peer."""
    return labels.get("node") or labels.get("hostname") or ""


def key_of(series: Series) -> str | None:
    """`gpu.{i}.{name}/l:{node}`, of an instance of a divided device `gpu.{i}.mig.{instance}.{name}/l:{node}`."""
    index = index_of(series.labels)
    if index is None:
        return None
    field = FIELDS[series.name]
    instance = series.labels.get("GPU_I_ID", "")
    part = f"mig.{instance}." if field.divisible and re.fullmatch("[0-9]{1,4}", instance) else ""
    node = node_of(series.labels)
    if not node.isprintable() or len(node) > LONGEST_NAME:
        return None
    return f"gpu.{index}.{part}{field.key}" + (f"/l:{node}" if node else "")


def describe(found: Iterable[Series]) -> dict[str, Any]:
    """Fields of the hardware record; none if the devices are of several nodes, as then they are not this host's."""
    devices: dict[str, dict[str, str]] = {}
    nodes = set()
    for series in found:
        labels = series.labels
        index = index_of(labels)
        uuid, model = labels.get("UUID") or labels.get("uuid"), labels.get("modelName")
        if index is not None and uuid and model and _is_name(uuid) and _is_name(model):
            nodes.add(node_of(labels))
            devices.setdefault(index, {"name": model, "uuid": uuid})
    if not devices or len(nodes) > 1:
        return {}
    listed = [devices[index] for index in sorted(devices, key=int)]
    return {"gpu_type": listed[0]["name"], "gpu_count": len(listed), "gpu_nvidia": listed}


def _is_name(text: str) -> bool:
    """Whether a record may hold it: neither long nor with characters that are none."""
    return len(text) <= LONGEST_NAME and text.isprintable()
