"""The protocol's operations on artifacts, for one run: what is asked, and what of the answers is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import graphql
from .answers import dig
from .api import Api, RemoteRun, headers_of, is_place
from .errors import AuthError, Permanent, TooLarge
from .report import counted

COMMITTED = "COMMITTED"
_UNFINISHED = frozenset({"PENDING", "DELETED"})  # servers of old say the latter of one that was never finished
_WITH_PLACE = "USE_ARTIFACT_WITH_ENTITY_AND_PROJECT_INFORMATION"


@dataclass(frozen=True)
class Created:
    """What the server says of an artifact that it was told of."""

    id: str
    committed: bool
    """It has this content already."""
    latest: str = ""
    """The version before it; empty where there is none."""
    client_id: str = ""
    """What the server was told that it is called."""


@dataclass(frozen=True)
class ManifestPlace:
    """A manifest at the server, and where its bytes go (None: nowhere)."""

    id: str
    url: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Wanted:
    """A content to ask a place for. `parts` are the MD5s (hex) of its parts, for one that goes up in parts."""

    path: str
    digest: str
    mimetype: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ContentPlace:
    """Where the bytes of a content go. Neither a URL nor parts: the server has them."""

    birth: str
    """The artifact that has them first."""
    url: str | None
    headers: Mapping[str, str]
    storage_path: str = ""
    upload_id: str = ""
    parts: Mapping[int, str] | None = None
    """Number from 1 -> URL."""


class ArtifactApi:
    """The operations. All raise `SyncError`s as `Api` does, and `Permanent` for an answer that does not say what was asked."""

    def __init__(self, api: Api, run: RemoteRun) -> None:
        self.api = api
        self.run = run

    def create(self, fields: Mapping[str, Any], otherwise: Mapping[str, Any] | None = None) -> Created:
        """Tell of an artifact; `fields` are those that its record gives.

        Where the server refuses them for good, it is asked once more with those of `otherwise` in their place.
        """
        given = {"entityName": self.run.entity, "projectName": self.run.project, **fields}
        try:
            data = self._ask("CreateArtifact", graphql.CREATE_ARTIFACT, {"input": given})
        except Permanent as error:
            if otherwise is None or isinstance(error, (AuthError, TooLarge)):
                raise
            given |= otherwise
            data = self._ask("CreateArtifact", graphql.CREATE_ARTIFACT, {"input": given})
        artifact = dig(data, "createArtifact", "artifact")
        latest = dig(artifact, "artifactSequence", "latestArtifact", "id")
        state = dig(artifact, "state")
        if state != COMMITTED and state not in _UNFINISHED:
            raise Permanent(f"CreateArtifact: the artifact's state is {state!r}", status=200)
        return Created(
            _id(artifact, "CreateArtifact"),
            state == COMMITTED,
            latest if isinstance(latest, str) else "",
            str(given.get("clientID") or ""),
        )

    def create_manifest(self, artifact: str, base: str, name: str, kind: str, digest: str = "") -> ManifestPlace:
        """Tell of a manifest file; with its `digest` (base64 MD5), also where it goes."""
        variables = {
            "artifactID": artifact,
            "baseArtifactID": base or None,
            "name": name,
            "digest": digest,
            "entityName": self.run.entity,
            "projectName": self.run.project,
            "runName": self.run.run_id,
            "manifestType": kind,
            "includeUpload": bool(digest),
        }
        data = self._ask("CreateArtifactManifest", graphql.CREATE_ARTIFACT_MANIFEST, variables)
        return self._manifest(data, "createArtifactManifest", has_place=bool(digest))

    def update_manifest(self, manifest: str, base: str, digest: str) -> ManifestPlace:
        """Tell the digest (base64 MD5) of a manifest that adds to others, and ask where it goes."""
        variables = {
            "artifactManifestID": manifest,
            "digest": digest,
            "baseArtifactID": base or None,
            "includeUpload": True,
        }
        data = self._ask("UpdateArtifactManifest", graphql.UPDATE_ARTIFACT_MANIFEST, variables)
        return self._manifest(data, "updateArtifactManifest", has_place=True)

    def places(self, artifact: str, manifest: str, layout: str, wanted: Sequence[Wanted]) -> list[ContentPlace]:
        """Where these contents go, one place for each, in their order."""
        files = [
            {
                "artifactID": artifact,
                "artifactManifestID": manifest,
                "name": item.path,
                "md5": item.digest,
                "mimetype": item.mimetype or None,
                "uploadPartsInput": [{"partNumber": n, "hexMD5": md5} for n, md5 in enumerate(item.parts, 1)] or None,
            }
            for item in wanted
        ]
        asked = {"input": {"artifactFiles": files, "storageLayout": layout}}
        data = self._ask("CreateArtifactFiles", graphql.CREATE_ARTIFACT_FILES, asked)
        edges = dig(data, "createArtifactFiles", "files", "edges")
        nodes = [dig(edge, "node") for edge in (edges if isinstance(edges, list) else [])]
        if len(nodes) != len(files):
            raise Permanent(
                f"CreateArtifactFiles: {counted(len(nodes), 'place')} for {counted(len(files), 'file')}", status=200
            )
        return [self._place(node, artifact) for node in nodes]

    def complete(self, place: ContentPlace, etags: Sequence[str]) -> None:
        """All parts of a content are there; `etags` are what the storage called them, in their order."""
        variables = {
            "completeMultipartAction": "Complete",
            "completedParts": [{"partNumber": number, "hexMD5": etag} for number, etag in enumerate(etags, 1)],
            "artifactID": place.birth,
            "storagePath": place.storage_path,
            "uploadID": place.upload_id,
        }
        operation = "CompleteMultipartUploadArtifact"
        data = self._ask(operation, graphql.COMPLETE_MULTIPART_UPLOAD, variables)
        if not isinstance(dig(data, "completeMultipartUploadArtifact"), dict):
            raise Permanent(f"{operation}: the answer does not say that it is whole", status=200)

    def server_id(self, client_id: str) -> str | None:
        """The server's id of the artifact that a client calls `client_id`; None where it knows none."""
        data = self._ask("ClientIDMapping", graphql.CLIENT_ID_MAPPING, {"clientID": client_id})
        found = dig(data, "clientIDMapping", "serverID")
        return found if isinstance(found, str) and found else None

    def commit(self, artifact: str) -> None:
        """The artifact is whole."""
        data = self._ask("CommitArtifact", graphql.COMMIT_ARTIFACT, {"artifactID": artifact})
        _id(dig(data, "commitArtifact", "artifact"), "CommitArtifact")

    def use(self, artifact: str, *, own: bool, features: frozenset[str]) -> None:
        """The run took the artifact as an input; `own`: it lies in the run's own project."""
        run = self.run
        given = {
            "artifactID": artifact,
            "entityName": run.entity,
            "projectName": run.project,
            "runName": run.run_id,
        }
        if own and _WITH_PLACE in features:
            given |= {"artifactEntityName": run.entity, "artifactProjectName": run.project}
        data = self._ask("UseArtifact", graphql.USE_ARTIFACT, {"input": given})
        _id(dig(data, "useArtifact", "artifact"), "UseArtifact")

    def _ask(self, operation: str, document: str, variables: object) -> Any:
        return self.api.execute(operation, document, variables, self.run.project)

    def _manifest(self, data: Any, operation: str, *, has_place: bool) -> ManifestPlace:
        manifest = dig(data, operation, "artifactManifest")
        file = dig(manifest, "file")
        if has_place and not is_place(file):
            raise Permanent(f"{operation}: the answer does not say where the list goes", status=200)
        return ManifestPlace(_id(manifest, operation), self._url(file), headers_of(dig(file, "uploadHeaders")))

    def _place(self, node: Any, artifact: str) -> ContentPlace:
        listed = dig(node, "uploadMultipartUrls", "uploadUrlParts")
        parts = listed if isinstance(listed, list) else []
        numbers = [dig(part, "partNumber") for part in parts]
        if not is_place(node) or not all(isinstance(number, int) for number in numbers):
            raise Permanent("CreateArtifactFiles: the answer does not say where each file goes", status=200)
        urls = {number: url for number, part in zip(numbers, parts, strict=True) if (url := self._url(part))}
        if len(urls) != len(parts):
            raise Permanent("CreateArtifactFiles: the answer does not say where each part of a file goes", status=200)
        birth = dig(node, "artifact", "id")
        return ContentPlace(
            birth if isinstance(birth, str) and birth else artifact,
            self._url(node),
            headers_of(dig(node, "uploadHeaders")),
            str(dig(node, "storagePath") or ""),
            str(dig(node, "uploadMultipartUrls", "uploadID") or ""),
            urls or None,
        )

    def _url(self, place: object) -> str | None:
        url = dig(place, "uploadUrl")
        return self.api.absolute(url) if isinstance(url, str) and url else None


def _id(value: Any, operation: str) -> str:
    found = dig(value, "id")
    if not isinstance(found, str) or not found:
        raise Permanent(f"{operation}: the answer has no id", status=200)
    return found
