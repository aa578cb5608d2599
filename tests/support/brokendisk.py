"""A disk for bundles that fills up, or whose machine loses power, at a call of one's choice."""

from __future__ import annotations

import errno
import os

from runferry.bundle.disk import Disk


class Killed(BaseException):
    """The process is gone."""


class BrokenDisk(Disk):
    """The real disk until call number `at` (from 0): then it is as if the process were killed, or the disk were full.

    A write that is hit leaves half of its bytes. After a kill nothing more happens; a full disk stays full until space is made.
    """

    def __init__(self, at: int | None = None, *, full: bool = False) -> None:
        self.at, self.full = at, full
        self.calls: list[str] = []

    def _hit(self, name: str) -> bool:
        self.calls.append(name)
        if self.at is None or len(self.calls) <= self.at:
            return False
        if self.full:
            return name in {"write", "open", "make_folder"}
        if len(self.calls) == self.at + 1:
            return True
        raise Killed  # whatever a `finally` tries

    def _fail(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if self.full else Killed

    def _call(self, name, *arguments, **more):
        if self._hit(name):
            self._fail()
        return getattr(super(), name)(*arguments, **more)

    def open(self, path, **more):
        return self._call("open", path, **more)

    def write(self, file, data):
        if self._hit("write"):
            super().write(file, data[: len(data) // 2])
            self._fail()
        super().write(file, data)

    def truncate(self, file, size):
        self._call("truncate", file, size)

    def sync(self, file):
        self._call("sync", file)

    def replace(self, source, target, **more):
        self._call("replace", source, target, **more)

    def remove(self, path, **more):
        self._call("remove", path, **more)

    def make_folder(self, path, **more):
        self._call("make_folder", path, **more)

    def set_mtime(self, path, seconds, **more):
        self._call("set_mtime", path, seconds, **more)
