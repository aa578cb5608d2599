"""AMD devices. Three probes by tier, of which one runs: ROCm's libraries, the driver's files, the commands."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from .. import registry
from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..proctree import walk
from ..tables import whole
from .amd_processes import kfd_devices, memory_used
from .amd_source import SONAMES, Board, Source, cards, library_folders, no_driver, nvidia_devices
from .amd_sysfs import has_figures
from .nvml_select import VISIBLE, not_named

EXTENDED = ("memoryAllocatedBytes",)  # values that neither the list nor the peer has for AMD
# The device's values that are repeated for the processes on it, as for other vendors.
OF_PROCESSES = ("gpu", "memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "powerPercent")

_UNIQUE_ID = 16  # hexadecimal digits

_TESTS = "tests/sampler/test_amd"
_FIGURES = {
    "gpu": ("%", "gfx_activity; rsmi_dev_busy_percent_get", "gpu_busy_percent", "GPU use (%); usage.gfx_activity"),
    "memoryAllocated": (
        "%",
        "VRAM usage and total",
        "mem_info_vram_used, mem_info_vram_total",
        "VRAM Total (Used) Memory (B), else GPU Memory Allocated (VRAM%) or GPU memory use (%) (ROCm 5); mem_usage",
    ),
    "memoryAllocatedBytes": ("bytes", "VRAM usage", "mem_info_vram_used", "VRAM Total Used Memory (B); mem_usage"),
    "memoryReadWriteActivity": (
        "%",
        "umc_activity; rsmi_dev_memory_busy_percent_get",
        "mem_busy_percent",
        "GPU Memory Read/Write Activity (%), else GPU memory use (%) (ROCm 5); usage.umc_activity",
    ),
    "memoryOverDrive": (
        "%",
        "mem_overdrive_level",
        "pp_mclk_od",
        "GPU Memory OverDrive value (%); mem_overdrive",
    ),
    "temp": (
        "degrees C",
        "sensor of the memory",
        "hwmon temp*_input of label mem",
        "Temperature (Sensor memory) (C); temperature.mem",
    ),
    "powerWatts": (
        "W",
        "power_info; rsmi_dev_power_get",
        "hwmon power1_average, else power1_input",
        "Average or Current Socket Graphics Package Power (W); power.socket_power",
    ),
    "powerPercent": (
        "%",
        "power and power cap",
        "hwmon power and power1_cap",
        "the same and Max Graphics Package Power (W); limit of amd-smi static",
    ),
    "energyJoules": ("J", "energy count", "", "Accumulated Energy (uJ); energy.total_energy_consumption"),
}
_FORMULAS = {"memoryAllocated": "100 * used / total", "powerPercent": "100 * power / limit"}
_LISTED = {"gpu", "memoryAllocated", "temp", "powerWatts", "powerPercent"}


def _metrics(column: int, test: str) -> tuple[Metric, ...]:
    """The keys of one probe; `column` of the table above tells its sources."""
    told = {name: row for name, row in _FIGURES.items() if row[column]}
    devices = (
        Metric(
            f"gpu.{{i}}.{name}",
            row[0],
            row[column],
            _FORMULAS.get(name, ""),
            kind=Kind.COUNTER if name == "energyJoules" else Kind.GAUGE,
            origin=Origin.OURS if name in EXTENDED else Origin.LISTED if name in _LISTED else Origin.PEER,
            setting="extended" if name in EXTENDED else "",
            test=_TESTS + test,
        )
        for name, row in told.items()
    )
    processes = (
        Metric(
            f"gpu.process.{{i}}.{name}",
            told[name][0] if name in told else "bytes",
            "the device's value while a monitored process holds memory of it"
            if name in told
            else "/sys/class/kfd/kfd/proc/{pid}/vram_{device}, else drm-memory-vram in /proc/{pid}/fdinfo",
            origin=Origin.OURS,
            setting="extended",
            test=f"{_TESTS}.py::test_processes_by_the_compute_driver_and_by_open_files",
        )
        for name in (*OF_PROCESSES, "memoryUsedBytes")
    )
    return (*devices, *processes)


class _Amd(Probe):
    """`gpu.{i}.*` through the first source that works; `i` counts NVIDIA's devices first, then AMD's.

    With `extended` also `gpu.process.{i}.*`: the values of a device that a monitored process holds memory of.
    The prefix `gpu.` is shared with NVIDIA, the indices are not.
    """

    kinds: ClassVar[tuple[str, ...]]  # module:class of each source, imported where there is a device

    def __init__(self, sources: Sequence[Source] | None = None) -> None:
        self._candidates = sources
        self._source: Source | None = None
        self._before = 0  # devices of NVIDIA
        self._compute: dict[int, str] = {}

    def discover(self, ctx: Context) -> str | None:
        """The lowest tier that has what it needs takes all devices; the others say which one does."""
        reason = no_driver(ctx)
        if reason is not None:
            return reason
        taker = which_probe(ctx)
        if taker != self.name:
            return f"probe {taker} reads AMD's devices"
        if self.tier is not Tier.HELPER:
            self._load()  # here, and not on the probe's thread: see `registry.load_modules`
        return None

    def _load(self) -> Sequence[Source]:
        if self._candidates is None:
            pairs = [kind.split(":") for kind in self.kinds]
            self._candidates = [getattr(importlib.import_module(m, __package__), name)() for m, name in pairs]
        return self._candidates

    def open(self, ctx: Context) -> None:
        """Open the sources in turn until one works."""
        reasons = []
        for source in self._load():
            try:
                source.open(ctx)
            except Exception as error:  # a library of another version may fail in any way: the next source may not
                known = isinstance(error, ProbeUnavailableError)
                reasons.append(f"{source.name}: {error if known else repr(error)}")
                source.close()
                continue
            self._source = source
            self._before = nvidia_devices(ctx)
            self._compute = kfd_devices(ctx) if ctx.settings.extended else {}
            return
        raise ProbeUnavailableError("; ".join(reasons))

    def sample(self, ctx: Context, out: Values) -> None:
        """The chosen devices, as the source tells them."""
        if self._source is None:
            return
        read = self._source.read(ctx)
        ids = ctx.settings.gpu_device_ids
        boards = chosen(ids, self._source.boards, self._before, os.environ)
        self.notices = [not_named(item) for item in unknown(ids, self._source.boards, self._before)]
        extended = ctx.settings.extended
        used: dict[str, int] = {}
        if extended:
            used = memory_used(ctx, set(walk(ctx, ctx.settings.pid, ctx.own_pids)), self._compute)
        for board in boards:
            index, values = self._before + board.position, read.get(board.position, {})
            for name, value in values.items():
                if extended or name not in EXTENDED:
                    out[f"gpu.{index}.{name}"] = value
            if values and board.address in used:
                out.update({f"gpu.process.{index}.{name}": values[name] for name in OF_PROCESSES if name in values})
                out[f"gpu.process.{index}.memoryUsedBytes"] = used[board.address]

    def metadata(self) -> dict[str, Any]:
        """gpu_amd, one entry per device in order; gpu_count of these (counts of vendors add up); gpu_type unless NVIDIA has one."""
        boards = self._source.boards if self._source is not None else []
        if not boards:
            return {}
        described = [{"id": str(board.position), **board.info} for board in boards]
        fields: dict[str, Any] = {"gpu_count": len(boards), "gpu_amd": described}
        if not self._before and boards[0].name:
            fields["gpu_type"] = boards[0].name
        return fields

    def close(self) -> None:
        """Shut the library down."""
        if self._source is not None:
            self._source.close()


class AmdProbe(_Amd):
    """Through ROCm's libraries; through the others where those cannot be opened after all."""

    name = "amd"
    tier = Tier.HELPER
    metrics = _metrics(1, ".py::test_the_binding_in_its_own_units")
    kinds = (
        ".amd_smi:AmdSmiSource",
        ".amd_rsmi:RocmSmiSource",
        ".amd_sysfs:SysfsSource",
        ".amd_command:CommandSource",
    )


class AmdSysfsProbe(_Amd):
    """Through the driver's files, where no library of ROCm is installed.

    On a thread: the driver asks the device for most of them, and one that is in trouble may not answer.
    """

    name = "amd_sysfs"
    tier = Tier.THREAD
    metrics = _metrics(2, ".py::test_the_driver_s_files")
    kinds = (".amd_sysfs:SysfsSource",)


class AmdCommandProbe(_Amd):
    """Through amd-smi or rocm-smi, where neither libraries nor files tell anything; every 15 s at most."""

    name = "amd_command"
    tier = Tier.THREAD
    interval = 15.0
    metrics = _metrics(3, "_tools.py::test_rocm_smi_by_version")
    kinds = (".amd_command:CommandSource",)


def which_probe(ctx: Context) -> str:
    """The probe that reads AMD's devices here: the first that the settings allow and that has what it needs."""
    if registry.chosen(ctx.settings, AmdProbe.name) and _library_installed(ctx):
        return AmdProbe.name
    if registry.chosen(ctx.settings, AmdSysfsProbe.name) and any(has_figures(ctx, card) for card in cards(ctx)):
        return AmdSysfsProbe.name
    return AmdCommandProbe.name


def _library_installed(ctx: Context) -> bool:
    """Whether one of ROCm's libraries seems to be there; loading it is for the helper."""
    try:
        if importlib.util.find_spec("amdsmi") is not None:
            return True
    except (ImportError, ValueError):  # a broken installation
        pass
    return any(ctx.exists(f"{folder}/{name}") for folder in library_folders() for name in SONAMES)


def chosen(
    ids: Sequence[str] | None, boards: Collection[Board], before: int, environ: Mapping[str, str]
) -> list[Board]:
    """The boards that `gpu_device_ids` names; all if it is None.

    Items are indices among all devices, or unique ids (or their beginnings); `visible` stands for those of
    ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or of CUDA_VISIBLE_DEVICES where no device is NVIDIA's.
    """
    if ids is None:
        return list(boards)
    if VISIBLE in ids:
        variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", *["CUDA_VISIBLE_DEVICES"] * (before == 0))
        wanted = next((environ[name] for name in variables if name in environ), None)
        if wanted is None:
            return list(boards)
        ids, before = tuple(item.strip() for item in wanted.split(",")), 0  # counted among AMD's
    return [board for board in boards if any(_names(item, board, before) for item in ids)]


def _names(item: str, board: Board, before: int) -> bool:
    if item.isdecimal():
        return item == str(before + board.position)
    name = item.lower().removeprefix("gpu-").removeprefix("0x")
    unique = (board.unique_id or "").lower().removeprefix("0x")
    spelt = {unique, unique.zfill(_UNIQUE_ID)} if unique else ()  # not all sources tell leading zeros
    return bool(name) and any(each.startswith(name) for each in spelt)


def unknown(ids: Sequence[str] | None, boards: Collection[Board], before: int) -> list[str]:
    """Those of `ids` that name no device of anybody's: not what may be one of the `before` that are NVIDIA's."""
    ours = [item for item in ids or () if not before or (whole(item) or 0) >= before]
    return [item for item in ours if item != VISIBLE and not any(_names(item, board, before) for board in boards)]
