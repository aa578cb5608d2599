"""Which of the machine's NVIDIA devices to sample, and which of them the monitored process can see."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..tables import whole

VISIBLE = "visible"  # in place of ids: what CUDA_VISIBLE_DEVICES leaves
_LEADING_NUMBER = re.compile(r"[0-9]+")  # CUDA reads "1x" as 1


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
    number = whole(text)
    if number is not None:
        return [Named(device.number) for device in devices if device.number == number]
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
    """What CUDA_VISIBLE_DEVICES leaves by CUDA's rule; unset means all.

    Entries in order, up to the first that is invalid or of another kind (number, GPU, MIG device) than the first one;
    nothing at all if one of these is named twice.
    Numbers are taken in the order of the PCI bus, which is CUDA's if all devices are of one kind or
    CUDA_DEVICE_ORDER=PCI_BUS_ID: NVML does not tell CUDA's other order (fastest first).
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return [Named(device.number) for device in devices]
    chosen: list[Named] = []
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        number = _LEADING_NUMBER.match(entry)
        named = _match(number[0] if number else entry, devices)
        if named is None or _kind(entry) != _kind(entries[0]):
            break
        if named in chosen:
            return []
        chosen.append(named)
    return chosen


def _kind(entry: str) -> str:
    return entry[:4] if entry[:4] in {"GPU-", "MIG-"} else ""


def select(ids: Sequence[str] | None, devices: Sequence[Identity], environ: Mapping[str, str]) -> list[int]:
    """NVML indices to sample, ascending. None chooses all; ids that name no device are ignored (see `unknown`)."""
    if ids is None:
        return [device.number for device in devices]
    if VISIBLE in ids:
        chosen = visible(devices, environ)
    else:
        chosen = [named for text in ids if (named := _match(text.strip(), devices)) is not None]
    return sorted({named.number for named in chosen})


def unknown(ids: Sequence[str] | None, devices: Sequence[Identity], *, alone: bool = True) -> list[str]:
    """Those of `ids` that name no device, or the beginning of several; MIG devices only, unless NVIDIA is `alone` here."""
    ours = [text for text in ids or () if alone or text.startswith("MIG-")]
    return [text for text in ours if text != VISIBLE and _match(text.strip(), devices) is None]


def not_named(text: str) -> str:
    """What the user is told of an id that names nothing."""
    return f"gpu_device_ids: {text!r} names no device, or several"
