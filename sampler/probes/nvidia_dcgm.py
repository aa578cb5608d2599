"""Profiling counters of NVIDIA devices from the DCGM daemon of this host, through its C library in a helper process."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_ushort, c_void_p
from typing import Any, NamedTuple

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from .nvml_library import LINUX_SIGNS
from .nvml_select import Identity, select

DAEMON = "localhost:5555"
SONAMES = ("libdcgm.so.4", "libdcgm.so.3")
OPT_IN = "WANDB_ENABLE_DCGM_PROFILING"  # in the environment, as for the peer
LEAST_EVERY, MOST_EVERY = 1.0, 5.0  # s between two measurements of the daemon
KEPT_SAMPLES = 2

# Field -> key. Shares are ratios and are written as per cent; bytes/s stay what they are.
FIELDS = {
    1002: "smActive",
    1003: "smOccupancy",
    1004: "pipeTensorActive",
    1005: "dramActive",
    1006: "pipeFp64Active",
    1007: "pipeFp32Active",
    1008: "pipeFp16Active",
    1009: "pcieTxBytes",
    1010: "pcieRxBytes",
    1011: "nvlinkTxBytes",
    1012: "nvlinkRxBytes",
    1014: "pipeTensorHmmaActive",
}
_NVML_INDEX, _UUID = 52, 54  # which device it is: the daemon has numbers of its own

# Of the library's headers
_ALL_GPUS = 0x7FFFFFFF
_ENTITY_GPU = 1
_BLANK_INTEGER, _BLANK_DOUBLE = 0x7FFFFFFFFFFFFFF0, float(1 << 47)  # and what is above: why there is no value
_MOST_GROUPS, _MOST_FIELDS = 10, 64


class _Group(ctypes.Structure):
    _fields_ = (("major", c_ushort), ("minor", c_ushort), ("count", c_uint), ("fields", c_ushort * _MOST_FIELDS))


class _Groups(ctypes.Structure):
    _fields_ = (
        ("version", c_uint), ("unused", c_uint), ("gpu", c_uint), ("count", c_uint), ("groups", _Group * _MOST_GROUPS),
    )  # fmt: skip


class _Value(ctypes.Union):
    _fields_ = (("integer", c_int64), ("double", c_double), ("text", c_char * 256), ("blob", c_char * 4096))


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("version", c_uint), ("field", c_ushort), ("kind", c_ushort), ("status", c_int), ("time", c_int64),
        ("value", _Value),
    )  # fmt: skip


_Receive = ctypes.CFUNCTYPE(c_int, c_uint, c_uint, POINTER(_FieldValue), c_int, c_void_p)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "dcgmInit": (),
    "dcgmConnect": (c_char_p, POINTER(c_size_t)),
    "dcgmProfGetSupportedMetricGroups": (c_size_t, POINTER(_Groups)),
    "dcgmFieldGroupCreate": (c_size_t, c_int, POINTER(c_ushort), c_char_p, POINTER(c_size_t)),
    "dcgmWatchFields": (c_size_t, c_size_t, c_size_t, c_int64, c_double, c_int),
    "dcgmUpdateAllFields": (c_size_t, c_int),
    "dcgmGetLatestValues_v2": (c_size_t, c_size_t, c_size_t, _Receive, c_void_p),
}


class Reading(NamedTuple):
    """A value of one device, by the daemon's number of the device."""

    device: int
    field: int
    value: int | float | str


class DcgmError(Exception):
    """A call failed; the text says which, and with what status."""


class DcgmLibrary:
    """The calls that are needed, on one connection. It is never closed: disconnecting has crashed processes."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._connection = c_size_t()
        self._fields = c_size_t()

    def _call(self, name: str, *args: Any) -> None:
        function = getattr(self._library, name)
        function.argtypes, function.restype = _ARGUMENTS[name], c_int
        status = function(*args)
        if status != 0:
            raise DcgmError(f"{name} failed with status {status}")

    def connect(self) -> None:
        """Connect to the daemon; DcgmError if there is none."""
        self._call("dcgmInit")
        self._call("dcgmConnect", DAEMON.encode(), byref(self._connection))

    def supported(self) -> set[int]:
        """The profiling fields that the first device has."""
        groups = _Groups()
        groups.version = ctypes.sizeof(_Groups) | 3 << 24
        self._call("dcgmProfGetSupportedMetricGroups", self._connection, byref(groups))
        found = groups.groups[: min(groups.count, _MOST_GROUPS)]
        return {field for group in found for field in group.fields[: min(group.count, _MOST_FIELDS)]}

    def watch(self, fields: list[int], every: float) -> None:
        """Let the daemon measure these fields of all devices each `every` s."""
        numbers = (c_ushort * len(fields))(*fields)
        name = f"runferry-{os.getpid()}".encode()  # the daemon knows each name once
        self._call("dcgmFieldGroupCreate", self._connection, len(fields), numbers, name, byref(self._fields))
        period = round(every * 1e6)
        self._call("dcgmWatchFields", self._connection, _ALL_GPUS, self._fields, period, 0.0, KEPT_SAMPLES)

    def read(self) -> list[Reading]:
        """The newest values that there are; blank ones are left out."""
        readings: list[Reading] = []

        def receive(group: int, device: int, values: Any, count: int, _: Any) -> int:
            if group == _ENTITY_GPU:
                for position in range(count):
                    value = _decode(values[position])
                    if value is not None:
                        readings.append(Reading(device, values[position].field, value))
            return 0

        self._call("dcgmUpdateAllFields", self._connection, 0)
        self._call("dcgmGetLatestValues_v2", self._connection, _ALL_GPUS, self._fields, _Receive(receive), None)
        return readings


def _decode(found: Any) -> int | float | str | None:
    """The value by the letter of its kind; None for what is blank or failed."""
    if found.status != 0:
        return None
    kind = chr(found.kind)
    if kind == "d":
        return float(found.value.double) if found.value.double < _BLANK_DOUBLE else None
    if kind == "i":
        return int(found.value.integer) if found.value.integer < _BLANK_INTEGER else None
    text = bytes(found.value.text).decode("utf-8", "replace") if kind == "s" else ""
    return text if text and not text.startswith("<<<") else None


class DcgmDaemonProbe(Probe):
    """`gpu.{i}.*`: profiling counters of devices before Hopper, too, where the daemon of DCGM runs and is asked for.

    `load` replaces the loading of the library.
    """

    name = "dcgm"
    tier = Tier.HELPER
    metrics = tuple(
        Metric(
            f"gpu.{{i}}.{name}",
            "bytes/s" if name.endswith("Bytes") else "%",
            f"dcgmGetLatestValues_v2 {field}",
            "" if name.endswith("Bytes") else "ratio * 100",
            Kind.INTERVAL,
            Origin.PEER,
            "dcgm_profiling",
            "tests/sampler/test_nvidia_dcgm.py::test_every_field_has_its_key_and_unit",
        )
        for field, name in FIELDS.items()
    )

    def __init__(self, load: Any = ctypes.CDLL) -> None:
        self._load = load
        self._library: DcgmLibrary | None = None
        self._indices: dict[int, int] = {}  # the daemon's number of a device -> NVML's
        self._uuids: dict[int, str] = {}

    def discover(self, ctx: Context) -> str | None:
        """Asked for only: one client at a time may use the counters, and that may be somebody's profiler."""
        wanted = ctx.settings.dcgm_profiling or os.environ.get(OPT_IN, "").lower() in {"1", "t", "true"}
        if not wanted:
            return f"not asked for (dcgm_profiling, {OPT_IN})"
        if not sys.platform.startswith("linux"):
            return "DCGM is there on Linux only"
        return None if any(map(ctx.exists, LINUX_SIGNS)) else f"no NVIDIA driver: none of {', '.join(LINUX_SIGNS)}"

    def open(self, ctx: Context) -> None:
        """Connect to the daemon and let it measure what it can."""
        library = DcgmLibrary(self._find())
        try:
            library.connect()
            supported = library.supported()
            fields = [field for field in FIELDS if field in supported]
            if not fields:
                raise ProbeUnavailableError("DCGM has none of the profiling counters for these devices", loud=True)
            every = min(max(ctx.settings.interval, LEAST_EVERY), MOST_EVERY)
            library.watch([_NVML_INDEX, _UUID, *fields], every)
        except DcgmError as error:
            raise ProbeUnavailableError(
                f"DCGM's daemon at {DAEMON}: {error}; is nv-hostengine running?", loud=True
            ) from error
        self._library = library

    def _find(self) -> Any:
        for name in SONAMES:
            try:
                return self._load(name)
            except OSError:
                continue
        raise ProbeUnavailableError(f"DCGM's library cannot be loaded: none of {', '.join(SONAMES)}", loud=True)

    def sample(self, ctx: Context, out: Values) -> None:
        """The newest measurements; none before the daemon has made its first two."""
        if self._library is None:
            return
        readings = self._library.read()
        for device, field, value in readings:
            if field == _NVML_INDEX and isinstance(value, int):
                self._indices[device] = value
            elif field == _UUID and isinstance(value, str):
                self._uuids[device] = value
        chosen = self._chosen(ctx)
        for device, field, value in readings:
            index = self._indices.get(device, device)
            if field in FIELDS and index in chosen and not isinstance(value, str):
                key = FIELDS[field]
                out[f"gpu.{index}.{key}"] = value if key.endswith("Bytes") else 100.0 * value

    def _chosen(self, ctx: Context) -> set[int]:
        devices = {*self._indices, *self._uuids}
        identities = [Identity(self._indices.get(device, device), self._uuids.get(device, "")) for device in devices]
        return set(select(ctx.settings.gpu_device_ids, identities, os.environ))
