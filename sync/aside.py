"""Another process of ours that reads regions of a log: one interpreter makes lines no faster than one core lets it.

It gets the log as an open file, reads where it is told to by its standard input, and answers on its standard output. It
ends when the one who started it does, whatever end that was.

    request  = edge u64                              little-endian
    answer   = length u32 | marshal(packed region)   in the order of the requests; length 0: read it from the front
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import BinaryIO

from .region import Region, Regions, unpack

_REQUEST, _ANSWER = struct.Struct("<Q"), struct.Struct("<I")
_PIPE_SIZE = 1 << 20  # bytes: what one may be ahead of the other; systems give an ordinary process no more
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # parts of names of variables that a reader of logs has no use for


class Aside:
    """The other process, from outside. Not for several threads at once."""

    def __init__(self, log: BinaryIO) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", __name__, str(log.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=os.sep,
            env=_environment(),
            pass_fds=(log.fileno(),),
        )
        self.asked: deque[int] = deque()
        """The edges of the answers that are still to come."""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # then it is ahead by less
                fcntl.fcntl(self._pipes[1], fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        return process.stdin, process.stdout  # type: ignore[return-value]

    def ask(self, edge: int) -> None:
        """Have it read the region behind an edge.

        Raises:
            OSError: it is no more.
        """
        self._pipes[0].write(_REQUEST.pack(edge))
        self.asked.append(edge)

    def has_answer(self) -> bool:
        """Whether `answer` need not wait long."""
        return bool(select.select([self._pipes[1]], [], [], 0)[0])

    def answer(self) -> tuple[int, Region | None]:
        """The next answer, waited for: the edge, and what is behind it.

        Raises:
            OSError: it is no more.
        """
        out = self._pipes[1]
        (size,) = _ANSWER.unpack(_exactly(out, _ANSWER.size))
        return self.asked.popleft(), unpack(marshal.loads(_exactly(out, size))) if size else None  # noqa: S302 - ours

    def close(self) -> None:
        """End it."""
        self._process.kill()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()


def _environment() -> dict[str, str]:
    """Ours without keys. Modules come from where ours came from, never from the working folder: its `json.py` may be anybody's."""
    found = {name: text for name, text in os.environ.items() if not any(part in name for part in _SECRETS)}
    places = [str(Path(place).absolute()) for place in found.get("PYTHONPATH", "").split(os.pathsep) if place]
    return {**found, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(places)}


def _exactly(pipe: BinaryIO, size: int) -> bytearray:
    """So many bytes of a pipe.

    Raises:
        OSError: it ends before.
    """
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = pipe.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise BrokenPipeError("the other process is no more")
        at += count
    return data


class _Shared(io.RawIOBase):
    """A file that another process reads, too: with a place of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at = descriptor, 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset if whence == os.SEEK_SET else os.fstat(self._descriptor).st_size + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        data = os.pread(self._descriptor, size, self._at)
        self._at += len(data)
        return data


def serve(log: BinaryIO, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    regions = Regions(log)
    while request := requests.read(_REQUEST.size):
        (edge,) = _REQUEST.unpack(request)
        try:
            region = regions.read(edge)
        except OSError:  # whoever reads from the front will meet it, and say so
            region = None
        packed = marshal.dumps(region.pack()) if region is not None else b""
        answers.write(_ANSWER.pack(len(packed)))
        answers.write(packed)
        answers.flush()


def main() -> None:
    """The other process, from inside."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is told to end by whoever started it
    with (
        contextlib.suppress(OSError),
        open(0, "rb", buffering=0, closefd=False) as requests,
        open(1, "wb", closefd=False) as answers,
    ):
        shared: BinaryIO = _Shared(int(sys.argv[1]))  # type: ignore[assignment]
        answers_raw: BinaryIO = answers
        serve(shared, requests, answers_raw)


if __name__ == "__main__":
    main()
