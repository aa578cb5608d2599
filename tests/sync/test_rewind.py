"""Forks and rewinds: a run that branches off another one, and one that goes back to one of its own steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import messages
from runferry.sync import Verdict
from runferry.sync.transport import Answer
from support import logs
from support.segments import RUN, held, segment
from support.syncrig import Rig, cursor, marker, on


class Killed(BaseException):
    """The process is gone."""


def branch(step: int, run: str = RUN) -> Any:
    return messages.BranchPoint(run=run, metric="_step", value=step)


def rewound(rig: Rig, step: int, rows: int = 10, **options: Any) -> Path:
    """A log that goes back to behind `step` of its own run, as the peer writes it: its steps are the run's."""
    return segment(rig, "B", (step + 1, rows), resume=False, branch_point=branch(step), **options)


def elsewhere(rig: Rig) -> None:
    """The run's first log was synced from another machine."""
    log = segment(rig, "A")
    rig.sync(log)
    shutil.rmtree(log.parent)
    rig.backend.forget()


def test_a_fork_is_a_run_of_its_own(rig: Rig) -> None:
    """Its parent is named by the config as the log has it, and its steps are as logged; nothing else is asked."""
    point = {"run_id": "parent1", "step": 3}
    log = rig.folder / f"run-20260921_141320-{RUN}" / f"run-{RUN}.wandb"
    run = logs.run_record(RUN, config={"_wandb": {"branch_point": point}}, branch_point=branch(3, "parent1"))
    logs.make_log(log, run, logs.row(4), logs.row(5), logs.exit_record())
    rig.settle(log)

    rig.sync()

    held_run = rig.backend.runs[RUN]
    assert [row["_step"] for row in held_run.rows] == [4, 5]
    assert held_run.config["_wandb"]["value"]["branch_point"] == point
    assert "RewindRun" not in rig.backend.operations()


def test_a_rewind_takes_back_what_came_after_its_step(rig: Rig) -> None:
    """Before the run is announced; rows go behind what is left, and what the run had stays in its config."""
    elsewhere(rig)

    report = rig.sync(rewound(rig, 49))

    assert rig.only(report).verdict is Verdict.SYNCED, rig.only(report).reason
    assert held(rig)["rows"] == [("A", 0, 49), ("B", 50, 59)]
    assert held(rig)["config"] == ["from_A", "from_B"]
    operations = rig.backend.operations()
    assert operations.count("RewindRun") == 1
    assert operations.index("RewindRun") < operations.index("UpsertBucket")


def test_a_rewind_happens_once(rig: Rig) -> None:
    """A log that grew, or one that is sent again in whole, takes nothing back again: others may have gone on since."""
    elsewhere(rig)
    log = rewound(rig, 49, exit_code=None)
    rig.sync(log)
    rig.backend.forget()
    logs.make_log(log, logs.exit_record(0, 10), append=True)
    rig.settle(log, 3600)

    rig.sync(log)
    rig.sync(log, include_synced=True)

    assert "RewindRun" not in rig.backend.operations()
    assert held(rig)["rows"] == [("A", 0, 49), ("B", 50, 59)]


def test_a_rewind_whose_cursor_was_lost(rig: Rig) -> None:
    """Its rows are there already, so the run is not rewound: what to do is for the user to say."""
    elsewhere(rig)
    log = rewound(rig, 49)
    rig.sync(log)
    before = held(rig)
    cursor(log).unlink()
    marker(log).unlink()
    rig.backend.forget()

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.FAILED
    assert "RewindRun" not in rig.backend.operations()
    assert held(rig) == before


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_request_of_a_rewind(tmp_path: Path, moment: str) -> None:
    """Whatever had reached the server: the next sync ends where one that was not stopped does."""
    states = []
    for number in range(1, 30):
        folder = tmp_path / str(number)
        folder.mkdir()
        rig = Rig(folder)
        elsewhere(rig)
        log = rewound(rig, 49)

        def death(count: int, _: str, __: Any, number: int = number) -> None:
            if count == number:
                raise Killed

        setattr(rig.backend, moment, death)
        try:
            rig.sync(log, body_bytes=500)
        except Killed:
            died = True
        else:
            died = False
        setattr(rig.backend, moment, lambda *_: None)
        rig.sync(log, body_bytes=500)
        states.append(held(rig))
        if not died:
            break

    assert len(states) > 8
    assert all(state == states[-1] for state in states)


def test_a_rewind_beside_the_log_that_it_rewinds(rig: Rig) -> None:
    """Both logs are here: they are stitched, and the rows that are too many are taken back, whatever the policy."""
    for overlap in ("last", "first", "both"):
        rig.backend.runs.clear()
        shutil.rmtree(rig.folder)
        rig.folder.mkdir()
        rig.sync(segment(rig, "A"), overlap=overlap)

        report = rig.sync(rewound(rig, 49), overlap=overlap)

        assert report.exit_code == 0, [run.reason for run in report.runs]
        assert held(rig)["rows"] == [("A", 0, 49), ("B", 50, 59)]


def test_a_rewind_of_a_run_that_the_server_has_not(rig: Rig) -> None:
    """There is nothing to take back: the rows are sent as they are."""
    rig.sync(rewound(rig, 49))

    assert held(rig)["rows"] == [("B", 50, 59)]
    assert "RewindRun" not in rig.backend.operations()


def test_a_server_that_cannot_rewind(rig: Rig) -> None:
    """Nothing is sent there: rows of the other branch would stay between ours."""
    elsewhere(rig)
    rig.backend.before = on(
        "RewindRun", Answer(200, {}, json.dumps({"errors": [{"message": "unknown field"}]}).encode())
    )

    report = rig.sync(rewound(rig, 49))

    assert rig.only(report).verdict is Verdict.FAILED
    assert "unknown field" in rig.only(report).reason
    assert held(rig)["rows"] == [("A", 0, 99)]
