"""DCGM exporter, by way of Prometheus and straight: keys, units, nodes, instances, and what goes wrong."""

from __future__ import annotations

import json
import math
import traceback
from pathlib import Path

import pytest
from runferry.sampler import ProbeUnavailableError, SamplerSettings
from runferry.sampler.http import StatusError
from runferry.sampler.probes import dcgm_exporter
from runferry.sampler.probes.dcgm_exporter import FIELDS, DcgmExporterProbe, QueryError, queries
from runferry.sampler.probes.openmetrics import NoMetricsError
from support.declared import assert_declared
from support.rawserver import RawServer, reply

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
SECRET = "tell-nobody"
MIB = 1 << 20


def vector(*series):
    """What Prometheus answers: each series is a name, labels and the text of a value."""
    result = [{"metric": {"__name__": name, **labels}, "value": [1.5, text]} for name, labels, text in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def temperatures(*series):
    return vector(*(("DCGM_FI_DEV_GPU_TEMP", labels, text) for labels, text in series))


class Asked:
    """A probe at a server with the given answers; the first is taken by `open`, where there is no driver here."""

    def __init__(self, ctx, *answers, path="api/v1/query?query=up", **settings):
        self.ctx = ctx
        self.server = RawServer(*answers)
        self.settings = SamplerSettings(dcgm_exporter=self.server.url + path, **settings)
        (self.probe,) = DcgmExporterProbe.instances(self.settings)

    def __enter__(self):
        self.server.__enter__()
        self.probe.open(self.ctx)
        return self

    def __exit__(self, *error):
        self.server.__exit__(*error)

    def next(self):
        values = {}
        self.probe.sample(self.ctx, values)
        assert_declared(self.probe, values)
        assert len(values) < dcgm_exporter.MOST_SERIES or self.probe.notices
        assert len(values) >= dcgm_exporter.MOST_SERIES or not self.probe.notices
        return values


@pytest.fixture
def ask(machine):
    """The values of one sample, of the given body."""

    def once(body, **options):
        with Asked(machine.context(), reply(body), **options) as asked:
            return asked.next()

    return once


def test_an_answer_of_prometheus(ask):
    """Devices by label, the node as a label of the key; series without a device or of other fields have no key."""
    assert ask((FIXTURES / "prometheus-api-query-dcgm.json").read_bytes()) == {
        "gpu.0.temp/l:node-7": 61.0,
        "gpu.1.pipeTensorActive/l:node-8": 42.0,
        "gpu.0.memoryUsed": 69000.0 * MIB,
    }


def test_an_answer_of_the_exporter(ask):
    """The same keys straight from its own text; a blank is no value."""
    values = ask((FIXTURES / "dcgm-exporter.txt").read_bytes(), path="metrics")
    assert values["gpu.0.temp/l:node-7"] == 61.0
    assert values["gpu.1.memoryFree/l:node-7"] == 12109.0 * MIB
    assert values["gpu.0.totalEnergyConsumption/l:node-7"] == pytest.approx(912345678.901)
    assert values["gpu.0.smActive/l:node-7"] == pytest.approx(87.1)
    assert values["gpu.0.nvlinkTxBytes/l:node-7"] == 81234567890.0
    assert values["gpu.0.memoryTemp/l:node-7"] == 72.0
    assert "gpu.1.memoryTemp/l:node-7" not in values
    assert len(values) == 35


def test_every_field_has_its_unit(ask):
    """MiB become bytes, millijoules joules, ratios per cent, as the same keys have them by NVML; the rest is as told."""
    values = ask(vector(*((name, {"gpu": "3"}, "2") for name in FIELDS)))
    assert values == {f"gpu.3.{field.key}": pytest.approx(2 * field.factor) for field in FIELDS.values()}
    factors = {"bytes": MIB, "J": 0.001, "%": 100.0}
    for name, field in FIELDS.items():
        raw = field.unit not in factors or name.endswith("_UTIL")
        assert field.factor == (1.0 if raw else factors[field.unit])


def test_instances_of_a_device(ask):
    """What each MIG instance has for itself is under its number; what all share is the device's."""
    assert ask((FIXTURES / "dcgm-exporter-mig.txt").read_bytes(), path="metrics") == {
        "gpu.0.mig.7.memoryUsed/l:node-7": 5012.0 * MIB,
        "gpu.0.mig.2.memoryUsed/l:node-7": 18044.0 * MIB,
        "gpu.0.temp/l:node-7": 44.0,
    }


def test_which_fields_an_instance_has_for_itself(ask):
    """Utilisation, memory and profiling counters; heat, power, clocks and the links are the whole device's."""
    values = ask(vector(*((name, {"gpu": "3", "GPU_I_ID": "7"}, "2") for name in FIELDS)))
    shared = {"temp", "memoryTemp", "maxOpTemp", "memoryMaxOpTemp", "powerWatts", "totalEnergyConsumption"}
    shared |= {"smClock", "memoryClock", "pcieTxBytes", "pcieRxBytes", "nvlinkTxBytes", "nvlinkRxBytes"}
    own = {field.key for field in FIELDS.values()} - shared
    assert set(values) == {f"gpu.3.{key}" for key in shared} | {f"gpu.3.mig.7.{key}" for key in own}


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({"gpu": "2"}, "gpu.2.temp"),
        ({"device": "nvidia3"}, "gpu.3.temp"),
        ({"device": "4"}, "gpu.4.temp"),
        ({"gpu": "", "device": "nvidia5"}, "gpu.5.temp"),
        ({"gpu": "4", "node": "N", "hostname": "h", "Hostname": "HH", "instance": "i:1"}, "gpu.4.temp/l:N"),
        ({"gpu": "5", "Hostname": "HH"}, "gpu.5.temp"),
        ({"gpu": "12", "node": "", "hostname": "q"}, "gpu.12.temp/l:q"),
        ({"gpu": "abc"}, None),
        ({"gpu": "1.temp.x"}, None),
        ({"gpu": "0", "node": "a\x1b[2J"}, None),
        ({"device": "mlx5"}, None),
        ({}, None),
    ],
)
def test_which_device_and_node(ask, labels, key):
    """The label `gpu`, else `device`; `node`, else `hostname`. What is no number of a device has no key."""
    assert ask(temperatures((labels, "60"))) == ({key: 60.0} if key else {})


@pytest.mark.parametrize("text", ["NaN", "+Inf", "bad", "9223372036854775794", "140737488355328", ""])
def test_what_is_no_value(ask, text):
    """Neither numbers that are none nor the marks for "not known"; the other series stay."""
    assert ask(temperatures(({"gpu": "0"}, text), ({"gpu": "1"}, "60"))) == {"gpu.1.temp": 60.0}


def test_entries_that_are_none(ask):
    """One broken entry costs itself only."""
    good = {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0"}, "value": [1, "61"]}
    broken = [1, None, {}, {"metric": 1, "value": [1, "2"]}, {**good, "value": [1]}, {**good, "value": [1, 2]}]
    body = {"status": "success", "data": {"resultType": "vector", "result": [*broken, good]}}
    assert ask(json.dumps(body).encode()) == {"gpu.0.temp": 61.0}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ((FIXTURES / "prometheus-api-query-error.json").read_bytes(), "the query failed: bad_data"),
        (b'{"status": "error", "errorType": "x\\u001b[2J"}', "the query failed"),
        (b"<html>", "the answer is no JSON"),
        (b"[" * 100000, "the answer is no JSON"),
        (b"[]", "the query failed"),
        (
            b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
            "the query does not give an instant vector",
        ),
        (
            b'{"status": "success", "data": {"resultType": "vector", "result": 1}}',
            "the query does not give an instant vector",
        ),
        (b'{"status": "success", "data": 1}', "the query does not give an instant vector"),
    ],
)
def test_a_query_that_fails(ask, body, told):
    """Told in a few words, none of which are the server's own."""
    with pytest.raises(QueryError) as caught:
        ask(body)
    assert str(caught.value) == told


def test_an_exporter_that_is_none(ask):
    """A page for people at `/metrics`."""
    with pytest.raises(NoMetricsError):
        ask(b"<html>", path="metrics")


def test_each_query_is_asked_by_itself(machine):
    """Several in one URL; one that fails costs its own values, and is told."""
    answers = [
        reply(temperatures(({"gpu": "0"}, "1"))),
        reply(status="503 x"),
        reply(temperatures(({"gpu": "1"}, "2"))),
        reply(status="500 x"),
    ]
    machine.write({"/proc/driver/nvidia/version": ""})
    path = "api/v1/query?query=a%7Bb%3D%22c%22%7D&query=b&timeout=2s&query=c+d&query=e"
    with Asked(machine.context(), *answers, path=path) as asked:
        values = {}
        with pytest.raises(StatusError, match="503"):  # the first of two
            asked.probe.sample(asked.ctx, values)
    assert values == {"gpu.0.temp": 1.0, "gpu.1.temp": 2.0}
    assert [request.split(b" ")[1] for request in asked.server.requests] == [
        b"/api/v1/query?query=a%7Bb%3D%22c%22%7D&timeout=2s",
        b"/api/v1/query?query=b&timeout=2s",
        b"/api/v1/query?query=c+d&timeout=2s",
        b"/api/v1/query?query=e&timeout=2s",
    ]


def test_urls():
    """An exporter's is asked as it is; a query needs no escapes and no path; without one there is nothing to ask."""
    assert queries("http://h:9400/metrics") == ["http://h:9400/metrics"]
    assert queries('http://h/api/v1/query?query=X{node="l1", c="g"}') == [
        "http://h/api/v1/query?query=X%7Bnode%3D%22l1%22%2C+c%3D%22g%22%7D"
    ]
    assert queries("http://h:9090?query=up") == ["http://h:9090/api/v1/query?query=up"]
    assert queries("http://h/prefix/api/v1/query?query=up") == ["http://h/prefix/api/v1/query?query=up"]
    assert queries("http://h/api/v1/query") == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"http://u:{SECRET}@h/api/v1/query", "its URL holds no query=..., and is not /metrics of an exporter"),
        (f"ftp://u:{SECRET}@h/metrics", "not an http or https URL"),
        (f"http://u:{SECRET}@[::1/metrics", "not a valid URL"),
        ("http://h/q?" + "query=a&" * 99, "not a valid URL"),
    ],
)
def test_a_url_that_cannot_be_used(machine, url, told):
    """Left out with a warning that does not show it."""
    (probe,) = DcgmExporterProbe.instances(SamplerSettings(dcgm_exporter=url))
    with pytest.raises(ProbeUnavailableError) as caught:
        probe.open(machine.context())
    assert (str(caught.value), caught.value.loud) == (told, True)
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(probe)


def test_headers_go_to_it_too(machine):
    """Those for all endpoints, as the peer sends them, and those of its own."""
    headers = {"X-All": "1", "dcgm_exporter": {"Authorization": SECRET}, "other": {"X-Other": "2"}}
    with Asked(machine.context(), reply(vector()), open_metrics_http_headers=headers) as asked:
        asked.next()
    for request in asked.server.requests:
        assert b"X-All: 1\r\n" in request
        assert f"Authorization: {SECRET}\r\n".encode() in request
        assert b"X-Other" not in request


def test_devices_for_the_record_of_the_machine(machine):
    """Name and UUID of each, where no driver is here to tell them, and all are of one node."""
    body = (FIXTURES / "dcgm-exporter.txt").read_bytes()
    with Asked(machine.context(), reply(body), path="metrics") as asked:
        assert asked.probe.metadata() == {
            "gpu_type": "NVIDIA H100 80GB HBM3",
            "gpu_count": 2,
            "gpu_nvidia": [
                {"name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-11111111-aaaa-bbbb-cccc-00000000000{i}"} for i in (0, 1)
            ],
        }
    several = [({"gpu": "0", "UUID": "u", "modelName": "m", "node": node}, "1") for node in ("a", "b")]
    partial = [
        ({"gpu": "0", "UUID": "u"}, "1"),
        ({"gpu": "1", "modelName": "m"}, "1"),
        ({"UUID": "u", "modelName": "m"}, "1"),
    ]
    for described in (several, partial):
        with Asked(machine.context(), reply(temperatures(*described))) as asked:
            assert asked.probe.metadata() == {}
    spelt = [({"gpu": gpu, "uuid": f"u{gpu}", "modelName": "m"}, "1") for gpu in ("10", "9")]
    with Asked(machine.context(), reply(temperatures(*spelt))) as asked:
        assert [device["uuid"] for device in asked.probe.metadata()["gpu_nvidia"]] == ["u9", "u10"]
    machine.write({"/proc/driver/nvidia/version": ""})
    with Asked(machine.context(), reply(body), path="metrics") as asked:
        assert asked.probe.metadata() == {}
        assert asked.server.requests == []


def test_a_server_that_does_not_answer_is_told_by_the_samples(machine):
    """Opening goes on without it: it may come back."""
    with Asked(
        machine.context(), reply(status="503 x"), reply(status="503 x"), reply(temperatures(({"gpu": "0"}, "1")))
    ) as asked:
        with pytest.raises(StatusError, match="it answers 503 Service Unavailable"):
            asked.next()
        assert asked.next() == {"gpu.0.temp": 1.0}


@pytest.mark.parametrize("path", ["metrics", "api/v1/query?query=up"])
def test_series_are_bounded(machine, monkeypatch, path):
    """Of an answer as large as a cluster the first ones are taken, which is told once."""
    monkeypatch.setattr(dcgm_exporter, "MOST_SERIES", 2)
    answers = {
        "metrics": (FIXTURES / "dcgm-exporter.txt").read_bytes(),
        "api/v1/query?query=up": temperatures(*(({"gpu": str(i)}, "1") for i in range(9))),
    }
    with Asked(machine.context(), reply(answers[path]), path=path) as asked:
        assert len(asked.next()) == len(asked.next()) == 2
        assert asked.probe.notices == ("its answer has more than 2 series: the others are left out",)


def test_values_are_finite_floats(ask):
    """Whatever the text, what is written is a number."""
    (value,) = ask(temperatures(({"gpu": "0"}, "1e3"))).values()
    assert value == 1000.0
    assert math.isfinite(value)
