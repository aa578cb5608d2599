"""A file system in memory that fails on demand, and forgets what was not synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class FakeFile:
    """What a reader sees now, and what a power cut would leave."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class FaultFS:
    """The writer's `FileSystem`. Every call is noted in `calls`, and may be refused.

    `space`: bytes that still fit; a write that does not fit is taken in part, then refused with ENOSPC.
    `fail`: operation name -> errno, for every call of it until it is taken out again.
    `fail_at`: number of the call (from 0) -> errno, once.
    `short`: bytes that one write takes at most.
    `short_at`: number of the call -> bytes that it takes, once, if it is a write; counted from the end if negative.
    `before`: told each operation before it happens; may raise.
    """

    def __init__(self, space: int | None = None) -> None:
        self.space = space
        self.fail: dict[str, int] = {}
        self.fail_at: dict[int, int] = {}
        self.short: int | None = None
        self.short_at: dict[int, int] = {}
        self.before: Callable[[str], None] = lambda _operation: None
        self.calls: list[str] = []
        self.beats: list[tuple[str, str]] = []
        self.signs: dict[Path, bytes] = {}
        self.files: dict[Path, FakeFile] = {}
        self.directories: set[Path] = {Path("/")}
        self.synced_directories: list[Path] = []
        self.links: dict[Path, str] = {}
        self._open: dict[int, FakeFile] = {}
        self._next_fd = 100

    @property
    def open_count(self) -> int:
        return len(self._open)

    def logs(self) -> list[bytes]:
        """What readers see as logs, in the order in which they got their names."""
        return [bytes(file.data) for path, file in self.files.items() if path.suffix == ".wandb"]

    def _call(self, operation: str) -> None:
        self.before(operation)
        number = len(self.calls)
        self.calls.append(operation)
        code = self.fail_at.pop(number, 0) or self.fail.get(operation, 0)
        if code:
            raise OSError(code, os.strerror(code))

    def make_directories(self, path: Path) -> list[Path]:
        self._call("make_directories")
        missing = [at for at in (path, *path.parents) if at not in self.directories]
        self.directories.update(missing)
        return list(reversed(missing))

    def make_directory(self, path: Path) -> None:
        self._call("make_directory")
        if path in self.directories:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self.directories.add(path)

    def remove_directory(self, path: Path) -> None:
        self._call("remove_directory")
        self.directories.discard(path)

    def create(self, path: Path) -> int:
        self._call("create")
        if path in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._next_fd += 1
        self.files[path] = self._open[self._next_fd] = FakeFile()
        return self._next_fd

    def name(self, path: Path, name: Path) -> None:
        self._call("name")
        assert name not in self.files
        self.files[name] = self.files.pop(path)

    def write(self, fd: int, data: memoryview) -> int:
        file = self._open[fd]
        try:
            self._call("write")
        except OSError:
            file.data += data[: len(data) // 2]  # an error says nothing about how far the write came
            raise
        count = len(data) if self.short is None else min(self.short, len(data))
        if short := self.short_at.pop(len(self.calls) - 1, 0):
            count = min(short, count) if short > 0 else max(count + short, 1)
        if self.space is not None:
            if self.space == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = min(count, self.space)
            self.space -= count
        file.data += data[:count]
        return count

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate")
        file = self._open[fd]
        if self.space is not None:
            self.space += len(file.data) - size
        del file.data[size:]

    def identity(self, fd: int) -> tuple[int, int]:
        self._call("identity")
        return 0, id(self._open[fd])

    def name_count(self, fd: int) -> int:
        self._call("name_count")
        return sum(file is self._open[fd] for file in self.files.values())

    def sync_data(self, fd: int) -> None:
        self._call("sync_data")
        self._sync(fd)

    def sync_file(self, fd: int) -> None:
        self._call("sync_file")
        self._sync(fd)

    def _sync(self, fd: int) -> None:
        file = self._open[fd]
        file.durable = bytes(file.data)

    def sync_directory(self, path: Path) -> None:
        self._call("sync_directory")
        self.synced_directories.append(path)

    def close(self, fd: int) -> None:
        self._call("close")
        del self._open[fd]

    def replace_link(self, target: str, link: Path) -> None:
        self._call("replace_link")
        self.links[link] = target

    # The heartbeat's calls and files are noted apart: they must not move the numbers of those that matter.

    def _beat(self, operation: str, path: Path) -> None:
        self.beats.append((operation, path.name))
        code = self.fail.get(operation, 0)
        if code:
            raise OSError(code, os.strerror(code), str(path))

    def put(self, path: Path, data: bytes) -> None:
        self._beat("put", path)
        if path in self.signs:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self.signs[path] = data

    def touch(self, path: Path) -> None:
        self._beat("touch", path)
        if path not in self.signs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def remove(self, path: Path) -> None:
        self._beat("remove", path)
        if self.signs.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
