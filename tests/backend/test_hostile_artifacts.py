"""Artifact and read requests whose parts have any shape: they are refused with words, never with a crash."""

from __future__ import annotations

import json

import pytest
from runferry.backend.keys import UploadSigner
from support.artifactclient import COMMIT, COMPLETE, CREATE, FILES, MANIFEST, USE, ArtifactClient, Sent, md5
from support.inprocess import in_process

ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "a" * 300,
    "ü\u0000",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    [{"alias": [1]}],
    [{"name": {}}],
]
UPDATE = "mutation($input: I!) { updateArtifact(input: $input) { artifact { id } } }"
UPDATE_MANIFEST = "mutation($input: I!) { updateArtifactManifest(input: $input) { artifactManifest { id } } }"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with in_process(tmp_path_factory.mktemp("server")) as server:
        server.upsert()
        yield server


@pytest.fixture(scope="module")
def ids(server):
    """A pending artifact and its manifest."""
    client = ArtifactClient(server)
    artifact = client.create(Sent({"a": b"1"}))["id"]
    return {"artifact": artifact, "manifest": client.manifest(artifact)["id"]}


def requests(ids):
    run = {"entityName": "local", "projectName": "proj", "runName": "r1"}
    file = {
        "artifactID": ids["artifact"],
        "artifactManifestID": ids["manifest"],
        "name": "a",
        "md5": "xMpCOKC5I4INzFCab3WEmw==",
    }
    file |= {"uploadPartsInput": None, "mimetype": None}
    create = {
        "artifactTypeName": "t",
        "artifactCollectionName": "c",
        "digest": "d",
        "clientID": "c9",
        "distributedID": "d",
    }
    create |= {
        "aliases": [],
        "tags": [],
        "metadata": "{}",
        "description": "d",
        "ttlDurationSeconds": 1,
        "historyStep": 1,
    }
    manifest = {
        "artifactID": ids["artifact"],
        "baseArtifactID": None,
        "name": "m",
        "digest": "",
        "manifestType": "FULL",
    }
    complete = {
        "completeMultipartAction": "Complete",
        "completedParts": [],
        "artifactID": "",
        "storagePath": "",
        "uploadID": "u",
    }
    return {
        "create": (CREATE, create | run | {"digestAlgorithm": "MANIFEST_MD5"}, True),
        "manifest": (MANIFEST, manifest | run | {"includeUpload": False}, False),
        "files": (FILES, {"artifactFiles": [file]}, True),
        "file": (FILES, file, True),
        "complete": (COMPLETE, complete, False),
        "commit": (COMMIT, {"artifactID": ids["artifact"]}, False),
        "use": (USE, {"artifactID": ids["artifact"]} | run, True),
        "update": (UPDATE, {"artifactID": ids["artifact"], "description": "d", "metadata": "{}"}, True),
        "updateManifest": (UPDATE_MANIFEST, {"artifactManifestID": ids["manifest"], "digest": ""}, True),
    }


@pytest.mark.parametrize(
    "kind", ["create", "manifest", "files", "file", "complete", "commit", "use", "update", "updateManifest"]
)
def test_any_value_anywhere(server, ids, kind):
    """Each field of each operation takes each odd value: the answer is data or an error with words."""
    query, fields, in_input = requests(ids)[kind]
    for name in fields:
        for value in ODD:
            given = fields | {name: value}
            variables = {"input": {"artifactFiles": [given]} if kind == "file" else given} if in_input else given
            answer = server.request("POST", "/graphql", content=json.dumps({"query": query, "variables": variables}))

            assert answer.status_code == 200, (name, value, answer.text)
            assert answer.json().get("data") or answer.json()["errors"][0]["message"], (name, value)


READS = [
    "run(name: $v) { id }",
    "runs(first: $v) { totalCount }",
    "runs(after: $v) { totalCount }",
    "runs(order: $v) { totalCount }",
    "runs(filters: $v) { totalCount }",
    "artifact(name: $v) { id }",
    "artifactType(name: $v) { id }",
    "artifactCollection(name: $v) { id }",
    'artifactCollection(name: "net") { artifactMembership(aliasName: $v) { id } }',
    'run(name: "r1") { files(names: $v) { totalCount } }',
    'run(name: "r1") { files(first: $v) { totalCount } }',
    'run(name: "r1") { history(minStep: $v) }',
    'run(name: "r1") { history(samples: $v) }',
    'run(name: "r1") { sampledHistory(specs: $v) }',
    'run(name: "r1") { sampledHistory(specs: [$v]) }',
    'run(name: "r1") { logLines(first: $v) { edges { cursor } } }',
    'run(name: "r1") { logLines(last: $v) { edges { cursor } } }',
    'run(name: "r1") { logLines(after: $v) { edges { cursor } } }',
    'run(name: "r1") { wandbConfig(keys: $v) }',
    'run(name: "r1") { outputArtifacts { edges { node { files(names: $v) { totalCount } } } } }',
    'run(name: "r1") { outputArtifacts { edges { node { filesByManifestEntries(entries: $v) { totalCount } } } } }',
]


@pytest.mark.parametrize("field", READS)
def test_any_argument_of_a_question(server, ids, field):
    """Each argument that readers give takes each odd value, likewise."""
    query = f'query($v: X) {{ project(name: "proj") {{ {field} }} }}'
    for value in [*ODD, '{"keys": ["a"], "samples": -1}', '{"keys": [1]}', "[]", "{"]:
        answer = server.request("POST", "/graphql", content=json.dumps({"query": query, "variables": {"v": value}}))

        assert answer.status_code == 200, (value, answer.text)
        assert "data" in answer.json(), value


@pytest.mark.parametrize("place", ["r9", "a9", "m9", "p9", "x1", "r", "rx", "b" + "0" * 64])
def test_addresses_that_lead_nowhere(server, place):
    """An address that was never signed, and a signed one of something that is not there: nothing is kept."""
    signed = UploadSigner(server.store.secret).sign(place, "name", server.wall)
    unsigned = f"/storage/{place}/bmFtZQ?expires=9999999999&signature=0"
    headers = {"Content-MD5": md5(b"1")}

    assert server.request("PUT", unsigned, key=None, content=b"1", headers=headers).status_code == 403
    assert server.request("PUT", signed, key=None, content=b"1", headers=headers).status_code in (400, 404)
    assert (server.get(unsigned).status_code, server.get(signed).status_code) == (403, 404)
