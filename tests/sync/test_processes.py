"""Several real processes on one real quota."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SIZE, PERIOD = 300, 3.0


class Quota:
    """300 requests in each 3 s, told by `RateLimit-Remaining` and `-Reset`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened = self.begun = time.monotonic()
        self._used = 0
        self.taken = self.refused = 0
        self.last = self.begun

    def ask(self) -> tuple[bool, int, float]:
        with self._lock:
            now = time.monotonic()
            if not self.taken:
                self._opened = self.begun = now
            while now >= self._opened + PERIOD:
                self._opened, self._used = self._opened + PERIOD, 0
            is_taken = self._used < SIZE
            self._used += is_taken
            self.taken += is_taken
            self.refused += not is_taken
            self.last = now
            return is_taken, SIZE - self._used, self._opened + PERIOD - now


@pytest.mark.slow
def test_four_processes_use_one_quota_and_are_hardly_ever_refused(tmp_path: Path) -> None:
    """1,600 requests of four processes with four threads each: hardly a 429.

    None on a quiet machine; where answers are read late, a few. How much of the quota was used is printed: here it says more of the machine, and the simulations judge it.
    """
    quota = Quota()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_taken, remaining, reset = quota.ask()
            self.send_response(200 if is_taken else 429)
            self.send_header("RateLimit-Remaining", str(remaining))
            self.send_header("RateLimit-Reset", f"{reset:.3f}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        script = Path(__file__).with_name("paced.py")
        processes = [subprocess.Popen([sys.executable, script, url, tmp_path / "pacer", "400", "4"]) for _ in range(4)]
        codes = [process.wait(timeout=120) for process in processes]
        server.shutdown()

    assert codes == [0] * 4
    assert quota.taken == 1600
    assert quota.refused <= 8
    used = quota.taken / (SIZE * (quota.last - quota.begun) / PERIOD)
    print(f"{quota.refused} refused, {100 * used:.0f} % of the quota used")  # noqa: T201 - for `-s`
