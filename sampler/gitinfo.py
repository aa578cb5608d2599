"""Remote and commit of the repository around a folder, read from its files; on request, what is not committed.

Only `diff` runs a command.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from .redact import MARK, known_secrets, redact_text

_CAP = 4 << 20  # bytes; packed-refs of a large repository
MAX_DIFF = 10 << 20
"""Bytes of a diff; a larger one is of data, not of code."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
_SECTION = re.compile(r'\[\s*remote\s+"(?P<name>[^"]*)"\s*\]')


_DIFF = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--"),
)


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


def _remote_url(common: Path, *, redact: bool) -> str | None:
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
    return redact_text(url).text.replace(MARK, "") if url is not None and redact else url


def find(start: Path, *, redact: bool = True) -> GitState | None:
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
            return GitState(root, _commit(folder, common), _remote_url(common, redact=redact))
    return None


class Diff(NamedTuple):
    """What of a working tree is not committed, as `git apply` takes it unless it was cut or redacted."""

    patch: bytes
    cut: bool
    """Whether there was more than the limit."""
    redacted: int
    """Secrets that were taken out."""


def diff(root: Path, *, limit: int = MAX_DIFF, timeout_s: float = 5.0, redact: bool = True) -> Diff:
    """The changes of tracked files since the last commit.

    Runs `git`, which writes nothing (its index is left as it is) and starts none of the programs that a repository may
    name for watching and comparing files (what filters they have, as large files do, belongs to their content). Of values that stand beside a telling name, only literals in quotes are taken out.

    Args:
        root: the working tree's top folder.
        limit: bytes; the rest is cut off behind a line.
        timeout_s: seconds; then the command is ended.
        redact: take secrets out.

    Raises:
        OSError: there is no `git`, it failed, or took too long.
    """
    with subprocess.Popen(  # noqa: S603 - a fixed command
        _DIFF, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            text = process.stdout.read(limit + 1) if process.stdout else b""
            cut = len(text) > limit
            if cut:
                process.kill()
            code = process.wait()
        finally:
            timer.cancel()
    if code and not cut:
        why = f"took longer than {timeout_s:.0f} s" if code < 0 else f"ended with {code}"
        raise OSError(f"git diff in {root} {why}")
    if cut:
        text = text[: text.rfind(b"\n", 0, limit) + 1]
    if not redact:
        return Diff(text, cut, 0)
    found = redact_text(text.decode("utf-8", "surrogateescape"), known=known_secrets(os.environ), code=True)
    return Diff(found.text.encode("utf-8", "surrogateescape"), cut, found.removed)
