"""A gRPC server by grpcio for `test_tpu_grpc.py`: `grpc_server.py OPTIONS`, as JSON; prints its port, ends with its input.

A request is JSON: {"size": bytes of the answer, "status": a number and "message" instead, "after": s, "die": true,
"headers": how many, "times": how often it must be asked before it is answered}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent import futures

import grpc

METHOD = "/fake.Service/Do"
CODES = {code.value[0]: code for code in grpc.StatusCode}
running, most, lock = 0, 0, threading.Lock()
asked = Counter()


def reply(request, context):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
        asked[request] += 1
    try:
        wish = json.loads(request)
        if wish.get("most"):
            return str(most).encode()
        if wish.get("asked"):
            return str(sum(asked.values()) - 1).encode()
        if wish.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(wish.get("after", 0))
        context.send_initial_metadata(tuple((f"x-{n}", "v" * 1000) for n in range(wish.get("headers", 0))))
        if "status" in wish:
            context.abort(CODES[wish["status"]], wish.get("message", ""))
        return bytes(index % 251 for index in range(wish.get("size", 0)))
    finally:
        with lock:
            running -= 1


def main():
    options = json.loads(sys.argv[1])
    compression = grpc.Compression.Gzip if options.pop("gzip", None) else None
    server = grpc.server(futures.ThreadPoolExecutor(32), options=list(options.items()), compression=compression)
    handler = grpc.unary_unary_rpc_method_handler(reply)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("fake.Service", {"Do": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # noqa: T201 - whoever started it reads this
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
