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
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from . import yamltext
from .api import Api, RemoteRun, UploadTargets
from .cursor import FileMark
from .errors import AuthError, Interrupted, OutOfTime, Permanent, SyncError

SUMMARY_FILE = "wandb-summary.json"
CONFIG_FILE = "config.yaml"
METADATA_FILE = "wandb-metadata.json"
CONSOLE_FILE = "output.log"

_NAMES_PER_CALL = 64  # after so many files the cursor is saved
_PART = 1024 * 1024
_IN_MEMORY = 4 * 1024 * 1024  # bytes of console text that need no temporary file


class UnsafeFileError(Exception):
    """A recorded file that is not read, and why."""


@dataclass(frozen=True)
class RunFile:
    """A file to upload. `open` gives its bytes from the start; each call a new reader."""

    name: str
    size: int
    mtime_ns: int
    """0 for files made here."""
    open: Callable[[], BinaryIO]
    sha256: str = ""
    """Known at once for files made here; empty until it is needed for others."""


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
        return RunFile(CONSOLE_FILE, self._size, 0, lambda: _Shared(self._file), self._digest.hexdigest())

    def close(self) -> None:
        """Forget the text."""
        self._file.close()


class _Shared(io.BufferedReader):
    """Reads a file from its start and leaves it open when it is closed itself."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_Raw(file))


class _Raw(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        file.seek(0)

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True


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


def recorded_files(run_dir: Path, names: Iterable[str]) -> tuple[list[RunFile], list[str]]:
    """The files that a log names, as far as they may be read, and `name: reason` for each that may not or is not there.

    A name is taken literally if such a file exists, else as a pattern inside `files/`.
    """
    files: dict[str, RunFile] = {}
    missing: list[str] = []
    root = run_dir / "files"
    for name in names:
        try:
            clean = clean_name(name)
            if os.path.lexists(root / clean) or not glob.has_magic(clean):
                files[clean] = open_safely(run_dir, clean)
                continue
        except UnsafeFileError as error:
            missing.append(f"{_shown(name)}: {error}")
            continue
        matches = sorted(_matching(root, clean))
        for match in matches:
            try:
                files[match] = open_safely(run_dir, match)
            except UnsafeFileError as error:
                missing.append(f"{_shown(match)}: {error}")
        if not matches:
            missing.append(f"{_shown(name)}: no file matches")
    return list(files.values()), missing


def _matching(root: Path, pattern: str) -> Iterator[str]:
    """The files below `root` whose path fits a pattern: `*`, `?` and `[..]` within a level, `**` for any levels.

    Links to folders are not followed: they could lead round in circles for ever, or out.
    """
    levels = PurePosixPath(pattern).parts
    parts = tuple(part for part, before in zip(levels, ("", *levels), strict=False) if not part == before == "**")
    for folder, _, names in os.walk(root):
        above = Path(folder).relative_to(root).parts
        for name in names:
            if _fits((*above, name), parts):
                yield "/".join((*above, name))


def _fits(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path fits, level by level; the places in the pattern that it may be at are followed side by side."""
    places = {0}
    for level in path:
        places = {
            place if pattern[place] == "**" else place + 1
            for place in _or_behind(places, pattern)
            if place < len(pattern) and (pattern[place] == "**" or fnmatch.fnmatchcase(level, pattern[place]))
        }
    return len(pattern) in _or_behind(places, pattern)


def _or_behind(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    """`places`, and those behind a `**`, which may also stand for no level at all."""
    return places | {place + 1 for place in places if pattern[place : place + 1] == ("**",)}


def clean_name(name: str) -> str:
    """A recorded path as a normalised relative one.

    Raises:
        UnsafeFileError: it is absolute, leaves the folder, or is no path at all.
    """
    if not name or "\0" in name:
        raise UnsafeFileError("not a file name")
    path = PurePosixPath(name.replace("\\", "/") if os.name == "nt" else name)
    if path.is_absolute() or ".." in path.parts or (os.name == "nt" and ":" in name):
        raise UnsafeFileError("refused: it leads out of the run's files")
    if not path.parts:
        raise UnsafeFileError("not a file name")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UnsafeFileError("not a file name") from None
    return str(path)


def open_safely(run_dir: Path, name: str) -> RunFile:
    """The file `name` below `files/`: a regular one, whose links (if any) stay inside the run directory.

    Raises:
        UnsafeFileError: it is not there, no regular file, or a link leads out of the run directory.
    """
    path = run_dir / "files" / name
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(run_dir.resolve()):
            raise UnsafeFileError("refused: a link that leads out of the run directory")
        status = real.stat()
    except FileNotFoundError:
        dangling = " (a link to a file that is gone)" if path.is_symlink() else ""
        raise UnsafeFileError(f"missing{dangling}") from None
    except (OSError, RuntimeError) as error:
        raise UnsafeFileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError("refused: not a regular file")
    if not os.access(real, os.R_OK):
        raise UnsafeFileError("cannot be read: permission denied")
    return RunFile(name, status.st_size, status.st_mtime_ns, lambda: _open_regular(real))


def _open_regular(path: Path) -> BinaryIO:
    """Open a resolved path, and nothing that has taken its place since: no link, no pipe that would block for ever."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no longer a regular file")
    return os.fdopen(descriptor, "rb")


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
        Interrupted: the sync was stopped.
    """
    result = Uploaded({}, [], [])
    waiting: list[RunFile] = []
    for file in files:
        if is_unchanged(file, known.get(file.name)):
            result.done[file.name] = known[file.name]
            continue
        try:
            digest = file.sha256 or _hash(file)
        except OSError as error:
            result.missing.append(f"{_shown(file.name)}: cannot be read: {error.strerror or error}")
            continue
        mark = known.get(file.name)
        if mark is not None and (mark.size, mark.sha256) == (file.size, digest):  # touched, but the same bytes
            result.done[file.name] = FileMark(file.size, file.mtime_ns, digest, mark.told)
            continue
        waiting.append(RunFile(file.name, file.size, file.mtime_ns, file.open, digest))
    for batch in _batches(waiting):
        _upload_batch(api, run, batch, pool, result)
        save(result.done)
    result.missing.sort()
    return result


def _upload_batch(api: Api, run: RemoteRun, batch: list[RunFile], pool: Executor, result: Uploaded) -> None:
    try:
        targets = api.upload_targets(run, [file.name for file in batch])
    except Interrupted:
        raise
    except SyncError as error:
        result.missing.extend(f"{_shown(file.name)}: {error}" for file in batch)
        result.only_late += len(batch) if isinstance(error, OutOfTime) else 0
        return
    futures = [(file, pool.submit(_put, api, run, file, targets)) for file in batch]
    for file, future in futures:
        try:
            future.result()
        except Interrupted:
            raise
        except OutOfTime as error:
            result.missing.append(f"{_shown(file.name)}: {error}")
            result.only_late += 1
        except (SyncError, OSError) as error:
            result.missing.append(f"{_shown(file.name)}: {error}")
        else:
            result.sent.append(file.name)
            result.done[file.name] = FileMark(file.size, file.mtime_ns, file.sha256)


def _put(api: Api, run: RemoteRun, file: RunFile, targets: UploadTargets) -> None:
    if file.name not in targets.urls:
        raise Permanent("the server gave no place for it", status=200)
    url = targets.urls[file.name]
    if url is None:
        return
    try:
        api.put(file.name, url, targets.headers, file.open, file.size)
    except AuthError:  # a signed URL that has expired while it waited for its turn
        targets = api.upload_targets(run, [file.name])
        again = targets.urls.get(file.name)
        if again is None:
            raise
        api.put(file.name, again, targets.headers, file.open, file.size)


def _batches(files: list[RunFile]) -> Iterator[list[RunFile]]:
    for at in range(0, len(files), _NAMES_PER_CALL):
        yield files[at : at + _NAMES_PER_CALL]


def _hash(file: RunFile) -> str:
    digest = hashlib.sha256()
    with file.open() as data:
        while part := data.read(_PART):
            digest.update(part)
    return digest.hexdigest()


def _shown(name: str) -> str:
    """A name for a message: printable, and not longer than a line."""
    text = name.encode("unicode_escape").decode() if not name.isprintable() else name
    return text if len(text) <= 120 else text[:117] + "..."
