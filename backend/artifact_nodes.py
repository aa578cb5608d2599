"""Artifacts and their collections as GraphQL nodes; fields that cost something are worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .artifact_model import Artifact, Collection, StoredEntry
from .artifacts import Artifacts
from .gql_syntax import GraphQLError
from .manifest import DIGEST_ALGORITHM
from .paging import connection, iso, names_of, node_id
from .runs import RunPath
from .storage import Addresses

Arguments = dict[str, Any]


@dataclass(frozen=True)
class ArtifactNodes:
    """Builds nodes; `project` and `run` give those of a project and of a run (None where it is gone)."""

    artifacts: Artifacts
    addresses: Addresses
    project: Callable[[str, str], Any]
    run: Callable[[RunPath], Any]
    run_of_key: Callable[[int], Any]

    def artifact(self, artifact: Artifact) -> Any:
        """One version."""
        collection = artifact.collection
        return {
            "__typename": "Artifact",
            "id": node_id("Artifact", artifact.key),
            "digest": artifact.digest,
            "digestAlgorithm": DIGEST_ALGORITHM,
            "commitHash": artifact.digest,
            "state": artifact.state,
            "versionIndex": artifact.version,
            "description": artifact.description,
            "metadata": artifact.metadata,
            "size": artifact.size,
            "fileCount": artifact.file_count,
            "historyStep": artifact.history_step,
            "ttlDurationSeconds": -1 if artifact.ttl_s is None else artifact.ttl_s,  # -1: never
            "ttlIsInherited": False,
            "createdAt": iso(artifact.created_at),
            "updatedAt": iso(artifact.updated_at),
            "tags": [self._tag(tag) for tag in artifact.tags],
            "aliases": lambda _: [self._alias(collection, alias) for alias in artifact.aliases],
            "artifactType": self.type(collection.type),
            "artifactSequence": lambda _: self.collection(collection),
            "artifactCollections": lambda given: connection([collection], self.collection, given),
            "artifactMemberships": lambda given: connection([artifact], self.membership, given),
            "currentManifest": lambda _: self._manifest(artifact),
            "manifest": lambda _: self._manifest(artifact),
            "files": lambda given: self._files(artifact, given),
            "filesByManifestEntries": lambda given: self._files_by_entries(artifact, given),
            "usedBy": lambda given: connection(
                [run for path in self.artifacts.used_by(artifact.key) if (run := self.run(path))], _same, given
            ),
            "createdBy": lambda _: None if artifact.created_by is None else self.run_of_key(artifact.created_by),
        }

    def collection(self, collection: Collection) -> Any:
        """All versions of one artifact."""

        def versions() -> list[Artifact]:
            return self.artifacts.versions(collection.key)

        def latest(_: Arguments) -> Any:
            found = versions()
            return self.artifact(found[0]) if found else None

        def membership(given: Arguments) -> Any:
            name = f"{collection.name}:{given.get('aliasName') or 'latest'}"
            found = self.artifacts.by_name(collection.entity, collection.project, name)
            return None if found is None else self.membership(found)

        def aliases(given: Arguments) -> Any:
            names = sorted(alias for version in versions() for alias in version.aliases)
            return connection(names, lambda name: self._alias(collection, name), given)

        return {
            "__typename": "ArtifactSequence",
            "id": node_id("ArtifactCollection", collection.key),
            "name": collection.name,
            "state": "READY",
            "description": None,
            "digestAlgorithm": DIGEST_ALGORITHM,
            "createdAt": iso(collection.created_at),
            "updatedAt": iso(collection.created_at),
            "defaultArtifactType": self.type(collection.type),
            "tags": connection([], _same, {}),
            "project": lambda _: self.project(collection.entity, collection.project),
            "latestArtifact": latest,
            "artifactMembership": membership,
            "artifacts": lambda given: self._versions(versions(), given),
            "aliases": aliases,
        }

    def membership(self, artifact: Artifact) -> Any:
        """A version as a member of its collection."""
        return {
            "__typename": "ArtifactCollectionMembership",
            "id": node_id("ArtifactCollectionMembership", artifact.key),
            "versionIndex": artifact.version,
            "createdAt": iso(artifact.created_at),
            "aliases": lambda _: [self._alias(artifact.collection, alias) for alias in artifact.aliases],
            "artifactCollection": lambda _: self.collection(artifact.collection),
            "artifact": lambda _: self.artifact(artifact),
            "files": lambda given: self._files(artifact, given),
        }

    def type(self, name: str) -> Any:
        """The type of an artifact."""
        return {
            "__typename": "ArtifactType",
            "id": node_id("ArtifactType", name),
            "name": name,
            "description": None,
            "createdAt": iso(0),
        }

    def _versions(self, versions: list[Artifact], given: Arguments) -> Any:
        page = connection(versions, lambda version: version, given)
        for edge in page["edges"]:
            edge |= {"version": f"v{edge['node'].version}", "node": self.artifact(edge["node"])}
        return page

    def _alias(self, collection: Collection, alias: str) -> Any:
        return {
            "__typename": "ArtifactAlias",
            "id": node_id("ArtifactAlias", f"{collection.key}:{alias}"),
            "alias": alias,
            "artifactCollectionName": collection.name,
            "artifactCollection": lambda _: self.collection(collection),
        }

    def _tag(self, tag: str) -> Any:
        return {"__typename": "Tag", "id": node_id("Tag", tag), "name": tag}

    def _manifest(self, artifact: Artifact) -> Any:
        blob = self.artifacts.manifest_blob(artifact.key)
        if blob is None:
            return None
        name = "wandb_manifest.json"
        url = self.addresses.download(blob, name)
        return {"id": node_id("ArtifactManifest", artifact.key), "file": {"name": name, "directUrl": url, "url": url}}

    def _files(self, artifact: Artifact, given: Arguments) -> Any:
        names = names_of(given)
        entries = [entry for entry in self.artifacts.entries(artifact.key) if names is None or entry.path in names]
        return connection(entries, lambda entry: self._file(artifact, entry), given)

    def _files_by_entries(self, artifact: Artifact, given: Arguments) -> Any:
        """The files of a manifest that the client has read, in the order in which it names them."""
        asked = given.get("entries") or []
        if not isinstance(asked, list) or not all(isinstance(entry, dict) for entry in asked):
            raise GraphQLError("entries is not a list of objects")
        wanted = [str(entry.get("name")) for entry in asked]
        entries = {entry.path: entry for entry in self.artifacts.entries(artifact.key)}
        found = [entries[name] for name in wanted if name in entries]
        return connection(found, lambda entry: self._file(artifact, entry), {"first": len(found)})

    def _file(self, artifact: Artifact, entry: StoredEntry) -> Any:
        url = None if entry.blob is None else self.addresses.download(entry.blob, entry.path)
        return {
            "__typename": "File",
            "id": node_id("File", f"{artifact.key}:{entry.path}"),
            "name": entry.path,
            "displayName": entry.path,
            "sizeBytes": entry.size,
            "digest": entry.digest,
            "md5": None if entry.ref else entry.digest,
            "mimetype": None,
            "storagePath": entry.ref or f"wandb_artifacts/{entry.digest}",
            "updatedAt": iso(artifact.updated_at),
            "url": url,
            "directUrl": url,
        }


def _same(node: Any) -> Any:
    return node
