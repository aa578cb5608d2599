"""The protocol as a client sees it, over the ASGI application."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import math
import threading
import tracemalloc

import httpx
import pytest
from runferry.backend import ServeSettings
from runferry.backend import app as app_module
from runferry.backend.errors import TooLargeError
from runferry.backend.filestream import gunzip
from support.inprocess import KEY, in_process

HISTORY, EVENTS, SUMMARY, CONSOLE = "wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json", "output.log"


@pytest.fixture
def server(tmp_path):
    with in_process(tmp_path / "data") as server:
        yield server


def files(**parts):
    names = {"history": HISTORY, "events": EVENTS, "summary": SUMMARY, "console": CONSOLE}
    return {"files": {names[name]: {"offset": offset, "content": content} for name, (offset, content) in parts.items()}}


def test_a_new_run_takes_the_default_entity(server):
    """A run that names no entity gets the server's, and the answer tells every name that the client needs."""
    answer = server.upsert(config='{"lr":{"value":0.1}}')

    bucket = answer["bucket"]
    assert answer["inserted"] is True
    assert bucket["project"]["name"] == "proj"
    assert bucket["project"]["entity"]["name"] == "local"
    assert (bucket["name"], bucket["displayName"], bucket["historyLineCount"]) == ("r1", "run-1", 0)
    assert bucket["config"] == '{"lr":{"value":0.1}}'


def test_an_upsert_by_id_finds_the_run(server):
    """The storage id stands for entity, project and name."""
    storage_id = server.upsert()["bucket"]["id"]

    answer = server.upsert(name=None, modelName=None, id=storage_id, notes="by id")

    assert (answer["inserted"], server.run()["notes"]) == (False, "by id")


@pytest.mark.parametrize(
    "fields",
    [
        {"config": "{"},
        {"config": "[]"},
        {"config": {"a": 1}},
        {"tags": "a"},
        {"state": "wild"},
        {"modelName": "a/b"},
        {"name": None},
        {"id": "bm8="},
    ],
)
def test_an_upsert_that_makes_no_sense_is_refused(server, fields):
    """Malformed fields end as a GraphQL error, and no run is made."""
    given = {"name": "r1", "modelName": "proj", **fields}

    answer = server.graphql("mutation($i: I!) { upsertBucket(input: $i) { inserted } }", {"i": given})

    assert answer["errors"][0]["message"]
    assert server.store.runs() == []


def test_resume_status(server):
    """A client that resumes learns the counts, the last rows, config, summary, and whether the run ever started."""
    query = """query RunResumeStatus($project: String, $entity: String, $name: String!) {
        model(name: $project, entityName: $entity) { id name entity { id name } bucket(name: $name, missingOk: true) {
            id name summaryMetrics displayName logLineCount historyLineCount eventsLineCount historyTail eventsTail
            config tags notes wandbConfig(keys: ["t"]) } } }"""
    asked = {"project": "proj", "entity": None, "name": "r1"}
    missing = server.graphql(query, asked)["data"]["model"]
    server.upsert(config='{"_wandb":{"value":{"t":{"4":"3.11"},"m":[]}}}', tags=["a"])
    rows = ['{"_step":0}', '{"_step":1,"x":NaN}']
    server.stream(files(history=(0, rows), console=(0, ["l"]), summary=(0, ['{"x":NaN}'])))

    bucket = server.graphql(query, asked)["data"]["model"]["bucket"]

    assert missing["bucket"] is None
    assert missing["entity"]["name"] == "local"
    assert (bucket["historyLineCount"], bucket["eventsLineCount"], bucket["logLineCount"]) == (2, 0, 1)
    assert json.loads(bucket["historyTail"]) == [rows[1]]
    assert json.loads(bucket["eventsTail"]) == []
    assert json.loads(bucket["wandbConfig"]) == {"t": {"4": "3.11"}}
    assert (bucket["summaryMetrics"], bucket["tags"]) == ('{"x":NaN}', ["a"])


def test_the_next_line_stays_true_behind_a_hole(server):
    """A client that goes on at `historyLineCount` overwrites nothing, even where lines are missing."""
    server.upsert()
    server.stream(files(history=(0, ["{}"])))
    server.stream(files(history=(10, ["{}"])))

    assert server.upsert()["bucket"]["historyLineCount"] == 11
    assert server.run()["history_lines"] == 2
    assert server.run()["next_line"]["history"] == 11


def test_features(tmp_path):
    """The features that the server was started with are announced."""
    query = "query ServerFeaturesQuery { serverInfo { features { name isEnabled } } }"
    with in_process(tmp_path / "a") as server, in_process(tmp_path / "b", gzip=False, structured_console=True) as other:
        answers = [one.graphql(query)["data"]["serverInfo"]["features"] for one in (server, other)]

    flags = [{feature["name"]: feature["isEnabled"] for feature in answer} for answer in answers]
    assert flags[0] == {"FILESTREAM_GZIP": True, "STRUCTURED_CONSOLE_LOGS": False}
    assert flags[1] == {"FILESTREAM_GZIP": False, "STRUCTURED_CONSOLE_LOGS": True}


def test_the_viewer(server):
    """A client that asks who it is gets the default entity."""
    answer = server.graphql("{ viewer { username entity teams { edges { node { name } } } } }")

    assert answer["data"]["viewer"]["entity"] == "local"


def test_what_is_not_supported_is_refused_by_name(server):
    """What the backend does not do is said, with its name."""
    answer = server.graphql("mutation($i: I!) { linkArtifact(input: $i) { versionIndex } }", {"i": {}})

    assert answer["errors"] == [{"message": "not supported by this backend: linkArtifact"}]


def test_alerts(server):
    """An alert is kept once, however often it is sent within its waiting time (milliseconds on the wire)."""
    query = """mutation($e: String!, $p: String!, $r: String!, $t: String!, $s: AlertSeverity = INFO, $w: Duration) {
        notifyScriptableRunAlert(input: {entityName: $e, projectName: $p, runName: $r, title: $t, text: "x",
                                         severity: $s, waitDuration: $w}) { success } }"""
    server.upsert()
    for seconds in (0, 59, 2):
        server.wall += seconds
        answer = server.graphql(query, {"e": "local", "p": "proj", "r": "r1", "t": "T", "w": 60_000})
        assert answer == {"data": {"notifyScriptableRunAlert": {"success": True}}}

    assert [(alert["title"], alert["severity"]) for alert in server.run()["alerts"]] == [("T", "INFO")] * 2


def test_rewind(server):
    """A rewound run answers with the line count where the client goes on."""
    server.upsert()
    server.stream(files(history=(0, [f'{{"_step":{step}}}' for step in range(6)])))
    query = """mutation R($run: String!, $v: Float!) { rewindRun(input: {runName: $run, projectName: "proj",
        metricName: "_step", metricValue: $v}) { rewoundRun { id historyLineCount } } }"""

    answer = server.graphql(query, {"run": "r1", "v": 2})

    assert answer["data"]["rewindRun"]["rewoundRun"]["historyLineCount"] == 3
    assert server.run()["history_lines"] == 3


def test_rows_come_back_byte_for_byte(server):
    """Rows are kept as their text: NaN, infinities, long integers, key order and odd characters survive."""
    rows = ['{"b":NaN,"a":Infinity,"c":-Infinity}', '{"n":123456789012345678901,"u":"\u2028ü","e":"\\u0000"}', "{}"]
    server.upsert()
    server.stream(files(history=(0, rows)))

    body = server.get("/api/runs/local/proj/r1/history").content

    assert body.decode().split("\n") == [*rows, ""]
    assert math.isnan(json.loads(body.split(b"\n")[0])["b"])


def test_ranges_of_lines(server):
    """`from` and `to` are line numbers; console lines come with theirs."""
    server.upsert()
    server.stream(files(events=(0, ["0", "1", "2"]), console=(4, ["four", "five"])))

    assert server.get("/api/runs/local/proj/r1/events?from=1&to=2").text == "1\n"
    assert server.get("/api/runs/local/proj/r1/console?from=5").json() == {"line": 5, "text": "five"}
    assert server.get("/api/runs/local/proj/r1/events?from=-1").status_code == 400
    assert server.get("/api/runs/local/proj/r1/secrets").status_code == 404
    assert server.get("/api/runs/local/proj/other/events").status_code == 404


def test_the_whole_run_by_the_read_api(server):
    """Everything that was sent can be read: fields, config, summary, counts, files, state, times."""
    server.upsert(groupName="g", jobType="j", notes="n", tags=["t"], displayName="d", config='{"x":{"value":NaN}}')
    server.request("PUT", server.upload_url("a/b.txt"), key=None, content=b"hello")
    server.wall += 5
    server.stream(
        files(history=(0, ["{}"]), summary=(0, ['{"y":Infinity}']))
        | {"uploaded": ["a/b.txt"], "complete": True, "exitcode": 4}
    )

    run = server.run()

    assert {
        key: run[key] for key in ("entity", "project", "name", "display_name", "group", "job_type", "notes", "tags")
    } == {
        "entity": "local",
        "project": "proj",
        "name": "r1",
        "display_name": "d",
        "group": "g",
        "job_type": "j",
        "notes": "n",
        "tags": ["t"],
    }
    assert (run["state"], run["exit_code"], run["history_lines"]) == ("failed", 4, 1)
    assert math.isnan(run["config"]["x"]["value"])
    assert run["summary"] == {"y": math.inf}
    assert run["files"] == [{"name": "a/b.txt", "size": 5, "md5": hashlib.md5(b"hello").hexdigest(), "uploaded": True}]
    assert (run["created_at"], run["updated_at"]) == (1_700_000_000.0, 1_700_000_005.0)
    assert [one["name"] for one in server.get("/api/runs").json()] == ["r1"]


def test_a_strict_reader_gets_no_bare_nan(server):
    """`json=strict` turns NaN and infinities into strings, for parsers that know no others."""
    server.upsert(config='{"x":{"value":[NaN,-Infinity]}}')

    assert server.get("/api/runs/local/proj/r1?json=strict").json()["config"] == {"x": {"value": ["NaN", "-Infinity"]}}


def test_gzip_bodies(server):
    """A compressed body counts like a plain one."""
    server.upsert()
    body = gzip.compress(json.dumps(files(history=(0, ["{}"] * 100))).encode())

    answer = server.stream(body, headers={"Content-Encoding": "gzip"})

    assert (answer.status_code, server.run()["history_lines"]) == (200, 100)


def test_bodies_are_capped(server, monkeypatch):
    """Too many bytes, packed or unpacked, are answered 413 and change nothing."""
    server.upsert()
    monkeypatch.setattr(app_module, "MAX_BODY", 1000)
    large = json.dumps(files(history=(0, ["x" * 3000]))).encode()

    plain = server.stream(large)
    packed = server.stream(gzip.compress(large), headers={"Content-Encoding": "gzip"})

    assert (plain.status_code, packed.status_code) == (413, 413)
    assert server.run()["history_lines"] == 0


def test_a_bomb_is_refused_before_it_unfolds():
    """Of a body that unpacks to far more than it may, no more than the cap is ever unpacked."""
    bomb = gzip.compress(b"\0" * 64_000_000)
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        gunzip(bomb, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4_000_000


@pytest.mark.parametrize("spoil", [lambda body: body[:-5], lambda body: body + b"x", lambda body: b"plain " + body])
def test_a_body_that_is_no_gzip_is_refused(server, spoil):
    """Cut off, followed by more, or no gzip at all: 400, and nothing of it is kept."""
    server.upsert()
    body = gzip.compress(json.dumps(files(history=(0, ["{}"]))).encode())

    assert server.stream(spoil(body), headers={"Content-Encoding": "gzip"}).status_code == 400
    assert server.run()["history_lines"] == 0


def test_other_encodings_are_refused(server, tmp_path):
    """An encoding that the server does not read is answered 415; so is gzip where it is switched off."""
    server.upsert()
    with in_process(tmp_path / "off", gzip=False) as off:
        off.upsert()
        packed = off.stream(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})

    assert server.stream(b"{}", headers={"Content-Encoding": "br"}).status_code == 415
    assert packed.status_code == 415


def test_bad_bodies_are_refused(server):
    """A body that is no JSON, or not what the protocol has, is a 400 with a reason."""
    server.upsert()

    for body in (b"{", b"[]", json.dumps({"files": {"x": 1}}).encode()):
        answer = server.stream(body)
        assert (answer.status_code, bool(answer.json()["error"])) == (400, True)
    assert server.request("POST", "/graphql", content=b"{").status_code == 400
    assert server.graphql("{ a(")["errors"]


def test_a_stream_needs_its_run(server):
    """A run that was never made, or was removed, is a 404."""
    assert server.stream({}, name="gone").status_code == 404


def test_a_file_goes_up_and_down(server):
    """The signed address needs no key; the bytes, empty ones included, come back as a download."""
    server.upsert()
    for name, content in (("empty", b""), ("dir/ünï <x>.html", b"<script>" * 400_000)):
        answer = server.request("PUT", server.upload_url(name), key=None, content=content)
        assert answer.status_code == 200
        got = server.get(f"/api/runs/local/proj/r1/files/{name}")
        assert got.content == content
        assert got.headers["content-disposition"].startswith("attachment")
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("change", ["expires", "signature", "file", "run", "late"])
def test_a_changed_address_is_refused(server, change):
    """Every part of an upload address is signed, and it ends after a day."""
    server.upsert()
    server.upsert("r2")
    url = httpx.URL(server.upload_url("a"))
    if change == "late":
        server.wall += 24 * 3600 + 1
    elif change == "file":
        url = httpx.URL(server.upload_url("b")).copy_with(query=url.query)
    elif change == "run":
        url = url.copy_with(path=url.path.replace("/r1/", "/r2/"))
    else:
        url = url.copy_set_param(change, url.params[change] + "0")

    answer = server.request("PUT", str(url), key=None, content=b"x")

    assert answer.status_code == 403
    assert server.run()["files"] == server.run("r2")["files"] == []


def test_a_hostile_file_name_gets_no_address(server):
    """Names that would leave the run's folder on a later download are skipped, the others are served."""
    server.upsert()

    assert server.upload_url("../../etc/passwd") is None
    assert server.upload_url("fine.txt") is not None


@pytest.mark.parametrize("key", [None, "", "x" * 40, KEY + "x", KEY[:-1]])
def test_a_wrong_key_is_refused(server, key):
    """Writing needs one of the keys; the refusal has no effect."""
    document = {"query": 'mutation { upsertBucket(input: {name: "r", modelName: "p"}) { inserted } }'}

    answer = server.request("POST", "/graphql", key=key, json=document)

    assert (answer.status_code, server.store.runs()) == (401, [])
    assert server.stream({}, key=key).status_code == 401


@pytest.mark.parametrize("header", ["Basic ???", "Bearer " + KEY, "Basic", "Basic " + "A" * 7])
def test_odd_authorization_headers(server, header):
    """Headers that are not Basic, or not base64, are refused, not crashed over."""
    assert server.request("POST", "/graphql", key=None, headers={"Authorization": header}).status_code == 401


def test_reading_needs_a_key_beyond_loopback(tmp_path):
    """On loopback the page and the read API are open; elsewhere they ask for a key, with any user name."""
    with in_process(tmp_path / "a", host="0.0.0.0") as server:
        refused = server.get("/api/runs")
        page = server.get("/")
        allowed = server.request("GET", "/api/runs")

    assert (refused.status_code, page.status_code, allowed.status_code) == (401, 401, 200)
    assert refused.headers["www-authenticate"].startswith("Basic")


def test_foreign_pages_cannot_read_the_loopback_server(server):
    """A web page elsewhere, or a name that was made to point here, gets nothing from a server that asks for no key."""
    assert server.get("/api/runs", headers={"Host": "evil.example:8765"}).status_code == 403
    assert server.get("/api/runs", headers={"Origin": "http://evil.example"}).status_code == 403
    assert server.get("/api/runs", headers={"Origin": "http://127.0.0.1:8765"}).status_code == 200
    assert server.get("/api/runs", headers={"Host": "localhost:8765"}).status_code == 200


def test_without_a_key_check_foreign_pages_cannot_write(tmp_path):
    """The check may be off on loopback; a page in the user's browser still cannot write."""
    with in_process(tmp_path / "a", auth=False) as server:
        server.upsert()
        foreign = server.stream({}, key=None, headers={"Origin": "http://evil.example"})
        own = server.stream({}, key=None)

    assert (foreign.status_code, own.status_code) == (403, 200)


def test_the_key_check_stays_on_elsewhere(tmp_path):
    """No key and another address than loopback do not go together."""
    with pytest.raises(ValueError, match="loopback"):
        ServeSettings(data_dir=tmp_path, auth=False, host="0.0.0.0")


def test_quotas(tmp_path):
    """Requests beyond the limit are answered 429 until the window ends; every counted answer tells the quota."""
    with in_process(tmp_path / "a", limit=3, window_s=10.0) as server:
        server.upsert()
        answers = [server.stream({}) for _ in range(3)]
        server.steady += 9.2
        late = server.stream({})
        server.steady += 0.8
        fresh = server.stream({})

    told = [
        tuple(answer.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset"))
        for answer in [*answers, late, fresh]
    ]
    assert [answer.status_code for answer in [*answers, late, fresh]] == [200, 200, 429, 429, 200]
    assert told == [("3", "1", "10"), ("3", "0", "10"), ("3", "0", "10"), ("3", "0", "1"), ("3", "2", "10")]


def test_quotas_are_per_project(tmp_path):
    """One project's requests cost another nothing; a question that names no project costs nobody anything."""
    with in_process(tmp_path / "a", limit=1, window_s=10.0) as server:
        server.upsert()
        other = server.upsert("r", modelName="other")
        free = server.request("POST", "/graphql", json={"query": "{ serverInfo { features { name } } }"})
        refused = server.stream({})

    assert other["inserted"]
    assert (free.status_code, "ratelimit-limit" in free.headers) == (200, False)
    assert refused.status_code == 429


def test_a_refused_request_changes_nothing(tmp_path):
    """What was answered 429 was not applied."""
    with in_process(tmp_path / "a", limit=1, window_s=10.0) as server:
        server.upsert()
        server.stream(files(history=(0, ["{}"])))
        again = server.request(
            "POST",
            "/graphql",
            json={"query": 'mutation { upsertBucket(input: {name: "n", modelName: "proj"}) { inserted } }'},
        )

        assert again.status_code == 429
        assert server.run()["history_lines"] == 0
        assert len(server.store.runs()) == 1


def test_readers_do_not_wait_for_writers(server, monkeypatch):
    """While more writers than there are threads for them wait, a reader is served."""
    server.upsert()
    release, started = threading.Event(), threading.Semaphore(0)
    apply_stream = server.store.apply_stream

    def slow(*arguments):
        started.release()
        assert release.wait(30)
        apply_stream(*arguments)

    monkeypatch.setattr(server.store, "apply_stream", slow)

    async def scenario():
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8765", auth=("api", KEY)
        ) as client:
            stream = "/files/local/proj/r1/file_stream"
            writers = [asyncio.ensure_future(client.post(stream, json={})) for _ in range(60)]
            assert await asyncio.to_thread(started.acquire, timeout=30)
            read = await asyncio.wait_for(client.get("/api/runs/local/proj/r1/history"), 30)
            query = {"query": '{ project(name: "proj") { run(name: "r1") { historyLineCount } } }'}
            asked = await asyncio.wait_for(client.post("/graphql", json=query), 30)
            waiting = [writer for writer in writers if not writer.done()]
            release.set()
            return (
                read.status_code,
                asked.status_code,
                len(waiting),
                {answer.status_code for answer in await asyncio.gather(*writers)},
            )

    assert asyncio.run(scenario()) == (200, 200, 60, {200})


def test_a_full_disk_is_told(server, monkeypatch, capsys):
    """When the store cannot write, the client hears that it failed (507) and the operator reads why."""
    server.upsert()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server.store, "apply_stream", full)

    assert server.stream({}).status_code == 507
    assert "No space left" in capsys.readouterr().err
