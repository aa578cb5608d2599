"""What clients read back by GraphQL: rows by step, keys, files, pages, console lines; and deleted runs."""

from __future__ import annotations

import json

import pytest
from support.inprocess import in_process

RUN = 'query($a: String) {{ project(name: "proj", entityName: "local") {{ run(name: "r1") {{ {fields} }} }} }}'


@pytest.fixture
def server(tmp_path):
    with in_process(tmp_path / "data") as server:
        server.upsert()
        yield server


def read(server, fields, **variables):
    """The run's fields; the message where there is an error."""
    answer = server.graphql(RUN.format(fields=fields), variables)
    return answer["errors"][0]["message"] if answer.get("errors") else answer["data"]["project"]["run"]


def fill(server, rows, name="wandb-history.jsonl"):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    server.stream({"files": {name: {"offset": 0, "content": lines}}})


def steps(rows):
    return [json.loads(row)["_step"] for row in rows]


def test_rows_by_step(server):
    """`minStep <= _step < maxStep`, as they were sent, steps out of order and steps twice included."""
    fill(server, [{"_step": step} for step in (0, 3, 4, 4, 2, 9)] + ['{"x":NaN}', '{"_step":5,"y":NaN}'])

    assert steps(read(server, "history(minStep: 3, maxStep: 5, samples: 100)")["history"]) == [3, 4, 4]
    assert steps(read(server, "history(minStep: 2, maxStep: 4)")["history"]) == [3, 2]
    assert read(server, "history(minStep: 5, maxStep: 6)")["history"] == ['{"_step":5,"y":NaN}']
    assert read(server, "history(minStep: 10, maxStep: 20)")["history"] == []
    assert len(read(server, "history")["history"]) == 8


def test_rows_by_step_follow_the_rows(server):
    """A row written again, or added, is seen by the next question."""
    fill(server, [{"_step": 0}, {"_step": 1}])
    before = read(server, "history(minStep: 1)")["history"]
    server.wall += 1
    server.stream({"files": {"wandb-history.jsonl": {"offset": 1, "content": ['{"_step":7}', '{"_step":8}']}}})

    assert (steps(before), steps(read(server, "history(minStep: 1)")["history"])) == ([1], [7, 8])


def test_samples_of_rows(server):
    """More rows than samples are thinned out evenly, from the first to the last."""
    fill(server, [{"_step": step} for step in range(101)])

    assert steps(read(server, "history(samples: 5)")["history"]) == [0, 25, 50, 75, 100]
    assert steps(read(server, "history(samples: 1)")["history"]) == [0]


def test_samples_of_some_keys(server):
    """Rows that have all the keys, with these keys only; here `maxStep` is among the steps asked for."""
    fill(server, [{"_step": step, "a": step, **({"b": -step} if step % 2 else {})} for step in range(6)])
    spec = json.dumps({"keys": ["_step", "b"], "samples": 10, "minStep": 1, "maxStep": 5})

    found = read(server, "sampledHistory(specs: [$a])", a=spec)["sampledHistory"]

    assert found == [[{"_step": 1, "b": -1}, {"_step": 3, "b": -3}, {"_step": 5, "b": -5}]]


def test_keys_of_the_history(server):
    """Every key with the types of its values, and the last step."""
    fill(server, [{"_step": 3, "a": 1, "s": "x"}, {"_step": 1, "a": None, "d": {"x": 1}}])

    found = read(server, "historyKeys lastHistoryStep")

    assert (found["lastHistoryStep"], found["historyKeys"]["lastStep"]) == (3, 3)
    counts = {
        key: {one["type"]: one["count"] for one in value["typeCounts"]}
        for key, value in found["historyKeys"]["keys"].items()
    }
    assert counts == {"_step": {"number": 2}, "a": {"number": 1, "nil": 1}, "s": {"string": 1}, "d": {"map": 1}}


def test_an_empty_run(server):
    """Nothing was sent: nothing comes back, and no question fails."""
    found = read(server, "historyKeys lastHistoryStep history events fileCount systemMetrics state historyLineCount")

    assert found["historyKeys"] == {"sets": [], "keys": {}, "lastStep": -1}
    assert (found["history"], found["events"], found["fileCount"], found["systemMetrics"]) == ([], [], 0, "{}")


@pytest.mark.parametrize(
    "fields",
    [
        "history(minStep: true)",
        'history(samples: "x")',
        "sampledHistory(specs: 3)",
        'sampledHistory(specs: ["{\\"keys\\": [], \\"minStep\\": \\"x\\"}"])',
    ],
)
def test_questions_that_make_no_sense(server, fields):
    """Arguments of the wrong type are an error with words, not a crash."""
    assert isinstance(read(server, fields), str)


def test_files_page_by_page(server):
    """`first` and `after` walk over all files by name, each with its size, MD5 (base64) and an address that needs no key."""
    for number in range(5):
        server.request("PUT", server.upload_url(f"f{number}"), key=None, content=b"x" * number)
    fields = "files(first: 2, after: $a) { edges { node { name sizeBytes md5 url } cursor } pageInfo { endCursor hasNextPage } }"
    found, cursor, more = [], None, True
    while more:
        page = read(server, fields, a=cursor)["files"]
        found += [edge["node"] for edge in page["edges"]]
        cursor, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]

    assert [(file["name"], file["sizeBytes"]) for file in found] == [(f"f{n}", n) for n in range(5)]
    assert found[0]["md5"] == "1B2M2Y8AsgTpgAmY7PhCfg=="
    assert server.get(found[3]["url"]).content == b"xxx"


def test_files_by_name(server):
    """Only those that are asked for; a file that was announced and never came is none."""
    for name in ("a", "b"):
        server.request("PUT", server.upload_url(name), key=None, content=b"")
    server.stream({"uploaded": ["never"]})

    found = read(server, 'files(names: ["b", "never"]) { totalCount edges { node { name } } }')["files"]

    assert found == {"totalCount": 1, "edges": [{"node": {"name": "b"}}]}


def test_a_cursor_of_elsewhere_is_refused(server):
    """A cursor that this server did not make is an error."""
    assert "cursor" in read(server, 'files(after: "x") { totalCount }')


def test_an_address_to_fetch_from_is_no_address_to_send_to(server):
    """Nothing can be stored at a download's address, and nothing fetched at an upload's."""
    up = server.upload_url("a")
    server.request("PUT", up, key=None, content=b"1")
    down = read(server, "files { edges { node { url } } }")["files"]["edges"][0]["node"]["url"]

    assert server.request("PUT", down, key=None, content=b"2").status_code == 400
    assert server.get(up).status_code == 404
    assert server.get(down).content == b"1"


def test_console_lines(server):
    """Plain and structured lines with their parts, from the start page by page or the last ones."""
    lines = [
        "2026-01-01T00:00:00.5 hi",
        "ERROR 2026-01-01T00:00:01 [x] bad",
        '{"ts":"t","content":"c","level":"error"}',
        "odd",
    ]
    fill(server, lines, "output.log")
    node = "edges { node { number timestamp level line } } pageInfo { endCursor hasNextPage }"

    first = read(server, f"logLines(first: 3) {{ {node} }}")["logLines"]
    rest = read(server, f"logLines(first: 3, after: $a) {{ {node} }}", a=first["pageInfo"]["endCursor"])["logLines"]
    last = read(server, f"logLines(last: 1) {{ {node} }}")["logLines"]

    told = [tuple(edge["node"].values()) for edge in first["edges"] + rest["edges"]]
    assert told == [
        (0, "2026-01-01T00:00:00.5", "info", "hi"),
        (1, "2026-01-01T00:00:01", "error", "[x] bad"),
        (2, "t", "error", "c"),
        (3, None, "info", "odd"),
    ]
    assert (first["pageInfo"]["hasNextPage"], rest["pageInfo"]["hasNextPage"]) == (True, False)
    assert last["edges"] == rest["edges"]


def test_runs_of_a_project(server):
    """The runs of one project in the order asked for, page by page."""
    for name in ("r2", "r3"):
        server.wall += 1
        server.upsert(name)
    server.upsert("elsewhere", modelName="other")
    query = """query($o: String) { project(name: "proj") { runCount runs(first: 2, order: $o) {
        totalCount edges { node { name } } } } }"""

    newest, oldest = (
        server.graphql(query, {"o": order})["data"]["project"] for order in ("-created_at", "+created_at")
    )

    assert [edge["node"]["name"] for edge in newest["runs"]["edges"]] == ["r3", "r2"]
    assert [edge["node"]["name"] for edge in oldest["runs"]["edges"]] == ["r1", "r2"]
    assert (newest["runCount"], newest["runs"]["totalCount"]) == (3, 3)


def test_an_object_is_not_read_whole(server):
    """A node without a selection of fields is an error, as in any GraphQL."""
    assert "select its fields" in read(server, "project")


def test_typenames(server):
    """`__typename` can be asked of every object."""
    assert read(server, "__typename project { __typename }") == {
        "__typename": "Run",
        "project": {"__typename": "Project"},
    }


@pytest.mark.parametrize("way", ["GraphQL", "read API"])
def test_a_deleted_run_is_gone(server, way):
    """With its rows, files and alerts; requests of a client that still sends to it are answered 404, its upload addresses too."""
    up = server.upload_url("a")
    server.request("PUT", up, key=None, content=b"1")
    fill(server, [{"_step": 0}])
    storage_id = server.upsert()["bucket"]["id"]
    if way == "GraphQL":
        query = "mutation($id: ID!) { deleteRun(input: {id: $id}) { clientMutationId } }"
        assert server.graphql(query, {"id": storage_id})["data"]["deleteRun"] == {"clientMutationId": None}
    else:
        assert server.request("DELETE", "/api/runs/local/proj/r1", key=None).status_code == 401
        assert server.request("DELETE", "/api/runs/local/proj/r1").status_code == 204

    assert server.store.runs() == []
    assert [path for path in (server.settings.data_dir / "blobs").rglob("*") if path.is_file()] == []
    assert server.stream({}).status_code == 404
    again = server.upsert()
    assert again["inserted"]
    assert server.request("PUT", up, key=None, content=b"2").status_code == 404
    assert (server.run()["history_lines"], server.run()["files"]) == (0, [])
    assert server.request("DELETE", "/api/runs/local/proj/never").status_code == 404


def test_the_id_of_a_deleted_run_can_stay_taken(tmp_path):
    """With `refuse_deleted` making it again is answered 409, as some servers do; other runs are made as ever."""
    with in_process(tmp_path / "data", refuse_deleted=True) as server:
        server.upsert()
        server.request("DELETE", "/api/runs/local/proj/r1")
        document = {"query": 'mutation { upsertBucket(input: {name: "r1", modelName: "proj"}) { inserted } }'}
        answer = server.request("POST", "/graphql", json=document)

        assert (answer.status_code, "was previously created and deleted" in answer.text) == (409, True)
        assert server.upsert("r2")["inserted"]
        assert [run.path.name for run in server.store.runs()] == ["r2"]
