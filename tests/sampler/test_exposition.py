"""The reader of the text formats, beside Prometheus' own Python reader and against any bytes."""

from __future__ import annotations

import importlib.util
import math
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runferry.sampler.exposition import LONGEST_LINE, Exposition, Line, parse_labels, parse_value

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


def everything(_name):
    return True


def read(body, wanted=everything):
    """(Name, labels, value) of each line."""
    body = body.encode() if isinstance(body, str) else body
    return [(line.name.decode(), labels_of(line), line.value) for line in Exposition(body).lines(wanted)]


def labels_of(line):
    return parse_labels(line.labels)[1] if line.labels else {}


def malformed(body):
    exposition = Exposition(body.encode())
    list(exposition.lines(everything))
    return exposition.malformed


def test_the_older_format():
    """Gauges and counters with labels, escapes, NaN and infinities; nothing of histograms, summaries, untyped ones."""
    got = read((FIXTURES / "prometheus-basic.txt").read_bytes())
    assert got[:4] == [
        ("queue_depth", {"pool": "train", "rank": "0"}, 41.0),
        ("queue_depth", {"rank": "1", "pool": "train"}, 43.5),
        ("queue_depth", {"pool": "eval", "rank": "0"}, 2.0),
        ("tokens_total", {}, 1234500.0),
    ]
    assert [name for name, _, _ in got[4:]] == ["not_a_number", "plus_inf", "escaped"]
    assert math.isnan(got[4][2])
    assert got[5][2] == math.inf
    assert got[6] == ("escaped", {"path": 'C:\\data"x"', "note": "a\nb"}, 1.0)


def test_openmetrics():
    """A counter's total belongs to the family without the suffix, its time of creation is no value; exemplars go."""
    assert read((FIXTURES / "openmetrics-1.0.txt").read_bytes()) == [
        ("gpu_power_watts", {"gpu": "0"}, 311.5),
        ("batches_total", {"loader": "a"}, 812.0),
    ]


@pytest.mark.parametrize("name", ["node-exporter.txt", "dcgm-exporter.txt", "dcgm-exporter-mig.txt"])
def test_whole_answers_of_exporters(name):
    """Every sample line of them is read: all of their families are gauges and counters."""
    body = (FIXTURES / name).read_bytes()
    samples = [line for line in body.decode().splitlines() if line and not line.startswith("#")]
    assert [value for _, _, value in read(body)] == [float(line.rpartition(" ")[2]) for line in samples]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("m 1", ({}, 1.0)),
        ("  m\t1  ", ({}, 1.0)),
        ("m 1 1395066363000", ({}, 1.0)),
        ("m 1 -5", ({}, 1.0)),
        ('m{a="x"}5', ({"a": "x"}, 5.0)),
        ('m { a = "x" , b="y" } 5', ({"a": "x", "b": "y"}, 5.0)),
        ('m{a="x",} 5', ({"a": "x"}, 5.0)),
        ("m{} 5", ({}, 5.0)),
        ('m{a=""} 5', ({"a": ""}, 5.0)),
        ('m{a="} 1",b="#"} 5', ({"a": "} 1", "b": "#"}, 5.0)),
        ('m{a="x"} 5 1.5 # {trace="a}b"} 0.5 2', ({"a": "x"}, 5.0)),
        ('m 5 # {trace="t"} 0.5', ({}, 5.0)),
        ('m{a="\\n\\\\\\"\\t"} 5', ({"a": '\n\\"\\t'}, 5.0)),
        ('{"m",a="x"} 5', ({"a": "x"}, 5.0)),
        ('{"m"} 5', ({}, 5.0)),
        ('m{"a.b c"="x"} 5', ({"a.b c": "x"}, 5.0)),
        ('m{ä="ö"} 5', ({"ä": "ö"}, 5.0)),
        ('m{a="1",a="2"} 5', ({"a": "2"}, 5.0)),
        ("m 1\r", ({}, 1.0)),
    ],
)
def test_a_line(line, want):
    """Blanks, escapes, time stamps, exemplars and quoted names in each place where they may stand."""
    for end in ("\n", ""):
        assert read(f"# TYPE m gauge\n{line}{end}") == [("m", *want)]
    assert malformed(f"# TYPE m gauge\n{line}\n") == 0


@pytest.mark.parametrize(
    "line", ["m", "m ", 'm{a="1" 3', "m{a=1 3", "m one", "m 1_000", "m 0x10", 'm{a="x}3', "m # 1", "="]
)
def test_a_line_that_is_none(line):
    """It costs itself only, and is counted."""
    body = f'# TYPE m gauge\nm{{a="0"}} 1\n{line}\nm 2\n'
    assert read(body) == [("m", {"a": "0"}, 1.0), ("m", {}, 2.0)]
    assert malformed(body) == 1


@pytest.mark.parametrize(
    "text", ["{a=1}", '{a="x",,b="y"}', '{a="x" b="y"}', '{="x"}', '{a="x",b}', '{a="x","m"}', '{"a","b"}']
)
def test_labels_that_are_none(text):
    """Told from labels that are there."""
    assert parse_labels(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("+1.5", 1.5), ("-.5", -0.5), ("5.", 5), ("1E3", 1000), ("+Inf", math.inf), ("-inf", -math.inf)],
)
def test_a_value(text, value):
    """All spellings of Go's numbers but those with other digits."""
    assert parse_value(text.encode()) == value


def test_types_hold_for_names():
    """Samples of a family may stand elsewhere, as long as its type is declared before; other names have no type."""
    assert read(
        "m 0\n# TYPE m gauge\n# TYPE h histogram\nm 1\nh_sum 2\nn 3\n# TYPE n gauge\n# TYPE m counter\nm 4\n"
    ) == [
        ("m", {}, 1.0),
        ("m", {}, 4.0),
    ]


@pytest.mark.parametrize("declared", ["# TYPE m GAUGE", "# TYPE m gauge x", "# TYPE m", "#TYPE m gauge", "# HELP m x"])
def test_no_declaration(declared):
    """What it says of no type is untyped, and left out."""
    assert read(f"{declared}\nm 1\n") == []


def test_comments_and_blank_lines():
    """HELP that speaks of TYPE, comments between samples, blank lines: no samples, and not malformed either."""
    body = "\n# HELP m # TYPE m counter\\n# TYPE\n# TYPE m gauge\n\n# a\nm 1\n  \n # b\nm 2\n\n"
    assert read(body) == [("m", {}, 1.0), ("m", {}, 2.0)]
    assert malformed(body) == 0


def test_windows_lines():
    """A carriage return before the end of a line belongs to nothing."""
    assert read('# TYPE m gauge\r\nm{a="b"} 1\r\n# EOF\r\n') == [("m", {"a": "b"}, 1.0)]


def test_only_wanted_families_are_read():
    """By the name of the family, and of a counter's total; malformed lines of others are not looked at."""
    body = "# TYPE a gauge\na 1\n# TYPE b gauge\nb one\n# TYPE c counter\nc_total 3\nc_created 4\n"
    assert read(body, {b"a"}.__contains__) == [("a", {}, 1.0)]
    assert read(body, {b"c_total"}.__contains__) == [("c_total", {}, 3.0)]
    assert read(body, {b"c"}.__contains__) == [("c_total", {}, 3.0)]
    assert read(body, {b"a_total"}.__contains__) == []  # a gauge has no total
    exposition = Exposition(body.encode())
    assert list(exposition.lines({b"a"}.__contains__)) == [Line(b"a", b"a", b"", 1.0)]
    assert (exposition.typed, exposition.malformed) == (3, 0)


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"_?[a-zA-Z][a-zA-Z0-9_]{0,5}", fullmatch=True)  # two lines at the start are reserved
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n"), max_size=12)
LABELS = st.dictionaries(LABEL_NAMES, TEXTS, max_size=4)
VALUES = st.floats() | st.integers(-(10**15), 10**15).map(float)
KINDS = st.sampled_from(["gauge", "counter", "histogram", "summary", "untyped"])


def escaped(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def spelt(value):
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN" if math.isnan(value) else repr(value))


def exposed(name, labels, value, more=""):
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{'{' + inside + '}' if inside else ''} {spelt(value)}{more}\n"


@st.composite
def families(draw):
    """Name -> (kind, samples), samples being labels that differ and a value each."""
    found = {}
    for name in draw(st.lists(NAMES, max_size=5, unique=True)):
        labels = draw(st.lists(LABELS, max_size=4, unique_by=lambda each: tuple(sorted(each.items()))))
        found[name] = (draw(KINDS), [(each, draw(VALUES)) for each in labels])
    return found


def same(left, right):
    """Equal, NaN being equal to NaN."""
    return repr(left) == repr(right)


@given(families(), st.sampled_from(["", " 1395066363000", " -1"]))
def test_what_is_written_is_read(found, stamp):
    """Any names, labels and numbers come back as they were, in their order."""
    body = "".join(
        f"# HELP {name} h\n# TYPE {name} {kind}\n"
        + "".join(exposed(name, labels, value, stamp) for labels, value in samples)
        for name, (kind, samples) in found.items()
    )
    want = [
        (name, labels, value)
        for name, (kind, samples) in found.items()
        if kind in {"gauge", "counter"}
        for labels, value in samples
    ]
    assert same(read(body), want)
    assert malformed(body) == 0


needs_prometheus = pytest.mark.skipif(
    importlib.util.find_spec("prometheus_client") is None, reason="prometheus_client is not installed"
)


def as_prometheus_reads(families_of_it, suffix):
    return [
        (sample.name.removesuffix(suffix) if family.type == "counter" else sample.name, sample.labels, sample.value)
        for family in families_of_it
        if family.type in {"gauge", "counter"}
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


@needs_prometheus
@given(families())
@example({"a": ("counter", [({}, 1.0)]), "b": ("gauge", [({"x": "\\n\n"}, math.inf)])})
def test_prometheus_reads_the_same_of_the_older_format(found):
    """Its own parser finds the same samples, but for the suffix that it appends to counters without one."""
    from prometheus_client.parser import text_string_to_metric_families

    found = {name: each for name, each in found.items() if not name.endswith(("_total", "_created"))}
    body = "".join(
        f"# TYPE {name} {kind}\n" + "".join(exposed(name, labels, value) for labels, value in samples)
        for name, (kind, samples) in found.items()
    )
    want = as_prometheus_reads(text_string_to_metric_families(body), "_total")
    assert same(sorted(map(repr, read(body))), sorted(map(repr, want)))


@needs_prometheus
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.tuples(st.booleans(), LABELS, VALUES), max_size=5)
)
def test_prometheus_reads_the_same_of_openmetrics(found):
    """With units, totals, exemplars, time stamps and the mark of the end."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    body = ""
    for name, (counts, labels, value) in found.items():
        if counts:
            count = abs(value) if math.isfinite(value) else 0.0
            body += f"# TYPE {name} counter\n" + exposed(f"{name}_total", labels, count, ' 12.5 # {id="}"} 1.0 2.5')
        else:
            unit = f"# UNIT {name}_seconds seconds\n# HELP {name}_seconds h\n"
            body += f"# TYPE {name}_seconds gauge\n" + unit + exposed(f"{name}_seconds", labels, value)
    body += "# EOF\n"
    want = as_prometheus_reads(text_string_to_metric_families(body), "")
    assert same(read(body), want)


@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from([b"# TYPE ", b"m", b" gauge", b"\n", b"{", b'"', b"\\", b"}", b"=", b" 1", b",", b"\r"]),
        max_size=40,
    ).map(b"".join)
)
def test_any_bytes_are_read_without_fail(noise):
    """No body raises, and what stands before it is read as ever."""
    got = list(Exposition(b"# TYPE m gauge\nm 1\n" + noise).lines(everything))
    assert got[0] == Line(b"m", b"m", b"", 1.0)
    for line in got:
        parse_labels(line.labels or b"{}")


LONG = LONGEST_LINE - 40


@pytest.mark.parametrize(
    "line",
    [
        b"m" * LONG,
        b"m" + b" " * LONG,
        b" " * LONG + b"=",
        b"m{" + b'x="y",' * (LONG // 6),
        b'm{x="' + b'\\"' * (LONG // 2),
        b"m{}" + b" " * LONG,
        b"m{" * (LONG // 2),
        b'm{x="y' + b'"' * LONG,
    ],
)
def test_no_line_is_slow(line):
    """Lines made to have a pattern go back and forth take the time of their length."""
    started = time.process_time()
    for line_ in (line, line + b"}"):
        list(Exposition(b"# TYPE m gauge\n" + line_ + b"\n").lines(everything))
        parse_labels(line_[1:] + b"}")
    assert time.process_time() - started < 1.0


def test_a_family_of_any_size_is_read():
    """Only single lines are bounded, not what one metric has of them."""
    body = "# TYPE m gauge\n" + "".join(f'm{{pool="a",rank="{i}"}} {i}\n' for i in range(5000))
    assert len(body) > LONGEST_LINE
    assert [value for _, _, value in read(body)] == list(range(5000))


def test_a_line_without_end_is_not_looked_at():
    """One of a megabyte costs its block, and is counted."""
    body = "# TYPE m gauge\nm 1\nm" + " " * (1 << 20) + "2\n# TYPE n gauge\nn 3\n"
    assert read(body) == [("n", {}, 3.0)]
    assert malformed(body) == 1
