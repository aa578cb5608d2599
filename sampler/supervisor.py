"""The sampler's side of a helper process: ask, wait without blocking, replace what hangs or dies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any, Protocol

from .context import Context
from .interpreter import interpreter
from .probe import Probe
from .runners import DeferredRunner, answer_within

KILL_AFTER = 30.0  # s without the answer to a sample
KILL_OPENING_AFTER = 120.0  # s; the first start of a driver that nobody keeps loaded takes long
FIRST_BACKOFF, LONGEST_BACKOFF = 5.0, 300.0  # s before a helper is started again
LONGEST_LINE = 4 << 20  # bytes of one answer

# The working folder is not looked at for modules: a user's `json.py` must not become the helper's. (PYTHONSAFEPATH would
# do that, but reach the programs that a helper runs, too: `rocm-smi` needs the modules beside it.)
# This package, and a probe of another, may be where only this process looks: last, so that nothing is replaced.
_START = "import sys; sys.path[:] = [place for place in sys.path if place] + sys.argv[1:];"


class Child(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None:
        """Exit status, None while it runs."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""


def spawn_helper() -> Child:
    """Start a helper in a session of its own, so that Ctrl-C in the terminal does not reach it.

    Raises:
        OSError: no interpreter to start.
    """
    python = interpreter()
    if python is None:
        raise FileNotFoundError(f"sys.executable is {sys.executable!r}, which is no Python")
    environ = dict(os.environ)
    if "PYTHONPATH" in environ:
        parts = environ["PYTHONPATH"].split(os.pathsep)
        absolute = [str(Path(part).absolute()) for part in parts if part]
        environ["PYTHONPATH"] = os.pathsep.join(absolute)
    places = [place for place in sys.path if isinstance(place, str) and os.path.isabs(place)]  # noqa: PTH117 - text
    return subprocess.Popen(  # noqa: S603 - this interpreter, no shell
        [python, "-c", f"{_START} from {__package__}.helper import main; main()", *places],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=os.sep,
        env=environ,
        start_new_session=True,
    )


class State(Enum):
    """What the helper is doing."""

    ABSENT = auto()  # not started, or ended: to be started when the backoff is over
    OPENING = auto()
    IDLE = auto()
    ASKED = auto()
    DYING = auto()  # killed, not gone yet: a process in an uninterruptible call goes only when that returns


class HelperRunner(DeferredRunner):
    """Runs a probe in a helper. All decisions fall in `request`, at ticks.

    A thread per child asks it to open the probe, then takes answers.
    There is never more than one child: one that cannot be killed is waited for, at no cost, for ever.
    """

    def __init__(
        self,
        probe: Probe,
        ctx: Context,
        ready: threading.Condition,
        *,
        spawn: Callable[[], Child] = spawn_helper,
    ) -> None:
        super().__init__(probe, ctx, ready)
        self._spawn = spawn
        self._state = State.ABSENT
        self._child: Child | None = None
        self._opening_pipe: IO[bytes] | None = None  # to the child, too
        self._id = 0
        self._since = 0.0  # when the request that is out was made, or the child was killed
        self._metadata: dict[str, Any] = {}
        self._backoff = FIRST_BACKOFF
        self._start_at = float("-inf")
        self._closed = False

    # --- the scheduler's side

    def request(self, now: float) -> bool:
        """Look after the child; ask for a sample if it is idle."""
        with self._ready:
            if self.reason is not None or self._closed:
                self._retire()
                return False
            self._look_after(now)
            starting = self._state is State.ABSENT and now >= self._start_at
        if starting:  # without the lock, which the end of sampling takes: the interpreter's disk may not answer
            self._start(now)
        with self._ready:
            if self._state is not State.IDLE or not self.due(now):
                return False
            line = self._request(now, State.ASKED, {"op": "sample"})
            # The pipe holds these few bytes: the child has read all earlier ones before it answered them.
            _write(self._child.stdin if self._child is not None else None, line)
            return True

    @property
    def waiting_since(self) -> float | None:
        """When the sample was asked for that is out."""
        return self._since if self._state is State.ASKED else None

    @property
    def opening(self) -> bool:
        """Whether the probe may still turn out to be there."""
        return self.reason is None and self._state is State.OPENING

    def metadata(self) -> dict[str, Any]:
        """What the probe in the helper knows about its devices; empty until it has opened."""
        return self._metadata

    def _look_after(self, now: float) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is not None:
            self._note_end(now, child)
        elif self._state in {State.ASKED, State.OPENING}:
            opening = self._state is State.OPENING
            out_for = now - self._since
            self.stats.stalled = out_for >= (KILL_AFTER if opening else answer_within(self.period))
            if out_for >= (KILL_OPENING_AFTER if opening else KILL_AFTER):
                self._kill(child)

    def _retire(self) -> None:
        """Let the helper go: a probe whose source is not there needs no process."""
        child = self._child
        if child is not None and child.stdin is not None:
            child.stdin.close()
            if child.poll() is not None:
                _close(child.stdin)
                self._ctx.own_pids.discard(child.pid)
                self._child = None

    def _note_error(self, error: str) -> None:
        self.stats.errors += 1
        self.stats.last_error = error

    def _kill(self, child: Child) -> None:
        self._state = State.DYING
        with contextlib.suppress(OSError):
            child.kill()

    def _note_end(self, now: float, child: Child) -> None:
        if self._state is not State.DYING:
            self._note_error(f"helper process ended with status {child.returncode}")
        _close(child.stdin)
        self._ctx.own_pids.discard(child.pid)
        self._child, self._state = None, State.ABSENT
        self._put_off(now)

    def _put_off(self, now: float) -> None:
        self._start_at = now + self._backoff
        self._backoff = min(2 * self._backoff, LONGEST_BACKOFF)

    def _start(self, now: float) -> None:
        try:
            child = self._spawn()
        except (OSError, ValueError) as error:  # no memory, no processes left, no interpreter
            self._note_error(f"helper process cannot be started: {error}")
            self._put_off(now)
            return
        with self._ready:
            if not self._closed:
                self._begin(now, child)
                return
        _abandon(child)  # which may take until it is gone

    def _begin(self, now: float, child: Child) -> None:
        self._child = child
        self._ctx.own_pids.add(child.pid)
        line, name = self._request(now, State.OPENING, self._opening()), f"runferry-{self.probe.label}"
        try:
            self._opening_pipe = pipe = _again(child.stdin)
            threading.Thread(target=self._converse, args=(child, pipe, line), name=name, daemon=True).start()
        except (RuntimeError, OSError) as error:  # the system's bound of threads, or of descriptors
            self._note_error(f"nobody can read what the helper process answers: {error}")
            _close(self._opening_pipe)
            _close(child.stdout)
            self._kill(child)

    def _opening(self) -> dict[str, Any]:
        probe, settings = type(self.probe), self._ctx.settings
        return {
            "op": "open",
            "probe": f"{probe.__module__}:{probe.__qualname__}",
            "instance": self.probe.instance,
            "settings": settings.shown(),  # endpoints are asked by threads: no library needs their headers
            "root": self._ctx.root,
            "parent": os.getpid(),
        }

    def _request(self, now: float, state: State, request: dict[str, Any]) -> bytes:
        self._id += 1
        self._state, self._since = state, now
        return json.dumps({"id": self._id, **request}).encode() + b"\n"

    # --- the side of the child's thread

    def _converse(self, child: Child, pipe: IO[bytes] | None, opening: bytes) -> None:
        """Ask the child to open its probe, then take answers.

        Settings may be longer than the pipe holds, and a child that is stopped reads none: no tick waits for that.
        """
        _write(pipe, opening)
        _close(pipe)
        pending = b""
        while child.stdout is not None:
            try:
                chunk = child.stdout.read(1 << 16)
            except (OSError, ValueError):
                chunk = b""
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                try:
                    self._accept(child, line)
                except (ValueError, TypeError, KeyError, AttributeError):  # of another version, if we were updated
                    self._reject(child, f"not an answer: {line[:80]!r}")
            if len(pending) > LONGEST_LINE:
                self._reject(child, "an answer without end")
                break
        # Nobody else closes it: its number might be another's by the time this thread reads again.
        _close(child.stdout)
        with self._ready:
            self._ready.notify_all()

    def _accept(self, child: Child, line: bytes) -> None:
        answer = json.loads(line)
        number = answer["id"]
        with self._ready:
            if child is not self._child or number != self._id or self._state not in {State.OPENING, State.ASKED}:
                return
            self._state = State.IDLE
            self.stats.stalled = False
            if "unavailable" in answer:
                self.reason, self.loud = str(answer["unavailable"]), bool(answer.get("loud"))
            elif "failed" in answer:
                self._note_error(str(answer["failed"]))
                self._kill(child)
            elif "values" in answer:
                values, duration = dict(answer["values"]), float(answer["duration"])
                error, notices = answer["error"], tuple(map(str, answer["notices"]))
                self._values, self._values_from, self.stats.duration = values, self._since, duration
                self.probe.notices = notices
                if error is not None:
                    self._note_error(str(error))
                self._backoff = FIRST_BACKOFF
            else:
                self._metadata = dict(answer["metadata"])
            self._ready.notify_all()

    def _reject(self, child: Child, why: str) -> None:
        with self._ready:
            self._note_error(why)
            if child is self._child:
                self._kill(child)
            self._ready.notify_all()

    # --- the end

    def dismiss(self) -> None:
        """Close the pipe, upon which the helper leaves at once."""
        with self._ready:
            self._closed = True
            if self._child is not None:
                _close(self._child.stdin)

    def close(self, timeout: float) -> None:
        """Wait for the helper's end; kill it if it does not come."""
        self.dismiss()
        with self._ready:
            child, self._child = self._child, None
        if child is None:
            return
        for last_resort in (False, True):
            if last_resort:
                with contextlib.suppress(OSError):
                    child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout / 2)
                break
        if child.poll() is not None:
            self._ctx.own_pids.discard(child.pid)

    def forget(self) -> None:
        """In a forked child: close our copies of the pipes, or the helper would not see the parent's end."""
        child, self._child = self._child, None
        if child is not None:
            _close(child.stdin)
            _close(self._opening_pipe)
            _close(child.stdout)
            child.returncode = 0  # not ours to wait for


def _abandon(child: Child) -> None:
    """End a child that came too late."""
    with contextlib.suppress(OSError):
        child.kill()
    for pipe in (child.stdin, child.stdout):
        _close(pipe)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)


def _again(pipe: IO[bytes] | None) -> IO[bytes] | None:
    """The same pipe for a thread to close: the number of one that others close might be another file's as it writes."""
    return os.fdopen(os.dup(pipe.fileno()), "wb", buffering=0) if pipe is not None else None


def _write(pipe: IO[bytes] | None, line: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # the child has just ended: noticed at the next tick
        while line and pipe is not None:
            line = line[pipe.write(line) :]


def _close(pipe: IO[bytes] | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        if pipe is not None:
            pipe.close()
