"""The helper process that hosts one probe of a vendor library; `supervisor` starts it.

Why a process: a thread stuck in a driver keeps the training process from exiting and holds the library's locks; a
helper can be killed, survives nothing it should not, and its memory is not the trainer's.

Protocol: newline JSON. Requests on standard input, one answer each on standard output, with the request's `id`:
    {"id": 1, "op": "open", "probe": "module:Class", "settings": {...}, "root": "/", "parent": 4242}
        -> {"id": 1, "metadata": {...}}, or {"id": 1, "unavailable": "why", "loud": false} for good,
           or {"id": 1, "failed": "why"}: worth another try later
    {"id": 2, "op": "sample"}
        -> {"id": 2, "values": {...}, "duration": 0.004, "error": null, "notices": []}
The helper ends when standard input ends, even in the middle of a call that hangs, and when its parent dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from typing import IO, Any

from .context import Context
from .keys import numbers
from .probe import Probe
from .registry import load
from .runners import InlineRunner
from .settings import SamplerSettings

NICENESS = 10
_PR_SET_PDEATHSIG = 1  # prctl(2)


def _die_with(parent: int) -> None:
    """On Linux let the kernel kill this process when its parent ends; leave at once if it already has."""
    if sys.platform.startswith("linux"):
        import ctypes
        import signal

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _own_stdout() -> IO[bytes]:
    """The pipe to the parent; whatever else writes to standard output, vendor libraries do, now goes nowhere."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return pipe


class Host:
    """Answers requests with one probe. `probe` is loaded by the first request, `open`."""

    def __init__(self) -> None:
        self._ctx: Context | None = None
        self._runner: InlineRunner | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; ValueError if it is none."""
        if request["op"] == "open":
            return self._open(request)
        if request["op"] == "sample" and self._runner is not None and self._ctx is not None:
            self._ctx.begin(time.monotonic())
            stats = self._runner.stats
            stats.last_error = None
            self._runner.request(self._ctx.now)
            values = numbers(self._runner.take(self._ctx.now))
            notices = list(self._runner.probe.notices)
            return {"values": values, "duration": stats.duration, "error": stats.last_error, "notices": notices}
        raise ValueError(f"no such request: {request['op']!r}")

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        self._ctx = Context(SamplerSettings(**request["settings"]), root=request["root"], own_pids={os.getpid()})
        try:
            probe: Probe = load(request["probe"])()
        except (Exception, SystemExit) as error:  # a module of others, or one that this process does not find
            return {"failed": f"{request['probe']} cannot be loaded: {error!r}"}
        probe.instance = request["instance"]
        self._runner = InlineRunner(probe, self._ctx)
        self._runner.least = 0.0  # the sampler asks when it is time
        if self._runner.stats.last_error is not None:
            return {"failed": self._runner.stats.last_error}
        if self._runner.reason is not None:
            return {"unavailable": self._runner.reason, "loud": self._runner.loud}
        return {"metadata": probe.metadata()}


def main() -> None:
    """Serve requests until standard input ends."""
    pipe = _own_stdout()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            requests.put(line)
        os._exit(0)  # the sampler has gone or wants us to: do not wait for a call that may hang

    first = sys.stdin.buffer.readline()
    if not first:
        return
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    _die_with(json.loads(first)["parent"])
    requests.put(first)
    threading.Thread(target=read, name="requests", daemon=True).start()
    host = Host()
    try:
        while True:
            request = json.loads(requests.get())
            answer = {"id": request["id"], **host.answer(request)}
            pipe.write(json.dumps(answer, default=str).encode() + b"\n")
    except Exception:  # the sampler sees the exit status
        os._exit(1)  # an orderly exit would wait for the thread that holds standard input
