"""Several logs of one run: in any order, in one command or in several, stopped anywhere, they leave one state."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import Verdict
from runferry.sync.errors import Interrupted
from runferry.sync.kin import check_others, with_kin
from runferry.sync.lock import Lock, LockedError
from runferry.sync.places import Places
from runferry.sync.plan import group, survey
from runferry.sync.settings import SyncSettings, UsageError
from runferry.sync.transport import Answer
from support import logs
from support.fakebackend import URL
from support.segments import NAMES, RUN, held, row, segment, start_of
from support.syncrig import Rig, cursor, marker, on

ROWS = {
    "last": [("A", 0, 59), ("B", 60, 159), ("C", 160, 199)],
    "first": [("A", 0, 99), ("B", 100, 159), ("C", 160, 199)],
    "both": [("A", 0, 99), ("B", 60, 159), ("C", 160, 199)],
}
CONSOLE = [f"{name}{number}" for name, rows in (("A", 100), ("B", 100), ("C", 40)) for number in range(0, rows, 20)]


class Killed(BaseException):
    """The process is gone."""


def rig_in(folder: Path) -> Rig:
    folder.mkdir()
    return Rig(folder)


def expected(overlap: str) -> dict[str, Any]:
    return {
        "rows": ROWS[overlap],
        "last_runtime": 239.0,
        "samples": [0.0, 100.0, 100.0, 200.0, 200.0, 240.0],
        "console": CONSOLE,
        "summary": {
            "who": "C",
            "_step": 199,
            "_runtime": 239.0,
            "_timestamp": start_of("C") + 39,
            "_wandb": {"runtime": 240},
        },
        "config": ["from_A", "from_B", "from_C"],
        "complete": (True, 0),
    }


@pytest.mark.parametrize("overlap", list(ROWS))
@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations(NAMES)])
def test_any_order_in_several_commands(rig: Rig, order: str, overlap: str) -> None:
    """Each log by a command of its own: rows by the policy, console in order, times summed; then nothing is left to do."""
    found = {name: segment(rig, name) for name in NAMES}

    for name in order:
        report = rig.sync(found[name], overlap=overlap)
        assert report.exit_code == 0, [run.reason for run in report.runs]

    assert held(rig) == expected(overlap)
    rig.backend.forget()
    assert [run.verdict for run in rig.sync(overlap=overlap).runs] == [Verdict.SYNCED] * 3
    assert rig.backend.requests == []
    assert all(marker(log).exists() for log in found.values())


@pytest.mark.parametrize("overlap", list(ROWS))
def test_one_command_with_shuffled_logs(rig: Rig, overlap: str) -> None:
    """The order in which they are named says nothing: the start of each log does."""
    found = [segment(rig, name) for name in "CAB"]

    rig.sync(*found, overlap=overlap)

    assert held(rig) == expected(overlap)


def test_what_is_cut_is_told(rig: Rig) -> None:
    """How many rows, from which step on, and why; in the reason of the log that they are from."""
    found = {name: segment(rig, name) for name in "AB"}

    reasons = {run.log: run.reason for run in rig.sync().runs}

    assert reasons == {str(found["A"]): "a later log's rows replace 40 rows from step 60 on", str(found["B"]): ""}


def killed_at(rig: Rig, number: int, moment: str, log: Path, **options: Any) -> bool:
    """One sync that dies at its n-th request, before or after the server took it; False if it has fewer."""
    died = []

    def death(count: int, _: str, __: Any) -> None:
        if count == number:
            died.append(count)
            raise Killed

    rig.backend.forget()
    setattr(rig.backend, moment, death)
    try:
        rig.sync(log, **options)
    except BaseException as error:
        if not isinstance(error, Killed):
            raise
    finally:
        setattr(rig.backend, moment, lambda *_: None)
    return bool(died)


def kill_everywhere(folder: Path, order: str, overlap: str, moments: tuple[str, ...], step: int) -> int:
    """Kill each command of an order at every `step`-th request, at the moments in turn, and repeat it; how many were killed."""
    count = 0
    for victim in range(len(order)):
        for number in itertools.count(1 + victim % step, step):
            moment = moments[number % len(moments)]
            rig = rig_in(folder / f"{order}-{overlap}-{moment}-{victim}-{number}")
            found = {name: segment(rig, name) for name in NAMES}
            options = {"overlap": overlap, "body_bytes": 2000}
            for name in order[:victim]:
                rig.sync(found[name], **options)
            if not killed_at(rig, number, moment, found[order[victim]], **options):
                break
            count += 1
            for name in order[victim:]:
                rig.sync(found[name], **options)
            assert held(rig) == expected(overlap), (order, overlap, moment, victim, number)
    return count


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_logs_are_stitched(tmp_path: Path, moment: str) -> None:
    """A sample of the next test."""
    assert kill_everywhere(tmp_path, "CAB", "last", (moment,), 6) > 5


@pytest.mark.slow
@pytest.mark.parametrize("overlap", list(ROWS))
@pytest.mark.parametrize(
    ("order", "moments"),
    [
        ("".join(order), moments)
        for first in NAMES
        for order, moments in zip(
            [order for order in itertools.permutations(NAMES) if order[0] == first],
            [("before", "after"), ("after", "before")],
            strict=True,
        )
    ],
)
def test_killed_at_every_request(tmp_path: Path, order: str, overlap: str, moments: tuple[str, ...]) -> None:
    """Whichever log comes first and wherever a command dies: repeated, it leaves the same state.

    Before and after in turn: of two orders that begin with the same log, one dies before a request and one after it.
    """
    assert kill_everywhere(tmp_path, order, overlap, moments, 1) > 20


def test_fewer_rows_than_before_are_taken_back(rig: Rig) -> None:
    """A later log that replaces more than it brings: what is behind it goes, and nothing before is sent again but its log."""
    first = segment(rig, "A")
    rig.sync(first)
    second = segment(rig, "B", (10, 11))

    report = rig.sync(second)

    assert held(rig)["rows"] == [("A", 0, 9), ("B", 10, 20)]
    assert rig.backend.operations().count("RewindRun") == 1
    assert report.exit_code == 0
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []


def test_rows_that_a_server_does_not_take_back_are_named(rig: Rig) -> None:
    """It knows no rewinding: the verdict stays partial and says which rows are too many, until it does."""
    rig.sync(segment(rig, "A"))
    rig.backend.before = on("RewindRun", Answer(400, {}, b"unknown operation"))
    second = segment(rig, "B", (10, 11))

    for _ in range(2):
        report = rig.sync(second)
        assert {run.verdict for run in report.runs} == {Verdict.PARTIAL}
        assert "rows 21 to 99 at the server are of an earlier arrangement" in report.runs[0].reason

    assert [found["_step"] for found in rig.backend.runs[RUN].rows[:21]] == list(range(21))
    assert not marker(second).exists()


def test_a_log_that_counts_from_0_again_goes_behind(rig: Rig) -> None:
    """As the peer's resumed logs do: steps, lines and time go on, though the highest step is not the last row's."""
    late = [row(3, 99.0, start_of("A"), who="late")]
    first = segment(rig, "A", (0, 5), more=[])
    logs.make_log(first, *late, append=True)
    rig.settle(first, 3600)
    segment(rig, "B", (0, 3))

    rig.sync()

    steps = [found["_step"] for found in rig.backend.runs[RUN].rows]
    assert steps == [0, 1, 2, 3, 4, 3, 5, 6, 7]


def test_a_second_log_of_an_id_that_says_nothing_of_it(rig: Rig) -> None:
    """It begins at step 0 and names no resume: nothing is lost, it goes behind, and the verdict says what was done."""
    segment(rig, "A", (0, 5))
    segment(rig, "B", (0, 5), resume=False)

    report = rig.sync()

    assert [found["_step"] for found in rig.backend.runs[RUN].rows] == list(range(10))
    assert report.exit_code == 0
    assert "does not say that it goes on: 5 is added to its steps" in report.runs[1].reason


def test_an_empty_log_changes_nothing(rig: Rig) -> None:
    """A resumed process that logged no row moves no step."""
    segment(rig, "A", (0, 5))
    segment(rig, "B", (0, 0))
    segment(rig, "C", (0, 5))

    rig.sync()

    assert [found["_step"] for found in rig.backend.runs[RUN].rows] == list(range(10))


def test_logs_that_were_never_sent_stay_out_unless_they_are_named(rig: Rig) -> None:
    """Naming one log sends that one; its siblings join only when they are at the server."""
    first, second = segment(rig, "A"), segment(rig, "B")

    rig.sync(second)

    assert held(rig)["rows"] == [("B", 60, 159)]
    assert not cursor(first).exists()


def test_siblings_are_looked_for_once_per_folder(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs with a single log nothing but the names in their folder is read."""
    found = [rig.run(run_id=f"run{number}") for number in range(20)]
    seen: list[Any] = []
    real = os.scandir
    plans = group(survey(found), SyncSettings(base_url=URL))
    monkeypatch.setattr("os.scandir", lambda path: seen.append(path) or real(path))
    monkeypatch.setattr("runferry.sync.kin.read_head", lambda _: pytest.fail("opened a log"))

    assert with_kin(plans, SyncSettings(base_url=URL)) == plans
    assert len(seen) == 1


def test_two_syncs_of_one_run_wait_for_each_other(rig: Rig) -> None:
    """Two commands at a time, each with its own log, would both begin at line 0: one of them tries again later."""
    first, second = segment(rig, "A"), segment(rig, "B")
    held_by_another = Lock(Places(first, rig.state).lock, rig.clock)
    held_by_another.acquire()

    report = rig.sync(second)

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.SKIPPED, 75)
    assert rig.backend.requests == []
    held_by_another.release()
    assert rig.sync(second).exit_code == 0


def test_a_sibling_that_was_sent_since_the_plan_was_made(rig: Rig) -> None:
    """It is seen with the lock in hand, before anything is sent."""
    first, second = segment(rig, "A"), segment(rig, "B")
    settings = SyncSettings(base_url=URL, state_dir=rig.state)
    (plan,) = with_kin(group(survey([second]), settings), settings)
    check_others(plan, settings, rig.clock)
    rig.sync(first)

    with pytest.raises(LockedError, match="of the same run"):
        check_others(plan, settings, rig.clock)


def test_a_log_of_another_project_is_no_sibling(rig: Rig) -> None:
    """The run id alone names no run."""
    rig.sync(segment(rig, "A", (0, 5), project="one"))

    report = rig.sync(segment(rig, "B", (0, 5), project="two"))

    assert len(report.runs) == 1


def test_the_reader_agrees_on_the_time_of_a_run(rig: Rig) -> None:
    """What `load` says of all logs together is what the server shows."""
    found = [segment(rig, name) for name in NAMES]

    rig.sync()

    state = load(*found)
    assert state.runtime == 240
    assert state.rows[-1]["_runtime"] == rig.backend.runs[RUN].rows[-1]["_runtime"]
    assert state.summary["_runtime"] == rig.backend.runs[RUN].summary["_runtime"]


def test_a_log_that_is_gone_leaves_the_others_where_they_are(rig: Rig) -> None:
    """Its rows are at the server alone now: a new log goes behind, and what would need it is refused."""
    found = {name: segment(rig, name) for name in "AB"}
    rig.sync()
    shutil.rmtree(found["A"].parent)

    report = rig.sync(segment(rig, "C"))

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 2, [run.reason for run in report.runs]
    state = held(rig)
    assert state["rows"] == ROWS["last"]
    assert (state["config"], state["last_runtime"]) == (["from_A", "from_B", "from_C"], 239.0)
    assert state["console"] == CONSOLE


def test_a_log_that_gets_its_run_record_back(rig: Rig) -> None:
    """Repaired, it has a time; that it had none before is no reason to miss a log."""
    first = segment(rig, "A", (0, 5))
    whole = first.read_bytes()
    segment(rig, "B", (5, 5), starting_step=5)
    first.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    rig.settle(first, 3600)
    rig.sync(project="proj")
    first.write_bytes(whole)
    rig.settle(first, 3600)

    report = rig.sync(project="proj")

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 2, [run.reason for run in report.runs]
    assert held(rig)["rows"] == [("A", 0, 4), ("B", 5, 9)]


def test_a_log_that_grows_before_one_that_is_gone_is_refused(rig: Rig) -> None:
    """Its rows would be written over the lines of the missing one."""
    first, second = segment(rig, "A", exit_code=None), segment(rig, "B")
    rig.sync()
    before = held(rig)
    shutil.rmtree(second.parent)
    logs.make_log(first, row(300, 300.0, start_of("A"), who="A"), append=True)
    rig.settle(first, 3600)

    report = rig.sync(first)

    assert rig.only(report).verdict is Verdict.FAILED
    assert "sync all logs of the run in one command" in rig.only(report).reason
    assert held(rig) == before


def test_another_policy_stitches_anew(rig: Rig) -> None:
    """Each policy after each other one: the rows by the last one asked for, and the end is said again behind them."""
    for name in NAMES:
        segment(rig, name)

    for overlap in ("last", "both", "first", "both", "last", "first", "last"):
        report = rig.sync(overlap=overlap)
        assert report.exit_code == 0, [run.reason for run in report.runs]
        assert held(rig) == expected(overlap)


def test_interrupted_before_anything_was_sent(rig: Rig) -> None:
    """A stop at the first request leaves nothing half done, so nothing is called partial."""
    rig.backend.before = on("RunResumeStatus", Interrupted("stopped"))

    report = rig.sync(segment(rig, "A"))

    assert rig.only(report).verdict is Verdict.FAILED
    assert (rig.only(report).reason, rig.only(report).try_again) == ("interrupted before anything was sent", True)


def test_an_unknown_policy() -> None:
    """It is a usage error, before anything is sent."""
    with pytest.raises(UsageError, match="overlap: one of last, first, both"):
        SyncSettings(overlap="newest")


@pytest.mark.parametrize("overlap", list(ROWS))
def test_a_reader_sees_what_the_server_holds(rig: Rig, overlap: str) -> None:
    """Rows, their steps and times, the summary: `load` of the logs agrees with a sync of them, under each policy."""
    found = [segment(rig, name) for name in NAMES]

    rig.sync(overlap=overlap)
    state = load(*found, overlap=overlap)

    there = rig.backend.runs[RUN]
    assert [(row["_step"], row["who"]) for row in state.rows] == [(row["_step"], row["who"]) for row in there.rows]
    assert state.summary["_step"] == there.summary["_step"]
    assert state.summary["who"] == there.summary["who"]
    assert state.cut_count == (0 if overlap == "both" else 40)


def announced(step: int, **values: Any) -> list[Any]:
    """A row as the peer writes it: a summary record with the same items, then the row."""
    items = {**values, "_step": step}
    return [logs.summary_record(items), logs.row(None, items)]


def test_summary_records_of_rows_that_were_replaced_say_nothing(rig: Rig) -> None:
    """A key that only replaced rows had is not in the summary, nor is a minimum of theirs; what a user set stays."""
    metric = logs.messages.Record(
        metric=logs.messages.MetricRecord(name="loss", summary=logs.messages.MetricSummary(min=True))
    )
    first = [metric]
    for step in range(6):
        values = {"loss": 10 - step, **({"only": step} if step == 4 else {})}
        summary = {**values, "loss": {"min": 10 - step}, "_step": step}
        first += [logs.summary_record(summary), logs.row(None, {**values, "_step": step})]
    segment(rig, "A", (0, 0), more=[*first, logs.summary_record({"mine": 1})])
    segment(rig, "B", (3, 2), more=announced(3, other=1))

    rig.sync()

    there = rig.backend.runs[RUN]
    assert [row["_step"] for row in there.rows] == [0, 1, 2, 3, 4]
    assert there.summary["loss"] == {"min": 8}
    assert there.summary["mine"] == 1
    assert "only" not in there.summary
    assert load(rig.folder).summary["loss"] == {"min": 8}


def test_rows_without_steps_go_behind_those_of_earlier_logs(rig: Rig) -> None:
    """They count from 0 in each log, so the second log's are shifted; the summary names the last one."""
    segment(rig, "A", (0, 0), more=[logs.row(None, {"n": n}) for n in range(3)])
    segment(rig, "B", (0, 0), more=[logs.row(None, {"n": n}) for n in range(3, 5)])

    rig.sync()

    there = rig.backend.runs[RUN]
    assert [(row["n"], row["_step"]) for row in there.rows] == [(n, n) for n in range(5)]
    assert there.summary["_step"] == 4


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations(NAMES)])
def test_logs_in_folders_of_their_own(rig: Rig, order: str) -> None:
    """As the jobs of a scheduler leave them: by a command each they are put behind each other or refused, then all together."""
    apart = {}
    for name in NAMES:
        log = segment(rig, name)
        apart[name] = rig.folder.parent / f"job{name}" / "wandb" / log.parent.name / log.name
        apart[name].parent.parent.mkdir(parents=True)
        shutil.move(log.parent, apart[name].parent)

    for name in order:
        (run,) = rig.sync(apart[name]).runs
        assert run.verdict is Verdict.SYNCED or "in one command" in run.reason or "that they are from" in run.reason
    report = rig.sync(*apart.values())

    assert report.exit_code == 0, [run.reason for run in report.runs]
    assert held(rig) == expected("last")
    rig.backend.forget()
    rig.sync(*apart.values())
    assert rig.backend.requests == []


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_logs_without_rows_in_folders_of_their_own(rig: Rig, order: str) -> None:
    """Their samples and output alone: put in the order of their start once they are sent together."""
    apart = {}
    for name in "AB":
        log = segment(rig, name, (0, 0), resume=True)
        apart[name] = rig.folder.parent / f"job{name}" / log.parent.name / log.name
        apart[name].parent.parent.mkdir(parents=True)
        shutil.move(log.parent, apart[name].parent)

    for name in order:
        rig.sync(apart[name])
    assert rig.sync(*apart.values()).exit_code == 0

    times = [json.loads(line)["_timestamp"] for line in rig.backend.runs[RUN].stream("events")]
    assert times == [start_of("A"), start_of("A"), start_of("B"), start_of("B")]


def test_a_log_that_goes_on_and_begins_again_at_0_replaces_all(rig: Rig) -> None:
    """Its writer knew of the earlier log, so step 0 is the run's: training began anew."""
    segment(rig, "A", (0, 10))
    segment(rig, "B", (0, 5), runtime=10)

    rig.sync()

    assert held(rig)["rows"] == [("B", 0, 4)]


def test_the_end_of_a_run_is_said_again_behind_rows_that_came_late(rig: Rig) -> None:
    """Rows let a run live again at the server."""
    last = segment(rig, "B", (60, 5))
    rig.sync(last)
    first = segment(rig, "A", (0, 60))
    rig.backend.forget()

    rig.sync(first)

    assert rig.backend.bodies()[-1].get("complete") is True
