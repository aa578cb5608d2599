"""Rows that were written in parts because they were open for long: one line at the server, from whatever the log held when."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import load
from runferry.sync import Verdict, lines
from runferry.sync.report import Started
from runferry.sync.transport import Request
from runferry.writer import records
from runferry.writer.journal import Journal
from runferry.writer.metrics import define
from runferry.writer.recorder import Recorder
from runferry.writer.segment import Place
from support import logs
from support.clock import FakeClock
from support.faultfs import FaultFS
from support.syncrig import Rig, cursor, unsealed

RUN = "a1b2c3d4"


def part(step: int | bytes | None, at: float, **values: Any) -> Any:
    """A record of a row, `at` seconds after the start."""
    record = logs.row(None, {**values, **({} if step is None else {"_step": step}), "_timestamp": at})
    if isinstance(step, int):
        record.history.step.num = step
    return record


def make(rig: Rig, *parts: Any, append: bool = False) -> Path:
    """A log of these records that still goes on; `append` adds to it."""
    log = rig.folder / f"run-{RUN}.wandb"
    logs.make_log(log, *([] if append else [logs.run_record(RUN)]), *parts, append=append)
    rig.settle(log)
    return log


def rows(rig: Rig) -> list[dict[str, Any]]:
    return rig.backend.runs[RUN].rows


def test_parts_of_a_step_are_one_line(rig: Rig) -> None:
    """Later values win, nested ones by themselves; broken ones do not and are named; records between parts make no difference."""
    log = make(
        rig,
        part(0, 1, a=1, b=1),
        logs.output("between\n"),
        logs.sample(1),
        part(0, 2, a=2, n={"x": 1}),
        part(0, 3, c=3, a=b"{"),
        part(1, 4, a=5),
        logs.exit_record(),
    )

    report = rig.only(rig.sync())

    assert (report.verdict, report.rows, report.rows_sent) == (Verdict.PARTIAL, 2, 2)
    assert [entry.split(" (")[0] for entry in report.missing] == ["rows: a"]
    assert [event.rows for event in rig.events if isinstance(event, Started)] == [2]
    assert rows(rig) == load(log).rows
    assert rows(rig)[0] == {"a": 2, "b": 1, "n": {"x": 1}, "c": 3, "_step": 0, "_timestamp": 3}


def test_a_lost_part_makes_no_second_row(rig: Rig) -> None:
    """Damage in the midst of a row costs what lay there."""
    log = make(rig, part(0, 1, a=1), part(0, 2, lost="x" * 30), part(0, 3, c=3), part(1, 4, a=2))
    data = bytearray(log.read_bytes())
    data[data.index(b"xxxxxx")] ^= 0xFF
    log.write_bytes(data)
    rig.settle(log)

    report = rig.only(rig.sync())

    assert (report.verdict, report.rows) == (Verdict.PARTIAL, 2)
    assert (
        rows(rig)
        == load(log).rows
        == [{"a": 1, "c": 3, "_step": 0, "_timestamp": 3}, {"a": 2, "_step": 1, "_timestamp": 4}]
    )


@pytest.mark.parametrize(
    "steps", [[5, 3, 5], [5, 3, 3, 6], [None, None], [0, None, 0], [5, 7, 3, 7], ["1.0", "1.0"], ["true", "true"]]
)
def test_what_does_not_follow_directly_is_a_row_of_its_own(rig: Rig, steps: list[Any]) -> None:
    """A late row ends the open one; rows without a step, or with one that is no whole number, are never joined."""
    log = make(
        rig,
        *(
            part(None, at, n=at) if step is None else part(step.encode() if isinstance(step, str) else step, at, n=at)
            for at, step in enumerate(steps)
        ),
    )
    expected = [
        step
        for at, step in enumerate(steps)
        if at == 0 or step is None or step != steps[at - 1] or isinstance(step, str)
    ]

    report = rig.only(rig.sync())

    assert (report.rows, len(rows(rig)), load(log).row_count) == (len(expected),) * 3


def test_an_open_row_is_sent_and_then_written_again_at_its_line(rig: Rig) -> None:
    """Each part that the log grows by replaces the line; nothing is counted twice, and without news nothing is asked."""
    log = make(rig, part(0, 1, a=0), part(1, 2, a=1))
    assert rig.only(rig.sync()).rows_sent == 2
    make(rig, logs.output("more\n"), part(1, 3, b=1), append=True)

    report = rig.only(rig.sync())

    assert (report.verdict, report.rows, report.rows_sent) == (Verdict.LIVE, 2, 0)
    assert rows(rig)[1] == {"a": 1, "b": 1, "_step": 1, "_timestamp": 3}
    make(rig, part(1, 4, a=7), part(2, 5, a=2), append=True)
    assert rig.only(rig.sync()).rows_sent == 1
    assert rows(rig) == load(log).rows
    assert rig.backend.written == {
        (RUN, "history", 0): 1, (RUN, "history", 1): 3, (RUN, "history", 2): 1, (RUN, "console", 0): 1,
    }  # fmt: skip
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    assert rig.backend.requests == []


def test_a_body_never_ends_within_a_row(rig: Rig) -> None:
    """However little one holds, each line is sent once, and the cursor after each of them knows where to go on."""
    log = make(
        rig, *(part(step, at, **{f"k{at}": "x" * 300}) for step in range(20) for at in range(3)), logs.exit_record()
    )

    rig.sync(body_bytes=2_000)

    assert len(rig.backend.bodies()) > 10
    assert rows(rig) == load(log).rows
    assert set(rig.backend.written.values()) == {1}


class Killed(BaseException):
    """Nothing of ours catches it."""


@dataclass
class Death:
    """Ends the sync at one of its requests, before or after the server has taken it."""

    number: int
    moment: str

    def __call__(self, count: int, _: str, __: Request) -> None:
        if count == self.number:
            raise Killed


@pytest.mark.parametrize("body_bytes", [400, 8_000_000])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sync_that_is_killed_at_any_request_of_a_growing_row(tmp_path: Path, body_bytes: int, moment: str) -> None:
    """Killed at each request of each of three syncs, between which the open row grows: in the end the log's rows."""
    stages = [
        [part(0, 1, a="x" * 300), part(1, 2, a=1), part(1, 3, b=1)],
        [part(1, 4, a=2), logs.output("line\n"), part(1, 5, c="y" * 300)],
        [part(1, 6, d=3), part(2, 7, a=1), part(2, 8, a=2)],
    ]
    killed = 0
    for stage in range(len(stages)):
        for number in itertools.count(1):
            folder = tmp_path / f"{stage}-{number}"
            folder.mkdir()
            died = growing(Rig(folder), stages, stage, Death(number, moment), body_bytes)
            if not died:
                break
            killed += 1
    assert killed >= 12


def growing(rig: Rig, stages: list[list[Any]], stage: int, death: Death, body_bytes: int) -> bool:
    """Sync a log at each of its stages, and once more; whether the sync of one stage died on its way."""
    died = False
    for at, records_ in enumerate(stages):
        log = make(rig, *map(copied, records_), append=at > 0)
        rig.backend.requests.clear()
        if at == stage:
            setattr(rig.backend, death.moment, death)
        try:
            rig.sync(body_bytes=body_bytes)
        except Killed:
            died = True
        setattr(rig.backend, death.moment, lambda *_: None)
        if died and death.number % 2:  # in turn the next sync sees the same log, or one that has grown
            rig.sync(body_bytes=body_bytes)
            assert rows(rig) == load(log).rows
    rig.sync(body_bytes=body_bytes)
    assert rows(rig) == load(log).rows
    rig.backend.forget()
    rig.sync(body_bytes=body_bytes)
    assert rig.backend.requests == []
    return died


def test_a_last_row_that_had_no_room_is_not_forgotten(rig: Rig) -> None:
    """Killed before the body of the last row, whose values change nothing in the summary: the next sync sends it."""
    row = part(None, 1, a="x" * 300)
    make(rig, copied(row))
    rig.sync()
    log = make(rig, copied(row), copied(row), append=True)
    rig.backend.forget()
    rig.backend.before = Death(4, "before")
    with pytest.raises(Killed):
        rig.sync(body_bytes=400)
    assert rig.backend.operations() == ["RunResumeStatus", "UpsertBucket", "stream", "stream"]
    rig.backend.before = lambda *_: None

    rig.sync()

    assert len(rows(rig)) == load(log).row_count == 3


def test_the_parts_of_a_row_fill_no_memory() -> None:
    """What no line has room for goes while they are gathered."""
    gathered = lines.Rows()
    for at in range(12):
        gathered.add(((f"k{at}",), ("_step",)), [b'"' + b"x" * 9_000_000 + b'"', b"0"], at)
        assert gathered.latest is not None
        assert sum(map(len, gathered.latest.items()[1])) <= 4 * lines.MAX_LINE
    assert len(gathered.dropped) >= 8


def copied(record: Any) -> Any:
    return logs.messages.Record.FromString(record.SerializeToString())


def test_a_cursor_of_a_version_that_sent_each_part_starts_again(rig: Rig) -> None:
    """Its lines were those of records; without parts they are the same, and the cursor is believed."""
    log = make(rig, part(0, 1, a=0), part(0, 2, b=1), part(1, 3, a=1))
    rig.sync()
    aged(log, sent=3)
    make(rig, part(2, 4, a=2), part(3, 4, a=2), append=True)

    rig.sync()

    assert rows(rig) == load(log).rows
    assert json.loads(cursor(log).read_text())["version"] == 2


def test_a_cursor_of_an_older_version_is_believed_where_it_says_the_same(rig: Rig) -> None:
    """A log without parts goes on where the older version stopped."""
    log = make(rig, part(0, 1, a=0), part(1, 3, a=1))
    rig.sync()
    aged(log, sent=2)
    make(rig, part(2, 4, a=2), append=True)

    assert rig.only(rig.sync()).rows_sent == 1

    assert set(rig.backend.written.values()) == {1}


def aged(log: Path, *, sent: int) -> None:
    """Make its cursor one of version 1."""
    document = unsealed(log)
    document["version"], document["sent"]["history"] = 1, sent
    cursor(log).write_text(json.dumps(document))


def test_a_sync_without_its_cursor_finds_the_place_of_a_row_in_parts(rig: Rig) -> None:
    """The server's last row is the log's, or was when it had fewer parts: either way the rows end up as the log has them."""
    log = make(rig, logs.environment_record(), part(0, 1, a=0), part(1, 2, a=1), part(1, 3, b=1))
    rig.sync()
    for at in (3, 4):
        cursor(log).unlink()
        assert rig.only(rig.sync()).verdict is Verdict.LIVE
        assert rows(rig) == load(log).rows
        make(rig, part(1, at + 1, c=at), append=True)


def test_parts_that_are_too_much_for_a_line_are_named_and_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fits, together they don't: the largest go, once named, also when the line is written again."""
    monkeypatch.setattr(lines, "MAX_LINE", 10_000)
    monkeypatch.setattr(lines, "_MAX_ROW", 40_000)
    make(rig, *(part(0, at, **{f"k{at}": "x" * 9_000, f"s{at}": at}) for at in range(6)))
    rig.sync()
    make(rig, part(0, 9, last=1), append=True)

    report = rig.only(rig.sync())

    (line,) = rig.backend.runs[RUN].stream("history")
    assert len(line) <= lines.MAX_LINE
    assert {key: value for key, value in rows(rig)[0].items() if key[0] == "s"} == {f"s{at}": at for at in range(6)}
    assert rows(rig)[0]["last"] == 1
    assert len(report.missing) == len(set(report.missing)) == 5


def test_segments_are_never_joined(rig: Rig) -> None:
    """A resumed run that logs its last step again has it twice, where both count: the logs are counted apart."""
    for number, resume in ((1, False), (2, True)):
        start = logs.START_S + 100 * number
        log = rig.folder / f"run-2026092{number}_141320-seg" / "run-seg.wandb"
        logs.make_log(
            log,
            logs.run_record("seg", start=start, resume=resume),
            logs.row(5, {"n": number}, start=start),
            logs.row(5, {f"m{number}": 1}, start=start),
        )
        rig.settle(log, 3600)

    report = rig.sync(overlap="both")

    assert [run.rows for run in report.runs] == [1, 1]
    assert [(row["_step"], row["n"]) for row in rig.backend.runs["seg"].rows] == [(5, 1), (5, 2)]


def test_logs_that_lost_their_first_records_are_not_joined_either(rig: Rig) -> None:
    """Each log is counted by itself."""
    for number in (1, 2):
        log = rig.folder / f"run-2026092{number}_141320-seg" / "run-seg.wandb"
        data = bytearray(logs.make_log(log, logs.run_record("seg"), logs.row(5, {"n": number})).read_bytes())
        data[20] ^= 0xFF
        log.write_bytes(data)
        rig.settle(log, 3600)

    report = rig.sync(project="p")

    assert [run.rows for run in report.runs] == [1, 1]
    assert [row["n"] for row in rig.backend.runs["seg"].rows] == [1, 2]


# -- whatever is logged, whenever it is written --------------------------------------------------------------------------

VALUES = st.integers(0, 9) | st.floats(allow_nan=False, allow_infinity=False, width=16) | st.text(max_size=3)
LOGGED = st.dictionaries(
    st.sampled_from(["a", "b", "m", ("n", "x"), ("n", "y"), ("n",), "_timestamp"]), VALUES, min_size=1, max_size=4
)
CALL = st.tuples(st.just("log"), LOGGED, st.none() | st.integers(0, 2), st.sampled_from([None, True, False]))
CALLS = st.lists(CALL | st.sampled_from([("flush",), ("wait",), ("sync",)]), max_size=14)


class Writing:
    """A recorder on a disk in memory, and what it wrote as a log."""

    def __init__(self, *, hold: bool = True) -> None:
        self.clock, self.fs = FakeClock(), FaultFS()
        opening = [records.header("1"), records.run(records.RunInfo(RUN, "p", start_ns=1), ())]
        self.journal = Journal(self.fs, Place(Path("/d"), RUN), self.clock, lambda _: opening, lambda _: None)
        self.journal.open()
        self.recorder = Recorder(
            self.journal, self.clock, lambda _: None, start_s=self.clock.monotonic(), hold_steps=hold
        )
        self.recorder.define(define("m", summary="min,max,mean,first,last"))
        self.step = 0

    def log(self, values: dict[Any, Any], rise: int | None, commit: bool | None) -> None:
        """One call; steps rise by `rise` from call to call."""
        if rise is not None:
            self.step = max(self.step + rise, self.recorder.step)
        values = {key: 5.0 if key == "_timestamp" else value for key, value in values.items()}
        self.recorder.row(self.clock.monotonic(), self.step if rise is not None else None, commit, values, {})
        self.clock.advance(0.125)

    def write(self, log: Path) -> Path:
        self.journal.write()
        log.write_bytes(self.fs.logs()[0])
        return log


@settings(max_examples=80, deadline=None)
@given(CALLS, st.booleans())
def test_when_parts_are_written_makes_no_difference(calls: list[Any], hold: bool) -> None:
    """Rows at the server and in the fold, and the summary, are those of the same calls without one early write."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        log, plain = rig.folder / f"run-{RUN}.wandb", Path(folder) / "plain"
        parts, whole = Writing(hold=hold), Writing()
        for name, *call in calls:
            if name == "log":
                parts.log(*call)
                whole.log(*call)
            elif name == "wait":
                parts.clock.advance(1)
                whole.clock.advance(1)
                parts.recorder.tick()
            else:
                parts.recorder.flush()
            if name == "sync":
                rig.settle(parts.write(log))
                rig.sync()
        for writing, path in ((parts, log), (whole, plain)):
            writing.recorder.finish(0)
            writing.write(path)
        rig.settle(log)

        report = rig.only(rig.sync())

        expected, found = load(plain), load(log)
        assert report.verdict is Verdict.SYNCED
        assert rows(rig) == found.rows == expected.rows
        assert [report.rows, found.row_count] == [len(expected.rows)] * 2
        assert found.summary == expected.summary
