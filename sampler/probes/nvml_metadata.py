"""Who the NVIDIA devices of this machine are: for choosing among them, and for the run's record of its hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..context import Context
from ..tables import read_whole
from .nvml_calls import NOTHING_THERE, PERMANENT, Calls, DeviceLostError, LibraryClosedError, code_of
from .nvml_select import Identity, Instance, Named

_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip


def text_of(value: str | bytes) -> str:
    """Text as the binding gives it: bytes in old versions."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class MigDevices(NamedTuple):
    """The MIG devices of a device with their handles; `complete` unless one did not answer that may be there."""

    found: list[tuple[Any, Instance]]
    complete: bool


def read_mig_devices(nvml: Any, handle: Any) -> MigDevices:
    """Who the MIG devices of a device are; none where the mode is off.

    Raises:
        Exception: the binding's own; not supported on most boards.
    """
    if nvml.nvmlDeviceGetMigMode(handle)[0] != 1:
        return MigDevices([], complete=True)
    found, complete = [], True
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            found.append((mig, _read_instance(nvml, mig)))
        except Exception as error:  # an empty slot, or destroyed just now; a lost device shows in its other calls
            complete &= code_of(error) in NOTHING_THERE | PERMANENT
    return MigDevices(found, complete)


def _read_instance(nvml: Any, mig: Any) -> Instance:
    return Instance(
        text_of(nvml.nvmlDeviceGetUUID(mig)),
        nvml.nvmlDeviceGetGpuInstanceId(mig),
        nvml.nvmlDeviceGetComputeInstanceId(mig),
    )


def read_identity(nvml: Any, index: int) -> Identity:
    """Who device `index` is; without UUID if it cannot be reached now."""
    uuid = ""
    instances: tuple[Instance, ...] = ()
    with contextlib.suppress(Exception):  # lost, not permitted, no MIG: the rest is still of use
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text_of(nvml.nvmlDeviceGetUUID(handle))
        instances = tuple(instance for _, instance in read_mig_devices(nvml, handle).found)
    return Identity(index, uuid, instances)


def _numa_node(ctx: Context, bus_id: str) -> int | None:
    domain, _, rest = bus_id.lower().partition(":")
    # NVML writes eight digits of the domain; the kernel four, and more only if it has more.
    node = read_whole(ctx, f"/sys/bus/pci/devices/{domain.lstrip('0'):0>4}:{rest}/numa_node")
    return node if node is not None and node >= 0 else None


class _Board:
    """Questions to one device whose answers do not change; None where it has none."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._calls = Calls()
        self._handle = None
        self._handle = self.ask("HandleByIndex", index)

    def ask(self, name: str, *args: Any) -> Any:
        """The result of NVML's `nvmlDeviceGet<name>`."""
        if self._handle is not None:
            args = (self._handle, *args)
        elif name != "HandleByIndex":
            return None
        with contextlib.suppress(DeviceLostError, LibraryClosedError):
            return self._calls.get(name, lambda: getattr(self._nvml, f"nvmlDeviceGet{name}")(*args))
        return None

    def text(self, name: str) -> str | None:
        """The same for text."""
        value = self.ask(name)
        return text_of(value) if value else None


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _boards(
    ctx: Context, nvml: Any, identities: Sequence[Identity]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of each device what the hardware record has fields for, and what it has none for."""
    boards, devices = [], []
    for identity in identities:
        board = _Board(nvml, identity.number)
        memory, pci = board.ask("MemoryInfo"), board.ask("PciInfo")
        bus_id = text_of(pci.busId) if pci is not None else ""
        boards.append(
            _known(
                {
                    "name": board.text("Name"),
                    "memory_total": memory.total if memory is not None else None,
                    "cuda_cores": board.ask("NumGpuCores"),
                    "architecture": _ARCHITECTURES.get(board.ask("Architecture")),
                    "uuid": identity.uuid or board.text("UUID"),
                    "pci_bus_id": bus_id,
                    "numa_node": _numa_node(ctx, bus_id),
                }
            )
        )
        migs = [{"uuid": uuid, "gpu_instance": gpu, "compute_instance": ci} for uuid, gpu, ci in identity.instances]
        devices.append(
            _known(
                {
                    "index": identity.number,
                    "uuid": identity.uuid,
                    "pci_bus_id": bus_id,
                    "minor": board.ask("MinorNumber"),
                    "max_pcie_link_gen": board.ask("MaxPcieLinkGeneration"),
                    "max_pcie_link_width": board.ask("MaxPcieLinkWidth"),
                    "mig": migs,
                }
            )
        )
    return boards, devices


def read_metadata(
    ctx: Context, nvml: Any, identities: Sequence[Identity], *, sampled: Collection[int], seen: Sequence[Named]
) -> dict[str, Any]:
    """The GPU fields of the hardware record, and under `nvidia` what it has no fields for.

    gpu_type, gpu_count, cuda_version, gpu_nvidia: one entry per device in NVML order, whatever is sampled.
    nvidia: `driver`, `devices` (index, uuid, pci_bus_id, minor, max_pcie_link_gen, max_pcie_link_width, mig:
    [{uuid, gpu_instance, compute_instance}]), `sampled` (indices), `visible` (what CUDA_VISIBLE_DEVICES leaves, in
    its order: [{index, mig: UUID}]).
    """
    boards, devices = _boards(ctx, nvml, identities)
    details: dict[str, Any] = {
        "devices": devices,
        "sampled": sorted(sampled),
        "visible": [_known({"index": named.number, "mig": named.instance}) for named in seen],
    }
    fields: dict[str, Any] = {"gpu_count": len(boards), "gpu_nvidia": boards, "nvidia": details}
    if boards and "name" in boards[0]:
        fields["gpu_type"] = boards[0]["name"]
    with contextlib.suppress(Exception):  # not told by the oldest drivers
        version = int(nvml.nvmlSystemGetCudaDriverVersion())
        fields["cuda_version"] = f"{version // 1000}.{version % 1000 // 10}"
    with contextlib.suppress(Exception):
        details["driver"] = text_of(nvml.nvmlSystemGetDriverVersion())
    return fields
