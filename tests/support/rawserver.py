"""A server on loopback that answers with the bytes it was given, however wrong they are, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType


class RawServer:
    """Answers the n-th request with the n-th of `answers`, the last one again and again.

    An answer is bytes, or is called with the connection. Requests are read whole if they have a Content-Length.
    """

    def __init__(self, *answers: bytes | Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._answers = list(answers)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        """Heads and bodies."""
        self.connected = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/"

    def __enter__(self) -> RawServer:  # noqa: PYI034 - typing.Self is younger than Python 3.10
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connected += 1
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._connections.append(connection)
            while request := read_request(connection):
                self.requests.append(request)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)
            connection.close()


def read_request(connection: socket.socket) -> bytes:
    """Head and body of one request; empty at the end of the connection."""
    request = b""
    while b"\r\n\r\n" not in request:
        part = connection.recv(65536)
        if not part:
            return b""
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    parts = [body]
    left = int(length[1]) - len(body) if length else 0
    while left > 0:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
    return head + b"\r\n\r\n" + b"".join(parts)


def reply(body: bytes = b"{}", status: str = "200 OK", headers: str = "") -> bytes:
    """An ordinary answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
