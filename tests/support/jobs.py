"""Programs that a test starts, of which nothing is left afterwards: a hang is the test's fault, not the whole suite's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


@contextlib.contextmanager
def job(arguments, **popen):
    """A process in a session of its own, or at least a group of its own, which is killed at the end: whatever happened."""
    child = subprocess.Popen(arguments, **{"start_new_session": True, **popen})
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # what it never read
                    stream.close()
