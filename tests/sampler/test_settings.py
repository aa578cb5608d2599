"""Settings, keys and counters: what goes in and what comes out."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import SamplerSettings
from runferry.sampler.keys import LONGEST_KEY, KeyTable
from runferry.sampler.rates import Counter


@pytest.mark.parametrize("interval", [0.0999, 0, -1, float("nan"), float("inf"), 1e20])
def test_interval_below_the_least_is_refused(interval):
    """An interval under 0.1 s, beyond what can be waited for, or that is no number, is a ValueError at once."""
    with pytest.raises(ValueError, match="interval"):
        SamplerSettings(interval=interval)


def test_defaults():
    """15 s, this process with its descendants, the root file system, no label."""
    settings = SamplerSettings()
    assert (settings.interval, settings.process_tree, settings.disk_paths) == (15.0, True, ("/",))
    assert settings.label is None


@pytest.mark.parametrize("text", ["/a,/b", "/a:/b", '["/a", "/b"]', ["/a", "/b"]])
def test_lists_may_come_from_the_environment(text):
    """Paths are accepted as a JSON list, separated by comma or colon, or as any sequence."""
    assert SamplerSettings(disk_paths=text).disk_paths == ("/a", "/b")


def test_list_must_be_a_list():
    """JSON that opens a list and is none is named."""
    with pytest.raises(ValueError, match="Expecting"):
        SamplerSettings(disk_paths='["/a"')


@pytest.mark.parametrize("text", ["amd=60, cpu = 2.5", '{"amd": 60, "cpu": "2.5"}', {"amd": 60.0, "cpu": 2.5}])
def test_mappings_may_come_from_the_environment(text):
    """Intervals of probes are accepted as pairs, as a JSON object or as any mapping."""
    assert SamplerSettings(probe_intervals=text).probe_intervals == {"amd": 60.0, "cpu": 2.5}


@pytest.mark.parametrize("intervals", [{"cpu": -1}, {"cpu": float("nan")}, {"cpu": 1e9}, {"cpu": "often"}, "cpu", 5])
def test_wrong_intervals_of_probes_are_refused(intervals):
    """What is no time to wait, or no mapping, is a ValueError at once."""
    with pytest.raises(ValueError, match=r"interval|mapping|pairs|float"):
        SamplerSettings(probe_intervals=intervals)


@pytest.mark.parametrize(
    ("given_filters", "filters"),
    [
        (None, ()),
        ("a.*,b", ("a.*", "b")),
        ('["a:b"]', ("a:b",)),
        ('{"a": {"pod": "x"}}', {"a": {"pod": "x"}}),
        ({"a": {}}, {"a": {}}),
    ],
)
def test_filters_are_patterns_or_a_mapping(given_filters, filters):
    """A mapping without labels is kept: it means any labels."""
    assert SamplerSettings(open_metrics_filters=given_filters).open_metrics_filters == filters


def test_settings_go_to_a_helper_and_back():
    """All settings that are shown survive the way to a helper as JSON."""
    settings = SamplerSettings(
        disk_paths=("/a",), probe_intervals={"amd": 60}, open_metrics_filters={"a": {"b": "c"}}, gpu_type="G"
    )
    assert SamplerSettings(**json.loads(json.dumps(settings.shown()))) == settings


def test_secrets_are_not_shown():
    """Headers and URLs may hold one: they are neither in the representation nor told to helpers."""
    settings = SamplerSettings(
        open_metrics_http_headers={"A": "5ec2e7"},
        open_metrics_endpoints={"a": "http://u:5ec2e7@host/"},
        dcgm_exporter="http://u:5ec2e7@host/",
    )
    assert "5ec2e7" not in repr(settings)
    assert "5ec2e7" not in json.dumps(settings.shown())
    assert settings.shown()["interval"] == settings.interval


NUMBERS = st.integers(-(2**64), 2**64)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.one_of(st.floats(), NUMBERS, st.booleans(), st.none())))
def test_values_are_finite_numbers_under_sorted_keys(values):
    """Whatever probes write, a sample is JSON of finite numbers, sorted by key, and loses no finite one."""
    clean = KeyTable(label=None, cap=1000, warn=lambda _: None).clean(values)
    assert list(clean) == sorted(clean)
    assert json.loads(json.dumps(clean, allow_nan=False)) == clean
    numbers = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
    assert clean == numbers
    assert not any(isinstance(value, bool) for value in clean.values())


def test_label_is_appended_to_every_key():
    """A label keeps writers of one run apart; a key that has one gets a second."""
    table = KeyTable(label="rank-3", cap=10, warn=lambda _: None)
    assert table.clean({"cpu": 1.0, "gpu.0.temp/l:n1": 2.0}) == {"cpu/l:rank-3": 1.0, "gpu.0.temp/l:n1/l:rank-3": 2.0}


def test_cap_drops_new_keys_with_one_warning():
    """Keys over the cap are dropped, known ones go on, and the user is told once."""
    warnings = []
    table = KeyTable(label=None, cap=2, warn=warnings.append)
    assert list(table.clean({"a": 1, "b": 2, "c": 3})) == ["a", "b"]
    assert list(table.clean({"c": 1, "d": 1, "b": 2})) == ["b"]
    assert len(warnings) == 1
    assert "2 metric keys" in warnings[0]


def test_long_keys_are_dropped():
    """A key of more than 256 bytes never enters a record."""
    warnings = []
    table = KeyTable(label=None, cap=10, warn=warnings.append)
    assert table.clean({"é" * (LONGEST_KEY // 2): 1, "é" * LONGEST_KEY: 1}) == {"é" * (LONGEST_KEY // 2): 1}
    assert len(warnings) == 1


def test_keys_with_half_a_character():
    """A key of JSON's escapes, or of bytes that are no UTF-8, is a key like others; the record's writer replaces them."""
    table = KeyTable(label=None, cap=10, warn=lambda _: None)
    assert table.clean({"a\ud800": 1, "b\udcff": 2, "c": 3}) == {"a\ud800": 1, "b\udcff": 2, "c": 3}


def test_counter_sums_rises_and_rebases_on_reset():
    """A reset neither wraps nor counts; what follows it does."""
    counter = Counter()
    assert [counter.since_first(raw) for raw in (100, 150, 30, 50, 50)] == [0, 50, 50, 70, 70]
    rises = Counter()
    assert [rises.rise(raw) for raw in (5, 9, 2, 3, 3)] == [None, 4, None, 1, 0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"interval": "x"}, "sampling interval 'x': expected a number of seconds"),
        ({"interval": None}, "sampling interval None: expected"),
        ({"probe_intervals": {"cpu": "x"}}, "interval of probe 'cpu' 'x': expected"),
    ],
)
def test_seconds_that_are_none(given, words):
    """ValueError, which names the setting."""
    with pytest.raises(ValueError, match=words):
        SamplerSettings(**given)
