"""`runferry verify` of logs on disk, as a user calls it."""

from __future__ import annotations

import gzip

from click.testing import CliRunner
from runferry.cli import group
from support.invoke import caller, lines
from support.logs import simple_run

call = caller("verify")


def test_each_log_has_a_word_and_what_it_lost(here):
    """Counts are at the end, and the exit code says whether anything is lost."""
    simple_run(here / "wandb", run_id="good")
    assert call().exit_code == 0
    torn = simple_run(here / "wandb", run_id="torn")
    torn.write_bytes(torn.read_bytes()[:-3])
    done = call()

    assert (done.exit_code, done.stderr) == (1, "1 torn, 1 whole\n")
    assert done.stdout.splitlines()[0] == "whole      wandb/run-20260921_141320-good/run-good.wandb  5 rows"
    assert "torn       wandb/run-20260921_141320-torn/run-torn.wandb  5 rows  torn: bytes" in done.stdout
    assert "steps from 5 on" in done.stdout
    found = lines(call("--json"))
    assert [(line["type"], line.get("state")) for line in found] == [
        ("integrity", "whole"),
        ("integrity", "torn"),
        ("done", None),
    ]
    assert found[1]["losses"][0]["steps"] == [5, None]
    assert found[2]["counts"] == {"whole": 1, "torn": 1}


def test_packed_logs_pipes_and_bundles(here):
    """Are called as their user called them; packed data that breaks off is no whole log."""
    log = simple_run(here / "wandb", rows=200)
    (here / "x.wandb.gz").write_bytes(gzip.compress(log.read_bytes()))
    (here / "cut.wandb.gz").write_bytes(gzip.compress(log.read_bytes())[:-900])
    assert CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"]).exit_code == 0

    assert [line.get("log") for line in lines(call("--json", "x.wandb.gz", "b.tar.zst"))] == [
        "x.wandb.gz",
        "b.tar.zst:run-20260921_141320-a1b2c3d4/run-a1b2c3d4.wandb",
        None,
    ]
    piped = call("-", input=log.read_bytes())
    assert (piped.exit_code, piped.stdout) == (0, "whole      standard input  200 rows\n")
    cut = call("cut.wandb.gz")
    assert (cut.exit_code, "breaks off" in cut.stderr) == (1, True)
