"""Profiling counters of NVIDIA devices from the DCGM daemon of this host, through its C library in a helper process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from .nvml_library import LINUX_SIGNS, load_library
from .nvml_select import Identity, select

if TYPE_CHECKING:
    from .nvidia_dcgm_library import DcgmLibrary

SONAMES = ("libdcgm.so.4", "libdcgm.so.3")
LEAST_EVERY, MOST_EVERY = 1.0, 5.0  # s between two measurements of the daemon

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

    def __init__(self, load: Callable[[str], Any] = load_library) -> None:
        self._load = load
        self._library: DcgmLibrary | None = None
        self._indices: dict[int, int] = {}  # the daemon's number of a device -> NVML's
        self._uuids: dict[int, str] = {}

    def discover(self, ctx: Context) -> str | None:
        """Asked for only: one client at a time may use the counters, and that may be somebody's profiler."""
        if not ctx.settings.dcgm_profiling:
            return "only with the setting dcgm_profiling"
        if not sys.platform.startswith("linux"):
            return "DCGM is there on Linux only"
        return None if any(map(ctx.exists, LINUX_SIGNS)) else f"no NVIDIA driver: none of {', '.join(LINUX_SIGNS)}"

    def open(self, ctx: Context) -> None:
        """Connect to the daemon and let it measure what it can."""
        from .nvidia_dcgm_library import DAEMON, DcgmError, DcgmLibrary

        library = DcgmLibrary(self._find())
        try:
            self._watch(ctx, library)
        except DcgmError as error:
            raise ProbeUnavailableError(
                f"DCGM's daemon at {DAEMON}: {error}; is nv-hostengine running?", loud=True
            ) from error
        self._library = library

    def _watch(self, ctx: Context, library: DcgmLibrary) -> None:
        library.connect()
        supported = library.supported()
        fields = [field for field in FIELDS if field in supported]
        if not fields:
            raise ProbeUnavailableError("DCGM has none of the profiling counters for these devices", loud=True)
        every = min(max(ctx.settings.interval, LEAST_EVERY), MOST_EVERY)
        library.watch([_NVML_INDEX, _UUID, *fields], every)

    def _find(self) -> Any:
        for name in SONAMES:
            try:
                return self._load(name)
            except OSError:
                continue
        raise ProbeUnavailableError(f"DCGM's library cannot be loaded: none of {', '.join(SONAMES)}", loud=True)

    def sample(self, ctx: Context, out: Values) -> None:
        """The newest measurements; none before the daemon has made its first two.

        A daemon that went away is connected to again when it is back.
        """
        if self._library is None:
            return
        if not self._library.connected:
            self._watch(ctx, self._library)
        readings = self._library.read()
        for device, field, value in readings:
            if field == _NVML_INDEX and isinstance(value, int):
                self._indices[device] = value
            elif field == _UUID and isinstance(value, str):
                self._uuids[device] = value
        chosen = self._chosen(ctx)
        for device, field, value in readings:
            index = self._indices.get(device)
            if field in FIELDS and index in chosen and not isinstance(value, str):
                key = FIELDS[field]
                out[f"gpu.{index}.{key}"] = value if key.endswith("Bytes") else 100.0 * value

    def _chosen(self, ctx: Context) -> set[int]:
        identities = [Identity(index, self._uuids.get(device, "")) for device, index in self._indices.items()]
        return set(select(ctx.settings.gpu_device_ids, identities, os.environ))
