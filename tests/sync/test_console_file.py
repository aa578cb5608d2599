"""`output.log` of a run whose logs are not all here: it holds what all of them printed, or stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runferry.sync import Verdict
from support import logs
from support.syncrig import Rig

LEFT = "output.log is left as it is at the server"


def job(rig: Rig, number: int, *, prints: bool = True) -> Path:
    """One of the logs of a run, in a folder of its own."""
    start = logs.START_S + 3600 * number
    log = rig.folder / f"job{number}" / f"run-20260921_1{number}1320-j" / "run-j.wandb"
    records = [
        logs.header_record(),
        logs.run_record("j", start=start, resume=number > 0),
        *(logs.row(step, start=start) for step in (2 * number, 2 * number + 1)),
        *([logs.output(f"job {number}\n", start=start)] if prints else []),
    ]
    logs.make_log(log, *records)
    rig.settle(log, 7200)
    return log


def grow(rig: Rig, log: Path, number: int) -> None:
    start = logs.START_S + 3600 * number
    logs.make_log(log, logs.row(20, start=start), logs.output("more\n", start=start), logs.exit_record(), append=True)
    rig.settle(log)


def printed(rig: Rig) -> bytes:
    content: bytes = rig.backend.runs["j"].files["output.log"]
    return content


@pytest.mark.parametrize("named", [[0, 2], [1, 2], [2]])
def test_it_waits_for_the_logs_that_are_not_here(rig: Rig, named: list[int]) -> None:
    """A log that grows is named without others: the file keeps their lines, the verdict says so, and all logs make it whole."""
    paths = [job(rig, number) for number in range(3)]
    rig.sync(*paths)
    grow(rig, paths[2], 2)

    report = rig.sync(*(paths[number] for number in named))

    assert {run.verdict for run in report.runs} == {Verdict.SYNCED}
    assert [LEFT in run.reason for run in report.runs] == [False] * (len(named) - 1) + [True]
    assert printed(rig) == b"job 0\njob 1\njob 2\n"
    rig.backend.forget()
    assert {run.reason for run in rig.sync(*(paths[number] for number in named)).runs} == {"nothing new"}
    assert rig.backend.requests == []

    assert {run.verdict for run in rig.sync(*paths).runs} == {Verdict.SYNCED}
    assert printed(rig) == b"job 0\njob 1\njob 2\nmore\n"
    assert {run.reason for run in rig.sync(*paths).runs} == {"nothing new"}


def test_it_does_not_wait_for_a_log_without_lines(rig: Rig) -> None:
    """What the cursors say of its lines is enough to know."""
    paths = [job(rig, number, prints=number != 1) for number in range(3)]
    rig.sync(*paths)
    grow(rig, paths[2], 2)

    report = rig.sync(paths[0], paths[2])

    assert not any(LEFT in run.reason for run in report.runs)
    assert printed(rig) == b"job 0\njob 2\nmore\n"


def test_a_log_whose_earlier_ones_are_gone_does_not_take_their_lines(rig: Rig) -> None:
    """They were sent, and cleaned away: nobody but the server has them."""
    first = job(rig, 0)
    rig.sync(first)
    shutil.rmtree(first.parent)
    later = job(rig, 1)

    report = rig.only(rig.sync(later))

    assert report.verdict is Verdict.SYNCED
    assert LEFT in report.reason
    assert printed(rig) == b"job 0\n"
    rig.backend.forget()
    assert rig.only(rig.sync(later)).verdict is Verdict.SYNCED
    assert rig.backend.requests == []
