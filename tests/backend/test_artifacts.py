"""Artifacts from the first word to the commit, over the ASGI application."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from support.artifactclient import COMPLETE, USE, ArtifactClient, Sent, md5
from support.inprocess import in_process

NET = Sent({"w.bin": b"weights", "dir/ü.txt": b"", "twice": b"weights"}, {"far": "s3://bucket/key"})


@pytest.fixture
def server(tmp_path):
    with in_process(tmp_path / "data") as server:
        server.upsert()
        yield server


@pytest.fixture
def client(server):
    return ArtifactClient(server)


def names(artifact):
    return [alias["alias"] for alias in artifact["aliases"]]


def test_an_artifact_arrives_whole(server, client):
    """Type, collection, version, aliases, sizes and every entry with its bytes are what was sent."""
    client.send(NET)

    (found,) = client.outputs()

    assert (found["state"], found["digest"], found["versionIndex"]) == ("COMMITTED", NET.digest, 0)
    assert (found["artifactType"]["name"], found["artifactSequence"]["name"]) == ("model", "net")
    assert (found["size"], found["fileCount"], names(found)) == (14, 4, ["latest"])
    files = {edge["node"]["name"]: edge["node"] for edge in found["files"]["edges"]}
    assert {name: (file["sizeBytes"], file["digest"]) for name, file in files.items()} == {
        name: (entry["size"], entry["digest"]) for name, entry in NET.contents.items()
    }
    assert {name: server.get(files[name]["directUrl"]).content for name in NET.files} == NET.files
    assert files["far"]["directUrl"] is None


def test_equal_bytes_are_asked_for_once(client):
    """A file whose bytes the project has already gets no address, and the artifact that brought them is named."""
    first = client.send(NET)
    artifact = client.create(Sent({"other": b"weights", "new": b"new"}, name="second", client_id="c2"))["id"]

    known, new = client.announce(artifact, client.manifest(artifact)["id"], {"other": b"weights", "new": b"new"})

    assert (known["uploadUrl"], known["artifact"]["id"]) == (None, first)
    assert (bool(new["uploadUrl"]), new["artifact"]["id"]) == (True, artifact)
    assert known["storagePath"] == f"wandb_artifacts/{md5(b'weights')}"


def test_both_shapes_of_announcing_files(client):
    """One `$input` or two variables: the same answer, in the order asked."""
    artifact = client.create(NET)["id"]
    manifest = client.manifest(artifact)["id"]

    one = client.announce(artifact, manifest, NET.files)
    two = client.announce(artifact, manifest, NET.files, old=True)

    assert one == two
    assert [node["storagePath"] for node in one] == [f"wandb_artifacts/{md5(data)}" for data in NET.files.values()]


def test_the_same_content_is_one_version(client):
    """Another client's artifact of the same digest is the committed one; its aliases move there."""
    first = client.send(NET)
    other = Sent({"w": b"2"}, client_id="c2")
    second = client.send(other)

    again = client.create(Sent(NET.files, NET.refs, client_id="c3", aliases=("best", "latest")))

    assert again == {"id": first, "state": "COMMITTED", "artifactSequence": {"latestArtifact": {"id": second}}}
    assert [(a["id"], a["versionIndex"], names(a)) for a in client.outputs()] == [
        (first, 0, ["best", "latest"]),
        (second, 1, []),
    ]


def test_deduplication_is_asked_for(client):
    """Without it the same content becomes the next version."""
    first = client.send(NET)

    again = client.create(Sent(NET.files, NET.refs, client_id="c2"), enableDigestDeduplication=False)

    assert (again["state"], again["id"] != first) == ("PENDING", True)


def test_a_client_id_makes_one_artifact(client):
    """Sent again after any request, it is the same artifact: pending it goes on, committed it is done, and no alias moves."""
    pending = client.create(NET)
    assert client.create(NET) == pending
    client.upload(NET, pending["id"])
    client.commit(pending["id"])
    newer = client.send(Sent({"w": b"2"}, client_id="c2"))

    again = client.create(NET)

    assert (again["id"], again["state"]) == (pending["id"], "COMMITTED")
    assert [(a["id"], names(a)) for a in client.outputs()] == [(pending["id"], []), (newer, ["latest"])]


def test_a_client_id_of_something_else_is_refused(client):
    """A client id that comes with another content is a client's mistake and no new artifact."""
    client.send(NET)

    answer = client.create(Sent({"w": b"other"}, client_id="c1"))

    assert "belongs to another artifact" in answer
    assert len(client.outputs()) == 1


@pytest.mark.parametrize("distributed", [{}, {"distributedID": "d1"}], ids=["whole", "part"])
def test_a_client_id_of_another_collection_is_refused(client, distributed):
    """The same content under another name is another artifact; a client id that has parts has them in one collection."""
    assert "id" in client.create(Sent({"w": b"w"}, client_id="c1"), **distributed)

    answer = client.create(Sent({"w": b"w"}, client_id="c1", name="elsewhere"), **distributed)

    assert "belongs to another artifact" in answer


def test_client_ids_can_be_looked_up(client):
    """A reference to an artifact that only its client could name is resolved; an unknown one is null."""
    query = "query ClientIDMapping($clientID: ID!) { clientIDMapping(clientID: $clientID) { serverID } }"
    artifact = client.create(NET)["id"]

    assert client.ask(query, {"clientID": "c1"}, "clientIDMapping") == {"serverID": artifact}
    assert client.ask(query, {"clientID": "c9"}, "clientIDMapping") is None
    assert base64.b64decode(artifact).startswith(b"Artifact:")


def test_a_commit_without_a_file_says_which(client):
    """An artifact whose file never came stays pending, and the error names the file; sent then, it commits."""
    artifact = client.create(NET)["id"]
    nodes = client.announce(artifact, client.manifest(artifact)["id"], NET.files)
    client.put(nodes[0], b"weights")
    client.upload_manifest(artifact, NET.manifest())

    refused = client.commit(artifact)
    client.put(nodes[1], b"")

    assert "cannot be committed" in refused
    assert refused.endswith(": dir/ü.txt")
    assert client.commit(artifact)["id"] == artifact


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"contents": {}}, "its digest is"),
        ({"version": 2}, "version 1"),
        ({"contents": {"../up": {"digest": "x"}}}, "no path inside"),
        ({"contents": {"a": {"digest": 1}}}, "no digest"),
        ({"contents": {"a": {"digest": "x", "ref": "wandb-client-artifact://abc/f"}}}, "only its client knows"),
        ({"contents": {"a": {"digest": "x", "size": -1}}}, "size"),
        ({"contents": {path: entry | {"size": 99} for path, entry in NET.contents.items()}}, "w.bin"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(client, change, reason):
    """A manifest with another digest, or that makes no sense, or other sizes commits nothing."""
    artifact = client.create(NET)["id"]
    client.upload(NET, artifact)
    client.upload_manifest(artifact, NET.manifest(**change))

    assert reason in client.commit(artifact)
    assert [found["state"] for found in client.outputs()] == ["PENDING"]


def test_a_commit_without_a_manifest_is_refused(client):
    """No manifest, or one that was announced and never came."""
    artifact = client.create(NET)["id"]

    for _ in range(2):
        assert "manifest was not uploaded" in client.commit(artifact)
        client.manifest(artifact, md5(b"never"))


def test_a_commit_can_be_asked_for_again(client):
    """The answer got lost: the second request finds the artifact committed and makes no further version."""
    artifact = client.send(NET)

    assert client.commit(artifact)["id"] == artifact
    assert [found["versionIndex"] for found in client.outputs()] == [0]


def test_bytes_are_checked_when_they_come(server, client):
    """Another body than announced, a wrong Content-MD5 or none is refused with 400 and leaves nothing behind."""
    artifact = client.create(NET)["id"]
    node = client.announce(artifact, client.manifest(artifact)["id"], {"w.bin": b"weights"})[0]
    other = {**node, "uploadHeaders": [f"Content-MD5:{md5(b'spoiled')}"]}

    wrong_body = client.put(other, b"spoiled")
    wrong_header = client.put(other, b"weights")
    no_header = server.request("PUT", node["uploadUrl"], key=None, content=b"weights")

    assert [answer.status_code for answer in (wrong_body, wrong_header, no_header)] == [400, 400, 400]
    assert list((server.settings.data_dir / "incoming").iterdir()) == []
    assert client.put(node, b"weights").status_code == 200


def test_a_manifest_is_checked_when_it_comes(client):
    """A manifest whose bytes are not those of its digest is refused."""
    artifact = client.create(NET)["id"]
    file = client.manifest(artifact, md5(NET.manifest()))["file"]

    answer = client.put({**file, "uploadHeaders": []}, b"{}")

    assert answer.status_code == 400


def test_a_committed_artifact_stays_as_it_is(client):
    """Neither files nor manifests can be added or replaced, not even at an address from before the commit."""
    artifact = client.create(NET)["id"]
    open_address = {**client.manifest(artifact, includeUpload=True)["file"], "uploadHeaders": []}
    client.upload(NET, artifact)
    client.commit(artifact)

    assert "committed" in client.manifest(artifact)
    assert "committed" in client.announce(artifact, "x", {"a": b"b"})
    assert client.put(open_address, NET.manifest(contents={})).status_code == 400
    assert client.put(open_address, NET.manifest()).status_code == 200


def test_a_body_in_parts(server, client):
    """Parts go up in any order, each checked; joined they are the file, and joining twice is joining once."""
    data = bytes(range(256)) * 10
    sent = Sent({"big": data})
    artifact = client.create(sent)["id"]
    node = client.announce(artifact, client.manifest(artifact)["id"], sent.files, parts=1000)[0]
    multipart = node["uploadMultipartUrls"]
    urls = {part["partNumber"]: part["uploadUrl"] for part in multipart["uploadUrlParts"]}
    pieces = {number: data[(number - 1) * 1000 : number * 1000] for number in (1, 2, 3)}
    given = {
        "completeMultipartAction": "Complete",
        "completedParts": [{"partNumber": n, "hexMD5": hashlib.md5(p).hexdigest()} for n, p in pieces.items()],
        "artifactID": artifact,
        "storagePath": node["storagePath"],
        "uploadID": multipart["uploadID"],
    }

    def put(number, body):
        return server.request("PUT", urls[number], key=None, content=body, headers={"Content-MD5": md5(body)})

    spoiled = put(2, b"x" * 1000)
    put(3, pieces[3])
    put(1, pieces[1])
    early = client.ask(COMPLETE, given, "completeMultipartUploadArtifact")
    tag = put(2, pieces[2]).headers["etag"]
    done = [client.ask(COMPLETE, given, "completeMultipartUploadArtifact") for _ in range(2)]
    client.upload_manifest(artifact, sent.manifest())
    client.commit(artifact)

    assert (spoiled.status_code, tag) == (400, f'"{hashlib.md5(pieces[2]).hexdigest()}"')
    assert "parts 2 of 'big' were not uploaded" in early
    assert done == [{"digest": md5(data)}] * 2
    file = client.outputs()[0]["files"]["edges"][0]["node"]
    assert server.get(file["directUrl"]).content == data
    assert len([path for path in (server.settings.data_dir / "blobs").rglob("*") if path.is_file()]) == 2


def test_an_artifact_that_is_used(server, client):
    """Using names the run as a user and the artifact as its input, however often it is said."""
    artifact = client.send(NET)
    server.upsert("reader")
    given = {"artifactID": artifact, "entityName": "", "projectName": "proj", "runName": "reader"}

    answers = [client.ask(USE, {"input": given}, "useArtifact") for _ in range(2)]

    assert answers == [{"artifact": {"id": artifact}}] * 2
    assert [edge["node"]["name"] for edge in client.outputs()[0]["usedBy"]["edges"]] == ["reader"]
    inputs = server.graphql(
        'query { project(name: "proj") { run(name: "reader") { inputArtifacts { edges { node { id } } } } } }'
    )
    assert inputs["data"]["project"]["run"]["inputArtifacts"]["edges"] == [{"node": {"id": artifact}}]


def test_an_incremental_artifact_builds_on_its_base(client):
    """What the base held is there too, except what the new manifest replaces."""
    base = client.send(NET)
    change = Sent({"w.bin": b"better"}, client_id="c2")
    artifact = client.create(change)["id"]
    manifest = client.manifest(artifact, name="wandb_manifest.incremental.json", manifestType="INCREMENTAL")["id"]
    client.put(client.announce(artifact, manifest, change.files)[0], b"better")
    data = change.manifest()
    file = client.manifest(
        artifact, md5(data), name="wandb_manifest.incremental.json", manifestType="INCREMENTAL", baseArtifactID=base
    )["file"]
    client.put(file, data)
    client.commit(artifact)

    files = {edge["node"]["name"]: edge["node"]["digest"] for edge in client.outputs()[1]["files"]["edges"]}

    assert files == {**{path: entry["digest"] for path, entry in NET.contents.items()}, "w.bin": md5(b"better")}


def test_a_distributed_artifact_is_one(server, client):
    """Writers that share a distributed id send one manifest each, and the artifact holds what all of them brought."""
    server.upsert("r2")
    writers = [
        (ArtifactClient(server, "r1"), Sent({"a": b"1"}, client_id="c1")),
        (ArtifactClient(server, "r2"), Sent({"b": b"2"}, client_id="c2")),
    ]
    ids = []
    for writer, part in writers:
        artifact = writer.create(part, distributedID="d1")["id"]
        ids.append(artifact)
        patch = {"name": "wandb_manifest.patch.json", "manifestType": "PATCH"}
        manifest = writer.manifest(artifact, **patch)["id"]
        writer.put(writer.announce(artifact, manifest, part.files)[0], next(iter(part.files.values())))
        query = """mutation($id: ID!, $d: String) { updateArtifactManifest(input: {artifactManifestID: $id, digest: $d}) {
            artifactManifest { file { uploadUrl uploadHeaders } } } }"""
        answer = writer.ask(query, {"id": manifest, "d": md5(part.manifest())}, "updateArtifactManifest")
        assert writer.put(answer["artifactManifest"]["file"], part.manifest()).status_code == 200
    client.commit(ids[0])

    (found,) = client.outputs()

    assert ids[0] == ids[1]
    assert [edge["node"]["name"] for edge in found["files"]["edges"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"artifactTypeName": "dataset"}, "has type 'model' here"),
        ({"artifactCollectionName": "a/b", "aliases": []}, "artifactCollectionName"),
        ({"digestAlgorithm": "MANIFEST_XXH128"}, "digest algorithm"),
        ({"runName": "never"}, "not on this server"),
        ({"metadata": "{"}, "metadata is not JSON"),
        ({"aliases": [{"artifactCollectionName": "else", "alias": "x"}]}, "another collection"),
        ({"digest": None}, "digest"),
    ],
)
def test_an_artifact_that_makes_no_sense_is_refused(client, change, reason):
    """Each refusal says why, and nothing is made."""
    client.send(NET)

    assert reason in client.create(Sent({"n": b"n"}, client_id="c2"), **change)
    assert len(client.outputs()) == 1


def test_a_file_that_makes_no_sense_is_refused(client):
    """A name that could leave the artifact's folder and a digest that is none."""
    artifact = client.create(NET)["id"]

    assert "no path" in client.announce(artifact, "m", {"../x": b""})
    spec = {"artifactID": artifact, "artifactManifestID": "m", "name": "x", "md5": "zz"}
    query = "mutation($input: I!) { createArtifactFiles(input: $input) { files { edges { node { uploadUrl } } } } }"
    assert "MD5" in client.ask(query, {"input": {"artifactFiles": [spec]}}, "createArtifactFiles")


def test_artifacts_survive_a_restart(tmp_path):
    """What was acknowledged is there after the server comes back, pending uploads too."""
    with in_process(tmp_path / "data") as server:
        server.upsert()
        client = ArtifactClient(server)
        client.send(NET)
        pending = Sent({"w": b"2"}, client_id="c2")
        artifact = client.create(pending)["id"]
        node = client.announce(artifact, client.manifest(artifact)["id"], pending.files)[0]
    with in_process(tmp_path / "data") as server:
        client = ArtifactClient(server)
        assert client.put(node, b"2").status_code == 200
        client.upload_manifest(artifact, pending.manifest())
        assert client.commit(artifact)["id"] == artifact

        assert [(found["versionIndex"], names(found)) for found in client.outputs()] == [(0, []), (1, ["latest"])]


def test_what_is_said_of_an_artifact_can_change(client):
    """Description and metadata are kept as they came and can be replaced, also after the commit."""
    sent = Sent({"w": b"1"}, extra={"description": "d", "metadata": '{"b":1,"a":NaN}'})
    artifact = client.send(sent)
    before = client.outputs()[0]
    query = """mutation UpdateArtifact($artifactID: ID!, $metadata: JSONString) {
        updateArtifact(input: {artifactID: $artifactID, metadata: $metadata}) { artifact { id } } }"""
    client.ask(query, {"artifactID": artifact, "metadata": '{"c":2}'}, "updateArtifact")

    assert (before["description"], before["metadata"]) == ("d", '{"b":1,"a":NaN}')
    assert client.outputs()[0]["metadata"] == '{"c":2}'


def test_the_manifest_comes_back(server, client):
    """A reader gets the address of the manifest that was sent."""
    artifact = client.send(NET)
    query = "query($id: ID!) { artifact(id: $id) { currentManifest { file { directUrl } } } }"

    url = client.ask(query, {"id": artifact}, "artifact")["currentManifest"]["file"]["directUrl"]

    assert json.loads(server.get(url).content)["contents"] == NET.contents
    assert server.get(url.replace("signature=", "signature=0")).status_code == 403
