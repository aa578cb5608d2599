"""The fault script: makes the server misbehave at chosen requests, so that clients can be tested against it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import BadRequestError
from .gql_execute import Request
from .gql_syntax import GraphQLError
from .requestlog import entry_of

CLIENT_PATHS = ("/graphql", "/files/", "/storage/")
ACTIONS = frozenset({"status", "delay", "reset", "half", "hang"})
MOMENTS = frozenset({"before-read", "within-body", "before-apply", "after-apply"})
TYPES: dict[str, tuple[type, ...]] = {
    "path": (str,),
    "method": (str,),
    "operation": (str,),
    "status": (int,),
    "headers": (dict,),
    "body": (str,),
    "seconds": (float, int),
    "after_bytes": (int,),
}
FIELDS = frozenset(
    {"path", "method", "operation", "nth", "action", "when", "status", "headers", "body", "seconds", "after_bytes"}
)


@dataclass
class Rule:
    """One entry of the script. All given conditions must hold; `first` and `last` count the requests for which they do."""

    action: str
    path: str | None = None  # a part of the path; None: any path that clients write to, not the page or read API
    method: str | None = None
    operation: str | None = None
    first: float = 1
    last: float = math.inf
    when: str = "before-apply"
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    seconds: float = 0.0
    after_bytes: int = 1  # of the body, for `within-body`
    seen: int = 0

    @classmethod
    def parse(cls, data: Any) -> Rule:
        """Reads one entry.

        Raises:
            ValueError: says what is wrong with it.
        """
        if not isinstance(data, dict) or data.get("action") not in ACTIONS:
            raise ValueError(f"a fault is an object whose action is one of {', '.join(sorted(ACTIONS))}: {data!r}")
        if unknown := set(data) - FIELDS:
            raise ValueError(f"a fault has no {', '.join(sorted(unknown))}: {data!r}")
        values = dict(data)
        nth = values.pop("nth", "every")
        if nth == "every":
            first, last = 1.0, math.inf
        elif type(nth) is int:
            first = last = nth
        elif isinstance(nth, list) and len(nth) == 2 and type(nth[0]) is int:
            first, last = nth[0], math.inf if nth[1] is None else nth[1]
        else:
            raise ValueError(f'nth is a number, [first, last], [first, null] or "every": {data!r}')
        for name, kinds in TYPES.items():
            if not isinstance(values.get(name, kinds[0]()), kinds):
                raise ValueError(f"{name} has the wrong type: {data!r}")  # noqa: TRY004 - one type for all that is wrong
        rule = cls(**values, first=first, last=last)
        if rule.when not in MOMENTS:
            raise ValueError(f"when is one of {', '.join(sorted(MOMENTS))}: {data!r}")
        if "after_bytes" in data and (rule.when != "within-body" or rule.after_bytes < 1):
            raise ValueError(f"after_bytes is a number of bytes from 1 on, for within-body: {data!r}")
        if not 100 <= rule.status <= 599:
            raise ValueError(f"status is an HTTP status: {data!r}")
        return rule

    def matches(self, method: str, path: str, operations: Sequence[str]) -> bool:
        """Whether the conditions hold."""
        return (
            (path.startswith(CLIENT_PATHS) if self.path is None else self.path in path)
            and self.method in (None, method)
            and (self.operation is None or self.operation.lower() in map(str.lower, operations))
        )

    def due(self) -> bool:
        """Counts one matching request; whether it is one that the rule strikes."""
        self.seen += 1
        return self.first <= self.seen <= self.last


class FaultScript:
    """The rules, read again when their file changes; counts begin anew with each version of the script."""

    def __init__(self, rules: Sequence[Any] = (), file: Path | None = None) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self.rules = [Rule.parse(rule) for rule in rules]
        if file is not None:
            self.refresh()

    def set(self, rules: Sequence[Any]) -> None:
        """Replaces the script."""
        self.rules = [Rule.parse(rule) for rule in rules]

    def refresh(self) -> None:
        """Reads the file if it is another than before.

        Raises:
            ValueError: it is no fault script.
            OSError: it cannot be read.
        """
        if self._file is None:
            return
        status = self._file.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        try:
            rules = json.loads(self._file.read_text("utf-8"))
            if not isinstance(rules, list):
                raise ValueError("it is not a JSON list")  # noqa: TRY004 - one type for all that is wrong with it
            self.set(rules)
        except ValueError as error:
            raise ValueError(f"fault script {self._file}: {error}") from None
        self._stamp = stamp

    def take(self, method: str, path: str, operations: Sequence[str]) -> Rule | None:
        """Counts the request with every rule that it matches; the first rule that is due strikes."""
        due = [rule for rule in self.rules if rule.matches(method, path, operations) and rule.due()]
        return due[0] if due else None


class Connections(Protocol):
    """How a connection is broken off; the ASGI interface has no word for it."""

    def abort(self, scope: Scope) -> None:
        """Drops the connection at once (RST)."""

    def close(self, scope: Scope) -> None:
        """Closes it after what was sent."""


class Faults:
    """ASGI layer that plays the script."""

    def __init__(
        self,
        app: ASGIApp,
        script: FaultScript,
        connections: Connections,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app = app
        self._script = script
        self._connections = connections
        self._sleep = sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or spoils it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._script.refresh()
        except (OSError, ValueError) as error:
            await JSONResponse({"error": str(error)}, 500)(scope, receive, send)
            return
        if not self._script.rules:
            await self._app(scope, receive, send)
            return
        operations: list[str] = []
        if scope["path"] == "/graphql" and any(rule.operation for rule in self._script.rules):
            body = await _read_body(receive)
            if body is None:
                return
            receive = _replay(body, receive)
            operations = _operations(body)
        rule = self._script.take(scope["method"], scope["path"], operations)
        if rule is None:
            await self._app(scope, receive, send)
            return
        entry_of(scope).fault = rule.action
        await self._strike(rule, scope, receive, send)

    async def _strike(self, rule: Rule, scope: Scope, receive: Receive, send: Send) -> None:
        if rule.action == "half":
            await self._half(scope, receive, send)
            return
        if rule.when == "within-body":
            receive = await _read_some(receive, rule.after_bytes)
        elif rule.when != "before-read":  # the client has sent everything when the fault strikes
            body = await _read_body(receive)
            if body is None:
                return
            receive = _replay(body, receive)
        answer = await self._applied(scope, receive) if rule.when == "after-apply" else None
        if rule.action == "delay":
            await self._sleep(rule.seconds)
            if answer is None:
                await self._app(scope, receive, send)
            else:
                for message in answer:
                    await send(message)
        elif rule.action == "status":
            await Response(rule.body, rule.status, rule.headers)(scope, receive, send)
        elif rule.action == "reset":
            self._connections.abort(scope)
            await _until_gone(receive)
        elif rule.when == "within-body" and rule.seconds:  # the rest of the body stays where it is
            await self._sleep(rule.seconds)
            self._connections.abort(scope)
        else:
            hung = asyncio.ensure_future(_until_gone(receive))
            await asyncio.wait([hung], timeout=rule.seconds or None)
            hung.cancel()
            self._connections.abort(scope)

    async def _applied(self, scope: Scope, receive: Receive) -> list[Message]:
        """Lets the request have its effect and keeps the answer back."""
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._app(scope, receive, keep)
        return answer

    async def _half(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Applies the request, announces the whole answer and sends half of it."""
        answer = await self._applied(scope, receive)
        body = b"".join(message.get("body", b"") for message in answer)
        await send(answer[0])
        await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        self._connections.close(scope)
        await _until_gone(receive)


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None when the client broke it off, so that no part of one is taken for a whole."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _read_some(receive: Receive, count: int) -> Receive:
    """Reads at least `count` bytes of the body, or all of it if it has no more; a `receive` that begins anew."""
    messages: list[Message] = []
    while count > 0:
        messages.append(await receive())
        count -= len(messages[-1].get("body", b""))
        if not messages[-1].get("more_body", False):
            break

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return again


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out `body` first."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


def _operations(body: bytes) -> list[str]:
    """The names that a rule can match: the operation's and its top-level fields'."""
    try:
        request = Request(body)
    except (BadRequestError, GraphQLError):
        return []
    return [*([request.name] if request.name else []), *(call.field.name for call in request.calls)]


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
