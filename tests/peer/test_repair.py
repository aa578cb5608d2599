"""Repaired logs, as the peer takes them: its sync sends exactly the intact rows, and its reader reads all of it."""

from __future__ import annotations

import json
import random
from operator import itemgetter

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import BLOCK_SIZE, Gap, Record, load, messages, read_records
from support import logs, peer
from support.server import serve

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

ROWS = 240


def records(run_id):
    """A run of some four blocks, with what a damage may leave at the wrong place, and what crashes the peer."""
    found = logs.simple_records(run_id, rows=0, exit_code=None)
    for step in range(ROWS):
        values = {f"metric/{n}": step + n / 8 for n in range(8)} | {"loss": 1 / (step + 1), "at": {"epoch": step // 9}}
        found.append(logs.row(step, values))
        if step % 7 == 0:
            found += [logs.output(f"step {step}\n", step * 0.5), logs.sample(step * 0.5)]
        if step % 50 == 0:
            found.append(messages.Record(alert=messages.AlertRecord(title=f"at {step}", text="text", level="INFO")))
    found.append(logs.summary_record({"best": 0.25}))
    found += [messages.Record(), messages.Record(request=b""), logs.exit_record(0)]
    return found


def damaged(data, rng):
    """A log with damage of one to three kinds."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(7, len(data) - 1)
        kind = rng.choice(["bit", "bytes", "sector", "block", "cut", "tail", "insert", "swap", "header"])
        if kind == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "bytes":
            data[at : at + 40] = rng.randbytes(len(data[at : at + 40]))
        elif kind == "sector":
            data[at : at + 512] = rng.choice([b"\0", b"\xff"]) * len(data[at : at + 512])
        elif kind == "block":
            begin = at // BLOCK_SIZE * BLOCK_SIZE
            data[begin : begin + BLOCK_SIZE] = bytes(len(data[begin : begin + BLOCK_SIZE]))
        elif kind == "cut":
            del data[at : at + rng.randrange(1, 2000)]
        elif kind == "tail":
            del data[max(at, BLOCK_SIZE) :]
        elif kind == "insert":
            data[at:at] = rng.randbytes(rng.randrange(1, 600))
        elif kind == "swap":
            other = rng.randrange(7, len(data) - 600)
            data[at : at + 512], data[other : other + 512] = data[other : other + 512], data[at : at + 512]
        else:
            data[rng.randrange(60)] ^= 0xFF
    return data


def repair(log, folder, *more):
    """What the command says, and the new log."""
    done = CliRunner().invoke(group, ["repair", "--json", "-o", str(folder), *more, str(log)], catch_exceptions=False)
    said = json.loads(done.stdout.splitlines()[0])
    assert (done.exit_code, said["verdict"]) == (0, "repaired"), done.output
    (made,) = (folder / said["output"].rsplit("/", 1)[1]).glob("*.wandb")
    return said, made


def check(seeds, tmp_path):
    """Damage a log once for each seed, repair it, and let the peer have all of them in one command."""
    expected, made = {}, []
    for seed in seeds:
        run_id = f"case{seed}"
        log = tmp_path / "old" / f"run-20260921_{seed:06d}-{run_id}" / f"run-{run_id}.wandb"
        logs.make_log(log, *records(run_id))
        whole = {row["_step"]: row for row in load(log).rows}
        data = damaged(bytearray(log.read_bytes()), random.Random(seed))
        log.write_bytes(data)
        state = load(log)
        expected[run_id] = sorted(state.rows, key=itemgetter("_step"))
        assert [whole[row["_step"]] for row in state.rows] == list(state.rows)

        more = [] if state.has_run else ["--run-id", run_id, "-p", "proj"]
        _, new = repair(log, tmp_path / "new", "--exit", "0", "--force", *more)
        assert log.read_bytes() == data
        items = list(read_records(new))
        assert not [item for item in items if isinstance(item, Gap) or item.healed]
        assert [item.num for item in items] == list(range(1, len(items) + 1))
        theirs = peer.inspect(new)
        assert all(map(peer.same, [peer.printed(n, item) for n, item in enumerate(items, 1)], theirs))
        assert len(theirs) == len(items)
        made.append(new)
    with serve(tmp_path / "server") as server:
        said = peer.sync(made, server.url, server.key, tmp_path)
        held = {run["name"]: run for run in server.runs()}
        assert held.keys() == expected.keys(), said
        for run_id, rows in expected.items():
            assert server.history("local", "proj", run_id) == rows, (run_id, said)
            assert held[run_id]["state"] == "finished", (run_id, said)
        assert all(list(log.parent.glob("*.synced")) for log in made), said


def test_the_peer_takes_repaired_logs(tmp_path):
    """Of logs damaged at random."""
    check(range(5), tmp_path)


@pytest.mark.slow
def test_the_peer_takes_a_hundred_repaired_logs(tmp_path):
    """The same, a hundred times."""
    check(range(100), tmp_path)


def test_a_log_without_its_run_record_gets_the_one_that_is_asked_for(tmp_path):
    """Its start is that of the first row; where a later run record is left, that one leads, and nobody has to ask."""
    lost = logs.make_log(tmp_path / "run-a.wandb", *[logs.row(step) for step in range(3)], logs.exit_record(0))
    said, made = repair(lost, tmp_path / "new", "--run-id", "a", "-p", "proj")
    later = [logs.row(0), logs.run_record("b"), logs.row(1), logs.exit_record(3)]
    _, other = repair(logs.make_log(tmp_path / "run-b.wandb", *later), tmp_path / "new")

    first = next(item for item in read_records(made) if isinstance(item, Record))
    assert first.message().start_time.seconds == int(logs.START_S)
    assert "run record was lost" in said["notes"][0]
    with serve(tmp_path / "server") as server:
        peer.sync([made, other], server.url, server.key, tmp_path)
        assert [row["_step"] for row in server.history("local", "proj", "a")] == [0, 1, 2]
        assert [row["_step"] for row in server.history("local", "proj", "b")] == [0, 1]
        assert {run["name"]: run["state"] for run in server.runs()} == {"a": "finished", "b": "failed"}
    assert peer.summary(other)["run_id"] == "b"


OLD = sorted(folder.name for folder in (peer.ROOT / "fixtures" / "logs").iterdir() if folder.is_dir())


@pytest.mark.slow
@pytest.mark.parametrize("version", OLD)
def test_the_peer_takes_repaired_logs_of_old_writers(tmp_path, version):
    """Records behind the exit, blocks counted from elsewhere, torn ends: all rows of all of them reach the server."""
    made = []
    for log in sorted((peer.ROOT / "fixtures" / "logs" / version).glob("*.wandb*")):
        said, new = repair(log, tmp_path / "new", "--all", "--force", "--exit", "0")
        assert len(peer.inspect(new)) == said["records"]
        made.append((said, new))
    with serve(tmp_path / "server") as server:
        peer.sync([new for _, new in made], server.url, server.key, tmp_path)
        runs = {run["name"]: run for run in server.runs()}
        for said, new in made:
            assert list(new.parent.glob("*.synced"))
            run = runs[said["run"]]
            assert len(server.history(run["entity"], run["project"], said["run"])) == said["rows"]
