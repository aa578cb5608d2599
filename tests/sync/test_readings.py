"""Passes over a log that grows: each reads what is new, and the server holds what a sync of the whole log would leave."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import LogReader, RunState
from runferry.sync import SyncSettings, Verdict, readings, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.cursor import Cursor, Lines, Target
from runferry.sync.places import Places
from runferry.sync.placing import Place
from runferry.sync.plan import LogHead
from runferry.sync.readings import Mark, Reading, Readings, ReadLog
from runferry.sync.scan import Facts, Scan
from runferry.sync.segment import Segment
from runferry.sync.transport import Answer
from support import logs
from support.fakebackend import KEY, URL, FakeBackend, FakeRun
from support.syncrig import on
from support.watchrig import Story, WatchRig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchRig:
    """Every log is large enough for its reading to be kept."""
    monkeypatch.setattr(readings, "_SMALLEST", 0)
    return WatchRig(tmp_path)


class Meter:
    """Counts the bytes that are read of logs as records, and the passes that go on where the one before stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.taken = 0
        read, take = LogReader._read, Readings.take

        def counted(reader: LogReader, at: int, size: int) -> bytes:
            data = read(reader, at, size)
            self.bytes += len(data)
            return data

        def noted(kept: Readings, *arguments: Any) -> Any:
            found = take(kept, *arguments)
            self.taken += found is not None
            return found

        monkeypatch.setattr(LogReader, "_read", counted)
        monkeypatch.setattr(Readings, "take", noted)

    def spent(self) -> int:
        """Bytes since the last time."""
        count, self.bytes = self.bytes, 0
        return count


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(monkeypatch)


def rows(first: int, count: int, **extra: Any) -> list[Any]:
    """Rows of some hundred bytes."""
    return [
        logs.row(step, {"loss": 1 / (1 + step), "text": "x" * 300, **extra}) for step in range(first, first + count)
    ]


def fresh(rig: WatchRig, *found: Path) -> FakeRun:
    """What one sync of the whole logs leaves on a server of its own."""
    backend = FakeBackend()
    backend.features = rig.backend.features
    folder = rig.folder.parent / "copies" / str(random.random())
    for log in found:
        copy = folder / log.parent.name / log.name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(log.read_bytes())
        rig.settle(copy, 0)
    settings = SyncSettings(base_url=URL, state_dir=rig.state)
    sync([folder], settings, key=ApiKey(KEY, base_url=URL, source="test"), transport=backend, clock=rig.clock)
    return backend.runs["live"]


def test_a_pass_reads_what_is_new(rig: WatchRig, meter: Meter) -> None:
    """A log of 8 MB that grows by ten rows costs ten rows, twice, and a block's rest; nothing is sent twice."""
    log = rig.begin(rows=0)
    rig.grow(log, *rows(0, 20_000))
    spent: list[tuple[int, int]] = []
    size = [log.stat().st_size]

    def grow(first: int) -> Any:
        def happen() -> None:
            spent.append((meter.spent(), log.stat().st_size - size[0]))
            size[0] = log.stat().st_size
            rig.grow(log, *rows(first, 10))

        return happen

    steps = [grow(20_000 + 10 * number) for number in range(20)]
    rig.watch(log.parent, story=Story(*steps, lambda: rig.grow(log, logs.exit_record(0))))

    assert spent[0][0] > 2 * size[0] * 0.9  # the first pass reads it twice
    assert meter.taken == 21
    for cost, new in spent[1:]:
        assert cost < 5 * new + 3 * 40_000  # heads are read too, to see which run it is
    assert set(rig.backend.written.values()) == {1}
    assert len(rig.backend.runs["live"].rows) == 20_200


def test_what_a_failed_pass_saw_is_forgotten(rig: WatchRig, meter: Meter) -> None:
    """The next one reads the log from its start, and everything arrives."""
    log = rig.begin()

    def fail() -> None:
        rig.backend.before = on("stream", Answer(400, {}, b"no"), times=1)
        rig.grow(log, logs.row(2))

    end = [None] * 10
    report = rig.watch(
        log.parent, story=Story(None, fail, *end, lambda: rig.grow(log, logs.row(3), logs.exit_record(0)))
    )

    assert rig.only(report).verdict is Verdict.SYNCED
    assert len(rig.backend.runs["live"].rows) == 4


def test_a_run_that_the_server_lost_is_sent_from_its_start(rig: WatchRig, meter: Meter) -> None:
    """Though only its tail was read."""
    log = rig.begin()
    story = Story(
        lambda: rig.grow(log, logs.row(2)),
        lambda: (rig.backend.runs.clear(), rig.grow(log, logs.row(3))),
        None,
        lambda: rig.grow(log, logs.row(4), logs.exit_record(0)),
    )
    rig.watch(log.parent, story=story)

    assert meter.taken >= 2
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(5))


def test_the_console_is_whole_at_the_end(rig: WatchRig, meter: Meter) -> None:
    """Lines go as they come; the file of all of them is made once, when the run has ended."""
    log = rig.begin()
    steps = [
        lambda number=number: rig.grow(log, logs.output(f"line {number}\nbegun ", number), logs.row(number + 2))
        for number in range(6)
    ]
    rig.watch(log.parent, story=Story(*steps, lambda: rig.grow(log, logs.exit_record(0))))

    assert meter.taken == 7
    run = rig.backend.runs["live"]
    assert run.files["output.log"].decode().splitlines() == [
        "line 0",
        *(f"begun line {number}" for number in range(1, 6)),
        "begun ",
    ]
    assert run.lines == fresh(rig, log).lines


def test_a_reading_does_not_outlive_what_it_read(rig: WatchRig, meter: Meter) -> None:
    """Another file in the log's place, or another sync in between: the log is read from its start."""
    log = rig.begin()

    def replaced() -> None:
        copy = log.with_name("copy")
        copy.write_bytes(log.read_bytes())
        copy.rename(log)
        rig.grow(log, logs.row(3))

    def synced_by_another() -> None:
        rig.grow(log, logs.row(4))
        rig.sync(log)
        rig.grow(log, logs.row(5))

    story = Story(
        lambda: rig.grow(log, logs.row(2)),
        lambda: (replaced(), meter.__setattr__("taken", 0)),
        None,
        lambda: (synced_by_another(), meter.__setattr__("taken", meter.taken * 10)),
        None,
        lambda: rig.grow(log, logs.exit_record(0)),
    )
    rig.watch(log.parent, story=story)

    assert meter.taken == 1  # by the last pass only
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(6))
    assert set(rig.backend.written.values()) == {1}


def test_the_runs_used_last_are_kept(tmp_path: Path) -> None:
    """The number of readings is bounded; one that was taken is not kept."""
    kept = Readings(most=2)
    target = Target(URL, None, "p", "r")
    facts = Facts(tmp_path, size=10**6)
    heads = [LogHead(tmp_path / str(number), size=10**6, identity=(1, number)) for number in range(3)]
    cursor = Cursor(target, "e", "p", "r", "s")
    segments = [Segment(head, Places(head.path, tmp_path), cursor) for head in heads]
    for segment in segments:
        state = RunState()
        scan = Scan(segment.head.path, state, start_ns=0)
        log = ReadLog(segment.head, facts, Place(Lines()), Mark.of(cursor))
        kept.put(target, Reading(state, scan, (log,), None))

    assert [kept.take(target, [segment]) is not None for segment in segments] == [False, True, True]
    assert kept.take(target, [segments[1]]) is None


@pytest.mark.parametrize("earlier", [0, 2])
@pytest.mark.parametrize("seed", range(8))
def test_growing_in_any_steps_leaves_what_one_sync_leaves(rig: WatchRig, meter: Meter, seed: int, earlier: int) -> None:
    """Rows in parts, without steps, of changing keys; samples, console, config, summaries, metrics; cut anywhere between.

    The same behind earlier logs of the run, of which the steps are partly logged again, and one was killed.
    """
    rng = random.Random(seed)
    before = [rig.begin(rows=rng.randrange(1, 6), start=10.0 * number) for number in range(earlier)]
    for number, first in enumerate(before):
        rig.grow(first, logs.output("one\nbegun ", 1), logs.sample(1, {"cpu": 1.0}), logs.row(20 * number + 3))
        if number:
            rig.grow(first, logs.exit_record(1))
    log = rig.begin(rows=0, start=30.0 if earlier else 0.0, **({"starting_step": 2} if seed % 2 and earlier else {}))
    shadow = rig.folder.parent / "shadow" / log.name
    shadow.parent.mkdir()
    shadow.write_bytes(log.read_bytes())
    step = 0

    def records() -> Any:
        nonlocal step
        for _ in range(rng.randrange(1, 12)):
            kind = rng.randrange(12)
            if kind < 5:
                step += rng.randrange(2)  # the same again: a part of the row
                keys = rng.choice(
                    [{"loss": step}, {"loss": step, "acc": {"a": rng.random()}}, {f"k{rng.randrange(5)}": 1}]
                )
                yield logs.row(step if rng.random() < 0.9 else None, keys)
            elif kind < 7:
                yield logs.sample(step, {"cpu": rng.random()})
            elif kind < 9:
                yield logs.output(rng.choice(["whole\n", "part ", "\rover", "a\nb\nc"]), step)
            elif kind == 9:
                yield logs.config_record({f"c{rng.randrange(3)}": rng.random()})
            elif kind == 10:
                yield logs.summary_record({"best": step})
            else:
                yield logs.row(step, {"text": "y" * rng.randrange(40_000)})

    def show(*, whole: bool) -> None:
        data = shadow.read_bytes()
        have = log.stat().st_size
        log.write_bytes(data if whole else data[: rng.randrange(have, len(data) + 1)])
        rig.settle(log, 0)

    def grow() -> None:
        if rng.random() < 0.3 and rig.backend.runs:
            assert rig.backend.runs["live"].lines == fresh(rig, *before, log).lines
        if rng.random() < 0.8:
            logs.make_log(shadow, *records(), append=True)
        show(whole=rng.random() < 0.7)

    def end() -> None:
        logs.make_log(shadow, logs.exit_record(3), append=True)
        show(whole=True)

    report = rig.watch(*(path.parent for path in [*before, log]), story=Story(*[grow] * 25, end))

    assert set(report.verdicts.values()) == {Verdict.SYNCED}
    assert meter.taken > 5
    ours, once = rig.backend.runs["live"], fresh(rig, *before, log)
    assert ours.lines == once.lines
    assert (ours.summary, ours.config, ours.exit_code) == (once.summary, once.config, once.exit_code)
    assert ours.files == once.files


def test_a_pass_over_several_logs_reads_what_is_new_of_the_last(rig: WatchRig, meter: Meter) -> None:
    """The earlier ones are read by the first pass, and once more at the end for the console: one file, each line once."""
    first = rig.begin(rows=0)
    rig.grow(first, *rows(0, 5_000), logs.output("one\n", 1), logs.exit_record(1))
    log = rig.begin(rows=0, start=30.0)
    rig.grow(log, *rows(5_000, 5_000), logs.output("two\n", 1))
    size = first.stat().st_size + log.stat().st_size
    spent: list[int] = []

    def grow(step: int, *more: Any) -> Any:
        def happen() -> None:
            spent.append(meter.spent())
            rig.grow(log, logs.row(step), *more)

        return happen

    story = Story(
        grow(10_000, logs.output("three\n", 2)),
        *[grow(step) for step in range(10_001, 10_010)],
        grow(10_010, logs.output("four\n", 3), logs.exit_record(0)),
    )
    rig.watch(first.parent, log.parent, story=story)

    assert spent[0] > 2 * size * 0.9
    assert meter.taken == 11
    assert all(cost < 0.05 * size for cost in spent[1:])
    run = rig.backend.runs["live"]
    assert run.files["output.log"] == b"one\ntwo\nthree\nfour\n"
    assert [line.split(" ")[-1] for line in run.stream("console")] == ["one", "two", "three", "four"]
    assert len(run.rows) == 10_011
    assert set(rig.backend.written.values()) == {1}


def test_a_log_that_is_repaired_in_place_is_read_again(rig: WatchRig) -> None:
    """Where the hash of what was sent does not look: what was lost arrives, though nothing was added."""
    log = rig.begin(rows=0)
    rig.grow(log, *rows(0, 600))
    data = log.read_bytes()
    log.write_bytes(data[:120_000] + bytes(10) + data[120_010:])
    rig.settle(log, 0)

    def repair() -> None:
        assert len(rig.backend.runs["live"].rows) == 599
        log.write_bytes(data)
        rig.settle(log, 0)

    rig.watch(log.parent, story=Story(None, repair, None, None, lambda: rig.grow(log, logs.exit_record(0))))

    assert rig.backend.runs["live"].lines == fresh(rig, log).lines


@pytest.mark.parametrize("change", ["grows", "is replaced", "is repaired", "goes away", "comes late", "begins earlier"])
def test_a_change_of_an_earlier_log_is_seen(rig: WatchRig, change: str) -> None:
    """All logs are read again then, and the server holds what they hold now."""
    first = rig.begin(rows=0)
    rig.grow(first, *rows(0, 600))
    log = rig.begin(rows=0, start=30.0, starting_step=600)
    data = first.read_bytes()

    def happen() -> None:
        if change == "grows":
            rig.grow(first, logs.row(600), logs.output("late\n", 1))
        elif change == "is replaced":
            copy = first.with_name("copy")
            copy.write_bytes(data)
            logs.make_log(copy, logs.row(600), append=True)
            copy.rename(first)
        elif change == "is repaired":
            first.write_bytes(data)
            rig.settle(first, 0)
        elif change == "goes away":
            first.unlink()
        elif change == "comes late":
            rig.begin(rows=2, start=20.0)
        rig.grow(log, logs.row(2 if change == "begins earlier" else 601))

    if change == "is repaired":  # where the hash of what was sent does not look
        first.write_bytes(data[:120_000] + bytes(10) + data[120_010:])
        rig.settle(first, 0)
    # After the passes that change it, the log goes on as any other.
    story = Story(None, happen, None, lambda: rig.grow(log, logs.row(602)), lambda: rig.grow(log, logs.exit_record(0)))
    rig.watch(rig.folder, idle=90, story=story)

    steps = [row["_step"] for row in rig.backend.runs["live"].rows]
    if change == "goes away":
        assert steps == [*range(600), 601, 602]
    else:
        assert rig.backend.runs["live"].lines == fresh(rig, *sorted(rig.folder.glob("run-*/run-live.wandb"))).lines
