"""Which of the machine's NVIDIA devices to sample, and which of them the monitored process can see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

VISIBLE = "visible"  # in place of ids: what CUDA_VISIBLE_DEVICES leaves


class Instance(NamedTuple):
    """A MIG device: its UUID, and the numbers of its GPU instance and compute instance."""

    uuid: str
    gpu: int
    compute: int


class Identity(NamedTuple):
    """A device by number (NVML's index: order on the PCI bus), UUID, and its MIG devices."""

    number: int
    uuid: str
    instances: tuple[Instance, ...] = ()


class Named(NamedTuple):
    """What one entry of a list of devices names: a device, or one MIG device of it."""

    number: int
    instance: str | None = None  # UUID


def _candidates(text: str, devices: Sequence[Identity]) -> list[Named]:
    if text.isdecimal():
        return [Named(device.number) for device in devices if device.number == int(text)]
    if text.startswith("GPU-"):
        return [Named(device.number) for device in devices if device.uuid.startswith(text)]
    if not text.startswith("MIG-"):
        return []
    return [
        Named(device.number, instance.uuid)
        for device in devices
        for instance in device.instances
        # the second is how drivers before R470 spelt it, which CUDA still takes
        if instance.uuid.startswith(text) or text == f"MIG-{device.uuid}/{instance.gpu}/{instance.compute}"
    ]


def _match(text: str, devices: Sequence[Identity]) -> Named | None:
    """What `text` names: an index, or the beginning of exactly one UUID."""
    found = _candidates(text, devices)
    return found[0] if len(found) == 1 else None


def visible(devices: Sequence[Identity], environ: Mapping[str, str]) -> list[Named]:
    """What CUDA_VISIBLE_DEVICES leaves by CUDA's rule: entries in order, up to the first invalid one; unset means all.

    Numbers are taken in the order of the PCI bus, which is CUDA's if all devices are of one kind or
    CUDA_DEVICE_ORDER=PCI_BUS_ID: NVML does not tell CUDA's other order (fastest first).
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return [Named(device.number) for device in devices]
    chosen = []
    for entry in text.split(","):
        named = _match(entry.strip(), devices)
        if named is None:
            break
        chosen.append(named)
    return chosen


def select(ids: Sequence[str] | None, devices: Sequence[Identity], environ: Mapping[str, str]) -> list[int]:
    """NVML indices to sample, ascending. None chooses all; ids that name no device are ignored."""
    if ids is None:
        return [device.number for device in devices]
    if VISIBLE in ids:
        chosen = visible(devices, environ)
    else:
        chosen = [named for text in ids if (named := _match(text.strip(), devices)) is not None]
    return sorted({named.number for named in chosen})
