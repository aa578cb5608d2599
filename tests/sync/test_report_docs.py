"""The documentation names every event with every field, and every metric."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path

import pytest
from runferry.sync.compare import Check, Verification
from runferry.sync.counters import Counters
from runferry.sync.integrity import Integrity
from runferry.sync.metricsfile import MetricsFile
from runferry.sync.report import EVENTS, Event, Finished, RunReport, Verdict
from support.openmetrics import parse

PAGE = (Path(__file__).parents[2] / "docs" / "sync.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_every_event_is_documented_as_it_is(event: type[Event]) -> None:
    """Its type has a row in the table, and the row names its fields, no more and no less."""
    outside = re.sub(r"\([^()]*\)", "", ROWS[event.type])  # in brackets stands what the values mean

    assert set(re.findall(r"`(\w+)`", outside)) == {field.name for field in dataclasses.fields(event)}


def test_every_event_is_in_the_list() -> None:
    """A new event cannot be forgotten there: the list holds all of them, by distinct types."""
    assert set(Event.__subclasses__()) == set(EVENTS)
    assert len({event.type for event in EVENTS}) == len(EVENTS)


def test_every_metric_is_documented(tmp_path: Path) -> None:
    """The table names the metrics of a sync that has ended well, and no other."""
    file = MetricsFile(tmp_path / "m.prom", Counters(), now=time.time, monotonic=time.monotonic, version="1")
    file(RunReport("a", "r", Verdict.SYNCED, ""))
    file(Finished(0))
    file.close()

    assert set(re.findall(r"`(runferry_sync_\w+)`", PAGE)) == set(parse((tmp_path / "m.prom").read_text()))


@pytest.mark.parametrize("kind", [Verification, Check, Integrity], ids=lambda kind: kind.__name__)
def test_what_verify_prints_is_documented(kind: type) -> None:
    """Every field of its objects is named in its section."""
    section = PAGE.split("## Verify")[1].split("\n## ")[0]

    assert {field.name for field in dataclasses.fields(kind)} <= set(re.findall(r"`(\w+)`", section))
