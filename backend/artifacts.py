"""Artifacts: collections of versions, each a manifest of files and references, committed once everything is there."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator

from .artifact_model import (
    COMMITTED,
    INPUT,
    OUTPUT,
    PENDING,
    Artifact,
    ArtifactError,
    Collection,
    Manifest,
    NewArtifact,
    NewManifest,
    StoredEntry,
)
from .blobs import Upload
from .database import insert
from .errors import BadRequestError
from .manifest import DIGEST_ALGORITHM, MAX_MANIFEST, Entry, base64_md5, manifest_digest, parse_manifest
from .paging import node_id, parse_node_id
from .runs import RunPath
from .store import Store, require_run

NAMED = 3  # paths that an error names before it only counts


class Artifacts:
    """The artifacts of a store; `clock` gives seconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    # ---- from the first word to the commit

    def create(self, new: NewArtifact) -> Artifact:
        """The artifact to send: a new one, or the one that has this client id or this content already.

        Raises:
            ArtifactError: the collection is of another type, or the client id belongs to other contents.
            RunNotFoundError: the run that it is an output of is not here.
        """
        now = self._clock()
        with self._store.writing() as db:
            run = None if new.run is None else require_run(db, new.run)
            collection = self._collection(db, new, now)
            known = _known(db, collection, new)
            if known is None:
                known = _insert(db, collection, new, run, now)
            elif known["state"] == COMMITTED and not _client_is_known(db, new.client_id):
                # Another client's identical content is this version; what it is called may be new.
                _give_aliases(db, known["collection"], known["id"], new.aliases)
            if new.client_id:
                db.execute("INSERT OR IGNORE INTO artifact_clients VALUES (?, ?)", (new.client_id, known["id"]))
            if run is not None:
                _connect(db, run, known["id"], OUTPUT)
            return _one(db, known["id"])

    def add_manifest(self, new: NewManifest) -> Manifest:
        """The manifest file of that name: made, or told its digest.

        Raises:
            ArtifactError: there is no such artifact, or it is committed.
            RunNotFoundError: there is no such run.
        """
        with self._store.writing() as db:
            _pending(db, new.artifact)
            if new.base is not None:
                _one(db, new.base)
            run = require_run(db, new.run)
            found = db.execute(
                # A run may add several parts, one after the other: each has a list of its own.
                "SELECT id FROM manifests WHERE artifact = ? AND name = ?"
                " AND (kind != 'PATCH' OR run = ? AND blob IS NULL)",
                (new.artifact, new.name, run),
            ).fetchone()
            if found is not None:
                return _told_digest(db, found["id"], new.digest, new.base)
            inserted = db.execute(
                "INSERT INTO manifests (artifact, name, run, kind, digest, base) VALUES (?, ?, ?, ?, ?, ?)",
                (new.artifact, new.name, run, new.kind, new.digest, new.base),
            )
            return _manifest(db, inserted.lastrowid)

    def update_manifest(self, key: int, digest: str | None, base: int | None) -> Manifest:
        """Tells a manifest its digest.

        Raises:
            ArtifactError: there is none, or its artifact is committed.
        """
        with self._store.writing() as db:
            _pending(db, _manifest(db, key).artifact)
            return _told_digest(db, key, digest or "", base)

    def put_manifest(self, key: int, upload: Upload) -> str:
        """Keeps the bytes of a manifest; their MD5 in hex.

        Raises:
            BadRequestError: they are not what its digest announced.
            ArtifactError: there is no such manifest, or its artifact is committed with another one.
        """
        blob = upload.finish()
        if blob.size > MAX_MANIFEST:
            raise BadRequestError(f"a manifest has at most {MAX_MANIFEST} bytes")
        with self._store.writing() as db:
            manifest = _manifest(db, key)
            if manifest.digest not in ("", base64_md5(blob.md5)):
                raise BadRequestError("the bytes of the manifest are not those that its digest announced")
            if manifest.blob != blob.digest:
                _pending(db, manifest.artifact)
            self._store.blobs.keep(upload, blob)
            db.execute("UPDATE manifests SET blob = ?, size = ? WHERE id = ?", (blob.digest, blob.size, key))
            db.execute("COMMIT")
            if manifest.blob not in (None, blob.digest):
                self._store.forget_blobs(db, [str(manifest.blob)])
        return blob.md5

    def commit(self, artifact: int) -> Artifact:
        """Makes the next version of it, once its manifests and everything that they name are there.

        Raises:
            ArtifactError: says what is missing or does not fit; nothing changed.
        """
        with self._store.writing() as db:
            found = _one(db, artifact)
            if found.state == COMMITTED:
                return found
            entries = self._entries_of_manifests(db, found)
            stored = list(self._found(db, found, entries))
            db.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(artifact, *vars(e).values()) for e in stored]
            )
            version = db.execute(
                "SELECT coalesce(max(version) + 1, 0) FROM artifacts WHERE collection = ?", (found.collection.key,)
            ).fetchone()[0]
            db.execute(
                "UPDATE artifacts SET state = ?, version = ?, file_count = ?, size = ?, updated_at = ? WHERE id = ?",
                (COMMITTED, version, len(stored), sum(entry.size for entry in stored), self._clock(), artifact),
            )
            wanted = db.execute("SELECT wanted_aliases FROM artifacts WHERE id = ?", (artifact,)).fetchone()[0]
            _give_aliases(db, found.collection.key, artifact, {*json.loads(wanted), "latest"})
            return _one(db, artifact)

    def use(self, artifact: int, run: RunPath) -> Artifact:
        """Says that a run took the artifact as its input.

        Raises:
            ArtifactError: there is no such artifact.
            RunNotFoundError: there is no such run.
        """
        with self._store.writing() as db:
            found = _one(db, artifact)
            _connect(db, require_run(db, run), artifact, INPUT)
            return found

    def describe(self, artifact: int, description: str | None, metadata: str | None) -> Artifact:
        """Changes what is said of it; None changes nothing.

        Raises:
            ArtifactError: there is no such artifact.
        """
        with self._store.writing() as db:
            _one(db, artifact)
            db.execute(
                "UPDATE artifacts SET description = coalesce(?, description), metadata = coalesce(?, metadata),"
                " updated_at = ? WHERE id = ?",
                (description, metadata, self._clock(), artifact),
            )
            return _one(db, artifact)

    # ---- what is there

    def get(self, artifact: int) -> Artifact:
        """One artifact.

        Raises:
            ArtifactError: there is none.
        """
        with self._store.reading() as db:
            return _one(db, artifact)

    def by_client_id(self, client_id: str) -> Artifact | None:
        """The artifact that a client calls so."""
        with self._store.reading() as db:
            row = db.execute("SELECT artifact FROM artifact_clients WHERE client_id = ?", (client_id,)).fetchone()
            return None if row is None else _one(db, row["artifact"])

    def by_name(self, entity: str, project: str, name: str) -> Artifact | None:
        """The committed artifact `collection:alias`, `collection:v3`, or `collection` for the latest."""
        collection, _, alias = name.partition(":")
        alias = alias or "latest"
        version = int(alias[1:]) if re.fullmatch(r"v\d{1,9}", alias) else None
        with self._store.reading() as db:
            row = db.execute(
                "SELECT a.id FROM artifacts a JOIN collections c ON c.id = a.collection"
                " LEFT JOIN artifact_aliases n ON n.artifact = a.id AND n.alias = ?"
                " WHERE c.entity = ? AND c.project = ? AND c.name = ? AND a.state = ?"
                " AND (a.version = ? OR n.alias IS NOT NULL)",
                (alias, entity, project, collection, COMMITTED, version),
            ).fetchone()
            return None if row is None else _one(db, row["id"])

    def of_run(self, run: int, role: str) -> list[Artifact]:
        """The artifacts that are outputs or inputs of a run, in the order in which they were made."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT artifact FROM artifact_runs WHERE run = ? AND role = ? ORDER BY artifact", (run, role)
            ).fetchall()
            return [_one(db, row["artifact"]) for row in rows]

    def versions(self, collection: int) -> list[Artifact]:
        """The committed versions of a collection, newest first."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT id FROM artifacts WHERE collection = ? AND state = ? ORDER BY version DESC",
                (collection, COMMITTED),
            ).fetchall()
            return [_one(db, row["id"]) for row in rows]

    def collections(self, entity: str, project: str) -> list[Collection]:
        """The collections of a project by name."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT id, entity, project, name, type, created_at FROM collections WHERE entity = ? AND project = ?"
                " ORDER BY name",
                (entity, project),
            )
            return [Collection(*row) for row in rows]

    def used_by(self, artifact: int) -> list[RunPath]:
        """The runs that named it as their input."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT r.entity, r.project, r.name FROM artifact_runs u JOIN runs r ON r.id = u.run"
                " WHERE u.artifact = ? AND u.role = ? ORDER BY r.id",
                (artifact, INPUT),
            )
            return [RunPath(*row) for row in rows]

    def entries(self, artifact: int, after: str = "", first: int = -1) -> list[StoredEntry]:
        """The entries of a committed artifact by path: the first `first` behind `after`, all without a bound."""
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT path, digest, size, ref, birth, blob, extra FROM entries WHERE artifact = ? AND path > ?"
                " ORDER BY path LIMIT ?",
                (artifact, after, first),
            )
            return [StoredEntry(*row) for row in rows]

    def manifest_blob(self, artifact: int) -> str | None:
        """Where the bytes of its manifest lie."""
        with self._store.reading() as db:
            row = db.execute("SELECT blob FROM manifests WHERE artifact = ? ORDER BY id", (artifact,)).fetchone()
            return None if row is None else row["blob"]

    # ---- parts of the above

    def _collection(self, db: sqlite3.Connection, new: NewArtifact, now: float) -> int:
        place = (new.entity, new.project, new.collection)
        db.execute(
            "INSERT OR IGNORE INTO collections (entity, project, name, type, created_at) VALUES (?, ?, ?, ?, ?)",
            (*place, new.type, now),
        )
        row = db.execute(
            "SELECT id, type FROM collections WHERE entity = ? AND project = ? AND name = ?", place
        ).fetchone()
        if row["type"] != new.type:
            raise ArtifactError(f"artifact {new.collection!r} has type {row['type']!r} here, not {new.type!r}")
        return int(row["id"])

    def _entries_of_manifests(self, db: sqlite3.Connection, artifact: Artifact) -> list[Entry]:
        manifests = db.execute("SELECT * FROM manifests WHERE artifact = ? ORDER BY id", (artifact.key,)).fetchall()
        if not manifests or any(manifest["blob"] is None for manifest in manifests):
            raise ArtifactError(f"artifact {artifact.title!r} cannot be committed: its manifest was not uploaded")
        entries: dict[str, Entry] = {}
        for manifest in manifests:
            if manifest["kind"] == "INCREMENTAL" and manifest["base"] is not None:
                entries |= {entry.path: _carried(entry, manifest["base"]) for entry in _stored(db, manifest["base"])}
            try:
                read = parse_manifest(self._store.blobs.path(manifest["blob"]).read_bytes())
            except ValueError as error:
                raise ArtifactError(f"artifact {artifact.title!r} cannot be committed: {error}") from None
            entries |= {entry.path: entry for entry in read}
        whole = all(manifest["kind"] == "FULL" for manifest in manifests)
        if whole and (digest := manifest_digest(entries.values())) != artifact.digest:
            raise ArtifactError(
                f"artifact {artifact.title!r} cannot be committed: its digest is {artifact.digest},"
                f" and its manifest has {digest} ({DIGEST_ALGORITHM})"
            )
        return sorted(entries.values(), key=lambda entry: entry.path)

    def _found(self, db: sqlite3.Connection, artifact: Artifact, entries: Iterable[Entry]) -> Iterator[StoredEntry]:
        """Each entry with the place of its bytes."""
        missing = []
        place = (artifact.collection.entity, artifact.collection.project)
        for entry in entries:
            birth = parse_node_id("Artifact", entry.birth)
            blob = None
            if entry.ref is None:
                found = db.execute(
                    "SELECT f.blob, f.size FROM contents f JOIN artifacts a ON a.id = f.artifact"
                    " JOIN collections c ON c.id = a.collection WHERE f.md5 = ? AND f.blob IS NOT NULL"
                    " AND (c.entity = ? AND c.project = ? OR a.id = ?) LIMIT 1",
                    (entry.digest, *place, birth),
                ).fetchone()
                if found is None or found["size"] != entry.size:
                    missing.append(entry.path)
                    continue
                blob = found["blob"]
            yield StoredEntry(entry.path, entry.digest, entry.size, entry.ref, birth, blob, entry.extra)
        if missing:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            raise ArtifactError(
                f"artifact {artifact.title!r} cannot be committed: not uploaded with the digest and size that the"
                f" manifest gives: {', '.join(missing[:NAMED])}{more}"
            )


def _known(db: sqlite3.Connection, collection: int, new: NewArtifact) -> sqlite3.Row | None:
    """The artifact that this is: by its client id, else by the group of writers it belongs to, else by its content."""
    mine = db.execute(
        "SELECT a.* FROM artifacts a JOIN artifact_clients n ON n.artifact = a.id WHERE n.client_id = ?",
        (new.client_id,),
    ).fetchone()
    if mine is not None:
        is_other_content = mine["digest"] != new.digest and mine["distributed_id"] is None  # else a part of it
        if mine["collection"] != collection or is_other_content:
            raise ArtifactError(f"artifact {new.collection!r}: its client id belongs to another artifact here")
        return mine  # type: ignore[no-any-return]
    if new.distributed_id is not None:
        return db.execute(  # type: ignore[no-any-return]
            "SELECT * FROM artifacts WHERE collection = ? AND distributed_id = ? AND state = ?",
            (collection, new.distributed_id, PENDING),
        ).fetchone()
    if not new.deduplicate:
        return None
    return db.execute(  # type: ignore[no-any-return]
        "SELECT * FROM artifacts WHERE collection = ? AND digest = ? AND state = ? ORDER BY version DESC",
        (collection, new.digest, COMMITTED),
    ).fetchone()


def _insert(db: sqlite3.Connection, collection: int, new: NewArtifact, run: int | None, now: float) -> sqlite3.Row:
    values = {
        "collection": collection,
        "digest": new.digest,
        "state": PENDING,
        "description": new.description,
        "metadata": new.metadata,
        "distributed_id": new.distributed_id,
        "ttl_s": new.ttl_s,
        "history_step": new.history_step,
        "wanted_aliases": json.dumps(new.aliases),
        "tags": json.dumps(new.tags),
        "created_by": run,
        "created_at": now,
        "updated_at": now,
    }
    key = insert(db, "artifacts", values)
    return db.execute("SELECT * FROM artifacts WHERE id = ?", (key,)).fetchone()  # type: ignore[no-any-return]


def _client_is_known(db: sqlite3.Connection, client_id: str | None) -> bool:
    return db.execute("SELECT 1 FROM artifact_clients WHERE client_id = ?", (client_id,)).fetchone() is not None


def _give_aliases(db: sqlite3.Connection, collection: int, artifact: int, aliases: Iterable[str]) -> None:
    """An alias belongs to one version of a collection: it moves."""
    db.executemany(
        "INSERT OR REPLACE INTO artifact_aliases VALUES (?, ?, ?)", [(collection, alias, artifact) for alias in aliases]
    )


def _connect(db: sqlite3.Connection, run: int, artifact: int, role: str) -> None:
    db.execute("INSERT OR IGNORE INTO artifact_runs (run, artifact, role) VALUES (?, ?, ?)", (run, artifact, role))


def _one(db: sqlite3.Connection, key: int) -> Artifact:
    row = db.execute("SELECT * FROM artifacts WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise ArtifactError("there is no such artifact on this server")
    place = db.execute(
        "SELECT id, entity, project, name, type, created_at FROM collections WHERE id = ?", (row["collection"],)
    ).fetchone()
    aliases = db.execute(
        "SELECT alias FROM artifact_aliases WHERE collection = ? AND artifact = ? ORDER BY alias",
        (row["collection"], key),
    )
    values = dict(row)
    for unused in ("id", "collection", "distributed_id", "wanted_aliases", "tags"):
        del values[unused]
    return Artifact(
        key=key,
        collection=Collection(*place),
        tags=json.loads(row["tags"]),
        aliases=[alias["alias"] for alias in aliases],
        **values,
    )


def _pending(db: sqlite3.Connection, artifact: int) -> None:
    if _one(db, artifact).state != PENDING:
        raise ArtifactError("the artifact is committed; it can no longer change")


def _manifest(db: sqlite3.Connection, key: int | None) -> Manifest:
    row = db.execute("SELECT id, artifact, name, digest, blob FROM manifests WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise ArtifactError("there is no such manifest on this server")
    return Manifest(*row)


def _told_digest(db: sqlite3.Connection, key: int, digest: str, base: int | None) -> Manifest:
    earlier = _manifest(db, key)
    forgotten = earlier.blob if digest and digest != earlier.digest else None
    db.execute(
        "UPDATE manifests SET digest = CASE WHEN ? = '' THEN digest ELSE ? END, base = coalesce(?, base) WHERE id = ?",
        (digest, digest, base, key),
    )
    if forgotten is not None:
        db.execute("UPDATE manifests SET blob = NULL, size = NULL WHERE id = ?", (key,))
    return _manifest(db, key)


def _stored(db: sqlite3.Connection, artifact: int) -> Iterator[StoredEntry]:
    rows = db.execute("SELECT path, digest, size, ref, birth, blob, extra FROM entries WHERE artifact = ?", (artifact,))
    return (StoredEntry(*row) for row in rows)


def _carried(entry: StoredEntry, base: int) -> Entry:
    """An entry of the artifact that an incremental one builds on."""
    birth = node_id("Artifact", base if entry.birth is None else entry.birth)
    return Entry(entry.path, entry.digest, entry.size, entry.ref, birth, entry.extra)
