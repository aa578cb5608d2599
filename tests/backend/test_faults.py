"""The fault script: which requests it strikes, and what the client and the store see."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error

import pytest
from runferry.backend.faults import FaultScript
from support.server import serve

ROW = {"files": {"wandb-history.jsonl": {"offset": 0, "content": ["{}"]}}}


def strikes(script, count, method="POST", path="/files/e/p/r/file_stream", operations=()):
    return [n for n in range(1, count + 1) if script.take(method, path, operations) is not None]


@pytest.mark.parametrize(
    ("nth", "expected"), [(2, [2]), ([2, 3], [2, 3]), ([3, None], [3, 4, 5]), ("every", [1, 2, 3, 4, 5]), (9, [])]
)
def test_the_nth_request(nth, expected):
    """A rule strikes one request, a range, all from one on, or every one."""
    assert strikes(FaultScript([{"action": "status", "nth": nth}]), 5) == expected


def test_conditions_must_all_hold():
    """Path, method and operation narrow a rule, and only matching requests are counted."""
    script = FaultScript([{"action": "reset", "method": "PUT", "path": "storage", "nth": 2}])
    named = FaultScript([{"action": "reset", "operation": "upsertbucket"}])

    assert strikes(script, 3) == []
    assert strikes(script, 3, "PUT", "/storage/1/x") == [2]
    assert strikes(named, 2, path="/graphql", operations=["UpsertBucket", "upsertBucket"]) == [1, 2]
    assert strikes(named, 2, path="/graphql", operations=["CreateRunFiles"]) == []


def test_a_rule_without_a_path_spares_the_readers():
    """Tests look at the server through the read API while its clients are being struck."""
    script = FaultScript([{"action": "reset"}])

    assert strikes(script, 1, "GET", "/api/runs") == []
    assert strikes(script, 1, "POST", "/graphql") == [1]


def test_the_first_rule_that_is_due_strikes_and_all_count():
    """Rules count independently of each other."""
    script = FaultScript(
        [{"action": "status", "status": 500, "nth": 1}, {"action": "status", "status": 501, "nth": [1, 2]}]
    )

    assert [getattr(script.take("POST", "/graphql", []), "status", None) for _ in range(3)] == [500, 501, None]


@pytest.mark.parametrize(
    "rule",
    [
        {},
        [],
        {"action": "explode"},
        {"action": "status", "nth": "first"},
        {"action": "status", "nth": [1]},
        {"action": "status", "status": "500"},
        {"action": "status", "status": 5},
        {"action": "status", "when": "never"},
        {"action": "status", "Status": 500},
        {"action": "reset", "after_bytes": 5},
        {"action": "reset", "when": "within-body", "after_bytes": 0},
    ],
)
def test_a_script_with_a_mistake_is_refused(rule):
    """A typo in a fault script is an error, not a fault that never strikes."""
    with pytest.raises(ValueError, match=r"fault|nth|status|when|after_bytes"):
        FaultScript([rule])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def run(server):
    name = f"r{len(server.runs())}"
    server.set_faults([])
    server.make_run(name)
    server.forget_requests()
    return name


def rows(server, run):
    return server.run("local", "proj", run)["history_lines"]


def test_a_status_before_it_applies(server, run):
    """Status, headers and body are the script's, the store is untouched, and the next request is served."""
    server.set_faults(
        [{"action": "status", "status": 429, "headers": {"RateLimit-Reset": "7"}, "body": "later", "nth": 1}]
    )

    with pytest.raises(urllib.error.HTTPError) as caught:
        server.stream(run, ROW)

    assert (caught.value.code, caught.value.headers["RateLimit-Reset"], caught.value.read()) == (429, "7", b"later")
    assert rows(server, run) == 0
    server.stream(run, ROW)
    assert rows(server, run) == 1
    assert [(entry["status"], entry.get("fault")) for entry in server.requests()] == [(429, "status"), (200, None)]


def test_a_status_after_it_applied(server, run):
    """A gateway's error after the server did its work: the client hears 502, the rows are there."""
    server.set_faults([{"action": "status", "status": 502, "when": "after-apply", "path": "file_stream"}])

    with pytest.raises(urllib.error.HTTPError) as caught:
        server.stream(run, ROW)

    caught.value.close()
    assert (caught.value.code, rows(server, run)) == (502, 1)


@pytest.mark.parametrize(("when", "expected"), [("before-read", 0), ("before-apply", 0), ("after-apply", 1)])
def test_a_reset(server, run, when, expected):
    """The connection breaks without an answer, before or after the request had its effect."""
    server.set_faults([{"action": "reset", "when": when, "nth": 1}])

    with pytest.raises((ConnectionError, urllib.error.URLError, http.client.HTTPException)):
        server.stream(run, ROW)

    assert rows(server, run) == expected
    assert [(entry["status"], entry["fault"]) for entry in server.requests()] == [(None, "reset")]


@pytest.mark.parametrize("action", ["reset", "status", "hang"])
def test_a_fault_within_the_body(server, run, action):
    """It strikes after so many bytes were read while the client still sends; the rest is not read, nothing is applied."""
    fault = {"action": action, "when": "within-body", "after_bytes": 100_000, "nth": 1}
    server.set_faults([fault | ({"seconds": 0.05} if action == "hang" else {})])
    size = 20_000_000

    with pytest.raises((ConnectionError, urllib.error.URLError, http.client.HTTPException)):
        server.stream(run, {"files": {"wandb-history.jsonl": {"offset": 0, "content": ["x" * size]}}})

    for _ in range(1000):  # answered one after the other, so the server gets to write its line
        if server.requests():
            break
        server.runs()
    (seen,) = server.requests()
    assert 100_000 <= seen["request_bytes"] < size
    assert seen["fault"] == action
    assert rows(server, run) == 0


def test_a_delay_within_the_body(server, run):
    """A server that takes a break while it reads gets the whole body in the end; a body shorter than that, too."""
    for size in (3_000_000, 10):
        server.set_faults(
            [{"action": "delay", "seconds": 0.01, "when": "within-body", "after_bytes": 1000, "path": "file_stream"}]
        )
        server.stream(run, {"files": {"output.log": {"offset": 0, "content": ["x" * size]}}})

        assert server.console("local", "proj", run) == ["x" * size]


def test_half_an_answer(server, run):
    """The answer announces its length and stops half way; the request was applied."""
    server.set_faults([{"action": "half", "nth": 1}])

    with pytest.raises(http.client.IncompleteRead) as caught:
        server.stream(run, ROW)

    assert 0 < len(caught.value.partial) < 29
    assert rows(server, run) == 1


def test_a_hang_ends(server, run):
    """The client waits for as long as the script says and gets a broken connection; others are served meanwhile."""
    server.set_faults([{"action": "hang", "seconds": 0.3, "nth": 1}])
    started = time.monotonic()

    with pytest.raises((ConnectionError, urllib.error.URLError, http.client.HTTPException)):
        server.stream(run, ROW)

    assert time.monotonic() - started >= 0.3
    assert rows(server, run) == 0


def test_a_delay(server, run):
    """A delayed request is answered in the end."""
    server.set_faults([{"action": "delay", "seconds": 0.2, "operation": "UpsertBucket", "nth": 1}])
    started = time.monotonic()

    server.make_run(run)

    assert time.monotonic() - started >= 0.2


def test_graphql_by_its_operation(server, run):
    """A rule can name the operation or the field; other operations pass."""
    server.set_faults([{"action": "status", "status": 403, "operation": "createRunFiles"}])

    server.make_run(run)
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.graphql('mutation { createRunFiles(input: {projectName: "proj", runName: "x", files: []}) { runID } }')

    caught.value.close()
    assert caught.value.code == 403


def test_a_body_that_broke_off_is_not_applied(server, run):
    """A client that goes away in the middle of an upload while the script acts leaves no half file."""
    query = """mutation C($r: String!) { createRunFiles(input: {projectName: "proj", runName: $r, files: ["f"]}) {
        files { uploadUrl } } }"""
    url = server.graphql(query, {"r": run})["data"]["createRunFiles"]["files"][0]["uploadUrl"]
    server.set_faults([{"action": "delay", "seconds": 0, "method": "PUT"}])
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        path = url.removeprefix(server.url)
        connection.sendall(f"PUT {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 9\r\n\r\nhalf".encode())
    for _ in range(1000):  # answered one after the other, so the server gets to see the end of the connection
        if "fault" in server.requests()[-1]:
            break
        server.runs()

    assert server.requests()[-1]["fault"] == "delay"
    assert server.requests()[-1]["status"] is None
    assert server.run("local", "proj", run)["files"] == []


def test_a_broken_script_is_told_to_everyone(server, run):
    """A script that cannot be read fails every request loudly until it is mended."""
    (server.folder / "faults.json").write_text("[{]")
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.stream(run, ROW)
    told = json.loads(caught.value.read())["error"]
    server.set_faults([])

    assert (caught.value.code, "fault script" in told) == (500, True)
    server.stream(run, ROW)
