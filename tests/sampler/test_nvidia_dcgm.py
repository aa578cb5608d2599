"""Profiling counters from DCGM's daemon, through a small C library in place of DCGM's, and beside the peer on it."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
from runferry.logformat import load
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.nvidia_dcgm import FIELDS, SONAMES, DcgmDaemonProbe
from runferry.sampler.probes.nvidia_dcgm_library import DcgmError
from support import nvml, peer

SOURCE = nvml.SOURCE.with_name("dcgm_shim.c")
pytestmark = pytest.mark.skipif(bool(nvml.missing()), reason=nvml.missing())


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The folder of both compiled libraries."""
    folder = nvml.build(tmp_path_factory.mktemp("dcgm"))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", folder / SONAMES[0], SOURCE], check=True)
    return folder


@pytest.fixture
def daemon(shim, monkeypatch, machine, from_helper):
    """The probe's values from a helper, on a machine with a daemon."""

    def ask(wrong="", **settings):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(shim))
        monkeypatch.setenv("DCGM_SHIM", wrong)
        return from_helper(DcgmDaemonProbe(), Context(SamplerSettings(**settings), root=str(machine.root)))[1]

    return ask


def test_every_field_has_its_key_and_unit(daemon):
    """Ratios become per cent, bytes stay; devices are NVML's; blank values and failed ones are left out."""
    values = daemon()
    for field, key in FIELDS.items():
        raw = (field - 1000) / 64
        expected = 1_000_000 * (field - 1000) + 1 if key.endswith("Bytes") else 100 * raw
        assert values[f"gpu.1.{key}"] == expected  # the daemon's device 0
    assert "gpu.0.pipeFp64Active" not in values
    assert values["gpu.0.smActive"] == 100 * 2 / 64
    assert not [key for key in values if key.startswith("gpu.2.")]


@pytest.mark.parametrize(("ids", "devices"), [("0", {"gpu.0"}), ("GPU-b", {"gpu.1"}), ("7", set())])
def test_chosen_devices(daemon, ids, devices):
    """Devices are chosen by NVML's index or UUID, as for NVML."""
    assert {key.rpartition(".")[0] for key in daemon(gpu_device_ids=(ids,))} == devices


@pytest.mark.parametrize(("wrong", "reason"), [("down", "is nv-hostengine running"), ("none", "MetricGroups failed")])
def test_daemon_that_is_not_there(shim, machine, monkeypatch, wrong, reason):
    """Who asked for it is told why it is missing, once."""
    monkeypatch.setenv("DCGM_SHIM", wrong)
    probe = DcgmDaemonProbe(lambda name: ctypes.CDLL(str(shim / name)))
    with pytest.raises(ProbeUnavailableError, match=reason) as caught:
        probe.open(machine.context())
    assert caught.value.loud


def test_daemon_that_is_started_again(shim, machine, monkeypatch, sampled):
    """While it is away that is the probe's error; when it is back it is connected to and told anew what to measure."""
    monkeypatch.setenv("DCGM_SHIM", "restart")
    probe = sampled(DcgmDaemonProbe(lambda name: ctypes.CDLL(str(shim / name))), machine.context(dcgm_profiling=True))
    first = probe.next()
    assert "gpu.0.smActive" in first
    for _ in range(2):  # it has gone; it is not there yet
        with pytest.raises(DcgmError, match="status -21"):
            probe.next()
    assert probe.next() == first


def test_device_of_unknown_number(daemon):
    """Without NVML's number of a device nothing is told of it: the daemon's may be another device's."""
    whole, told = daemon(), daemon("nameless")
    assert told == {key: value for key, value in whole.items() if not key.startswith("gpu.1.")}
    assert told["gpu.0.pcieTxBytes"] == whole["gpu.0.pcieTxBytes"]


def test_library_that_is_not_there(machine):
    """No DCGM is no failure of ours, but worth a word to who asked for it."""

    def load(name):
        raise OSError(name)

    with pytest.raises(ProbeUnavailableError, match=r"libdcgm\.so\.4") as caught:
        DcgmDaemonProbe(load).open(machine.context())
    assert caught.value.loud


def test_only_on_request(machine, monkeypatch):
    """By the setting, which is all that counts here: the peer's variable is one of its names for a run."""
    probe = DcgmDaemonProbe()
    monkeypatch.setenv("WANDB_ENABLE_DCGM_PROFILING", "true")
    machine.write({"/dev/nvidiactl": ""})
    assert probe.discover(machine.context()) == "only with the setting dcgm_profiling"
    assert probe.discover(machine.context(dcgm_profiling=True)) is None
    (machine.root / "dev" / "nvidiactl").unlink()
    assert "no NVIDIA driver" in probe.discover(machine.context(dcgm_profiling=True))


SCRIPT = """
import time, wandb
run = wandb.init(project="gpus", settings=wandb.Settings(x_stats_sampling_interval=0.2))
time.sleep(1.5)
run.finish()
"""


@pytest.mark.peer
@pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())
def test_beside_the_peer(shim, daemon, tmp_path, fixture_json):
    """On one daemon the peer tells the same shares of each device as we do. The differences:

    It takes the daemon's number of a device for NVML's; it writes blank values as numbers (2^47 * 100); and it reads
    ratios only, so that traffic, which DCGM tells in integers, is missing.
    """
    table = tmp_path / "table"
    data = fixture_json("nvml-a100-mig.json")  # without counters of NVML's own
    table.write_text(nvml.table(data))
    environ = peer.environment(
        tmp_path, LD_LIBRARY_PATH=str(shim), NVML_SHIM_TABLE=str(table), WANDB_ENABLE_DCGM_PROFILING="true"
    )
    subprocess.run([peer.PYTHON, "-c", SCRIPT], cwd=tmp_path, env=environ, check=True, timeout=60, capture_output=True)
    theirs = {}
    for sample in load(peer.PeerRun(tmp_path, 0, "", "").log).samples:
        theirs |= sample.values
    shares = [key for key in FIELDS.values() if not key.endswith("Bytes")]
    theirs = {key: value for key, value in theirs.items() if key.rpartition(".")[2] in shares}
    blank = {key for key, value in theirs.items() if value > 1e15}
    assert blank == {f"gpu.2.{share}" for share in shares}
    renumbered = {f"gpu.{1 - int(key[4])}{key[5:]}": value for key, value in theirs.items() if key not in blank}
    ours = {key: value for key, value in daemon().items() if not key.endswith("Bytes")}
    assert ours == pytest.approx(renumbered, rel=1e-12)
