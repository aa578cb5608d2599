"""Regions of a large log are read by other processes, and what arrives is what arrives when one reads from the front."""

from __future__ import annotations

import json
import marshal
import random
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import Batch, Gap, LogReader, messages
from runferry.logformat.constants import BLOCK_SIZE
from runferry.logformat.plainrows import Block
from runferry.sync import ahead, onereading, region
from runferry.sync.ahead import Ahead
from runferry.sync.aside import Aside
from runferry.sync.region import Region, Regions, unpack
from support import logs
from support.syncrig import Rig, cursor

RUN = "a1b2c3d4"
SIZE = 2 * BLOCK_SIZE
ROWS = 1200


class Near:
    """An `Aside` in this process, which may end after some answers."""

    def __init__(self, log: BinaryIO, rng: random.Random, lives: int = 1_000_000) -> None:
        self._log = Path(log.name).open("rb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._regions = Regions(self._log)
        self._rng = rng
        self.lives = lives
        self.asked: deque[int] = deque()
        self.is_closed = False

    def ask(self, edge: int) -> None:
        self._live()
        self.asked.append(edge)

    def has_answer(self) -> bool:
        return self._rng.random() < 0.5

    def answer(self) -> tuple[int, Region | None]:
        self._live()
        edge = self.asked.popleft()
        found = self._regions.read(edge)
        return edge, unpack(marshal.loads(marshal.dumps(found.pack()))) if found is not None else None

    def close(self) -> None:
        self._log.close()
        self.is_closed = True

    def _live(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise BrokenPipeError("gone")


@contextmanager
def small_regions() -> Iterator[None]:
    """Regions of two blocks, which a log of a test has some of."""
    with ExitStack() as stack:
        for module in (region, ahead):
            stack.enter_context(mock.patch.object(module, "SIZE", SIZE))
        stack.enter_context(mock.patch.object(ahead, "SMALLEST", 0))
        stack.enter_context(mock.patch.object(onereading, "SMALLEST", 0))
        yield


def peer_row(step: int, rng: random.Random, *, announced: bool = True) -> list[Any]:
    """A row as the peer writes it: behind a small summary record and one that says the same, its keys in any order."""
    pairs = [(f"k{at}", repr(step / (at + 1))) for at in range(8)] + [("_step", str(step)), ("_runtime", str(step))]
    rng.shuffle(pairs)
    small = messages.SummaryRecord(update=[messages.Item(nested_key=["_wandb", "runtime"], value_json=str(step // 50))])
    whole = messages.SummaryRecord(update=[messages.Item(nested_key=[key], value_json=text) for key, text in pairs])
    history = messages.HistoryRecord(
        item=[messages.HistoryItem(nested_key=[key], value_json=text) for key, text in pairs],
        step=messages.HistoryStep(num=step),
    )
    row = messages.Record(history=history)
    return [messages.Record(summary=small), messages.Record(summary=whole), row] if announced else [row]


def odd(kind: str, step: int) -> list[Any]:
    """What may stand between rows."""
    return {
        "console": lambda: [logs.output(f"line {step}\nrest")],
        "sample": lambda: [logs.sample(step)],
        "config": lambda: [logs.config_record({"c": step})],
        "summary": lambda: [logs.summary_record({"best": step})],
        "speaks": lambda: [logs.summary_record({"k1": -1.5, "_step": step + 3})],
        "null": lambda: [logs.row(10**6 + step, {"k1": None, "k2": 2})],
        "nested": lambda: [
            messages.Record(history=messages.HistoryRecord(item=[
                messages.HistoryItem(nested_key=["a", "b"], value_json="1"),
                messages.HistoryItem(nested_key=["_step"], value_json=str(10**6 + step)),
            ]))
        ],
        "part": lambda: [logs.row(max(0, step - 1), {"part": step})],
        "back": lambda: [logs.row(max(0, step - 40), {"k1": 0.5})],
        "wide": lambda: [logs.row(10**6 + step, {"wide": "x" * 40_000})],
        "run": lambda: [logs.run_record(RUN, config={"again": True})],
        "metric": lambda: [
            messages.Record(metric=messages.MetricRecord(name="k1", summary=messages.MetricSummary(min=True)))
        ],
        "alert": lambda: [messages.Record(alert=messages.AlertRecord(title=f"t{step}", text="x"))],
    }[kind]()  # fmt: skip


ODD = ["console", "sample", "config", "summary", "speaks", "null", "nested", "part", "back", "wide", "alert"]
RARE = ["run", "metric"]


def make(folder: Path, script: list[tuple[int, str]], *, announced: bool, count: int = ROWS, end: bool = True) -> Path:
    """A log of many rows with something else before some of them."""
    rng = random.Random(count)
    found: list[Any] = [logs.header_record(), logs.run_record(RUN, config={"lr": 1})]
    before = dict(script)
    for step in range(count):
        if step in before:
            found += odd(before[step], step)
        found += peer_row(step, rng, announced=announced)
    log = folder / f"offline-run-20260921_141320-{RUN}" / f"run-{RUN}.wandb"
    return logs.make_log(log, *found, *([logs.exit_record()] if end else []))


def outcome(data: bytes, asides: list[Near] | None) -> tuple[Any, int]:
    """What the server holds, what the verdict says, and what the cursor keeps; how many regions were used."""
    used = 0

    def counted(found: Any) -> Iterator[Any]:
        nonlocal used
        for item in found:
            used += isinstance(item, Region)
            yield item

    def opened(log: BinaryIO, size: int) -> Ahead | None:
        if asides is None:
            return None

        def start(file: BinaryIO) -> Any:
            near = Near(file, random.Random(size), lives=[10**6, 7][len(asides) % 2])
            asides.append(near)
            return near

        return Ahead(log, size, start)

    plain = ahead.batches
    with (
        tempfile.TemporaryDirectory() as folder,
        small_regions(),
        mock.patch.object(onereading, "open_ahead", opened),
        mock.patch("runferry.sync.scan.batches", lambda *given: counted(plain(*given))),
        mock.patch.object(ahead, "_free", threading.BoundedSemaphore(2)),
    ):
        rig = Rig(Path(folder))
        log = rig.folder / f"offline-run-20260921_141320-{RUN}" / f"run-{RUN}.wandb"
        log.parent.mkdir(parents=True)
        log.write_bytes(data)
        rig.settle(log)
        report = rig.only(rig.sync(body_bytes=64 * 1024))
        kept = json.loads(cursor(log).read_text()) if cursor(log).exists() else {}
        for name in ("seal", "reach"):  # where a run record among rows is met, more or less of them was sent before
            kept.pop(name, None)
        said = (report.verdict, report.reason, report.rows, report.rows_sent, report.missing)
        return ({run_id: vars(run) for run_id, run in rig.backend.runs.items()}, said, kept), used


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, ROWS - 1), st.sampled_from(ODD)), max_size=6),
    st.none() | st.tuples(st.integers(0, ROWS - 1), st.sampled_from(RARE)),
    st.booleans(),
    st.none() | st.integers(100, 10**6),
    st.integers(0, 500),
)
def test_regions_leave_what_reading_from_the_front_leaves(
    script: list[tuple[int, str]], rare: Any, announced: bool, spoilt: int | None, cut: int
) -> None:
    """Whatever stands between the rows, wherever a byte is wrong, wherever the log ends, and if a process dies."""
    with tempfile.TemporaryDirectory() as folder:
        data = bytearray(make(Path(folder), [*script, *([rare] if rare else [])], announced=announced).read_bytes())
    if spoilt is not None:
        data[spoilt % len(data)] ^= 0xFF
    whole = bytes(data[: len(data) - cut])
    asides: list[Near] = []

    assert outcome(whole, asides)[0] == outcome(whole, None)[0]
    assert all(near.is_closed for near in asides)


@pytest.mark.parametrize("announced", [True, False])
def test_nearly_all_of_a_log_of_plain_rows_comes_in_regions(tmp_path: Path, announced: bool) -> None:
    """Samples and console lines between the rows do not change that."""
    script = [(step, ("sample", "console")[step % 2]) for step in range(0, 3000, 13)]
    data = make(tmp_path, script, announced=announced, count=3000).read_bytes()

    result, used = outcome(data, [])

    assert used >= len(data) // SIZE - 3
    assert len(result[0][RUN]["lines"]["history"]) == 3000


def test_a_summary_record_speaks_for_a_row_of_a_later_region(tmp_path: Path) -> None:
    """What it says of that step stays, whatever the row says: who reads the region cannot know of it."""
    rows = [peer_row(step, random.Random(step), announced=False) for step in range(3000)]
    rows[2400] = [logs.row(2400, {"u": 2})]
    early = logs.summary_record({"u": 1, "_step": 2400})
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record(RUN), *chain(*rows[:40]), early, *chain(*rows[40:]))

    result, used = outcome(log.read_bytes(), [])

    assert used == 0  # of later ones, too: as long as it is the latest that was said
    assert result == outcome(log.read_bytes(), None)[0]
    assert result[0][RUN]["summary"]["u"] == 1


def test_only_a_region_that_begins_where_the_reading_is_takes_its_place(tmp_path: Path) -> None:
    """One that begins or was taken for granted otherwise is read from the front."""
    log = make(tmp_path, [], announced=True)
    with small_regions(), log.open("rb", buffering=0) as file:
        good = Regions(file).read(SIZE)
        assert good is not None
        rows = good.before, good.spoken
        for change in ({}, {"begin": good.begin + 1}, {"before": b"0"}, {"spoken": b"0"}):
            offered = {SIZE: replace(good, **change)}
            regions: Any = mock.Mock(region=lambda edge, offered=offered: offered.get(edge))
            found = list(ahead.batches(LogReader(file), regions, lambda: rows))
            positions = [
                offset
                for item in found
                for offset in (
                    [part.begin for part in [item] if isinstance(part, Region)]
                    or [item.base + entry[4] for entry in getattr(item, "entries", [])]
                )
            ]

            assert [isinstance(item, Region) for item in found].count(True) == (not change)
            assert positions == sorted(set(positions))
            assert found[-1].end == log.stat().st_size


def test_records_lost_behind_a_region_are_counted(tmp_path: Path) -> None:
    """By the number of the region's last record."""
    log = make(tmp_path, [], announced=True)
    with small_regions(), log.open("r+b", buffering=0) as file:
        good = Regions(file).read(SIZE)
        assert good is not None
        file.seek(good.end + 20)
        file.write(b"\xff")
        regions: Any = mock.Mock(region=lambda edge: good if edge == SIZE else None)
        found = list(ahead.batches(LogReader(file), regions, lambda: (good.before, good.spoken)))

    assert [gap.records_lost for gap in found if isinstance(gap, Gap)] == [1]


@pytest.mark.parametrize("kind", ["null", "nested", "part", "speaks", "wide", "run"])
def test_a_region_with_what_is_not_plain_is_read_from_the_front(tmp_path: Path, kind: str) -> None:
    """What a row means may depend on all that stands before it."""
    log = make(tmp_path, [(600, kind)], announced=True)
    with small_regions(), log.open("rb", buffering=0) as file:
        edges = range(SIZE, log.stat().st_size - 2 * SIZE, SIZE)
        found = {edge: Regions(file).read(edge) for edge in edges}

    alone = [edge for edge, part in found.items() if part is None]
    assert len(alone) in (1, 2)
    assert len(found) > len(alone)


def test_regions_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    """One begins where the one before it ends; together they hold each row once."""
    log = make(tmp_path, [], announced=True)
    with small_regions(), log.open("rb", buffering=0) as file:
        edges = range(SIZE, log.stat().st_size - 2 * SIZE, SIZE)
        found = [Regions(file).read(edge) for edge in edges]
    parts = [part for part in found if part is not None]
    with log.open("rb") as file:
        front = [
            batch.base + entry[4]
            for batch in LogReader(file).batches()
            if isinstance(batch, Batch)
            for entry in batch.entries
            if entry[0] == "history" and parts[0].begin <= batch.base + entry[4] < parts[-1].end
        ]

    assert len(parts) == len(found)
    assert all(one.end == other.begin for one, other in pairwise(parts))
    assert [
        offset for part in parts for item in part.items if isinstance(item, Block) for offset in item.offsets
    ] == front


def test_another_process_finds_what_this_one_finds(tmp_path: Path) -> None:
    """And it is asked for regions in any order."""
    log = make(tmp_path, [(300, "console")], announced=True, count=6000)
    edges = [3 * region.SIZE, region.SIZE, 1 << 40]
    with log.open("rb", buffering=0) as file, closing(Aside(file)) as aside:
        for edge in edges:
            aside.ask(edge)
        answers = dict(aside.answer() for _ in edges)
        here = {edge: Regions(file).read(edge) for edge in edges}

    assert answers[1 << 40] is None
    assert [found and found.pack() for found in answers.values()] == [found and found.pack() for found in here.values()]
    assert sum(found is not None for found in here.values()) == 2


def test_another_process_takes_no_module_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who syncs a downloaded folder runs nothing that lies in it."""
    (tmp_path / "marshal.py").write_text("raise SystemExit")
    (tmp_path / "fcntl.py").write_text("raise SystemExit")
    (tmp_path / "orjson.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    log = make(tmp_path, [], announced=True, count=10)
    with log.open("rb", buffering=0) as file, closing(Aside(file)) as aside:
        aside.ask(0)
        assert aside.answer() == (0, None)


def test_another_process_gets_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no use for what opens the server."""
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    log = make(tmp_path, [], announced=True, count=10)
    with log.open("rb", buffering=0) as file, closing(Aside(file)) as aside:
        aside.ask(0)
        aside.answer()
        environment = Path(f"/proc/{aside.pid}/environ")
        if not environment.exists():
            pytest.skip("this system does not tell the environment of a process")
        assert b"PATH=" in environment.read_bytes()
        assert b"k" * 40 not in environment.read_bytes()


def test_a_process_that_is_killed_is_done_without(tmp_path: Path) -> None:
    """What it was asked for is read here."""
    log = make(tmp_path, [], announced=True, count=9000)
    began: list[Aside] = []

    def start(file: BinaryIO) -> Aside:
        aside = Aside(file)
        began.append(aside)
        return aside

    with log.open("rb", buffering=0) as file, closing(Ahead(file, log.stat().st_size, start)) as regions:
        first = regions.region(region.SIZE)
        for aside in began:
            psutil.Process(aside.pid).kill()
        rest = [regions.region(edge) for edge in range(2 * region.SIZE, 5 * region.SIZE, region.SIZE)]
        expected = [Regions(file).read(edge) for edge in range(region.SIZE, 5 * region.SIZE, region.SIZE)]

    assert began
    packed = [found and found.pack() for found in (first, *rest)]
    assert packed[0] is not None
    assert all(one in (other and other.pack(), None) for one, other in zip(packed, expected, strict=True))


def test_other_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """However it ended: they notice that nobody asks any more."""
    log = make(tmp_path, [], announced=True, count=4000)
    script = (
        "import sys, time\n"
        "from runferry.sync.aside import Aside\n"
        "aside = Aside(open(sys.argv[1], 'rb', buffering=0))\n"
        "aside.ask(524288)\n"
        "print(aside.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(log)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    other = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()

    gone, alive = psutil.wait_procs([other], timeout=20)

    assert (len(gone), alive) == (1, [])


def test_a_log_without_plain_rows_is_left_to_one_process(tmp_path: Path) -> None:
    """After some regions that came to nothing nobody is asked any more."""
    log = make(tmp_path, [(step, "null") for step in range(ROWS)], announced=False)
    asides: list[Near] = []

    result, used = outcome(log.read_bytes(), asides)

    assert used == 0
    assert asides
    assert all(near.is_closed for near in asides)
    assert result[1][2] == 2 * ROWS


def test_small_logs_and_single_cores_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes longer to start than to be a help there."""
    log = make(tmp_path, [], announced=True, count=10)
    with log.open("rb", buffering=0) as file:
        assert ahead.open_ahead(file, ahead.SMALLEST - 1) is None
        monkeypatch.setattr(ahead, "_cores", lambda: 1)
        assert ahead.open_ahead(file, ahead.SMALLEST) is None


@pytest.mark.parametrize(
    ("program", "frozen", "starts"),
    [
        ("/usr/bin/python3.12", False, True),
        ("/opt/pypy3", False, True),
        ("/opt/blender", False, False),
        ("/opt/copycat", False, False),
        ("", False, False),
        ("/opt/python-app", True, False),
    ],
)
def test_only_an_interpreter_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, frozen: bool, starts: bool
) -> None:
    """A program that only holds one would run itself."""
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
    monkeypatch.setattr(ahead, "Ahead", lambda *_: "started")
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    with make(tmp_path, [], announced=True, count=10).open("rb", buffering=0) as file:
        assert (ahead.open_ahead(file, ahead.SMALLEST) is not None) is starts
