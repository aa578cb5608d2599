"""`runferry repair`, as a user calls it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import Gap, load, read_records
from support.invoke import caller, lines
from support.logs import set_age, simple_run

call = caller("repair")


def broken(folder, run_id="a1b2c3d4", **options):
    """A run whose second row is lost, and in whose first one a bit is flipped."""
    log = simple_run(folder, run_id=run_id, **options)
    first, second, *_ = (item for item in read_records(log) if item.kind == "history")
    data = bytearray(log.read_bytes())
    data[first.offset + 20] ^= 4
    data[second.offset + 9 : second.end] = bytes(second.end - second.offset - 9)
    log.write_bytes(data)
    return log


def test_damaged_logs_are_written_anew_and_sound_ones_left(here):
    """Beside the old ones, with what was lost, healed and moved; what is there already fails, and the rest is done."""
    broken(here / "wandb")
    simple_run(here / "wandb", run_id="good")
    done = call()

    assert done.exit_code == 0
    assert "repaired wandb/run-20260921_141320-a1b2c3d4/run-a1b2c3d4.wandb" in done.stdout
    for part in ("(bad_crc), record 8, step 1", "bit 2", "-> repaired/offline-run-20260921_141320-a1b2c3d4"):
        assert part in done.stdout
    assert "sound    wandb/run-20260921_141320-good/run-good.wandb" in done.stdout
    assert done.stderr == "1 repaired, 1 sound\n"
    made = here / "repaired" / "offline-run-20260921_141320-a1b2c3d4" / "run-a1b2c3d4.wandb"
    assert [row["_step"] for row in load(made).rows] == [0, 2, 3, 4]

    again = call("--all", "--json")
    assert [(line.get("verdict"), line["type"]) for line in lines(again)] == [
        ("failed", "repair"),
        ("repaired", "repair"),
        (None, "done"),
    ]
    assert (again.exit_code, lines(again)[-1]["counts"]) == (1, {"failed": 1, "repaired": 1})


def test_a_log_that_is_being_written_is_left_alone(here):
    """Without its end, as long as it is young; --force takes what is there, and silence is an end, too."""
    log = broken(here / "wandb", exit_code=None)
    refused = call(log)
    assert (refused.exit_code, "it may still be written: no exit record, changed " in refused.stdout) == (1, True)
    assert not (here / "repaired").exists()
    assert call(log, "--force", "-o", "forced").exit_code == 0
    set_age(log, 700)
    assert call(log, "--exit", "1", "-o", "old").exit_code == 0
    assert load(here / "old" / "offline-run-20260921_141320-a1b2c3d4").exit_code == 1


def test_packed_logs_pipes_and_bundles(here):
    """Are named as their user named them."""
    log = broken(here / "wandb")
    packed = here / "x.wandb.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert call(packed, "-o", "one.wandb").exit_code == 0
    assert not any(isinstance(item, Gap) for item in read_records(here / "one.wandb"))
    assert json.loads((here / "one.wandb.repair.json").read_text())["log"] == str(packed)
    pipe = call("-", "-o", "piped", "--json", input=log.read_bytes())
    assert (pipe.exit_code, lines(pipe)[0]["log"]) == (0, "standard input")
    assert CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"]).exit_code == 0
    bundled = call("b.tar.zst", "-o", "bundled", "--json")
    assert (bundled.exit_code, lines(bundled)[0]["verdict"]) == (0, "repaired"), bundled.output


def test_a_lost_run_record_is_asked_for(here):
    """The file's name gives a hint; options that go nowhere are wrong usage."""
    log = simple_run(here / "wandb")
    run = next(item for item in read_records(log) if item.kind == "run")
    data = bytearray(log.read_bytes())
    data[run.offset : run.end] = bytes(run.end - run.offset)
    log.write_bytes(data)

    assert "say with --run-id which run it is; by its name it is 'a1b2c3d4'" in call(log).stdout
    done = call(log, "--run-id", "new", "-p", "proj", "-e", "team")
    assert done.exit_code == 0
    info = load(here / "repaired" / "offline-run-20260921_141320-new").info
    assert (info.run_id, info.project, info.entity) == ("new", "proj", "team")
    assert call(log, "-p", "proj").exit_code == 2
    simple_run(here / "wandb", run_id="other")
    assert call("--run-id", "x").exit_code == 2
    assert call("-o", "x.wandb").exit_code == 2


def test_one_that_cannot_be_read_stops_no_other(here):
    """Folders and links named like logs, nothing at all, and text: each says why, and the exit code is 1."""
    broken(here / "wandb")
    (here / "wandb" / "folder.wandb").mkdir()
    (here / "wandb" / "gone.wandb").symlink_to("nowhere")
    (here / "wandb" / "empty.wandb").touch()
    os.mkfifo(here / "wandb" / "pipe.wandb")
    (here / "wandb" / "text.wandb").write_text("not a log, but a \x1b[2J letter")
    done = call("--json")
    found = {line["log"].rsplit("/", 1)[1]: line["reason"] for line in lines(done)[:-1]}

    assert done.exit_code == 1
    assert found["folder.wandb"] == "Is a directory"  # its name stands before the reason
    assert found["gone.wandb"] == "No such file or directory"
    assert "not a file" in found["pipe.wandb"]
    assert "no record" in found["empty.wandb"]
    assert found["run-a1b2c3d4.wandb"] == ""
    assert call("nope").exit_code == 2
    assert "\x1b" not in call("-o", "again").output


def test_a_folder_that_cannot_be_written_is_said(here):
    """As a reason, not as a traceback."""
    log = broken(here / "wandb")
    (here / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "runferry.cli", "repair", log, "-o", "file/x"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "file" in done.stdout


def test_a_full_disk_is_told_with_the_place_that_is_full(here):
    """Not with the log, which can be read; and nothing is left of what was begun."""
    resource = pytest.importorskip("resource")
    simple_run(here / "wandb", rows=200)
    limit = (8192, 8192)
    done = subprocess.run(
        [sys.executable, "-m", "runferry.cli", "repair", "--all"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )

    assert (done.returncode, "  repaired: File too large" in done.stdout) == (1, True)
    assert list((here / "repaired").iterdir()) == []
