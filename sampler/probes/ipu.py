"""Graphcore IPUs through the module `gcipuinfo` of the Poplar SDK, in a helper process."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from ..context import Context
from ..metric import Metric
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import walk
from .number_text import number

# End of an attribute's name -> unit at the end of its value, with or without a space before it.
UNITS = {
    "temp": "C",
    "clock": "MHz",
    "power": "W",
    "utilisation": "%",
    "utilisation (session)": "%",
    "speed": "GT/s",
}
ALWAYS = frozenset(
    {
        "average board temp (C)",
        "average die temp (C)",
        "clock (MHz)",
        "ipu power (W)",
        "ipu utilisation (%)",
        "ipu utilisation (session) (%)",
    }
)
_TESTS = "tests/sampler/test_ipu.py::"
_FIRST = f"{_TESTS}test_first_sample"


def read_attribute(name: str, text: str) -> tuple[str, int | float] | None:
    """Name with unit and value of one attribute, None if it is no number: ("clock", "1500MHz") -> "clock (MHz)", 1500."""
    for ending, unit in UNITS.items():
        if name.endswith(ending) and text.endswith(unit):
            name, text = f"{name} ({unit})", text.removesuffix(unit)
            break
    value = number(text)
    return None if value is None else (name, value)


def _gauge(name: str, unit: str, attribute: str) -> Metric:
    return Metric(f"ipu.{{i}}.{name}", unit, f"gcipuinfo, {attribute}", test=_FIRST)


class IpuProbe(Probe):
    """`ipu.{i}.{attribute}` of each device that a monitored process uses, `i` being its `id`.

    Temperatures, clock, power and utilisation come with every sample; all other attributes that are numbers with the
    device's first one and whenever they change. `info` replaces the module.
    """

    name = "ipu"
    tier = Tier.HELPER
    metrics: ClassVar[tuple[Metric, ...]] = (
        _gauge("average board temp (C)", "degrees C", "average board temp"),
        _gauge("average die temp (C)", "degrees C", "average die temp"),
        _gauge("clock (MHz)", "MHz", "clock"),
        _gauge("ipu power (W)", "W", "ipu power"),
        _gauge("ipu utilisation (%)", "%", "ipu utilisation"),
        _gauge("ipu utilisation (session) (%)", "%", "ipu utilisation (session)"),
        Metric(
            "ipu.{i}.link speed (GT/s)",
            "GT/s",
            "gcipuinfo, link speed",
            "with the first sample and when it changes",
            test=_FIRST,
        ),
        Metric(
            "ipu.{i}.{attribute}",
            "as the driver has it",
            "gcipuinfo, every other attribute that is a number (ids, link width, error counts)",
            "with the first sample and when it changes",
            test=f"{_TESTS}test_other_attributes_come_first_and_when_they_change",
        ),
    )

    def __init__(self, info: ModuleType | Any = None) -> None:
        self._module = info
        self._info: Any = None
        self._told: dict[str, int | float] = {}  # what does not come with every sample, by key
        self._metadata: dict[str, Any] = {}

    def discover(self, ctx: Context) -> str | None:  # noqa: ARG002 - IPUs over the network have no file on this host
        """Looks where the interpreter would find the module, and imports nothing."""
        try:
            found = importlib.util.find_spec("gcipuinfo") is not None
        except (ImportError, ValueError):  # something of that name without a file
            found = True
        return None if found else "no module gcipuinfo (of Graphcore's Poplar SDK)"

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the port's
        """Load the module and list the devices."""
        if self._module is None:
            try:
                import gcipuinfo
            except Exception as error:  # without its shared library it fails in whatever way it comes to
                raise ProbeUnavailableError(f"module gcipuinfo cannot be loaded: {error!r}") from error
            self._module = gcipuinfo
        self._info = self._module.gcipuinfo()
        self._info.setUpdateMode(True)  # each call reads the devices again
        devices = self._info.getDevices()
        if not devices:
            raise ProbeUnavailableError("gcipuinfo finds no device")
        self._metadata = {
            "ipu": {
                "device_count": len(devices),
                "vendor": "Graphcore",
                "devices": [
                    {name: device[name] for name in ("id", "board ipu index", "board type") if name in device}
                    for device in devices
                ],
            }
        }

    def sample(self, ctx: Context, out: Values) -> None:
        """Devices are ours by the process that holds them; one that is let go starts anew when it is taken again."""
        pids = {str(pid) for pid in walk(ctx, ctx.settings.pid, ctx.own_pids)}
        told, self._told = self._told, {}
        for device in self._info.getDevices():
            if "id" in device and str(device.get("user process id")) in pids:
                self._sample_device(device, told, out)

    def _sample_device(self, device: Mapping[str, Any], told: Mapping[str, int | float], out: Values) -> None:
        for name, text in device.items():
            read = read_attribute(name, str(text))
            if read is None:
                continue
            attribute, value = read
            key = f"ipu.{device['id']}.{attribute}"
            if attribute not in ALWAYS:
                self._told[key] = value
                if told.get(key) == value:
                    continue
            out[key] = value

    def metadata(self) -> dict[str, Any]:
        """ipu: {device_count, vendor, devices: [{id, board ipu index, board type}]} of the whole host."""
        return self._metadata

    def close(self) -> None:
        """Let the library go."""
        self._info = None
