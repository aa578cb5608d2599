"""Remote and commit of the repository around a folder, read from its files: no command is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from .redact import MARK, redact_text

_CAP = 4 << 20  # bytes; packed-refs of a large repository
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
_SECTION = re.compile(r'\[\s*remote\s+"(?P<name>[^"]*)"\s*\]')


class GitState(NamedTuple):
    """A working tree: its top folder, the commit checked out, and the URL it came from without password."""

    root: Path
    commit: str | None
    remote_url: str | None


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_CAP).decode("utf-8", "replace")
    except OSError:
        return None


def _git_folder(entry: Path) -> Path | None:
    """What `.git` stands for: itself, or the folder that a worktree's or submodule's `.git` file names."""
    if entry.is_dir():
        return entry
    text = _read(entry) or ""
    if not text.startswith("gitdir:"):
        return None
    return entry.parent / text.partition(":")[2].strip()


def _commit(folder: Path, common: Path) -> str | None:
    head = (_read(folder / "HEAD") or "").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    ref = head.partition(":")[2].strip()
    if ".." in ref.split("/") or ref.startswith("/"):
        return None
    for base in (folder, common):
        text = (_read(base / ref) or "").strip()
        if _COMMIT.fullmatch(text):
            return text
    for line in (_read(common / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref and _COMMIT.fullmatch(commit):
            return commit
    return None


def _remote_url(common: Path) -> str | None:
    """The URL of `origin`, else of the first remote."""
    urls: dict[str, str] = {}
    remote = None
    for line in (_read(common / "config") or "").splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = _SECTION.match(stripped)
            remote = section["name"] if section else None
        elif remote is not None:
            key, _, value = stripped.partition("=")
            if key.strip() == "url":
                urls.setdefault(remote, value.strip().strip('"'))
    url = urls.get("origin") or next(iter(urls.values()), None)
    return None if url is None else redact_text(url).text.replace(MARK, "")


def find(start: Path) -> GitState | None:
    """The repository around `start`, None if there is none. Unreadable parts are None."""
    for root in (start, *start.parents):
        entry = root / ".git"
        try:
            folder = _git_folder(entry) if entry.exists() else None
        except OSError:
            return None
        if folder is not None:
            shared = _read(folder / "commondir")
            common = folder if shared is None else folder / shared.strip()
            return GitState(root, _commit(folder, common), _remote_url(common))
    return None
