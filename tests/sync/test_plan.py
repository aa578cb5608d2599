"""Finding logs and reading their heads: what a sync knows before it sends anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from runferry.sync import UsageError
from runferry.sync.plan import group, read_head, survey
from runferry.sync.settings import SyncSettings
from support import logs


def names(heads) -> list[str]:
    return [head.run_id for head in heads]


def test_every_kind_of_path_leads_to_the_run(tmp_path: Path) -> None:
    """A log, its directory, the wandb directory, a tree, a link to any, several of them, text or path: one run."""
    log = logs.simple_run(tmp_path / "outputs/2026-09-21/14-13-20/wandb")
    (log.parent.parent / "latest-run").symlink_to(log.parent.name)
    (tmp_path / "link.wandb").symlink_to(log)
    os.link(log, tmp_path / "run-hard.wandb")
    places = [log, log.parent, log.parent.parent, log.parent.parent / "latest-run", tmp_path, tmp_path / "link.wandb"]

    for path in places:
        assert names(survey(path)) == names(survey(str(path))) == names(survey([path])) == ["a1b2c3d4"]
    assert len(survey(places)) == 1


def test_patterns_are_for_paths_that_do_not_exist(tmp_path: Path) -> None:
    """A quoted pattern is expanded; a folder with such a name is that folder; a pattern without a match is an error."""
    for number in range(3):
        logs.simple_run(tmp_path / "wandb", run_id=f"r{number}")
    logs.simple_run(tmp_path / "lr=[0.1]", run_id="odd")

    assert names(survey(f"{tmp_path}/wandb/*-r[12]")) == ["r1", "r2"]
    assert names(survey(f"{tmp_path}/**/run-r0.wandb")) == ["r0"]
    assert names(survey(tmp_path / "lr=[0.1]")) == ["odd"]
    with pytest.raises(UsageError, match="no file matches"):
        survey(f"{tmp_path}/wandb/*-nope")
    with pytest.raises(UsageError, match="nope"):
        survey(tmp_path / "nope")


def test_what_cannot_be_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that nobody may list is told as such, and is no log; the runs beside it are found."""
    logs.simple_run(tmp_path / "mine", run_id="mine")
    shut = logs.simple_run(tmp_path / "theirs", run_id="theirs").parent
    real = os.scandir

    def scandir(folder: object) -> object:
        if folder == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)  # type: ignore[call-overload]

    monkeypatch.setattr("runferry.logformat.rundir.find_logs.__kwdefaults__", {"unreadable": None, "scan": scandir})
    mine, theirs = survey(tmp_path)

    assert (mine.run_id, mine.problem) == ("mine", "")
    assert theirs.path == shut
    assert "Permission denied" in theirs.problem


def test_many_heads_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    """Heads are read several at a time, and told in order all the same."""
    wanted = [f"r{number:03d}" for number in range(200)]
    for run_id in wanted:
        logs.simple_run(tmp_path, run_id=run_id, rows=0)

    assert names(survey(tmp_path)) == wanted


def test_a_run_record_beyond_the_first_block_is_found(tmp_path: Path) -> None:
    """A config may be larger than what is read at first."""
    config = {f"key{number}": "x" * 1000 for number in range(200)}
    log = logs.make_log(tmp_path / "run-big.wandb", logs.header_record(), logs.run_record("big", config=config))

    assert (read_head(log).run_id, read_head(log).size > 200_000) == ("big", True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_does_not_stop_the_survey(tmp_path: Path) -> None:
    """It is opened without waiting for a writer, and named as no file."""
    os.mkfifo(tmp_path / "run-pipe.wandb")
    logs.simple_run(tmp_path, run_id="good")

    assert sorted((head.run_id, head.problem) for head in survey(tmp_path)) == [("", "not a file"), ("good", "")]


_CALL = re.compile(r"(\w+)\(.*")
_SURVEY = """
import sys
from runferry.sync.kin import with_kin
from runferry.sync.plan import group, survey
from runferry.sync.settings import SyncSettings
import encodings.idna, logging, queue  # whatever the first survey of a process loads
def runs(folder):
    return with_kin(group(survey(folder), SyncSettings()), SyncSettings())
runs(sys.argv[1])
open(sys.argv[2] + "/MARK").close()
print(len(runs(sys.argv[2])))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_run_costs_one_listing_and_one_opening(tmp_path: Path) -> None:
    """Until the first request, a run costs: open and read its folder, open and read its log; no status by name."""
    for number in range(40):
        logs.simple_run(tmp_path / "few" if number < 20 else tmp_path / "many", run_id=f"r{number}")
    (tmp_path / "many" / "MARK").touch()
    command = [sys.executable, "-c", _SURVEY, str(tmp_path / "few"), str(tmp_path / "many")]
    trace = tmp_path / "trace"
    tracer = ["strace", "-f", "-y", "-e", "trace=file,read,pread64,getdents64,fstat,close", "-o", str(trace)]
    done = subprocess.run([*tracer, *command], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr[-200:]}")

    lines = trace.read_text().split("MARK", 1)[1].splitlines()
    of_runs = [line.split(maxsplit=1)[1] for line in lines if f"{tmp_path}/many/run-" in line]
    calls = Counter(match[1] for line in of_runs if (match := _CALL.match(line)) and "AT_EMPTY_PATH" not in line)
    del calls["close"], calls["fstat"]
    in_folders = Counter(line.split("(")[0] for line in of_runs if ".wandb" not in line and "EMPTY_PATH" not in line)
    del in_folders["close"], in_folders["fstat"]

    assert done.stdout == "20\n"
    assert sum(in_folders.values()) <= 3 * 20, in_folders
    assert calls["openat"] == 2 * 20, calls
    assert calls["newfstatat"] + calls["lstat"] + calls["stat"] + calls["statx"] + calls["readlink"] == 0, calls


def damaged(log: Path) -> Path:
    """The log with its run record unreadable: the type byte of the second record is none."""
    content = bytearray(log.read_bytes())
    length = int.from_bytes(content[11:13], "little")
    content[7 + 7 + length + 6] = 0x77
    log.write_bytes(content)
    return log


def test_a_log_without_its_run_record_goes_with_its_run(tmp_path: Path) -> None:
    """The file name says which run, the others of the run where it goes, and the first row when it began."""
    first = logs.simple_run(tmp_path, run_id="two", project="mine", entity="team")
    lost = damaged(logs.simple_run(tmp_path, run_id="two", prefix="run-20260921_150000", start=logs.START_S + 2000))
    last = logs.simple_run(
        tmp_path, run_id="two", prefix="run-20260921_160000", start=logs.START_S + 4000, project="mine", entity="team"
    )
    other = logs.simple_run(tmp_path, run_id="other", project="else")
    runs = group(survey(tmp_path), SyncSettings())

    assert read_head(lost).salvaged
    assert read_head(lost).start_ns == round((logs.START_S + 2000) * 1e9)
    assert [(run.entity, run.project, run.run_id, [head.path for head in run.segments]) for run in runs] == [
        (None, "else", "other", [other]),
        ("team", "mine", "two", [first, lost, last]),
    ]
    (moved,) = group([head for head in survey(tmp_path) if head.run_id == "two"], SyncSettings(project="new"))
    assert (moved.entity, moved.project, len(moved.segments)) == ("team", "new", 3)


def test_a_log_without_its_run_record_is_not_given_to_one_of_two_projects(tmp_path: Path) -> None:
    """Where logs of that id go to several places, or there are none, it goes where logs go that name no project."""
    lost = damaged(logs.simple_run(tmp_path, run_id="two", prefix="run-20260921_150000"))
    alone = group(survey(tmp_path), SyncSettings())
    for project in ("one", "other"):
        logs.simple_run(tmp_path / project, run_id="two", project=project)
    runs = {run.project: [head.path for head in run.segments] for run in group(survey(tmp_path), SyncSettings())}

    assert [run.project for run in alone] == ["uncategorized"]
    assert runs["uncategorized"] == [lost]
    assert set(runs) == {"one", "other", "uncategorized"}


def test_an_empty_path_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set does not mean the folder that one is in."""
    logs.simple_run(tmp_path)
    monkeypatch.chdir(tmp_path)

    for paths in ("", ["", "."]):
        with pytest.raises(UsageError, match="empty"):
            survey(paths)


def test_heads_are_read_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes costs time and nothing else."""
    for number in range(70):
        logs.simple_run(tmp_path, run_id=f"r{number:03d}", rows=0)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)

    assert names(survey(tmp_path)) == [f"r{number:03d}" for number in range(70)]


def test_logs_of_a_run_go_by_their_start_and_not_by_their_names(tmp_path: Path) -> None:
    """A clock that was set, or another time zone, names a later directory as if it were the earlier one."""
    late = logs.simple_run(tmp_path, prefix="run-20260921_010000", start=logs.START_S + 100)
    early = logs.simple_run(tmp_path, prefix="run-20260921_090000")

    (run,) = group(survey(tmp_path), SyncSettings())
    assert [head.path for head in run.segments] == [early, late]
