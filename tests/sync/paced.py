"""Run by the tests as a script: one of several processes that spend one quota.

python paced.py URL FOLDER REQUESTS THREADS
"""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runferry.sync.channel import Channel
from runferry.sync.clock import SystemClock
from runferry.sync.network import Network
from runferry.sync.pacer import Pacers
from runferry.sync.report import silent
from runferry.sync.transport import HttpTransport, Request


def main() -> int:
    url, folder, requests, threads = sys.argv[1:]
    clock, rng, transport = SystemClock(), random.Random(), HttpTransport(network=Network())
    channel = Channel(transport, clock=clock, rng=rng, retry_for=60.0, reporter=silent)
    pacer = Pacers(clock, rng, Path(folder)).of("host", "project")
    request = Request("POST", url, {}, b"{}")
    with ThreadPoolExecutor(int(threads)) as pool:
        for done in [
            pool.submit(channel.call, request, pacer, what="x", read=lambda answer: answer.status)
            for _ in range(int(requests))
        ]:
            done.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
