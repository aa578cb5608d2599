"""The peer as judge: its reader prints our logs, record by record, with equal values."""

from __future__ import annotations

import json
import math
import time

import pytest
from runferry.logformat import read_records
from support import peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]


def judged(run, report):
    """What the peer's reader prints, after it was found to be what our reader reads."""
    (log,) = report.paths
    theirs = peer.inspect(log)
    ours = [peer.printed(position, record) for position, record in enumerate(read_records(log), 1)]
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert peer.same(our, their), (our, their)
    return theirs


def histories(entries):
    """The rows that the peer printed, without our own keys."""
    rows = [entry["history"]["item"] for entry in entries if entry["type"] == "history"]
    return [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]


def test_every_kind_of_record(begin):
    """All that a run can say, printed by the peer as it was said."""
    run = begin({"lr": 0.1, "model": {"layers": 2}, "none": None, "big": 2**70, "nan": math.nan}, project="p", name="n", tags=("a", "b"),
                notes="o", group="g", job_type="j", run_id="abc", disable_stats=False, disable_meta=False)  # fmt: skip
    run.define_metric("epoch", hidden=True)
    run.define_metric("val/*", step_metric="epoch", summary="min,max,mean,first,last", goal="minimize")
    run.log({"loss": 0.5, "epoch": 1, "val/acc": 0.25})
    run.log({"val/acc": 0.75}, step=10)
    run.config["lr"] = 0.2
    run.config["model"] = {"heads": 4}
    del run.config["none"]
    run.summary["best"] = 0.9
    run.summary["nest"] = {"a": {"b": 1}}
    run.alert("title", "text", level="WARN", wait_duration=60)
    run.mark_preempting()
    run.console("stdout", "out\rput\n")
    run.console("stderr", "é…\n")
    run.name = "renamed"
    time.sleep(0.3)
    entries = judged(run, run.finish(3))
    by_kind = {}
    for entry in entries:
        by_kind.setdefault(entry["type"], []).append(entry)

    assert {"header", "run", "telemetry", "environment", "stats", "metric", "history", "config", "summary"} <= set(
        by_kind
    )
    assert {"alert", "preempting", "output_raw", "exit"} <= set(by_kind)
    assert [entry["type"] for entry in entries[:2]] == ["header", "run"]
    assert histories(entries) == [
        {"loss": 0.5, "epoch": 1, "val/acc": 0.25},
        {"val/acc": 0.75, "epoch": 1},
    ]
    assert [entry["history"].get("step") for entry in by_kind["history"]] == [{"num": 0}, {"num": 10}]
    view = peer.summary(run.log_path)
    text = json.dumps(view)
    assert "renamed" in text
    assert "failed" in text


def test_values(begin):
    """Numbers that are none, nested keys, lists, text of every kind, integers at the edges."""
    row = {
        "nan": math.nan,
        "inf": math.inf,
        "minus": -math.inf,
        "zero": -0.0,
        "small": 5e-324,
        "large": 1.7976931348623157e308,
        "int": 2**63 - 1,
        "least": -(2**63),
        "text": 'quote " back \\ line \n \u2028 \U0001f600 <&>',
        "list": [1, [2.5, None], "x", True],
        "none": None,
        "true": True,
        "a": {"b": {"c": 1}},
        "slash/and.dot": 1,
        "bad \ud800": "\udfff",
    }
    run = begin()
    run.log(row)
    entries = judged(run, run.finish())
    (found,) = histories(entries)

    assert (found["nan"], found["inf"], found["minus"]) == ("NaN", "Infinity", "-Infinity")
    assert (found["int"], found["least"], found["large"]) == (2**63 - 1, -(2**63), 1.7976931348623157e308)
    assert found["text"] == row["text"]
    assert found["list"] == row["list"]
    assert found["a.b.c"] == 1
    assert found["bad \ufffd"] == "\ufffd"


def test_records_around_every_block_edge(begin):
    """Rows of 0 to 70,000 bytes, so that chunks end at and around the edges of blocks."""
    run = begin()
    sizes = [0, 1, 32_000, 600, 7, 32_768, 70_000, *range(32_600, 32_768, 7), 3, 65_536]
    for size in sizes:
        run.log({"s": "x" * size})
    entries = judged(run, run.finish())

    assert [len(row["s"]) for row in histories(entries)] == sizes


def test_a_killed_run(begin, tmp_path):
    """Up to its last record, without a complaint: every drain ends behind a whole record."""
    run = begin(durability="record")
    for number in range(300):
        run.log({"n": number})
    copy = tmp_path / run.log_path.name
    copy.write_bytes(run.log_path.read_bytes())
    entries = peer.inspect(copy)

    assert [row["n"] for row in histories(entries)] == list(range(300))
    assert all("type" in entry for entry in entries)
