"""File contents, stored under the SHA-256 of their bytes: no name that a client chose ever becomes a path."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class Blob:
    """One stored content: `digest` (SHA-256, hex) is its address, `md5` (hex) is what clients compare."""

    digest: str
    size: int
    md5: str


class Upload:
    """One body on its way in: `write` chunks, then `finish` (on disk, fsynced), or `discard`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / secrets.token_hex(16)
        self.size = 0
        self.is_kept = False
        self._file: BinaryIO = open(self.path, "xb", buffering=0)  # noqa: SIM115, PTH123 - closed by finish and discard
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, chunk: bytes | bytearray) -> None:
        """Appends; an unbuffered file may take less than it was given."""
        view = memoryview(chunk)
        while view:
            view = view[self._file.write(view) :]
        self._sha256.update(chunk)
        self._md5.update(chunk)
        self.size += len(chunk)

    @property
    def md5(self) -> str:
        """Hex MD5 of what was written so far."""
        return self._md5.hexdigest()

    def finish(self) -> Blob:
        """Makes the bytes durable; the caller then gives them their place with `BlobFolder.keep`."""
        os.fsync(self._file.fileno())
        self._file.close()
        return Blob(self._sha256.hexdigest(), self.size, self._md5.hexdigest())

    def discard(self) -> None:
        """Forgets the bytes; does nothing once `BlobFolder.keep` has moved them."""
        self._file.close()
        if not self.is_kept:
            self.path.unlink(missing_ok=True)


class BlobFolder:
    """`blobs/ab/abcdef...` for whole contents, `incoming/` for uploads that may still break off."""

    def __init__(self, root: Path) -> None:
        self._blobs = root / "blobs"
        self._incoming = root / "incoming"
        self._blobs.mkdir(mode=0o700, exist_ok=True)
        self._incoming.mkdir(mode=0o700, exist_ok=True)
        for left_over in self._incoming.iterdir():  # of a process that was killed; never acknowledged
            left_over.unlink()

    def upload(self) -> Upload:
        """Begins an upload."""
        return Upload(self._incoming)

    def keep(self, upload: Upload, blob: Blob) -> None:
        """Moves a finished upload to its address, durably."""
        path = self.path(blob.digest)
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
            _sync_folder(self._blobs)
        upload.path.replace(path)
        upload.is_kept = True
        _sync_folder(path.parent)

    def path(self, digest: str) -> Path:
        """Where a content lies."""
        return self._blobs / digest[:2] / digest

    def remove(self, digest: str) -> None:
        """Deletes a content that no file refers to any more."""
        self.path(digest).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there; NTFS journals renames
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
