"""Google TPUs: libtpu's SDK and the runtime's server, both faked from recorded shapes, and the PCI bus as files."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.tpu import RuntimeServerError, TpuProbe
from runferry.sampler.probes.tpu_chips import CHIPS, find_chips
from runferry.sampler.probes.tpu_families import FAMILIES, Shape, label_of
from runferry.sampler.probes.tpu_points import percentile, read_points
from runferry.sampler.probes.tpu_sdk import read_texts, split, stat_names
from runferry.sampler.probes.tpu_wire import Histogram, Point, Summary, encode_request, read_response

FAKES = Path(__file__).parent / "fake"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
BY_KEY = {family.key: family for family in FAMILIES}


def load_fake(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


service = load_fake(FAKES / "tpu_service.py")
monitoring = load_fake(FAKES / "tpu" / "libtpu" / "sdk" / "tpumonitoring.py")


@pytest.fixture
def tpus(machine, sampled, fixture_json):
    """Open the probe on answers of the SDK (False: none), and a port of the runtime's server."""
    machine.load("tpu-pci-sysfs.json")

    def start(answers=False, *, port=None):
        if isinstance(answers, str):
            answers = monitoring.Monitoring(fixture_json(answers))
        return sampled(TpuProbe(answers, False if port is None else None, port or 0), machine.context())

    return start


@pytest.fixture
def serve(fixture_json):
    """Serve the recorded answers, with changes."""
    pytest.importorskip("grpc")
    services = []

    def start(**changes):
        services.append(service.Service(fixture_json("tpu-grpc-responses.json") | changes))
        return services[-1]

    yield start
    for each in services:
        each.stop()


def of(values, prefix):
    """The values below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def points_of(metric):
    return read_response(service.encode(metric))


# --- the chips


def test_pci_bus(machine):
    """A v5e among other vendors' devices."""
    machine.load("tpu-pci-sysfs.json")
    chip, count = find_chips(machine.context())
    assert (chip.name, chip.hbm_gib, chip.devices_per_chip, count) == ("v5e", 16, 1, 1)


@pytest.mark.parametrize(("ids", "chip"), CHIPS.items())
def test_kinds_of_chips(machine, ids, chip):
    """Each kind by its PCI ids; the subsystem tells v2 from v3, and does not matter for the others."""
    for slot in range(4):
        folder = f"/sys/bus/pci/devices/0000:00:{slot:02}.0"
        machine.write({f"{folder}/vendor": "0x1ae0\n", f"{folder}/device": f"{ids[0]}\n"})
        machine.write({f"{folder}/subsystem_device": f"{ids[1] or '0x0099'}\n"})
    assert find_chips(machine.context()) == (chip, 4)


def test_kinds_of_google_s_documentation():
    """Memory in GiB, devices (cores that programs see) per chip, and for how many the runtime gives one duty cycle."""
    assert {chip.name: chip[1:] for chip in CHIPS.values()} == {
        "v2": (8, 2, 2),
        "v3": (16, 2, 2),
        "v4": (32, 1, 1),
        "v5e": (16, 1, 1),
        "v5p": (95, 1, 1),
        "v6e": (32, 1, 1),
        "7x": (192, 2, 1),
    }


def test_the_commonest_kind(machine):
    """A host has one kind; were there two, the record tells of the one there are more of."""
    for slot, device in enumerate(["0x0063", "0x0062", "0x0062"]):
        folder = f"/sys/bus/pci/devices/{slot}"
        machine.write({f"{folder}/vendor": "0x1ae0\n", f"{folder}/device": f"{device}\n"})
    assert find_chips(machine.context())[0].name == "v5p"


def test_no_tpu_nothing_is_loaded(machine):
    """Without a chip, or with one of Google's that is no TPU, the probe is out before any library is looked at."""
    assert "no TPU" in TpuProbe().discover(machine.context())
    machine.write({"/sys/bus/pci/devices/0/vendor": "0x1ae0\n", "/sys/bus/pci/devices/0/device": "0x0042\n"})
    assert "no TPU" in TpuProbe().discover(machine.context())
    with pytest.raises(ProbeUnavailableError, match="no TPU"):
        TpuProbe().open(machine.context())


def test_metadata(tpus):
    """The hardware record names the chip."""
    expected = {"tpu": {"name": "v5e", "hbm_gib": 16, "devices_per_chip": 1, "count": 1}}
    assert tpus("tpu-sdk-v5e.json").probe.metadata() == expected


def without_h2(monkeypatch):
    for module in ("tpu_runtime", "tpu_grpc"):
        monkeypatch.delitem(sys.modules, f"runferry.sampler.probes.{module}", raising=False)
        monkeypatch.delattr(f"runferry.sampler.probes.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "h2.config", None)


def test_nothing_to_ask_with(machine, monkeypatch):
    """A TPU without libtpu and h2 is worth a warning that says what to install."""
    machine.load("tpu-pci-sysfs.json")
    without_h2(monkeypatch)
    with pytest.raises(ProbeUnavailableError, match=r"libtpu .* runferry\[tpu\]") as caught:
        TpuProbe().open(machine.context())
    assert caught.value.loud


def test_libtpu_without_h2(machine, monkeypatch, sampled, fixture_json):
    """What the SDK tells is there, and the user is told once why the rest is not; with h2 there is nothing to tell."""
    machine.load("tpu-pci-sysfs.json")
    library = monitoring.Monitoring(fixture_json("tpu-sdk-v5e.json"))
    assert sampled(TpuProbe(library), machine.context()).probe.notices == ()
    without_h2(monkeypatch)
    found = sampled(TpuProbe(library), machine.context())
    (notice,) = found.probe.notices
    assert "runferry[tpu]" in notice
    assert found.next()["tpu.0.dutyCycle"] is not None


@pytest.mark.parametrize("failure", ["raise RuntimeError('broken')", "raise ImportError('none')", "x = 1 / 0"])
def test_libtpu_that_fails_at_its_import(machine, monkeypatch, tmp_path, sampled, serve, failure):
    """Whatever its import raises, the runtime's server is asked all the same."""
    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu" / "__init__.py").write_text(failure)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    machine.load("tpu-pci-sysfs.json")
    probe = sampled(TpuProbe(port=serve().port), machine.context())
    assert probe.next()["tpu.0.dutyCycle"] == 100.0
    assert probe.probe.notices == ()
    assert "libtpu" not in sys.modules


# --- the SDK


def test_v5e(tpus):
    """Values by device, links and cores by name; a name without values gives way to the next; memory in percent."""
    values = tpus("tpu-sdk-v5e.json").next()
    assert of(values, "tpu.2.") == {
        "tensorcoreUtilization": 14.36,
        "dutyCycle": 99.5,
        "hbmCapacityTotal": 16909336576,
        "hbmCapacityUsage": 9126805504,
        "hbmMemoryUsage": pytest.approx(53.975, abs=0.001),
        "throttleScore": 1,
    }
    assert of(values, "tpu.hloQueueSize.") == {"tensorcore_0": 1, "tensorcore_1": 2}
    assert values["tpu.hloExecTiming.tensorcore_1.p999Us"] == 1204
    assert of(values, "tpu.iciLinkHealth.") == {"tray1_chip3_ici0_int": 0, "tray1_chip3_ici1_int": 6}
    assert values["tpu.3.iciLinkHealth"] == 6


def test_multislice(tpus, fixture_json):
    """Statistics by label; which ones they are stands in the description."""
    answers = fixture_json("tpu-sdk-multislice.json")
    answers["supported"] = []  # a version that does not say what it has
    values = tpus(monitoring.Monitoring(answers)).next()
    assert of(values, "tpu.bufferTransferLatency.8mb_plus.") == {
        "meanUs": 2233.25,
        "p50Us": 2182.02,
        "p90Us": 3761.19,
        "p99Us": 4433.5,
        "p999Us": 5210.75,
    }
    assert values["tpu.inboundBufferTransferLatency.8mb_plus.p95Us"] == 3965.2
    assert values["tpu.hostToDeviceTransferLatency.8mb_plus.meanUs"] == 810.5
    assert values["tpu.deviceToHostTransferLatency.8mb_plus.p90Us"] == 1111
    assert values["tpu.hostComputeLatency.8mb_plus.p50Us"] == 990
    assert of(values, "tpu.collectiveE2ELatency.8mb_plus_all_reduce.")["p999Us"] == 5000
    assert of(values, "tpu.collectiveE2ELatency.4mb_plus_all_gather.")["meanUs"] == 500


def test_flat_statistics(tpus, fixture_json):
    """One text per statistic or one for all, and no label in the key."""
    values = tpus(monitoring.Monitoring({"supported": [], **fixture_json("tpu-sdk-multislice.json")})).next()
    assert of(values, "tpu.grpcTcpMinRtt.") == {
        "meanUs": 27.63,
        "p50Us": 29.03,
        "p90Us": 38.52,
        "p95Us": 40.41,
        "p999Us": 42.3,
    }
    assert of(values, "tpu.grpcTcpDeliveryRate.")["p999Mbps"] == 40110


def test_a_metric_that_fails_costs_itself(tpus, fixture_json):
    """An SDK that raises for one metric, and for the list of them, keeps all others."""
    answers = fixture_json("tpu-sdk-v5e.json")
    del answers["supported"], answers["metrics"]["duty_cycle_pct"]["data"]
    values = tpus(monitoring.Monitoring(answers)).next()
    assert "tpu.0.dutyCycle" not in values
    assert values["tpu.0.tensorcoreUtilization"] == 13.6


def test_two_devices_per_duty_cycle(machine, sampled, fixture_json):
    """On v2 and v3 the runtime gives one duty cycle per chip of two devices; all else is per device."""
    folder = "/sys/bus/pci/devices/0"
    machine.write({f"{folder}/vendor": "0x1ae0", f"{folder}/device": "0x0027", f"{folder}/subsystem_device": "0x004f"})
    probe = TpuProbe(monitoring.Monitoring(fixture_json("tpu-sdk-v5e.json")), False)
    values = sampled(probe, machine.context()).next()
    assert [values[f"tpu.{device}.dutyCycle"] for device in range(8)] == [100, 100, 100, 100, 99.5, 99.5, 100, 100]
    assert "tpu.4.hbmCapacityUsage" not in values


def test_names_in_order(tpus):
    """A family has the values of the first of its names that has any; a name that is not known is not asked for."""

    class Sdk(monitoring.Monitoring):
        asked: list = []  # noqa: RUF012 - of this test alone

        def get_metric(self, name):
            self.asked.append(name)
            return super().get_metric(name)

    metrics = {
        "tensorcore_util": {"data": [], "description": ""},
        "tensorcore_utilization": {"data": ["7"], "description": ""},
        "tcp_min_rtt": {"data": ["1, 2, 3, 4"], "description": ""},
        "grpc_tcp_min_rtt": {"data": ["5, 6, 7, 8"], "description": ""},
        "duty_cycle_pct": {"data": ["9"], "description": ""},
        "hbm_capacity_total": {"data": ["0", "8"], "description": ""},
        "hbm_capacity_usage": {"data": ["0", "2"], "description": ""},
    }
    values = tpus(Sdk({"supported": sorted(metrics.keys() - {"duty_cycle_pct"}), "metrics": metrics})).next()
    assert values["tpu.0.tensorcoreUtilization"] == 7
    assert of(values, "tpu.grpcTcpMinRtt.") == {"p50Us": 1, "p90Us": 2, "p95Us": 3, "p999Us": 4}
    assert "duty_cycle_pct" not in Sdk.asked
    assert {key for key in values if key.endswith("hbmMemoryUsage")} == {"tpu.1.hbmMemoryUsage"}  # of nothing, no share
    assert values["tpu.1.hbmMemoryUsage"] == 25.0


def test_the_worst_link_counts_wherever_it_stands():
    """The first of a device's links may be the worst."""
    texts = ["tray1.chip0.ici0.int: 7", "tray1.chip0.ici1.int: 2"]
    assert read_texts(BY_KEY["tpu.{i}.iciLinkHealth"], texts, "", 1)["tpu.0.iciLinkHealth"] == 7


def test_links_of_two_trays():
    """A device number that two trays share stands for neither: each link keeps its own key."""
    texts = ["tray1.chip0.ici0.int: 1", "tray2.chip0.ici0.int: 9", "other: 3", "tray2.chip1.ici0.int: x"]
    assert read_texts(BY_KEY["tpu.{i}.iciLinkHealth"], texts, "", 1) == {
        "tpu.iciLinkHealth.tray1_chip0_ici0_int": 1,
        "tpu.iciLinkHealth.tray2_chip0_ici0_int": 9,
        "tpu.iciLinkHealth.other": 3,
    }
    assert read_texts(BY_KEY["tpu.{i}.iciLinkHealth"], ["0", "10"], "", 1)["tpu.1.iciLinkHealth"] == 10


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("8MB+", "8mb_plus"),
        ("8MB+-ALL_REDUCE", "8mb_plus_all_reduce"),
        ("  GPU+Memory 100% ", "gpu_plus_memory_100pct"),
        ("!!!", "unknown"),
    ],
)
def test_labels(text, label):
    """Labels in keys are lower case, digits and single underscores."""
    assert label_of(text) == label


@pytest.mark.parametrize(
    ("description", "count", "names"),
    [
        ("", 5, ["mean", "p50", "p90", "p95", "p999"]),
        ("Mean, P50, P90, P99, P99.9", 5, ["mean", "p50", "p90", "p99", "p999"]),
        ("mean, p50, p90, p95, p99.9", 5, ["mean", "p50", "p90", "p95", "p999"]),
        ("percentiles up to p95, p99 apart", 5, ["mean", "p50", "p90", "p95", "p999"]),
        ("mean, p50, p90, and p99.9", 5, ["mean", "p50", "p90", "p95", "p999"]),
        ("", 4, ["p50", "p90", "p95", "p999"]),
        ("", 2, ["stat0", "stat1"]),
    ],
)
def test_names_of_statistics(description, count, names):
    """Five have a mean, four have none, and another number says nothing about itself."""
    assert stat_names(description, count) == names


def test_items():
    """Lists may be quoted, bracketed, and empty."""
    assert split("['8MB+', \"1.5\", 2]") == ["8MB+", "1.5", "2"]
    assert split("[]") == []


@given(st.sampled_from(FAMILIES), st.lists(st.text()), st.text())
def test_any_text_of_the_sdk(family, texts, description):
    """Whatever the SDK prints: finite numbers under keys of the family, or nothing."""
    for key, value in read_texts(family, texts, description, 2).items():
        assert key.startswith("tpu.")
        assert float("-inf") < value < float("inf")


# --- the runtime's server


def test_server(tpus, serve):
    """All that the server knows and the SDK does not: device numbers as they are, labels of lists, no label for flat."""
    values = tpus(port=serve().port).next()
    assert of(values, "tpu.0.") == {
        "hbmCapacityTotal": 34088157184,
        "hbmCapacityUsage": 19810000000,
        "hbmMemoryUsage": pytest.approx(58.1, abs=0.1),
        "dutyCycle": 100.0,
    }
    assert values["tpu.1.hbmCapacityUsage"] == 11170000000
    assert values["tpu.hloQueueSize.tensorcore_0"] == 3
    assert of(values, "tpu.bufferTransferLatency.8mb_plus.") == {
        "meanUs": 50.0,
        "p50Us": 100.0,
        "p90Us": 160.0,
        "p95Us": 160.0,
        "p999Us": 160.0,
    }
    assert not of(values, "tpu.grpcTcpMinRtt.")  # a distribution of nothing


def test_server_fills_gaps_only(tpus, serve):
    """The server is not asked for what the SDK has told."""
    server = serve()
    values = tpus("tpu-sdk-v5e.json", port=server.port).next()
    assert values["tpu.0.hbmCapacityTotal"] == 16909336576
    assert values["tpu.bufferTransferLatency.8mb_plus.p50Us"] == 100.0
    assert "tpu.runtime.hbm.memory.total.bytes" not in server.asked
    assert "hlo.queue.size.gauge" not in server.asked


def gauge(device, value):
    return {"attribute": {"key": "device-id", "value": {"intAttr": device}}, "gauge": {"asDouble": value}}


def test_what_only_the_server_tells(tpus, serve):
    """Memory in use as the runtime sees it, and for how long a core has been idle."""
    server = serve(
        **{
            "tpu.runtime.hbm.utilization.percent": {"metrics": [gauge(1, 12.5)]},
            "tpu.runtime.tensorcore.idle_duration.seconds": {"metrics": [gauge(0, 3.25)]},
        }
    )
    values = tpus(port=server.port).next()
    assert values["tpu.1.runtimeHbmUtilization"] == 12.5
    assert values["tpu.0.tensorcoreIdleDuration"] == 3.25


def test_server_that_comes_and_goes(tpus, serve):
    """Before the program starts and after it ends there are no keys and no errors."""
    server = serve()
    probe = tpus(port=server.port)
    assert probe.next()
    server.stop()
    assert probe.next() == {}
    again = serve()
    probe.probe._port = again.port
    assert probe.next()["tpu.0.dutyCycle"] == 100.0


def test_server_that_hangs(tpus, serve, monkeypatch):
    """All requests together have one deadline; what the SDK has told is kept, and the trouble is told."""
    monkeypatch.setattr("runferry.sampler.probes.tpu_runtime.ANSWER_WITHIN", 0.05)
    server = serve()
    server.hang = True
    probe, values = tpus("tpu-sdk-v5e.json", port=server.port), {}
    with pytest.raises(RuntimeServerError, match=rf"port {server.port}: no whole answer in time"):
        probe.probe.sample(probe.ctx, values)
    assert values["tpu.2.hbmMemoryUsage"] == pytest.approx(53.975, abs=0.001)


def test_server_that_refuses(tpus, serve):
    """A no to some metrics is none to the others; to all, with nothing from the SDK either, it is told with its words."""
    server = serve()
    known = ["tpu.runtime.hbm.memory.total.bytes"]
    server.keep(known)
    assert tpus(port=server.port).next() == {
        "tpu.0.hbmCapacityTotal": 34088157184,
        "tpu.1.hbmCapacityTotal": 34088157184,
    }
    server.keep([])
    with pytest.raises(RuntimeServerError, match="gRPC status 5: no metric "):
        tpus(port=server.port).next()
    assert tpus("tpu-sdk-v5e.json", port=server.port).next()["tpu.0.dutyCycle"] == 100.0


def test_server_with_no_answer_of_its_own(tpus, serve):
    """A message that is none costs one metric and names it."""
    server = serve()
    server.answers["hlo.queue.size.gauge"] = b"\xff"
    probe, values = tpus(port=server.port), {}
    with pytest.raises(RuntimeServerError, match=r"hlo\.queue\.size\.gauge: a varint without end"):
        probe.probe.sample(probe.ctx, values)
    assert values["tpu.0.dutyCycle"] == 100.0
    assert not of(values, "tpu.hloQueueSize.")


def distribution(label, counts, *, mean=1.0, **options):
    value = {"kvlistAttr": {"attributes": [{"key": "buffer-size", "value": {"stringAttr": label}}]}}
    return {
        "attribute": {"key": "labels", "value": value},
        "distribution": {"count": sum(counts), "mean": mean, "bucketOptions": options, "bucketCounts": counts},
    }


LATENCY = BY_KEY["tpu.bufferTransferLatency"]


def test_equal_labels_are_merged():
    """Two slices report the same label: their buckets add up before percentiles are taken, means by population."""
    options = {"explicitBuckets": {"bounds": [10, 20, 40]}}
    metrics = [
        distribution("4MB+", [10, 0, 0], mean=5.0, **options),
        distribution("4MB+", [0, 0, 30], mean=9.0, **options),
    ]
    values = read_points(LATENCY, points_of({"metrics": metrics}), 1)
    assert values["tpu.bufferTransferLatency.4mb_plus.meanUs"] == 8.0
    assert values["tpu.bufferTransferLatency.4mb_plus.p50Us"] == pytest.approx(20 + 20 / 3)
    linear = distribution("4MB+", [0, 7], linearBuckets={"numFiniteBuckets": 2, "width": 5, "offset": 1})
    assert read_points(LATENCY, points_of({"metrics": [*metrics, linear]}), 1) == values


def test_labels_of_the_server():
    """Transfers are told apart by size alone, other lists by all that they hold, in an order that does not change."""
    family = BY_KEY["tpu.hloQueueSize"]
    for attributes, label in (
        ({"slice": "2", "buffer-size": "8MB+"}, "8mb_plus"),
        ({"b": 1, "a": "x"}, "x_1"),
        ({"device_ordinal": 3}, "device_3"),
        ({}, "unknown"),
    ):
        assert read_points(family, [Point(attributes, 5)], 1) == {f"tpu.hloQueueSize.{label}": 5}


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ((4, 0, 0, 0), 0.5, 5.0),  # the first bucket begins at 0
        ((4, 4, 0, 0), 0.5, 10.0),
        ((0, 0, 4, 0), 0.25, 25.0),
        ((1, 0, 0, 9), 0.9, 40.0),  # beyond the last bound nothing is known
    ],
)
def test_percentiles(counts, share, value):
    """Linear within the bucket in which the share is reached."""
    assert percentile(Histogram(sum(counts), 0.0, (10.0, 20.0, 40.0), counts), share) == value


def test_duty_cycle_of_two_devices_by_the_server():
    """The server, too, gives one per chip."""
    points = [Point({"": 0}, 10.0), Point({"": 1}, 20.0)]
    values = read_points(BY_KEY["tpu.{i}.dutyCycle"], points, 2)
    assert [values[f"tpu.{device}.dutyCycle"] for device in range(4)] == [10.0, 10.0, 20.0, 20.0]


@pytest.mark.parametrize("value", [0, -1, 1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_integers_of_the_wire(value):
    """64 bits with a sign, of gauges and of counters."""
    for kind in ("gauge", "counter"):
        assert points_of({"metrics": [{kind: {"asInt": value}}]}) == [Point({}, value)]


def test_a_field_that_says_it_is_longer_than_the_answer():
    """An answer cut off in the middle of a text is refused, not read as if it were whole."""
    whole = service.encode({"metrics": [gauge(1, 2.0)]})
    for size in range(3, len(whole)):
        with pytest.raises(ValueError, match="without end"):
            read_response(whole[:size])


def test_linear_buckets():
    """Linear bounds are offset + width * i."""
    metric = distribution("1", [0, 10], linearBuckets={"numFiniteBuckets": 2, "width": 5.0, "offset": 1.0})
    (point,) = points_of({"metrics": [metric]})
    assert point.value == Histogram(10, 1.0, (6.0, 11.0), (0, 10))
    assert percentile(point.value, 0.5) == 8.5


def test_distribution_without_buckets():
    """A mean alone is told alone."""
    values = read_points(LATENCY, points_of({"metrics": [{"distribution": {"count": 3, "mean": 2.5}}]}), 1)
    assert values == {"tpu.bufferTransferLatency.unknown.meanUs": 2.5}


def test_summary():
    """Quantiles that the server has made keep their names; others have none."""
    quantiles = [{"quantile": 0.5, "value": 3.0}, {"quantile": 0.99, "value": 8.0}, {"quantile": 0.7, "value": 4.0}]
    metric = {
        "attribute": {"key": "labels", "value": {"stringAttr": "8MB+"}},
        "summary": {"sampleCount": 4, "sampleSum": 10.0, "quantile": quantiles},
    }
    assert read_points(LATENCY, points_of({"metrics": [metric]}), 1) == {
        "tpu.bufferTransferLatency.8mb_plus.meanUs": 2.5,
        "tpu.bufferTransferLatency.8mb_plus.p50Us": 3.0,
        "tpu.bufferTransferLatency.8mb_plus.p99Us": 8.0,
    }


def test_device_numbers():
    """A device's number may be an integer, a text, or in a list; a reading without one is left out."""
    family = BY_KEY["tpu.{i}.hbmCapacityUsage"]
    entry = {"key": "device_ordinal", "value": {"intAttr": 3}}
    metrics = [
        {"attribute": {"key": "device-id", "value": {"stringAttr": "1"}}, "gauge": {"asInt": 5}},
        {"attribute": {"key": "labels", "value": {"kvlistAttr": {"attributes": [entry]}}}, "gauge": {"asInt": -7}},
        {"gauge": {"asInt": 9}},
        {"attribute": {"key": "device-id", "value": {"intAttr": 4}}, "gauge": {"asString": "full"}},
        {"attribute": {"key": "device-id", "value": {"stringAttr": "9" * 5000}}, "gauge": {"asInt": 5}},
        {"attribute": {"key": "device-id", "value": {"intAttr": -1}}, "gauge": {"asInt": 5}},
    ]
    assert read_points(family, points_of({"metrics": metrics}), 1) == {
        "tpu.1.hbmCapacityUsage": 5,
        "tpu.3.hbmCapacityUsage": -7,
    }


def test_request():
    """The request is what a protobuf encoder makes of it."""
    for family in FAMILIES:
        expected = service.CLASSES["MetricRequest"](metric_name=family.rpc).SerializeToString()
        assert not family.rpc or encode_request(family.rpc) == expected


FINITE = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.lists(st.integers(0, 1 << 40), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 99), FINITE)), COUNTS, FINITE, st.lists(FINITE, max_size=12))
def test_wire_agrees_with_protobuf(gauges, counts, mean, bounds):
    """Whatever a protobuf encoder writes of gauges and distributions is read as it was meant."""
    distributions = [
        {"distribution": {"count": 5, "mean": mean, "bucketOptions": {"explicitBuckets": {"bounds": bounds}},
                          "bucketCounts": counts}}
    ]  # fmt: skip
    points = points_of({"metrics": [gauge(*each) for each in gauges] + distributions})
    assert points[:-1] == [Point({"": device}, value) for device, value in gauges]
    assert points[-1] == Point({}, Histogram(5, mean, tuple(bounds[: len(counts)]), tuple(counts)))


@given(st.binary())
def test_any_bytes(data):
    """A response that is none is refused by ValueError, whatever it holds."""
    try:
        points = read_response(data)
    except ValueError:
        return
    assert isinstance(points, list)


@given(st.data())
def test_damaged_answers(data):
    """A byte changed or an end cut off in a good answer gives points or ValueError, and statistics that are numbers."""
    answers = json.loads((FIXTURES / "tpu-grpc-responses.json").read_text())
    whole = service.encode(answers[data.draw(st.sampled_from(sorted(answers)))])
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = (
        whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 : data.draw(st.integers(at, len(whole)))]
    )
    try:
        points = read_response(damaged)
    except ValueError:
        return
    for family in FAMILIES:
        if family.shape is not Shape.LINK:
            assert all(isinstance(value, (int, float)) for value in read_points(family, points, 2).values())


def test_huge_bucket_number_costs_nothing():
    """A claim of two thousand million buckets makes no more bounds than there are counts."""
    options = {"exponentialBuckets": {"numFiniteBuckets": 2_000_000_000, "growthFactor": 2.0, "scale": 1.0}}
    (point,) = points_of({"metrics": [distribution("x", [1, 2], **options)]})
    assert point.value.bounds == (2.0, 4.0)


def test_bounds_beyond_all_numbers():
    """A growth that overflows costs that reading only."""
    options = {"exponentialBuckets": {"numFiniteBuckets": 9, "growthFactor": 1e300, "scale": 1.0}}
    good = gauge(0, 1.0)
    assert points_of({"metrics": [distribution("x", [1] * 9, **options), good]}) == [Point({"": 0}, 1.0)]


def test_summary_of_the_wire():
    """A summary is read whole."""
    (point,) = points_of({"metrics": [{"summary": {"sampleCount": 2, "sampleSum": 3.0}}]})
    assert point.value == Summary(2, 3.0, ())


# --- both, in the helper


def test_in_the_helper(machine, monkeypatch, from_helper):
    """End to end: the helper loads libtpu's SDK because there is a chip, and its values arrive."""
    machine.load("tpu-pci-sysfs.json")
    monkeypatch.setenv("PYTHONPATH", str(FAKES / "tpu"))
    monkeypatch.setenv("LIBTPU_ANSWERS", str(FIXTURES / "tpu-sdk-v5e.json"))
    metadata, values = from_helper(TpuProbe(), Context(SamplerSettings(), root=str(machine.root)))
    assert metadata["tpu"]["name"] == "v5e"
    assert values["tpu.0.tensorcoreUtilization"] == 13.6


def test_only_the_helper_loads_h2():
    """The training process imports the probe for its keys and pays for no HTTP/2; whoever asks the server needs no grpcio."""
    program = (
        "import sys, runferry.sampler.probes.tpu; assert 'h2' not in sys.modules\n"
        "import runferry.sampler.probes.tpu_runtime; assert 'h2' in sys.modules and 'grpc' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
