"""Which processes use which AMD device, and how much of its memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..context import Context
from ..tables import read_whole

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_PROCESSES = "/sys/class/kfd/kfd/proc"
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def kfd_devices(ctx: Context) -> dict[int, str]:
    """Compute devices: number that the compute driver gave it -> PCI address."""
    found = {}
    for node in ctx.list(_NODES):
        number = read_whole(ctx, f"{_NODES}/{node}/gpu_id")
        if not number:  # a CPU
            continue
        fields = dict(line.split(maxsplit=1) for line in _lines(ctx, f"{_NODES}/{node}/properties") if " " in line)
        try:
            place, domain = int(fields["location_id"]), int(fields.get("domain", 0))
        except (KeyError, ValueError):
            continue
        found[number] = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"
    return found


def memory_used(ctx: Context, pids: Collection[int], devices: dict[int, str]) -> dict[str, int]:
    """Bytes of device memory that the processes `pids` hold, by PCI address of the device.

    The compute driver tells it for processes of ROCm. For a device of which it tells nothing, as in containers that
    hide it, the open files of the graphics driver do; never both, since a forked worker has the files of its parent.
    """
    by_compute = _sums(pair for pid in pids for pair in _of_compute(ctx, pid, devices))
    return _sums(_of_files(ctx, pids)) | by_compute


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for address, used in pairs:
        found[address] = found.get(address, 0) + used
    return found


def _of_compute(ctx: Context, pid: int, devices: dict[int, str]) -> list[tuple[str, int]]:
    pairs = ((address, read_whole(ctx, f"{_PROCESSES}/{pid}/vram_{number}")) for number, address in devices.items())
    return [(address, used) for address, used in pairs if used is not None]


def _of_files(ctx: Context, pids: Collection[int]) -> list[tuple[str, int]]:
    """Of open render nodes. Copies of one descriptor, a child's included, have one client number and count once."""
    clients: dict[tuple[str, str], int] = {}
    for folder in (f"/proc/{pid}" for pid in pids):
        for name in ctx.list(f"{folder}/fd"):
            if not (ctx.link(f"{folder}/fd/{name}") or "").startswith("/dev/dri/"):
                continue
            pairs = (line.partition(":") for line in _lines(ctx, f"{folder}/fdinfo/{name}"))
            fields = {field.strip(): value.strip() for field, _, value in pairs}
            used = _bytes(fields.get("drm-memory-vram", ""))
            if fields.get("drm-driver") == "amdgpu" and "drm-pdev" in fields and used is not None:
                clients[fields["drm-pdev"].lower(), fields.get("drm-client-id", f"{folder}/{name}")] = used
    return [(address, used) for (address, _), used in clients.items()]


def _bytes(text: str) -> int | None:
    number, _, unit = text.partition(" ")
    scale = _UNITS.get(unit.strip())
    return int(number) * scale if scale and number.isdecimal() else None


def _lines(ctx: Context, path: str) -> Iterable[str]:
    return (ctx.read(path) or "").splitlines()
