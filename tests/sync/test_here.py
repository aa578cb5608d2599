"""Work that is done where it is asked for, and requests that leave in one piece."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from runferry.sync.here import HERE
from runferry.sync.sockets import Guard, Stream


def test_work_is_done_at_once_in_the_thread_that_asks() -> None:
    """What comes of it is in the future, an error too."""
    done = HERE.submit(lambda number: (number, threading.get_ident()), 7)
    failed = HERE.submit(lambda: 1 // 0)

    assert done.done()
    assert done.result() == (7, threading.get_ident())
    assert isinstance(failed.exception(), ZeroDivisionError)


def test_an_interrupt_goes_on() -> None:
    """It is meant for the thread, not for the work."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HERE.submit(interrupted)


@pytest.mark.parametrize(("body", "before"), [(b"b" * 100, b""), (b"b" * 20_000, b"head" + b"b" * 20_000)])
def test_a_small_request_leaves_in_one_piece(body: bytes, before: bytes) -> None:
    """Head and body go together when the answer is waited for; a large body goes at once, behind its head."""
    ours, theirs = socket.socketpair()
    guard = Guard(threading.Event())
    guard.begin(time.monotonic() + 60.0)
    stream = Stream(ours, guard)
    with ours, theirs:
        theirs.settimeout(0.0)
        theirs.send(b"HTTP/1.1 200 OK")
        stream.write(b"head")
        stream.write(body)
        seen = b""
        try:
            while part := theirs.recv(65536):
                seen += part
        except BlockingIOError:
            pass
        assert seen == before

        assert stream.read(100) + stream.read(100) == b"HTTP/1.1 200 OK"
        theirs.settimeout(10.0)
        while len(seen) < 4 + len(body):
            seen += theirs.recv(65536)
        assert seen == b"head" + body
