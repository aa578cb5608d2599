"""Endpoints that mean harm, or are broken in ways that come to the same: bounds, and no secret anywhere."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback

import pytest
from runferry.sampler import ProbeUnavailableError, SamplerSettings, series
from runferry.sampler.engine import Engine
from runferry.sampler.exposition import LONGEST_LINE, Line
from runferry.sampler.http import TooLargeError
from runferry.sampler.probe import Probe, Tier
from runferry.sampler.probes import dcgm_exporter
from runferry.sampler.probes.dcgm_exporter import DcgmExporterProbe
from runferry.sampler.probes.openmetrics import OpenMetricsProbe, headers_for
from runferry.sampler.supervisor import HelperRunner
from support.rawserver import RawServer, reply

SECRET = "tell-nobody"


def line(name, labels, value=1.0):
    return Line(name + labels, name, labels, value)


def test_long_labels_cannot_stop_the_interpreter():
    """A search for `.*x` takes the square of the text's length and holds the interpreter: no filter sees long ones."""
    overflows = []
    chooser = series.Chooser({"m": {"a": ".*x"}})
    table = series.SeriesTable("e", chooser, lambda: overflows.append(1))
    started = time.process_time()
    assert table.key_of(line(b"m", b'{a="' + b"y" * (LONGEST_LINE - 20) + b'"}')) is None
    assert table.key_of(line(b"m", b'{a="' + b"y" * (LONGEST_LINE - 20) + b'x"}')) is None
    assert time.process_time() - started < 0.2
    assert table.key_of(line(b"m", b'{a="x"}')) == "openmetrics.e.m.0"
    longest = b'{a="' + b"y" * (series.LONGEST_LABELS - 7) + b'x"}'
    assert table.key_of(line(b"m", longest)) == "openmetrics.e.m.1"
    assert overflows == [1]


def test_series_that_nobody_wants_are_remembered_within_bytes():
    """Labels that are new each time fill no memory, however long they are."""
    table = series.SeriesTable("e", series.Chooser({"m": {"a": "x"}}), lambda: None)
    for number in range(3000):
        assert table.key_of(line(b"m", b'{a="%04d' % number + b"y" * 4000 + b'"}')) is None
    assert sum(map(len, table._unwanted)) <= series.MOST_UNWANTED_BYTES
    assert len(table._unwanted) > 1000


def test_label_sets_that_change_each_time_are_bounded(monkeypatch):
    """A label with the time in it: the keys of the first samples stay, and one line tells why no more come."""
    monkeypatch.setattr(series, "MOST_SERIES", 50)
    bodies = [
        "# TYPE m gauge\n" + "".join(f'm{{at="{sample}.{i}"}} {i}\n' for i in range(20)) + 'm{at="always"} 7\n'
        for sample in range(9)
    ]
    with RawServer(*(reply(body.encode()) for body in bodies)) as server:
        (probe,) = OpenMetricsProbe.instances(SamplerSettings(open_metrics_endpoints={"e": server.url}))
        probe.open(None)
        found = []
        for _ in bodies:
            found.append({})
            probe.sample(None, found[-1])
    assert [len(values) for values in found] == [21, 21, 10, 1, 1, 1, 1, 1, 1]
    assert all(values["openmetrics.e.m.20"] == 7.0 for values in found)
    assert len(probe.notices) == 1
    assert len(probe.legend()) == 50


def test_labels_write_no_key():
    """Values with line ends, slashes and dots are in the legend only."""
    body = '# TYPE m gauge\nm{a="x\\nm 2",b="/l:n",c="\\\\",d="\x1b[2J\r"} 1\n'
    with RawServer(reply(body.encode())) as server:
        (probe,) = OpenMetricsProbe.instances(SamplerSettings(open_metrics_endpoints={"e": server.url}))
        probe.open(None)
        values = {}
        probe.sample(None, values)
    assert values == {"openmetrics.e.m.0": 1.0}
    assert probe.legend() == {"openmetrics.e.m.0": {"a": "x\nm 2", "b": "/l:n", "c": "\\", "d": "\x1b[2J\r"}}


def test_a_hundred_endpoints():
    """Each has its own keys, headers and thread; those that refuse cost one line each."""
    good, bad = reply(b"# TYPE m gauge\nm 1\n"), reply(status="500 x")
    samples, warnings = [], []
    with RawServer(good) as up, RawServer(bad) as down:
        settings = SamplerSettings(
            interval=1.0,
            probes=("openmetrics",),
            self_metrics=False,
            open_metrics_endpoints={f"e{i}": (up if i % 2 else down).url for i in range(100)},
            open_metrics_http_headers={f"e{i}": {"X-Own": f"{SECRET}-{i}"} for i in range(100)},
        )
        engine = Engine(settings, samples.append, clock=Stopped(), root="/", warn=warnings.append)
        engine.open()
        try:
            engine.settle(20)
            engine.tick(grace=20.0)
        finally:
            engine.close(5)
    assert samples[0].values == {f"openmetrics.e{i}.m.0": 1.0 for i in range(1, 100, 2)}
    assert len(warnings) == 50
    assert not any(SECRET in warning for warning in warnings)
    sent = {part for request in up.requests for part in request.split(b"\r\n") if part.startswith(b"X-Own")}
    assert sent == {f"X-Own: {SECRET}-{i}".encode() for i in range(1, 100, 2)}


class Stopped:
    def monotonic(self):
        return 1000.0

    def time_ns(self):
        return 10**18


def test_a_header_of_its_own_replaces_the_one_for_all_in_any_case():
    """Names of headers have no case: the credential for all is not sent beside the endpoint's own."""
    given = {"Authorization": SECRET, "X-Team": "blue", "e": {"authorization": "its own"}}
    settings = SamplerSettings(open_metrics_http_headers=given)
    assert headers_for(settings, "e") == {"X-Team": "blue", "authorization": "its own"}
    assert headers_for(settings, "f") == {"Authorization": SECRET, "X-Team": "blue"}
    assert headers_for(settings, "X-Team") == {"Authorization": SECRET, "X-Team": "blue"}


@pytest.mark.parametrize("probe_of", [OpenMetricsProbe, DcgmExporterProbe])
def test_a_password_in_a_url_is_refused_and_not_shown(probe_of, machine):
    """As the settings of a run refuse it: the one place for credentials are the headers."""
    url = f"http://user:{SECRET}@host/metrics"
    (probe,) = probe_of.instances(SamplerSettings(open_metrics_endpoints={"e": url}, dcgm_exporter=url))
    with pytest.raises(ProbeUnavailableError, match="give a header Authorization") as caught:
        probe.open(machine.context())
    assert caught.value.loud
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + repr(probe)


def vector(labels, text="60"):
    found = [{"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", **labels}, "value": [1, text]}]
    good = {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "1"}, "value": [1, "61"]}
    body = {"status": "success", "data": {"resultType": "vector", "result": [*found, good]}}
    return json.dumps(body).encode()


def test_half_a_character_costs_its_own_value():
    """JSON can hold what no text can: the other devices stay."""
    (found,) = dcgm_exporter.read_answer(vector({"gpu": "0"}, "\ud800"))
    assert found.labels["gpu"] == "1"
    assert [
        dcgm_exporter.key_of(each) for each in dcgm_exporter.read_answer(vector({"gpu": "0", "node": "\ud800"}))
    ] == [
        None,
        "gpu.1.temp",
    ]


@pytest.mark.parametrize("text", ["\ud800", "a\x1b[2J", "x" * 257])
def test_names_that_no_record_may_hold(text):
    """A device is described by a name and a UUID that are texts, and a node has a name: nothing else is taken."""
    for label in ("modelName", "UUID"):
        labels = {"gpu": "0", "modelName": "m", "UUID": "u", label: text}
        assert dcgm_exporter.describe(dcgm_exporter.read_answer(vector(labels))) == {}
    (odd, _) = dcgm_exporter.read_answer(vector({"gpu": "0", "node": text}))
    assert dcgm_exporter.key_of(odd) is None


class Helped(Probe):
    """A probe of some library."""

    name = "helped"
    tier = Tier.HELPER


def test_describing_devices_waits_less_than_the_records_of_the_machine(monkeypatch, machine):
    """They wait two seconds for all devices together: a server that is silent costs them half of that."""
    assert dcgm_exporter.DESCRIBED_WITHIN <= 1.0
    monkeypatch.setattr(dcgm_exporter, "DESCRIBED_WITHIN", 0.2)
    with RawServer(lambda connection: connection.recv(1)) as server:
        (probe,) = DcgmExporterProbe.instances(SamplerSettings(dcgm_exporter=server.url + "metrics"))
        started = time.monotonic()
        probe.open(machine.context())
        assert time.monotonic() - started < 1.5
        assert probe.metadata() == {}


def test_an_answer_of_prometheus_is_bounded(monkeypatch, machine):
    """By fewer bytes than other answers: JSON takes many times its size in memory."""
    assert dcgm_exporter.LONGEST_ANSWER <= 4 << 20
    monkeypatch.setattr(dcgm_exporter, "LONGEST_ANSWER", 50)
    with RawServer(reply(vector({"gpu": "0"}))) as server:
        (probe,) = DcgmExporterProbe.instances(SamplerSettings(dcgm_exporter=server.url + "api/v1/query?query=up"))
        probe.open(machine.context())
        with pytest.raises(TooLargeError):
            probe.sample(machine.context(), {})


def test_helpers_are_told_no_secret(machine):
    """Headers and URLs are for the threads that ask endpoints; what stands on the way to a helper has none of them."""
    read_end, write_end = os.pipe()

    class Child:
        pid, returncode, stdout = 7, None, None
        stdin = os.fdopen(write_end, "wb", buffering=0)

        def poll(self):
            return None

    ctx = machine.context(
        open_metrics_endpoints={"e": f"http://h/?key={SECRET}"},
        open_metrics_http_headers={"Authorization": SECRET},
        dcgm_exporter=f"http://h/?query=up&key={SECRET}",
        gpu_device_ids=("3",),
        probe_intervals={"helped": 7},
    )
    assert HelperRunner(Helped(), ctx, threading.Condition(), spawn=Child).request(0.0) is False
    with Child.stdin, os.fdopen(read_end, "rb") as told_to_helper:
        sent = told_to_helper.readline()
    assert SECRET.encode() not in sent
    told = SamplerSettings(**json.loads(sent)["settings"])
    assert (told.gpu_device_ids, told.probe_intervals, told.pid) == (("3",), {"helped": 7.0}, ctx.settings.pid)
    assert (told.open_metrics_endpoints, told.open_metrics_http_headers, told.dcgm_exporter) == ({}, {}, None)
