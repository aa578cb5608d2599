"""The files of artifacts on their way in: what is announced, whole bodies, and bodies in parts."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .artifact_model import COMMITTED, ArtifactError
from .blobs import Blob, Upload
from .errors import BadRequestError
from .manifest import base64_md5
from .store import Store

COPY_SIZE = 4 << 20


@dataclass(frozen=True)
class Announced:
    """A file that a client wants to send; `md5` is base64, `parts` are part number -> hex MD5 for a body in parts."""

    artifact: int
    name: str
    md5: str
    mimetype: str | None = None
    parts: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """Where an announced file goes. `stored`: the bytes are here already, brought by the artifact `birth`."""

    announced: Announced
    stored: bool
    birth: int
    multipart: str | None = None


class Contents:
    """The contents of a store's artifacts; equal bytes (by MD5) of one project are sent and kept once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def announce(self, files: Sequence[Announced]) -> list[Slot]:
        """A place for each file, in the order given.

        Raises:
            ArtifactError: an artifact is not here, or is committed.
        """
        with self._store.writing() as db:
            places = {key: _project_of_pending(db, key) for key in {file.artifact for file in files}}
            return [_slot(db, file, places[file.artifact]) for file in files]

    def put(self, artifact: int, name: str, upload: Upload) -> str:
        """Keeps the bytes of an announced file; their MD5 in hex.

        Raises:
            BadRequestError: they are not those that were announced.
            ArtifactError: the file was not announced.
        """
        blob = upload.finish()
        with self._store.writing() as db:
            row = db.execute(
                "SELECT md5, blob FROM contents WHERE artifact = ? AND name = ?", (artifact, name)
            ).fetchone()
            if row is None:
                raise ArtifactError(f"no file {name!r} was announced for this artifact")
            if row["md5"] != base64_md5(blob.md5):
                raise BadRequestError(f"the bytes of {name!r} have the MD5 {base64_md5(blob.md5)}, not {row['md5']}")
            self._store.blobs.keep(upload, blob)
            _came(db, artifact, name, blob)
            db.execute("COMMIT")
            if row["blob"] not in (None, blob.digest):
                self._store.forget_blobs(db, [row["blob"]])
        return blob.md5

    def put_part(self, multipart: str, number: int, upload: Upload) -> str:
        """Keeps one part of a body; its MD5 in hex.

        Raises:
            BadRequestError: it is not the part that was announced.
            ArtifactError: no such part was announced.
        """
        blob = upload.finish()
        with self._store.writing() as db:
            row = db.execute("SELECT md5 FROM parts WHERE multipart = ? AND number = ?", (multipart, number)).fetchone()
            if row is None:
                raise ArtifactError(f"no part {number} was announced for this upload")
            if row["md5"] != blob.md5:
                raise BadRequestError(f"part {number} has the MD5 {blob.md5}, not {row['md5']}")
            self._store.blobs.keep(upload, blob)
            db.execute(
                "UPDATE parts SET blob = ?, size = ? WHERE multipart = ? AND number = ?",
                (blob.digest, blob.size, multipart, number),
            )
        return blob.md5

    def complete(self, multipart: str, completed: Mapping[int, str]) -> str:
        """Joins the parts, which must be all that were announced (number -> hex MD5); the base64 MD5 of the whole.

        Raises:
            ArtifactError: there is no such upload, a part is missing or another one, or the whole is not what was
                announced.
        """
        with self._store.reading() as db:
            place = db.execute("SELECT artifact, name FROM multiparts WHERE id = ?", (multipart,)).fetchone()
            parts = db.execute("SELECT * FROM parts WHERE multipart = ? ORDER BY number", (multipart,)).fetchall()
            if place is None:
                raise ArtifactError("there is no such upload in parts on this server")
            if not parts:  # joined before; the answer got lost
                row = db.execute(
                    "SELECT md5 FROM contents WHERE artifact = ? AND name = ?", (place["artifact"], place["name"])
                ).fetchone()
                return str(row["md5"])
        missing = [str(part["number"]) for part in parts if part["blob"] is None]
        if missing:
            raise ArtifactError(f"parts {', '.join(missing)} of {place['name']!r} were not uploaded")
        if {part["number"]: part["md5"] for part in parts} != {
            n: md5.strip('"').lower() for n, md5 in completed.items()
        }:
            raise ArtifactError(f"the completed parts of {place['name']!r} are not those that were announced")
        upload = self._store.blobs.upload()
        try:
            for part in parts:
                with self._store.blobs.path(part["blob"]).open("rb") as file:
                    while chunk := file.read(COPY_SIZE):
                        upload.write(chunk)
            try:
                md5 = self.put(place["artifact"], place["name"], upload)
            except BadRequestError as error:
                raise ArtifactError(str(error)) from None
        finally:
            upload.discard()
        with self._store.writing() as db:
            db.execute("DELETE FROM parts WHERE multipart = ?", (multipart,))
            db.execute("COMMIT")
            self._store.forget_blobs(db, [part["blob"] for part in parts])
        return base64_md5(md5)


def _project_of_pending(db: sqlite3.Connection, artifact: int) -> tuple[str, str]:
    row = db.execute(
        "SELECT a.state, c.entity, c.project FROM artifacts a JOIN collections c ON c.id = a.collection WHERE a.id = ?",
        (artifact,),
    ).fetchone()
    if row is None:
        raise ArtifactError("there is no such artifact on this server")
    if row["state"] == COMMITTED:
        raise ArtifactError("the artifact is committed; it can no longer change")
    return row["entity"], row["project"]


def _slot(db: sqlite3.Connection, file: Announced, project: tuple[str, str]) -> Slot:
    mine = db.execute(
        "SELECT md5, blob FROM contents WHERE artifact = ? AND name = ?", (file.artifact, file.name)
    ).fetchone()
    if mine is not None and mine["md5"] == file.md5 and mine["blob"] is not None:
        return Slot(file, stored=True, birth=file.artifact)
    same = db.execute(
        "SELECT f.artifact, f.blob, f.size FROM contents f JOIN artifacts a ON a.id = f.artifact"
        " JOIN collections c ON c.id = a.collection"
        " WHERE f.md5 = ? AND f.blob IS NOT NULL AND c.entity = ? AND c.project = ? ORDER BY f.artifact",
        (file.md5, *project),
    ).fetchone()
    db.execute(
        "INSERT OR REPLACE INTO contents (artifact, name, md5, mimetype, blob, size) VALUES (?, ?, ?, ?, ?, ?)",
        (file.artifact, file.name, file.md5, file.mimetype, *((same["blob"], same["size"]) if same else (None, None))),
    )
    if same is not None:
        return Slot(file, stored=True, birth=same["artifact"])
    multipart = _multipart(db, file) if file.parts else None
    return Slot(file, stored=False, birth=file.artifact, multipart=multipart)


def _multipart(db: sqlite3.Connection, file: Announced) -> str:
    """The upload in parts of this file; the parts that are there already stay while they are the same."""
    found = db.execute(
        "SELECT id FROM multiparts WHERE artifact = ? AND name = ?", (file.artifact, file.name)
    ).fetchone()
    multipart = found["id"] if found else secrets.token_hex(16)
    db.execute("INSERT OR IGNORE INTO multiparts VALUES (?, ?, ?)", (multipart, file.artifact, file.name))
    known = {
        row["number"]: row["md5"]
        for row in db.execute("SELECT number, md5 FROM parts WHERE multipart = ?", (multipart,))
    }
    if known != file.parts:
        db.execute("DELETE FROM parts WHERE multipart = ?", (multipart,))
        db.executemany(
            "INSERT INTO parts (multipart, number, md5) VALUES (?, ?, ?)",
            [(multipart, number, md5) for number, md5 in file.parts.items()],
        )
    return str(multipart)


def _came(db: sqlite3.Connection, artifact: int, name: str, blob: Blob) -> None:
    db.execute(
        "UPDATE contents SET blob = ?, size = ? WHERE artifact = ? AND name = ?",
        (blob.digest, blob.size, artifact, name),
    )


def checked_parts(parts: Iterable[tuple[object, object]]) -> dict[int, str]:
    """Part number -> hex MD5, as clients give them.

    Raises:
        ArtifactError: they are not parts 1, 2, ... with an MD5 each.
    """
    checked: dict[int, str] = {}
    for number, md5 in parts:
        if type(number) is not int or number != len(checked) + 1 or not re.fullmatch(r"[0-9a-fA-F]{32}", str(md5)):
            raise ArtifactError("the parts of an upload are numbered from 1, and each has a hex MD5")
        checked[number] = str(md5).lower()
    return checked
