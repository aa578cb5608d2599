"""`serve`: the application on a socket, from start to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import uvicorn
from starlette.types import ASGIApp, Scope

from .app import create_app
from .faults import Faults, FaultScript
from .keys import MIN_KEY_LENGTH, ApiKeys, load_keys
from .requestlog import RequestLog
from .settings import ServeSettings
from .store import Store

try:  # in C: half the time that a small request takes to be read
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol  # type: ignore[assignment]

KEEP_ALIVE_S = 75  # clients pause 15 to 30 s between requests on one connection
SHUTDOWN_S = 3  # what an unfinished request may still take
BACKLOG = 2048


class OpenConnections:
    """The transports of all connections by their client's address, so that the fault script can cut them."""

    def __init__(self) -> None:
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}

    def protocol(self) -> type[HttpProtocol]:
        """The HTTP protocol class that keeps this table."""
        transports = self._transports

        class Protocol(HttpProtocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client is not None:
                    transports[self.client] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client is not None:
                    transports.pop(self.client, None)
                super().connection_lost(exc)

        return Protocol

    def abort(self, scope: Scope) -> None:
        """Drops the connection with a reset."""
        if transport := self._transports.get(tuple(scope["client"])):
            # Lingering for zero seconds turns the close into an RST, as from a crashed machine.
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()

    def close(self, scope: Scope) -> None:
        """Closes the connection after what was written."""
        if transport := self._transports.get(tuple(scope["client"])):
            transport.close()


class _Server(uvicorn.Server):
    """Ends on a signal like any other end: the caller's clean-up runs and the exit code is 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: ServeSettings, *, json_output: bool = False, out: TextIO | None = None) -> None:
    """Serves until SIGINT or SIGTERM; says on `out` (standard output) where it listens.

    Raises:
        ValueError: a setting, key source or fault script is wrong.
        OSError: the address or the data folder cannot be used.
    """
    keys = load_keys(settings.data_dir, settings.api_key_file) if settings.auth else None
    script = FaultScript(file=settings.faults)
    store = Store(settings.data_dir)
    connections = OpenConnections()
    log: RequestLog | None = None
    try:
        app: ASGIApp = create_app(store, settings, keys)
        if settings.faults is not None:
            app = Faults(app, script, connections)
        log = RequestLog(app, settings.request_log)
        listening = _listen(settings.host, settings.port)
        config = uvicorn.Config(
            log,
            http=connections.protocol(),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        server = _Server(config)
        with listening, _signals_end(server):
            _announce(settings, keys, listening, json_output=json_output, out=out or sys.stdout)
            server.run(sockets=[listening])
    finally:
        if log is not None:
            log.close()
        store.close()


@contextlib.contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        server.force_exit = server.should_exit  # the second signal does not wait
        server.should_exit = True

    before: dict[signal.Signals, Callable[..., Any] | int | None] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that a client that was told the address can connect at once."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def _announce(
    settings: ServeSettings, keys: ApiKeys | None, listening: socket.socket, *, json_output: bool, out: TextIO
) -> None:
    host, port = listening.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    key_file: Path | None = None if keys is None else keys.file
    if json_output:
        line = {"type": "serving", "url": url, "api_key_file": None if key_file is None else str(key_file)}
        print(json.dumps(line), file=out, flush=True)
        return
    print(f"serving {settings.data_dir} at {url} (the page, too); Ctrl-C ends it", file=out)
    print("where you sync:", file=out)
    print(f"  export WANDB_BASE_URL={url}", file=out)
    if keys is None:
        print(f"  export WANDB_API_KEY={'0' * MIN_KEY_LENGTH}  # none is asked for, but clients want one", file=out)
    elif key_file is None:
        print("  export WANDB_API_KEY=...  # one of those in RUNFERRY_SERVE_API_KEYS", file=out)
    else:  # the key itself stays out of terminals and their logs
        path = shlex.quote(str(key_file.absolute()))
        print(f"  export WANDB_API_KEY=\"$(grep -m 1 '^[^#]' {path})\"", file=out)
    out.flush()
