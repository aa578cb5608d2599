"""Logs of several nodes of one run: that of the first node, and those beside it, under their labels."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from runferry.logformat import load, messages
from runferry.logformat.runinfo import is_node, node_version
from runferry.sync import Verdict
from runferry.sync.errors import Interrupted
from support import logs
from support.server import Server, surroundings
from support.syncrig import Rig, cursor, marker

RUN = "nodes"
LAG_S = {"first": 0.0, "b": 1.0, "c": 2.0}
"""How much later than the first node each begins; they also end later."""


def log_of(
    rig: Rig, node: str, *, exit_code: int | None = 0, age: float = 3600.0, attempt: int = 0, rows: int = 4
) -> Path:
    """The log of one node, in a folder of its own: three samples, a line of output; rows and an end only of the first.

    Attempts begin an hour apart.
    """
    start = logs.START_S + LAG_S[node] + 3600 * attempt
    is_first = node == "first"
    version = "0.31.0+runferry." + ("1.0" if is_first else node_version("1.0"))
    header = messages.HeaderRecord(version_info=messages.VersionInfo(producer=version))
    key = "cpu" if is_first else f"cpu/l:{node}"
    records = [
        messages.Record(header=header),
        logs.run_record(RUN, start=start, resume=attempt > 0),
        messages.Record(
            environment=messages.EnvironmentRecord(
                writer_id=f"{node}{attempt or ''}", host=node, started_at=logs.timestamp(start)
            )
        ),
        *(logs.sample(second, {key: second}, start=start) for second in (0, 5, 10)),
        logs.output(f"{node}\n", 1, start=start),
    ]
    if is_first:
        records += [logs.row(4 * attempt + step, {"loss": step}, start=start) for step in range(rows)]
        records += [] if exit_code is None else [logs.exit_record(exit_code, 10)]
    log = rig.folder / node / "wandb" / f"run-20260921_1{attempt}1320-{RUN}" / f"run-{RUN}.wandb"
    logs.make_log(log, *records)
    rig.settle(log, age)
    return log


def events(rig: Rig) -> list[tuple[float, str]]:
    """(seconds of the run, key) of each sample at the server, in the order of their lines."""
    lines = map(json.loads, rig.backend.runs[RUN].stream("events"))
    return [(line["_runtime"], key) for line in lines for key in line if key.startswith("system.")]


def whole(rig: Rig) -> dict[str, Any]:
    run = rig.backend.runs[RUN]
    return {
        "events": sorted(events(rig)),
        "rows": [(row["_step"], row["_runtime"]) for row in run.rows],
        "console": sorted(line.rpartition(" ")[2].strip() for line in run.stream("console")),
        "writers": sorted(run.config["_wandb"]["value"]["e"]),
        "end": (run.complete, run.exit_code),
    }


def announce_another(rig: Rig) -> None:
    """Let the config at the server name another writer, of whom there is nothing else."""
    run = rig.backend.runs[RUN]
    config = run.config
    config["_wandb"]["value"]["e"]["else"] = {"writerId": "else"}
    run.variables["config"] = json.dumps(config)


ALL = {
    "events": sorted((float(second), f"system.cpu{label}") for second in (0, 5, 10) for label in ("", "/l:b", "/l:c")),
    "rows": [(step, step / 2) for step in range(4)],
    "console": ["b", "c", "first"],
    "writers": ["b", "c", "first"],
    "end": (True, 0),
}


@pytest.mark.parametrize("named", list(itertools.permutations(["first", "b", "c"])))
def test_one_command_merges_them_by_label(rig: Rig, named: tuple[str, ...]) -> None:
    """Every sample of every node under its label and at its time; rows and end are the first node's, whoever ended last."""
    found = [log_of(rig, node) for node in named]
    report = rig.sync(*found)

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 3
    assert whole(rig) == ALL
    assert all(marker(log).exists() for log in found)
    rig.backend.forget()
    rig.sync(*found)
    assert rig.backend.requests == []


@pytest.mark.parametrize("order", list(itertools.permutations(["first", "b", "c"])))
def test_commands_of_their_own_lose_nothing(rig: Rig, order: tuple[str, ...]) -> None:
    """As each node's disk is synced by itself, in any order; a command that has all of them says the end."""
    found = {node: log_of(rig, node) for node in order}
    for node in order:
        report = rig.sync(found[node])
        assert [run.verdict for run in report.runs] == [Verdict.SYNCED], report.runs
        assert ("first node's to say" in report.runs[0].reason) == (node != "first")
    run = whole(rig)

    assert {name: run[name] for name in ("events", "rows", "console")} == {
        name: ALL[name] for name in ("events", "rows", "console")
    }
    rig.sync(*found.values())
    assert whole(rig) == ALL


def test_each_attempt_of_a_resumed_run_has_its_nodes(rig: Rig) -> None:
    """What nodes sampled the second time is behind what the first attempt took, as the first node's samples are."""
    found = [log_of(rig, node, attempt=attempt) for attempt in (1, 0) for node in ("b", "first", "c")]
    report = rig.sync(*found)

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 6
    seconds = (0.0, 5.0, 10.0, 10.0, 15.0, 20.0)
    assert sorted(events(rig)) == sorted((at, f"system.cpu{label}") for at in seconds for label in ("", "/l:b", "/l:c"))
    assert load(*found).runtime == 20.0


def test_a_node_says_nothing_of_the_end(rig: Rig) -> None:
    """As long as the first node goes on, so does the run; the log of a node alone neither ends it nor is its crash."""
    first, b = log_of(rig, "first", exit_code=None, age=1.0), log_of(rig, "b", age=1.0)
    report = rig.sync(first, b)

    assert [run.verdict for run in report.runs] == [Verdict.LIVE] * 2
    assert not marker(b).exists()
    assert rig.backend.runs[RUN].exit_code is None


def test_a_node_whose_cursor_is_lost_writes_over_nobody(rig: Rig) -> None:
    """Where its lines are is not known any more: it is refused until all logs are there, and then all is."""
    found = {node: log_of(rig, node) for node in ("first", "b", "c")}
    for node in ("c", "first", "b"):
        rig.sync(found[node])
    for log in (found["b"], found["c"]):
        cursor(log).unlink()
    before = sorted(events(rig))
    report = rig.sync(found["b"])

    assert [run.verdict for run in report.runs] == [Verdict.FAILED]
    assert "in one command" in report.runs[0].reason
    assert sorted(events(rig)) == before
    assert rig.sync(*found.values()).exit_code == 0
    assert whole(rig) == ALL


@pytest.mark.parametrize("order", [("b", "c", "first"), ("b", "first", "c"), ("first", "b", "c")])
@pytest.mark.parametrize("beside", [(), ("b",)])
def test_a_first_node_whose_cursor_is_lost_writes_over_nobody(
    rig: Rig, order: tuple[str, ...], beside: tuple[str, ...]
) -> None:
    """Its rows are known by themselves, but its samples lie somewhere among those of others: as with a node."""
    found = {node: log_of(rig, node) for node in order}
    for node in order:
        rig.sync(found[node])
    cursor(found["first"]).unlink()
    before, rows = events(rig), whole(rig)["rows"]
    report = rig.sync(found["first"], *(found[node] for node in beside))

    assert {run.verdict for run in report.runs} == {Verdict.FAILED}
    assert "in one command" in report.runs[0].reason
    assert (events(rig), whole(rig)["rows"]) == (before, rows)
    assert rig.sync(*found.values()).exit_code == 0
    assert whole(rig) == ALL


@pytest.mark.parametrize("node", ["first", "b"])
def test_a_kill_between_the_announcement_and_the_cursor(rig: Rig, monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """The server names the writer, and nobody knows whether its lines are there: those of others are safe."""
    found = {name: log_of(rig, name) for name in ("first", "b", "c")}
    rig.sync(found["c"])
    before = events(rig)
    with monkeypatch.context() as killed:
        killed.setattr("runferry.sync.contact.settle", Mock(side_effect=Interrupted("killed")))
        rig.sync(found[node])
    report = rig.sync(found[node])

    assert [run.verdict for run in report.runs] == [Verdict.FAILED]
    assert "in one command" in report.runs[0].reason
    assert events(rig) == before
    assert rig.sync(*found.values()).exit_code == 0
    assert whole(rig) == ALL


@pytest.mark.parametrize("sent", [False, True])
def test_a_run_that_was_resumed_elsewhere(rig: Rig, monkeypatch: pytest.MonkeyPatch, sent: bool) -> None:
    """Announced, and killed before its cursor: no line is there yet, so it goes on. With lines there it is refused."""
    before = log_of(rig, "first")
    (rig.folder / "first").rename(rig.folder / "gone")
    before = rig.folder / "gone" / before.relative_to(rig.folder / "first")
    rig.sync(before)
    log = log_of(rig, "first", attempt=1)
    with monkeypatch.context() as killed:
        if not sent:
            killed.setattr("runferry.sync.contact.settle", Mock(side_effect=Interrupted("killed")))
        rig.sync(log)
    cursor(log).unlink(missing_ok=True)
    marker(log).unlink(missing_ok=True)
    there = whole(rig)
    report = rig.only(rig.sync(log))

    assert there["writers"] == ["first", "first1"]
    assert report.verdict is (Verdict.FAILED if sent else Verdict.SYNCED), report.reason
    if sent:
        assert "in one command, or these as another run (--id NEW)" in report.reason
        assert whole(rig) == there
    twice = whole(rig)
    assert [row[0] for row in twice["rows"]] == list(range(8))
    assert [at for at, _ in events(rig)] == [0.0, 5.0, 10.0, 10.0, 15.0, 20.0]
    assert twice["console"] == ["first", "first"]
    rig.sync(before, log)
    assert whole(rig) == twice


def test_a_lost_cursor_between_others(rig: Rig) -> None:
    """Of a run without rows, resumed before and after on other machines: its samples are there, and not the last ones."""
    found = []
    for attempt in range(3):
        log = log_of(rig, "first", attempt=attempt, rows=0)
        apart = rig.folder / str(attempt)
        (rig.folder / "first").rename(apart)
        found.append(apart / log.relative_to(rig.folder / "first"))
        rig.sync(found[-1])
    cursor(found[1]).unlink()
    before = events(rig)
    report = rig.only(rig.sync(found[1]))

    assert report.verdict is Verdict.FAILED, report.reason
    assert events(rig) == before
    assert rig.sync(*found).exit_code == 0
    assert events(rig) == before


def test_console_lines_do_not_tell_when_they_were_printed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that has nothing else at the server nobody knows whether they are of the log that was announced."""
    before = rig.folder / "gone" / "wandb" / f"run-20260921_101320-{RUN}" / f"run-{RUN}.wandb"
    environment = messages.Record(environment=messages.EnvironmentRecord(writer_id="gone"))
    logs.make_log(before, logs.run_record(RUN), environment, logs.output("printed\n", 1))
    rig.settle(before, 3600.0)
    rig.sync(before)
    log = log_of(rig, "first", attempt=1)
    with monkeypatch.context() as killed:
        killed.setattr("runferry.sync.contact.settle", Mock(side_effect=Interrupted("killed")))
        rig.sync(log)
    there = whole(rig)
    report = rig.only(rig.sync(log))

    assert report.verdict is Verdict.FAILED, report.reason
    assert whole(rig) == there


def test_a_lost_cursor_of_a_log_that_others_went_behind(rig: Rig) -> None:
    """It was sent before the first of these logs, which knows of it: where its samples lie is not known all the same."""
    found = {node: log_of(rig, node) for node in ("first", "c", "b")}
    for log in found.values():
        rig.sync(log)
    cursor(found["c"]).unlink()
    before = events(rig)
    report = rig.sync(found["b"], found["c"])

    assert {run.verdict for run in report.runs} == {Verdict.FAILED}
    assert events(rig) == before
    rig.sync(*found.values())
    assert whole(rig) == ALL


def test_somebody_else_who_was_announced(rig: Rig) -> None:
    """As by a program that resumes the run to look at it: a log whose cursor is here goes on as ever."""
    log = log_of(rig, "first", exit_code=None, age=1.0)
    rig.sync(log)
    announce_another(rig)
    logs.make_log(log, logs.row(4, {"loss": 4}), logs.sample(15, {"cpu": 15}), logs.exit_record(0, 10), append=True)
    rig.settle(log, 3600.0)
    report = rig.only(rig.sync(log))

    assert report.verdict is Verdict.SYNCED, report.reason
    assert [row["_step"] for row in rig.backend.runs[RUN].rows] == list(range(5))
    assert [at for at, _ in events(rig)] == [0.0, 5.0, 10.0, 15.0]


def test_rows_are_known_by_themselves(rig: Rig) -> None:
    """Whoever else was announced: of a run without samples and console a lost cursor costs nothing."""
    environment = messages.Record(environment=messages.EnvironmentRecord(writer_id="first"))
    log = rig.run(run_id=RUN)
    logs.make_log(log, logs.run_record(RUN), environment, logs.row(0, {"a": 1}), logs.exit_record(0, 10))
    rig.settle(log, 3600.0)
    rig.sync(log)
    announce_another(rig)
    cursor(log).unlink()
    marker(log).unlink(missing_ok=True)
    report = rig.only(rig.sync(log))

    assert report.verdict is Verdict.SYNCED, report.reason
    assert [row["_step"] for row in rig.backend.runs[RUN].rows] == [0]


def test_nobody_else_is_there_to_write_over(rig: Rig) -> None:
    """Where only these logs have written, a lost cursor costs nothing, as ever."""
    found = {node: log_of(rig, node) for node in ("first", "b", "c")}
    rig.sync(*found.values())
    for log in found.values():
        cursor(log).unlink()
    assert rig.sync(*found.values()).exit_code == 0
    assert whole(rig) == ALL


def test_a_lost_cursor_behind_somebody_elses_lines(rig: Rig) -> None:
    """What was there before the first log, from a log that is not here, is known by that one's cursor."""
    gone, first, second = (log_of(rig, "first", attempt=attempt) for attempt in range(3))
    rig.sync(gone)
    gone.unlink()
    rig.sync(first)
    rig.sync(first, second)
    before = whole(rig)
    cursor(second).unlink()
    report = rig.sync(first, second)

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 2
    assert whole(rig) == before
    assert len(before["rows"]) == 12


def test_they_are_read_as_one(rig: Rig) -> None:
    """`load` takes them in the same order: the time and the end are the first node's."""
    state = load(*(log_of(rig, node) for node in ("first", "b", "c")))

    assert (state.exit_code, state.runtime, state.row_count, state.sample_count) == (0, 10.0, 4, 9)


@pytest.mark.parametrize(
    ("producer", "expected"),
    [("0.31.0+runferry.1.0.node", True), ("0.31.0+runferry.1.0", False), ("0.31.0+abc.node", False), ("", False)],
)
def test_only_our_writer_says_whose_log_it_is(producer: str, expected: bool) -> None:
    """By its version behind the format's."""
    assert is_node(messages.HeaderRecord(version_info=messages.VersionInfo(producer=producer))) == expected


@pytest.mark.skipif(os.name != "posix", reason="commands as POSIX has them")
def test_record_on_each_node_makes_one_run(server: Server, folder: Path) -> None:
    """Two nodes of a Slurm job and one that is named by hand, each with a disk of its own, and the real backend."""
    environ = surroundings(server)
    nodes = {
        "a": ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, ("--label", "a")),
        "b": ({"SLURM_PROCID": "8", "SLURM_LOCALID": "0"}, ("--label", "b")),
        "c": ({}, ("--label", "c", "--secondary")),
    }
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "runferry.cli", "record", "--quiet", "--interval", "0.1", "--probe", "memory"),
                *("--id", "fleet", "--project", "proj", "--dir", folder / node, *options),
                *("--", "sh", "-c", f"echo from {node}; sleep 0.5"),
            ],
            env={**environ, "SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "16", **ranks},
            stdout=subprocess.DEVNULL,
        )
        for node, (ranks, options) in nodes.items()
    ]
    assert [child.wait(60) for child in running] == [0, 0, 0]
    command = [sys.executable, "-m", "runferry.cli", "sync", *(folder / node for node in nodes)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    run = server.run("local", "proj", "fleet")
    assert (run["state"], run["exit_code"]) == ("finished", 0)
    lines = server.events("local", "proj", "fleet")
    labels = {key.partition("/l:")[2] for line in lines for key in line if key.startswith("system.memory_percent")}
    assert labels == {"a", "b", "c"}
    assert max(line["_runtime"] for line in lines) < 30
    assert {f"runferry-machine_{node}.json" for node in nodes} <= {file["name"] for file in run["files"]}
    assert {f"from {node}" for node in nodes} == {
        line.split(" ", 1)[1].strip() for line in server.console("local", "proj", "fleet")
    }
