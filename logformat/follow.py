"""A log while it is written: each record as it comes, until the run's end, or until nobody writes any more."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .reader import LogReader
from .record import Gap, Record
from .sources import GZIP, ZSTD

INTERVAL_S = 0.5
_MARK = 64  # bytes before the place that was read up to, by which the same log is known again
_PIECE = 1 << 16


class PackedError(ValueError):
    """Packed data does not grow as a log does."""


class Follower:
    """Follows one log. Not for several threads at once."""

    def __init__(
        self,
        log: Path,
        *,
        lives: Callable[[], bool],
        sleep: Callable[[float], object],
        make: Callable[[BinaryIO], LogReader] = LogReader,
    ) -> None:
        """Nothing is read yet.

        Args:
            log: the log.
            lives: whether somebody still writes it; asked when nothing came.
            sleep: waits so many seconds; a port for tests.
            make: makes the reader.
        """
        self._log, self._lives, self._sleep, self._make = log, lives, sleep, make
        self._mark = b""
        self._identity: tuple[int, int] | None = None
        self._last = 0
        self.reader: Any = None
        """What reads it now: another one after the file was replaced by something else."""

    def items(self) -> Iterator[Record | Gap | str]:
        """Records and gaps as they come, and words on what happens to the file.

        Raises:
            OSError: it cannot be opened or read.
            PackedError: it is packed.
        """
        with self._log.open("rb", buffering=0) as file:
            self._take(file)
            if file.read(len(ZSTD)).startswith((GZIP, ZSTD)):
                raise PackedError(f"{self._log} is packed, and does not grow as a log does")
            self.reader = self._make(file)
            yield from self._until_end(file)

    def _until_end(self, file: BinaryIO) -> Iterator[Record | Gap | str]:
        is_last = False
        opened: BinaryIO | None = None
        try:
            while True:
                has_ended = yield from self._poll(opened or file)
                if has_ended or is_last:
                    break
                is_last = not self._lives()  # what it wrote before it went is still to be read
                if not is_last:
                    self._sleep(INTERVAL_S)
                renewed = yield from self._look(opened or file)
                if renewed is not None:
                    if opened is not None:
                        opened.close()
                    opened = renewed
            yield from self.reader.finish()
        finally:
            if opened is not None:
                opened.close()

    def _poll(self, file: BinaryIO) -> Generator[Record | Gap, None, bool]:
        """What came; whether the run has ended."""
        has_ended = False
        for item in self.reader.poll():
            if isinstance(item, Record):
                has_ended = has_ended or item.kind == "exit"
                self._last = item.num
            yield item
        begin = max(0, self.reader.position - _MARK)
        file.seek(begin)
        self._mark = file.read(self.reader.position - begin)
        return has_ended

    def _look(self, file: BinaryIO) -> Generator[str, None, BinaryIO | None]:
        """Whether the file is what it was; another one that was opened, if it was replaced."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            if self._lives is not bool:  # it was not said yet
                yield f"{self._log} is gone: there is nothing more to follow"
            self._lives = bool  # False
            return None
        renewed: BinaryIO | None = None
        if (status.st_dev, status.st_ino) != self._identity:
            renewed = self._log.open("rb", buffering=0)
            self._take(renewed)
        now, reader = renewed or file, self.reader
        size = os.fstat(now.fileno()).st_size
        now.seek(reader.position - len(self._mark))
        if now.read(len(self._mark)) != self._mark:
            shrunk = size < reader.position
            what = f"shrank to {size} bytes, and {reader.position} were read" if shrunk else "is another log now"
            yield f"{self._log} {what}: it is read again from its beginning"
            self.reader = self._make(now)
        elif size < reader.seen:  # the beginning of a record was cut off
            reader.go_behind(reader.position, self._last)
            reader.seen = size
            reader.go_on(now)
        elif renewed is not None:
            reader.go_on(now)
        return renewed

    def _take(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        self._identity = status.st_dev, status.st_ino


class PipeFollower:
    """Follows what comes through a pipe, as it comes; it ends with the pipe, or with the run."""

    def __init__(self, read: Callable[[int], bytes], make: Callable[[BinaryIO], LogReader] = LogReader) -> None:
        """`read` gives at most so many bytes as soon as there are some, and none at the end."""
        self._read, self._held = read, _Held()
        self.reader: Any = make(self._held)  # type: ignore[arg-type]  # as much of a file as a reader needs

    def items(self) -> Iterator[Record | Gap | str]:
        """As `Follower.items`."""
        data = b""
        while len(data) < len(ZSTD) and (more := self._read(_PIECE)):
            data += more
        if data.startswith((GZIP, ZSTD)):
            raise PackedError("standard input is packed: unpack it before, as with `zstd -dc` or `gzip -dc`")
        while data:
            has_ended = False
            self._held.feed(data)
            for item in self.reader.poll():
                has_ended = has_ended or (isinstance(item, Record) and item.kind == "exit")
                yield item
            self._held.forget(self.reader._at)  # noqa: SLF001 - the reader's own package: it reads on from there
            data = b"" if has_ended else self._read(_PIECE)
        yield from self.reader.finish()


class _Held(io.RawIOBase):
    """The bytes of a pipe that came and are still needed, at their offsets."""

    def __init__(self) -> None:
        self._data, self._begin, self._at = bytearray(), 0, 0

    def feed(self, data: bytes) -> None:
        self._data += data

    def forget(self, before: int) -> None:
        del self._data[: before - self._begin]
        self._begin = before

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = self._begin + len(self._data) if whence == os.SEEK_END else offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._at - self._begin
        data = bytes(self._data[begin : begin + size if size >= 0 else len(self._data)])
        self._at += len(data)
        return data
