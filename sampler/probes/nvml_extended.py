"""What `extended` adds for an NVIDIA device: why it is slow, what is wearing out, what else it is busy with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from ..probe import Values
from ..rates import Rises
from .nvml_calls import BLANKS, Calls, Getters
from .nvml_fields import Field, Fields
from .nvml_nvlink import NvLink

NS = 1e9


class Reason(NamedTuple):
    """Why the clocks are held down: bit among the reasons of now, field and policy that count how long (ns)."""

    name: str
    bit: int
    field: int | None = None
    policy: int | None = None  # nvmlPerfPolicyType_t, for drivers without the field


REASONS = (
    Reason("swPowerCap", 0x04, 74, 0),
    Reason("hwSlowdown", 0x08),
    Reason("syncBoost", 0x10, 76, 2),
    Reason("swThermal", 0x20, 269),
    Reason("hwThermal", 0x40, 270),
    Reason("powerBrake", 0x80, 271),
)
_POLICY_THERMAL = 1  # software's and the hardware's together, where they are not told apart
_MEMORY_TEMPERATURE = Field(82)
_PCIE_ERRORS = {"pcieErrors.correctable": Field(173), "pcieErrors.nonFatal": Field(179), "pcieErrors.fatal": Field(180)}
_CLOCK_SM = 1
_STATE_UNKNOWN = 32
_ECC_FOR_EVER, _ECC_DEVICE_MEMORY = 1, 2
_MULTIPLE_SINGLE_BIT, _DOUBLE_BIT = 0, 1  # why a page was retired
_FABRIC_NOT_SUPPORTED, _FABRIC_DONE = 0, 3


class Extended:
    """Opt-in values of one device."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._get = Getters(nvml, handle, calls)
        self._fields = Fields(nvml, handle, calls)
        self._nvlink = NvLink(nvml, handle, calls, self._fields)
        self._throttled: Rises[str] = Rises()  # ns
        self._fastest: int | None = None  # MHz

    def sample(self, now: float, values: Values, *, links: bool) -> None:
        """Add what changes from tick to tick, the traffic of the links only if `links`.

        `values` holds the device's other values of this tick.
        """
        self._sample_throttling(now, values)
        state = self._get("PerformanceState")
        _put(values, "pstate", None if state == _STATE_UNKNOWN else state)
        if self._fastest is None:
            self._fastest = self._get("MaxClockInfo", _CLOCK_SM)
        if self._fastest and "smClock" in values:
            values["clockRatio"] = values["smClock"] / self._fastest
        temperature = self._fields.read("memory temperature", [_MEMORY_TEMPERATURE])
        _put(values, "memoryTemp", temperature.get(_MEMORY_TEMPERATURE))
        if links:
            values.update(self._nvlink.sample_traffic(now))

    def sample_seldom(self, values: Values) -> None:
        """Add what takes longer and changes little."""
        self._sample_wear(values)
        values.update(self._nvlink.sample_errors())
        _put(values, "pcieReplays", self._get("PcieReplayCounter"))
        errors = self._fields.read("pcie errors", _PCIE_ERRORS.values())
        for name, field in _PCIE_ERRORS.items():
            _put(values, name, errors.get(field))
        self._sample_link(values)
        bar1 = self._get("BAR1MemoryInfo")
        _put(values, "bar1Used", None if bar1 is None or bar1.bar1Used in BLANKS else bar1.bar1Used)
        for name, engine in (("decoder", "Decoder"), ("jpg", "Jpg"), ("ofa", "Ofa")):
            utilization = self._get(f"{engine}Utilization")
            if utilization is not None and utilization[0] not in BLANKS:
                values[f"{name}Utilization"] = float(utilization[0])
        self._sample_fabric(values)

    def _sample_throttling(self, now: float, values: Values) -> None:
        reasons = self._get("CurrentClocksEventReasons", older="CurrentClocksThrottleReasons")
        if reasons is not None:
            for reason in REASONS:
                values[f"throttle.{reason.name}"] = int(bool(reasons & reason.bit))
        for name, nanoseconds in self._read_durations().items():
            share = self._throttled.per_second(name, nanoseconds, now)
            if share is not None:
                values[f"throttle.{name}Percent"] = 100 * share / NS

    def _read_durations(self) -> dict[str, int | float]:
        """How long (ns, since the driver was loaded) each reason held, where the driver counts that."""
        fields = {reason.name: Field(reason.field) for reason in REASONS if reason.field is not None}
        found = self._fields.read("throttling", fields.values())
        lasted = {name: found[field] for name, field in fields.items() if field in found}
        policies = {reason.name: reason.policy for reason in REASONS if reason.policy is not None}
        if not {"swThermal", "hwThermal"} & set(lasted):
            policies["thermal"] = _POLICY_THERMAL
        for name, policy in policies.items():
            violation = None if name in lasted else self._get("ViolationStatus", policy)
            if violation is not None:
                lasted[name] = violation.violationTime
        return lasted

    def _sample_wear(self, values: Values) -> None:
        rows = self._get("RemappedRows")
        for name, count in zip(("corr", "uncorr", "pending", "failure"), rows or (), strict=False):
            values[f"remappedRows.{name}"] = int(count)
        pages = [self._get("RetiredPages", cause) for cause in (_MULTIPLE_SINGLE_BIT, _DOUBLE_BIT)]
        if None not in pages:
            values["retiredPages"] = sum(map(len, pages))
        for name, kind in (("corrected", 0), ("uncorrected", 1)):
            count = self._get("MemoryErrorCounter", kind, _ECC_FOR_EVER, _ECC_DEVICE_MEMORY)
            _put(values, f"eccAggregate.{name}", count)

    def _sample_link(self, values: Values) -> None:
        """The PCIe link now and at its best: a card in the wrong slot, or a link that came up narrower."""
        for name, function in (
            ("pcieLinkGen", "CurrPcieLinkGeneration"),
            ("pcieLinkWidth", "CurrPcieLinkWidth"),
            ("maxPcieLinkGen", "MaxPcieLinkGeneration"),
            ("maxPcieLinkWidth", "MaxPcieLinkWidth"),
        ):
            _put(values, name, self._get(function))
        speed = self._get("PcieSpeed")  # MB/s
        _put(values, "pcieLinkSpeed", None if speed is None else speed * 1_000_000)

    def _sample_fabric(self, values: Values) -> None:
        fabric = self._calls.get("GpuFabricInfo", self._ask_fabric("V"), self._ask_fabric(""))
        if fabric is None or fabric.state == _FABRIC_NOT_SUPPORTED:
            return
        values["fabric.state"] = int(fabric.state)
        if fabric.state == _FABRIC_DONE:
            values["fabric.status"] = int(fabric.status)

    def _ask_fabric(self, suffix: str) -> Callable[[], Any]:
        def ask() -> Any:
            info = getattr(self._nvml, f"c_nvmlGpuFabricInfo{suffix}_t")()
            getattr(self._nvml, f"nvmlDeviceGetGpuFabricInfo{suffix}")(self._handle, ctypes.byref(info))
            return info

        return ask


def _put(values: Values, name: str, value: float | None) -> None:
    if value is not None:
        values[name] = value
