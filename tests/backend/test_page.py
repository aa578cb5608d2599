"""The page: what it is served with, and that what it draws is what was sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from runferry import backend
from support.artifactclient import USE, ArtifactClient, Sent
from support.inprocess import in_process

HOSTILE = "<img src=x onerror=alert(1)>"
PAGE = Path(backend.__file__).parent / "page"


@pytest.fixture
def server(tmp_path):
    with in_process(tmp_path / "data") as server:
        yield server


def fill(server):
    server.upsert(
        displayName=HOSTILE, tags=[HOSTILE], notes="<script>alert(1)</script>", config='{"lr":{"value":0.001}}'
    )
    history = [json.dumps({"_step": step, "loss": 1 / (step + 1), HOSTILE: step}) for step in range(5000)]
    events = [json.dumps({"_runtime": tick * 15.0, "system.cpu": tick % 100, "_wandb": True}) for tick in range(50)]
    files = {
        "wandb-history.jsonl": history,
        "wandb-events.jsonl": events,
        "output.log": ["2026-11-30T08:34:43.790908 hello"],
    }
    server.stream({"files": {name: {"offset": 0, "content": lines} for name, lines in files.items()}})


@pytest.mark.parametrize("path", ["/", "/local/proj/runs/r1", "/local/proj/runs/never%20seen"])
def test_every_page_is_the_same_shell(server, path):
    """The page is one file for all runs: nothing that a client sent is ever part of its HTML."""
    fill(server)

    answer = server.get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == (PAGE / "index.html").read_text()


def test_the_page_may_load_nothing_from_elsewhere(server):
    """A strict policy allows the page's own scripts and styles only, none of them inline."""
    policy = server.get("/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    assert rules["default-src"] == "'none'"
    assert {rules[kind] for kind in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert "unsafe" not in policy
    assert rules["frame-ancestors"] == "'none'"


def test_all_parts_of_the_page_are_served(server):
    """Whatever the page and its scripts refer to is there, with a type that browsers take under nosniff."""
    seen = set()
    queue = ["/"]
    while queue:
        path = queue.pop()
        answer = server.get(path)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")
        found = re.findall(r'(?:href|src|from)[= ]"(/page/[^"]+)"', answer.text)
        queue += [part for part in found if part not in seen]
        seen.update(found)

    assert seen == {"/page/page.css", "/page/page.js", "/page/chart.js"}
    assert server.get("/page/page.js").headers["content-type"].startswith("text/javascript")
    assert server.get("/page/..%2fapp.py").status_code == 404


@pytest.mark.parametrize("name", ["page.js", "chart.js"])
def test_the_scripts_write_no_html(name):
    """Text of a run reaches the page as text only: no script uses a way to make HTML or code out of a string."""
    script = (PAGE / name).read_text()

    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
        "http://",
        "https://",
    ):
        assert way not in script.replace("http://www.w3.org/2000/svg", "")


def test_the_numbers_that_the_page_draws(server):
    """The charts hold each metric and each system metric with the values that were sent, long series drawn down."""
    fill(server)

    history = {
        series["name"]: series for series in server.get("/api/runs/local/proj/r1/charts?points=600").json()["series"]
    }
    events = {
        series["name"]: series for series in server.get("/api/runs/local/proj/r1/charts?stream=events").json()["series"]
    }

    assert set(history) == {"loss", HOSTILE}
    assert (history["loss"]["count"], history["loss"]["last"], history["loss"]["max"]) == (5000, 1 / 5000, 1)
    assert 400 < len(history["loss"]["points"]) <= 600
    assert all(y == 1 / (x + 1) for x, y in history["loss"]["points"])
    assert events["system.cpu"]["points"] == [[tick * 15.0, tick % 100] for tick in range(50)]


def test_the_artifacts_that_the_page_lists(server):
    """What a run made and used, with name, version, type, aliases, size and number of files; and its alerts."""
    server.upsert()
    client = ArtifactClient(server)
    artifact = client.send(Sent({"a": b"123", "b": b"4"}, {"far": "s3://x/y"}, name="net", aliases=("latest", "best")))
    client.create(Sent({"later": b""}, name="open", client_id="c2"))
    server.upsert("reader")
    used = {"artifactID": artifact, "projectName": "proj", "runName": "reader"}
    client.ask(USE, {"input": used}, "useArtifact")

    made, reader = (server.get(f"/api/runs/local/proj/{name}?json=strict").json() for name in ("r1", "reader"))

    keys = ("role", "name", "version", "type", "aliases", "size", "file_count", "state")
    assert [tuple(one[key] for key in keys) for one in made["artifacts"]] == [
        ("output", "net", 0, "model", ["best", "latest"], 4, 3, "COMMITTED"),
        ("output", "open", None, "model", [], 0, 0, "PENDING"),
    ]
    assert [(one["role"], one["name"]) for one in reader["artifacts"]] == [("input", "net")]
    entries = server.get("/api/runs/local/proj/r1/artifacts").json()[0]["entries"]
    assert [(entry["path"], entry["size"], entry["ref"]) for entry in entries] == [
        ("a", 3, None),
        ("b", 1, None),
        ("far", 0, "s3://x/y"),
    ]


def test_charts_can_be_asked_for_again_cheaply(server):
    """An unchanged run answers 304; new rows change the tag."""
    fill(server)
    path = "/api/runs/local/proj/r1/charts"
    tag = server.get(path).headers["etag"]
    unchanged = server.get(path, headers={"If-None-Match": tag})
    server.stream({"files": {"wandb-history.jsonl": {"offset": 5000, "content": ['{"loss":0}']}}})

    changed = server.get(path, headers={"If-None-Match": tag})

    assert (unchanged.status_code, changed.status_code) == (304, 200)


def test_charts_of_something_else(server):
    """Only history and events have charts; odd numbers are refused."""
    fill(server)

    assert server.get("/api/runs/local/proj/r1/charts?stream=console").status_code == 400
    assert server.get("/api/runs/local/proj/r1/charts?points=many").status_code == 400
