"""The artifact half of the backend in `support.fakebackend`: versions, the places of their bytes, and what commits."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

STORAGE = "http://storage.test"


@dataclass
class FakeArtifact:
    """One version."""

    id: str
    input: dict[str, Any]
    state: str = "PENDING"
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Id -> name, type, digest, base, content (None until it was put)."""
    clients: set[str] = field(default_factory=set)
    """What clients call it."""

    @property
    def contents(self) -> dict[str, Any]:
        """Entries of all its manifests."""
        merged: dict[str, Any] = {}
        for manifest in self.manifests.values():
            merged |= manifest["content"]["contents"]
        return merged


class FakeArtifacts:
    """Mixed into the backend, which dispatches operations and puts."""

    def __init__(self) -> None:
        self.artifacts: dict[str, FakeArtifact] = {}
        self.blobs: dict[str, bytes] = {}
        """Base64 MD5 -> bytes."""
        self.alerts: list[dict[str, Any]] = []
        self.uploads: dict[str, dict[int, bytes]] = {}
        """Upload id -> parts."""
        self.blocks: dict[str, dict[str, bytes]] = {}
        """MD5 -> blocks, as Azure's storage takes them."""
        self.upload_headers: list[str] = []
        self.used: list[tuple[str, str]] = []

    def committed(self, name: str) -> list[FakeArtifact]:
        """The versions of an artifact in their order."""
        return [
            artifact
            for artifact in self.artifacts.values()
            if artifact.state == "COMMITTED" and artifact.input["artifactCollectionName"] == name
        ]

    def committed_in(self, project: str, name: str) -> list[FakeArtifact]:
        """The same, of one project."""
        return [artifact for artifact in self.committed(name) if artifact.input["projectName"] == project]

    def put_artifact(self, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """A PUT to one of the places below; the headers of the answer."""
        parts = urlsplit(url)
        _, kind, key, *rest = parts.path.split("/")
        query = parse_qs(parts.query)
        if kind == "m":
            manifest = self._manifest_of(unquote(key))
            assert _md5(body) == manifest["digest"]
            manifest["content"] = json.loads(body)
        elif kind == "p":
            assert {name.lower(): value for name, value in headers.items()}["content-md5"] == _md5(body)
            self.uploads[key][int(rest[0])] = body
            return {"etag": f'"{hashlib.md5(body).hexdigest()}"'}
        elif query.get("comp") == ["block"]:
            self.blocks.setdefault(unquote(key), {})[query["blockid"][0]] = body
        elif query.get("comp") == ["blocklist"]:
            blocks = self.blocks.pop(unquote(key))
            names = body.decode().replace("</Latest>", "<Latest>").split("<Latest>")[1::2]
            self.blobs[unquote(key)] = b"".join(blocks[name] for name in names)
            assert _md5(self.blobs[unquote(key)]) == unquote(key)
        else:
            assert _md5(body) == unquote(key), "other bytes than were announced"
            self.blobs[unquote(key)] = body
        return {}

    def _on_notifyscriptablerunalert(self, variables: dict[str, Any]) -> Any:
        self.alerts.append(variables)
        return {"notifyScriptableRunAlert": {"success": True}}

    def _on_createartifact(self, variables: dict[str, Any]) -> Any:
        given = variables["input"]
        known = None
        for artifact in self.artifacts.values():
            same = artifact.state == "COMMITTED" and all(
                artifact.input[key] == given[key] for key in ("digest", "artifactCollectionName")
            )
            shared = given["distributedID"] and artifact.input["distributedID"] == given["distributedID"]
            is_here = all(artifact.input[key] == given[key] for key in ("entityName", "projectName"))
            is_it = given["clientID"] in artifact.clients
            if is_it and not is_here:
                return None
            if is_it or (is_here and (same or (shared and artifact.state == "PENDING"))):
                known = known or artifact
        versions = [
            artifact
            for artifact in self.committed_in(given["projectName"], given["artifactCollectionName"])
            if artifact.input["entityName"] == given["entityName"]
        ]
        if known is None:
            number = base64.b64encode(f"Artifact:{len(self.artifacts)}".encode()).decode()
            known = self.artifacts[number] = FakeArtifact(number, given)
        known.clients.add(given["clientID"])
        latest = {"latestArtifact": {"id": versions[-1].id} if versions else None}
        return {"createArtifact": {"artifact": {"id": known.id, "state": known.state, "artifactSequence": latest}}}

    def _on_createartifactmanifest(self, variables: dict[str, Any]) -> Any:
        artifact = self.artifacts[variables["artifactID"]]
        if artifact.state == "COMMITTED":
            return None
        name, kind = variables["name"], variables["manifestType"]
        key = next(
            (
                key
                for key, manifest in artifact.manifests.items()
                if manifest["name"] == name and (kind != "PATCH" or manifest["content"] is None)
            ),
            f"{artifact.id}/{len(artifact.manifests)}",
        )
        artifact.manifests.setdefault(key, {"name": name, "type": kind, "content": None})
        artifact.manifests[key] |= {"digest": variables["digest"], "base": variables["baseArtifactID"]}
        return {"createArtifactManifest": self._manifest(key, upload=variables["includeUpload"])}

    def _on_updateartifactmanifest(self, variables: dict[str, Any]) -> Any:
        key = variables["artifactManifestID"]
        self._manifest_of(key)["digest"] = variables["digest"]
        return {"updateArtifactManifest": self._manifest(key, upload=True)}

    def _manifest_of(self, key: str) -> dict[str, Any]:
        return self.artifacts[key.partition("/")[0]].manifests[key]

    def _manifest(self, key: str, *, upload: bool) -> Any:
        place = {"uploadUrl": f"{STORAGE}/m/{quote(key, safe='')}", "uploadHeaders": ["Content-Type: application/json"]}
        return {"artifactManifest": {"id": key, "file": {"id": "f"} | (place if upload else {})}}

    def _on_createartifactfiles(self, variables: dict[str, Any]) -> Any:
        given = variables["input"]
        assert given["storageLayout"] in ("V1", "V2")
        edges = []
        for file in given["artifactFiles"]:
            md5, node = file["md5"], {"artifact": {"id": file["artifactID"]}, "uploadUrl": None, "uploadHeaders": []}
            if md5 not in self.blobs:
                node["uploadHeaders"] = [f"Content-MD5: {md5}", *self.upload_headers]
                node["uploadUrl"] = f"{STORAGE}/c/{quote(md5, safe='')}"
                if file["uploadPartsInput"]:
                    upload = f"u{len(self.uploads)}"
                    self.uploads[upload] = {}
                    numbers = [part["partNumber"] for part in file["uploadPartsInput"]]
                    urls = [{"partNumber": n, "uploadUrl": f"{STORAGE}/p/{upload}/{n}"} for n in numbers]
                    node["uploadMultipartUrls"] = {"uploadID": upload, "uploadUrlParts": urls}
                    node["storagePath"] = md5
            edges.append({"node": node})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _on_completemultipartuploadartifact(self, variables: dict[str, Any]) -> Any:
        parts = self.uploads[variables["uploadID"]]
        etags = [part["hexMD5"].strip('"') for part in variables["completedParts"]]
        assert etags == [hashlib.md5(parts[number]).hexdigest() for number in sorted(parts)]
        whole = b"".join(parts[number] for number in sorted(parts))
        assert _md5(whole) == variables["storagePath"]
        self.blobs[_md5(whole)] = whole
        return {"completeMultipartUploadArtifact": {"digest": _md5(whole)}}

    def _on_clientidmapping(self, variables: dict[str, Any]) -> Any:
        for artifact in self.artifacts.values():
            if variables["clientID"] in artifact.clients:
                return {"clientIDMapping": {"serverID": artifact.id}}
        return {"clientIDMapping": None}

    def _on_commitartifact(self, variables: dict[str, Any]) -> Any:
        artifact = self.artifacts[variables["artifactID"]]
        for entry in artifact.contents.values():
            assert "ref" in entry or entry["digest"] in self.blobs, "committed before its bytes were there"
        artifact.state = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.input["digest"]}}}

    def _on_useartifact(self, variables: dict[str, Any]) -> Any:
        given = variables["input"]
        self.used.append((given["runName"], given["artifactID"]))
        return {"useArtifact": {"artifact": {"id": given["artifactID"]}}}


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()
