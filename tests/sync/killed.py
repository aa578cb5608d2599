"""Run by the tests as a script: a sync that dies by SIGKILL at its n-th request, before or after it.

python killed.py LOGS URL KEY N before|after
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from runferry.sync import SyncSettings, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.transport import Answer, HttpTransport, Request


class Mortal:
    """A transport that takes the process with it."""

    def __init__(self, number: int, *, after: bool) -> None:
        self._real = HttpTransport()
        self._left, self._after = number, after
        self._guard = threading.Lock()

    def send(self, request: Request) -> Answer:
        with self._guard:
            self._left -= 1
            if self._left == 0 and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = self._real.send(request)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer


def main() -> int:
    logs, url, key, number, moment = sys.argv[1:]
    report = sync(
        [logs],
        SyncSettings(base_url=url, body_bytes=4000, retry_for=20.0),
        key=ApiKey(key, base_url=url, source="test"),
        transport=Mortal(int(number), after=moment == "after"),
    )
    for run in report.runs:
        sys.stderr.write(f"{run.verdict.value} {run.reason}\n")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
