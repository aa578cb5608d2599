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
    # Opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        content = b"" if status.st_size > most else file.read(most + 1)  # a file of /proc says that its size is 0
        if status.st_size > most or len(content) > most:
            raise ValueError(f"it is larger than {most} bytes")
        return content
