"""`pack` and `unpack` as users run them, and bundles given to the commands that read logs."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys

import pytest
from support.bundles import everything_below
from support.logs import exit_record, files_record, header_record, make_log, row, run_record, set_age, simple_run
from support.server import surroundings

CLI = [sys.executable, "-m", "runferry.cli"]


def run(folder, *arguments, stdin=None, environ=None):
    """A command in a folder; its end."""
    return subprocess.run(
        [*CLI, *map(str, arguments)],
        cwd=folder,
        input=stdin if stdin is not None else b"",
        capture_output=True,
        env=environ,
        timeout=120,
        check=False,
    )


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def runs(tmp_path):
    """Two runs in ./wandb, the second without an end."""
    log = simple_run(tmp_path / "wandb", rows=6)
    (log.parent / "files" / "noise.bin").write_bytes(random.Random(1).randbytes(150_000))
    simple_run(tmp_path / "wandb", run_id="going", rows=3, exit_code=None)
    return tmp_path


def test_there_and_back(runs):
    """`pack` packs ./wandb, says what it wrote, and `unpack` brings all of it back; both tell how much."""
    packed = run(runs, "pack")
    unpacked = run(runs, "unpack", "wandb.tar.zst", "-C", "out")

    assert (packed.returncode, unpacked.returncode) == (0, 0)
    assert packed.stdout == b"wandb.tar.zst\n"
    assert b"2 logs in 3 files" in packed.stderr
    assert b"1 run without an end" in packed.stderr
    assert unpacked.stderr == b"3 written\n"
    assert everything_below(runs / "out") == everything_below(runs / "wandb")


def test_what_is_in_it_is_listed_without_unpacking(runs):
    """Files, times, and of logs the project, records and end."""
    run(runs, "pack", "wandb", "-o", "b.tar.zst", "--level", "19")
    listed = run(runs, "unpack", "b.tar.zst", "--list")
    objects = lines(run(runs, "unpack", "b.tar.zst", "--list", "--json"))

    assert listed.returncode == 0
    assert b"(proj, " in listed.stdout
    assert b"no end" in listed.stdout
    assert [line["type"] for line in objects] == ["file", "file", "file", "done"]
    assert {line["log"]["run"] for line in objects if line.get("log")} == {"a1b2c3d4", "going"}
    assert sorted(path.name for path in runs.iterdir()) == ["b.tar.zst", "wandb"]


def test_json_has_a_type_in_each_line_and_ends_with_done(runs):
    """Of both commands, whatever happens."""
    (runs / "wandb" / "run-20260921_141320-going" / "files" / "gone").symlink_to("nothing")
    packed = run(runs, "pack", "--split", "64KiB", "--json")
    unpacked = run(runs, "unpack", "wandb.tar.zst", "-C", "out", "--json")
    wrong = run(runs, "unpack", "nothing.tar.zst", "--json")

    assert packed.returncode == 1
    assert [line["type"] for line in lines(packed)] == ["problem", *["written"] * 4, "done"]
    assert lines(packed)[-1]["counts"] == {"logs": 2, "files": 3, "problems": 1}
    assert [line["type"] for line in lines(unpacked)] == [*["file"] * 3, "left_out", "done"]
    assert lines(unpacked)[-1] == {"type": "done", "exit_code": 0, "counts": {"written": 3}}
    assert (wrong.returncode, lines(wrong)[-1]["exit_code"]) == (2, 2)


def test_exit_codes(runs):
    """0 as long as all is there, 1 for damage and for what is no bundle, 2 for what is not there or already there."""
    assert run(runs, "pack", "-o", "b.tar.zst").returncode == 0
    assert run(runs, "pack", "-o", "b.tar.zst").returncode == 2
    assert run(runs, "pack", "-o", "b.tar.zst", "--overwrite").returncode == 0
    assert run(runs, "pack", "nothing").returncode == 2
    assert run(runs, "pack", "--split", "many").returncode == 2
    assert run(runs, "pack", "--split", "1k", "-o", "c.tar.zst").returncode == 2
    assert run(runs, "pack", "no-*").returncode == 2
    assert run(runs, "unpack", "b.tar.zst", "--verify").returncode == 0
    assert run(runs, "unpack", "b.tar.zst", "--verify", "--list").returncode == 2
    assert run(runs, "unpack", "nothing").returncode == 2
    assert run(runs, "unpack", runs / "wandb" / "run-20260921_141320-going" / "run-going.wandb").returncode == 1
    data = bytearray((runs / "b.tar.zst").read_bytes())
    data[400] ^= 1
    (runs / "b.tar.zst").write_bytes(data)
    damaged = run(runs, "unpack", "b.tar.zst", "-C", "out")
    assert damaged.returncode == 1
    assert b"b.tar.zst: bytes 52-" in damaged.stderr
    assert run(runs, "unpack", "b.tar.zst", "--verify").returncode == 1
    assert run(runs, "unpack", "b.tar.zst", "--list").returncode == 0


def test_a_place_that_is_not_there_is_said(runs):
    """A folder that is missing is no wish for a file of its name; with `--json`, too, each call ends with `done`."""
    folder = run(runs, "pack", "-o", "nothing/")
    below = run(runs, "pack", "-o", "nothing/b.tar.zst", "--json")
    run(runs, "pack", "-o", "b.tar.zst")
    (runs / "file").write_bytes(b"")
    beneath = run(runs, "unpack", "b.tar.zst", "-C", "file/x", "--json")

    assert (folder.returncode, folder.stderr) == (2, b"Error: nothing/: no such folder\n")
    assert b"same call goes on" not in below.stdout
    for done in (below, beneath):
        assert done.returncode == 1
        assert [line["type"] for line in lines(done)] == ["problem", "done"]
        assert lines(done)[-1]["exit_code"] == 1


@pytest.mark.parametrize("size", ["0.5", "0", "9" * 400, "1e9", "-1", "10 MBB"])
def test_sizes_that_are_none_are_refused(runs, size):
    """Also those that would round to nothing, or to no end."""
    done = run(runs, "pack", "--split", size)

    assert done.returncode == 2
    assert b"is no size" in done.stderr


def test_patterns_are_taken(runs):
    """In quotes, for shells that expand none."""
    assert lines(run(runs, "pack", "wandb/run-*-going", "--json"))[-1]["counts"]["logs"] == 1


def test_a_disk_that_is_full_says_what_to_do(runs):
    """What was written stays, and the same call goes on: here with a limit for the size of files in place of a full disk."""
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, 80_000)); "
    limited += "from runferry.cli import main; sys.argv = ['runferry', 'pack', '-o', 'b.tar.zst']; main()"
    done = subprocess.run([sys.executable, "-c", limited], cwd=runs, capture_output=True, check=False)
    left = (runs / "b.tar.zst.part").stat().st_size

    assert done.returncode == 1
    assert b"the same call goes on" in done.stderr
    assert b"Traceback" not in done.stderr
    assert left == 80_000
    assert run(runs, "pack", "-o", "b.tar.zst").returncode == 0
    assert run(runs, "unpack", "b.tar.zst", "--verify").returncode == 0


def test_through_a_pipe(runs):
    """From standard input, for `ssh node runferry pack .. | runferry unpack -`."""
    run(runs, "pack", "-o", "b.tar.zst")
    done = run(runs, "unpack", "-", "-C", "out", stdin=(runs / "b.tar.zst").read_bytes())

    assert done.returncode == 0
    assert everything_below(runs / "out") == everything_below(runs / "wandb")


def test_ls_reads_bundles_packed_logs_and_pipes(runs):
    """Each row names the source as it was named, and the log in it."""
    run(runs, "pack", "-o", "b.tar.zst")
    log = runs / "wandb" / "run-20260921_141320-going" / "run-going.wandb"
    (runs / "going.gz").write_bytes(gzip.compress(log.read_bytes()))
    done = run(runs, "ls", "b.tar.zst", "going.gz", "-", "--json", stdin=log.read_bytes())
    rows = {line["log"]: (line["run"], line["rows"]) for line in lines(done)}

    assert done.returncode == 0
    assert rows == {
        "b.tar.zst:run-20260921_141320-a1b2c3d4/run-a1b2c3d4.wandb": ("a1b2c3d4", 6),
        "b.tar.zst:run-20260921_141320-going/run-going.wandb": ("going", 3),
        "going.gz": ("going", 3),
        "standard input": ("going", 3),
    }


def test_a_damaged_bundle_is_listed_as_far_as_it_goes(runs):
    """With what is wrong with it, and exit code 1."""
    run(runs, "pack", "-o", "b.tar.zst", "--split", "64KiB")
    (runs / "b.tar.zst.002").unlink()
    done = run(runs, "ls", "b.tar.zst.001", "--json")

    assert done.returncode == 1
    assert b"b.tar.zst.002: missing" in done.stderr
    assert {line["run"] for line in lines(done)} == {"a1b2c3d4", "going"}


def test_what_cannot_be_read_stops_no_other_bundle(runs):
    """`sync '/inbox/*'` while one of the bundles there is still being copied: the others are read, and exit code 1 says it."""
    run(runs, "pack", "-o", "b.tar.zst")
    (runs / "half.tar.zst").write_bytes((runs / "b.tar.zst").read_bytes()[:40])
    for arguments in (["ls"], ["verify"], ["sync", "--dry-run"], ["export", "--to", "csv"]):
        done = run(runs, *arguments, "half.tar.zst", "b.tar.zst", "--json")
        assert done.returncode == 1
        assert b"half.tar.zst: not a bundle" in done.stderr
        assert {"a1b2c3d4", "going"} <= {line.get("run") for line in lines(done)}


def test_what_is_packed_in_a_folder_is_not_passed_over_in_silence(runs):
    """Folders stand for the plain logs in them; a hint names the first bundle or packed log that is not read."""
    (runs / "inbox" / "old").mkdir(parents=True)
    assert run(runs, "ls", "inbox").stderr == b""
    log = runs / "wandb" / "run-20260921_141320-going" / "run-going.wandb"
    (runs / "inbox" / "old" / "run-going.wandb.gz").write_bytes(gzip.compress(log.read_bytes()))
    for arguments in (["ls"], ["verify"], ["sync", "--dry-run"], ["grep", "x"], ["show"], ["repair"]):
        done = run(runs, *arguments, "inbox")
        assert b"inbox/old/run-going.wandb.gz: not read: what is packed in a folder has to be named" in done.stderr
    assert run(runs, "ls", "inbox/*/*.gz").stderr == b""
    assert run(runs, "ls", "wandb").stderr == b""


def sync(server, folder, *arguments, **more):
    environ = surroundings(server, XDG_STATE_HOME=str(folder / "state"))
    done = run(folder, "sync", *arguments, "--json", environ=environ, **more)
    ends = [line for line in lines(done) if line["type"] == "run_done"]
    return done, {end["run"]: end for end in ends}


def test_a_bundle_is_synced_once(tmp_path, server):
    """All of it arrives, files too; a second sync of it sends nothing, and only the cursor is kept."""
    log = simple_run(tmp_path / "wandb", run_id="packed", rows=20)
    (log.parent / "files" / "weights.bin").write_bytes(b"weights")
    make_log(
        log,
        header_record(),
        run_record("packed"),
        files_record("weights.bin"),
        *(row(n) for n in range(20)),
        exit_record(0),
    )
    run(tmp_path, "pack", "-o", "b.tar.zst")
    shutil.rmtree(tmp_path / "wandb")
    first, ends = sync(server, tmp_path, "b.tar.zst")
    held = server.history("local", "proj", "packed")
    server.forget_requests()
    again, later = sync(server, tmp_path, "b.tar.zst")

    assert (first.returncode, again.returncode) == (0, 0)
    assert (ends["packed"]["verdict"], ends["packed"]["rows_sent"]) == ("synced", 20)
    assert ends["packed"]["log"] == f"b.tar.zst:{log.parent.name}/{log.name}"
    assert [line["loss"] for line in held] == [1 / (1 + step) for step in range(20)]
    assert server.file("local", "proj", "packed", "weights.bin") == b"weights"
    assert later["packed"]["verdict"] == "synced"
    assert server.requests() == []
    names = {name.rpartition("/")[2] for name in everything_below(tmp_path / "state" / "runferry" / "bundles")}
    assert names == {".lock", "run-packed.wandb.cursor", "run-packed.wandb.synced"}
    listed = run(
        tmp_path, "ls", "b.tar.zst", "--json", environ=surroundings(server, XDG_STATE_HOME=str(tmp_path / "state"))
    )
    assert [line["sync"] for line in lines(listed)] == ["synced"]


def test_bundles_of_a_run_that_goes_on_are_synced_one_after_another(tmp_path, server):
    """Each with what has come since: no row is there twice, and the last one ends the run."""
    log = simple_run(tmp_path / "wandb", run_id="steps", rows=4, exit_code=None)
    run(tmp_path, "pack", "-o", "one.tar.zst")
    make_log(log, *(row(step, num=100 + step) for step in range(4, 9)), append=True)
    run(tmp_path, "pack", "-o", "two.tar.zst")
    first, _ = sync(server, tmp_path, "one.tar.zst")
    second, ends = sync(server, tmp_path, "two.tar.zst")

    assert (first.returncode, second.returncode) == (0, 0)
    assert ends["steps"]["verdict"] == "live"
    assert [line["_step"] for line in server.history("local", "proj", "steps")] == list(range(9))


def test_a_packed_log_and_a_pipe_are_synced(tmp_path, server):
    """As the log that they are."""
    one = simple_run(tmp_path / "wandb", run_id="zipped", rows=5)
    two = simple_run(tmp_path / "wandb", run_id="piped", rows=7)
    (tmp_path / "run-zipped.wandb.gz").write_bytes(gzip.compress(one.read_bytes()))
    done, ends = sync(server, tmp_path, "run-zipped.wandb.gz", "-", stdin=two.read_bytes())

    assert done.returncode == 0
    assert {run_id: end["rows_sent"] for run_id, end in ends.items()} == {"zipped": 5, "piped": 7}


def test_a_silent_run_in_a_bundle_has_crashed(tmp_path, server):
    """Its times travel: a log that fell silent before it was packed is not a run that goes on."""
    log = simple_run(tmp_path / "wandb", run_id="dead", rows=2, exit_code=None)
    set_age(log, 5000)
    run(tmp_path, "pack", "-o", "b.tar.zst")
    done, ends = sync(server, tmp_path, "b.tar.zst")

    assert done.returncode == 0
    assert ends["dead"]["verdict"] == "synced"
    assert "crashed" in ends["dead"]["reason"]


def test_what_does_not_go_with_bundles_is_said(tmp_path, server):
    """Nothing that is packed is deleted by an option for directories; standard input is not read for two things."""
    simple_run(tmp_path / "wandb")
    run(tmp_path, "pack", "-o", "b.tar.zst")
    deleting, _ = sync(server, tmp_path, "b.tar.zst", "--delete-after-verify")
    both, _ = sync(server, tmp_path, "-", "--key-stdin")

    assert (deleting.returncode, both.returncode) == (2, 2)
    assert b"are packed" in deleting.stderr
    assert b"one of them" in both.stderr
