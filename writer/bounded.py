"""Reading small files that others wrote: bounded, and never waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else than a file, or larger.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        content = b"" if status.st_size > most else file.read(most + 1)  # a file of /proc says that its size is 0
        if status.st_size > most or len(content) > most:
            raise ValueError(f"it is larger than {most} bytes")
        return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait for its writer
