"""Which of the machine's NVIDIA devices to sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

VISIBLE = "visible"  # in place of ids: what CUDA_VISIBLE_DEVICES leaves


class Identity(NamedTuple):
    """A device by number (NVML's index: order on the PCI bus), UUID, and UUIDs of its MIG instances."""

    number: int
    uuid: str
    mig_uuids: tuple[str, ...] = ()


def _match(text: str, devices: Sequence[Identity]) -> Identity | None:
    """The device that `text` names: an index, or the beginning of exactly one UUID."""
    if text.isdecimal():
        return next((device for device in devices if device.number == int(text)), None)
    if not text.startswith(("GPU-", "MIG-")):
        return None
    found = [device for device in devices if any(uuid.startswith(text) for uuid in (device.uuid, *device.mig_uuids))]
    return found[0] if len(found) == 1 else None


def _visible(devices: Sequence[Identity], environ: Mapping[str, str]) -> list[Identity]:
    """CUDA's rule: entries in order, up to the first one that is invalid; unset means all."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(devices)
    chosen = []
    for entry in text.split(","):
        device = _match(entry.strip(), devices)
        if device is None:
            break
        chosen.append(device)
    return chosen


def select(ids: Sequence[str] | None, devices: Sequence[Identity], environ: Mapping[str, str]) -> list[int]:
    """NVML indices to sample, ascending. None chooses all; ids that name no device are ignored."""
    if ids is None:
        chosen = list(devices)
    elif VISIBLE in ids:
        chosen = _visible(devices, environ)
    else:
        chosen = [device for text in ids if (device := _match(text.strip(), devices)) is not None]
    return sorted({device.number for device in chosen})
