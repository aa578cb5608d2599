"""AMD's figures from the JSON of `amd-smi` or `rocm-smi`: Python programs that take seconds, so the last resort."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from ..command import CommandError, run
from ..context import Context
from ..probe import ProbeUnavailableError, Values
from .amd_source import Board, Source, figure, reading

AT_MOST_EVERY = 15.0  # s between two runs
TIMEOUT = 10.0  # s for one run
_EARLY = 0.5  # s by which a tick may come before its time
_CAP = 4 << 20  # bytes of output; eight devices make 40 KiB
_FOLDERS = ("/opt/rocm/bin", "/usr/bin")  # looked through after PATH
_CARD = re.compile(r"card(\d{1,6})", re.ASCII)
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}  # the tools mean powers of two
# Of devices that tell one of them; dies of one package share the sensor, and the second one tells `N/A`.
_POWER = ("average graphics package power (w)", "current socket graphics package power (w)")
_LIMITS = ("socket_power_limit", "power_cap", "max_power", "current_power")

# field of the hardware record -> name in rocm-smi's JSON, in lower case: capitals differ between versions
_INFO = {
    "unique_id": ("unique id",),
    "vbios_version": ("vbios version",),
    "performance_level": ("performance level",),
    "gpu_overdrive": ("gpu overdrive value (%)",),
    "gpu_memory_overdrive": ("gpu memory overdrive value (%)",),
    "max_power": ("max graphics package power (w)",),
    "series": ("card series", "device name"),
    "model": ("card model",),
    "vendor": ("card vendor",),
    "sku": ("card sku",),
    "sclk_range": ("valid sclk range",),
    "mclk_range": ("valid mclk range",),
}


class CommandSource(Source):
    """`amd-smi` (ROCm 7) where it works, else `rocm-smi`. Between two runs there are no values, rather than old ones."""

    name = "command"

    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        super().__init__()
        self._timeout = timeout
        self._programs: list[str] = []
        self._limits: dict[int, float] | None = None  # W, which `amd-smi metric` does not tell; None: not asked yet
        self._next = float("-inf")  # monotonic s

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the port's
        """Look for the programs. Running them is for `read`: a slow start is no reason to give up."""
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS))
        self._programs = [found for name in ("amd-smi", "rocm-smi") if (found := shutil.which(name, path=path))]
        if not self._programs:
            raise ProbeUnavailableError("no amd-smi and no rocm-smi on PATH or in /opt/rocm/bin")

    def read(self, ctx: Context) -> dict[int, Values]:
        """Run the first program that lists a device, which is then kept to; CommandError if none does."""
        if ctx.now < self._next:
            return {}
        self._next = ctx.now + AT_MOST_EVERY - _EARLY
        said = []
        for program in self._programs:
            try:
                found, self.boards = (self._amd_smi if _is_amd_smi(program) else self._rocm_smi)(ctx, program)
            except CommandError as error:
                said.append(str(error))
                continue
            if self.boards:
                self._programs = [program]
                return found
            said.append(f"{program} lists no device")
        raise CommandError("; ".join(said))

    def _amd_smi(self, ctx: Context, program: str) -> tuple[dict[int, Values], list[Board]]:
        if self._limits is None:
            with contextlib.suppress(CommandError):  # values without limits are better than none; asked for again
                static = list(amd_smi_devices(self._output(ctx, program, "static", "--json")))
                self._limits = dict(amd_smi_limits(static))
                self.boards = [Board(position, **_identity(device)) for position, device in static]
        devices = list(amd_smi_devices(self._output(ctx, program, "metric", "--json")))
        known = {board.position: board for board in self.boards}
        boards = [known.get(position, Board(position)) for position, _ in devices]
        limits = self._limits or {}
        readings = {position: amd_smi_reading(device, limits.get(position)) for position, device in devices}
        return {position: values for position, values in readings.items() if values}, boards

    def _rocm_smi(self, ctx: Context, program: str) -> tuple[dict[int, Values], list[Board]]:
        devices = rocm_smi_cards(self._output(ctx, program, "-a", "--showmeminfo", "vram", "--json"))
        readings = {position: rocm_smi_reading(card) for position, card in devices.items()}
        boards = [rocm_smi_board(position, card) for position, card in devices.items()]
        return {position: values for position, values in readings.items() if values}, boards

    def _output(self, ctx: Context, *argv: str) -> str:
        """Standard output. A failing status is an error only where nothing was printed: some devices may have answered."""
        result = run(ctx, argv, timeout=self._timeout, cap=_CAP)
        if result.code != 0 and not result.stdout.strip():
            raise CommandError(f"{argv[0]} ended with status {result.code}: {result.stderr}")
        return result.stdout.decode("utf-8", "replace")


def find_json(text: str) -> Any:
    """The first JSON object, or list of them, that begins a line, behind lines of warning; None if there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"^[ \t]*([{\[])", text, re.MULTILINE):
        try:
            tree = decoder.raw_decode(text, match.start(1))[0]
        except ValueError:  # a warning in brackets, or half an object
            continue
        except RecursionError:
            return None
        if isinstance(tree, dict) or any(isinstance(entry, dict) for entry in tree):  # else `[17]`, a log's
            return tree
    return None


def _is_amd_smi(program: str) -> bool:
    return os.path.basename(program) == "amd-smi"  # noqa: PTH119 - a name, not a file


# --- rocm-smi


def rocm_smi_cards(text: str) -> dict[int, dict[str, Any]]:
    """The entries `card<N>` by N, which sorts card10 behind card2; names of fields in lower case.

    Other entries (`system`, with the driver's version and processes) are left out.
    """
    found: dict[int, dict[str, Any]] = {}
    tree = find_json(text)
    for name, card in tree.items() if isinstance(tree, dict) else ():
        match = _CARD.fullmatch(name)
        if match and isinstance(card, dict):
            found[int(match[1])] = {str(field).strip().lower(): value for field, value in card.items()}
    return dict(sorted(found.items()))


def rocm_smi_reading(card: dict[str, Any]) -> Values:
    """The values of one card. ROCm 5 says `GPU memory use (%)` for the activity of memory.

    That field also stands for memoryAllocated, as documented for these versions, where neither bytes nor a share of
    VRAM are told.
    """
    activity_5 = figure(card.get("gpu memory use (%)"))
    traffic = figure(card.get("gpu memory read/write activity (%)"))
    allocated = figure(card.get("gpu memory allocated (vram%)"))
    energy = figure(card.get("accumulated energy (uj)"))
    return reading(
        busy=figure(card.get("gpu use (%)")),
        traffic=activity_5 if traffic is None else traffic,
        overdrive=figure(card.get("gpu memory overdrive value (%)")),
        used=figure(card.get("vram total used memory (b)")),
        total=figure(card.get("vram total memory (b)")),
        allocated=activity_5 if allocated is None else allocated,
        temperature=figure(card.get("temperature (sensor memory) (c)")),
        power=next((watts for name in _POWER if (watts := figure(card.get(name))) is not None), None),
        limit=figure(card.get("max graphics package power (w)")),
        energy=None if energy is None else energy / 1e6,
    )


def rocm_smi_board(position: int, card: dict[str, Any]) -> Board:
    """What does not change of one card."""
    info = {}
    for field, names in _INFO.items():
        told = next((value for name in names if isinstance(value := card.get(name), str) and value), None)
        if told is not None and told != "N/A":
            info[field] = told
    address = card.get("pci bus")
    unique = info.get("unique_id", "").lower().removeprefix("0x")
    return Board(position, address.lower() if isinstance(address, str) else None, unique or None, info)


# --- amd-smi


def amd_smi_devices(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, tree) of each device. ROCm 6 prints a list; ROCm 7 puts the list, or one device, under `gpu_data`."""
    tree = find_json(text)
    if isinstance(tree, dict):
        tree = tree.get("gpu_data", tree)
    for device in [tree] if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        if isinstance(device, dict) and type(number := device.get("gpu")) is int and number >= 0:
            yield number, device


def amd_smi_reading(device: dict[str, Any], limit: float | None = None) -> Values:
    """The values of one device of `amd-smi metric`; `limit` in W, of `amd-smi static`."""
    names = ("socket_power", "current_socket_power", "average_socket_power")
    return reading(
        busy=_number(device, "usage", "gfx_activity"),
        traffic=_number(device, "usage", "umc_activity"),
        overdrive=_number(device, "mem_overdrive"),
        used=_number(device, "mem_usage", "used_vram"),
        total=_number(device, "mem_usage", "total_vram"),
        temperature=_number(device, "temperature", "mem"),
        power=next((watts for name in names if (watts := _number(device, "power", name)) is not None), None),
        limit=limit,
        energy=_number(device, "energy", "total_energy_consumption"),
    )


def amd_smi_limits(static: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, float]]:
    """(number, W) of each device of `amd-smi static`: the limit in force, else the highest that may be set."""
    for position, device in static:
        limits = _at(device, "limit")
        places = [limits, *limits.values()] if isinstance(limits, dict) else []  # ROCm 7: by power domain
        for name in _LIMITS:
            watts = next((told for place in places if (told := _number(place, name)) is not None), None)
            if watts is not None:
                yield position, watts
                break


def _identity(device: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Board` for one device of `amd-smi static`."""
    fields = {
        "unique_id": _at(device, "asic", "asic_serial"),
        "vbios_version": _at(device, "vbios", "part_number"),
        "series": _at(device, "asic", "market_name"),
        "model": _at(device, "asic", "device_id"),
        "vendor": _at(device, "asic", "vendor_name"),
    }
    info = {name: text for name, text in fields.items() if isinstance(text, str) and text not in {"", "N/A"}}
    address = _at(device, "bus", "bdf")
    unique = info.get("unique_id", "").lower().removeprefix("0x")
    return {"address": address.lower() if isinstance(address, str) else None, "unique_id": unique or None, "info": info}


def _at(tree: Any, *path: str) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _number(tree: Any, *path: str) -> float | None:
    """A bare number, or `{"value", "unit"}`, in the unit of the table above for bytes."""
    value = _at(tree, *path)
    if isinstance(value, dict):
        unit = value.get("unit")
        number = figure(value.get("value"))
        return None if number is None else number * _UNITS.get(unit if isinstance(unit, str) else "", 1)
    return figure(value)
