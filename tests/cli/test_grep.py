"""`runferry grep`, as a user calls it."""

from __future__ import annotations

import os

from click.testing import CliRunner
from runferry.cli import group
from support import logs
from support.invoke import caller, lines
from support.logs import simple_run

call = caller("grep")


def test_lines_with_their_step_and_metrics(here):
    """The time, the step of the last row before, and the latest values that were asked for."""
    simple_run(here / "wandb")
    done = call("step [13]", "--with", "loss", "--with", "nope")

    assert done.exit_code == 0
    assert [line.split("  ", 1)[1] for line in done.stdout.splitlines()] == [
        "step 1  loss=0.5  out| step 1",
        "step 3  loss=0.25  out| step 3",
    ]
    assert lines(call("-F", "step 1", "--with", "loss", "--json"))[0] == {
        "type": "line",
        "run": "a1b2c3d4",
        "log": "wandb/run-20260921_141320-a1b2c3d4/run-a1b2c3d4.wandb",
        "time": logs.START_S + 0.5,
        "step": 1,
        "stream": "stdout",
        "match": True,
        "text": "step 1",
        "values": {"loss": 0.5},
    }


def test_many_runs(here):
    """Each line has its run before it, groups are apart, and options mean what they mean to grep."""
    for run in ("a", "b"):
        simple_run(here / "wandb", run_id=run)
    assert [line.split()[0] for line in call("STEP 2", "-i").stdout.splitlines()] == ["a", "b"]
    assert call("STEP 2").exit_code == 1
    assert call("step", "-m", "2").stdout.count("out|") == 4
    around = call("step 0", "-C", "1").stdout.splitlines()
    assert [line.split("out")[-1] if line != "--" else line for line in around] == [
        "| step 0",
        "- step 1",
        "--",
        "| step 0",
        "- step 1",
    ]
    assert call("step", "--stream", "stderr").exit_code == 1
    assert call("(", "-F").exit_code == 1
    assert call("(").exit_code == 2


def test_what_is_printed_obeys_nobody(here):
    """Colours are searched through; control characters are shown."""
    log = logs.make_log(here / "run-x.wandb", logs.run_record("x"), logs.output("\x1b[31mred\x1b[0m \x07bell\r\n", 1))
    done = call("red", log)

    assert done.exit_code == 0
    assert done.stdout.endswith("before the first step  out| red \\x07bell\n")


def test_exit_codes_are_those_of_grep(here):
    """0 found, 1 not, 2 trouble: unreadable logs always, damage where nothing was found."""
    good = simple_run(here / "wandb", run_id="good")
    bad = simple_run(here / "wandb", run_id="bad", rows=50)
    data = bytearray(bad.read_bytes())
    data[700:800] = bytes(100)
    bad.write_bytes(data)
    assert call("nothing", good).exit_code == 1
    found = call("step 49", bad)
    assert (found.exit_code, "damaged in 1 place, the first at byte" in found.stderr) == (0, True)
    assert call("nothing", bad).exit_code == 2
    torn = simple_run(here / "wandb", run_id="torn", exit_code=None)
    torn.write_bytes(torn.read_bytes()[:-2])
    assert (call("nothing", torn).exit_code, call("nothing", torn).stderr) == (1, "")
    (here / "wandb" / "gone.wandb").symlink_to("nowhere")
    (here / "wandb" / "folder.wandb").mkdir()
    (here / "wandb" / "web.wandb").write_text("<html>")
    os.mkfifo(here / "wandb" / "pipe.wandb")
    done = call("step")
    assert done.exit_code == 2
    assert done.stdout.count("out|") > 50
    for words in ("No such file", "Is a directory", "a web page", "not a file"):
        assert words in done.stderr
    assert call("x", "nope").exit_code == 2


def test_bundles_and_pipes(here):
    """Are searched as they are."""
    log = simple_run(here / "wandb")
    assert call("step 4", "-", input=log.read_bytes()).stdout.count("step 4") == 2
    assert CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"]).exit_code == 0
    assert lines(call("step 4", "b.tar.zst", "--json"))[0]["log"].startswith("b.tar.zst:")


def test_metrics_that_no_line_has_are_said(here):
    """A mistyped key is no empty column."""
    simple_run(here / "wandb")
    done = call("step 3", "--with", "loss", "--with", "los")
    assert (done.exit_code, done.stdout.count("loss=")) == (0, 1)
    assert done.stderr.startswith("no row before these lines has los:")
