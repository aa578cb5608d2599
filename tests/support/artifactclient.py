"""Sends artifacts to a backend in this process, request by request, so that a test can leave one out or spoil one."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from support.inprocess import InProcess

CREATE = """mutation CreateArtifact($input: CreateArtifactInput!) { createArtifact(input: $input) { ...Created } }
fragment Created on CreateArtifactPayload { artifact { id state artifactSequence { latestArtifact { id } } } }"""
MANIFEST = """mutation CreateArtifactManifest($artifactID: ID!, $baseArtifactID: ID, $name: String!, $digest: String!,
    $entityName: String!, $projectName: String!, $runName: String!, $manifestType: ArtifactManifestType!,
    $includeUpload: Boolean!) { createArtifactManifest(input: {artifactID: $artifactID, baseArtifactID: $baseArtifactID,
    name: $name, digest: $digest, entityName: $entityName, projectName: $projectName, runName: $runName,
    type: $manifestType}) { artifactManifest { id file { id uploadUrl @include(if: $includeUpload)
    uploadHeaders @include(if: $includeUpload) } } } }"""
_FILES = """files { edges { node { storagePath uploadUrl uploadHeaders uploadMultipartUrls { uploadID uploadUrlParts {
    partNumber uploadUrl } } artifact { id } } } }"""
FILES = f"""mutation CreateArtifactFiles($input: CreateArtifactFilesInput!) {{
    createArtifactFiles(input: $input) {{ {_FILES} }} }}"""
FILES_IN_TWO = f"""mutation CreateArtifactFiles($artifactFiles: [CreateArtifactFileSpecInput!]!,
    $storageLayout: ArtifactStorageLayout!) {{ createArtifactFiles(input: {{artifactFiles: $artifactFiles,
    storageLayout: $storageLayout}}) {{ {_FILES} }} }}"""
COMMIT = """mutation CommitArtifact($artifactID: ID!) {
    commitArtifact(input: {artifactID: $artifactID}) { artifact { id digest } } }"""
USE = "mutation UseArtifact($input: UseArtifactInput!) { useArtifact(input: $input) { artifact { id } } }"
COMPLETE = """mutation CompleteMultipartUploadArtifact($completeMultipartAction: CompleteMultipartAction!,
    $completedParts: [UploadPartsInput!]!, $artifactID: ID!, $storagePath: String!, $uploadID: String!) {
    completeMultipartUploadArtifact(input: {completeMultipartAction: $completeMultipartAction,
    completedParts: $completedParts, artifactID: $artifactID, storagePath: $storagePath, uploadID: $uploadID}) { digest } }"""
OUTPUTS = """query($run: String!) { project(name: "proj", entityName: "local") { run(name: $run) {
    outputArtifacts(first: 100) { edges { node { id digest state versionIndex size fileCount description metadata
        aliases { alias } artifactType { name } artifactSequence { name } usedBy { edges { node { name } } }
        files(first: 1000) { edges { node { name sizeBytes digest directUrl } } } } } } } } }"""


def md5(data: bytes) -> str:
    """As `Content-MD5` has it."""
    return base64.b64encode(hashlib.md5(data).digest()).decode()


@dataclass
class Sent:
    """An artifact that a test sends; `refs` are path -> address."""

    files: dict[str, bytes] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    name: str = "net"
    type: str = "model"
    client_id: str = "c1"
    aliases: tuple[str, ...] = ("latest",)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, Any]:
        """The entries of its manifest."""
        files = {path: {"digest": md5(data), "size": len(data)} for path, data in self.files.items()}
        return files | {path: {"digest": ref, "ref": ref, "size": 0} for path, ref in self.refs.items()}

    @property
    def digest(self) -> str:
        """Its digest."""
        lines = "".join(f"{path}:{entry['digest']}\n" for path, entry in sorted(self.contents.items()))
        return hashlib.md5(b"wandb-artifact-manifest-v1\n" + lines.encode()).hexdigest()

    def manifest(self, **changes: Any) -> bytes:
        """Its manifest file."""
        document = {"version": 1, "storagePolicy": "wandb-storage-policy-v1", "contents": self.contents, **changes}
        return json.dumps(document).encode()


class ArtifactClient:
    """Runs the steps of sending an artifact as an output of run `r1`."""

    def __init__(self, server: InProcess, run: str = "r1") -> None:
        self.server = server
        self.run = run

    def ask(self, query: str, variables: dict[str, Any], name: str) -> Any:
        """The value of one top-level field; the message of the first error where there is one."""
        answer = self.server.graphql(query, variables)
        return answer["errors"][0]["message"] if answer.get("errors") else answer["data"][name]

    def create(self, sent: Sent, **changes: Any) -> Any:
        """CreateArtifact, as clients ask for it."""
        given = {
            "entityName": "",
            "projectName": "proj",
            "runName": self.run,
            "artifactTypeName": sent.type,
            "artifactCollectionName": sent.name,
            "digest": sent.digest,
            "digestAlgorithm": "MANIFEST_MD5",
            "aliases": [{"artifactCollectionName": sent.name, "alias": alias} for alias in sent.aliases],
            "clientID": sent.client_id,
            "sequenceClientID": "s1",
            "enableDigestDeduplication": True,
            "distributedID": None,
            **sent.extra,
            **changes,
        }
        answer = self.ask(CREATE, {"input": given}, "createArtifact")
        return answer if isinstance(answer, str) else answer["artifact"]

    def manifest(self, artifact: str, digest: str = "", **changes: Any) -> Any:
        """CreateArtifactManifest; with a digest it asks for an address."""
        given = {
            "artifactID": artifact,
            "baseArtifactID": None,
            "name": "wandb_manifest.json",
            "digest": digest,
            "entityName": "",
            "projectName": "proj",
            "runName": self.run,
            "manifestType": "FULL",
            "includeUpload": bool(digest),
            **changes,
        }
        answer = self.ask(MANIFEST, given, "createArtifactManifest")
        return answer if isinstance(answer, str) else answer["artifactManifest"]

    def announce(
        self, artifact: str, manifest: str, files: dict[str, bytes], *, parts: int = 0, old: bool = False
    ) -> Any:
        """CreateArtifactFiles; the nodes. `parts`: the size of a part where bodies go in parts."""
        specs = [
            {
                "artifactID": artifact,
                "artifactManifestID": manifest,
                "name": name,
                "md5": md5(data),
                "mimetype": None,
                "uploadPartsInput": _parts(data, parts) if parts else None,
            }
            for name, data in files.items()
        ]
        if old:
            answer = self.ask(FILES_IN_TWO, {"artifactFiles": specs, "storageLayout": "V2"}, "createArtifactFiles")
        else:
            answer = self.ask(FILES, {"input": {"artifactFiles": specs, "storageLayout": "V2"}}, "createArtifactFiles")
        return answer if isinstance(answer, str) else [edge["node"] for edge in answer["files"]["edges"]]

    def put(self, node: dict[str, Any], data: bytes, **headers: str) -> httpx.Response:
        """Sends a body to the address of a node with the headers that came with it."""
        given = dict(line.split(":", 1) for line in node["uploadHeaders"])
        return self.server.request("PUT", node["uploadUrl"], key=None, content=data, headers=given | headers)

    def upload(self, sent: Sent, artifact: str) -> None:
        """All files and the manifest."""
        manifest = self.manifest(artifact)["id"]
        for node, data in zip(self.announce(artifact, manifest, sent.files), sent.files.values(), strict=True):
            if node["uploadUrl"] is not None:
                assert self.put(node, data).status_code == 200
        self.upload_manifest(artifact, sent.manifest())

    def upload_manifest(self, artifact: str, data: bytes) -> None:
        """The manifest alone."""
        file = self.manifest(artifact, md5(data))["file"]
        assert self.put(file, data).status_code == 200

    def commit(self, artifact: str) -> Any:
        """CommitArtifact."""
        answer = self.ask(COMMIT, {"artifactID": artifact}, "commitArtifact")
        return answer if isinstance(answer, str) else answer["artifact"]

    def send(self, sent: Sent) -> str:
        """The whole of it; the id."""
        artifact = self.create(sent)
        if artifact["state"] == "PENDING":
            self.upload(sent, artifact["id"])
            assert self.commit(artifact["id"])["digest"] == sent.digest
        return artifact["id"]

    def outputs(self) -> list[dict[str, Any]]:
        """The output artifacts of the run, as a client reads them."""
        run = self.ask(OUTPUTS, {"run": self.run}, "project")["run"]
        return [edge["node"] for edge in run["outputArtifacts"]["edges"]]


def _parts(data: bytes, size: int) -> list[dict[str, Any]]:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [
        {"partNumber": number, "hexMD5": hashlib.md5(piece).hexdigest()} for number, piece in enumerate(pieces, start=1)
    ]
