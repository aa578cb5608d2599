"""The GraphQL operations that send artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .artifact_model import MANIFEST_KINDS, Artifact, ArtifactError, Manifest, NewArtifact, NewManifest
from .artifact_nodes import ArtifactNodes
from .artifacts import Artifacts
from .contents import Announced, Contents, Slot, checked_parts
from .filestream import safe_name
from .gql_execute import Resolver
from .gql_syntax import GraphQLError
from .jsontext import parse
from .manifest import DIGEST_ALGORITHM, is_base64_md5
from .nodes import run_path
from .paging import node_id, parse_node_id
from .runs import FORBIDDEN_IN_IDS, MAX_ID_BYTES, RunPath
from .storage import Addresses
from .store import RunNotFoundError

Arguments = dict[str, Any]

MAX_FILES_PER_REQUEST = 100_000
MAX_PARTS = 10_000
OCTETS = "application/octet-stream"


@dataclass(frozen=True)
class ArtifactOperations:
    """The resolvers of one request; `entity` is for calls that name none."""

    artifacts: Artifacts
    contents: Contents
    nodes: ArtifactNodes
    addresses: Addresses
    entity: str

    def resolvers(self) -> Mapping[str, Resolver]:
        """Top-level field -> function."""
        functions = {
            "createArtifact": self._create,
            "createArtifactManifest": self._create_manifest,
            "updateArtifactManifest": self._update_manifest,
            "createArtifactFiles": self._create_files,
            "completeMultipartUploadArtifact": self._complete,
            "commitArtifact": self._commit,
            "useArtifact": self._use,
            "updateArtifact": self._update,
        }
        return {
            **{name: _with_errors(function) for name, function in functions.items()},
            "clientIDMapping": self._client_id,
            "artifact": _with_errors(lambda given: self.nodes.artifact(self.artifacts.get(_artifact(given.get("id"))))),
        }

    def _create(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        if (given.get("digestAlgorithm") or DIGEST_ALGORITHM) != DIGEST_ALGORITHM:
            raise GraphQLError(f"the only digest algorithm of this backend is {DIGEST_ALGORITHM}")
        place = self._run({**given, "runName": given.get("runName") or "none"})
        aliases, collection = _objects(given, "aliases"), _name(given, "artifactCollectionName")
        if any(alias.get("artifactCollectionName") not in (None, collection) for alias in aliases):
            raise GraphQLError("an alias names another collection than the artifact's own")
        metadata = _text(given, "metadata")
        if metadata is not None:
            _check_json(metadata)
        artifact = self.artifacts.create(
            NewArtifact(
                entity=place.entity,
                project=place.project,
                type=_name(given, "artifactTypeName"),
                collection=collection,
                digest=_name(given, "digest"),
                run=place if given.get("runName") else None,
                client_id=_text(given, "clientID"),
                distributed_id=_text(given, "distributedID"),
                description=_text(given, "description"),
                metadata=metadata,
                aliases=tuple(_name(alias, "alias") for alias in aliases),
                tags=tuple(_name(tag, "tagName") for tag in _objects(given, "tags")),
                ttl_s=_integer(given, "ttlDurationSeconds"),
                history_step=_integer(given, "historyStep"),
                deduplicate=given.get("enableDigestDeduplication") is True,
            )
        )
        return {"artifact": self.nodes.artifact(artifact)}

    def _create_manifest(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        kind, name = given.get("type") or "FULL", given.get("name")
        if not isinstance(kind, str) or kind not in MANIFEST_KINDS or not safe_name(name):
            raise GraphQLError(f"a manifest has a name and type {', '.join(sorted(MANIFEST_KINDS))}")
        artifact = _artifact(given.get("artifactID"))
        new = NewManifest(artifact, str(name), kind, _digest(given), _base(given), self._run(given))
        manifest = self.artifacts.add_manifest(new)
        return {"artifactManifest": self._manifest(manifest)}

    def _update_manifest(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        key = _manifest_key(given.get("artifactManifestID"))
        manifest = self.artifacts.update_manifest(key, _digest(given) or None, _base(given))
        return {"artifactManifest": self._manifest(manifest)}

    def _manifest(self, manifest: Manifest) -> Any:
        headers = ["Content-Type:application/json"]
        if manifest.digest:
            headers.insert(0, f"Content-MD5:{manifest.digest}")
        return {
            "id": node_id("ArtifactManifest", manifest.key),
            "digest": manifest.digest,
            "file": {
                "id": node_id("File", f"manifest:{manifest.key}"),
                "name": manifest.name,
                "uploadUrl": self.addresses.manifest(manifest.key, manifest.name),
                "uploadHeaders": headers,
            },
        }

    def _create_files(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        files = _objects(given, "artifactFiles")
        if len(files) > MAX_FILES_PER_REQUEST:
            raise GraphQLError(f"artifactFiles holds more than {MAX_FILES_PER_REQUEST} files")
        slots = self.contents.announce([_announced(file) for file in files])
        return {"files": {"edges": [{"node": self._slot(slot)} for slot in slots]}}

    def _slot(self, slot: Slot) -> Any:
        file = slot.announced
        parts = None
        if slot.multipart is not None:
            urls = [
                {"partNumber": number, "uploadUrl": self.addresses.part(slot.multipart, number)}
                for number in file.parts
            ]
            parts = {"uploadID": slot.multipart, "uploadUrlParts": urls}
        return {
            "id": node_id("File", f"{file.artifact}:{file.name}"),
            "name": file.name,
            "displayName": file.name,
            "storagePath": f"wandb_artifacts/{file.md5}",
            # No URL: the bytes are here already.
            "uploadUrl": None if slot.stored else self.addresses.content(file.artifact, file.name),
            "uploadHeaders": [f"Content-MD5:{file.md5}", f"Content-Type:{file.mimetype or OCTETS}"],
            "uploadMultipartUrls": parts,
            "artifact": {"id": node_id("Artifact", slot.birth)},
        }

    def _complete(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        if given.get("completeMultipartAction") != "Complete":
            raise GraphQLError("not supported by this backend: a completeMultipartAction other than Complete")
        parts = sorted(_objects(given, "completedParts"), key=lambda part: str(part.get("partNumber")).zfill(9))
        completed = checked_parts((part.get("partNumber"), str(part.get("hexMD5")).strip('"')) for part in parts)
        return {"digest": self.contents.complete(_name(given, "uploadID"), completed)}

    def _commit(self, arguments: Arguments) -> Any:
        artifact = self.artifacts.commit(_artifact(input_of(arguments).get("artifactID")))
        return {"artifact": self.nodes.artifact(artifact)}

    def _use(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        artifact = self.artifacts.use(_artifact(given.get("artifactID")), self._run(given))
        return {"artifact": self.nodes.artifact(artifact)}

    def _update(self, arguments: Arguments) -> Any:
        given = input_of(arguments)
        others = {name for name, value in given.items() if value is not None} - {
            "artifactID",
            "description",
            "metadata",
            "clientMutationId",
        }
        if others:
            raise GraphQLError(f"not supported by this backend: updateArtifact with {', '.join(sorted(others))}")
        metadata = _text(given, "metadata")
        if metadata is not None:
            _check_json(metadata)
        artifact = self.artifacts.describe(_artifact(given.get("artifactID")), _text(given, "description"), metadata)
        return {"artifact": self.nodes.artifact(artifact)}

    def _client_id(self, arguments: Arguments) -> Any:
        found: Artifact | None = self.artifacts.by_client_id(str(arguments.get("clientID")))
        return None if found is None else {"serverID": node_id("Artifact", found.key)}

    def _run(self, given: Arguments) -> RunPath:
        names = [_text(given, name) for name in ("entityName", "projectName", "runName")]
        return run_path(names[0] or self.entity, names[1] or "uncategorized", names[2])


def input_of(arguments: Arguments) -> Arguments:
    """The argument `input` of a mutation."""
    given = arguments.get("input")
    if not isinstance(given, dict):
        raise GraphQLError("input is missing")
    return given


def _with_errors(function: Resolver) -> Resolver:
    def resolver(arguments: Arguments) -> Any:
        try:
            return function(arguments)
        except (ArtifactError, RunNotFoundError) as error:
            raise GraphQLError(str(error)) from None

    return resolver


def _announced(given: Mapping[str, Any]) -> Announced:
    name, md5, mimetype = given.get("name"), given.get("md5"), given.get("mimetype")
    if not safe_name(name):
        raise GraphQLError(f"{name!r} is no path inside an artifact")
    if not is_base64_md5(md5):
        raise GraphQLError(f"the MD5 of {name!r} is not base64 of 16 bytes")
    if mimetype is not None and not (isinstance(mimetype, str) and mimetype.isascii() and mimetype.isprintable()):
        raise GraphQLError(f"the MIME type of {name!r} is none")
    parts = given.get("uploadPartsInput") or []
    if not isinstance(parts, list) or len(parts) > MAX_PARTS or not all(isinstance(part, dict) for part in parts):
        raise GraphQLError(f"uploadPartsInput of {name!r} is not a list of at most {MAX_PARTS} parts")
    numbered = checked_parts((part.get("partNumber"), part.get("hexMD5")) for part in parts)
    return Announced(_artifact(given.get("artifactID")), str(name), str(md5), mimetype, numbered)


def _artifact(text: object) -> int:
    key = parse_node_id("Artifact", text)
    if key is None:
        raise GraphQLError("unknown artifact id")
    return key


def _manifest_key(text: object) -> int:
    key = parse_node_id("ArtifactManifest", text)
    if key is None:
        raise GraphQLError("unknown manifest id")
    return key


def _base(given: Arguments) -> int | None:
    return None if given.get("baseArtifactID") is None else _artifact(given["baseArtifactID"])


def _digest(given: Arguments) -> str:
    digest = given.get("digest") or ""
    if digest and not is_base64_md5(digest):
        raise GraphQLError("the digest of a manifest is the base64 MD5 of its bytes")
    return str(digest)


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise GraphQLError(f"{name} is not a string")
    return value or None


def _name(given: Mapping[str, Any], name: str) -> str:
    """A text without which there is no artifact, and which is safe in URLs."""
    value = _text(given, name)
    if value is None or len(value.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES or FORBIDDEN_IN_IDS & set(value):
        raise GraphQLError(
            f'{name} is not a name of 1 to {MAX_ID_BYTES} bytes without / \\ # ? % : " and control characters'
        )
    return value


def _integer(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and (type(value) is not int or abs(value) >= 2**63):
        raise GraphQLError(f"{name} is not an integer")
    return value


def _objects(given: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    values = given.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise GraphQLError(f"{name} is not a list of objects")
    return values


def _check_json(text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        raise GraphQLError(f"metadata is not JSON: {error}") from None
