"""Which NVIDIA devices are sampled, and which of them a process can see."""

from __future__ import annotations

import pytest
from runferry.sampler.probes.nvml_select import Identity, Instance, Named, select, unknown, visible

MIGS = (Instance("MIG-c1", 2, 0), Instance("MIG-c2", 7, 0))
DEVICES = (Identity(0, "GPU-aa11"), Identity(1, "GPU-ab22", MIGS), Identity(2, "GPU-dd33"))


@pytest.mark.parametrize(
    ("ids", "cuda", "chosen"),
    [
        (("9" * 5000, "1"), None, [1]),
        (None, "0", [0, 1, 2]),
        (("2", "0", "9"), None, [0, 2]),
        (("GPU-ab",), None, [1]),
        (("GPU-a",), None, []),  # names two
        (("visible",), None, [0, 1, 2]),
        (("visible",), "2,1", [1, 2]),
        (("visible",), "1,-1,2", [1]),  # CUDA stops at the first invalid entry
        (("visible",), "NoDevFiles", []),
        (("visible",), "", []),
        (("visible",), "MIG-c2", [1]),
        (("MIG-c1", "0"), None, [0, 1]),
    ],
)
def test_selection(ids, cuda, chosen):
    """Indices, UUIDs or their beginnings, and CUDA's own rule for CUDA_VISIBLE_DEVICES; keys keep the NVML index."""
    assert select(ids, DEVICES, {} if cuda is None else {"CUDA_VISIBLE_DEVICES": cuda}) == chosen


@pytest.mark.parametrize(
    ("cuda", "seen"),
    [
        ("2,0", [Named(2), Named(0)]),
        ("GPU-dd, GPU-aa", [Named(2), Named(0)]),
        ("2,GPU-aa", [Named(2)]),  # one kind only
        ("GPU-aa,2", [Named(0)]),
        ("MIG-c1,GPU-aa", [Named(1, "MIG-c1")]),
        ("1,0,1", []),  # named twice: CUDA takes none
        ("GPU-aa,GPU-aa11", []),
        ("1,-1,1", [Named(1)]),  # what is behind an invalid entry does not count
        ("1x, 0", [Named(1), Named(0)]),  # read as C does
        ("9" * 5000, []),
        ("-1", []),
        (",0", []),
        ("MIG-c2", [Named(1, "MIG-c2")]),
        ("MIG-c", []),  # names two
        ("MIG-GPU-ab22/7/0", [Named(1, "MIG-c2")]),  # as drivers before R470 spelt it
        ("GPU-zz,0", []),
    ],
)
def test_visible_devices_keep_their_order(cuda, seen):
    """The process's own order is kept, and a MIG device is told from the device that it is a part of."""
    assert visible(DEVICES, {"CUDA_VISIBLE_DEVICES": cuda}) == seen


def test_ids_that_name_nothing_are_told(gpus):
    """What was asked for and is not here is told to the user; the others are sampled."""
    probe = gpus("nvml-h100x2.json", gpu_device_ids=("1", "GPU-zz", "GPU-"))
    assert {key[:6] for key in probe.next()} == {"gpu.1."}
    assert [notice.split()[1] for notice in probe.probe.notices] == ["'GPU-zz'", "'GPU-'"]
    probe = gpus("nvml-h100x2.json", gpu_device_ids=("visible",))
    probe.next()
    assert list(probe.probe.notices) == []


def test_beside_another_vendor_only_what_cannot_be_its_own_is_told():
    """Numbers behind NVIDIA's are AMD's, whose unique ids look like UUIDs, too."""
    ids = ("0", "7", "GPU-no", "MIG-no", "visible")
    assert unknown(ids, DEVICES) == ["7", "GPU-no", "MIG-no"]
    assert unknown(ids, DEVICES, alone=False) == ["MIG-no"]
