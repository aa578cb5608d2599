"""The port through which probes see the machine: files under a root, one clock reading per tick, shared caches."""

from __future__ import annotations

import os
import threading
from functools import cached_property

from . import cgroup, proctree
from .settings import SamplerSettings

LIMITS_EVERY = 20  # ticks between two looks at the limits, which change when a pod is resized
_READ_CAP = 16 << 20  # bytes of one file; the largest real one (/proc/net/dev of a big host) is far below
_CHUNK = 1 << 16
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_own_pids: set[int] = set()  # of all samplers of this process


class Context:
    """One per thread that samples. Paths are absolute as on Linux and are looked up below `root`.

    Files are read by system calls directly: a sample reads dozens of tiny files, and `pathlib` would triple its cost.
    """

    def __init__(self, settings: SamplerSettings, *, root: str = "/", own_pids: set[int] | None = None) -> None:
        self.settings = settings
        self.root = root
        self.own_pids = _own_pids if own_pids is None else own_pids  # helper processes, not to be counted
        self.now = 0.0  # s, monotonic clock, taken once per tick
        self.tick = -1
        self.cut = ""  # why processes were left out, once some were
        self.closing = threading.Event()  # set when a call that still waits is no longer wanted
        self._prefix = root.rstrip("/")
        self._processes: proctree.Snapshot | None = None
        self._root: proctree.Key | None = None  # the monitored process, once it was seen
        self._limits: cgroup.Limits | None = None
        self._limits_tick = 0

    def begin(self, now: float) -> None:
        """Start a tick at monotonic time `now` (s): forget what was cached for the last one."""
        self.now = now
        self.tick += 1
        self._processes = None

    def path(self, path: str) -> str:
        """Where `path` really lies."""
        return self._prefix + path

    def read(self, path: str) -> str | None:
        """The text of a file, or None if it cannot be read (absent, no permission, process gone)."""
        try:
            fd = os.open(self._prefix + path, _FLAGS)
        except (OSError, ValueError):
            return None
        try:
            data = bytearray(chunk := os.read(fd, _CHUNK))
            # A piece however short is not the end: the kernel ends it before a line that the page does not hold,
            # such as that of an overlay of many layers in mountinfo, or of an NFS mount in mountstats.
            while chunk and len(data) < _READ_CAP:
                chunk = os.read(fd, _CHUNK)
                data += chunk
        except OSError:
            return None
        finally:
            os.close(fd)
        return data.decode("utf-8", "replace")

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`, a dangling link included."""
        return os.path.lexists(self._prefix + path)

    def list(self, path: str) -> list[str]:
        """The sorted names in a folder; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self._prefix + path))  # noqa: PTH208 - see the class
        except (OSError, ValueError):
            return []

    def link(self, path: str) -> str | None:
        """The target of a symbolic link, None if it is none."""
        try:
            return os.readlink(self._prefix + path)  # noqa: PTH115 - see the class
        except (OSError, ValueError):
            return None

    def processes(self) -> proctree.Snapshot:
        """The monitored processes, read once per tick."""
        if self._processes is None:
            settings = self.settings
            found = proctree.snapshot(self, settings.pid, tree=settings.process_tree, own=self.own_pids)
            root = next((process.key for process in found.counted if process.pid == settings.pid), None)
            self._root = self._root or root
            reused = root is not None and root != self._root  # its number has become another's
            self._processes = found._replace(counted=[]) if reused else found
        return self._processes

    def limits(self) -> cgroup.Limits:
        """The limits that hold for the monitored process, looked up every `LIMITS_EVERY` ticks; its last once it ended."""
        if self._limits is None or self.tick - self._limits_tick >= LIMITS_EVERY:
            found = cgroup.find_limits(self, self.settings.pid, ignore=self.settings.no_cgroup)
            ended = found.groups is not None and not found.groups.known
            self._limits = self._limits if self._limits is not None and ended else found
            self._limits_tick = self.tick
        return self._limits

    @cached_property
    def page_size(self) -> int:
        """Bytes of a memory page."""
        return os.sysconf("SC_PAGE_SIZE")

    @cached_property
    def ticks_per_second(self) -> int:
        """The unit of CPU times in /proc (USER_HZ)."""
        return os.sysconf("SC_CLK_TCK")
