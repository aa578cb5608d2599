"""One sync of a log at a time: a lock file that works on network file systems, where advisory locks may not.

`run-<id>.wandb.lock` holds who syncs (host, process) and when it was last known to be alive. A lock whose holder is dead,
or silent for `STALE_AFTER_S`, is taken over.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from pathlib import Path
from typing import Any

from .clock import Clock

BEAT_EVERY_S = 10.0
STALE_AFTER_S = 60.0


class LockedError(Exception):
    """Another sync holds the log; the text says who and since when."""


def _host() -> str:
    """This machine, and on Linux its process-id namespace: in another one, a process id means another process."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


class Lock:
    """The lock of one log, held from `acquire` to `release`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._token = secrets.token_hex(8)
        self._held = False

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockedError: another living sync holds it.
            OSError: the folder cannot be written.
        """
        for _ in range(3):  # a lost race gives one more try, not an endless one
            try:
                descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            except FileExistsError:
                self._remove_stale()
                continue
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._content())
            self._held = True
            return
        raise LockedError("another sync took it at this moment")

    def beat(self) -> bool:
        """Say that the holder is alive. False when the lock was lost to somebody who took it for stale."""
        if not self._held:
            return True
        if _read(self.path).get("token") != self._token:
            self._held = False
            return False
        temporary = self.path.with_name(f"{self.path.name}.{self._token}")
        temporary.write_bytes(self._content())
        temporary.replace(self.path)
        return True

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        if self._held and _read(self.path).get("token") == self._token:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._held = False

    def _content(self) -> bytes:
        holder = {"host": _host(), "pid": os.getpid(), "heartbeat": float(self._clock.time()), "token": self._token}
        return json.dumps(holder).encode() + b"\n"

    def _remove_stale(self) -> None:
        """Remove a dead holder's lock; raises `LockedError` for a living one's."""
        seen = _read(self.path)
        self._judge(seen)
        # Two takers may come this far. A rename has one winner; who finds a fresh lock in hand puts it back.
        taken = self.path.with_name(f"{self.path.name}.stale.{self._token}")
        try:
            self.path.rename(taken)
        except FileNotFoundError:
            return
        if _read(taken).get("token") != seen.get("token"):
            with contextlib.suppress(OSError):
                os.link(taken, self.path)
        with contextlib.suppress(OSError):
            taken.unlink()

    def _judge(self, holder: dict[str, Any]) -> None:
        heartbeat = holder.get("heartbeat")
        pid = holder.get("pid")
        if not isinstance(heartbeat, float) or not isinstance(pid, int):
            # Torn by a crash, or just being written: its file time is the heartbeat.
            try:
                heartbeat = self.path.stat().st_mtime
            except OSError:
                return
            pid = 0
        # A sign of life from the future is as good as none: it would keep everybody out for as long.
        age = self._clock.time() - heartbeat
        dead = holder.get("host") == _host() and pid > 0 and not _is_alive(pid)
        if dead or not abs(age) <= STALE_AFTER_S:
            return
        host = str(holder.get("host", "?")).split(" ")[0]
        raise LockedError(f"process {pid} on {host} is syncing it (sign of life {max(age, 0):.0f} s ago)")


class Heartbeat:
    """Beats for all locks of a process from one thread."""

    def __init__(self) -> None:
        self._locks: set[Lock] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lock: Lock) -> None:
        """Keep `lock` alive until it is removed."""
        with self._guard:
            self._locks.add(lock)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="runferry-lock", daemon=True)
                self._thread.start()

    def remove(self, lock: Lock) -> None:
        """Let go of `lock`."""
        with self._guard:
            self._locks.discard(lock)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_EVERY_S):
            with self._guard:
                for lock in self._locks:
                    with contextlib.suppress(OSError):
                        lock.beat()


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # os.kill would end the process there; the heartbeat alone decides
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:  # no process can have such a number
        return False
    except OSError:
        pass  # it is there and belongs to somebody else
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            holder = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}
