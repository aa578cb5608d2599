"""The artifacts of a run: in the order of its logs, each once, each failing alone.

How one comes over is told in `artifactupload`; the cursor remembers how far it came, so a kill goes on with the same
artifact and makes no second version.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from .artifactapi import ArtifactApi
from .artifactclient import is_its_own
from .artifactjournal import Journal, keyed
from .artifactupload import Common, PartRule, Upload
from .contents import ContentFinder
from .cursor import DONE, ArtifactMark
from .errors import AuthError, Interrupted, OutOfTime, SyncError
from .localfiles import UnsafeFileError, shown, why
from .manifest import Entry
from .report import FileProgress

if TYPE_CHECKING:
    from .work import RunWork

PARTS = PartRule()


def send_artifacts(work: RunWork) -> None:
    """Bring the artifacts of all segments to the server. What is missing of them is in `work.missing`.

    Raises:
        AuthError: the server does not know the key.
        Interrupted: the sync was stopped.
        OSError: a cursor cannot be written.
    """
    common = _common(work)
    for segment in work.segments:
        with contextlib.closing(Journal(segment)) as journal:
            is_own = not journal.elsewhere and is_its_own(work.target, segment.head)
            for key, record in keyed(segment.found.artifacts):
                _send(work, common, journal, key, record, is_own=is_own)
            for record in segment.found.used_artifacts:
                _use(work, common, journal, record)


def _common(work: RunWork) -> Common:
    remote, context = work.remote(), work.context
    log = os.fspath(work.last.head.path)
    common = Common(
        api=ArtifactApi(context.api, remote),
        finder=ContentFinder([segment.head.path.parent for segment in work.segments]),
        pool=context.uploads,
        rule=PARTS,
        features=lambda: context.features(remote.project),
        progress=lambda name, done, total: context.reporter(FileProgress(log, done, total, artifact=name)),
    )
    for segment in work.segments:
        for record in segment.found.artifacts:
            for item in record.manifest.contents:
                if item.local_path:
                    common.finder.claim(Entry(item.path, item.digest, local_path=item.local_path))
        common.server_ids.update((key, mark.id) for key, mark in segment.position.artifacts.items())
    return common


def _send(work: RunWork, common: Common, journal: Journal, key: str, record: Any, *, is_own: bool) -> None:
    """Bring one artifact over, or note what is missing of it; `is_own`: to the only place that its log is known to have."""
    mark = journal.marks.get(key)
    if mark is not None and mark.state == DONE:
        return
    shared = record.distributed_id
    if shared in common.unfinished and record.finalize:
        return  # it must not be committed without the part that is named as missing
    try:
        upload = Upload(common, key, record, journal, is_own=is_own)
        upload.run()
        if not upload.missing:
            return
        work.missing.append(upload.told())
        work.late += upload.only_late
    except Interrupted:
        raise
    except (SyncError, UnsafeFileError) as error:
        _note(work, f"artifact {shown(record.name)}", error)
    if shared:
        common.unfinished.add(shared)


def _use(work: RunWork, common: Common, journal: Journal, record: Any) -> None:
    """Tell the server that the run used an artifact which it has."""
    key = f"use:{record.id}"
    if not record.id or key in journal.marks:
        return
    try:
        common.api.use(record.id, own=False, features=frozenset())
    except Interrupted:
        raise
    except SyncError as error:
        _note(work, f"use of artifact {shown(record.name or record.id)}", error)
    else:
        journal.note(key, ArtifactMark(record.id, "", DONE))


def _note(work: RunWork, what: str, error: Exception) -> None:
    """Note that this is missing; a key that the server does not know ends the sync."""
    if isinstance(error, AuthError) and error.status == 401:
        raise error
    work.missing.append(f"{what}: {why(error)}")
    work.late += isinstance(error, OutOfTime)
