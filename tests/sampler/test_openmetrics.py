"""OpenMetrics endpoints: keys, filters, headers, bounds, and the peer on the same answers."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
from runferry.sampler import ProbeUnavailableError, SamplerSettings, series
from runferry.sampler.engine import Engine
from runferry.sampler.exposition import Line
from runferry.sampler.http import StatusError
from runferry.sampler.probes.openmetrics import NoMetricsError, OpenMetricsProbe
from support.certificates import server_context
from support.rawserver import RawServer, reply

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
SECRET = "tell-nobody"


class Scraped:
    """A probe of one endpoint whose answers are given sample by sample."""

    def __init__(self, *bodies, name="e", headers="Content-Type: text/plain\r\n", **settings):
        texts = [body if isinstance(body, bytes) else body.encode() for body in bodies]
        self.server = RawServer(*(reply(text, headers=headers) for text in texts))
        settings = SamplerSettings(open_metrics_endpoints={name: self.server.url}, **settings)
        (self.probe,) = OpenMetricsProbe.instances(settings)

    def __enter__(self):
        self.server.__enter__()
        self.probe.open(None)
        return self

    def __exit__(self, *error):
        self.server.__exit__(*error)

    def next(self):
        values = {}
        self.probe.sample(None, values)
        assert all(metric.matches(key) for key in values for metric in self.probe.metrics)
        return values


def scrape(*bodies, **settings):
    """The values of each sample."""
    with Scraped(*bodies, **settings) as scraped:
        return [scraped.next() for _ in bodies]


def test_numbers_count_label_sets_in_order_of_appearance():
    """They stay, whatever order lines and labels take later; NaN has a number, too, and no value."""
    first = '# TYPE m gauge\nm{a="1",b="2"} 1\nm NaN\nm{a="2"} 3\n'
    later = '# TYPE m gauge\nm{a="9"} 9\nm{a="2"} 4\nm{b="2",a="1"} 5\nm 6\n'
    assert scrape(first, later) == [
        {"openmetrics.e.m.0": 1.0, "openmetrics.e.m.2": 3.0},
        {"openmetrics.e.m.0": 5.0, "openmetrics.e.m.1": 6.0, "openmetrics.e.m.2": 4.0, "openmetrics.e.m.3": 9.0},
    ]


def test_the_legend_tells_what_numbers_stand_for():
    """Key by key, for those with labels."""
    with Scraped((FIXTURES / "prometheus-basic.txt").read_bytes()) as scraped:
        scraped.next()
        assert scraped.probe.legend() == {
            "openmetrics.e.queue_depth.0": {"pool": "train", "rank": "0"},
            "openmetrics.e.queue_depth.1": {"pool": "train", "rank": "1"},
            "openmetrics.e.queue_depth.2": {"pool": "eval", "rank": "0"},
            "openmetrics.e.escaped.0": {"path": 'C:\\data"x"', "note": "a\nb"},
        }


def test_the_last_of_equal_series_counts():
    """Also when it is no number: then there is none."""
    body = '# TYPE m gauge\nm 1\nm 2\n# TYPE n gauge\nn{a="x"} 1\nn{a="x"} NaN\n'
    assert scrape(body) == [{"openmetrics.e.m.0": 2.0}]


def test_blanks_of_dcgm_are_no_values():
    """Its mark for "not known" as an integer and as a float; other exporters may well have such numbers."""
    body = "\n".join(
        [
            "# TYPE DCGM_FI_X gauge",
            *(f'DCGM_FI_X{{i="{value}"}} {value}' for value in (9223372036854775794, 140737488355328, 7)),
            "# TYPE x_bytes gauge",
            "x_bytes 9223372036854775794\n",
        ]
    )
    assert scrape(body) == [{"openmetrics.e.DCGM_FI_X.2": 7.0, "openmetrics.e.x_bytes.0": float(2**63)}]


BODY = """# TYPE m gauge
m{a="1",b="x"} 1
m{a="2",b="x"} 2
m{a="12",b="y"} 3
m{b="q"} 4
m 5
# TYPE other gauge
other 6
other{a="2"} 7
# TYPE m2 counter
m2{a="1"} 8
"""
FILTERS = [
    (["e.m"], "12345 8"),
    (["^m$"], ""),
    (["^e\\.m$"], "12345"),
    (["e\\.m2", "other"], "678"),
    ([], "12345678"),
    ({"e.m": {"a": "2"}}, "23"),
    ({"m": {"a": "^2$"}}, "2"),
    ({"m": {"a": "1", "b": "x"}}, "1"),
    ({"^e\\.m$": {"a": "2"}, "m": {"b": "q"}}, "234"),
    ({"other": {"zz": "1"}, "oth": {"a": "2"}}, "7"),
    (["(", "other"], "67"),
    ({"m": {"a": "("}}, ""),
    ({"m": {"zz": ".*"}}, ""),
    (["(?i)OTHER"], "67"),
]
"""What the peer keeps of the body, by the digits of its values."""


@pytest.mark.parametrize(("filters", "kept"), FILTERS)
def test_filters(filters, kept):
    """Patterns are searched in `endpoint.metric`; of a mapping the labels have to match, too; any one will do."""
    (values,) = scrape(BODY, open_metrics_filters=filters)
    assert sorted(values.values()) == [float(digit) for digit in sorted(kept.replace(" ", ""))]


def test_numbers_are_given_after_filtering():
    """A series that is not kept takes no number."""
    (values,) = scrape(BODY, open_metrics_filters={"m": {"a": "2"}})
    assert values == {"openmetrics.e.m.0": 2.0, "openmetrics.e.m.1": 3.0}


def test_a_pattern_without_labels_keeps_all_of_the_metric():
    """The peer loses such a filter on its way, and with it all filters."""
    (values,) = scrape(BODY, open_metrics_filters={"other": {}})
    assert sorted(values.values()) == [6.0, 7.0]


def test_a_pattern_that_is_none_is_told():
    """The others hold; if there is no other, nothing is kept, rather than all."""
    with Scraped(BODY, open_metrics_filters=["(", "other"]) as scraped:
        assert len(scraped.next()) == 2
        (notice,) = scraped.probe.notices
        assert notice.startswith("'(' is no regular expression: ")
        assert notice.endswith("; it keeps nothing")
    assert scrape(BODY, open_metrics_filters=["("]) == [{}]


def test_a_labels_pattern_that_is_none_is_told_with_its_label():
    """Not the pattern of the name, which is none the worse for it."""
    with Scraped(BODY, open_metrics_filters={"other": {"instance": "["}}) as scraped:
        assert scraped.next() == {}
        (notice,) = scraped.probe.notices
        assert notice.startswith("'[' (label 'instance' of 'other') is no regular expression: ")


def test_a_counters_total_can_be_chosen_by_its_own_name():
    """Of OpenMetrics' counters the samples have a suffix that the family has not."""
    assert scrape((FIXTURES / "openmetrics-1.0.txt").read_bytes(), open_metrics_filters=["batches_total$"]) == [
        {"openmetrics.e.batches_total.0": 812.0}
    ]


def test_headers_go_where_they_are_meant_to():
    """Those for all to each endpoint, those of one endpoint to it only, and in place of those for all."""
    given = {"X-All": "1", "X-Own": "all", "b": {"X-Own": "b", "Authorization": SECRET}}
    with RawServer(reply()) as a, RawServer(reply()) as b:
        settings = SamplerSettings(open_metrics_endpoints={"a": a.url, "b": b.url}, open_metrics_http_headers=given)
        for probe in OpenMetricsProbe.instances(settings):
            probe.open(None)
            with pytest.raises(NoMetricsError):
                probe.sample(None, {})
        assert b"X-All: 1\r\n" in a.requests[0]
        assert b"X-Own: all\r\n" in a.requests[0]
        assert SECRET.encode() not in a.requests[0]
        assert b"X-All: 1\r\n" in b.requests[0]
        assert b"X-Own: b\r\n" in b.requests[0]
        assert f"Authorization: {SECRET}\r\n".encode() in b.requests[0]


def test_headers_are_never_shown():
    """Not in the repr of settings, probe or error, and not in what is told of an endpoint that refuses them."""
    with RawServer(reply(status="401 Unauthorized")) as server:
        url = f"{server.url}?key={SECRET}"
        settings = SamplerSettings(
            open_metrics_endpoints={"e": url}, open_metrics_http_headers={"Authorization": SECRET}
        )
        (probe,) = OpenMetricsProbe.instances(settings)
        probe.open(None)
        with pytest.raises(StatusError) as caught:
            probe.sample(None, {})
        told = [repr(settings), repr(probe), repr(probe._endpoint), *traceback.format_exception(caught.value)]
        assert SECRET not in "".join(told)
        assert str(caught.value) == "it answers 401 Unauthorized"
        (broken,) = OpenMetricsProbe.instances(
            SamplerSettings(open_metrics_endpoints={"e": url}, open_metrics_http_headers={"X": SECRET + "\n"})
        )
        with pytest.raises(ProbeUnavailableError) as caught:
            broken.open(None)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert caught.value.loud


def test_an_answer_that_holds_no_metrics():
    """A page for people with status 200 is an error, an empty answer is none."""
    told = pytest.raises(NoMetricsError, match=r"^its answer \(text/html\) declares no type of any metric$")
    with Scraped("<html>log in</html>", headers="Content-Type: text/html; charset=x\r\n") as scraped, told:
        scraped.next()
    assert scrape("", "# TYPE h histogram\nh_sum 1\n") == [{}, {}]


def test_malformed_lines_are_told_once():
    """They cost themselves only."""
    with Scraped("# TYPE m gauge\nm 1\nm one\nm{a=1} 2\n") as scraped:
        assert scraped.next() == scraped.next() == {"openmetrics.e.m.0": 1.0}
        assert scraped.probe.notices == ["lines of its answer that are not of the format are left out; 2 so far"]


def test_series_are_bounded(monkeypatch):
    """Those that came first go on, later ones are dropped with one notice, whatever the labels are called next time."""
    monkeypatch.setattr(series, "MOST_SERIES", 3)
    bodies = ["# TYPE m gauge\n" + "".join(f'm{{i="{n + i}"}} {i}\n' for i in range(6)) for n in (0, 2, 100)]
    with Scraped(*bodies) as scraped:
        assert scraped.next() == {f"openmetrics.e.m.{i}": float(i) for i in range(3)}
        assert scraped.next() == {"openmetrics.e.m.2": 0.0}
        assert scraped.next() == {}
        assert len(scraped.probe.legend()) == 3
        (notice,) = scraped.probe.notices
        assert notice.startswith("it has more than 5000 series")


def test_what_came_too_late_is_not_read_again(monkeypatch):
    """Once there are too many, only metrics of which something is kept are looked at: the rest costs nothing."""
    monkeypatch.setattr(series, "MOST_SERIES", 1)
    table = series.SeriesTable("e", series.Chooser(()), lambda: None)
    assert table.key_of(Line(b"m", b"m", b"", 1.0)) == "openmetrics.e.m.0"
    assert table.wants(b"n")
    assert table.key_of(Line(b"n", b"n", b"", 1.0)) is None
    assert (table.wants(b"m"), table.wants(b"n"), table.wants(b"o")) == (True, False, False)
    assert table.key_of(Line(b"m{", b"m", b"{x}", 1.0)) is None
    assert table.malformed == 0


@pytest.mark.parametrize(("bound", "value"), [("MOST_LABEL_BYTES", 30), ("MOST_NAMES", 2)])
def test_labels_and_names_are_bounded(monkeypatch, bound, value):
    """By their bytes, and by how many metrics are remembered."""
    monkeypatch.setattr(series, bound, value)
    with Scraped("".join(f'# TYPE m{i} gauge\nm{i}{{label="{i}"}} {i}\n' for i in range(5))) as scraped:
        assert scraped.next() == {"openmetrics.e.m0.0": 0.0, "openmetrics.e.m1.0": 1.0}
        assert scraped.next() == {"openmetrics.e.m0.0": 0.0, "openmetrics.e.m1.0": 1.0}
        assert len(scraped.probe.notices) == 1


def test_unwanted_series_are_remembered_within_bounds(monkeypatch):
    """More of them than are remembered are judged again, with the same result."""
    monkeypatch.setattr(series, "MOST_UNWANTED_BYTES", 20)
    body = "# TYPE m gauge\n" + "".join(f'm{{i="{i}"}} {i}\n' for i in range(9))
    kept = {"openmetrics.e.m.0": 8.0}
    assert scrape(body, body, open_metrics_filters={"m": {"i": "8"}}) == [kept, kept]


def test_names_that_no_key_may_have():
    """Control characters and names as long as a key are left out."""
    body = (
        '# TYPE "a\x1b[2J" gauge\n{"a\x1b[2J"} 1\n# TYPE '
        + "n" * 256
        + " gauge\n"
        + "n" * 256
        + " 1\n# TYPE m gauge\nm 2\n"
    )
    assert scrape(body) == [{"openmetrics.e.m.0": 2.0}]


def test_an_endpoint_with_odd_characters():
    """Its name goes into the key as it is."""
    assert scrape("# TYPE m gauge\nm 1\n", name="e p.x") == [{"openmetrics.e p.x.m.0": 1.0}]


def test_ten_megabytes_cost_what_their_wanted_lines_cost():
    """Histograms are passed over; a filter makes it cheaper still. The bound is ten times what it takes here."""
    histogram = "".join(
        f"# TYPE h{n} histogram\n" + "".join(f'h{n}_bucket{{route="/api/v1/items",le="{i}"}} {i}\n' for i in range(500))
        for n in range(500)
    )
    gauges = "".join(f'# TYPE g{n} gauge\ng{n}{{pool="a"}} {n}\n' for n in range(1000))
    body = (histogram + gauges).encode()
    assert len(body) > 10 << 20
    for filters, kept in (((), 1000), (("g7$",), 1)):
        with Scraped(body, open_metrics_filters=filters) as scraped:
            scraped.next()
            started = time.thread_time()
            assert len(scraped.next()) == kept
            assert time.thread_time() - started < 0.5


def test_endpoints_that_hang_cost_only_themselves():
    """Each has a thread of its own: the other's values come in time, and one line says which one hangs."""
    release = threading.Event()

    def silent(connection):
        release.wait(20)
        connection.close()

    samples, warnings = [], []
    with RawServer(silent) as dead, RawServer(reply(b"# TYPE m gauge\nm 1\n")) as alive:
        settings = SamplerSettings(
            interval=1.0,
            probes=("openmetrics",),
            self_metrics=False,
            open_metrics_endpoints={"dead": dead.url, "alive": alive.url},
        )
        clock = Turned()
        engine = Engine(settings, samples.append, clock=clock, root="/", warn=warnings.append)
        engine.open()
        try:
            engine.settle(10)
            for _ in range(3):
                engine.tick(grace=1.0)
                clock.now += 1.0
        finally:
            release.set()
            engine.close(5)
    assert [sample.values for sample in samples] == [{"openmetrics.alive.m.0": 1.0}] * 3
    assert warnings == ["probe openmetrics:dead hangs; its metrics are missing until it answers"]


class Turned:
    now = 1000.0

    def monotonic(self):
        return self.now

    def time_ns(self):
        return int(self.now * 1e9)


def test_nothing_is_loaded_without_endpoints():
    """No probe, then, and no module for HTTP: only who asks for endpoints pays for them."""
    code = (
        "import sys; from runferry.sampler import SamplerSettings, load_modules, registry; load_modules(SamplerSettings());"
        "print(len(list(registry.built_in(SamplerSettings(probes=('openmetrics',)), print))), 'http.client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0 False\n"


def test_no_module_is_loaded_by_the_threads(tmp_path):
    """What is imported while the process forks stays locked in the child: all is there before the threads begin."""
    code = """
import sys
from runferry.sampler import SamplerSettings, load_modules, registry
from runferry.sampler.context import Context
url = sys.argv[1]
settings = SamplerSettings(
    probes=("openmetrics", "dcgm_exporter"),
    open_metrics_endpoints={"plain": url, "named": url.replace("127.0.0.1", "localhost"), "tls": sys.argv[2]},
    dcgm_exporter=url + "api/v1/query?query=up",
)
load_modules(settings)
ctx = Context(settings)
probes = list(registry.built_in(settings, print))
for probe in probes:
    assert probe.discover(ctx) is None
before = set(sys.modules)
for probe in probes:
    probe.open(ctx)
    for _ in range(2):
        try:
            probe.sample(ctx, {})
        except Exception as error:
            print(type(error).__name__, end=" ")
print(sorted(set(sys.modules) - before))
"""
    packed = reply(gzip.compress(b'# TYPE m gauge\nm{a="b"} 1\n'), headers="Content-Encoding: gzip\r\n")
    context, certificate = server_context(tmp_path)
    with RawServer(packed) as server, RawServer(packed, tls=context) as secured:
        command = [sys.executable, "-c", code, server.url, secured.url]
        trusting = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=trusting)
    assert done.stdout == "QueryError QueryError []\n"
