"""One JSON line per request: what tests and people who debug a sync count."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCOPE_KEY = "runferry.entry"


@dataclass
class Entry:
    """What is known about a request; the parts that serve it fill it in as they learn it."""

    operation: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None


def entry_of(scope: Scope) -> Entry:
    """The entry of the request that `scope` belongs to."""
    entry: Entry = scope.setdefault(SCOPE_KEY, Entry())
    return entry


class RequestLog:
    """Outermost ASGI layer.

    The line is written before an answer leaves (a streamed one: before its last part), so a client that has its answer
    finds the line; a request that got no answer is logged when the server lets it go.
    """

    def __init__(self, app: ASGIApp, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._clock = clock
        self._file = None if path is None else path.open("ab", buffering=0)
        if path is not None and os.name == "posix":
            path.chmod(0o600)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request and logs it."""
        if scope["type"] != "http" or self._file is None:
            await self._app(scope, receive, send)
            return
        started = self._clock()
        entry = entry_of(scope)
        seen: dict[str, Any] = {"status": None, "request_bytes": 0, "response_bytes": 0}
        held: list[Message] = []
        written = False

        async def counted_receive() -> Message:
            message = await receive()
            seen["request_bytes"] += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal written
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                held.append(message)  # a client may act on the head alone, so it leaves with the first part of the body
                return
            seen["response_bytes"] += len(message.get("body", b""))
            if not message.get("more_body", False):
                written = True
                self._write(scope, entry, seen, started)
            while held:
                await send(held.pop())
            await send(message)

        try:
            await self._app(scope, counted_receive, counted_send)
        finally:
            if not written:
                self._write(scope, entry, seen, started)

    def _write(self, scope: Scope, entry: Entry, seen: dict[str, Any], started: float) -> None:
        # The query is left out: upload URLs carry their permission there.
        line = {
            "time": started,
            "seconds": round(self._clock() - started, 6),
            "method": scope["method"],
            "path": scope["path"],
            "operation": entry.operation,
            **seen,
            **entry.details,
        }
        if entry.fault is not None:
            line["fault"] = entry.fault
        if self._file is not None and not self._file.closed:
            self._file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
