"""What lies in the directories of a run, and whether all of it is a writer's or a sync's and the server has it.

Whatever is not known keeps the run: a checkpoint that somebody saved there by hand may be nowhere else.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from .cursor import FileMark
from .filelane import MADE

_SIDE_FILE = re.compile(r"(alive|cursor|lock|synced)(\..*)?", re.DOTALL)  # `.*`: while one is being replaced
_KNOWN = {
    "artifacts": re.compile(r"[0-9a-f]{32}"),  # contents by their MD5; a complete cursor says that all are sent
    "logs": re.compile(r"debug[^/]*\.log"),  # the peer's, of itself
    "tmp": re.compile(r".*", re.DOTALL),  # what was on its way when a process was killed
}
"""Folder of a run directory -> names of files in it that are nobody's but a writer's."""
_PART = 1024 * 1024  # bytes read at a time


def reason_to_keep(folders: Mapping[Path, str], marks: Mapping[str, FileMark]) -> str:
    """The first thing in the directories of a run that is only there; empty if there is none.

    Links count for nothing: what they lead to stays where it is. Of a file that several logs of the run have saved, the
    server keeps the last one's.

    Args:
        folders: run directory, wherever it is now -> name of the log in it.
        marks: what the server has, by its name below `files/`.

    Raises:
        OSError: a folder or file cannot be looked at.
    """
    at_server = {
        name for name, mark in marks.items() if any(_is_as_sent(folder / "files" / name, mark) for folder in folders)
    }
    for folder, log_name in folders.items():
        device = folder.lstat().st_dev
        for path, status in _walk(folder):
            name = path.relative_to(folder).as_posix()
            if status.st_dev != device:
                return f"{name} is on another file system"
            if stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode) or _is_of_writer(name, log_name):
                continue
            saved = name.removeprefix("files/")
            if saved == name:
                return f"{name} is not of the run"
            if saved not in at_server and saved not in MADE:
                return f"{name} has changed since it was sent" if saved in marks else f"{name} was never sent"
    return ""


def _is_as_sent(path: Path, mark: FileMark) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != mark.size or not stat.S_ISREG(status.st_mode):
        return False
    return mark.is_of(status) or _sha256(path) == mark.sha256


def _sha256(path: Path) -> str:
    """Bytes decide where the time is another, as `cp -r` leaves it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
    return digest.hexdigest()


def _is_of_writer(name: str, log_name: str) -> bool:
    """Whether it is the log, a file beside it, or one of those that writers keep for themselves."""
    folder, _, rest = name.partition("/")
    if rest:
        return folder in _KNOWN and _KNOWN[folder].fullmatch(rest) is not None
    beside = name.removeprefix(f"{log_name}.")
    return name == log_name or (beside != name and _SIDE_FILE.fullmatch(beside) is not None)


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a folder, each folder before what is in it; links are not entered."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names are all that is needed
        path = folder / name
        status = path.lstat()
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(path)
