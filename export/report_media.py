"""Small pictures of a run's folder, to stand in the page themselves. What a log says of where they are is not believed."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

_KINDS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"))


def picture(folders: Sequence[Path], name: str, most: int) -> str | None:
    """The `data:` address of a picture: PNG, JPEG, GIF or WebP, by its first bytes; None where `media_file` gives none."""
    content = media_file(folders, name, most)
    kind = _kind(content) if content else None
    return f"data:image/{kind};base64,{b64encode(content).decode()}" if content and kind else None


def media_file(folders: Sequence[Path], name: str, most: int) -> bytes | None:
    """The bytes of a file that a run logged, if they are at most `most`.

    Args:
        folders: run directories, of which the first that has it counts; below them it lies in `files/`.
        name: the path as logged, with slashes.
        most: bytes.

    Returns:
        None where there is no such file. Only a regular file is read that really lies below `files/`: no way to it leads through
        a symbolic link.
    """
    parts = name.split("/")
    if not all(parts) or {".", ".."} & {*parts} or any(char in part for part in parts for char in "\0\\:"):
        return None
    contents = (_read(folder / "files", parts, most) for folder in folders)
    return next((content for content in contents if content), None)


def _read(root: Path, parts: Sequence[str], most: int) -> bytes | None:
    path = root
    try:
        for part in parts:
            path /= part
            if stat.S_ISLNK(path.lstat().st_mode):
                return None
        # What is put in place of the file after that look is refused by the flag, or is no regular file.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= most:
            return None
        content = b""
        while len(content) <= most and (piece := os.read(handle, most + 1 - len(content))):
            content += piece
    except OSError:
        return None
    finally:
        os.close(handle)
    return content if len(content) <= most else None


def _kind(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _KINDS if content.startswith(magic)), None)
