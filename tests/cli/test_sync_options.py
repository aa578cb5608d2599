"""What `runferry sync` and `runferry sync plan` are told, as a shell sees it; and the recipes of the documentation."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from runferry.cli import group
from runferry.cli.syncplan import _table
from runferry.cli.text import in_words
from runferry.sync import preview
from support import logs
from support.server import serve

CLI = [sys.executable, "-m", "runferry.cli"]
NOWHERE = ["--base-url", "http://127.0.0.1:9"]


def call(*arguments: object, **environ: str) -> tuple[int, str]:
    """Exit code, and all that is printed."""
    done = CliRunner().invoke(group, [str(argument) for argument in arguments], env=environ)
    return done.exit_code, done.output


def plan(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and events of `sync plan --json`."""
    code, output = call("sync", "plan", "--json", *NOWHERE, *arguments)
    return code, [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `wandb` folder with a run of two logs and two others, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNFERRY_STATE_DIR", str(tmp_path / "state"))
    logs.simple_run(tmp_path / "wandb", run_id="two", rows=2, age=3600, exit_code=None)
    logs.simple_run(
        tmp_path / "wandb",
        run_id="two",
        rows=2,
        prefix="run-20260921_150000",
        start=logs.START_S + 100,
        age=3600,
        resume=True,
    )
    logs.simple_run(tmp_path / "wandb", run_id="bad", rows=3, exit_code=1, age=3600, tags=["best"])
    logs.simple_run(tmp_path / "wandb", run_id="gone", rows=4, exit_code=None, age=3600)
    return tmp_path / "wandb"


def test_a_plan_is_a_line_per_run(folder: Path) -> None:
    """One object for each run, with what one sync has to be given and how it stands; then the count."""
    code, said = plan()

    assert code == 0
    assert [event["type"] for event in said] == ["run", "run", "run", "done"]
    two = next(event for event in said if event.get("run") == "two")
    assert [Path(log).parent.name for log in two["logs"]] == ["run-20260921_141320-two", "run-20260921_150000-two"]
    assert two["bytes"] == sum(Path(log).stat().st_size for log in two["logs"])
    assert (two["target"], two["state"], two["todo"], two["rows_sent"]) == ("/proj/two", "finished", "all", 0)
    assert said[-1] == {"type": "done", "runs": 3, "left_out": {}}
    assert sorted(path.suffix for path in folder.rglob("*") if path.is_file()) == [".wandb"] * 4


def test_a_plan_for_people_is_a_table(folder: Path) -> None:
    """A line per run on standard output; what cannot be synced is named, and makes the exit code 1."""
    code, output = call("sync", "plan", *NOWHERE)
    assert code == 0
    assert "3 runs, 3 to sync" in output
    assert re.search(r"^two +finished +all +2 ", output, re.MULTILINE)
    (folder / "run-x.wandb").write_bytes(b"")
    os.utime(folder / "run-x.wandb", (0, 0))
    code, output = call("sync", "plan", *NOWHERE, folder, "--state", "failed")

    assert code == 1
    assert "1 run, 1 to sync, 2 left out" in output
    assert "run-x.wandb: empty (0 bytes)" in output


@pytest.mark.parametrize("width", [30, 50, 80, 110, 150])
def test_a_plan_has_one_line_for_each_run_at_any_width(folder: Path, width: int) -> None:
    """What does not fit is left out, and the last columns are cut: run, state and what to do are whole."""
    runs = preview(folder, project="a-project-with-a-long-name", entity="a-team-with-a-long-name").runs
    out = io.StringIO()
    Console(file=out, width=width).print(_table(runs, width))

    lines = out.getvalue().splitlines()

    assert len(lines) == 1 + len(runs)
    assert re.match(r"two +finished +all\b", next(line for line in lines if line.startswith("two")))
    assert ("rows sent" in lines[0], "target" in lines[0], "log" in lines[0].split()) == (
        width >= 40,
        width >= 80,
        width >= 140,
    )


def test_names_of_requests_are_told_as_what_they_are_for() -> None:
    """On a terminal; what a log or a server calls so otherwise stays."""
    assert in_words("UpsertBucket: HTTP 404: no UpsertBucketX") == "make the run: HTTP 404: no UpsertBucketX"
    assert in_words("CreateArtifactFiles: HTTP 500") == "ask where an artifact's files go: HTTP 500"


def test_a_report_that_cannot_be_written_is_named_as_it_was(folder: Path) -> None:
    """Not by the name of a file that only we know; and a project that no server takes is wrong usage."""
    code, output = call("sync", *NOWHERE, "--report", folder / "gone" / "x.json", folder)
    assert (code, f"{folder / 'gone' / 'x.json'}: No such file" in output) == (1, True)
    assert "project: no server takes a name with '/' in it" in call("sync", *NOWHERE, "-p", "a/b", folder)[1]
    assert call("sync", *NOWHERE, "--jobs", "99", folder)[0] == 2


def test_a_folder_named_plan_is_a_path(folder: Path) -> None:
    """`sync plan` plans; `sync ./plan` and `sync -- plan` sync what lies there."""
    logs.simple_run(Path("plan"), run_id="inner", age=3600)

    for path in (["./plan"], ["--", "plan"]):
        code, output = call("sync", *NOWHERE, "--dry-run", "--json", *path)
        assert (code, '"inner"' in output, '"two"' in output) == (0, True, False)


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["--state", "failed,crashed"], {"bad", "gone"}),
        (["--state", "failed", "--state", "finished"], {"bad", "two"}),
        (["--state", "live"], set()),
        (["--newer", "2h"], {"bad", "gone", "two"}),
        (["--newer", "30m"], set()),
        (["--tag", "best", "--tag", "other"], {"bad"}),
        (["--min-rows", "4"], {"gone", "two"}),
        (["-p", "p", "-e", "e", "--id", "one"], {"one"}),
    ],
)
def test_options_choose(folder: Path, options: list[str], runs: set[str]) -> None:
    """The plan and the sync agree on what is asked for."""
    code, said = plan(*options)
    assert (code, {event["run"] for event in said if event["type"] == "run"}) == (0, runs)

    code, output = call("sync", "--dry-run", "--json", *NOWHERE, *options)
    done = [json.loads(line) for line in output.splitlines()]
    assert {event["run"] for event in done if event["type"] == "run_done"} == runs
    assert done[-1]["left_out"] == said[-1]["left_out"]


def test_shares_on_the_command_line(folder: Path) -> None:
    """By number or by the batch system; together they are all runs."""
    shares = [plan("--shard", f"{index}/2")[1] for index in (1, 2)]
    assert sorted(event["run"] for said in shares for event in said if event["type"] == "run") == ["bad", "gone", "two"]

    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"}
    _, output = call("sync", "plan", "--json", *NOWHERE, "--shard", "auto", **array)
    assert [json.loads(line) for line in output.splitlines()] == shares[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shard", "0/4"], "1/N to N/N"),
        (["--shard", "auto"], "no task of an array job"),
        (["--replace-tags", "a"], "OLD=NEW"),
        (["--state", "ended"], "finished, failed, crashed, running"),
        (["--newer", "soon"], "2d"),
        (["wandb/*-none"], "no file matches"),
        (["--watch", "--tag", "x"], "without --watch"),
        (["--id", "a/b"], "run id"),
        (["--shard", ""], "shard: the text is empty"),
        (["--project", ""], "project: the text is empty"),
        (["--entity", ""], "entity: the text is empty"),
        (["--base-url", ""], "base url: the text is empty"),
        (["--replace-tags", ""], "replace tags: the text is empty"),
        (["--report", ""], "not an ordinary file"),
        (["--report", "/"], "/: not an ordinary file"),
        (["--report", "/dev/full"], "/dev/full: not an ordinary file"),
        (["--metrics-file", "/dev/full"], "/dev/full: not an ordinary file"),
        (["--newer", ""], "newer: the text is empty"),
        (["--state", ""], "the text is empty"),
        (["--state", ","], "the text is empty"),
        (["--tag", "a", "--tag", ""], "the text is empty"),
        (["wandb", ""], "a path is empty"),
    ],
)
def test_what_cannot_be_followed_is_a_usage_error(folder: Path, options: list[str], says: str) -> None:
    """One line that says what would do, exit code 2, and nobody is contacted."""
    environ = {**os.environ, "WANDB_API_KEY": "k" * 40}
    done = subprocess.run(
        [*CLI, "sync", *NOWHERE, *options], capture_output=True, text=True, timeout=60, env=environ, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--project", "--entity", "--base-url"])
def test_verify_takes_no_empty_text_for_a_place(folder: Path, option: str) -> None:
    """A comparison with another server than was meant would say something of that one."""
    _, output = call("verify", "--remote", option, "", WANDB_API_KEY="k" * 40, WANDB_BASE_URL=NOWHERE[1])

    assert output.endswith("the text is empty: is a variable not set?\n")


def test_a_report_goes_to_where_a_link_leads(folder: Path) -> None:
    """The link stays, and what it leads to is replaced as a whole."""
    link, target = folder / "report.json", folder / "elsewhere.json"
    link.symlink_to(target)
    call("sync", *NOWHERE, "--dry-run", "--report", link)

    assert link.is_symlink()
    assert json.loads(target.read_text())["exit_code"] == 0


def test_what_the_peer_is_told_is_understood(folder: Path) -> None:
    """Options that ask for what is always done here are taken; `-n` is `--jobs`."""
    options = [
        "--include-online",
        "--no-skip-online",
        "--include-synced",
        "--no-skip-synced",
        "--yes",
        "-v",
        "-n",
        "20",
    ]
    code, output = call("sync", *NOWHERE, "--dry-run", *options, "wandb/*-gone")

    assert (code, "gone" in output, "two" in output) == (0, True, False)


def test_the_shell_waits_for_no_answer(folder: Path) -> None:
    """Nothing is ever asked: with no input and no terminal a sync of everything begins at once."""
    command = [*CLI, "sync", *NOWHERE, "--retry-for", "0"]
    environ = {**os.environ, "WANDB_API_KEY": "k" * 40}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environ, check=False
    )

    assert done.returncode == 75, done.stderr


DOCS = Path(__file__).resolve().parents[2] / "docs" / "sync.md"


def recipes() -> dict[str, str]:
    """The fenced blocks of the section on fleets, by their first word of interest."""
    section = DOCS.read_text().split("## Fleets", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    return {("python" if kind == "python" else text.split()[0]): text for kind, text in blocks}


@pytest.mark.parametrize("tool", ["seq", "parallel", "#!/bin/bash", "python"])
def test_recipes_for_many_workers_work(folder: Path, tmp_path: Path, tool: str) -> None:
    """Each recipe of the documentation, run as it stands, brings every run over once."""
    script = recipes()[tool]
    if tool == "parallel" and shutil.which("parallel") is None:
        pytest.skip("needs GNU parallel")
    with serve(tmp_path / "server") as server:
        bin_ = tmp_path / "bin"
        bin_.mkdir()
        (bin_ / "runferry").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m runferry.cli "$@"\n')
        (bin_ / "runferry").chmod(0o755)
        environ = {
            **os.environ,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "WANDB_BASE_URL": server.url,
            "WANDB_API_KEY": server.key,
        }
        command = [sys.executable, "-W", "error", "-c", script] if tool == "python" else ["bash", "-ec", script]
        tasks = range(4) if tool == "#!/bin/bash" else [None]
        for task in tasks:
            array = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "4"}
            done = subprocess.run(
                command,
                env=environ | (array if task is not None else {}),
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, done.stderr

        assert {run["name"]: run["history_lines"] for run in server.runs()} == {"two": 4, "bad": 3, "gone": 4}
        assert len(server.requests("UpsertBucket")) == 3, "a run was sent twice"


def test_a_report_says_what_was_asked_for(folder: Path, tmp_path: Path) -> None:
    """The report file names share, filters and replacements, and how many runs they left out; the plan counts the rest."""
    report = tmp_path / "report.json"
    options = [
        "--shard",
        "1/1",
        "--state",
        "failed",
        "--tag",
        "best",
        "--replace-tags",
        "best=good",
        "--report",
        report,
    ]
    code, output = call("sync", *NOWHERE, "--dry-run", "--json", *options)
    document = json.loads(report.read_text())

    assert code == 0
    assert {name: document["settings"][name] for name in ("shard", "states", "tags", "replace_tags")} == {
        "shard": "1/1",
        "states": ["failed"],
        "tags": ["best"],
        "replace_tags": {"best": "good"},
    }
    assert document["left_out"] == {"state": 2}
    assert json.loads(output.splitlines()[0]) == {"type": "plan", "runs": 3, "logs": 4}
