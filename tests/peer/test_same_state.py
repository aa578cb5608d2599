"""Two ways to bring the same logs to a server, ours and the peer's, leave the same state there."""

from __future__ import annotations

import copy
import io
import itertools
import json
import shutil
import subprocess
import sys

import pytest
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, Framer, load, messages
from support import peer
from support.exact import payload_of
from support.server import serve
from support.state import compare, state_of

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]


VERDICTS = {"killed": "live", "media": "partial"}
"""`synced` for every other kind. The killed run's log is young; the media run saved a file by a link out of its folder."""


def sync_ours(logs, server, folder):
    """`runferry sync`; its verdict on each log is checked."""
    environ = peer.environment(folder, RUNFERRY_API_KEY=server.key)
    command = [sys.executable, "-m", "runferry.cli", "sync", "--json", "--base-url", server.url]
    command += [log.parent for log in logs]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = {(event["run"], event["verdict"]) for event in events if event["type"] == "run_done"}
    assert verdicts == {(run, VERDICTS.get(run, "synced")) for run, _ in verdicts}, done.stdout + done.stderr
    assert done.returncode == int("partial" in dict(verdicts).values())


def sync_theirs(logs, server, folder):
    """`wandb sync`: only what the server holds tells how it went."""
    peer.sync(logs, server.url, server.key, folder)


def state_after(sync, runs, folder):
    """What a fresh server holds once `sync` brought copies of the logs of all `runs` to it."""
    logs = []
    for run in runs:
        for log in run.logs:
            target = folder / "wandb" / log.parent.name
            while target.exists():
                target = target.with_name(f"{target.name}-1")
            shutil.copytree(log.parent, target, symlinks=True)
            (target / log.name).touch()  # however long ago it was made, a killed run is to be taken for a live one
            logs.append(target / log.name)
    with serve(folder / "server") as server:
        sync(logs, server, folder)
        state = state_of(server)
        assert {entry["status"] for entry in server.requests()} == {200}
        assert server.errors() == ""
    return state


@pytest.fixture(scope="module")
def of_their_logs(made, tmp_path_factory):
    """The states that our sync and the peer's leave of the peer's logs."""
    runs = [made(kind) for kind in peer.SYNCED]
    return tuple(state_after(sync, runs, tmp_path_factory.mktemp("sync")) for sync in (sync_ours, sync_theirs))


def row(num, step, size):
    """A history record whose payload has exactly `size` bytes."""

    def build(more, pad):
        record = messages.Record(num=num, history=messages.HistoryRecord(step=messages.HistoryStep(num=step)))
        for key, text in {"_step": f"{step}", "more": f'"{more}"', "pad": f'"{pad}"'}.items():
            record.history.item.add(nested_key=[key], value_json=text)
        return record

    return payload_of(size, build)


def edges(folder):
    """A run with rows around the edges of blocks: 0 to 8 bytes left, then rows of up to three blocks."""
    log = folder / "wandb" / "run-20260101_000000-edges" / "run-edges.wandb"
    log.parent.mkdir(parents=True)
    (log.parent / "files").mkdir()
    run = messages.RunRecord(run_id="edges", project="peer", start_time=messages.Timestamp(seconds=1_800_000_000))
    run.telemetry.MergeFrom(messages.TelemetryRecord(feature=bytes([4 << 3, 1]), core_version="0.31.0"))
    out, framer, number = bytearray(FILE_HEADER), Framer(), itertools.count(1)
    framer.append(messages.Record(num=next(number), run=run).SerializeToString(), out)
    for step, (left, size) in enumerate(itertools.product(range(9), (100, 32_761, 70_000))):
        room = BLOCK_SIZE - framer.position % BLOCK_SIZE
        framer.append(row(next(number), 2 * step, (room - 7 - left) % BLOCK_SIZE + BLOCK_SIZE - 7), out)
        framer.append(row(next(number), 2 * step + 1, size), out)
    summary = load(io.BytesIO(out)).summary | {"_wandb": {"runtime": 5}}
    items = [messages.Item(key=key, value_json=json.dumps(value)) for key, value in summary.items()]
    for last in ({"summary": messages.SummaryRecord(update=items)}, {"exit": messages.RunExitRecord(runtime=5)}):
        framer.append(messages.Record(num=next(number), **last).SerializeToString(), out)
    log.write_bytes(out)
    return peer.PeerRun(folder, 0, "", "")


@pytest.fixture(scope="module")
def of_our_logs(ours, tmp_path_factory):
    """The same of our logs."""
    runs = [ours(kind) for kind in NAMED_OF_OURS if kind != "edges"] + [edges(tmp_path_factory.mktemp("edges"))]
    return tuple(state_after(sync, runs, tmp_path_factory.mktemp("sync")) for sync in (sync_ours, sync_theirs))


ALWAYS = {"program", "sync feature"}
SOMETIMES = {"below a value in the summary"}
"""What depends on the order in which the peer wrote the keys of a record, which is random."""
NAMED_OF_THEIRS = {
    "console": {"console time"},
    "edits": {"null in the summary", "siblings in the summary"},
    "exception": {"console time"},
    "killed": {"run without an end"},
    "media": {"console time", "link out of the run"},
    "resumed": {"summed runtime"},
}
NAMED_OF_OURS = {
    "console": {"console time"},
    "edges": set(),
    "edits": {"null in the summary"},
    "exception": {"console time"},
    "globs": set(),
    "long": set(),
    "metrics": set(),
    "resumed": set(),
    "scalars": {"explicit step"},
}
"""Kind of run -> the differences that it shows, each of them explained in `support.state`."""


@pytest.mark.parametrize("kind", peer.SYNCED)
def test_our_sync_leaves_of_the_peers_logs_what_the_peers_does(of_their_logs, kind):
    """Rows, samples, summary, config, console, files and end of run are equal but for what is named."""
    named, other = compare(*(state[kind] for state in of_their_logs))

    assert other == []
    assert named - SOMETIMES == ALWAYS | {"core version"} | NAMED_OF_THEIRS.get(kind, set())


@pytest.mark.parametrize("kind", NAMED_OF_OURS)
def test_the_peers_sync_leaves_of_our_logs_what_ours_does(of_our_logs, kind):
    """The peer's own core takes our logs, and the server then holds the same."""
    named, other = compare(*(state[kind] for state in of_our_logs))

    assert other == []
    assert named == ALWAYS | NAMED_OF_OURS[kind]


def test_nothing_else_arrives(of_their_logs, of_our_logs):
    """Each log makes its run and no other."""
    assert [set(state) for state in of_their_logs] == [set(peer.SYNCED)] * 2
    assert [set(state) for state in of_our_logs] == [set(NAMED_OF_OURS)] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["history"][3].update(third=1 / 3 + 1e-16),
        lambda state: state["history"].pop(),
        lambda state: state["summary"].pop("loss"),
        lambda state: state["config"]["lr"].update(value=0.002),
        lambda state: state["config"]["_wandb"]["value"]["t"].update({"13": "other"}),
        lambda state: state["run"].update(exit_code=1),
        lambda state: state["files"].pop("config.yaml"),
        lambda state: state["run"].update(preempting=True),
        lambda state: state["alerts"].append({"title": "T", "text": "t", "severity": "INFO"}),
        lambda state: state["artifacts"].update({"output net:v0": {"digest": "d"}}),
        lambda state: state["console"].append({"level": None, "time": "", "text": "more"}),
    ],
)
def test_the_comparison_sees_any_change(of_our_logs, change):
    """What is not named is seen, however small: the comparison above proves something."""
    state = of_our_logs[0]["scalars"]
    changed = copy.deepcopy(state)
    change(changed)

    assert compare(state, state) == (set(), [])
    assert len(compare(state, changed)[1]) == 1
