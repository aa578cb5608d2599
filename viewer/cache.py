"""What an exact reading found, kept for the next time that the run is looked at: in the user's cache, never beside the data.

    line of JSON: {"logs": [[device, inode, size, mtime_ns], ...], "position": .., "mark": hex}
    pickle of the reading | crc32 u32 of all before it, little-endian

A file belongs to a run's logs, to this Python and to these sources of ours: what another version wrote is not looked at. It is
unpickled only if its checksum is right, and only into classes that a reading is made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import struct
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from ..logformat import RunDirName, messages
from ..logformat.steps import ALL_STEPS
from .reading import Identity, Reading, ReplacedError

CAPACITY = 512 << 20
"""Bytes of all files together; those that were not used for longest go first."""
SMALL = 4 << 20
"""Bytes of logs that are read again as fast as their reading would be."""
_CHEAP = 64 << 20  # bytes that a log may have grown by, so that reading on is still worth it
_CRC = struct.Struct("<I")
_PIECE = 1 << 20
_LINE = 1 << 16  # bytes of the first line, at most
_SUFFIX = ".reading"
_MESSAGES = {kind: kind.DESCRIPTOR.name for kind in messages.BODIES.values()}
_PACKAGE = __name__.rpartition(".viewer.")[0]
_PLAIN = {("array", "array"), ("array", "_array_reconstructor"), ("collections", "Counter"), ("collections", "deque"),
          ("builtins", "bytearray"), ("builtins", "range"), ("builtins", "set"), ("builtins", "frozenset"),
          ("builtins", "slice")}  # fmt: skip


def folder_for(environ: Mapping[str, str]) -> Path:
    """Where readings are kept: below `XDG_CACHE_HOME` if that is an absolute path, else below `~/.cache`."""
    home = environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith(os.sep) else Path(environ.get("HOME") or os.path.expanduser("~")) / ".cache"  # noqa: PTH111 - expanduser never raises
    return base / "runferry" / "view"


class Cache:
    """Readings by logs. What cannot be kept or read is left alone: a cache is never missed."""

    def __init__(self, folder: Path, *, capacity: int = CAPACITY, small: int = SMALL) -> None:
        self._folder, self._capacity, self._small = folder, capacity, small

    def get(self, logs: Sequence[Path]) -> Reading | None:
        """What was kept of these logs, read on if the last one has grown; None if nothing fits them."""
        try:
            path = self._path(logs)
            with path.open("rb") as file:
                if not _fits(_header(file), [Identity.of(log.stat()) for log in logs]) or not _is_whole(file):
                    return None
                reading = undump(file)
            reading.logs = list(logs)  # which may have other names now
            reading.go_on()
            os.utime(path)
        except (OSError, ValueError, ReplacedError):
            return None
        return reading

    def scratch(self, logs: Sequence[Path]) -> Path | None:
        """A new file for `dump`, which `keep` takes over or the caller removes. None: these logs are not to be kept, or cannot."""
        try:
            if sum(log.stat().st_size for log in logs) <= self._small or self._is_beside(logs):
                return None
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(suffix=".part", dir=self._folder)
        except OSError:
            return None
        os.close(handle)
        return Path(name)

    def keep(self, scratch: Path, logs: Sequence[Path]) -> None:
        """Keep what stands in a file of `scratch` as the reading of these logs; what is too old or too much goes."""
        try:
            scratch.replace(self._path(logs))
        except OSError:
            with contextlib.suppress(OSError):
                scratch.unlink()
        self._evict()

    def _is_beside(self, logs: Sequence[Path]) -> bool:
        """Whether the cache lies in the directory of a run, or in the one that holds these."""
        folder = self._folder.resolve()
        runs = {log.resolve().parent for log in logs}
        return any(folder.is_relative_to(run.parent) for run in runs if RunDirName.parse(run.name))

    def _path(self, logs: Sequence[Path]) -> Path:
        status = [log.stat() for log in logs]
        key = repr((_version(), [(one.st_dev, one.st_ino) for one in status]))
        return self._folder / (hashlib.sha256(key.encode()).hexdigest()[:32] + _SUFFIX)

    def _evict(self) -> None:
        found = []
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
        room = self._capacity
        for _, size, path in sorted(found, reverse=True):
            room -= size
            if room < 0:
                with contextlib.suppress(OSError):
                    path.unlink()


def dump(reading: Reading, file: BinaryIO) -> None:
    """Write a reading as the module says. Raises OSError."""
    reader = reading.reader
    head = {
        "logs": reading.identities,
        "position": reader.position if reader else None,
        "mark": reading.mark.hex(),
    }
    out = _Summing(file)
    out.write(json.dumps(head).encode() + b"\n")
    _Pickler(out, protocol=5).dump(reading)
    file.write(_CRC.pack(out.crc))


def undump(file: BinaryIO) -> Reading:
    """The reading of a file that is known to be whole. Raises ValueError: it holds something else."""
    file.seek(0)
    _header(file)
    try:
        reading = _Unpickler(file).load()
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a pickle may raise anything
        raise ValueError(f"no reading: {error}") from error
    if not isinstance(reading, Reading):
        raise ValueError("no reading")  # noqa: TRY004 - one error for all that is wrong with a file
    return reading


def _header(file: BinaryIO) -> dict[str, Any]:
    """The first line. Raises ValueError."""
    head = json.loads(file.readline(_LINE))
    if not isinstance(head, dict):
        raise ValueError("no header")  # noqa: TRY004 - as above
    return head


def _fits(head: dict[str, Any], now: list[Identity]) -> bool:
    """Whether the logs are those that were read, the last one perhaps grown."""
    logs = head.get("logs")
    if not isinstance(logs, list) or len(logs) != len(now):
        return False
    then = [Identity(*log) if isinstance(log, list) and len(log) == 4 else None for log in logs]
    if then == now:
        return True
    last = then[-1]
    if then[:-1] != now[:-1] or last is None or head.get("position") is None:
        return False
    grown = now[-1].size - last.size
    return last[:2] == now[-1][:2] and 0 < grown <= _CHEAP


def _is_whole(file: BinaryIO) -> bool:
    """Whether the checksum is that of the file."""
    left = os.fstat(file.fileno()).st_size - _CRC.size
    file.seek(0)
    crc = 0
    while left > 0 and (piece := file.read(min(_PIECE, left))):
        crc = zlib.crc32(piece, crc)
        left -= len(piece)
    return left == 0 and file.read() == _CRC.pack(crc)


@lru_cache(maxsize=1)
def _version() -> str:
    """What has to be the same for a reading to be of use: the interpreter, and the sources of what it is made of."""
    here = Path(__file__).resolve().parent
    sources = sorted([*here.parent.glob("logformat/*.py"), here / "reading.py", here / "cache.py"])
    stamps = [(source.name, source.stat().st_size, source.stat().st_mtime_ns) for source in sources]
    return repr((sys.version, sys.byteorder, stamps))


class _Summing:
    """A file that sums up what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.crc = file, 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self._file.write(data)


class _Pickler(pickle.Pickler):
    """Messages as their bytes, since their classes are made at run time; what is compared by identity, by its name."""

    def persistent_id(self, value: Any) -> Any:
        if value is ALL_STEPS:
            return ("steps", b"")
        name = _MESSAGES.get(type(value))
        return None if name is None else (name, value.SerializeToString())


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        name, data = pid
        return ALL_STEPS if name == "steps" else getattr(messages, name).FromString(data)

    def find_class(self, module: str, name: str) -> Any:
        """Classes of logs and of readings; nothing that does anything."""
        if (module, name) == ("builtins", "getattr"):
            return _bound
        if (module, name) in _PLAIN or module.startswith((f"{_PACKAGE}.logformat.", f"{_PACKAGE}.viewer.reading")):
            found = super().find_class(module, name)
            if (module, name) in _PLAIN or isinstance(found, type):
                return found
        if (module, name) in {("pathlib", "PosixPath"), ("pathlib", "WindowsPath")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a reading")


def _bound(owner: Any, name: str) -> Any:
    """A method of an object of ours, as a state refers to its own."""
    if not type(owner).__module__.startswith(f"{_PACKAGE}.logformat."):
        raise pickle.UnpicklingError(f"a method of {type(owner).__name__} is no part of a reading")
    return getattr(owner, name)
