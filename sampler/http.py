"""GET for probes: one request, one deadline, a bounded answer, and errors that hold no secret."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - name lookups load it, and no thread may load a module while another forks
import http.client
import io
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, quote, urljoin, urlsplit

CONNECT_WITHIN = 3.0  # s, for all addresses of a name together
ANSWER_WITHIN = 5.0  # s, connecting and redirects included; the peer's, too
LONGEST_ANSWER = 16 << 20  # bytes, as sent and again as unpacked
MOST_REDIRECTS = 3
MOST_MEMBERS = 64  # of gzip in one answer: each costs a copy of what follows it

_CHUNK = 1 << 16
_OVERHEAD = 1 << 20  # bytes beside the body: heads, and as much as the body again for chunks
_PORTS = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset(["accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding", "upgrade"])
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_AS_IS = "!#$%&'()*+,/:;=?@[]~"  # of a request's target; all else is escaped
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # beside SSL_CERT_FILE and SSL_CERT_DIR, which OpenSSL reads itself


class HttpError(Exception):
    """No answer of use. The text says why in a few words, without the address and without any header's value."""


class AddressError(HttpError):
    """The URL or a header cannot be used at all."""


class UnreachableError(HttpError):
    """No connection: unknown name, refused, certificate not trusted; or it broke."""


class DeadlineError(HttpError):
    """No connection, or no whole answer, in time."""


class StatusError(HttpError):
    """An answer that says no."""

    def __init__(self, status: int) -> None:
        name = http.client.responses.get(status, "")  # never the server's words
        super().__init__(f"it answers {status} {name}".rstrip())
        self.status = status


class ElsewhereError(HttpError):
    """It sends us to another server, which we do not follow: the headers are not for that one."""


class TooLargeError(HttpError):
    """More than may be read."""


class GarbledError(HttpError):
    """No HTTP, or an answer that ends early or cannot be unpacked."""


class Answer(NamedTuple):
    """Status 200. `content_type` in lower case with its parameters; `body` unpacked."""

    content_type: str
    body: bytes


class Endpoint:
    """A URL to be asked again and again. It is shown to people, so credentials are no part of it but of the headers.

    Asked directly: what is scraped stands in the cluster, and a proxy of the environment would not reach it.
    Each `get` opens a connection of its own. A name lookup has no deadline in the system's resolver, so call it where
    hanging harms nobody. Trusted are those whom `authority`, a file of certificates, vouches for; without it, whom the
    usual variables name, or the system.

    Raises:
        AddressError: no http or https URL, one with a user or a password, or a header that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        authority: str | None = None,
        environ: Mapping[str, str] = os.environ,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
            host = parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
            host = host.replace("%25", "%", 1) if ":" in host else host  # an interface (RFC 6874)
        except ValueError:
            raise AddressError("not a valid URL") from None  # the cause holds the URL
        if parts.scheme not in _PORTS or not host or re.search(r"[\s\x00-\x1f]", host):
            raise AddressError("not an http or https URL")
        if "@" in parts.netloc:
            raise AddressError("its URL holds a user or a password: give a header Authorization instead")
        self._scheme, self._host = parts.scheme, host
        self._port = _PORTS[parts.scheme] if port is None else port
        self._target = _target(parts)
        self._headers = _checked(headers or {})
        self._authority = authority
        self._environ = environ
        self._monotonic = monotonic
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self._scheme}://{self._host}:{self._port})"

    def get(
        self,
        *,
        accept: str = "*/*",
        connect_within: float = CONNECT_WITHIN,
        within: float = ANSWER_WITHIN,
        longest: int = LONGEST_ANSWER,
    ) -> Answer:
        """The answer with status 200, redirects on the same server followed.

        Raises:
            HttpError: one of the classes above.
        """
        deadline = self._monotonic() + within
        target = self._target
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._ask(target, accept, min(deadline, self._monotonic() + connect_within), deadline, longest)
            if isinstance(answer, Answer):
                return answer
            target = self._followed(target, answer)
        raise GarbledError(f"more than {MOST_REDIRECTS} redirects")

    def _ask(self, target: str, accept: str, connected_by: float, deadline: float, longest: int) -> Answer | str:
        """One exchange: an answer, or where a redirect points."""
        try:
            stream = _Bounded(self._connect(connected_by), deadline, self._monotonic, 2 * longest + _OVERHEAD)
            connection = http.client.HTTPConnection(self._host, self._port)
            connection.sock = stream
            try:
                self._send(connection, target, accept)
                response = connection.getresponse()
                if response.status in _REDIRECTS:
                    return response.getheader("Location") or ""
                if response.status != http.client.OK:
                    raise StatusError(response.status)
                body = _unpacked(response, _read(response, longest), longest)
                return Answer(response.getheader("Content-Type", "").strip().lower(), body)
            finally:
                connection.close()
                stream.end()
        except HttpError:
            raise
        except TimeoutError:
            raise DeadlineError("no whole answer in time") from None
        except OSError as error:
            raise UnreachableError(_words(error)) from None
        except (http.client.HTTPException, ValueError, zlib.error) as error:
            raise GarbledError(f"no valid HTTP answer: {type(error).__name__}") from None  # its text may hold anything

    def _connect(self, deadline: float) -> socket.socket:
        """To the first address that answers; each gets its share of the time, as one may be dead and the next alive."""
        problem: OSError = TimeoutError()
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise AddressError("not a valid host name") from None
        for number, (family, kind, protocol, _, address) in enumerate(found):
            try:
                share = self._left(deadline) / (len(found) - number)
                return self._connected(socket.socket(family, kind, protocol), address, share, deadline)
            except OSError as error:  # of the system: no such family of addresses, too
                problem = error
        if isinstance(problem, TimeoutError):
            raise DeadlineError("no connection in time") from None
        raise problem

    def _connected(self, plain: socket.socket, address: Any, within: float, deadline: float) -> socket.socket:
        try:
            plain.settimeout(within)
            plain.connect(address)
            return self._secured(plain, deadline)
        except BaseException:
            plain.close()
            raise

    def _secured(self, plain: socket.socket, deadline: float) -> socket.socket:
        if self._scheme == "http":
            return plain
        if self._tls is None:
            self._tls = _trust_only(self._authority) if self._authority else _trust(self._environ)
        plain.settimeout(self._left(deadline))
        return self._tls.wrap_socket(plain, server_hostname=self._host)  # its handshake keeps to the time as a whole

    def _left(self, deadline: float) -> float:
        left = deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _send(self, connection: http.client.HTTPConnection, target: str, accept: str) -> None:
        host = f"[{self._host.partition('%')[0]}]" if ":" in self._host else self._host  # interfaces are nobody else's
        port = "" if self._port == _PORTS[self._scheme] else f":{self._port}"
        ours = {"Host": host + port, "Accept": accept, "Accept-Encoding": "gzip", "Connection": "close"}
        given = {name.lower() for name in self._headers}
        connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
        for name, value in [*((n, v) for n, v in ours.items() if n.lower() not in given), *self._headers.items()]:
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()

    def _followed(self, target: str, location: str) -> str:
        here = f"{self._scheme}://{'[' + self._host + ']' if ':' in self._host else self._host}:{self._port}"
        try:
            there = urlsplit(urljoin(here + target, location))
            port = _PORTS.get(there.scheme) if there.port is None else there.port
        except ValueError:
            raise GarbledError("a redirect to no valid URL") from None
        if (there.scheme, there.hostname, port) != (self._scheme, self._host, self._port):
            raise ElsewhereError("it redirects to another server; give that one's address if it is the right one")
        return _target(there)


def _target(parts: SplitResult) -> str:
    """Path and query of a request, escaped where a request line could not hold them."""
    query = f"?{parts.query}" if parts.query else ""
    return quote((parts.path or "/") + query, safe=_AS_IS)


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _TOKEN.fullmatch(str(name)):
            raise AddressError("a header's name holds what no header's name may hold")
        if str(name).lower() in _OURS:
            raise AddressError(f"header {name} says how an answer is to be read: it cannot be set")
        if not _VALUE.fullmatch(str(value)):
            raise AddressError(f"the value of header {name} holds what no header may hold, such as the end of a line")
        checked[str(name)] = str(value).strip()
    return checked


def _trust_only(authority: str) -> ssl.SSLContext:
    """Whom one file of certificates vouches for. Those of clusters often lack what Python is strict about since 3.13."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError):
        raise UnreachableError("the file of certificates to trust it by cannot be read") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _trust(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Whom to trust: the files that the usual variables name, else the system's."""
    if not (environ.get("SSL_CERT_FILE") or environ.get("SSL_CERT_DIR")):
        for variable in _BUNDLES:
            place = environ.get(variable)
            if place:
                try:
                    if os.path.isdir(place):  # noqa: PTH112 - one look, nothing else of a path is needed
                        return ssl.create_default_context(capath=place)
                    return ssl.create_default_context(cafile=place)
                except (OSError, ssl.SSLError):
                    raise UnreachableError(f"{variable} names no file of certificates") from None
    return ssl.create_default_context()


def _read(response: http.client.HTTPResponse, longest: int) -> bytes:
    """The whole body as sent."""
    if (response.length or 0) > longest:
        _too_large(longest)
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(min(_CHUNK, longest + 1 - size)):
        pieces.append(piece)
        size += len(piece)
        if size > longest:
            _too_large(longest)
    if response.length:  # what the header promised beyond what came
        raise GarbledError("the answer ends early")
    return b"".join(pieces)


def _unpacked(response: http.client.HTTPResponse, body: bytes, longest: int) -> bytes:
    encoding = response.getheader("Content-Encoding", "identity").strip().lower()
    if encoding in {"identity", ""}:
        return body
    if encoding not in {"gzip", "x-gzip"}:
        raise GarbledError("packed in a way that was not asked for")
    pieces: list[bytes] = []
    size = 0
    while body:  # one member after the other
        if len(pieces) == MOST_MEMBERS:
            raise GarbledError(f"packed in more than {MOST_MEMBERS} pieces")
        packed = zlib.decompressobj(wbits=31)
        piece = packed.decompress(body, longest + 1 - size)
        size += len(piece)
        if size > longest:
            _too_large(longest)
        if not packed.eof:
            raise GarbledError("the answer ends early")
        pieces.append(piece)
        body = packed.unused_data
    return b"".join(pieces)


def _too_large(longest: int) -> NoReturn:
    raise TooLargeError(
        f"the answer is larger than {longest >> 20} MiB" if longest >> 20 else "the answer is too large"
    )


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'no reason given'}"
    if isinstance(error, socket.gaierror):
        return "its name cannot be looked up"
    if isinstance(error, ConnectionResetError):
        return "the connection broke"
    return f"no connection: {error.strerror or type(error).__name__}"


class _Bounded:
    """A socket of which all waits together end by one deadline, and that takes in so many bytes.

    `http.client` knows only waits for one byte each, skips heads and trailers without end, and reads a chunk of
    "-1" bytes to the end of the connection.
    """

    def __init__(self, sock: socket.socket, deadline: float, monotonic: Callable[[], float], most: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._monotonic = monotonic
        self._left = most

    def _hurry(self) -> None:
        left = self._deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def sendall(self, data: bytes) -> None:
        self._hurry()
        self._sock.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        self._hurry()
        received = self._sock.recv_into(buffer)
        self._left -= received
        if self._left < 0:
            raise TooLargeError("the answer has no end")
        return received

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - it is only read from
        return io.BufferedReader(_Received(self), _CHUNK)

    def close(self) -> None:
        """Nothing: `http.client` closes as soon as it has read the head, and reads on."""

    def end(self) -> None:
        self._sock.close()


class _Received(io.RawIOBase):
    """What comes in, as a file."""

    def __init__(self, source: _Bounded) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.recv_into(buffer)
