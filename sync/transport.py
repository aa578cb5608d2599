"""The only module, with `sockets`, that knows the HTTP library: one request in, one answer or one typed error out.

Redirects are not followed, so a key never travels to another origin. A synchronous client: at 32 requests at a time, an
asynchronous one costs nine times the CPU. Each request has a pool of connections to itself, the one that was used last: one pool
for all threads looks at all of its connections twice for each request, and lets no other thread in meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from urllib.parse import quote, urlsplit

from .errors import Interrupted, Permanent, Retryable
from .network import Network, Proxy, find_network
from .quiet import keep_quiet, unlogged

if TYPE_CHECKING:
    import ssl

    import httpcore

_SLOWEST_UPLINK = 25_000  # bytes/s; the whole attempt may take the time that the body needs at this speed
_MAX_ANSWER = 32 * 1024 * 1024  # bytes; a larger answer is refused before it is kept
_PART = 256 * 1024  # bytes of a body at a time
_CONNECTIONS = 4  # of one pool, which serves one request at a time: to the server, and to some storages
_PLAIN = frozenset({"", "identity"})
_URL_CHARACTERS = "".join(map(chr, range(33, 127)))
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
"""Of a header; what is around it would be cut off by whoever reads it."""
_SAFE = _URL_CHARACTERS.replace('"', "").replace("<", "").replace(">", "")


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
    sent_in: float = 0.0
    """Seconds that the network took for the body; 0 where nobody knows."""


class Transport(Protocol):
    """Sends one request, once."""

    def send(self, request: Request) -> Answer:
        """Raises `Retryable` where no whole answer came, `Interrupted` when the sync is stopped."""


class HttpTransport:
    """Transport over HTTP/1.1 connections that are kept open. `network`: how servers are reached, by the environment unless given."""

    def __init__(self, *, network: Network | None = None, stop: threading.Event | None = None) -> None:
        from .sockets import Backend, Guard

        keep_quiet()
        self._network = network if network is not None else find_network()
        self._guard = Guard(stop or threading.Event())
        self._backend = Backend(self._guard)
        self._lock = threading.Lock()
        self._idle: dict[tuple[Proxy | None, bool], list[httpcore.ConnectionPool]] = {}
        """Pools that no request uses now, the one used last at the end."""
        self._tls: ssl.SSLContext | None = None
        self._timeouts = {
            "connect": self._network.connect_s,
            "read": self._network.stall_s,
            "write": self._network.stall_s,
        }
        # Answers are small. Unpacked as they come, a packed one of a few kB could fill the memory in one step.
        self._headers = {"User-Agent": _user_agent(), "Accept": "*/*", "Accept-Encoding": "identity"}

    def send(self, request: Request) -> Answer:
        """Send `request` and read the whole answer.

        Raises:
            Retryable: no connection, a stall, a reset, or an answer that is cut or too large.
            Permanent: no certificate that can be trusted, a proxy that refuses, the file that is the body became shorter
                meanwhile, or URL or headers are none that can be sent.
            UsageError: proxy or certificates are not as the environment says.
            Interrupted: the sync was stopped before or during the request.
        """
        import httpcore

        from .sockets import Stopped

        where = "the server"
        try:
            where = urlsplit(request.url).netloc.rpartition("@")[2]  # never the rest of it: upload URLs are signed
            proxy = self._network.proxy_for(request.url)
            if proxy is not None:
                where += f" through the proxy {proxy}"
            deadline = time.monotonic() + 2 * self._network.stall_s + request.length / _SLOWEST_UPLINK
            with unlogged(), self._pool(request.url, proxy) as pool:
                while True:
                    self._guard.begin(deadline)
                    try:
                        return self._exchange(request, pool)
                    except (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError):
                        # Servers end idle connections as they like, also when a request is on its way: that is no failure.
                        if not self._guard.is_unheard:
                            raise
        except Stopped:
            raise Interrupted("stopped during a request") from None
        except (httpcore.UnsupportedProtocol, httpcore.LocalProtocolError, UnicodeError, ValueError) as error:
            raise Permanent(f"URL or headers that cannot be sent: {error}", status=0) from error
        except httpcore.ProxyError as error:
            words = self._network.hide(str(error).encode()).decode()  # which may repeat what it was sent
            said = f"cannot reach {where}: the proxy says {words}"
            if str(error)[:1] == "4":
                raise Permanent(said, status=0) from error
            raise Retryable(said) from error
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            problem = _tls_problem(error)
            if problem is not None:
                raise Permanent(f"no secure connection to {where}: {problem}", status=0) from error
            raise Retryable(f"cannot reach {where}: {error}") from error
        except httpcore.TimeoutException as error:
            raise Retryable(f"{where}: no answer in time: {error}", late=True) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            kind = type(error).__name__
            raise Retryable(f"{where}: {kind}: {error}" if str(error) else f"{where}: {kind}") from error

    def abort(self) -> None:
        """End every request that is under way, also one that waits for a server that says nothing."""
        self._guard.abort()

    def close(self) -> None:
        """Close the connections that are kept open."""
        with self._lock:
            for pools in self._idle.values():
                while pools:
                    pools.pop().close()

    def _exchange(self, request: Request, pool: httpcore.ConnectionPool) -> Answer:
        given = {name.lower() for name in request.headers}
        headers = {name: value for name, value in self._headers.items() if name.lower() not in given}
        headers |= {**request.headers, "Content-Length": str(request.length)}
        for name, value in headers.items():
            if not _VALUE.fullmatch(value):
                raise ValueError(f"the value of {name}")  # not what it is: it may be secret
        body = _Body(request)
        with pool.stream(
            request.method,
            _ascii(request.url),
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()],
            content=iter(body) if request.length else None,
            extensions={"timeout": self._timeouts},
        ) as response:
            if response.status < 300 and not body.is_whole:
                raise Retryable("the server answered before it had the whole body", status=response.status)
            found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            if found.get("content-encoding", "identity").lower() not in _PLAIN:
                if response.status >= 300:  # what counts of a refusal is its status, and when to come back
                    return Answer(response.status, found, b"", body.took)
                raise Permanent("the answer is packed, which was not asked for", status=response.status)
            kept = bytearray()
            if found.get("content-length", "").isdecimal() and int(found["content-length"][:20]) > _MAX_ANSWER:
                raise Retryable(f"the answer is larger than {_MAX_ANSWER} bytes")
            for part in response.iter_stream():
                kept += part
                if len(kept) > _MAX_ANSWER:
                    raise Retryable(f"the answer is larger than {_MAX_ANSWER} bytes")
            return Answer(response.status, found, bytes(kept), body.took)

    @contextlib.contextmanager
    def _pool(self, url: str, proxy: Proxy | None) -> Iterator[httpcore.ConnectionPool]:
        """A pool for one request at a time."""
        encrypted = url[:6].lower() == "https:"
        with self._lock:
            idle = self._idle.setdefault((proxy, encrypted), [])
            pool = idle.pop() if idle else None
        if pool is None:
            self._network.check(url)
            pool = self._make_pool(proxy, encrypted=encrypted)
        try:
            yield pool
        finally:
            with self._lock:
                idle.append(pool)

    def _make_pool(self, proxy: Proxy | None, *, encrypted: bool) -> httpcore.ConnectionPool:
        import httpcore

        if encrypted and self._tls is None:
            self._tls = self._network.tls()
        options: dict[str, Any] = {
            "ssl_context": self._tls if encrypted else None,
            "max_connections": _CONNECTIONS,
            "max_keepalive_connections": _CONNECTIONS,
            "keepalive_expiry": 30.0,
            "network_backend": self._backend,
        }
        if proxy is None:
            return httpcore.ConnectionPool(**options)
        auth = (proxy.user.encode(), proxy.password.encode()) if proxy.user is not None else None
        if not proxy.url.startswith("socks"):
            return httpcore.HTTPProxy(proxy.url, proxy_auth=auth, **options)
        return httpcore.SOCKSProxy(proxy.url, proxy_auth=auth, **options)


class _Body:
    """The body in parts, as the library asks for them; `took`: seconds from the first to the last."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.took = 0.0
        self.is_whole = not request.length
        """All of it was handed to the system."""

    def __iter__(self) -> Iterator[bytes]:
        begun = time.monotonic()
        request = self._request
        if isinstance(request.body, bytes):
            view = memoryview(request.body)
            for at in range(0, len(view), _PART):
                yield cast("bytes", view[at : at + _PART])  # the library joins them as it does bytes
        else:
            with request.body() as file:
                left = request.size
                while left:
                    part = file.read(min(_PART, left))
                    if not part:
                        raise Permanent("the file became shorter while it was sent", status=0)
                    left -= len(part)
                    yield part
        self.took, self.is_whole = time.monotonic() - begun, True


@lru_cache(64)
def _idna(host: str) -> str:
    return host.encode("idna").decode()


def _ascii(url: str) -> str:
    """`url` with what no request line can hold percent-encoded, and the host as the name service spells it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host:
        raise ValueError("no host")
    netloc = f"[{host}]" if ":" in host else _idna(host)
    if parts.port is not None:
        netloc += f":{parts.port}"
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return f"{parts.scheme}://{netloc}{target}"


def _user_agent() -> str:
    from .. import __version__

    return f"runferry/{__version__}"


def _tls_problem(error: BaseException) -> str | None:
    """What both sides disagree about in TLS itself or its certificates, which no other attempt will change."""
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); name a file with the certificate of its "
                "authority in SSL_CERT_FILE"
            )
        if isinstance(cause, ssl.SSLError):
            known = {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}
            hint = "; a server without TLS answers so: try http://" if cause.reason == "WRONG_VERSION_NUMBER" else ""
            return f"{cause}{hint}" if cause.reason in known else None
        cause = cause.__cause__ or cause.__context__
    return None
