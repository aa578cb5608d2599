"""A gRPC server by grpcio for `test_tpu_grpc.py`: `grpc_server.py OPTIONS`, as JSON; prints its port, ends with its input.

A request is JSON: {"size": bytes of the answer, "status": a number and "message" instead, "after": s, "die": true,
"headers": how many of 1,000 bytes}. Or one of {"most": true}: how many calls there were at once; {"asked": true}: how many
before this one; {"left": true}: seconds to this one's deadline.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from concurrent import futures

import grpc

METHOD = "/fake.Service/Do"
CODES = {code.value[0]: code for code in grpc.StatusCode}
running, most, asked, lock = 0, 0, 0, threading.Lock()


def reply(request, context):
    global running, most, asked
    with lock:
        running += 1
        most = max(most, running)
        asked += 1
    try:
        wish = json.loads(request)
        told = {"most": most, "asked": asked - 1, "left": context.time_remaining()}
        for what, number in told.items():
            if wish.get(what):
                return str(number).encode()
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
