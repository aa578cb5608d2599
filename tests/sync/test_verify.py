"""Whether what a server holds is what the logs hold: equal after a sync, and every way in which it may not be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runferry
from runferry.logformat import RunState, read_records
from runferry.sync import SyncSettings, sync
from runferry.sync.compare import Match, Verification
from runferry.sync.credentials import ApiKey
from runferry.sync.rowcheck import mark_of
from runferry.sync.session import Session
from runferry.sync.transport import Answer, Request
from runferry.sync.verify import verify_remote
from support import artifactlogs, logs
from support.fakebackend import KEY, URL
from support.server import Server, surroundings
from support.syncrig import Rig

CLI = [sys.executable, "-m", "runferry.cli"]


def run(server: Server, *arguments: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    environ = surroundings(server, **changes)
    command = [*CLI, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)


def verify(server: Server, *arguments: Any) -> tuple[int, list[dict[str, Any]]]:
    done = run(server, "verify", "--remote", "--json", "--retry-for", "0", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def checks(found: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["match"] for check in found["checks"]}


def rich_run(folder: Path, run_id: str, **options: Any) -> Path:
    """A run with rows, samples, console lines, a config, a summary and files."""
    log = logs.simple_run(folder, run_id=run_id, rows=30, exit_code=None, **options)
    (log.parent / "files" / "model.bin").write_bytes(b"weights" * 100)
    (log.parent / "files" / "empty").touch()
    odd = logs.row(30, {"nan": float("nan"), "big": 2**53, "text": "é", ("nest", "deep"): 1.5})
    logs.make_log(log, odd, logs.files_record("model.bin", "empty"), logs.exit_record(), append=True)
    return log


def test_what_was_synced_is_equal(folder: Path, server: Server) -> None:
    """Everything that a server can tell is compared, with the step of every row, and nothing is written here or there."""
    log = rich_run(folder, "v1")
    assert run(server, "sync", log).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    server.forget_requests()

    code, (found, end) = verify(server, "--deep", log)

    assert (code, found["match"], found["reason"]) == (0, "equal", "")
    assert checks(found) == dict.fromkeys(
        ["rows", "samples", "console lines", "last step", "state", "summary", "config", "files", "steps"], "equal"
    )
    assert (found["target"], found["checks"][0]["logs"]) == ("local/proj/v1", 31)
    assert end == {"type": "done", "exit_code": 0, "counts": {"equal": 1}}
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert all("mutation" not in json.dumps(entry) for entry in server.requests())


@pytest.mark.parametrize(
    ("records", "check"),
    [
        ([logs.row(31)], "rows"),
        ([logs.sample(40.0)], "samples"),
        ([logs.output("one more\n")], "console lines"),
        ([logs.row(77)], "last step"),
        ([logs.summary_record({"best": 0.5})], "summary"),
        ([logs.config_record({"lr": 0.5})], "config"),
        ([logs.config_record(remove=("lr",))], "config"),
        ([logs.exit_record(3)], "state"),
        ([logs.files_record("late.txt")], "files"),
    ],
)
def test_what_the_server_does_not_have_differs(folder: Path, server: Server, records: list[Any], check: str) -> None:
    """One thing more in the log, and the comparison that it belongs to says so; the exit code is 1."""
    log = rich_run(folder, f"d{abs(hash(check)) % 10**8}{len(records[0].SerializeToString())}")
    assert run(server, "sync", log).returncode == 0
    (log.parent / "files" / "late.txt").write_text("late")
    logs.make_log(log, *records, append=True)

    code, (found, _) = verify(server, log)

    assert (code, found["match"], checks(found)[check]) == (1, "differs", "differs")
    assert found["reason"]


def test_a_server_that_lost_rows_is_found_out(folder: Path, server: Server) -> None:
    """Three rows that the cursor calls acknowledged are not there: a sync would not notice, this does; step by step if asked."""
    log = logs.simple_run(folder, run_id="lost", rows=20)
    assert run(server, "sync", log).returncode == 0
    other = logs.simple_run(folder.parent / "other", run_id="lost2", rows=17)
    assert run(server, "sync", other).returncode == 0
    cursor = log.with_name(log.name + ".cursor")
    text = cursor.read_text().replace('"run_id": "lost"', '"run_id": "lost2"')
    target = json.loads(text)
    del target["seal"]
    target["target"]["run_id"] = "lost"
    cursor.write_text(json.dumps(target))

    code, (found, _) = verify(server, "--deep", log)

    assert (code, found["match"]) == (1, "differs")
    said = {check["name"]: check["note"] for check in found["checks"]}
    assert said["rows"] == "20 here, 17 there"
    assert said["steps"] == "step 17: 1 here, 0 there, step 18: 1 here, 0 there, step 19: 1 here, 0 there"


def test_a_run_that_is_not_there_differs(folder: Path, server: Server) -> None:
    """It was never sent, or it was deleted."""
    code, (found, _) = verify(server, logs.simple_run(folder, run_id="never"))

    assert (code, found["match"], found["reason"]) == (1, "differs", "the server has no such run")


def test_a_folder_that_is_not_searched_is_not_called_equal(folder: Path, server: Server) -> None:
    """Nobody knows whether the runs in it are at the server."""
    deep = folder.joinpath(*["x"] * 34)
    deep.mkdir(parents=True)

    code, (found, _) = verify(server, folder)

    assert (code, found["match"]) == (1, "unknown")
    assert "the folder cannot be read" in found["reason"]


def test_a_file_of_the_same_size_with_other_bytes_differs(folder: Path, server: Server) -> None:
    """MD5 decides, not size alone."""
    log = rich_run(folder, "bytes")
    assert run(server, "sync", log).returncode == 0
    (log.parent / "files" / "model.bin").write_bytes(b"strange" * 100)

    code, (found, _) = verify(server, log)

    assert (code, checks(found)["files"]) == (1, "differs")
    assert "model.bin has other bytes there" in found["reason"]


def test_segments_are_compared_as_they_were_stitched(folder: Path, server: Server) -> None:
    """Three logs of one run: rows, console lines and last step are those of all of them, with their shifts."""
    for number in range(3):
        last = number == 2
        start = logs.START_S + number * 1000
        prefix = f"run-2026092{number}_000000"
        logs.simple_run(folder, run_id="seg", rows=10, exit_code=0 if last else None, start=start, prefix=prefix)
    assert run(server, "sync", folder).returncode == 0

    code, (found, _) = verify(server, "--deep", folder)

    assert (code, found["match"], found["reason"]) == (0, "equal", "")
    assert found["checks"][0]["logs"] == sum(
        RunState().add_all(read_records(Path(log))).row_count for log in found["logs"]
    )


def artifact_run(folder: Path, run_id: str, name: str) -> Path:
    """A finished run with an artifact of two files, and an alert."""
    log = logs.simple_run(folder, run_id=run_id, rows=3, exit_code=None)
    contents = {"weights.bin": b"w" * 500, "deep/notes.txt": b"notes"}
    places = {}
    for number, (path, data) in enumerate(contents.items()):
        place = log.parent / "files" / "artifacts" / f"content{number}"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(data)
        places[path] = place
    entries = [artifactlogs.entry(path, data, local_path=str(places[path])) for path, data in contents.items()]
    record = artifactlogs.artifact(name, entries)
    logs.make_log(log, record, artifactlogs.alert("look"), logs.exit_record(), append=True)
    return log


def test_artifacts_are_compared_and_alerts_are_not(folder: Path, server: Server) -> None:
    """The version of the log is there, committed; no server tells which alerts it got, so that is said, and is no difference."""
    log = artifact_run(folder, "art1", "model-a")
    done = run(server, "sync", log)
    assert done.returncode == 0, done.stdout

    code, (found, _) = verify(server, log)

    assert (code, found["match"], checks(found)["artifacts"], checks(found)["alerts"]) == (
        0,
        "equal",
        "equal",
        "unknown",
    )
    assert found["reason"] == "not checked: alerts"


def test_an_artifact_that_is_not_there_differs(folder: Path, server: Server) -> None:
    """Its name and digest are told."""
    log = artifact_run(folder, "art2", "model-b")
    assert run(server, "sync", log).returncode == 0
    later = artifactlogs.artifact("model-c", [artifactlogs.entry("x", b"other")])
    logs.make_log(log, later, append=True)

    code, (found, _) = verify(server, log)

    assert (code, checks(found)["artifacts"]) == (1, "differs")
    assert "artifacts: model-c (" in found["reason"]


def test_an_artifact_that_is_not_committed_differs(folder: Path, server: Server) -> None:
    """It is there, with its digest, and not whole."""
    log = artifact_run(folder, "art3", "model-d")
    assert run(server, "sync", log).returncode == 0
    change(
        server,
        "art3",
        "UPDATE artifacts SET state = 'PENDING' WHERE id IN (SELECT artifact FROM artifact_runs WHERE run = :run)",
    )

    code, (found, _) = verify(server, log)

    assert (code, checks(found)["artifacts"]) == (1, "differs")
    assert "model-d is pending there" in found["reason"]


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"a": 1, "b": 2.5}, {"b": 2.5, "a": 1.0}, True),
        ({"a": {"b": [1, {"c": 2}]}}, {"a.b": [1, {"c": 2}]}, True),
        ({"a": float("nan")}, {"a": "NaN"}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": {}}, {"a": []}, False),
        ({"a": 2**53}, {"a": 2**53 + 1}, False),
        ({"a": -1}, {"a": -2}, False),
        ({"a": -1.0}, {"a": -2.0}, False),
        ({"a": 1}, {"a": 2**61}, False),
    ],
)
def test_rows_are_told_apart_by_their_values(ours: dict[str, Any], theirs: dict[str, Any], same: bool) -> None:
    """A server may spell and order things in its own way, and may change no value."""
    assert (mark_of(ours) == mark_of(theirs)) is same


def test_a_run_is_looked_for_where_it_was_sent(folder: Path, server: Server) -> None:
    """`sync --project other --id new`, then `verify --remote` with nothing but the path."""
    log = logs.simple_run(folder, run_id="moved", rows=5)
    assert run(server, "sync", log, "--project", "elsewhere", "--id", "renamed").returncode == 0

    code, (found, _) = verify(server, folder)

    assert (code, found["match"], found["target"]) == (0, "equal", "local/elsewhere/renamed")


@pytest.mark.parametrize("policy", ["first", "both", "last"])
def test_logs_are_compared_by_the_policy_by_which_they_were_sent(folder: Path, server: Server, policy: str) -> None:
    """The cursor knows it; another one that is asked for differs."""
    for number in range(2):
        start = logs.START_S + number * 1000
        rows = [logs.row(step, start=start) for step in range(5 * number, 10)]
        log = folder / f"run-2026092{number}_000000-p{policy}" / f"run-p{policy}.wandb"
        logs.make_log(log, logs.run_record(f"p{policy}", start=start, resume=bool(number)), *rows, logs.exit_record())
    assert run(server, "sync", folder, "--overlap", policy).returncode == 0

    code, (found, _) = verify(server, "--deep", folder)

    assert (code, found["match"], found["reason"]) == (0, "equal", "")
    assert found["checks"][0]["logs"] == (15 if policy == "both" else 10)
    other = "last" if policy == "both" else "both"
    assert verify(server, folder, "--overlap", other)[0] == 1


def test_files_behind_links_are_compared_as_they_were_sent(folder: Path, server: Server) -> None:
    """The cursor knows that links were followed, so a file that a link leads to is no file that is missing."""
    log = logs.simple_run(folder, run_id="links", rows=3, exit_code=None)
    outside = folder.parent / "weights"
    outside.write_bytes(b"w" * 99)
    (log.parent / "files" / "weights").symlink_to(outside)
    logs.make_log(log, logs.files_record("weights"), logs.exit_record(), append=True)
    assert run(server, "sync", log, "--follow-links").returncode == 0

    code, (found, _) = verify(server, log)

    assert (code, found["match"], found["reason"], checks(found)["files"]) == (0, "equal", "", "equal")


def saved_run(folder: Path, run_id: str, make: Callable[[Path], object]) -> Path:
    """A run whose log names `files/saved.txt`, which is what `make` makes of it."""
    log = logs.simple_run(folder, run_id=run_id, rows=3, exit_code=None)
    make(log.parent / "files" / "saved.txt")
    logs.make_log(log, logs.files_record("saved.txt"), logs.exit_record(), append=True)
    return log


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: None, "missing"),
        (lambda file: file.mkdir(), "refused: not a regular file"),
        (
            lambda file: file.symlink_to(file.parents[3] / "outside"),
            "refused: a link that leads out of the run directory",
        ),
    ],
    ids=["gone", "a folder", "a link"],
)
def test_a_file_that_neither_side_has_differs(
    folder: Path, server: Server, make: Callable[[Path], object], why: str
) -> None:
    """The log names it, it could not be sent, and whoever deletes the run now has lost it: the reason names it."""
    (folder.parent / "outside").write_text("weights")
    log = saved_run(folder, "unsent", make)
    assert run(server, "sync", log).returncode == 1

    code, (found, _) = verify(server, "--deep", log)

    assert (code, found["match"]) == (1, "differs")
    assert f"files: saved.txt is missing there, and cannot be sent from here ({why}" in found["reason"]
    assert "saved.txt" in run(server, "verify", "--remote", log).stdout


def test_a_file_that_only_the_server_has_is_not_compared(folder: Path, server: Server) -> None:
    """It was sent, and cannot be read here any more: equal as far as that goes, and the reason names it."""
    log = saved_run(folder, "sent", lambda file: file.write_text("saved"))
    assert run(server, "sync", log).returncode == 0
    file = log.parent / "files" / "saved.txt"
    file.unlink()
    assert verify(server, log)[1][0]["reason"] == ""  # the cursor knows it, with its size
    file.mkdir()
    code, (found, _) = verify(server, log)

    assert (code, found["match"]) == (0, "equal")
    assert found["reason"] == "not checked: files (not here to be compared: saved.txt (refused: not a regular file))"


def test_a_file_that_was_sent_and_removed_here_has_to_be_there(folder: Path, server: Server) -> None:
    """The cursor says that the server had it: that is no proof that it has it now."""
    log = saved_run(folder, "removed", lambda file: file.write_text("saved"))
    assert run(server, "sync", log).returncode == 0
    (log.parent / "files" / "saved.txt").unlink()
    change(server, "removed", "DELETE FROM files WHERE run = :run AND name = 'saved.txt'")

    code, (found, _) = verify(server, log)

    assert (code, found["match"]) == (1, "differs")
    assert "saved.txt is missing there; 5 bytes were sent, and it was removed here" in found["reason"]


def test_a_server_that_tells_no_files_is_not_trusted_with_those_that_are_not_here(rig: Rig) -> None:
    """Nobody knows where they are."""
    log = rig.run()
    logs.make_log(log, logs.files_record("gone.txt"), append=True)
    rig.sync(log)

    found = asked(rig, log, lambda _: {"name": "x", "history": 5, "files": None})

    assert (found.match, "gone.txt: missing" in found.reason) == (Match.UNKNOWN, True)


def test_nothing_that_is_equal_is_behind(folder: Path, server: Server) -> None:
    """What the next sync brings is said of what differs only."""
    log = rich_run(folder, "level")
    assert run(server, "sync", log).returncode == 0

    _, (found, _) = verify(server, "--deep", log)

    assert not any(check["behind"] for check in found["checks"])


def test_one_of_two_logs_that_were_sent_together_asks_for_both(folder: Path, server: Server) -> None:
    """Alone it lacks the other's rows: the reason says what to name."""
    first = logs.simple_run(folder, run_id="pair", rows=10, exit_code=None)
    logs.simple_run(folder, run_id="pair", rows=10, start=logs.START_S + 1000, prefix="run-20260922_000000")
    assert run(server, "sync", folder).returncode == 0

    code, (found, _) = verify(server, first)

    assert (code, found["match"]) == (1, "differs")
    assert found["reason"].endswith("the run was sent with 1 more log: name all of them in one command")


def test_a_run_that_goes_on_is_behind_and_not_wrong(folder: Path, server: Server) -> None:
    """It has logged more since its last sync: the reason says so, and 75 is the exit code; what the server has too much is wrong."""
    log = logs.simple_run(folder, run_id="grown", rows=6, exit_code=None)
    assert run(server, "sync", log).returncode == 0
    assert verify(server, log)[0] == 0
    logs.make_log(log, logs.row(6), logs.output("more\n"), logs.summary_record({"best": 1}), append=True)

    code, (found, _) = verify(server, "--deep", log)

    assert (code, found["match"], found["try_again"]) == (75, "differs", True)
    assert found["reason"].startswith("the run goes on and has grown since its last sync: sync again; rows: 7 here, 6")
    change(
        server,
        "grown",
        """INSERT INTO lines VALUES (:rows + 6, '{"_step":31}'); INSERT INTO lines VALUES (:rows + 7, '{"_step":32}');
        UPDATE streams SET rows = rows + 2, length = length + 2 WHERE id = :stream""",
    )
    code, (found, _) = verify(server, log)
    assert (code, found["reason"].startswith("rows: 7 here, 8 there")) == (1, True)


def test_a_log_without_a_record_yet_is_for_another_time(folder: Path, server: Server) -> None:
    """The same words as those of a sync, as long as its writer may be there; then it is damaged."""
    log = folder / "run-young.wandb"
    log.touch()

    code, (found, _) = verify(server, log)

    assert (code, found["match"], found["reason"]) == (75, "unknown", "no record yet: the run begins")
    logs.set_age(log, 3600)
    assert verify(server, log)[0] == 1


def test_a_server_that_is_down_is_for_another_time(folder: Path, server: Server) -> None:
    """75; with a key that it does not know 2, and without --remote those options are wrong usage."""
    log = logs.simple_run(folder, run_id="down")
    down = run(server, "verify", "--remote", "--retry-for", "0", log, RUNFERRY_BASE_URL="http://127.0.0.1:9")

    assert (down.returncode, down.stdout.split()[0]) == (75, "unknown")
    assert run(server, "verify", "--remote", log, RUNFERRY_API_KEY="z" * 40).returncode == 2
    assert run(server, "verify", "--deep", log).returncode == 2


def test_a_whole_log_is_whole(folder: Path, server: Server) -> None:
    """Without --remote nobody is asked: exit code 0 for whole logs, also for one that goes on; 1 names the damage."""
    log = logs.simple_run(folder, run_id="w1", rows=4)
    logs.simple_run(folder, run_id="w2", rows=4, exit_code=None)
    server.forget_requests()
    done = run(server, "verify", folder)
    assert (done.returncode, [line.split()[0] for line in done.stdout.splitlines()]) == (0, ["whole", "whole"])
    data = bytearray(log.read_bytes())
    data[300] ^= 0xFF
    log.write_bytes(data)
    (folder / "run-dead.wandb").touch()
    os.utime(folder / "run-dead.wandb", (0, 0))

    done = run(server, "verify", "--json", folder)

    found = {event["log"]: event for event in map(json.loads, done.stdout.splitlines()) if event["type"] == "integrity"}
    assert done.returncode == 1
    assert not found[str(log)]["is_whole"]
    assert found[str(log)]["reason"].startswith("damaged: bytes ")
    assert "empty" in found[str(folder / "run-dead.wandb")]["reason"]
    assert server.requests() == []


def test_a_server_that_tells_little_is_believed_that_little(rig: Rig) -> None:
    """Parts that it refuses are named as not checked, and the others are compared; such a run is not called whole."""
    log = rig.run(rows=5)
    rig.sync(log)
    known = {"historyLineCount": 5, "state": "finished"}

    class Partial:
        """Knows two fields and refuses every query that asks for others."""

        def send(self, request: Request) -> Answer:
            body = json.loads(request.body)
            if body["operationName"] == "RunResumeStatus":
                return rig.backend.send(request)
            asked = body["query"].split("run(name: $run) { name", 1)[1].split("}")[0].split()
            fields = dict(zip(asked[::2], asked[1::2], strict=False))
            if not all(field in known for field in fields.values()):
                return Answer(
                    200, {}, json.dumps({"errors": [{"message": f"Cannot query field {asked[1]!r}"}]}).encode()
                )
            run = {"name": "x", **{part.rstrip(":"): known[field] for part, field in fields.items()}}
            return Answer(200, {}, json.dumps({"data": {"project": {"run": run}}}).encode())

    report = verify_remote(
        [log],
        SyncSettings(base_url=URL, state_dir=rig.state),
        key=ApiKey(KEY, base_url=URL, source="test"),
        session=Session(Partial(), rig.clock),
    )

    (found,) = report.runs
    matches = {check.name: check.match.value for check in found.checks}
    assert (report.exit_code, found.match.value) == (0, "equal")
    assert matches == {
        "rows": "equal",
        "state": "equal",
        **dict.fromkeys(["samples", "console lines", "last step", "summary", "config", "files"], "unknown"),
    }
    assert "not checked: samples, console lines" in found.reason
    assert "Cannot query field" in next(check.note for check in found.checks if check.name == "files")
    assert not found.is_whole


def test_listings_are_read_to_their_end(folder: Path, server: Server) -> None:
    """More files than a page holds: all are compared, and the one that is not there is named."""
    log = logs.simple_run(folder, run_id="many", rows=2, exit_code=None)
    names = [f"file{number:03d}" for number in range(230)]
    for name in names:
        (log.parent / "files" / name).write_text(name)
    logs.make_log(log, logs.files_record(*names), logs.exit_record(), append=True)
    assert run(server, "sync", log).returncode == 0
    assert verify(server, log)[0] == 0
    (log.parent / "files" / "later").touch()
    logs.make_log(log, logs.files_record("later"), append=True)

    code, (found, _) = verify(server, log)

    assert (code, found["reason"]) == (1, "files: later is missing there")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections are looked for in /proc")
def test_an_interrupt_ends_it(folder: Path, server: Server) -> None:
    """Ctrl-C while the server says nothing: exit code 130, at once."""
    log = logs.simple_run(folder, run_id="hung", rows=2)
    server.set_faults([{"action": "hang", "path": "/graphql"}])
    server.forget_requests()
    environ = {**os.environ, "RUNFERRY_API_KEY": server.key, "RUNFERRY_BASE_URL": server.url}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*CLI, "verify", "--remote", str(log)], env=environ, **pipes) as child:
        deadline = time.monotonic() + 30
        while not _is_connected(server):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)

    assert (child.returncode, "Traceback" in errors) == (130, False)


def _is_connected(server: Server) -> bool:
    """Whether a client holds a connection to the server, as the system tells."""
    port = f":{int(server.url.rpartition(':')[2]):04X}"
    established = "01"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[2].endswith(port) and line.split()[3] == established for line in lines)


def change(server: Server, run_id: str, statements: str) -> None:
    """Change what the server holds of a run behind its back; `:run` is its number, `:rows` and `:console` its first lines'."""
    with contextlib.closing(sqlite3.connect(server.data_dir / "runferry.sqlite3", timeout=30)) as store, store:
        (run,) = store.execute("SELECT id FROM runs WHERE name = ?", (run_id,)).fetchone()
        streams = dict(store.execute("SELECT name, id FROM streams WHERE run = ?", (run,)))
        values = {"run": run, "rows": streams["wandb-history.jsonl"] << 40, "stream": streams["wandb-history.jsonl"]}
        for statement in statements.split(";"):
            assert store.execute(statement, values).rowcount > 0, statement


LIES = {
    "a row is gone": (
        "DELETE FROM lines WHERE key = :rows + 7",  # a hole: lines are counted by the last one's number
        {"steps": "step 7: 1 here, 0 there"},
    ),
    "a row too many": (
        """INSERT INTO lines VALUES (:rows + 31, '{"_step":31}');
        UPDATE streams SET rows = rows + 1, length = length + 1 WHERE id = :stream""",
        {"rows": "31 here, 32 there", "last step": "30 here, 31 there"},
    ),
    "a row in place of another": (
        "UPDATE lines SET text = (SELECT text FROM lines WHERE key = :rows + 8) WHERE key = :rows + 7",
        {"steps": "step 7: 1 here, 0 there, step 8: 1 here, 2 there"},
    ),
    "a digit": (
        "UPDATE lines SET text = replace(text, '\"loss\":0.125', '\"loss\":0.126') WHERE key = :rows + 7",
        {"steps": "step 7 has other values there"},
    ),
    "a key": (
        "UPDATE lines SET text = replace(text, '\"loss\"', '\"lost\"') WHERE key = :rows + 7",
        {"steps": "step 7 has other values there"},
    ),
    "a file is gone": (
        "DELETE FROM files WHERE run = :run AND name = 'empty'",
        {"files": "empty is missing there"},
    ),
    "a file of other bytes": (
        "UPDATE files SET md5 = '00000000000000000000000000000000' WHERE run = :run AND name = 'model.bin'",
        {"files": "model.bin has other bytes there"},
    ),
    "the console file": (
        "UPDATE files SET md5 = '00000000000000000000000000000000' WHERE run = :run AND name = 'output.log'",
        {"files": "output.log has other bytes there"},
    ),
    "a value of the summary": (
        "UPDATE runs SET summary = replace(summary, '0.25', '0.26') WHERE id = :run",
        {"summary": "best differs"},
    ),
    "a value of the config": (
        "UPDATE runs SET config = replace(config, '0.001', '0.002') WHERE id = :run",
        {"config": "lr differs"},
    ),
    "a key of the config": (
        "UPDATE runs SET config = replace(config, '\"lr\"', '\"lx\"') WHERE id = :run",
        {"config": "lr is missing there, lx is only there"},
    ),
    "the end": (
        "UPDATE runs SET state = 'failed' WHERE id = :run",
        {"state": "exit code 0 here, failed there"},
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_change_at_the_server_is_found_out(folder: Path, server: Server, lie: str) -> None:
    """Whatever of a run is not as it was sent is told, by the comparison that it belongs to and by no other."""
    run_id = f"lie{[*LIES].index(lie)}"
    log = rich_run(folder, run_id)
    settings = SyncSettings(base_url=server.url, retry_for=0)
    key = ApiKey(server.key, base_url=server.url, source="test")
    assert sync([log], settings, key=key).exit_code == 0
    assert verify_remote([log], settings, key=key, deep=True).exit_code == 0
    statements, expected = LIES[lie]
    change(server, run_id, statements)

    (found,) = verify_remote([log], settings, key=key, deep=True).runs

    wrong = {check.name: check.note for check in found.checks if check.match is Match.DIFFERS}
    assert {name: wrong.pop(name, None) for name in expected} == expected
    assert set(wrong) <= {"last step", "steps"}
    assert not found.is_whole


ODD_ANSWERS = {
    "sizes that are none": {"files": {"edges": [{"node": {"name": "f", "sizeBytes": "\u00b2", "md5": "x"}}]}},
    "a size of many digits": {"files": {"edges": [{"node": {"name": "f", "sizeBytes": "9" * 5000}}]}},
    "a last step without end": {"keys": '{"lastStep": Infinity}'},
    "a last step that is none": {"keys": '{"lastStep": NaN}'},
    "no list of files": {"files": None, "artifacts": 7},
    "a summary without end": {"summary": "[" * 100_000},
    "nothing but nulls": {"history": None, "events": None, "config": None},
    "counts that are none": {"history": True, "events": -1, "console": "5"},
}


def asked(rig: Rig, log: Path, answer: Callable[[str], Any]) -> Verification:
    """The result for a run whose server gives these answers, by operation."""

    class Odd:
        def send(self, request: Request) -> Answer:
            run = answer(json.loads(request.body)["operationName"])
            return Answer(200, {}, json.dumps({"data": {"project": {"run": run}}}).encode())

    settings = SyncSettings(base_url=URL, state_dir=rig.state)
    key = ApiKey(KEY, base_url=URL, source="test")
    (found,) = verify_remote([log], settings, key=key, session=Session(Odd(), rig.clock)).runs
    return found


@pytest.mark.parametrize("odd", ODD_ANSWERS)
def test_no_answer_makes_it_raise_or_be_equal(rig: Rig, odd: str) -> None:
    """What is not of its type is as good as not told."""
    log = rig.run()
    rig.sync(log)
    found = asked(rig, log, lambda _: {"name": "x", "history": 5, "state": "finished", **ODD_ANSWERS[odd]})

    assert not found.is_whole


def test_a_listing_that_never_ends_is_given_up(rig: Rig) -> None:
    """A server that gives the same page for ever is not asked for ever, and not believed to list all."""
    log = rig.run()
    rig.sync(log)
    page = {"edges": [{"node": {"name": "f", "sizeBytes": 1}}], "pageInfo": {"endCursor": "c", "hasNextPage": True}}
    asked_for = []

    def answer(operation: str) -> Any:
        asked_for.append(operation)
        return {"page": page} if operation == "VerifyPage" else {"name": "x", "history": 5, "files": page}

    found = asked(rig, log, answer)

    said = {check.name: check for check in found.checks}["files"]
    assert (said.match, said.note) == (Match.UNKNOWN, "the server's listing does not end")
    assert len(asked_for) == 2


def test_a_damaged_log_is_not_called_whole(folder: Path, server: Server) -> None:
    """The server has all that can be read: that is equal, and exit code and reason say that there was more."""
    log = rich_run(folder, "damaged")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    assert run(server, "sync", log).returncode == 1

    code, (found, _) = verify(server, log)

    assert found["reason"].startswith("damaged here: bytes ")
    assert (code, found["match"], found["is_damaged"]) == (1, "equal", True)


def test_a_size_alone_proves_nothing(rig: Rig) -> None:
    """Where a server tells no MD5, files of the same size are not called equal."""
    log = rig.run()
    rig.sync(log)
    files = rig.backend.runs["a1b2c3d4"].files
    nodes = [{"node": {"name": name, "sizeBytes": len(data)}} for name, data in files.items()]
    found = asked(rig, log, lambda _: {"name": "x", "history": 5, "files": {"edges": nodes}})

    said = {check.name: check for check in found.checks}["files"]
    assert (said.match, "by size alone" in said.note) == (Match.UNKNOWN, True)


def test_the_public_face_compares(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runferry.verify(paths)` is the comparison with the server, and `runferry.sync` stays callable beside it."""
    monkeypatch.setenv("RUNFERRY_API_KEY", server.key)
    monkeypatch.setenv("RUNFERRY_BASE_URL", server.url)
    log = logs.simple_run(folder, run_id="face", rows=3)
    assert runferry.verify([log]).counts() == {"differs": 1}
    assert runferry.sync([log]).exit_code == 0

    assert runferry.verify([log]).exit_code == 0
    assert callable(runferry.sync)


def test_waits_are_told_without_what_a_terminal_obeys(folder: Path, server: Server) -> None:
    """A server's words in the news are shown and not obeyed, and a page is cut."""
    log = logs.simple_run(folder, run_id="waits", rows=1)
    fault = {"action": "status", "status": 503, "body": "\x1b[2J\nno" + "x" * 400, "path": "/graphql", "nth": 1}
    server.set_faults([fault])
    done = run(server, "verify", "--remote", "--retry-for", "30", log)

    (wait,) = [line for line in done.stderr.splitlines() if line.startswith("waiting ")]
    assert wait.isprintable()
    assert len(wait) < 300


def test_copies_of_a_log_are_no_runs(folder: Path, server: Server, tmp_path: Path) -> None:
    """An older state of the log elsewhere is passed over, by the sync and by the comparison."""
    log = logs.simple_run(folder, run_id="twice", rows=30)
    backup = tmp_path / "backup" / log.parent.name / log.name
    backup.parent.mkdir(parents=True)
    backup.write_bytes(log.read_bytes()[:-300])

    assert run(server, "sync", tmp_path).returncode == 0
    code, found = verify(server, tmp_path)

    assert (code, [line.get("logs") for line in found]) == (0, [[str(log)], None])


def test_rows_of_many_thousands_of_steps_are_compared_a_thousand_at_a_time(folder: Path, server: Server) -> None:
    """Only where a thousand differs its rows are looked at one by one; of more than twenty such the rest is told as spans."""
    log = logs.simple_run(folder, run_id="far", rows=0, exit_code=None)
    logs.make_log(
        log, *(logs.row(step, {"x": step}) for step in range(0, 25_000, 500)), logs.exit_record(), append=True
    )
    settings = SyncSettings(base_url=server.url, retry_for=0)
    key = ApiKey(server.key, base_url=server.url, source="test")
    assert sync([log], settings, key=key).exit_code == 0

    def steps() -> tuple[Match, str]:
        (found,) = verify_remote([log], settings, key=key, deep=True).runs
        (check,) = [check for check in found.checks if check.name == "steps"]
        assert (check.logs, check.server) == (50, 50)
        return check.match, check.note

    assert steps() == (Match.EQUAL, "")
    change(server, "far", "UPDATE lines SET text = replace(text, '\"x\":1500', '\"x\":15') WHERE key = :rows + 3")
    assert steps() == (Match.DIFFERS, "step 1500 has other values there")
    change(
        server, "far", "UPDATE lines SET text = replace(text, '\"x\"', '\"y\"') WHERE key BETWEEN :rows AND :rows + 49"
    )
    others = [f"step {step} has other values there" for step in (0, 500, 1000)]
    assert steps() == (Match.DIFFERS, f"{', '.join(others)} and 42 more")
