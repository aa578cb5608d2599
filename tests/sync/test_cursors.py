"""Cursors that say what was not so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from runferry.logformat import load as load_run
from runferry.sync import Verdict
from runferry.sync.cursor import load
from support import logs
from support.syncrig import Rig, cursor, marker, unsealed


@pytest.mark.parametrize("stream", ["history", "events", "console"])
@pytest.mark.parametrize("count", [1, 4, 10**6])
def test_a_cursor_in_which_a_count_was_changed_is_none(rig: Rig, stream: str, count: int) -> None:
    """A flipped bit makes a number of another one: lines would be passed over, and the run called synced."""
    log = rig.run(rows=3, exit_code=None)
    rig.sync()
    document = json.loads(cursor(log).read_text())
    document["sent"][stream] = count
    cursor(log).write_text(json.dumps(document, indent=2) + "\n")
    more = [record for step in range(3, 9) for record in (logs.row(step), logs.sample(step), logs.output("x\n", step))]
    logs.make_log(log, *more, logs.exit_record(), append=True)
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    run, facts = rig.backend.runs["a1b2c3d4"], load_run(log)
    assert [row["_step"] for row in run.rows] == list(range(9))
    assert (len(run.stream("events")), len(run.stream("console"))) == (facts.sample_count, len(facts.console))
    assert load([cursor(log)])[0] is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runtime_before", 1e308), ("runtime_before", float("nan")), ("entity", "\ud800"), ("run_id", "a\0b"),
        ("files", {"a\0b": {"size": 1, "mtime_ns": 1, "sha256": "", "told": True}}), ("dropped", "abc"),
    ],
)  # fmt: skip
def test_a_cursor_of_what_cannot_be_is_none(rig: Rig, key: str, value: Any) -> None:
    """Names that no path or address can hold, and times that no run takes: all lines go to the same places again."""
    log = rig.run()
    rig.sync()
    cursor(log).write_text(json.dumps({**unsealed(log), key: value}))

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED, report.reason
    assert load([cursor(log)])[0] is not None
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 5


def test_a_cursor_with_its_seal_is_believed(rig: Rig) -> None:
    """Also one whose text cannot be written in the quick way, for it holds an unpaired surrogate."""
    log = rig.run()
    rig.sync()
    (kept, _) = load([cursor(log)])
    assert kept is not None
    kept.dropped = ["step 1: \ud800 (12.0 MB)"]
    kept.save(cursor(log))

    assert load([cursor(log)]) == (kept, "")


@pytest.mark.parametrize("odd", [{"nan": float("nan"), "deep": [[[float("-inf")]]]}, {"large": 10**30}])
def test_what_a_server_gave_stays_as_it_was(rig: Rig, odd: dict[str, Any]) -> None:
    """NaN, infinities and large integers of logs that are not here: a later sync of the one that is does not change them."""
    first = logs.make_log(
        rig.folder / "run-20260921_131320-n" / "run-n.wandb",
        *(logs.header_record(), logs.run_record("n", config=odd), logs.row(0)),
        *(logs.summary_record(odd), logs.exit_record()),
    )
    rig.settle(first)
    rig.sync()
    first.unlink()
    log = rig.folder / "run-20260921_141320-n" / "run-n.wandb"
    start = logs.START_S + 3600
    logs.make_log(log, logs.header_record(), logs.run_record("n", start=start, resume=True), logs.row(1, start=start))
    for step in (2, 3):
        rig.settle(log)
        rig.sync()
        logs.make_log(log, logs.row(step, start=start), append=True)
    rig.settle(log)
    rig.sync()

    run = rig.backend.runs["n"]
    assert [row["_step"] for row in run.rows] == [0, 1, 2, 3]
    assert {key: repr((run.summary or {})[key]) for key in odd} == {key: repr(value) for key, value in odd.items()}
    assert {key: repr(run.config[key]["value"]) for key in odd} == {key: repr(value) for key, value in odd.items()}


@pytest.mark.parametrize("parts", [1, 4])
def test_a_value_that_was_left_out_is_missing_without_the_cursor_too(rig: Rig, parts: int) -> None:
    """The server has a row at that line, which does not tell what was left out of it."""
    size = 12_000_000 // parts
    large = [logs.row(1, {f"large{part}": "x" * size}) for part in range(parts)]
    log = rig.folder / "run-20260921_141320-v" / "run-v.wandb"
    after = logs.row(2, {f"large{part}": 0 for part in range(parts)})
    logs.make_log(log, logs.header_record(), logs.run_record("v"), logs.row(0), *large, after, logs.exit_record())
    rig.settle(log)
    first = rig.only(rig.sync())
    cursor(log).unlink()

    report = rig.only(rig.sync())

    assert (report.verdict, report.missing) == (Verdict.PARTIAL, first.missing)
    assert report.missing[0].startswith("step 1: large")
    assert not marker(log).exists()
    assert [row["_step"] for row in rig.backend.runs["v"].rows] == [0, 1, 2]
