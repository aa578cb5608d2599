"""The heartbeat of a run that is being written: a small file beside its log, which names the process that writes it.

    run-<id>.wandb.alive    {"host": .., "boot": .., "namespaces": .., "pid": .., "start": .., "time": ..}

It is made when the log is, touched every `BEAT_EVERY_S` seconds, and removed when the run ends, however it ends, unless
the process is killed. A reader on the same machine looks for the process itself; elsewhere the time of the file tells.
An exit record in the log outweighs it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

BEAT_EVERY_S = 15.0
_MAX_SIZE = 4096  # bytes; what is larger is no heartbeat of ours
_GONE = frozenset({"Z", "X", "x"})  # states of a process that ran to its end and was not waited for yet
_NAMESPACES = ("pid", "time")  # another pid namespace: another process of that number; another time: another start


class Process(NamedTuple):
    """One process among all that ever ran on any machine, as far as the system tells."""

    host: str
    boot: str
    """The kernel's id of this boot; empty where it has none (not Linux)."""
    namespaces: str
    """Those in which `pid` and `start` hold."""
    pid: int
    start: str
    """When it began, in the kernel's ticks since boot, so that a number that was given anew is no sign of life. Empty where
    that cannot be read."""

    @classmethod
    def current(cls) -> Process:
        """This process."""
        pid = os.getpid()
        return cls(*_here(), pid, _stat(pid)[1])

    @classmethod
    def from_json(cls, document: Any) -> Process | None:
        """The process that an untrusted document names, if it names one."""
        if not isinstance(document, dict):
            return None
        pid = document.get("pid")
        texts = [document.get(name, "") for name in ("host", "boot", "namespaces", "start")]
        if type(pid) is not int or pid <= 0 or not all(isinstance(text, str) for text in texts):
            return None
        host, boot, namespaces, start = texts
        return cls(host, boot, namespaces, pid, start)

    def is_near(self) -> bool:
        """Whether its number means the same here as where it was noted: this machine, this boot, these namespaces."""
        return (self.host, self.boot, self.namespaces) == _here()

    def lives(self) -> bool | None:
        """Whether it is there now; None where that cannot be told from here."""
        if os.name == "nt" or not self.is_near():  # (os.kill would end the process there)
            return None
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            pass  # it is there, and belongs to somebody else
        state, start = _stat(self.pid)
        if not start or not self.start:
            return None
        return start == self.start and state not in _GONE


class Beat(NamedTuple):
    """A heartbeat that was found."""

    process: Process
    touched: float
    """Epoch seconds of the last sign of life, by the clock of the file system."""


def heartbeat_path(log: Path) -> Path:
    """Where the heartbeat of a log lies."""
    return log.with_name(log.name + ".alive")


def heartbeat_text(process: Process, now_s: float) -> bytes:
    """What stands in it."""
    # By hand: a run's start waits for it, and a JSON library costs more to load than all else here.
    fields = [f'"{name}": {_quoted(value)}' for name, value in process._asdict().items()]
    return f'{{{", ".join(fields)}, "time": {now_s!r}}}\n'.encode()


def read_heartbeat(log: Path) -> Beat | None:
    """The heartbeat of a log, if it has one. Never raises: what cannot be read is none."""
    import orjson

    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(heartbeat_path(log), flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SIZE:
            return None
        process = Process.from_json(orjson.loads(os.read(descriptor, _MAX_SIZE)))
    except (OSError, ValueError):
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return None if process is None else Beat(process, status.st_mtime)


def _quoted(value: str | int) -> str:
    """A value as JSON."""
    if isinstance(value, int):
        return str(value)
    text = "".join(character for character in value if character.isprintable())
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _here() -> tuple[str, str, str]:
    """Host, boot and namespaces of this process."""
    return _place_of(os.getpid())


@lru_cache(maxsize=1)
def _place_of(_: int) -> tuple[str, str, str]:
    """The same, found out once for each process: one that was forked may be in other namespaces."""
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        boot = ""
    found = []
    for name in _NAMESPACES:
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/ns/{name}"))  # noqa: PTH115 - a path object of it makes no sense
    return host, boot, " ".join(found)


def _stat(pid: int) -> tuple[str, str]:
    """State and start of a process, from `/proc`; both empty where it tells nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "", ""
    fields = text.rpartition(b")")[2].split()  # the name before may hold blanks and brackets
    if len(fields) < 20:
        return "", ""
    return fields[0].decode("ascii", "replace"), fields[19].decode("ascii", "replace")
