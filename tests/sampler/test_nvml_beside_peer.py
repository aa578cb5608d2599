"""The real peer and we, on one NVML: what both tell is equal, and what only one of us tells is named."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from runferry.logformat import load
from runferry.sampler import Sampler, SamplerSettings, hardware
from support import nvml, peer

REASON = peer.missing() or nvml.missing()
pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(REASON), reason=REASON)]

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
SCRIPT = """
import os, pathlib, time
table = pathlib.Path(os.environ["NVML_SHIM_TABLE"])
table.write_text(table.read_text().replace("PID", str(os.getpid())))
import wandb
run = wandb.init(project="gpus", settings=wandb.Settings(x_stats_sampling_interval=0.2))
time.sleep(1.5)
run.finish()
"""
OURS_ALONE = (
    r"gpu\.\d\.(graphicsClock|encoderUtilization|unCorrectedMemoryErrors)",  # listed; the peer has stopped writing them
    r"gpu\.2\.mig\..*",  # the peer knows nothing of MIG:
    r"gpu\.process\.2\..*",  # a process on an instance is on no device to it
    r"gpu\.(process\.)?3\.memoryAllocated(Bytes)?",  # it knows only version 2 of the call for memory
)
PASSING = "1 utilization 4 4 999 0"  # an unknown error of one call
TICKS = 9  # of ours: every fourth has the slow values, and two boards of four take turns at PCIe


def several_boards():
    """Two H100, a partitioned A100 and a consumer board; the monitored process is on 0, on an instance of 2 and on 3."""
    data, *others = (
        json.loads((FIXTURES / f"nvml-{name}.json").read_text()) for name in ("h100x2", "a100-mig", "rtx4090")
    )
    for other in others:
        data["devices"] += other["devices"]
    for index, device in enumerate(data["devices"]):
        device |= {"power_mw": 600_000 + index, "energy_mj": 10**12 + 3 * index, "minor": index}
    return data


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The samples of both, and both records of the hardware."""
    folder = tmp_path_factory.mktemp("gpus")
    data, library, table = several_boards(), nvml.build(tmp_path_factory.mktemp("nvml")), folder / "table"
    variables = {"LD_LIBRARY_PATH": str(library), "NVML_SHIM_TABLE": str(table)}
    table.write_text(nvml.table(data, [PASSING], pids={4242: "PID"}))
    environ = peer.environment(folder, **variables)
    subprocess.run([peer.PYTHON, "-c", SCRIPT], cwd=folder, env=environ, check=True, timeout=60, capture_output=True)
    theirs = load(peer.PeerRun(folder, 0, "", "").log)
    table.write_text(nvml.table(data, [PASSING]))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        samples, ours = sampled_by_us(folder / "root")
    return SimpleNamespace(theirs=theirs.samples, ours=samples, their_record=theirs.environment, our_record=ours)


def sampled_by_us(root):
    """The samples of a sampler with its real helper, and the record of the hardware, on a machine with a driver."""
    (root / "dev").mkdir(parents=True)
    (root / "dev" / "nvidiactl").touch()
    settings = SamplerSettings(pid=4242, interval=0.2, probes=("nvidia",))
    samples, enough = [], threading.Event()

    def keep(sample):
        samples.append(sample)
        if len(samples) >= TICKS:
            enough.set()

    sampler = Sampler(settings, keep, root=str(root))
    sampler.start()
    assert enough.wait(30)
    sampler.stop()
    return samples, hardware(settings, root=str(root), devices_within=20.0)


def gathered(samples):
    """Key -> its value, which is the same in all samples because the table's are."""
    values = {}
    for sample in samples:
        told = {key: value for key, value in dict(sample.values).items() if key.startswith("gpu.")}
        assert {key: values.get(key, value) for key, value in told.items()} == told
        values |= told
    return values


def test_every_value_is_the_same(told):
    """Each key that the peer writes is ours, with the same value (but for the last bits) and JSON type."""
    theirs, ours = gathered(told.theirs), gathered(told.ours)
    assert len(theirs) > 80
    both = {key: ours.get(key) for key in theirs}
    assert both == pytest.approx(theirs, rel=1e-12)
    assert {key: type(value) for key, value in both.items()} == {key: type(value) for key, value in theirs.items()}
    alone = [key for key in ours if key not in theirs]
    assert [key for key in alone if not any(re.fullmatch(form, key) for form in OURS_ALONE)] == []


def test_a_passing_error_ends_a_metric_in_the_peer_only(told):
    """One unknown error on purpose makes no difference to us after its tick; the peer never asks again."""
    theirs, ours = (
        ["gpu.1.gpu" in sample.values for sample in samples if "gpu.1.temp" in sample.values]
        for samples in (told.theirs, told.ours)
    )
    assert theirs == sorted(theirs, reverse=True)
    assert (theirs[0], theirs[-1]) == (True, False)
    assert ours.count(False) == 1
    assert ours[-1]


def test_the_record_of_the_hardware_is_the_same(told):
    """Of every board both say the same, in the same order; so they do of the number, the first name and CUDA."""
    theirs, ours = told.their_record, told.our_record
    boards = [
        {field.name: value for field, value in board.ListFields() if field.name != "numa_node"}
        for board in theirs.gpu_nvidia
    ]
    boards[3]["memory_total"] = 25757220864  # not known to the peer: see OURS_ALONE
    assert ours["gpu_nvidia"] == boards
    assert (ours["gpu_count"], ours["gpu_type"]) == (theirs.gpu_count, theirs.gpu_type)
    assert ours["cuda_version"] == theirs.cuda_version
