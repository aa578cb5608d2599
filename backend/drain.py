"""Lets a client that is still sending hear why it is refused."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DRAINED = 256 << 20  # bytes; who sends more than this may find the connection closed
FIRST_ERROR = 400


class Drain:
    """ASGI layer that reads the rest of a refused request's body before the answer.

    A server that answers and closes while bytes are still coming makes the client's system reset the connection, and
    the client sees a broken pipe in place of the answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        more = scope["type"] == "http"

        async def tracked_receive() -> Message:
            nonlocal more
            message = await receive()
            more = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def draining_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= FIRST_ERROR:
                drained = 0
                while more and drained < MAX_DRAINED:
                    drained += len((await tracked_receive()).get("body", b""))
            await send(message)

        await self._app(scope, tracked_receive, draining_send)
