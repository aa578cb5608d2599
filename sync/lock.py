"""One sync of a log at a time: a lock file that works on network file systems, where advisory locks may not.

`run-<id>.wandb.lock` holds who syncs and when it was last known to be alive. Of a holder on this machine the process decides: as
long as it is there the lock is its own, also while it is stopped or the clock jumps, and once it is gone the lock is free.
Of one elsewhere (another machine, another container) the time decides: silent for `STALE_AFTER_S`, it is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..logformat.heartbeat import Process
from .clock import Clock

BEAT_EVERY_S = 10.0
STALE_AFTER_S = 60.0


class LockedError(Exception):
    """Another sync holds the log; the text says who and since when."""


class Lock:
    """The lock of one log, held from `acquire` to `release`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._token = secrets.token_hex(8)
        self._held = self._lost = False
        self.took_over = False
        """Whether a holder that was killed had left it: then other leavings may lie there, too."""

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockedError: another living sync holds it.
            OSError: the folder cannot be written, or a directory lies where the lock goes.
        """
        for _ in range(3):  # a lost race gives one more try, not an endless one
            try:
                self._lay_down()
            except FileExistsError:
                self._remove_stale()
                continue
            self._held = True
            return
        raise LockedError("another sync took it at this moment")

    def _lay_down(self) -> None:
        """Make the lock where there is none. It never lies there without its content, so that nobody has to guess whose it is."""
        content = self._content()
        temporary = self.path.with_name(f"{self.path.name}.{self._token}")
        try:
            _create(temporary, content)
            _link(temporary, self.path)
        except FileExistsError:
            if _read(self.path).get("token") != self._token:  # else a network file system lost its first answer
                raise
        except OSError as error:
            error.filename = os.fspath(self.path)  # a full disk names none
            raise
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def check(self) -> None:
        """See whether somebody else holds it.

        Raises:
            LockedError: another living sync does.
        """
        if self.path.exists() and not self.path.is_dir():
            self._judge(_read(self.path))

    @property
    def lost(self) -> bool:
        """Whether somebody took it over who thought the holder gone."""
        return self._lost

    def beat(self) -> bool:
        """Say that the holder is alive. False when the lock was lost to somebody who took it for stale."""
        if not self._held:
            return True
        if _read(self.path).get("token") != self._token:
            self._held, self._lost = False, True
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
        now = float(self._clock.time())
        holder = {**Process.current()._asdict(), "heartbeat": now, "token": self._token}
        return json.dumps(holder).encode() + b"\n"

    def _remove_stale(self) -> None:
        """Remove a dead holder's lock; raises `LockedError` for a living one's, `OSError` for what is no lock."""
        if self.path.is_dir():  # which no sync has made: it is not ours to move
            raise IsADirectoryError(errno.EISDIR, "a directory is where the lock goes: remove it", os.fspath(self.path))
        seen = _read(self.path)
        self._judge(seen)
        # Two takers may come this far. A rename has one winner; who finds a fresh lock in hand puts it back.
        taken = self.path.with_name(f"{self.path.name}.stale.{self._token}")
        try:
            self.path.rename(taken)
        except FileNotFoundError:
            return
        self.took_over = True
        if _read(taken).get("token") != seen.get("token"):
            with contextlib.suppress(OSError):
                _link(taken, self.path)
        with contextlib.suppress(OSError):
            taken.unlink()

    def _judge(self, holder: dict[str, Any]) -> None:
        process, heartbeat = Process.from_json(holder), holder.get("heartbeat")
        if process is None or not isinstance(heartbeat, float):
            # Torn by a crash, or just being written where there are no links: its file time is the heartbeat.
            process = None
            try:
                heartbeat = self.path.stat().st_mtime
            except OSError:
                return
        lives = None if process is None else process.lives()
        age = self._clock.time() - heartbeat
        # A sign of life from the future is as good as none: it would keep everybody out for as long.
        if lives is False or (lives is None and not abs(age) <= STALE_AFTER_S):
            return
        who = "another sync" if process is None else f"process {process.pid} on {process.host.split(' ')[0]}"
        raise LockedError(f"{who} is syncing it (sign of life {max(age, 0):.0f} s ago)")


class Heartbeat:
    """Beats for all locks of a process from one thread.

    Where the system allows no such thread, whoever works gives the `pulse`. A wait of more than `STALE_AFTER_S` in between
    may lose a lock to another machine then, which sends the same lines to the same places.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self._locks: set[Lock] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lock: Lock) -> None:
        """Keep `lock` alive until it is removed."""
        with self._guard:
            self._locks.add(lock)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="runferry-lock", daemon=True)
                with contextlib.suppress(RuntimeError):  # the next lock tries again
                    thread.start()
                    self._thread = thread

    def remove(self, lock: Lock) -> None:
        """Let go of `lock`."""
        with self._guard:
            self._locks.discard(lock)

    def pulse(self) -> None:
        """Beat if it is time and no thread does."""
        if self._thread is None and self._monotonic() - self._beat_at >= BEAT_EVERY_S:
            self._beat()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_EVERY_S):
            self._beat()

    def _beat(self) -> None:
        with self._guard:
            self._beat_at = self._monotonic()
            for lock in self._locks:
                with contextlib.suppress(OSError):
                    lock.beat()


def _link(source: Path, target: Path) -> None:
    """Let `target` be there with the content of `source`, at once; `FileExistsError` if it is there already."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # FAT and others know no links
        _create(target, source.read_bytes())


def _create(path: Path, content: bytes) -> None:
    """A new file; none if the disk is full, for what nobody holds must not keep others out."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            holder = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) else {}
