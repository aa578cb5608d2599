"""Judged by the real peer: `wandb sync` of offline runs made by wandb, against the server."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from support import peer as tools
from support.artifactclient import OUTPUTS
from support.server import serve

PEER = Path(__file__).resolve().parents[2] / ".venv-peer" / "bin"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not (PEER / "wandb").exists(), reason="the peer's environment .venv-peer is missing; `make test` makes it"
    ),
]

FULL = """
import wandb
settings = wandb.Settings(x_stats_sampling_interval=0.1)
config = {"lr": 0.1, "model": {"layers": [1, 2]}}
with wandb.init(project="p 1", id="full", name="full run", config=config, tags=["b", "a"], notes="n", group="g", job_type="j", settings=settings) as run:
    print("hello console")
    for step in range(50):
        run.log({"loss": 1 / (step + 1), "acc": float("nan") if step == 3 else step, "nest": {"x": step}})
    run.config["late"] = "ü"
    run.summary["best"] = float("inf")
    run.alert("T", "body", level=wandb.AlertLevel.WARN)
    open("saved.bin", "wb").write(bytes(range(256)) * 1000)
    run.save("saved.bin", policy="now")
    run.finish(exit_code=3)
"""
RESUMED = """
import sys, wandb
with wandb.init(project="proj", id="res", resume="allow", settings=wandb.Settings(x_disable_stats=True)) as run:
    for step in range(5):
        run.log({"x": int(sys.argv[1]) + step})
"""


REWOUND = """
import sys, wandb
quiet = wandb.Settings(x_disable_stats=True)
with wandb.init(project="proj", id="back", settings=quiet) as run:
    for step in range(5):
        run.log({"x": step})
with wandb.init(project="proj", resume_from="back?_step=2", settings=quiet) as run:
    for step in range(2):
        run.log({"x": 10 + step})
"""
READER = """
import json, pathlib, sys, wandb
api = wandb.Api(overrides={"base_url": sys.argv[1]})
run, other = api.run("local/peer/artifacts"), api.run("local/p 1/full")
net = api.artifact("local/peer/net:v0")
folder = net.download(root="net")
net.verify(root="net")
print(json.dumps({
    "runs": sorted(one.id for one in api.runs("local/peer")),
    "projects": sorted(project.name for project in api.projects("local")),
    "run": [other.state, other.name, sorted(other.tags), other.config["lr"], other.summary["acc"]],
    "files": {file.name: file.size for file in other.files()},
    "saved": pathlib.Path(other.file("saved.bin").download(root="files").name).stat().st_size,
    "scan": [row["_step"] for row in other.scan_history()],
    "keys": [round(1 / row["loss"]) for row in other.scan_history(keys=["loss"])],
    "sampled": [row["_step"] for row in other.history(samples=3, pandas=False)],
    "events": len(other.history(stream="system", pandas=False)) > 0,
    "logged": sorted(artifact.name for artifact in run.logged_artifacts()),
    "used": list(run.used_artifacts()),
    "aliases": net.aliases,
    "entries": sorted(net.manifest.entries),
    "logged_by": net.logged_by().id,
    "types": sorted(kind.name for kind in api.artifact_types("local/peer")),
    "versions": [artifact.name for artifact in api.artifacts("model", "local/peer/net")],
    "exists": [api.artifact_exists("local/peer/net:v9"), api.artifact_exists("local/peer/net:best")],
}))
run.delete()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The offline runs, made once."""
    folder = tmp_path_factory.mktemp("runs")
    for source, *arguments in ((FULL,), (RESUMED, "0"), (RESUMED, "100")):
        peer(folder, "python", "-c", source, *arguments, WANDB_MODE="offline")
    return folder


def peer(folder, program, *arguments, **environ):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    quiet = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "HOME": str(folder)}
    command = [str(PEER / program), *arguments]
    environ = kept | quiet | environ
    done = subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True, timeout=120, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sync(server, folder, pattern, **environ):
    logs = sorted(str(path.parent) for path in folder.glob(f"wandb/offline-run-*/{pattern}"))
    assert logs
    address = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.key}
    peer(folder, "wandb", "sync", "--include-synced", *logs, **address, **environ)


@pytest.mark.parametrize("modern", [False, True])
def test_a_whole_run(tmp_path, folder, modern):
    """Rows, config, summary, console, samples, files, alert and exit code arrive; plain, and with all features on."""
    options = ["--structured-console"] if modern else ["--no-gzip"]
    with serve(tmp_path, arguments=options) as server:
        sync(server, folder, "run-full.wandb", WANDB_X_FILE_STREAM_NO_GZIP="false")
        run = server.run("local", "p 1", "full")
        history = server.history("local", "p 1", "full")
        console = server.console("local", "p 1", "full")
        saved = server.file("local", "p 1", "full", "saved.bin")
        statuses = {entry["status"] for entry in server.requests()}
        errors = server.errors()

    assert (statuses, errors) == ({200}, "")
    assert [row["_step"] for row in history] == list(range(50))
    assert [row["loss"] for row in history] == [1 / (step + 1) for step in range(50)]
    assert math.isnan(history[3]["acc"])
    assert history[7]["nest"] == {"x": 7}
    config = {key: entry["value"] for key, entry in run["config"].items() if key != "_wandb"}
    assert config == {"lr": 0.1, "model": {"layers": [1, 2]}, "late": "ü"}
    assert (run["summary"]["loss"], run["summary"]["best"], run["summary"]["_step"]) == (1 / 50, math.inf, 49)
    assert (run["display_name"], run["group"], run["job_type"], run["notes"]) == ("full run", "g", "j", "n")
    assert (sorted(run["tags"]), run["state"], run["exit_code"]) == (["a", "b"], "failed", 3)
    assert [(alert["title"], alert["text"], alert["severity"]) for alert in run["alerts"]] == [("T", "body", "WARN")]
    assert any("hello console" in line for line in console)
    assert all(line.startswith("{") == modern for line in console)
    assert run["events_lines"] > 0
    assert hashlib.md5(saved).hexdigest() == hashlib.md5(bytes(range(256)) * 1000).hexdigest()
    names = {file["name"] for file in run["files"] if file["uploaded"]}
    assert {"saved.bin", "config.yaml", "wandb-summary.json", "wandb-metadata.json"} <= names
    assert run["missing_files"] == []


def test_a_resumed_run(tmp_path, folder):
    """The peer asks for the first segment's state, understands the answer, and goes on behind it."""
    with serve(tmp_path) as server:
        sync(server, folder, "run-res.wandb")
        history = server.history("local", "proj", "res")
        asked = server.requests("RunResumeStatus")

    assert [entry["status"] for entry in asked] == [200] * len(asked)
    assert asked
    assert [(row["_step"], row["x"]) for row in history] == [(n, n if n < 5 else 95 + n) for n in range(10)]


def test_a_rewound_run(tmp_path):
    """The peer goes back to step 2 and on from there: what came after it is gone, the new rows are in its place."""
    peer(tmp_path, "python", "-c", REWOUND, WANDB_MODE="offline")
    with serve(tmp_path / "server") as server:
        sync(server, tmp_path, "run-back.wandb")
        history = server.history("local", "proj", "back")
        rewound = server.requests("RewindRun")

    assert [entry["status"] for entry in rewound] == [200]
    assert [(row["_step"], row["x"]) for row in history] == [(0, 0), (1, 1), (2, 2), (3, 10), (4, 11)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The log of a run with artifacts, made once."""
    return tools.make("artifacts", tmp_path_factory.mktemp("made")).logs


def test_artifacts(tmp_path, logs):
    """The peer's artifacts, with files, folders, aliases, equal contents, are committed whole; again: none twice."""
    with serve(tmp_path / "server") as server:
        tools.sync(logs, server.url, server.key, tmp_path)
        first = artifacts(server)
        sent = len(server.requests("Upload"))
        for log in logs:
            log.with_name(log.name + ".synced").unlink()
        tools.sync(logs, server.url, server.key, tmp_path)
        statuses = {entry["status"] for entry in server.requests()}
        uploads = [entry["path"] for entry in server.requests("Upload")[sent:]]

        assert artifacts(server) == first
    assert statuses == {200}
    assert not [path for path in uploads if not path.startswith("/storage/r")]
    assert {(one["artifactSequence"]["name"], one["versionIndex"], one["state"]) for one in first} == {
        (name, version, "COMMITTED")
        for name, version in [
            ("net", 0),
            ("net", 1),
            ("empty", 0),
            ("bypath", 0),
            ("byfolder", 0),
            ("run-artifacts-a.txt", 0),
            ("amodel", 0),
        ]
    }
    net = next(one for one in first if one["artifactSequence"]["name"] == "net" and one["versionIndex"] == 0)
    assert [alias["alias"] for alias in net["aliases"]] == ["best", "v-one"]
    assert [edge["node"]["name"] for edge in net["files"]["edges"]][:2] == ["a.txt", "below/a.txt"]


def test_the_public_api(tmp_path, folder, logs):
    """The peer's own Python API reads runs, rows, files and artifacts back, verifies a download, and deletes a run."""
    for log in logs:
        log.with_name(log.name + ".synced").unlink(missing_ok=True)
    with serve(tmp_path / "server") as server:
        tools.sync(logs, server.url, server.key, tmp_path)
        sync(server, folder, "run-full.wandb")
        read = json.loads(peer(tmp_path, "python", "-c", READER, server.url, WANDB_API_KEY=server.key))
        left = [run["name"] for run in server.runs()]

    files = read.pop("files")
    assert read == {
        "runs": ["artifacts"],
        "projects": ["p 1", "peer"],
        "run": ["failed", "full run", ["a", "b"], 0.1, 49],
        "saved": 256_000,
        "scan": list(range(50)),
        "keys": list(range(1, 51)),
        "sampled": [0, 24, 49],
        "events": True,
        "logged": [
            "amodel:v0",
            "byfolder:v0",
            "bypath:v0",
            "empty:v0",
            "net:v0",
            "net:v1",
            "run-artifacts-a.txt:v0",
        ],
        "used": [],
        "aliases": ["best", "v-one"],
        "entries": [
            "a.txt",
            "below/a.txt",
            "below/sub/b.txt",
            "copies/again.bin",
            "notes.txt",
            "sub/b.txt",
            "weights.bin",
        ],
        "logged_by": "artifacts",
        "types": ["dataset", "model"],
        "versions": ["net:v1", "net:v0"],
        "exists": [False, True],
    }
    assert files["saved.bin"] == 256_000
    assert left == ["full"]


def artifacts(server):
    found = []
    for run in server.runs():
        query = OUTPUTS.replace('"proj"', f'"{run["project"]}"')
        answer = server.graphql(query, {"run": run["name"]})["data"]["project"]["run"]["outputArtifacts"]
        for edge in answer["edges"]:
            for file in edge["node"]["files"]["edges"]:
                del file["node"]["directUrl"]  # signed anew for each reader
            found.append(edge["node"])
    return found


def test_a_quota(tmp_path, folder):
    """A refused request reaches the peer as 429, and what it sends again arrives."""
    fault = {"action": "status", "status": 429, "headers": {"Retry-After": "0.1"}, "path": "file_stream", "nth": 1}
    with serve(tmp_path, faults=[fault]) as server:
        sync(server, folder, "run-full.wandb")

        assert [entry["status"] for entry in server.requests("FileStream")].count(200) >= 1
        assert server.run("local", "p 1", "full")["history_lines"] == 50
