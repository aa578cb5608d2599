"""The only module that knows the HTTP library: one request in, one answer or one typed error out.

Redirects are not followed, so a key never travels to another origin. A synchronous client with a pool that the workers
share: at 32 requests at a time, the library's asynchronous client costs nine times the CPU.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from .errors import Interrupted, Permanent, Retryable
from .quiet import keep_quiet, unlogged

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 60.0  # without a byte in either direction
_SLOWEST_UPLINK = 25_000  # bytes/s; the whole attempt may take the time that the body needs at this speed
_MAX_ANSWER = 32 * 1024 * 1024  # bytes; a larger answer is refused before it is kept
_PART = 256 * 1024  # bytes handed to the socket at a time
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True)
class Request:
    """One request. `body` is bytes, or opens a file that is sent from its start (`size` bytes, for each attempt anew)."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | Callable[[], BinaryIO] = field(default=b"", repr=False)
    size: int = 0

    @property
    def length(self) -> int:
        """Bytes of the body."""
        return len(self.body) if isinstance(self.body, bytes) else self.size


@dataclass(frozen=True)
class Answer:
    """What came back, whatever the status; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request, once."""

    def send(self, request: Request) -> Answer:
        """Raises `Retryable` where no whole answer came, `Interrupted` when the sync is stopped."""


class HttpTransport:
    """Transport over httpx. `http` replaces the network, for tests."""

    def __init__(self, *, http: httpx.BaseTransport | None = None, stop: threading.Event | None = None) -> None:
        import httpx

        keep_quiet()
        self._stop = stop or threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._client = httpx.Client(
            transport=http,
            timeout=httpx.Timeout(STALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=16),
            follow_redirects=False,
            trust_env=True,  # proxies and certificate files by the usual variables
            mounts=dict.fromkeys(_LOOPBACK),  # None: never by a proxy
            # Answers are small. Unpacked by the library, a packed one of a few kB could fill the memory in one step.
            headers={"User-Agent": "runferry", "Accept-Encoding": "identity"},
        )

    def send(self, request: Request) -> Answer:
        """Send `request` and read the whole answer.

        Raises:
            Retryable: no connection, a stall, a reset, or an answer that is cut or too large.
            Permanent: the file that is the body became shorter meanwhile, or URL or headers are none that can be sent.
            Interrupted: the sync was stopped before or during the request.
        """
        import httpx

        deadline = time.monotonic() + 2 * STALL_TIMEOUT_S + request.length / _SLOWEST_UPLINK
        headers = {**request.headers, "Content-Length": str(request.length)}
        content = self._parts(request, deadline) if request.length else None
        self._check(deadline)
        try:
            with (
                unlogged(),
                self._client.stream(
                    request.method,
                    request.url,
                    headers=headers,
                    content=content,
                    extensions={"trace": self._note_socket},
                ) as response,
            ):
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise Permanent("the answer is packed, which was not asked for", status=response.status_code)
                body = bytearray()
                for part in response.iter_bytes():
                    body += part
                    if len(body) > _MAX_ANSWER:
                        raise Retryable(f"the answer is larger than {_MAX_ANSWER} bytes")
                    self._check(deadline)
                return Answer(response.status_code, dict(response.headers.items()), bytes(body))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
            raise Permanent(f"URL or headers that cannot be sent: {error}", status=0) from error
        except httpx.RequestError as error:
            self._check(deadline)  # a connection that `abort` ended
            host = urlsplit(request.url).netloc  # never the rest of it: upload URLs are signed
            if _is_tls_mismatch(error):
                raise Permanent(f"no secure connection to {host}: {error}", status=0) from error
            if isinstance(error, httpx.ConnectError):
                raise Retryable(f"cannot reach {host}: {error}") from error
            kind = type(error).__name__
            late = isinstance(error, httpx.TimeoutException)
            reason = f"no answer in time ({kind})" if late else f"{kind}: {error}" if str(error) else kind
            raise Retryable(f"{host}: {reason}") from error

    def abort(self) -> None:
        """End every request that is under way, also one that waits for a server that says nothing."""
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                # Not the method of an encrypted socket, which takes its state from under the thread that reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember the socket of each new connection, which nothing else would tell."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.add(info["return_value"].get_extra_info("socket"))

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._client.close()

    def _check(self, deadline: float) -> None:
        if self._stop.is_set():
            raise Interrupted("stopped during a request")
        if time.monotonic() > deadline:
            raise Retryable("the attempt took too long for its size")

    def _parts(self, request: Request, deadline: float) -> Iterator[bytes]:
        """The body in parts, so that a stop and the deadline are seen between them."""
        if isinstance(request.body, bytes):
            view = memoryview(request.body)
            for at in range(0, len(view), _PART):
                self._check(deadline)
                yield bytes(view[at : at + _PART])
            return
        with request.body() as file:
            left = request.size
            while left:
                self._check(deadline)
                part = file.read(min(_PART, left))
                if not part:
                    raise Permanent("the file became shorter while it was sent", status=0)
                left -= len(part)
                yield part


def _is_tls_mismatch(error: BaseException) -> bool:
    """Whether both sides disagree about TLS itself or its certificates, which no other attempt will change."""
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        if isinstance(cause, ssl.SSLError):
            return cause.reason in {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}
        cause = cause.__cause__ or cause.__context__
    return False
