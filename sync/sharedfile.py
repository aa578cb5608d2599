"""A few numbers that the processes of one user share, in a small file under an advisory lock. Best effort: it never fails a sync.

    <crc32 of the rest, 8 hex digits> <JSON object of numbers>, padded with blanks to 4,096 bytes

One record, written in place by one `pwrite` by whoever holds the lock, so there is nothing to clean up after a kill. What is torn, old,
from the future or not ours is as good as no file. The lock is `flock` (on NFS the kernel makes it a lock at the server, which
also makes the client read fresh bytes); it is never waited for longer than a moment. A file that cannot be made, locked or
read leaves its process on its own for a while: it still hears every word of the server.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import orjson

if sys.platform != "win32":  # which has no such lock: each process goes alone there
    import fcntl

Numbers = Mapping[str, "float | None"]

_SIZE = 4096  # bytes
_TRIES = 20
_PAUSE_S = 0.001  # between tries: others hold the lock for some microseconds
_STOPPED_S = 1.0  # before a lock is tried again whose holder seems to have been stopped
_ALONE_S = 30.0  # after a failure
_SLOW_S = 0.1  # a file that takes longer than this costs more than it is worth
OLD_S = 1000.0  # nothing in it is older than the longest wait
FUTURE_S = 5.0  # a clock was set back


class Held:
    """The numbers while the lock is held: what was read, and where to put what comes of it."""

    def __init__(self) -> None:
        self.numbers: Numbers | None = None
        """None where there is nothing to believe, or nobody has written since this process did."""
        self.put: Numbers | None = None
        """To be written when the lock is given back."""


class SharedFile:
    """The file at `path`; one thread at a time. `pause` and `now` (seconds since the epoch) are ports."""

    def __init__(self, path: Path, *, now: Callable[[], float], pause: Callable[[float], None] = time.sleep) -> None:
        self.path = path
        self._now = now
        self._pause = pause
        self._file = -1
        self._alone_until = float("-inf")
        self._ours = b""
        """What this process wrote last."""

    @contextlib.contextmanager
    def held(self) -> Iterator[Held | None]:
        """The numbers under the lock; None where they are not to be had now. Raises nothing of its own."""
        began = time.monotonic()
        if began < self._alone_until or not self._lock():
            yield None
            return
        held = Held()
        try:
            held.numbers = self._read()
            yield held
            if held.put is not None:
                self._write(held.put)
        finally:
            self._unlock()
            if time.monotonic() - began > _SLOW_S:
                self._alone_until = time.monotonic() + _ALONE_S

    def close(self) -> None:
        """Let the file go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self) -> bool:
        try:
            if self._file >= 0 and os.fstat(self._file).st_nlink == 0:  # somebody tidied up
                self.close()
            if self._file < 0:
                self._file = _open_private(self.path)
            if any(self._try_lock() for _ in range(_TRIES)):
                return True
            self._alone_until = time.monotonic() + _STOPPED_S
        except OSError:  # read-only, full, no locks there, a link, not ours
            self.close()
            self._alone_until = time.monotonic() + _ALONE_S
        return False

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._pause(_PAUSE_S)
            return False
        return True

    def _unlock(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read(self) -> Numbers | None:
        try:
            record = os.pread(self._file, _SIZE, 0)
        except OSError:
            return None
        if record == self._ours:
            return None
        crc, _, text = record.partition(b" ")
        if crc != _crc(text):
            return None
        try:
            numbers = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(numbers, dict) or not all(_is_number(value) for value in numbers.values()):
            return None
        written = numbers.pop("written", None)
        now = self._now()
        return numbers if written is not None and now - OLD_S <= written <= now + FUTURE_S else None

    def _write(self, numbers: Numbers) -> None:
        text = orjson.dumps({"written": self._now(), **numbers}).ljust(_SIZE - 9)
        self._ours = _crc(text) + b" " + text
        with contextlib.suppress(OSError):
            os.pwrite(self._file, self._ours, 0)


def _crc(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _open_private(path: Path) -> int:
    """Open or make a file that only its owner can read, in a folder of the same kind.

    Raises:
        OSError: it cannot be made, or is a link (of either kind), no ordinary file, or somebody else's.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
        os.close(file)
        raise PermissionError(f"{path} is not an ordinary file of ours")
    return file
