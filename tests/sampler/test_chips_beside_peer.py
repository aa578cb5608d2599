"""The real peer and we, on one neuron-monitor and one TPU runtime: what both tell is equal, where names differ is named."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runferry.logformat import load
from runferry.sampler.context import Context
from runferry.sampler.probes.neuron_report import read_hardware
from runferry.sampler.probes.tpu import PORT, TpuProbe
from runferry.sampler.probes.trainium import TrainiumProbe
from runferry.sampler.settings import SamplerSettings
from support import peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
FAKES = Path(__file__).parent / "fake"
BUSES = "/sys/bus/pci/devices"

SCRIPT = """
import os, time, wandb
os.environ["STUB_PID"] = str(os.getpid())
run = wandb.init(project="p", settings=wandb.Settings(x_stats_sampling_interval=0.5))
time.sleep(2.5)
run.finish()
"""

RENAMED = {
    "tpu.bufferTransferLatency.item_0.": "tpu.bufferTransferLatency.8mb_plus.",  # it does not read labels in a list
    "tpu.hloQueueSize.item_0": "tpu.hloQueueSize.tensorcore_0",
    "tpu.grpcTcpMinRtt.item_0.": "tpu.grpcTcpMinRtt.",  # it numbers what has no label
}
"""The peer's keys that have another name with us: beginnings of both."""


def labelled(label, measure):
    return {"attribute": {"key": "label", "value": {"stringAttr": label}}} | measure


def histogram(counts, mean, **options):
    return {
        "distribution": {"count": sum(counts), "mean": mean, "bucketOptions": options, "bucketCounts": counts},
    }


EXPLICIT = {"explicitBuckets": {"bounds": [5.0, 50.0, 500.0]}}
LINEAR = {"linearBuckets": {"numFiniteBuckets": 4, "width": 25.0, "offset": 10.0}}
QUANTILES = [{"quantile": 0.5, "value": 3.5}, {"quantile": 0.99, "value": 9.0}]
MORE = {
    "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution": {
        "metrics": [
            labelled("8MB+-ALL_REDUCE", histogram([3, 9, 20, 1], 61.5, **EXPLICIT)),
            labelled("4MB+", histogram([0, 0, 0, 7], 900.0, **EXPLICIT)),
        ]
    },
    "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution": {
        "metrics": [labelled("2MB 50%", histogram([1, 2, 3, 4, 5, 6], 44.0, **LINEAR))]
    },
    "megascale.mxla_compute_latencies.microsecond.cumulative.distribution": {
        "metrics": [labelled("x", {"summary": {"sampleCount": 8, "sampleSum": 30.0, "quantile": QUANTILES}})]
    },
    "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution": {
        "metrics": [histogram([0, 4, 4], 27.5, **EXPLICIT)]
    },
}
"""Besides what is recorded."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A PCI bus with one v5e, and a neuron-monitor whose runtime has the pid in STUB_PID."""
    folder = tmp_path_factory.mktemp("chips")
    for path, text in json.loads((FIXTURES / "tpu-pci-sysfs.json").read_text()).items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    program = folder / "bin" / "neuron-monitor"
    program.parent.mkdir()
    line = f'head -1 {FIXTURES / "neuron-monitor-trn1.jsonl"} | sed "s/4242/$STUB_PID/g"'
    program.write_text(f"#!/bin/sh\nwhile :; do {line}; sleep 0.2; done\n")
    program.chmod(0o755)
    return folder


def load_fake(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("grpc")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"port {PORT} is taken")
    module = load_fake(FAKES / "tpu_service.py")
    served = module.Service(json.loads((FIXTURES / "tpu-grpc-responses.json").read_text()) | MORE, PORT)
    yield served
    served.stop()


def sampled_by_peer(folder, work, **variables):
    """The state of a run that the peer sampled, on a PCI bus laid over the real one."""
    over = f"mount --bind {shlex.quote(f'{folder}{BUSES}')} {BUSES}"
    private = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*private, over], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces for users here: the peer cannot be shown another PCI bus")
    work.mkdir()
    environ = peer.environment(work, WANDB_X_DISABLE_META="false", WANDB_CONSOLE="off", **variables)
    command = [*private, f'{over} && exec "$0" -c "$1"', str(peer.PYTHON), SCRIPT]
    subprocess.run(command, cwd=work, env=environ, check=True, timeout=peer.TIMEOUT_S, capture_output=True)
    return load(peer.PeerRun(work, 0, "", "").log)


@pytest.fixture(scope="module")
def theirs(folder, server, begun_by_sdk):
    """With neuron-monitor and the runtime's server, while the other run goes on."""
    return sampled_by_peer(folder, folder / "served", PATH=f"{folder / 'bin'}:{os.environ['PATH']}", STUB_PID="0")


@pytest.fixture(scope="module")
def answers():
    """What the SDK says: all that is recorded of it."""
    recorded = [json.loads((FIXTURES / f"tpu-sdk-{name}.json").read_text()) for name in ("v5e", "multislice")]
    return recorded[0]["metrics"] | recorded[1]["metrics"]


@pytest.fixture(scope="module")
def begun_by_sdk(folder, answers):
    """A run that the peer samples with libtpu, in the background; None without a compiler."""
    if shutil.which("cc") is None:
        yield None
        return
    library, table = folder / "libtpu.so", folder / "table"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, FAKES / "libtpu_shim.c"], check=True)
    lines = (chr(9).join([name, metric["description"], *metric["data"]]) for name, metric in answers.items())
    table.write_text("".join(f"{line}\n" for line in lines))
    paths = {"WANDB_LIBTPU_PATH": str(library), "LIBTPU_SHIM_TABLE": str(table)}
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(sampled_by_peer, folder, folder / "by-sdk", **paths)


@pytest.fixture(scope="module")
def theirs_by_sdk(begun_by_sdk):
    """What it sampled."""
    if begun_by_sdk is None:
        pytest.skip("no C compiler")
    return begun_by_sdk.result()


def newest(state, prefix):
    """The last values of the keys with a prefix that the peer wrote."""
    values = {}
    for sample in state.samples:
        values |= {key: value for key, value in sample.values.items() if key.startswith(prefix)}
    return values


def one_sample(probe, ctx, within=10.0):
    """Our values, as soon as there are any."""
    probe.open(ctx)
    deadline = time.monotonic() + within
    values = {}
    try:
        while not values and time.monotonic() < deadline:
            ctx.begin(time.monotonic())
            probe.sample(ctx, values)
            time.sleep(0.02)
    finally:
        probe.close()
    return values


def test_tpu(theirs, folder):
    """Each value that the peer reads from the runtime's server, under the same key but for the labels it cannot read."""
    expected = {}
    for key, value in newest(theirs, "tpu.").items():
        begin = next((begin for begin in RENAMED if key.startswith(begin)), "")
        expected[RENAMED.get(begin, "") + key.removeprefix(begin)] = value
    values = one_sample(TpuProbe(False), Context(SamplerSettings(), root=str(folder)))
    assert len(values) > 30
    assert values == pytest.approx(expected, rel=1e-12)


def test_tpu_by_sdk(theirs_by_sdk, folder, answers):
    """Each value that the peer reads from libtpu; it understands no score of a link that has a name, we do."""
    expected = newest(theirs_by_sdk, "tpu.")
    monitoring = load_fake(FAKES / "tpu" / "libtpu" / "sdk" / "tpumonitoring.py").Monitoring(
        {"supported": [], "metrics": answers}
    )
    ours = one_sample(TpuProbe(monitoring, False), Context(SamplerSettings(), root=str(folder)))
    assert len(expected) > 60
    assert {key: value for key, value in ours.items() if "iciLinkHealth" not in key} == pytest.approx(
        expected, rel=1e-12
    )


def test_trainium(theirs, folder, monkeypatch):
    """Each value that the peer reads from neuron-monitor; besides, we have the documented spelling of the breakdown."""
    monkeypatch.setenv("STUB_PID", "4242")
    ctx = Context(SamplerSettings(pid=4242, interval=1.0, seed_aliases=False), root=str(folder))
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    values = one_sample(TrainiumProbe(environ), ctx)
    assert len(values) == 18
    assert values == newest(theirs, "trn.")


def test_records_of_the_hardware(theirs, folder):
    """The peer's record of the hardware says of both chips what our metadata say."""
    tpu, trainium = theirs.environment.tpu, theirs.environment.trainium
    probe = TpuProbe(False)
    probe.open(Context(SamplerSettings(), root=str(folder)))
    assert probe.metadata()["tpu"] == {field.name: value for field, value in tpu.ListFields()}
    line = json.loads((FIXTURES / "neuron-monitor-trn1.jsonl").read_text().splitlines()[0])
    assert read_hardware(line) | {"name": "Trainium", "vendor": "AWS"} == {
        field.name: value for field, value in trainium.ListFields()
    }
