"""Unary gRPC calls to a server on this host, over HTTP/2 without TLS. Needs `h2`, which is what speaks HTTP/2 here.

A call is one HTTP/2 stream: the request's headers and one message; headers, one message and trailers come back. Without
a message they are one block. A message on the wire: 1 byte whether it is packed, 4 bytes of its length, itself.
"""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PushedStreamReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

CONNECT_WITHIN = 0.1  # s
LONGEST_ANSWER = 4 << 20  # bytes of a message; gRPC's own default
MOST_RECEIVED = 16 << 20  # bytes on one connection: of all answers, and of whatever else is sent

_ATTEMPTS = 2
_HOST = "127.0.0.1"
_CHUNK = 1 << 16
_PREFIX = struct.Struct(">BI")
_LONGEST_STATUS = 3  # digits
_LONGEST_TEXT = 200  # characters of the server's words

Headers = dict[bytes, bytes]


class RpcError(Exception):
    """No answer of use. The text says why in a few words."""


class AbsentError(RpcError):
    """Nothing listens on that port."""


class BrokenError(RpcError):
    """The connection or the call ended without an answer, or what came is no HTTP/2."""


class LateError(RpcError):
    """No whole answer in time."""


class TooLargeError(RpcError):
    """More than may be read."""


class GarbledError(RpcError):
    """HTTP/2, but no answer of gRPC."""


class RefusedError(RpcError):
    """The server's own no: `status` is gRPC's number, such as 5 for NOT_FOUND."""

    def __init__(self, status: int, message: str) -> None:
        words = "".join(letter if letter.isprintable() else "?" for letter in message)[:_LONGEST_TEXT]
        super().__init__(f"it answers gRPC status {status}{f': {words}' if words else ''}")
        self.status = status


def ask(
    port: int,
    method: str,
    requests: Mapping[str, bytes],
    within: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, bytes | RpcError]:
    """The answer to each request, or why there is none; all at once, on a connection that is closed at the end.

    What has no answer because the connection ended is asked once more on a new one: only reads may be asked. `within`
    is in seconds, for all together.
    """
    deadline = monotonic() + within

    def left() -> float:
        if (seconds := deadline - monotonic()) <= 0:
            raise TimeoutError
        return seconds

    answers: dict[str, bytes | RpcError] = dict.fromkeys(requests, BrokenError())
    for _ in range(_ATTEMPTS):
        calls = [_Call(name, requests[name]) for name, answer in answers.items() if isinstance(answer, BrokenError)]
        if calls:
            problem = _exchange(port, method, calls, left)
            answers |= {call.name: problem if call.outcome is None else call.outcome for call in calls}
    return answers


def _exchange(port: int, method: str, calls: list[_Call], left: Callable[[], float]) -> RpcError:
    """Make the calls on one connection; why those that then have no outcome have none."""
    try:
        with socket.create_connection((_HOST, port), min(CONNECT_WITHIN, left())) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Connection(sock, method, calls, left).run()
    except RpcError as error:
        return error
    except ConnectionRefusedError:
        return AbsentError("nothing listens there")
    except TimeoutError:
        return LateError("no whole answer in time")
    except OSError as error:
        return BrokenError(f"the connection broke: {error.strerror or type(error).__name__}")
    except H2Error as error:
        return BrokenError(f"no valid HTTP/2: {type(error).__name__}")  # its text may hold anything
    return BrokenError("the connection ended")


class _Call:
    """One call: what is still to be sent, what has come, and the outcome once there is one."""

    def __init__(self, name: str, request: bytes) -> None:
        self.name = name
        self.unsent = _PREFIX.pack(0, len(request)) + request
        self.outcome: bytes | RpcError | None = None
        self.over = False  # whether its stream is closed by both sides
        self._body = bytearray()
        self._ending: Headers = {}  # the last block of headers, unless data came after it

    def begin(self, headers: Headers) -> None:
        """The answer's first headers."""
        status, kind = headers.get(b":status", b""), headers.get(b"content-type", b"")
        if status != b"200":
            self.fail(GarbledError(f"it answers HTTP status {status.decode('latin-1')[:_LONGEST_STATUS]}"))
        elif not kind.startswith(b"application/grpc"):
            self.fail(GarbledError("its answer is not of gRPC"))
        self._ending = headers

    def add(self, data: bytes) -> None:
        """A piece of the message."""
        self._body += data
        self._ending = {}
        if len(self._body) > LONGEST_ANSWER + _PREFIX.size:
            self.fail(_too_large())

    def trail(self, headers: Headers) -> None:
        """The trailers."""
        self._ending = headers

    def end(self) -> None:
        """Nothing more comes."""
        if self.outcome is None:
            try:
                self.outcome = self._message()
            except RpcError as error:
                self.fail(error)

    def fail(self, error: RpcError) -> None:
        """There will be no answer of use."""
        if self.outcome is None:
            self.outcome = error

    def _message(self) -> bytes:
        status = self._ending.get(b"grpc-status", b"")
        if not status.isdigit() or len(status) > _LONGEST_STATUS:
            raise GarbledError("an answer has no gRPC status")
        if int(status):
            raise RefusedError(int(status), unquote(self._ending.get(b"grpc-message", b"").decode("latin-1")))
        if len(self._body) < _PREFIX.size:
            raise GarbledError("an answer has no message")
        packed, size = _PREFIX.unpack_from(self._body)
        if size != len(self._body) - _PREFIX.size:
            raise GarbledError("an answer is not one whole message")
        message = bytes(self._body[_PREFIX.size :])
        return _unpacked(message) if packed else message


def _unpacked(message: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)  # gzip
    try:
        data = unpacking.decompress(message, LONGEST_ANSWER + 1)
    except zlib.error:
        raise GarbledError("an answer cannot be unpacked") from None
    if len(data) > LONGEST_ANSWER:
        raise _too_large()
    if not unpacking.eof or unpacking.unused_data:
        raise GarbledError("an answer cannot be unpacked")
    return data


def _too_large() -> TooLargeError:
    return TooLargeError(f"an answer is larger than {LONGEST_ANSWER >> 20} MiB")


class _Connection:
    """One HTTP/2 connection, for as long as `calls` take."""

    def __init__(self, sock: socket.socket, method: str, calls: list[_Call], left: Callable[[], float]) -> None:
        self._sock = sock
        self._method = method
        self._calls = calls
        self._left = left
        self._h2 = H2Connection(H2Configuration(header_encoding=None))
        self._greeted = False  # whether the server's settings are here, which say how many calls it takes at once
        self._received = 0  # bytes
        self._waiting = calls[::-1]
        self._streams: dict[int, _Call] = {}

    def run(self) -> None:
        """Until each call has an outcome.

        Raises:
            OSError, H2Error, RpcError: the connection is of no more use; TimeoutError at the deadline.
        """
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.ENABLE_PUSH: 0})
        while any(call.outcome is None for call in self._calls):
            self._cancel()
            self._open()
            self._send()
            for event in self._h2.receive_data(self._receive()):
                self._handle(event)

    def _cancel(self) -> None:
        """End what goes on and is of no more use."""
        for stream, call in self._streams.items():
            if call.outcome is not None and not call.over:
                call.over = True
                self._h2.reset_stream(stream, ErrorCodes.CANCEL)

    def _open(self) -> None:
        """Begin as many calls as the server takes at once."""
        most = self._h2.remote_settings.max_concurrent_streams if self._greeted else 0
        while self._waiting and self._h2.open_outbound_streams < most:
            stream = self._h2.get_next_available_stream_id()
            self._streams[stream] = self._waiting.pop()
            headers = {
                ":method": "POST",
                ":scheme": "http",
                ":path": self._method,
                ":authority": _HOST,
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-accept-encoding": "identity,gzip",
                "grpc-timeout": f"{int(1000 * self._left()) + 1}m",  # milliseconds
            }
            self._h2.send_headers(stream, list(headers.items()))

    def _send(self) -> None:
        """Send what the server's windows have room for."""
        for stream, call in self._streams.items():
            while call.unsent and not call.over and (room := self._room(stream)) > 0:
                piece, call.unsent = call.unsent[:room], call.unsent[room:]
                self._h2.send_data(stream, piece, end_stream=not call.unsent)
        self._sock.settimeout(self._left())
        self._sock.sendall(self._h2.data_to_send())

    def _room(self, stream: int) -> int:
        return min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)

    def _receive(self) -> bytes:
        self._sock.settimeout(self._left())
        data = self._sock.recv(_CHUNK)
        if not data:
            raise BrokenError("the connection ended")
        self._received += len(data)
        if self._received > MOST_RECEIVED:
            raise TooLargeError(f"it sends more than {MOST_RECEIVED >> 20} MiB")
        return data

    def _handle(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self._greeted = True
            case ConnectionTerminated():
                raise BrokenError("the server ends the connection")
            case PushedStreamReceived():
                raise GarbledError("it sends what was not asked for")
            case ResponseReceived():
                self._streams[event.stream_id].begin(dict(event.headers))
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self._streams[event.stream_id].add(event.data)
            case TrailersReceived():
                self._streams[event.stream_id].trail(dict(event.headers))
            case StreamEnded():
                call = self._streams[event.stream_id]
                call.over = not call.unsent
                call.end()
            case StreamReset():
                call = self._streams[event.stream_id]
                call.over = True
                call.fail(BrokenError(f"the server ends a call with HTTP/2 error {event.error_code}"))
