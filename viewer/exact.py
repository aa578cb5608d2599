"""The exact reading of a run in another process, so that whoever waits for it can draw, and be told how far it is.

The other process gets the logs and a file on its standard input, says on its standard output how far it is, and at last that
the reading stands in the file. It ends when the one who started it does, whatever end that was.

    request = {"logs": [..], "to": ..}              JSON
    answers = `DONE TOTAL` bytes, a line each; at last `ok`, or `failed: WHY`
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from .cache import Cache, dump, undump
from .reading import Reading, read

_TELL_EVERY_S = 0.1
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # parts of names of variables that a reader of logs has no use for


class Exact:
    """A reading under way. Ask `poll` now and then; nothing here waits but `cancel`, a moment."""

    def __init__(
        self, logs: Sequence[Path], cache: Cache | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start it.

        Args:
            logs: of one run, in the order of their start.
            cache: keeps the result.
            clock: seconds; for the estimate of the time left.

        Raises:
            OSError: no process can be started, or there is no room for a file.
        """
        self._logs, self._cache, self._clock = [Path(os.path.abspath(log)) for log in logs], cache, clock  # noqa: PTH100 - links stay links
        self.done, self.total = 0, 0
        """Bytes read, and in all; 0 of 0 before the first word."""
        self.problem = ""
        """Why there will be no result; empty as long as there may be one."""
        self._result: Reading | None = None
        self._is_cancelled = False
        self._began = clock()
        scratch = cache.scratch(self._logs) if cache else None
        self._is_kept = scratch is not None
        if scratch is None:
            handle, name = tempfile.mkstemp(prefix="runferry-", suffix=".part")
            os.close(handle)
            scratch = Path(name)
        self._file = scratch
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if not any(part in name.upper() for part in _SECRETS)
                },
            )
        except OSError:
            self._file.unlink(missing_ok=True)
            raise
        self._thread = threading.Thread(target=self._listen, name="exact reading", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether something may still come."""
        return self._thread.is_alive()

    def poll(self) -> Reading | None:
        """The result, once it is there."""
        return self._result

    def seconds_left(self) -> float | None:
        """An estimate; None before there is anything to estimate by."""
        if not self.done or not self.total:
            return None
        return (self._clock() - self._began) * (self.total - self.done) / self.done

    def cancel(self) -> None:
        """Give up. Nothing is left behind."""
        self._is_cancelled = True
        self._process.kill()
        self._thread.join()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended: for callers that have nothing to draw."""
        self._thread.join(timeout)

    def _listen(self) -> None:
        """Take the answers, on a thread of our own."""
        last = ""
        try:
            with contextlib.suppress(OSError), self._process.stdin as stdin:  # type: ignore[union-attr]  # asked for
                request = {"logs": [str(log) for log in self._logs], "to": str(self._file)}
                stdin.write(json.dumps(request).encode())
            with self._process.stdout as stdout:  # type: ignore[union-attr]  # asked for
                for line in stdout:
                    last = line.decode(errors="replace").strip()
                    done, _, total = last.partition(" ")
                    if done.isdecimal() and total.isdecimal():
                        self.done, self.total = int(done), int(total)
            status = self._process.wait()
            if last == "ok":
                with self._file.open("rb") as file:
                    self._result = undump(file)
            elif not self._is_cancelled:
                why = last.partition(": ")[2] if last.startswith("failed: ") else ""
                self.problem = (
                    why or f"the process that read {self._logs[-1]} ended before it was done ({_said(status)})"
                )
        except (OSError, ValueError, MemoryError) as error:
            self.problem = f"what was read of {self._logs[-1]} cannot be taken over: {error}"
        finally:
            self._tidy()

    def _tidy(self) -> None:
        if self._result is not None and self._is_kept and self._cache is not None:
            self._cache.keep(self._file, self._logs)
        else:
            with contextlib.suppress(OSError):
                self._file.unlink()


def _said(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def work(request: Any, out: BinaryIO, clock: Callable[[], float] = time.monotonic) -> None:
    """What the other process does. Its file is gone if it comes to no end."""
    latest = -_TELL_EVERY_S

    def tell(done: int, total: int) -> None:
        nonlocal latest
        now = clock()
        if now - latest >= _TELL_EVERY_S or done == total:
            latest = now
            out.write(b"%d %d\n" % (done, total))
            out.flush()

    try:
        reading = read([Path(log) for log in request["logs"]], tell)
        with Path(request["to"]).open("wb") as file:
            dump(reading, file)
        out.write(b"ok\n")
        out.flush()
    except BrokenPipeError:  # nobody waits for it any more
        Path(request["to"]).unlink(missing_ok=True)
        sys.stdout = None  # else its last flush complains
    except Exception as error:
        out.write(f"failed: {error}\n".replace("\n", " ").encode(errors="replace") + b"\n")


if __name__ == "__main__":
    work(json.loads(sys.stdin.buffer.read()), sys.stdout.buffer)
