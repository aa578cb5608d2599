"""The documented guide values: one warning each, with the numbers, and never a loss."""

from __future__ import annotations

import pytest
from runferry.writer import guides
from runferry.writer.guides import Guides


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(told):
    topics = set()

    def warn_once(topic, text):
        if topic not in topics:
            topics.add(topic)
            told.append(text.partition(". ")[0])

    return Guides(warn_once)


def test_calls_a_minute(watch, told):
    """1,000 calls are well, the next within the same minute is named; a new minute begins with a call after the old."""
    for minute in range(3):
        for number in range(1000):
            watch.call(1000.0 + 60 * minute + number * 0.05, 1)
    assert told == []

    for number in range(3000):
        watch.call(5000.0 + number / 100, 1)
    assert told == ["1,001 calls of log within 10.0 s are more than 1,000 a minute"]


@pytest.mark.parametrize(("each", "shown"), [(0.0, "1 ms"), (0.000_02, "20 ms"), (0.002, "2.0 s")])
def test_a_loop_without_pause(watch, told, each, shown):
    """However short the time was, the sentence has one, and comes once."""
    for number in range(5000):
        watch.call(5000.0 + number * each, 1)
    assert told == [f"1,001 calls of log within {shown} are more than 1,000 a minute"]


def test_values_a_minute(watch, told):
    """100,000 values are well, more are named once, however the calls cut them."""
    for number in range(100):
        watch.call(number / 10, 1000)
    assert told == []

    for number in range(300):
        watch.call(10 + number / 10, 1500)
    assert told == ["101,500 values logged within 10.0 s are more than 100,000 a minute"]


def test_sizes(watch, told):
    """A value over 1 MB by its key, a row over 25 MB, a config over 10 MB."""
    small, large = b"1" * 1_000_000, b"1" * 1_500_000
    watch.row(1_100_000, [("a",)], [small])
    watch.config(10_000_000)
    assert told == []

    for _ in range(2):
        watch.row(26_500_000, [("a",), ("n", "b")], [small, large])
        watch.config(12_340_000)
    assert told == [
        "a row of 26.5 MB is more than 25 MB",
        "n.b: a value of 1.5 MB is more than 1 MB",
        "a config of 12.3 MB is more than 10 MB",
    ]


def test_files(watch, told):
    """The file after the thousandth is named."""
    for number in range(1200):
        assert bool(told) == (number > 1000)
        watch.file()
    assert told == ["1,001 files are more than 1,000 in one run"]


def test_a_run_names_what_it_passes_and_drops_nothing(begin, state, monkeypatch):
    """All of it is in the log; each kind of excess is named once."""
    for name in ("MAX_VALUE", "MAX_CONFIG", "MAX_CALL"):
        monkeypatch.setattr(guides, name, 1000)
    for name in ("MAX_CALLS", "MAX_VALUES"):
        monkeypatch.setattr(guides, name, 20)
    warnings = []
    run = begin({"long": "x" * 600}, warn=warnings.append)
    run.config["more"] = "y" * 600
    for number in range(50):
        run.log({"n": number})
    run.log({"text": "z" * 2000, "a": 1})
    found = state(*run.finish().paths)

    assert len(found.rows) == 51
    assert (found.config["long"], found.config["more"], found.rows[-1]["text"]) == ("x" * 600, "y" * 600, "z" * 2000)
    said = sorted(warning.split("(setting")[0] for warning in warnings)
    assert [text.partition(" ")[2].split(" more than")[0].split(" within")[0] for text in said] == [
        "calls of log",
        "values logged",
        "config of 0.0 MB is",
        "row of 0.0 MB is",
        "a value of 0.0 MB is",
    ]
    assert all("Nothing is left out" in text for text in said)


def test_the_setting_ends_them(begin, monkeypatch):
    """`log_guides=False`: nothing is said."""
    monkeypatch.setattr(guides, "MAX_CALLS", 5)
    warnings = []
    run = begin(warn=warnings.append, log_guides=False)
    for number in range(20):
        run.log({"n": number})
    run.finish()

    assert warnings == []
