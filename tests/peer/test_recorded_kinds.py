"""The kinds of run whose syncs were recorded: made anew by the peer, synced by it and by us, the server holds the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import peer
from support.server import Server, serve
from support.state import compare, state_of

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

ALWAYS = {"program", "sync feature", "core version", "rounding"}
STATS = {"WANDB_X_DISABLE_META": "true", "WANDB_CONSOLE": "off"}
META = {"WANDB_X_DISABLE_STATS": "true", "WANDB_CONSOLE": "off", "WANDB_DISABLE_GIT": "false"}


def cut(log: Path) -> None:
    """Take the last bytes away, as a full disk or a kill does: the exit record is torn."""
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5)


@dataclass(frozen=True)
class Kind:
    """One kind of run: how it is made and synced, and what is known to differ."""

    script: str
    named: frozenset[str] = frozenset()
    """Differences besides those that every run shows."""
    run: str = ""
    """Its id at the server; the script's name unless given."""
    options: tuple[str, ...] = ()
    """Of the sync, ours and the peer's."""
    server: tuple[str, ...] = ()
    """Of the server."""
    environ: dict[str, str] = field(default_factory=lambda: peer.QUIET)
    """Under which the script runs, if it is one of `synced/`."""
    spoil: Callable[[Path], None] | None = None
    verdict: str = "synced"


KINDS = {
    "01 minimal": Kind("scalars"),
    "02 config, tags, notes, group": Kind("edits", frozenset({"null in the summary", "siblings in the summary"})),
    "03 many rows": Kind("long"),
    "04 console": Kind("console", frozenset({"console time"})),
    "05 system metrics": Kind("sampled", environ=STATS),
    "06 saved files and media": Kind("media", frozenset({"console time", "link out of the run"}), verdict="partial"),
    "06 the same, links followed": Kind("media", frozenset({"console time"}), options=("--follow-links",)),
    "07 artifact": Kind("artifact"),
    "08 define_metric": Kind("metrics"),
    "09 resumed": Kind("resumed", frozenset({"summed runtime"})),
    "10 resumed, structured console, gzip": Kind(
        "talking",
        frozenset({"console time", "summed runtime", "console of the last part"}),
        server=("--structured-console",),
        environ=peer.QUIET | peer.CONSOLE,
    ),
    "11 cut": Kind("scalars", frozenset({"run without an end"}), spoil=cut, verdict="partial"),
    "12 killed": Kind("killed", frozenset({"run without an end"}), verdict="live"),
    "13 exit code": Kind("exitcode"),
    "14 alerts": Kind("alerts"),
    "15 name, notes, tags changed": Kind("identity"),
    "16 preempting": Kind("preempting"),
    "17 empty": Kind("empty"),
    "18 fork": Kind("forked"),
    "19 not finite, unicode": Kind("extremes"),
    "19 oversize": Kind("oversize", frozenset({"row that is too long"}), verdict="partial"),
    "21 overrides with an artifact": Kind(
        "artifact",
        frozenset({"artifact left behind"}),
        run="newid",
        options=("--project", "otherproj", "--entity", "otherent", "--id", "newid", "--job-type", "jt"),
    ),
    "22 tags replaced": Kind("identity", options=("--replace-tags", "only=b,b=")),
    "23 git, sweep, code": Kind("checkout", environ=META),
}


@pytest.fixture(scope="module")
def logs_of(made, tmp_path_factory):
    """The logs of a kind; those of the scripts in `synced/` are made here, once."""
    folder = tmp_path_factory.mktemp("made")

    def logs(kind: Kind) -> list[Path]:
        script = Path(__file__).parent / "synced" / f"{kind.script}.py"
        if not script.exists():
            return made(kind.script).logs
        place = folder / kind.script
        if not place.exists():
            place.mkdir()
            environ = peer.environment(place, **kind.environ)
            subprocess.run([peer.PYTHON, script], cwd=place, env=environ, check=True, capture_output=True, timeout=120)
        return peer.PeerRun(place, 0, "", "").logs

    return logs


def ours(kinds: list[Kind], logs: list[Path], server: Server, folder: Path) -> None:
    """`runferry sync`, whose verdicts are looked at."""
    environ = peer.environment(folder, RUNFERRY_API_KEY=server.key)
    command = [sys.executable, "-m", "runferry.cli", "sync", "--json", "--base-url", server.url, *kinds[0].options]
    command += [log.parent for log in logs]
    for log in logs:
        log.touch()  # however long ago it was made, a killed run is to be taken for a live one
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = {event["run"]: event["verdict"] for event in events if event["type"] == "run_done"}
    assert verdicts == {kind.run or kind.script: kind.verdict for kind in kinds}, done.stdout + done.stderr
    assert done.returncode == int("partial" in verdicts.values())


def theirs(kinds: list[Kind], logs: list[Path], server: Server, folder: Path) -> None:
    """`wandb sync`, which says nothing to rely on."""
    options = [option for option in kinds[0].options if option != "--follow-links"]
    environ = peer.environment(folder, WANDB_MODE="online", WANDB_BASE_URL=server.url, WANDB_API_KEY=server.key)
    command = [peer.PYTHON.parent / "wandb", "sync", "--include-online", *options, *(log.parent for log in logs)]
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, timeout=120, check=True)


def batch_of(name: str) -> list[str]:
    """The kinds that are synced together with this one: all with the same options, but those that are spoilt."""
    one = KINDS[name]
    if one.spoil is not None:
        return [name]
    alike = (one.options, one.server)
    return [other for other, kind in KINDS.items() if (kind.options, kind.server) == alike and kind.spoil is None]


@pytest.fixture(scope="module")
def states(logs_of, tmp_path_factory):
    """What our sync and the peer's leave of a kind's run, each on a server that was empty before."""
    known: dict[str, list[dict]] = {}

    def of(name: str) -> list[dict]:
        names = batch_of(name)
        if names[0] not in known:
            kinds = [KINDS[other] for other in names]
            known[names[0]] = [state_after(sync, kinds) for sync in (ours, theirs)]
        return [state[KINDS[name].run or KINDS[name].script] for state in known[names[0]]]

    def state_after(sync: Callable[..., None], kinds: list[Kind]) -> dict:
        folder = tmp_path_factory.mktemp(sync.__name__)
        logs = []
        for kind in kinds:
            for log in logs_of(kind):
                target = folder / "wandb" / kind.script / log.parent.name
                shutil.copytree(log.parent, target, symlinks=True)
                if kind.spoil is not None:
                    kind.spoil(target / log.name)
                logs.append(target / log.name)
        with serve(folder / "server", arguments=list(kinds[0].server)) as server:
            sync(kinds, logs, server, folder)
            state = state_of(server)
            assert server.errors() == ""
        assert set(state) == {kind.run or kind.script for kind in kinds}
        return state

    return of


@pytest.mark.parametrize("name", KINDS)
def test_our_sync_leaves_the_state_that_the_peers_leaves(states, name):
    """Rows, samples, summary, config, console, files, artifacts, alerts and end are equal but for what is named."""
    named, other = compare(*states(name))

    assert other == []
    assert named - ALWAYS == KINDS[name].named


def test_a_run_that_goes_on_is_at_the_server_while_it_is_written_and_in_the_end(tmp_path):
    """Recording 20: followed from its first block on, a run of the peer's leaves what one sync of the whole log leaves."""
    command = [sys.executable, "-m", "runferry.cli", "sync", "wandb"]
    script = [peer.PYTHON, Path(__file__).parent / "synced" / "slow.py"]
    environ = peer.environment(tmp_path, **peer.QUIET)
    with serve(tmp_path / "followed") as server:
        keyed = peer.environment(tmp_path, RUNFERRY_API_KEY=server.key, RUNFERRY_BASE_URL=server.url)
        with subprocess.Popen(script, cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            with subprocess.Popen([*command, "--watch", "--idle", "8"], cwd=tmp_path, env=keyed) as watch:
                writer.communicate()
        assert watch.returncode == 0
        followed = state_of(server)["slow"]
        assert sum(entry["path"].endswith("/file_stream") for entry in server.requests()) > 2
    with serve(tmp_path / "once") as server:
        keyed = peer.environment(tmp_path, RUNFERRY_API_KEY=server.key, RUNFERRY_BASE_URL=server.url)
        subprocess.run([*command, "--include-synced"], cwd=tmp_path, env=keyed, check=True)
        once = state_of(server)["slow"]

    assert compare(followed, once) == (set(), [])
