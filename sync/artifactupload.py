"""One artifact on its way to the server, in the protocol's order.

    CreateArtifact             the server has this content already: done; the client id is another artifact's: once more
    CreateArtifactManifest     the place of its list
    CreateArtifactFiles, PUT   batch by batch; the server takes only bytes that it does not have
    ClientIDMapping            for references to other artifacts of clients
    CreateArtifactManifest or UpdateArtifactManifest, PUT    the list itself
    CommitArtifact             not for a part of an artifact that another process ends
    UseArtifact                for an input of the run

It goes on from where the journal says. One of which a file is missing stays uncommitted.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from . import artifactclient
from . import manifest as manifests
from .artifactapi import ArtifactApi, ContentPlace, ManifestPlace, Wanted
from .artifactjournal import Journal
from .contents import Content, ContentFinder
from .cursor import COMMITTED, DONE, PENDING, ArtifactMark
from .errors import AuthError, Interrupted, OutOfTime, Permanent, SyncError
from .localfiles import UnsafeFileError, shown, why
from .manifest import Entries, Entry, ManifestFile
from .report import counted, shorten
from .uploads import MIB, put, renewing

CLIENT_REF = "wandb-client-artifact://"
SERVER_REF = "wandb-artifact://"

_FIRST_BATCH, _LARGEST_BATCH = 32, 1024  # contents that are asked for at a time: places expire
_BATCH_BYTES = 1024 * MIB
_MOST_NOTED = 1000  # lost paths in the cursor


@dataclass(frozen=True)
class PartRule:
    """Which contents go up in parts, and how large those are. Bytes."""

    threshold: int = 2048 * MIB
    size: int = 100 * MIB
    most: int = 10_000
    """Parts of one content; storages take no more."""

    def part_size(self, size: int) -> int:
        """0: in one piece."""
        if size < self.threshold:
            return 0
        if size <= self.size * self.most:
            return self.size
        return -(-size // self.most // 4096) * 4096 or 4096


@dataclass
class Common:
    """What the artifacts of one run share."""

    api: ArtifactApi
    finder: ContentFinder
    pool: Executor
    """Where files are put to the server."""
    rule: PartRule
    features: Callable[[], frozenset[str]]
    """The server's."""
    progress: Callable[[str, int, int], None]
    """Told the name of an artifact, how many of its files are there, and of how many."""
    server_ids: dict[str, str] = field(default_factory=dict)
    """Client id -> id at the server, of artifacts that it is known to have."""
    unfinished: set[str] = field(default_factory=set)
    """Distributed ids of artifacts of which an earlier part is missing."""

    def server_id(self, client_id: str) -> str:
        """The server's id of an artifact of a client.

        Raises:
            Permanent: it has none.
        """
        known = self.server_ids.get(client_id) or self.api.server_id(client_id)
        if known is None:
            lost = "it refers to an artifact that the server does not have: sync the run of that first"
            raise Permanent(lost, status=0)
        self.server_ids[client_id] = known
        return known


class Upload:
    """One artifact on its way. `missing` has the files that did not get there."""

    def __init__(self, common: Common, key: str, record: Any, journal: Journal, *, is_own: bool = True) -> None:
        self._common = common
        self._api = common.api
        self._key = key
        self._record = record
        self._journal = journal
        self._is_own = is_own
        self._entries = self._listed()
        self._layout = manifests.layout_of(record.manifest)
        self.missing: dict[str, str] = {}
        """Path -> why."""
        self._late = 0
        self._not_here: list[str] = []

    @property
    def only_late(self) -> bool:
        """All that is missing came too late."""
        return 0 < self._late == len(self.missing)

    def told(self) -> str:
        """What is missing, in one line."""
        total = self._total()
        names = [f"{shown(path)} ({why})" for path, why in sorted(self.missing.items())]
        return (
            f"artifact {shown(self._record.name)}: {len(names)} of {counted(total, 'file')} missing: {shorten(names)}"
        )

    def _total(self) -> int:
        return sum(entry.is_file for entry in self._entries())

    def run(self) -> None:
        """Go on from where the journal says.

        Raises:
            SyncError: a request about it as a whole did not get through.
            UnsafeFileError: its list of contents is not here.
        """
        mark = self._journal.marks.get(self._key)
        if mark is not None and mark.state == PENDING and self._still_missing(mark):
            return
        known = mark is not None
        if mark is None:
            mark = self._create()
        if mark.state == PENDING:
            mark = self._fill(mark, known=known)
        if mark.state == COMMITTED:
            features = self._common.features()
            self._api.use(mark.id, own=True, features=features)
            self._note(mark, DONE)

    def _listed(self) -> Entries:
        """The contents.

        Raises:
            Permanent: they are not what the record says.
        """
        record = self._record
        if record.digest_algorithm not in ("", manifests.DIGEST_ALGORITHM):
            raise Permanent(f"its digests are {shown(record.digest_algorithm)}, which is not known here", status=0)
        if record.manifest.manifest_file_path:
            path, finder = record.manifest.manifest_file_path, self._common.finder
            return manifests.listed_in(lambda: finder.open_list(path), record.digest)
        entries = manifests.listed(record.manifest)
        if record.digest != manifests.digest_of(entries()):
            raise Permanent("its digest is not that of its contents", status=0)
        return entries

    def _still_missing(self, mark: ArtifactMark) -> bool:
        """Whether none of the files that were not here the last time is here now: then nothing is asked of the server."""
        if not 0 < len(mark.lost) < _MOST_NOTED:
            return False
        lost, missing = set(mark.lost), {}
        for entry in self._entries():
            if entry.path in lost:
                try:
                    self._common.finder.find(entry)
                except UnsafeFileError as error:
                    missing[entry.path] = str(error)
                else:
                    return False
        self.missing = missing
        return bool(missing)

    def _create(self) -> ArtifactMark:
        record = self._record
        fields, otherwise = _fields(record, self._api.run.run_id), None
        if record.client_id and not self._is_own:
            otherwise = artifactclient.renamed(fields, self._api.api.base_url, self._api.run)
        created = self._api.create(fields, otherwise)
        mark = ArtifactMark(created.id, record.digest, PENDING, record.base_id or created.latest)
        if created.client_id != record.client_id:
            mark.client_id = created.client_id
        if record.client_id:
            self._common.server_ids[record.client_id] = created.id
        return self._note(mark, self._after_commit() if created.committed else PENDING)

    def _after_commit(self) -> str:
        return COMMITTED if self._record.use_after_commit else DONE

    def _note(self, mark: ArtifactMark, state: str) -> ArtifactMark:
        mark.state = state
        self._journal.note(self._key, mark)
        return mark

    def _fill(self, mark: ArtifactMark, *, known: bool) -> ArtifactMark:
        """Contents, list, commit; the mark as it is then, still pending if a file is missing.

        `known`: an earlier sync made it, and the server may have ended or forgotten it since.
        """
        name, kind = _manifest_kind(self._record)
        try:
            place = self._api.create_manifest(mark.id, mark.base, name, kind)
        except Permanent as error:
            if not known or isinstance(error, AuthError):
                raise
            self._journal.forget(self._key)
            mark = self._create()
            if mark.state != PENDING:
                return mark
            place = self._api.create_manifest(mark.id, mark.base, name, kind)
        with contextlib.closing(ManifestFile(self._layout)) as file:
            self._send_contents(mark, place, file)
            if self.missing:
                all_lost = len(self.missing) == len(self._not_here)  # others may get there the next time
                mark.lost = sorted(self._not_here)[:_MOST_NOTED] if all_lost else []
                return self._note(mark, PENDING)
            file.end()
            self._send_list(mark, place, file)
        if self._record.finalize:
            self._api.commit(mark.id)
        mark.lost = []
        return self._note(mark, self._after_commit() if self._record.finalize else DONE)

    # -- contents ----------------------------------------------------------------------------------------------------

    def _send_contents(self, mark: ArtifactMark, place: ManifestPlace, file: ManifestFile) -> None:
        """All files, batch by batch, and every entry into the list."""
        done, total = 0, self._total()
        for batch in _batches(self._entries()):
            births: dict[str, str] = {}
            files = [entry for entry in batch if entry.is_file]
            if files:
                refused_before = len(self.missing) - len(self._not_here)
                births = self._send_batch(mark, place, files)
                refused = len(self.missing) - len(self._not_here) - refused_before
                if self._late or 2 * refused > len(files):
                    return  # the storage is not there, or does not want us: no use in asking for more
            for entry in batch:
                file.add(self._resolved(entry), births.get(entry.path, entry.birth))
            done += len(files)
            self._common.progress(self._record.name, done - len(self.missing), total)

    def _send_batch(self, mark: ArtifactMark, place: ManifestPlace, files: list[Entry]) -> dict[str, str]:
        """Bring a batch of files over; path -> the artifact that has its bytes."""
        large = self._read_large(files)
        wanted = [_wanted(entry, large.get(entry.path)) for entry in files]
        places = self._api.places(mark.id, place.id, self._layout, wanted)
        pool = self._common.pool
        uploads: list[tuple[Entry, Callable[[], None]]] = []
        for entry, item, where in zip(files, wanted, places, strict=True):
            if where.url or where.parts:
                renew = partial(self._place_again, mark, place, item)
                content = large.get(entry.path)
                if where.parts and content is not None:
                    uploads.append((entry, partial(renewing, partial(self._put_parts, entry, content), where, renew)))
                else:
                    uploads.append((entry, pool.submit(self._put, entry, content, where, renew).result))
        for entry, end in uploads:
            try:
                end()
            except Interrupted:
                raise
            except UnsafeFileError as error:
                self.missing[entry.path] = str(error)
                self._not_here.append(entry.path)
            except (SyncError, OSError) as error:
                self.missing[entry.path] = why(error, entry.path)
                self._late += isinstance(error, OutOfTime)
        return {entry.path: where.birth for entry, where in zip(files, places, strict=True)}

    def _read_large(self, files: list[Entry]) -> dict[str, Content]:
        """Those that go up in parts, read: the server has to know the MD5s of the parts before it gives them places."""
        rule, finder, pool = self._common.rule, self._common.finder, self._common.pool
        reads = {
            entry.path: pool.submit(finder.find, entry, size)
            for entry in files
            if (size := rule.part_size(entry.size or 0))
        }
        found = {}
        for path, read in reads.items():
            with contextlib.suppress(UnsafeFileError):  # the server may have it; if not, it is looked for again
                found[path] = read.result()
        return found

    def _place_again(self, mark: ArtifactMark, place: ManifestPlace, item: Wanted) -> ContentPlace | None:
        again = self._api.places(mark.id, place.id, self._layout, [item])[0]
        return again if again.url or again.parts else None

    def _put(
        self, entry: Entry, content: Content | None, where: ContentPlace, renew: Callable[[], ContentPlace | None]
    ) -> None:
        """Bring one file over in one piece; runs in the pool."""
        source = content or self._common.finder.find(entry)

        def send(to: ContentPlace) -> None:
            if to.url is None:
                raise Permanent("the server gives no place for it", status=200)
            put(self._api.api, entry.path, to.url, to.headers, source)

        renewing(send, where, renew)

    def _put_parts(self, entry: Entry, content: Content, where: ContentPlace) -> None:
        """Bring one file over in parts, several at a time."""
        urls, size = where.parts or {}, self._common.rule.part_size(content.size)
        if sorted(urls) != list(range(1, len(content.parts) + 1)):
            raise Permanent(
                f"the server has places for {len(urls)} of its {counted(len(content.parts), 'part')}", status=200
            )
        kept = {name: value for name, value in where.headers.items() if name.lower() != "content-md5"}

        def send(number: int) -> str:
            headers = {**kept, "Content-MD5": base64.b64encode(content.parts[number - 1]).decode()}
            opener, length = partial(content.open_part, number, size), min(size, content.size - (number - 1) * size)
            etag = self._api.api.put(entry.path, urls[number], headers, opener, length).get("etag", "")
            if not etag:
                raise Permanent("the storage does not say by what name it keeps a part (ETag)", status=200)
            return etag

        parts = [self._common.pool.submit(send, number) for number in sorted(urls)]
        try:
            etags = [part.result() for part in parts]
        finally:
            for part in parts:
                part.cancel()
        self._api.complete(where, etags)

    # -- the list ----------------------------------------------------------------------------------------------------

    def _resolved(self, entry: Entry) -> Entry:
        """The entry, with the server's id in place of a client's."""
        if not entry.ref.startswith(CLIENT_REF):
            return entry
        client_id, slash, path = entry.ref.removeprefix(CLIENT_REF).partition("/")
        server_id = self._common.server_id(client_id)
        try:
            number = base64.b64decode(server_id, validate=True).hex()
        except ValueError:
            raise Permanent(f"the server's id of an artifact is {server_id[:40]!r}", status=200) from None
        return entry._replace(ref=f"{SERVER_REF}{number}{slash}{path}")

    def _send_list(self, mark: ArtifactMark, place: ManifestPlace, file: ManifestFile) -> None:
        name, kind = _manifest_kind(self._record)
        digest = base64.b64encode(file.md5).decode()

        def place_of_bytes() -> ManifestPlace:
            if kind == "FULL":
                return self._api.create_manifest(mark.id, mark.base, name, kind, digest)
            return self._api.update_manifest(place.id, mark.base, digest)

        def send(to: ManifestPlace) -> None:
            if to.url is not None:
                put(self._api.api, name, to.url, to.headers, file)

        renewing(send, place_of_bytes(), place_of_bytes)


def _manifest_kind(record: Any) -> tuple[str, str]:
    """The name of the list, and what it is to the others of its artifact."""
    if record.incremental_beta1:
        return "wandb_manifest.incremental.json", "INCREMENTAL"
    if record.distributed_id:
        return "wandb_manifest.patch.json", "PATCH"
    return "wandb_manifest.json", "FULL"


def _fields(record: Any, run_id: str) -> dict[str, Any]:
    """What `CreateArtifact` says of an artifact; its project and run are those that it goes to, not the log's."""
    name = record.name
    fields = {
        "runName": None if record.user_created else run_id,
        "artifactTypeName": record.type,
        "artifactCollectionName": name,
        "digest": record.digest,
        "digestAlgorithm": manifests.DIGEST_ALGORITHM,
        "description": record.description or None,
        "aliases": [{"artifactCollectionName": name, "alias": alias} for alias in dict.fromkeys(record.aliases)],
        "metadata": _finite(record.metadata) or None,
        "ttlDurationSeconds": record.ttl_duration_seconds or None,
        "historyStep": None,
        "enableDigestDeduplication": True,
        "distributedID": record.distributed_id or None,
        "clientID": record.client_id or None,
        "sequenceClientID": record.sequence_client_id or None,
        "storageRegion": None,
    }
    tags = [{"tagName": tag} for tag in dict.fromkeys(record.tags)]
    return {**fields, "tags": tags} if tags else fields


def _finite(metadata: str) -> str:
    """JSON without the NaN and infinities that servers refuse: null in their place."""
    if "NaN" not in metadata and "Infinity" not in metadata:
        return metadata
    try:
        return json.dumps(json.loads(metadata, parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        return metadata


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries in growing batches, the first ones small so that something is on its way soon."""
    limit, batch, size = _FIRST_BATCH, list[Entry](), 0
    for entry in entries:
        batch.append(entry)
        size += entry.size or 0
        if len(batch) >= limit or size >= _BATCH_BYTES:
            yield batch
            limit, batch, size = min(2 * limit, _LARGEST_BATCH), [], 0
    if batch:
        yield batch


def _wanted(entry: Entry, content: Content | None) -> Wanted:
    parts = tuple(part.hex() for part in content.parts) if content is not None else ()
    return Wanted(entry.path, entry.digest, entry.mimetype, parts)
