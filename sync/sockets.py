"""Connections that end when they should: each read and write keeps to the attempt's deadline, and all of them to a stop.

The HTTP library knows timeouts between two bytes. A server that sends a byte a minute, or interim answers without end, would hold it for
ever; so would a name server that says nothing.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

import httpcore

_SLICE_S = 0.2  # how late a stop may be noticed where nothing can be woken
_PART = 256 * 1024  # bytes handed to the system at a time
_UNSENT = 256 * 1024  # bytes that the system may keep before they are on their way: progress is seen as it is made
_HELD = 16 * 1024  # bytes of a request that wait for the rest of it: a small one leaves in one piece
_TELLING = len(b"HTTP/1.1 4")  # of an answer: the class of its status


class Late(httpcore.TimeoutException):
    """The attempt's time is over."""


class Stopped(Exception):  # noqa: N818 - what it is, not that it is an error
    """The sync was asked to stop."""


class Guard:
    """The deadline of the attempt that this thread makes, and the stop of all attempts."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._local = threading.local()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()

    def begin(self, deadline: float) -> None:
        """An attempt of this thread begins; `deadline` on the monotonic clock."""
        self._local.deadline = deadline
        self._local.is_unheard = True
        self.check()

    def heard(self) -> None:
        """Whoever is at the other end of this thread's connection was there just now."""
        self._local.is_unheard = False

    @property
    def is_unheard(self) -> bool:
        """Whether this thread's attempt went over a connection that was kept open, and nothing came back.

        Servers end idle connections as they like, also while a request is on its way.
        """
        return bool(self._local.is_unheard)

    def check(self, timeout: float | None = None) -> float:
        """For how many seconds something may block; raises `Late` or `Stopped` where it may not."""
        if self._stop.is_set():
            raise Stopped
        left = float(self._local.deadline) - time.monotonic()
        if left <= 0.0:
            raise Late("the attempt took too long for its size")
        return left if timeout is None else min(left, timeout)

    def add(self, connection: socket.socket) -> None:
        """A connection to be ended by `abort`."""
        with self._lock:
            self._sockets.add(connection)

    def abort(self) -> None:
        """End every connection, also one that waits for a server that says nothing."""
        with self._lock:
            connections = list(self._sockets)
        for connection in connections:
            with contextlib.suppress(OSError):
                # Not the method of an encrypted socket, which takes its state from under the thread that reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Stream(httpcore.NetworkStream):
    """One connection."""

    def __init__(self, connection: socket.socket, guard: Guard) -> None:
        self._socket = connection
        self._guard = guard
        self._early = b""
        """What came of an answer before the request was sent."""
        self._held = bytearray()
        """The end of the request, as long as it is small."""
        guard.add(connection)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Wait for bytes; empty at the end of the connection."""
        with contextlib.suppress(httpcore.WriteError):  # an answer may be there all the same
            self._flush(timeout)
        if self._early:
            data, self._early = self._early, b""
            return data
        left = self._guard.check(timeout)
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(max_bytes)
        except TimeoutError:
            self._guard.check()
            raise httpcore.ReadTimeout(f"no byte for {left:.0f} s") from None
        except OSError as error:
            self._guard.check()
            raise httpcore.ReadError(str(error)) from error
        if data:
            self._guard.heard()
        else:
            self._guard.check()  # it may be we who ended it
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of `buffer`; what is small goes with what follows it, or before the answer is read."""
        if len(self._held) + len(buffer) <= _HELD:
            self._held += buffer
            return
        self._flush(timeout)
        self._send(buffer, timeout)

    def _flush(self, timeout: float | None) -> None:
        held, self._held = self._held, bytearray()
        self._send(held, timeout)

    def _send(self, buffer: bytes | bytearray, timeout: float | None) -> None:
        view = memoryview(buffer)
        while view:
            if self._is_refused():
                raise httpcore.WriteError("refused before its end")  # the library goes on to read the answer
            left = self._guard.check(timeout)
            try:
                self._socket.settimeout(left)
                sent = self._socket.send(view[:_PART])
            except TimeoutError:
                self._guard.check()
                raise httpcore.WriteTimeout(f"no byte was taken for {left:.0f} s") from None
            except OSError as error:
                self._guard.check()
                raise httpcore.WriteError(str(error)) from error
            view = view[sent:]

    def _is_refused(self) -> bool:
        """Whether a last word has come already, e.g. a 413 by which the rest of a body is spared."""
        if len(self._early) < _TELLING and _is_readable(self._socket):
            with contextlib.suppress(
                OSError
            ):  # nothing that can be read yet, or a reset, which the next write will meet
                self._socket.settimeout(0.0)
                self._early += self._socket.recv(_TELLING - len(self._early))
        return self._early[_TELLING - 1 :] in (b"3", b"4", b"5")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """The same connection, encrypted."""
        left = self._guard.check(timeout)
        try:
            self._socket.settimeout(left)
            encrypted = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._socket = encrypted
            self._guard.add(encrypted)  # it is another object, and the handshake may have to be ended
            encrypted.do_handshake()
        except (OSError, ValueError) as error:
            self.close()
            self._guard.check()
            kind = httpcore.ConnectTimeout if isinstance(error, TimeoutError) else httpcore.ConnectError
            raise kind(str(error)) from error
        return Stream(encrypted, self._guard)

    def get_extra_info(self, info: str) -> Any:
        """What the library asks of a connection."""
        if info == "ssl_object":
            return self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        if info == "is_readable":
            return _is_readable(self._socket)
        return None


class Backend(httpcore.NetworkBackend):
    """Makes connections."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._reached: dict[tuple[str, int], Any] = {}
        """The address that answered last: where another one swallows packets, that costs its time once."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002 - the library's interface
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - as above
    ) -> httpcore.NetworkStream:
        """Connect to the first address of `host` that answers; all of it in `timeout`."""
        until = time.monotonic() + self._guard.check(timeout)
        addresses = self._look_up(host, port, until)
        addresses.sort(key=lambda found: found[4] != self._reached.get((host, port)))
        error: OSError = OSError("the name has no address")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            self._guard.check()
            left = until - time.monotonic()
            if left <= 0.0:
                break
            try:
                connection = socket.socket(family, kind, protocol)
            except OSError as problem:  # no IPv6 here, or too many open files
                error = problem
                continue
            try:
                self._guard.add(connection)
                connection.settimeout(left / (len(addresses) - number))
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(AttributeError, OSError):  # not on all systems
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
            except OSError as problem:
                connection.close()
                self._guard.check()
                error = problem
            else:
                self._guard.heard()
                self._reached[host, port] = address
                return Stream(connection, self._guard)
        if isinstance(error, TimeoutError):
            raise httpcore.ConnectTimeout("no connection in time")
        raise httpcore.ConnectError(error.strerror or str(error)) from error

    def _look_up(self, host: str, port: int, until: float) -> list[tuple[Any, ...]]:
        """The addresses of `host`. The system's resolver cannot be interrupted, so it runs in a thread that may be left."""
        found: queue.SimpleQueue[list[tuple[Any, ...]] | OSError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except OSError as error:
                found.put(error)

        try:
            threading.Thread(target=ask, name="runferry-lookup", daemon=True).start()
        except RuntimeError:  # the system allows no more threads; an interrupt waits for the resolver then
            ask()
        while True:
            self._guard.check()
            left = until - time.monotonic()
            if left <= 0.0:
                raise httpcore.ConnectTimeout(f"no address of {host} in time")
            with contextlib.suppress(queue.Empty):
                answer = found.get(timeout=min(left, _SLICE_S))
                if isinstance(answer, OSError):
                    words = answer.strerror or str(answer)
                    if answer.errno == socket.EAI_NONAME:
                        words = f"this machine finds no address for that name ({words}): is it spelt right?"
                    raise httpcore.ConnectError(words) from answer
                return answer


def _is_readable(connection: socket.socket) -> bool:
    """Whether a connection that should be silent is not: the server has ended it."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([connection], [], [], 0)[0])
    except (OSError, ValueError):
        return True
