"""`runferry show` of records, rows and keys, of whatever holds a log, at rest and while it grows."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import FILE_HEADER, read_records
from support import logs
from support.invoke import caller, lines
from support.logs import simple_run

CLI = [sys.executable, "-m", "runferry.cli"]

call = caller("show")


def test_records_with_their_chunks_and_checksums(here):
    """Where each lies, how long it is, of which chunks, and which bits were mended."""
    log = logs.make_log(here / "run-x.wandb", logs.run_record("x"), logs.output("y" * 100_000), logs.row(0))
    row = list(read_records(log))[-1]
    data = bytearray(log.read_bytes())
    data[row.offset + 15] ^= 16
    log.write_bytes(data)
    text, said = call(log), lines(call("--json", log))

    assert text.exit_code == 0
    assert "FIRST+MIDDLE*2+LAST" in text.stdout
    assert f"FULL; healed at byte {row.offset + 15}, bit 4" in text.stdout
    assert [(line["chunks"], line["crc"]) for line in said] == [
        ("FULL", "ok"),
        ("FIRST+MIDDLE*2+LAST", "ok"),
        ("FULL", "healed"),
    ]
    assert said[2]["healed"] == [[row.offset + 15, 4]]
    assert {key: said[2][key] for key in ("type", "num", "kind", "offset", "length", "size")} == {
        "type": "record",
        "num": 3,
        "kind": "history",
        "offset": row.offset,
        "length": row.end - row.offset,
        "size": len(row.payload),
    }


def test_the_last_records_and_rows(here):
    """Gaps count among the records; of rows only the wanted keys are shown."""
    log = simple_run(here / "wandb", rows=9)
    log.write_bytes(log.read_bytes()[:-2])
    done = call("--tail", 2, "--json", log)
    assert (done.exit_code, [line["type"] for line in lines(done)]) == (1, ["record", "gap"])
    rows = lines(call("--tail", 3, "--steps", ":8", "--metric", "l*", "--json", log))
    assert [(row["step"], row["values"]) for row in rows if row["type"] == "row"] == [
        (5, {"loss": 1 / 6}),
        (6, {"loss": 1 / 7}),
        (7, {"loss": 1 / 8}),
    ]
    assert len(call("--tail", 0, log).stdout.splitlines()) == 2


def test_rows_as_a_table(here):
    """A column per key; new keys give a new head; names and values from a log obey nobody."""
    log = logs.make_log(
        here / "run-x.wandb",
        logs.run_record("x"),
        logs.row(0, {"loss": 0.5, ("a", "b"): True}),
        *[logs.row(step, {"loss": float("nan"), "evil\x1b[2J": "x\x1b[31m" + "y" * 90}) for step in range(1, 502)],
    )
    done = call("--steps", "0:", log)
    found = done.stdout.splitlines()

    assert found[0].split() == ["step", "loss", "a.b", "evil\\x1b[2J"]
    assert found[1].split() == ["0", "0.5", "true"]
    assert found[2].split()[:2] == ["1", "nan"]
    assert "\x1b" not in done.stdout
    assert max(map(len, found)) < 120
    assert sum(line.split()[0] == "step" for line in found) == 2
    assert len(found) == 504
    assert call("--steps", "900", log).stderr.startswith("no such row")
    assert call("--steps", "x", log).exit_code == 2


def test_every_key(here):
    """What it is, how often, from when to when, and its range; those of the writer only if they are asked for."""
    log = simple_run(here / "wandb", rows=4)
    table = call("--keys", log.parent).stdout.splitlines()
    assert table[0].split() == ["key", "kind", "count", "steps", "last", "min", "max", "NaN"]
    assert table[1].split() == ["loss", "float", "4", "0-3", "0.25", "0.25", "1.0"]
    said = lines(call("--keys", "--metric", "_r*", "--json", log.parent))
    assert [(line["type"], line["key"], line["path"], line["max"]) for line in said] == [
        ("key", "_runtime", ["_runtime"], 1.5)
    ]


def test_rows_of_a_run_are_those_of_all_its_logs(here):
    """Stitched as a sync stitches them, from its directory or id; of a log that is named, its own."""
    first = simple_run(here / "wandb", rows=4)
    simple_run(here / "wandb", rows=6, prefix="run-20260921_150000", start=logs.START_S + 3600, resume=True)
    for name, count in ((first, 4), (first.parent, 10), ("a1b2c3d4", 10)):
        assert len(lines(call("--metric", "loss", "--json", name))) == count


def test_a_summary_says_that_the_run_record_is_missing(here):
    """The id is then that of the file's name."""
    log = logs.make_log(here / "run-x.wandb", logs.row(0))

    assert "run      x  (no run record)\n" in call("--summary", log).stdout


def test_of_loose_logs_in_a_bundle_one_is_to_be_named(here):
    """The error calls bundle and logs as the user does, in a way that `show` takes; many are not listed to the end."""
    for number in range(7):
        logs.make_log(here / "loose" / f"run-x{number}.wandb", logs.run_record(f"x{number}"), logs.row(0))
    CliRunner().invoke(group, ["pack", "loose", "-o", "b.tar.zst"])

    for view in ([], ["--summary"], ["--keys"], ["--steps", "0:"]):
        done = call(*view, "b.tar.zst")
        assert done.exit_code == 2
        assert "b.tar.zst: 7 logs here; name one (b.tar.zst:run-x0.wandb, " in done.stderr
        assert "b.tar.zst:run-x4.wandb and 2 more), or list them with `runferry ls b.tar.zst`" in done.stderr
        assert "runferry-" not in done.stderr
    assert lines(call("--summary", "--json", "b.tar.zst:run-x3.wandb"))[0]["run"] == "x3"


def test_of_runs_in_a_bundle_the_one_that_is_shown_is_said(here):
    """And any other is shown by naming its folder, or its log."""
    simple_run(here / "wandb", run_id="a")
    simple_run(here / "wandb", run_id="b")
    CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"])
    folder = "b.tar.zst:run-20260921_141320"

    for view in ([], ["--summary"], ["--keys"]):
        done = call(*view, "b.tar.zst")
        assert done.exit_code == 0
        assert done.stderr.startswith(f"b.tar.zst: 2 runs in it; shown is {folder}-b/run-b.wandb, and others can")
    for place in (f"{folder}-a", f"{folder}-a/run-a.wandb"):
        done = call("--summary", "--json", place)
        assert (lines(done)[0]["run"], done.stderr) == ("a", "")
    wrong = call(f"{folder}-c")
    assert (wrong.exit_code, "nothing of that name in the bundle" in wrong.stderr) == (1, True)


def test_of_a_resumed_run_in_a_bundle_the_log_that_is_shown_is_said(here):
    """Records are those of one log; a summary is of all logs of the run, so there is nothing to say."""
    for second in (20, 30):
        logs.make_log(
            here / "wandb" / f"run-20260921_1413{second}-a" / "run-a.wandb",
            logs.run_record("a", start=1_790_000_000 + second),
            logs.row(second),
        )
    CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"])

    assert call("b.tar.zst").stderr.startswith(
        "b.tar.zst: 2 logs of a run in it; shown is b.tar.zst:run-20260921_141330-a/"
    )
    assert call("--summary", "b.tar.zst").stderr == ""


def test_whatever_holds_a_log(here):
    """Packed, piped, bundled: the same records, by their user's names."""
    log = simple_run(here / "wandb")
    plain = lines(call("--json", log))
    (here / "x.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert CliRunner().invoke(group, ["pack", "wandb", "-o", "b.tar.zst"]).exit_code == 0
    for name in ("x.gz", "b.tar.zst"):
        assert lines(call("--json", name)) == plain
        assert lines(call("--summary", "--json", name))[0]["rows"] == 5
    assert lines(call("--json", "-", input=log.read_bytes())) == plain
    assert call("-", input=log.read_bytes()).stdout.startswith("log standard input\n")
    assert lines(call("--summary", "--json", "b.tar.zst"))[0]["log"].startswith("b.tar.zst:")
    piped = subprocess.run(
        [*CLI, "show", "--json", "-"], input=(here / "b.tar.zst").read_bytes(), capture_output=True, check=True
    )
    assert [json.loads(line) for line in piped.stdout.splitlines()] == plain


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b":SWL\0\0\0", "SwanLab"),
        (b"", "no "),
        (b"\x1f\x8b\x08\0\0", "breaks off"),
        (FILE_HEADER + b"\xff" * 500, "bad"),
    ],
)
def test_what_is_no_log_is_named(here, content, says):
    """In words, with exit code 1, in every view, and never by a traceback."""
    (here / "run-x.wandb").write_bytes(content)
    for options in ([], ["--json"], ["--summary"], ["--keys"], ["--steps", ":"]):
        done = call(*options, "run-x.wandb")
        assert done.exit_code in ({1} if content else {0}), (options, done.output)
        if options != ["--summary"] or content[:1] != b"\x1f":
            assert says in done.output, options


def test_nothing_at_all_is_no_success(here):
    """An empty pipe, as `ssh host cat run.wandb | runferry show -` makes it where ssh fails; a log just made may begin yet."""
    for options in ([], ["--follow"]):
        piped = call("-", *options, input=b"")
        assert (piped.exit_code, piped.stderr) == (1, "no record in standard input\n")
    log = here / "run-new.wandb"
    log.write_bytes(b"")
    assert call(log).exit_code == 0
    logs.set_age(log, 3600)
    assert call(log).exit_code == 1


def test_another_version_in_the_header_is_a_warning(here):
    """The log is read all the same."""
    log = simple_run(here / "wandb")
    data = bytearray(log.read_bytes())
    data[6] = 3
    log.write_bytes(data)
    done = call("--json", log)

    assert (done.exit_code, "names version 3" in done.stderr) == (0, True)
    assert len([line for line in lines(done) if line["type"] == "record"]) == 18


@pytest.mark.parametrize(
    "options",
    [
        ["--summary", "--keys"],
        ["--follow", "--summary"],
        ["--tail", "1", "--keys"],
        ["--kind", "run", "--keys"],
        ["--keys", "--steps", "1"],
        ["--tail", "-1"],
    ],
)
def test_what_does_not_go_together(here, options):
    """Is said, not guessed."""
    assert call(*options, simple_run(here / "wandb")).exit_code == 2


def test_times_that_are_in_no_calendar(here):
    """A log may say anything: it is shown all the same."""
    run = logs.run_record("x")
    run.run.start_time.seconds = 2**60
    said = logs.output("hello\n")
    said.output_raw.timestamp.seconds = -(2**60)
    log = logs.make_log(here / "run-x.wandb", run, logs.row(0), said, logs.exit_record(0))

    assert "started  1.15292e+18 s" in call("--summary", log).stdout
    assert call(log).exit_code == 0
    assert CliRunner().invoke(group, ["grep", "hello", str(log)]).exit_code == 0


class TestFollowing:
    """A log that grows, by the real command."""

    def begin(self, *args, **options):
        return subprocess.Popen(
            [*CLI, "show", "--follow", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def test_records_are_printed_as_they_come(self, here):
        """Until the exit record, through a file and through a pipe."""
        whole = simple_run(here / "whole", rows=3).read_bytes()
        log = here / "run-x.wandb"
        log.write_bytes(whole[:-20])
        with self.begin("--json", log) as process:
            assert json.loads(process.stdout.readline())["kind"] == "header"
            with log.open("ab") as file:
                file.write(whole[-20:])
            rest = [json.loads(line)["kind"] for line in process.stdout]
            assert (process.wait(20), rest[-1], process.stderr.read()) == (0, "exit", "")
        with self.begin("--metric", "loss", "-", stdin=subprocess.PIPE) as process:
            process.stdin.buffer.write(whole[:700])
            process.stdin.flush()
            assert process.stdout.readline() == "step 0  loss=1.0\n"
            process.stdin.buffer.write(whole[700:])
            process.stdin.flush()  # it ends with the exit record, not with the pipe
            assert process.stdout.read().splitlines()[-1].startswith("step 2  loss=0.333")
            assert process.wait(20) == 0

    def test_silence_and_ctrl_c_end_it(self, here):
        """An old log at once, with what is torn; a live one when it is interrupted, with 130."""
        log = simple_run(here / "wandb", exit_code=None)
        log.write_bytes(log.read_bytes()[:-2])
        logs.set_age(log, 3600)
        assert call("--follow", log).exit_code == 1
        assert call("--follow", "--stale-after", "999999", "--kind", "nope", log).exit_code == 2
        with self.begin("--stale-after", "1e9", log) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert (process.wait(20), process.stderr.read().split()) == (130, ["interrupted"])

    def test_packed_logs_are_refused(self, here):
        """They do not grow."""
        (here / "x.gz").write_bytes(gzip.compress(b"x"))
        assert call("--follow", "-", input=(here / "x.gz").read_bytes()).exit_code == 2
        (here / "run-x.wandb").write_bytes(gzip.compress(simple_run(here / "wandb").read_bytes()))
        assert call("--follow", here / "run-x.wandb").exit_code == 2


@pytest.mark.parametrize("options", [[], ["--summary"], ["--keys"], ["--steps", "0:"]])
@pytest.mark.parametrize(
    ("cut", "stale_after", "code"), [(4096, 600, 0), (4095, 600, 1), (4096, 0, 1)], ids=["page", "cut", "no writer"]
)
def test_a_record_that_is_being_written_is_no_loss(here, options, cut, stale_after, code):
    """Where a writer may be there, a torn end at the edge of a page is shown, but costs nothing; `verify` and `ls` agree."""
    log = simple_run(here / "wandb", rows=200, exit_code=None)
    log.write_bytes(log.read_bytes()[:cut])
    done = call(log, *options, "--stale-after", stale_after)

    assert done.exit_code == code
    assert "torn_tail" in done.output
    for command in ("verify", "ls"):
        assert caller(command)(log, "--stale-after", stale_after).exit_code == code


def test_zeros_in_the_middle_of_a_log_that_is_being_written_are_a_loss(here):
    """They do not lie at its end."""
    log = simple_run(here / "wandb", rows=200, exit_code=None)
    data = log.read_bytes()
    log.write_bytes(data[:2000] + bytes(2096) + data[4096:])

    assert [call(log, *options).exit_code for options in ([], ["--summary"], ["--keys"])] == [1, 1, 1]


def test_a_torn_end_behind_the_exit_record_is_a_loss(here):
    """Its writer has ended the run, whatever the time."""
    log = simple_run(here / "wandb", rows=5)
    log.write_bytes((log.read_bytes() + b"\1\1\1\1\x10\x27\1").ljust(4096, b"x"))  # 10,000 bytes, it says

    assert [call(log, *options).exit_code for options in ([], ["--summary"], ["--keys"])] == [1, 1, 1]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="files that cannot be read, as Linux has them")
def test_errors_of_reading_name_the_file_and_devices_are_not_waited_for(here):
    """In each view; a device may have no end, and a named pipe is followed as standard input."""
    (here / "mem.wandb").symlink_to("/proc/self/mem")
    (here / "zero.wandb").symlink_to("/dev/zero")
    os.mkfifo(here / "pipe.wandb")
    for view in ([], ["--summary"], ["--keys"], ["--steps", ":"]):
        assert call("mem.wandb", *view).stderr == "Error: mem.wandb: Input/output error\n"
        done = call("zero.wandb", *view)
        assert (done.exit_code, done.stderr) == (1, "Error: zero.wandb: not a file\n")
    done = call("--follow", "pipe.wandb")
    assert (done.exit_code, "--follow - < PIPE" in done.stderr) == (2, True)


@pytest.mark.parametrize(("steps", "says"), [("-3:", "from the end"), ("5:2", "no step"), ("4:4", "no step")])
def test_ranges_of_no_steps_are_refused(here, steps, says):
    """They are no wish to see nothing: somebody thinks of the end, or of the wrong order."""
    simple_run(here / "wandb")
    done = call(f"--steps={steps}", "a1b2c3d4")
    assert (done.exit_code, says in done.stderr) == (2, True)
