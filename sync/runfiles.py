"""The files of a run: which ones there are, whether they may be read, and getting their bytes to the server.

Two kinds: files that the log's records name (their paths come from the log, so they are not trusted), and files that
every run has at the server and that are made here from the log: summary, config, environment, console text. The run
directory is only read.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, BinaryIO

from . import yamltext
from .api import Api, RemoteRun, UploadTargets
from .cursor import FileMark, time_mark
from .errors import AuthError, Interrupted, OutOfTime, Permanent, SyncError
from .localfiles import Opener, Shared, UnsafeFileError, clean_name, files_below, find_safely, shown, why
from .uploads import MIB, put, renewing

SUMMARY_FILE = "wandb-summary.json"
CONFIG_FILE = "config.yaml"
METADATA_FILE = "wandb-metadata.json"
CONSOLE_FILE = "output.log"

_FIRST_BATCH, _LARGEST_BATCH = 64, 1024  # files asked for in one request; after each such batch the cursor is saved
_BATCH_BYTES = 1024 * MIB
_PART = 1024 * 1024
_IN_MEMORY = 4 * 1024 * 1024  # bytes of console text that need no temporary file


@dataclass(frozen=True)
class RunFile:
    """A file to upload. `open` gives its bytes from the start; each call a new reader."""

    name: str
    size: int
    mtime_ns: int
    """As `time_mark` gives it; 0 for files made here."""
    open: Opener
    sha256: str = ""
    """Known at once for files made here; empty until it is needed for others."""

    def open_at(self, start: int) -> BinaryIO:
        """Its bytes from further on."""
        file = self.open()
        file.seek(start)
        return file


@dataclass
class Uploaded:
    """What became of the files of a run."""

    done: dict[str, FileMark]
    """Files that the server has now, also those that it had before."""
    sent: list[str]
    missing: list[str]
    """`name: reason`."""
    only_late: int = 0
    """How many of the missing ones are missing only because the server or the network was not there."""


def made_here(name: str, data: bytes) -> RunFile:
    """A file whose bytes lie in memory."""
    return RunFile(name, len(data), 0, lambda: io.BytesIO(data), hashlib.sha256(data).hexdigest())


def config_file(tree: dict[str, object]) -> RunFile:
    """config.yaml: the config tree that the server also gets as JSON."""
    return made_here(CONFIG_FILE, yamltext.dump(tree).encode())


def metadata_file(environment: dict[str, object]) -> RunFile:
    """wandb-metadata.json: the environment record."""
    return made_here(METADATA_FILE, json.dumps(environment, indent=2).encode())


class ConsoleFile:
    """output.log: the console's text without times, gathered line by line; large ones go through a temporary file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - lives until `close`
        self._digest = hashlib.sha256()
        self._size = 0

    def add(self, text: str) -> None:
        """Append a line."""
        line = text.encode("utf-8", "replace") + b"\n"
        self._file.write(line)
        self._digest.update(line)
        self._size += len(line)

    def as_file(self) -> RunFile | None:
        """The file, or None if there was no output. Read by one upload at a time."""
        if not self._size:
            return None
        return RunFile(CONSOLE_FILE, self._size, 0, lambda: Shared(self._file), self._digest.hexdigest())

    def close(self) -> None:
        """Forget the text."""
        self._file.close()


def by_home(names: Iterable[str], own: Path, others: Iterable[Path]) -> dict[Path, list[str]]:
    """The names that a log records, by the run directory to look in: its own, or another one of the same run.

    After a failed sync of the disk a log goes on in a new directory, and names media that lie in the one before. Their
    names bear the hash of what they hold; other files of the same name may have been others then.
    """
    homes: dict[Path, list[str]] = {}
    for name in names:
        places = (own, *others) if name.startswith("media/") else (own,)
        home = next((place for place in places if os.path.lexists(place / "files" / name)), own)
        homes.setdefault(home, []).append(name)
    return homes


def recorded_files(
    run_dir: Path, names: Iterable[str], *, follow_links: bool = False, had: Collection[str] = ()
) -> tuple[list[RunFile], dict[str, str]]:
    """The files that a log names, as far as they may be read, and the reason for each that may not or is not there.

    A name is taken literally if such a file exists, else as a pattern inside `files/`. With `follow_links` a link is read
    wherever it leads. What is not there any more is not missing if the server `had` it.
    """
    files: dict[str, RunFile] = {}
    missing: dict[str, str] = {}
    root = run_dir / "files"
    listing: list[str] | None = None
    for name in names:
        clean = name
        try:
            clean = clean_name(name)
            if clean in had and not os.path.lexists(root / clean):
                continue
            if os.path.lexists(root / clean) or not glob.has_magic(clean):
                files[clean] = open_safely(run_dir, clean, follow_links=follow_links)
                continue
        except UnsafeFileError as error:
            missing[clean] = str(error)
            continue
        listing = sorted(files_below(root)) if listing is None else listing
        pattern = _levels(clean)
        matches = [match for match in listing if _fits(match, pattern)]
        for match in matches:
            try:
                files[match] = open_safely(run_dir, clean_name(match), follow_links=follow_links)
            except UnsafeFileError as error:
                missing[match] = str(error)
        if not matches and not any(_fits(one, pattern) for one in had):
            missing[clean] = "no file matches"
    return list(files.values()), missing


def missing_lines(missing: Mapping[str, str]) -> list[str]:
    """`name: reason`, for people."""
    return [f"{shown(name)}: {reason}" for name, reason in missing.items()]


def fits(name: str, pattern: str) -> bool:
    """Whether a file's name fits a pattern of names: `*`, `?` and `[..]` within a level, `**` for any levels."""
    return _fits(name, _levels(pattern))


def _levels(name: str) -> list[str]:
    """The levels of a path or pattern, of several `**` in a row one."""
    levels = name.split("/")
    return [level for level, before in zip(levels, ["", *levels], strict=False) if not level == before == "**"]


def _fits(name: str, pattern: list[str]) -> bool:
    """Whether a path fits the levels of a pattern: the places in it that it may be at are followed side by side."""
    places = {0}
    for level in _levels(name):
        places = {
            place if pattern[place] == "**" else place + 1
            for place in _or_behind(places, pattern)
            if place < len(pattern) and (pattern[place] == "**" or fnmatch.fnmatchcase(level, pattern[place]))
        }
    return len(pattern) in _or_behind(places, pattern)


def _or_behind(places: set[int], pattern: list[str]) -> set[int]:
    """`places`, and those behind a `**`, which may also stand for no level at all."""
    return places | {place + 1 for place in places if pattern[place : place + 1] == ["**"]}


def open_safely(run_dir: Path, name: str, *, follow_links: bool = False) -> RunFile:
    """The file `name` below `files/`.

    Raises:
        UnsafeFileError: it is not there, or may not be read.
    """
    opener, status = find_safely(run_dir, name, follow_links=follow_links)
    return RunFile(name, status.st_size, time_mark(status), opener)


def is_unchanged(file: RunFile, mark: FileMark | None) -> bool:
    """Whether the server has these bytes already: same size and time for files on disk, same hash for files made here."""
    if mark is None or mark.size != file.size:
        return False
    return mark.sha256 == file.sha256 if file.sha256 else mark.mtime_ns == file.mtime_ns


def upload(
    api: Api,
    run: RemoteRun,
    files: list[RunFile],
    *,
    known: dict[str, FileMark],
    pool: Executor,
    save: Callable[[dict[str, FileMark]], None],
) -> Uploaded:
    """Bring `files` to the server, those that it does not have (`known`) in parallel; one failure never stops the others.

    `save` is called with all files done so far, after each batch.

    Raises:
        AuthError: the server does not know the key.
        Interrupted: the sync was stopped.
    """
    result = Uploaded({}, [], [])
    for batch in _batches(_changed(files, known, result)):
        _upload_batch(api, run, batch, pool, result)
        save(result.done)
    result.missing.sort()
    return result


def _changed(files: Iterable[RunFile], known: dict[str, FileMark], result: Uploaded) -> Iterator[RunFile]:
    """Those that the server does not have, with their hash; the others are done."""
    for file in files:
        mark = known.get(file.name)
        if mark is not None and is_unchanged(file, mark):
            result.done[file.name] = mark
            continue
        try:
            digest = file.sha256 or _hash(file)
        except (OSError, UnsafeFileError) as error:
            result.missing.append(f"{shown(file.name)}: {why(error, file.name)}")
            continue
        if mark is not None and (mark.size, mark.sha256) == (file.size, digest):  # touched, but the same bytes
            result.done[file.name] = FileMark(file.size, file.mtime_ns, digest, mark.told)
            continue
        yield replace(file, sha256=digest)


def _upload_batch(api: Api, run: RemoteRun, batch: list[RunFile], pool: Executor, result: Uploaded) -> None:
    try:
        targets = api.upload_targets(run, [file.name for file in batch])
    except Interrupted:
        raise
    except SyncError as error:
        if isinstance(error, AuthError) and error.status == 401:  # the key: nothing else would get through either
            raise
        result.missing.extend(f"{shown(file.name)}: {error}" for file in batch)
        result.only_late += len(batch) if isinstance(error, OutOfTime) else 0
        return
    futures = [(file, pool.submit(_put, api, run, file, targets)) for file in batch]
    for file, future in futures:
        try:
            future.result()
        except Interrupted:
            raise
        except (SyncError, OSError, UnsafeFileError) as error:
            result.missing.append(f"{shown(file.name)}: {why(error, file.name)}")
            result.only_late += isinstance(error, OutOfTime)
        else:
            result.sent.append(file.name)
            result.done[file.name] = FileMark(file.size, file.mtime_ns, file.sha256)


def _put(api: Api, run: RemoteRun, file: RunFile, targets: UploadTargets) -> None:
    if file.name not in targets.urls:
        raise Permanent("the server gave no place for it", status=200)

    def send(to: UploadTargets) -> None:
        url = to.urls[file.name]
        if url is not None:
            put(api, file.name, url, to.headers, file)

    def renew() -> UploadTargets | None:
        again = api.upload_targets(run, [file.name])
        return again if again.urls.get(file.name) is not None else None

    renewing(send, targets, renew)


def _batches(files: Iterable[RunFile]) -> Iterator[list[RunFile]]:
    """Growing batches: the first small ones are on their way while the others are read. Places expire, so there is a limit."""
    limit, batch, size = _FIRST_BATCH, list[RunFile](), 0
    for file in files:
        batch.append(file)
        size += file.size
        if len(batch) >= limit or size >= _BATCH_BYTES:
            yield batch
            limit, batch, size = min(4 * limit, _LARGEST_BATCH), [], 0
    if batch:
        yield batch


def _hash(file: RunFile) -> str:
    """The SHA-256 of as much as is going to be sent, whatever is appended meanwhile."""
    digest, left = hashlib.sha256(), file.size
    with file.open() as data:
        while part := data.read(min(_PART, left)):
            digest.update(part)
            left -= len(part)
    return digest.hexdigest()
