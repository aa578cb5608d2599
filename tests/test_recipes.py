"""The recipes in `examples/recipes/` do what they say: each is run as it stands, with a server that is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import peer
from support.logs import exit_record, make_log, row, set_age, simple_run
from support.server import surroundings

RECIPES = Path(__file__).resolve().parents[1] / "examples" / "recipes"
TRAIN = """
import sys
import runferry
run = runferry.init(project="proj", id=sys.argv[1] if len(sys.argv) > 1 else "ci", settings={"silent": True})
for step in range(5):
    run.log({"loss": 1 / (1 + step)})
assert "fail" not in sys.argv
"""

needs_yaml = pytest.mark.skipif(bool(peer.missing()), reason=f"no reader of YAML: {peer.missing()}")
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync here")
needs_sha256sum = pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")


@pytest.fixture
def environ(server, tmp_path):
    """Where `runferry` and `python` are ours, and the server is known."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("runferry", "-m runferry.cli "), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (commands / name).chmod(0o755)
    found = surroundings(server, XDG_STATE_HOME=str(tmp_path / "state"))
    return found | {"PATH": f"{commands}{os.pathsep}{found['PATH']}"}


def shell(script, folder, environ):
    """A step as these services run it; its end."""
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def without_key(environ):
    return {name: value for name, value in environ.items() if name != "RUNFERRY_API_KEY"}


@pytest.fixture
def checkouts(tmp_path):
    """A folder for each of two jobs, with the training."""
    for name in ("train", "sync"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(TRAIN)
    return tmp_path


@needs_yaml
@pytest.mark.parametrize("fails", [False, True])
def test_github_actions(checkouts, environ, server, fails):
    """Training and packing without a key, the bundle as an artifact, the sync in a job that has the key; a failed training too."""
    jobs = peer.yaml((RECIPES / "github-actions.yml").read_bytes())["jobs"]
    ended = {}
    for job in ("train", "sync"):
        good = True
        for step in jobs[job]["steps"]:
            if not good and step.get("if") != "always()":
                continue
            if (uses := step.get("uses", "")).startswith("actions/upload-artifact"):
                shutil.copy(checkouts / job / step["with"]["path"], checkouts / "artifact")
            elif uses.startswith("actions/download-artifact"):
                (checkouts / "artifact").rename(checkouts / job / "run.tar.zst")
            elif step.get("name") == "install":
                assert "pip install" in step["run"]
            elif not uses:
                has_key = "RUNFERRY_API_KEY" in step.get("env", {})
                script = step["run"] + (f" gh{fails} fail" if fails and step["name"] == "train" else "")
                script = script if step["name"] != "train" or fails else f"{script} gh{fails}"
                done = shell(script, checkouts / job, environ if has_key else without_key(environ))
                ended[step["name"]] = done.returncode
                good &= done.returncode == 0

    assert ended == {"train": 1 if fails else 0, "pack": 0, "sync": 0}
    assert [line["loss"] for line in server.history("local", "proj", f"gh{fails}")] == [
        1 / (1 + step) for step in range(5)
    ]
    assert server.run("local", "proj", f"gh{fails}")["state"] == ("failed" if fails else "finished")


@needs_yaml
@pytest.mark.parametrize("fails", [False, True])
def test_gitlab(checkouts, environ, server, fails):
    """The same with a pipeline of GitLab's, whose `after_script` runs whatever the script did."""
    jobs = peer.yaml((RECIPES / "gitlab-ci.yml").read_bytes())
    arguments = f" gl{fails} fail" if fails else f" gl{fails}"
    train, sync = jobs["train"], jobs["sync"]
    trained = shell("\n".join(train["script"]) + arguments, checkouts / "train", without_key(environ))
    packed = shell("\n".join(train["after_script"]), checkouts / "train", without_key(environ))
    for path in train["artifacts"]["paths"]:
        shutil.copy(checkouts / "train" / path, checkouts / "sync" / path)
    synced = shell("\n".join(sync["script"]), checkouts / "sync", environ)

    assert (trained.returncode, packed.returncode, synced.returncode) == (1 if fails else 0, 0, 0)
    assert train["artifacts"]["when"] == sync["when"] == "always"
    assert len(server.history("local", "proj", f"gl{fails}")) == 5
    assert server.run("local", "proj", f"gl{fails}")["state"] == ("failed" if fails else "finished")


def recipe(name, folder, environ, *arguments):
    return subprocess.run(
        [RECIPES / name, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture
def carried(tmp_path):
    """A machine with runs, and an empty medium."""
    for number in range(3):
        log = simple_run(tmp_path / "here" / "wandb", run_id=f"usb{number}", rows=4, exit_code=None)
        (log.parent / "files" / "noise.bin").write_bytes(os.urandom(100_000))
    (tmp_path / "medium").mkdir()
    return tmp_path


@needs_sha256sum
def test_carried_on_a_medium(carried, environ, server):
    """Out in volumes, in and synced; then once more, when the runs have ended: only what is new is sent."""
    small = environ | {"SIZE": "100kB"}
    out = recipe("carry-out.sh", carried, without_key(small), "here/wandb", "medium")
    names = sorted(path.name for path in (carried / "medium").iterdir())
    first = recipe("carry-in.sh", carried, environ, "medium", "arrived", "--json")
    for log in (carried / "here").rglob("*.wandb"):
        make_log(log, row(4, num=99), exit_record(0), append=True)
    again = recipe("carry-out.sh", carried, without_key(small), "here/wandb", "medium")
    second = recipe("carry-in.sh", carried, environ, "medium", "arrived", "--json")

    assert [done.returncode for done in (out, first, again, second)] == [0] * 4, (
        out.stderr + first.stderr + again.stderr
    )
    assert names[-1] == "runs.tar.zst.sha256"
    assert names[:2] == ["runs.tar.zst.001", "runs.tar.zst.002"]
    for number in range(3):
        assert [line["_step"] for line in server.history("local", "proj", f"usb{number}")] == list(range(5))
        assert server.run("local", "proj", f"usb{number}")["state"] == "finished"


@needs_sha256sum
def test_what_did_not_arrive_is_named_and_the_rest_synced(carried, environ, server):
    """As behind a data diode: a volume that was lost and one that was damaged are asked for again, by name."""
    for log in (carried / "here").rglob("*.wandb"):
        log.rename(log.with_name(log.name.replace("usb", "dio")))
    small = environ | {"SIZE": "70kB"}
    recipe("carry-out.sh", carried, without_key(small), "here/wandb", "medium")
    lost, hurt = carried / "medium" / "runs.tar.zst.002", carried / "medium" / "runs.tar.zst.004"
    kept = lost.read_bytes(), hurt.read_bytes()
    lost.unlink()
    hurt.write_bytes(kept[1][:1000] + b"?" + kept[1][1001:])
    first = recipe("carry-in.sh", carried, environ, "medium", "arrived", "--project", "diode")
    lost.write_bytes(kept[0])
    hurt.write_bytes(kept[1])
    second = recipe("carry-in.sh", carried, environ, "medium", "arrived", "--project", "diode")
    none = recipe("carry-in.sh", carried, environ, "here", "arrived")

    assert (first.returncode, second.returncode, none.returncode) == (1, 0, 1)
    assert "runs.tar.zst.002: FAILED open or read" in first.stdout
    assert "runs.tar.zst.004: FAILED" in first.stdout
    assert "no bundle has arrived" in none.stderr
    assert all(len(server.history("local", "diode", f"usb{number}")) == 4 for number in range(3))


@needs_rsync
def test_from_a_compute_node_by_rsync(tmp_path, environ, server):
    """Again and again while the run is written: each time what is new is sent, once, and a torn end is whole the next time."""
    node, copy = tmp_path / "node" / "wandb", tmp_path / "copy"
    log = simple_run(node, run_id="rsync", rows=3, exit_code=None)
    (log.parent / "files" / "notes.txt").write_text("notes")
    (node / "latest-run").symlink_to(log.parent.name)
    log.with_name(log.name + ".cursor").write_text("of the node")
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])  # in the middle of a record
    first = recipe("login-node.sh", tmp_path, environ, node, copy, "--json")
    log.write_bytes(whole)
    make_log(log, row(3, num=70), row(4, num=71), exit_record(0), append=True)
    set_age(log, 3600)
    second = recipe("login-node.sh", tmp_path, environ, node, copy, "--json")
    server.forget_requests()
    third = recipe("login-node.sh", tmp_path, environ, node, copy, "--json")
    ends = [
        next(line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "run_done")
        for done in (first, second, third)
    ]
    arrived = copy / log.parent.name

    assert [end["verdict"] for end in ends[1:]] == ["synced", "synced"]
    assert ends[0]["verdict"] in {"partial", "live"}
    assert server.requests() == []
    assert [line["_step"] for line in server.history("local", "proj", "rsync")] == list(range(5))
    assert (arrived / log.name).read_bytes() == log.read_bytes()
    assert int((arrived / log.name).stat().st_mtime) == int(log.stat().st_mtime)
    assert (arrived / "files" / "notes.txt").read_text() == "notes"
    assert (arrived / f"{log.name}.cursor").read_text() != "of the node"
    assert (copy / "latest-run").is_symlink()
