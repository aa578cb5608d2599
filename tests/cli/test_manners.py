"""What a newcomer stumbles over: pipes that close, narrow terminals, typos, wrong paths."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console
from runferry.cli import group
from runferry.cli.ls import _table
from support.logs import simple_run

CLI = [sys.executable, "-m", "runferry.cli"]


def call(*args, **options):
    result = CliRunner().invoke(group, [str(arg) for arg in args], **options)
    return result.exit_code, result.output


def row(**values):
    base = {"run": "a1b2c3d4", "status": "finished", "rows": 1234567, "samples": 10, "size": 12_345_678}
    return {
        **base,
        "age": 130.0,
        "sync": "1234567 rows sent",
        "project": "team/project",
        "name": "n",
        "problem": "",
        **values,
    }


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_tells_runs_apart_is_never_cut(width):
    """Ids, states, counts and how far the sync came are whole in 80 columns, whatever the names are."""
    console = Console(width=width, record=True, file=io.StringIO())
    rows = [
        row(name="a name of very many words " * 4, log="/x/run.wandb"),
        row(run="z9", problem="torn_tail", log="/y"),
    ]
    console.print(_table(rows, wide=width >= 120, problems=True))
    text = console.export_text()

    for whole in ("a1b2c3d4", "finished", "1234567", "1234567 rows sent", "2 min ago"):
        assert whole in text
    assert all(len(line) <= width for line in text.splitlines())
    assert ("12.3 MB" in text) == (width >= 120)


@pytest.mark.parametrize("command", [["show"], ["show", "--json"], ["ls", "--json"]])
def test_a_reader_that_wants_no_more_is_no_error(tmp_path, command):
    """`| head` ends a command quietly, with exit code 0."""
    log = simple_run(tmp_path, rows=3000)
    process = subprocess.Popen([*CLI, *command, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()

    assert (process.wait(20), errors) == (0, b"")


@pytest.mark.parametrize("command", [["ls"], ["sync", "plan", "--json"], ["show"], ["verify"]])
@pytest.mark.parametrize("sink", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(tmp_path, command, sink):
    """As daemons and schedulers start commands; what is still open gets what is meant for it."""
    log = simple_run(tmp_path, rows=3)
    whole = ["sh", "-c", f'exec "$@" {sink}', "sh", *CLI, *command, str(log)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (sink == "2>&-")


@pytest.mark.parametrize("command", [["ls", "--json"], ["sync", "plan"], ["show"]])
def test_a_disk_that_is_full_is_told_in_one_line(tmp_path, command):
    """Exit code 1, as what was asked for is not there."""
    log = simple_run(tmp_path, rows=3)
    whole = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *CLI, *command, str(log)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: No space left")
    assert done.stderr.count("\n") <= 2


HOMELESS = """
import pathlib, sys
def nowhere(path=None):
    if path is None or str(path).startswith("~"):
        raise RuntimeError("Could not determine home directory.")
    return path
pathlib.Path.home = staticmethod(nowhere)
pathlib.Path.expanduser = nowhere
from runferry.cli import main
main()
"""


@pytest.mark.parametrize(
    ("command", "environment", "code", "says"),
    [
        (["ls"], {}, 0, "a1b2c3d4"),
        (["verify"], {}, 0, "1 whole"),
        (["settings"], {}, 2, "set HOME or RUNFERRY_STATE_DIR"),
        (["settings"], {"RUNFERRY_STATE_DIR": "/nowhere"}, 0, "api_key"),
        (["clean", "--dry-run"], {}, 2, "set HOME or RUNFERRY_STATE_DIR"),
        (["sync"], {}, 2, "set HOME or RUNFERRY_STATE_DIR"),
        (["sync"], {"RUNFERRY_STATE_DIR": "/nowhere"}, 2, "no API key for"),
        (["sync"], {"RUNFERRY_STATE_DIR": "/nowhere", "NETRC": "~u/x"}, 2, "NETRC: ~u/x: there is no such home"),
        (["sync"], {"RUNFERRY_STATE_DIR": "/nowhere", "RUNFERRY_API_KEY_FILE": "~/x"}, 2, "~/x: there is no such home"),
        (["sync"], {"RUNFERRY_STATE_DIR": "/nowhere", "WANDB_IDENTITY_TOKEN_FILE": "~/x"}, 2, "~/x: there is no such"),
        (["sync", "--key-file", "~u/x"], {"RUNFERRY_STATE_DIR": "/nowhere"}, 2, "--key-file: ~u/x: there is no such"),
        (["serve"], {}, 2, "set HOME, or give --data-dir"),
    ],
)
def test_a_user_without_a_home_is_told_what_is_missing(tmp_path, command, environment, code, says):
    """As in a container whose user has a number and no name: what can be done is done, and the rest is one line."""
    paths = [str(simple_run(tmp_path, rows=2))] if command[0] not in {"settings", "serve"} else []
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("WANDB_", "RUNFERRY_", "HOME", "XDG_"))
    }
    whole = [sys.executable, "-c", HOMELESS, *command, *paths]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, env=known | environment, timeout=60)

    assert "Traceback" not in done.stderr
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stderr


def test_verify_goes_to_its_end_when_nobody_reads(tmp_path):
    """`verify | head -1` has the exit code of all logs, the damaged one that comes last too."""
    simple_run(tmp_path / "a", run_id="a")
    damaged = simple_run(tmp_path / "b", run_id="b")
    damaged.write_bytes(damaged.read_bytes()[:-3])
    for sink in (">/dev/full 2>&1", f"| {sys.executable} -c 'import os; os.close(0)'"):
        script = f'({" ".join(CLI)} verify "$1"; echo $? > "$2") {sink}'
        subprocess.run(["sh", "-c", script, "sh", str(tmp_path), str(tmp_path / "code")], check=False)

        assert (tmp_path / "code").read_text() == "1\n"


def test_a_run_is_shown_by_its_id(tmp_path, monkeypatch):
    """The id that `ls` prints is enough, in the folder that holds ./wandb."""
    log = simple_run(tmp_path / "wandb", rows=2)
    monkeypatch.chdir(tmp_path)
    run_id = log.name.removeprefix("run-").removesuffix(".wandb")
    code, output = call("show", run_id)

    assert code == 0
    assert output.splitlines()[0].endswith(log.name)
    assert call("show", "no-such-run")[0] == 2
    assert call("show", "*")[0] == 2


def test_a_text_file_is_called_what_it_is(tmp_path):
    """`show` says that it is not a log, with and without --summary."""
    file = tmp_path / "x.wandb"
    file.write_text("hello")

    for options in ([], ["--summary"]):
        code, output = call("show", *options, file)
        assert code == 1
        assert "not a log" in output


def test_silence_is_judged_by_the_same_option_everywhere(tmp_path):
    """`ls` and `show` take the --stale-after of `sync`, and say how long a run has been silent."""
    log = simple_run(tmp_path, rows=2, exit_code=None)

    for command in (["ls", "--json"], ["show", "--summary", "--json"]):
        states = [json.loads(call(*command, *more, log)[1])["status"] for more in ([], ["--stale-after", "-1"])]
        assert states == ["running", "crashed"]
    assert "silent for" in call("show", "--summary", log)[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sinc"], "Did you mean 'sync'?"),
        (["record", "--projct", "x", "--", "true"], "--projct"),
        (["sample", "--pid", "999999999"], "no process"),
        (["sample", "--disk", "/nope"], "/nope"),
        (["sync", "--base-url", "localhost:8080", "x"], "did you mean http://localhost:8080?"),
        (["sync"], "no wandb directory here"),
        (["ls"], "no wandb directory here"),
        (["show"], "neither a path here nor the id"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(arguments, says, tmp_path, monkeypatch):
    """Each ends with code 2 and one line that helps."""
    monkeypatch.chdir(tmp_path)
    done = subprocess.run([*CLI, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_says_what_would_go_where(tmp_path):
    """Rows, samples, files, and the server by its address; nothing is counted as sent."""
    log = simple_run(tmp_path, rows=5)
    code, output = call("sync", "--dry-run", "--base-url", "http://backend.example:81", log)

    assert code == 0
    assert "5 of 5 rows" in output
    assert "http://backend.example:81" in output
    assert "sent" not in output.replace("would be sent", "")


def test_a_server_that_cannot_be_reached_is_named(tmp_path):
    """Whoever mistyped an address sees it, and a mismatch of protocols is not tried again."""
    log = simple_run(tmp_path, rows=1)
    environment = {"RUNFERRY_API_KEY": "k" * 40}
    code, output = call("sync", "--base-url", "http://127.0.0.1:9", "--retry-for", "0", log, env=environment)

    assert code == 75
    assert "cannot reach 127.0.0.1:9" in output


def test_record_tells_scripts_what_it_did(tmp_path):
    """With --json: which log, and what became of it, on standard error; the command's own output is untouched."""
    command = [*CLI, "record", "--json", "--dir", str(tmp_path), "--", "sh", "-c", "echo out; exit 3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    started, ended = map(json.loads, done.stderr.splitlines())

    assert (done.returncode, done.stdout) == (3, "out\n")
    assert (started["type"], ended["type"]) == ("run_started", "run_done")
    assert started["log"] == ended["log"]
    assert (ended["exit_code"], ended["complete"], ended["rows_dropped"]) == (3, True, 0)
