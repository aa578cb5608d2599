"""Calls of gRPC: judged by grpcio's own server, and by servers in memory that do what that one never does."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingAckReceived, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe import frame as frames
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.sampler.probes import tpu_grpc
from runferry.sampler.probes.tpu_grpc import (
    AbsentError,
    BrokenError,
    GarbledError,
    LateError,
    RefusedError,
    RpcError,
    TooLargeError,
    ask,
)

SERVER = Path(__file__).parent / "fake" / "grpc_server.py"
METHOD = "/fake.Service/Do"
LONG = 20.0  # s, where no deadline is to be reached
ANSWERED = [(":status", "200"), ("content-type", "application/grpc")]
DONE = [("grpc-status", "0")]


def body(size):
    return bytes(index % 251 for index in range(size))


def message(data, *, compressed=0):
    return struct.pack(">BI", compressed, len(data)) + data


# --- a real server


@pytest.fixture
def start():
    """Start a server of grpcio with these options; gives a way to ask it."""
    pytest.importorskip("grpc")
    servers = []

    def begin(**options):
        options = {name if name == "gzip" else f"grpc.{name}": value for name, value in options.items()}
        command = [sys.executable, str(SERVER), json.dumps(options)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        servers.append(server)
        port = int(server.stdout.readline())

        def call(*wishes, within=LONG, method=METHOD):
            requests = {str(index): json.dumps(wish).encode() for index, wish in enumerate(wishes)}
            return list(ask(port, method, requests, within).values())

        return call

    yield begin
    for server in servers:
        server.stdin.close()
        server.wait(10)
        server.stdout.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_concurrent_streams": 1},
        {"http2.lookahead_bytes": 0, "http2.bdp_probe": 0},
        {"http2.hpack_table_size.encoder": 0},
        {"http2.max_frame_size": 1 << 20},
        {"gzip": True},
    ],
    ids=str,
)
def test_answers_of_all_sizes(start, options):
    """None to several windows and frames, whatever the server's settings; the requests are of several sizes, too."""
    sizes = [0, 1, 1000, 16_379, 70_000, 1_000_000]
    call = start(**{name.replace("http2_", "http2."): value for name, value in options.items()})
    assert call(*({"size": size, "padding": "x" * size} for size in sizes)) == [body(size) for size in sizes]


def test_headers_of_many_frames(start):
    """Headers that need CONTINUATION are read, and what is behind them."""
    assert start()({"size": 5, "headers": 40}) == [body(5)]


def test_no_more_calls_at_once_than_the_server_takes(start):
    """The server says how many; all are answered in the end."""
    call = start(max_concurrent_streams=2)
    assert call(*({"size": n, "after": 0.02} for n in range(7))) == [body(n) for n in range(7)]
    assert int(call({"most": True})[0]) <= 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("no such metric", ": no such metric"),
        ("100 % \u00e4 \u20ac", ": 100 % \u00e4 \u20ac"),
        ("a\x1b[2J\n", ": a?[2J?"),
    ],
)
@pytest.mark.parametrize("status", [1, 5, 16])
def test_status_of_a_refusal(start, status, text, words):
    """Number and words of the server's no, escaped on the wire; what would move a terminal's cursor is left out."""
    answer, good = start()({"status": status, "message": text}, {"size": 3})
    assert isinstance(answer, RefusedError)
    assert (answer.status, str(answer)) == (status, f"it answers gRPC status {status}{words}")
    assert good == body(3)


def test_a_method_that_the_server_does_not_have(start):
    """Status 12 in the only block of headers."""
    (answer,) = start()({}, method="/fake.Service/Other")
    assert (type(answer), answer.status) == (RefusedError, 12)


def test_slow_answers_cost_themselves(start):
    """What is there by the deadline is kept; the server is told the deadline and to stop."""
    call = start()
    begun = time.monotonic()
    slow, quick = call({"after": 5}, {"size": 9}, within=0.3)
    assert (type(slow), quick) == (LateError, body(9))
    assert time.monotonic() - begun < 3
    assert call({"size": 2}) == [body(2)]


def test_the_server_knows_the_deadline(start):
    """It can stop work that nobody waits for any more."""
    (left,) = start()({"left": True}, within=LONG)
    assert LONG - 5 < float(left) <= LONG + 0.001


def test_too_large_an_answer_costs_itself(start, monkeypatch):
    """One byte more than may be read; the rest of it is not sent, and the others arrive."""
    monkeypatch.setattr(tpu_grpc, "LONGEST_ANSWER", 100_000)
    monkeypatch.setattr(tpu_grpc, "MOST_RECEIVED", 1_000_000)
    most, large, huge, other = start()({"size": 100_000}, {"size": 100_001}, {"size": 3_000_000}, {"size": 70_000})
    assert (type(large), type(huge)) == (TooLargeError, TooLargeError)
    assert (most, other) == (body(100_000), body(70_000))


def test_too_large_an_answer_as_unpacked(wires, monkeypatch):
    """The bound holds for a packed message when it is unpacked, and for no byte less."""
    monkeypatch.setattr(tpu_grpc, "LONGEST_ANSWER", 100_000)
    packed = {data: message(gzip.compress(bytes(int(data))), compressed=1) for data in (b"100000", b"100001")}

    def reply(wire, stream, data):
        with_body(packed[data[5:]])(wire, stream, data)

    (most, large), _ = wires(lambda: Wire(reply), list(packed))
    assert (most, type(large)) == (bytes(100_000), TooLargeError)


def test_death_in_the_midst_of_answers(start):
    """What was answered is kept; asked again, nothing listens any more."""
    call = start()
    lost, kept = call({"die": True, "after": 0.2}, {"size": 4})
    assert isinstance(lost, (AbsentError, BrokenError))
    assert kept == body(4) or isinstance(kept, (AbsentError, BrokenError))  # whichever came first
    assert [type(answer) for answer in call({}, {})] == [AbsentError, AbsentError]


def test_connections_that_the_server_ends_again_and_again(start):
    """GOAWAY at an age that some answers do not reach: those are there, the others are asked twice and then given up."""
    call = start(max_connection_age_ms=50, max_connection_age_grace_ms=50)
    answers = call({"size": 3}, {"after": 3, "size": 3})
    assert answers[0] == body(3)
    assert isinstance(answers[1], BrokenError)
    assert call({"asked": True}) == [b"3"]


def test_nothing_listens():
    """A port without a server, at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert type(ask(port, METHOD, {"a": b""}, LONG)["a"]) is AbsentError


def test_a_server_that_does_not_accept():
    """Mute: given up at the deadline, which is of all together."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        answers = ask(listener.getsockname()[1], METHOD, {"a": b"", "b": b""}, 0.05)
        assert [type(answer) for answer in answers.values()] == [LateError, LateError]
        assert time.monotonic() - begun < 2


def test_nothing_to_ask():
    """No connection is made."""
    assert ask(0, METHOD, {}, LONG) == {}


# --- servers in memory


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Wire:
    """A socket whose other end is an HTTP/2 server in memory; `reply(wire, stream, request)` answers a whole request."""

    def __init__(self, reply, *, options=None, piece=1 << 16):
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.server.local_settings = Settings(client=False, initial_values=options or {})
        self.server.initiate_connection()
        self.reply, self.piece = reply, piece
        self.raw = bytearray()  # sent behind what the server sends
        self.ended = False
        self.events, self.requests, self.headers = [], {}, {}
        self.out = bytearray()
        self.timeout = None
        self.undelayed = False  # whether small pieces leave at once
        self.heard = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def setsockopt(self, *option):
        assert option == (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.undelayed = True

    def settimeout(self, seconds):
        assert seconds > 0
        self.timeout = seconds

    def sendall(self, data):
        self.heard += data
        self._take(data)
        self._say(self.server.data_to_send() + bytes(self.raw))
        self.raw.clear()

    def _say(self, data):
        self.out += data

    def _take(self, data):
        try:
            events = self.server.receive_data(data)
        except H2Error:
            self.ended = True
            return
        self.events += events
        for event in events:
            if isinstance(event, RequestReceived):
                self.headers[event.stream_id] = dict(event.headers)
                self.requests[event.stream_id] = b""
            elif isinstance(event, DataReceived):
                self.requests[event.stream_id] += event.data
                self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self.reply(self, event.stream_id, self.requests[event.stream_id])

    def recv(self, size):
        data = bytes(self.out[: min(size, self.piece)])
        del self.out[: len(data)]
        if data or self.ended:
            return data
        raise TimeoutError

    def resets(self):
        """The streams that were ended by RST_STREAM, and why."""
        found, at = [], len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while at < len(self.heard):
            frame, size = frames.Frame.parse_frame_header(memoryview(self.heard)[at : at + 9])
            if isinstance(frame, frames.RstStreamFrame):
                found.append((frame.stream_id, int.from_bytes(self.heard[at + 9 : at + 13], "big")))
            at += 9 + size
        return found

    def answer(self, stream, data, *, padding=None):
        self.server.send_headers(stream, ANSWERED)
        self.server.send_data(stream, data, pad_length=padding)
        self.server.send_headers(stream, DONE, end_stream=True)


def echo(wire, stream, request):
    """Answers a request with itself."""
    wire.answer(stream, request)


@pytest.fixture
def wires(monkeypatch):
    """Ask the servers that `make()` gives, one per connection; all that were made."""

    def call(make, requests=(b"one", b"two"), *, within=LONG, monotonic=time.monotonic):
        made = []

        def connect(address, timeout):
            assert address == ("127.0.0.1", 8431)
            assert 0 < timeout <= min(tpu_grpc.CONNECT_WITHIN, within)
            made.append(make())
            return made[-1]

        monkeypatch.setattr(tpu_grpc.socket, "create_connection", connect)
        answers = ask(8431, METHOD, {data: data for data in requests}, within, monotonic=monotonic)
        assert list(answers) == list(requests)
        return list(answers.values()), made

    return call


def test_request(wires):
    """Headers as gRPC wants them, one message, and the time that is left in milliseconds."""
    answers, (wire,) = wires(lambda: Wire(echo), within=0.0625, monotonic=Clock())
    assert answers == [b"one", b"two"]
    assert wire.headers[1] == {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "127.0.0.1",
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity,gzip",
        "grpc-timeout": "63m",
    }
    assert wire.requests == {1: message(b"one"), 3: message(b"two")}
    assert wire.resets() == []
    assert wire.undelayed


@pytest.mark.parametrize("piece", [1, 2, 7])
def test_any_cuts(wires, piece):
    """Bytes may arrive in any pieces."""
    assert wires(lambda: Wire(echo, piece=piece))[0] == [b"one", b"two"]


def test_padding(wires):
    """Padding is no part of a message."""
    assert wires(lambda: Wire(lambda wire, stream, data: wire.answer(stream, data, padding=200)))[0] == [b"one", b"two"]


def test_padding_is_given_back(wires):
    """Padding takes room in the windows, which we give back: 600 bytes arrive with twice a window of padding."""

    class Padded(Wire):
        left = 600

        def _take(self, data):
            super()._take(data)
            while self.requests.get(1) and self.left and self.server.local_flow_control_window(1) > 300:
                self.left -= 1
                self.server.send_data(1, b"x", pad_length=255)
                if not self.left:
                    self.server.send_headers(1, DONE, end_stream=True)

    def reply(wire, stream, data):
        wire.server.send_headers(stream, ANSWERED)
        wire.server.send_data(stream, struct.pack(">BI", 0, 600))

    assert wires(lambda: Padded(reply), [b"a"])[0] == [b"x" * 600]


def test_windows_smaller_than_a_request(wires):
    """A request waits for room, and is whole in the end."""
    request = bytes(range(256)) * 300
    answers, (wire,) = wires(
        lambda: Wire(
            lambda wire, stream, data: wire.answer(stream, message(b"ok")),
            options={SettingCodes.INITIAL_WINDOW_SIZE: 10},
        ),
        [request],
    )
    assert answers == [b"ok"]
    assert wire.requests[1] == message(request)


def test_a_server_without_room_for_calls(wires):
    """It takes none: none is sent, and the deadline ends the wait."""
    answers, (wire,) = wires(lambda: Wire(echo, options={SettingCodes.MAX_CONCURRENT_STREAMS: 0}))
    assert [type(answer) for answer in answers] == [LateError, LateError]
    assert wire.headers == {}


def test_pings_are_answered(wires):
    """Servers that measure or look whether we live get their answer, and settings are acknowledged."""

    def reply(wire, stream, data):
        if stream == 1:
            wire.server.ping(b"12345678")
            wire.server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        else:
            wire.answer(stream, data)

    answers, (wire,) = wires(lambda: Wire(reply))
    assert [type(answer) for answer in answers] == [LateError, bytes]
    assert {PingAckReceived, SettingsAcknowledged} <= {type(event) for event in wire.events}


def test_a_call_that_the_server_resets(wires):
    """RST_STREAM is of one call, which is asked once more, on a new connection."""
    first = itertools.count()

    def reply(wire, stream, data):
        if stream == 1 and next(first) == 0:
            wire.server.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        else:
            wire.answer(stream, data)

    answers, made = wires(lambda: Wire(reply))
    assert answers == [b"one", b"two"]
    assert [list(wire.requests.values()) for wire in made] == [[message(b"one"), message(b"two")], [message(b"one")]]


def test_a_reset_is_not_answered(wires):
    """What the server has ended is over, and the other calls go on; an answer that was of no use is not asked again."""

    def reply(wire, stream, data):
        if stream == 1:
            wire.server.send_headers(stream, [(":status", "404")])
            wire.server.reset_stream(stream)
            wire.server.ping(b"12345678")
        elif stream == 3:
            wire.answer(stream, data)

    class Later(Wire):
        def _take(self, data):
            super()._take(data)
            if any(isinstance(event, PingAckReceived) for event in self.events) and not self.ended:
                self.ended = True
                self.answer(5, message(b"three"))

    answers, (wire,) = wires(lambda: Later(reply), [b"one", b"two", b"three"])
    assert [type(answer) for answer in answers] == [GarbledError, bytes, bytes]
    assert wire.resets() == []


def test_connections_that_end(wires):
    """By GOAWAY, also in the midst of frames, or without a word: what has no answer is asked again, once."""

    def leave(wire, stream, data):
        if stream == 1:
            wire.answer(stream, data)
        else:
            wire.server.close_connection()

    def vanish(wire, stream, data):
        if stream == 1:
            wire.answer(stream, data)
        wire.ended = True

    def leave_in_order(wire, stream, data):
        if stream == 1:
            wire.raw += frames.GoAwayFrame(0, last_stream_id=(1 << 31) - 1).serialize()
            wire.raw += frames.PingFrame(0, opaque_data=b"12345678").serialize()
        else:
            wire.answer(stream, data)

    for reply in (leave, vanish, leave_in_order):
        made = []

        def make(reply=reply, made=made):
            made.append(Wire(echo if made else reply))
            return made[-1]

        assert wires(make)[0] == [b"one", b"two"], reply
        assert len(made) == 2
        answers, made = wires(lambda reply=reply: Wire(reply))
        assert len(made) == 2
        assert {type(answer) for answer in answers} <= {bytes, BrokenError}, reply


def test_a_server_that_goes_away(wires, monkeypatch):
    """Its connection ends and nothing listens any more: it is said to be absent, not broken."""
    made = []

    def make():
        if made:
            raise ConnectionRefusedError
        made.append(Wire(lambda wire, stream, data: setattr(wire, "ended", True)))
        return made[-1]

    assert [type(answer) for answer in wires(make)[0]] == [AbsentError, AbsentError]


def headers_only(*headers):
    def reply(wire, stream, data):
        wire.server.send_headers(stream, list(headers), end_stream=True)

    return reply


def with_body(data, *, head=ANSWERED, trailers=DONE):
    def reply(wire, stream, _):
        wire.server.send_headers(stream, head)
        wire.server.send_data(stream, data, end_stream=trailers is None)
        if trailers is not None:
            wire.server.send_headers(stream, trailers, end_stream=True)

    return reply


GOOD = message(b"ok")


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (headers_only(*ANSWERED, ("grpc-status", "5")), RefusedError, "it answers gRPC status 5"),
        (headers_only(*ANSWERED, ("grpc-status", "13"), ("grpc-message", "%e2%82")), RefusedError, "13: \ufffd"),
        (headers_only(*ANSWERED, *DONE), GarbledError, "no message"),
        (headers_only(*ANSWERED), GarbledError, "no gRPC status"),
        (headers_only((":status", "404")), GarbledError, "HTTP status 404"),
        (headers_only((":status", "200"), ("content-type", "text/html")), GarbledError, "not of gRPC"),
        (with_body(GOOD, trailers=[("grpc-status", "")]), GarbledError, "no gRPC status"),
        (with_body(GOOD, trailers=[("grpc-status", "-1")]), GarbledError, "no gRPC status"),
        (with_body(GOOD, trailers=[("grpc-status", "9" * 5000)]), GarbledError, "no gRPC status"),
        (with_body(GOOD, trailers=[("x", "y")]), GarbledError, "no gRPC status"),
        (with_body(GOOD, trailers=None), GarbledError, "no gRPC status"),
        (with_body(GOOD, head=[*ANSWERED, *DONE], trailers=None), GarbledError, "no gRPC status"),
        (with_body(GOOD, head=[*ANSWERED, *DONE], trailers=[("grpc-status", "7")]), RefusedError, "status 7"),
        (with_body(GOOD, head=[(":status", "503"), ("content-type", "text/html")]), GarbledError, "HTTP status 503"),
        (with_body(message(b"ok", compressed=1)), GarbledError, "cannot be unpacked"),
        (with_body(message(gzip.compress(b"ok")[:-1], compressed=1)), GarbledError, "cannot be unpacked"),
        (with_body(message(gzip.compress(b"ok") * 2, compressed=1)), GarbledError, "cannot be unpacked"),
        (with_body(GOOD + GOOD), GarbledError, "not one whole message"),
        (with_body(GOOD[:-1]), GarbledError, "not one whole message"),
        (with_body(b"\0\xff\xff\xff\xff"), GarbledError, "not one whole message"),
        (with_body(GOOD[:4]), GarbledError, "no message"),
    ],
)
def test_answers_that_are_none(wires, reply, kind, words):
    """Each kind by its own error, which says what is wrong; asking again would not help, and the connection lives on."""

    def both(wire, stream, data):
        (reply if data == message(b"one") else echo)(wire, stream, data)

    (bad, good), made = wires(lambda: Wire(both))
    assert (type(bad), good, len(made)) == (kind, b"two", 1)
    assert words in str(bad)


def test_words_of_a_server_without_end(wires):
    """200 characters are enough."""
    ((answer, _), _) = wires(lambda: Wire(headers_only(*ANSWERED, ("grpc-status", "5"), ("grpc-message", "x" * 9999))))
    assert str(answer) == f"it answers gRPC status 5: {'x' * 200}"


def test_what_is_of_no_use_is_cancelled(wires):
    """A call that is decided before its end is ended by us; those that are complete are not."""

    def reply(wire, stream, data):
        if stream == 1:
            wire.server.send_headers(stream, [(":status", "500")])
        elif stream == 3:
            wire.answer(stream, data)

    answers, (wire,) = wires(lambda: Wire(reply), [b"a", b"b", b"c"])
    assert [type(answer) for answer in answers] == [GarbledError, bytes, LateError]
    assert wire.resets() == [(1, ErrorCodes.CANCEL)]


def test_an_answer_before_the_request_is_whole(wires):
    """A no to a request that had no room yet counts; its stream is ended once, and nothing is sent on it any more."""

    class Early(Wire):
        refused = opened = False

        def _take(self, data):
            super()._take(data)
            if self.headers and not self.refused:
                self.refused = True
                headers_only(*ANSWERED, ("grpc-status", "8"))(self, 1, b"")
            if any(isinstance(event, StreamReset) for event in self.events) and not self.opened:
                self.opened = True
                self.server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})

    answers, (wire,) = wires(lambda: Early(echo, options={SettingCodes.INITIAL_WINDOW_SIZE: 3}))
    assert (type(answers[0]), answers[1]) == (RefusedError, b"two")
    assert wire.requests == {1: message(b"one")[:3], 3: message(b"two")}
    assert wire.resets() == [(1, ErrorCodes.CANCEL)]


PUSHED = Encoder().encode([(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")])


def test_pushed_answers(wires):
    """We say that we take none: pushed all the same they end the connection, also before the server has heard that."""
    push = frames.PushPromiseFrame(1, promised_stream_id=2, data=PUSHED, flags=["END_HEADERS"]).serialize()

    def reply(wire, stream, data):
        wire.raw += push

    assert str(wires(lambda: Wire(reply))[0][0]) == "no valid HTTP/2: ProtocolError"
    answers, _ = wires(lambda: Bytes(GREETING + push, len(GREETING)))
    assert [(type(answer), str(answer)) for answer in answers] == 2 * [
        (GarbledError, "it sends what was not asked for")
    ]


@pytest.mark.parametrize("stream", [2, 99])
def test_answers_on_streams_that_nobody_opened(wires, stream):
    """They end the connection."""
    stray = frames.HeadersFrame(stream, data=b"\x88", flags=["END_HEADERS", "END_STREAM"]).serialize()

    def reply(wire, _, data):
        wire.raw += stray

    assert "no valid HTTP/2" in str(wires(lambda: Wire(reply))[0][0])


def test_a_server_that_sends_without_end(wires, monkeypatch):
    """Pings, settings and the like count, too: what one connection may send has a bound."""
    monkeypatch.setattr(tpu_grpc, "MOST_RECEIVED", 100_000)
    flood = frames.PingFrame(0, opaque_data=b"12345678").serialize() * 4000

    class Flood(Wire):
        taken = 0

        def recv(self, size):
            self.out += flood
            self.taken += size
            return super().recv(size)

    answers, made = wires(lambda: Flood(echo, piece=17_000))
    assert {type(answer) for answer in answers} <= {TooLargeError, bytes}
    assert type(wires(lambda: Flood(lambda *_: None))[0][0]) is TooLargeError
    assert len(made) == 1


def test_headers_without_end(wires):
    """CONTINUATION after CONTINUATION is refused, not collected."""

    def reply(wire, stream, data):
        wire.raw += frames.HeadersFrame(stream, data=b"\x88").serialize()
        wire.raw += frames.ContinuationFrame(stream, data=b"\x88" * 100).serialize() * 2000

    answers, _ = wires(lambda: Wire(reply))
    assert [type(answer) for answer in answers] == [BrokenError, BrokenError]


def test_a_frame_that_is_larger_than_allowed(wires):
    """One byte more than the 16 KiB that every client takes."""

    def reply(wire, stream, data):
        wire.raw += struct.pack(">I", 16_385)[1:] + b"\0\0" + struct.pack(">I", stream) + bytes(16_385)

    answers, _ = wires(lambda: Wire(reply))
    assert str(answers[0]) == "no valid HTTP/2: FrameTooLargeError"


def test_bytes_that_drip(wires):
    """A byte now and then does not hold us beyond the deadline, nor does a server that takes nothing in."""
    clock = Clock()

    class Slow(Wire):
        def sendall(self, data):
            assert self.timeout == pytest.approx(1000.5 - clock.now)
            clock.now += 0.01
            super().sendall(data)

        def recv(self, size):
            assert self.timeout == pytest.approx(1000.5 - clock.now)
            clock.now += 0.1
            return super().recv(size)

    answers, _ = wires(lambda: Slow(echo, piece=1), within=0.5, monotonic=clock)
    assert [type(answer) for answer in answers] == [LateError, LateError]
    assert 1000.5 <= clock.now < 1000.65


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n\r\nhello", b"SSH-2.0-OpenSSH_9.6\r\n"], ids=["none", "web", "ssh"]
)
def test_another_program_on_that_port(wires, said):
    """Whatever listens there and is no server of gRPC is told apart and let go."""

    class Other(Wire):
        def sendall(self, data):
            self.out += said if data.startswith(b"PRI") else b""
            self.ended = True

    answers, made = wires(lambda: Other(echo))
    assert [type(answer) for answer in answers] == [BrokenError, BrokenError]
    assert len(made) == 2


def test_system_errors(wires):
    """A connection that cannot be used, in words."""

    def make():
        raise OSError(101, "Network is unreachable")

    assert str(wires(make)[0][0]) == "the connection broke: Network is unreachable"


# --- any bytes


def outcomes(make):
    """Ask what `make()` gives; every request has a message or an error of ours."""
    kept = tpu_grpc.socket.create_connection
    tpu_grpc.socket.create_connection = lambda *_: make()
    try:
        answers = ask(8431, METHOD, {"one": b"one", "two": b"two"}, LONG, monotonic=Clock())
    finally:
        tpu_grpc.socket.create_connection = kept
    assert list(answers) == ["one", "two"]
    assert all(isinstance(answer, (bytes, RpcError)) for answer in answers.values())
    return list(answers.values())


class Bytes(Wire):
    """Says this whatever it hears, and ends."""

    def __init__(self, said, piece):
        super().__init__(echo, piece=piece)
        self.out += said
        self.ended = True

    def sendall(self, data):
        pass


GREETING = frames.SettingsFrame(0).serialize()


@given(st.binary(max_size=200), st.booleans(), st.integers(1, 64))
def test_any_bytes(data, greeted, piece):
    """Random bytes, at once or after a greeting, give errors of ours only."""
    assert not any(isinstance(answer, bytes) for answer in outcomes(lambda: Bytes(GREETING * greeted + data, piece)))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.integers(0, 255),
            st.sampled_from([0, 1, 2, 3, 5, (1 << 31) - 1]),
            st.binary(max_size=40),
        ),
        max_size=12,
    )
)
@settings(max_examples=300)
def test_any_frames(parts):
    """Frames of any type, flags, stream and content, in any order."""
    sent = b"".join(
        struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
        for kind, flags, stream, data in parts
    )
    outcomes(lambda: Bytes(GREETING + sent, 1 << 16))


@given(st.integers(0, 400), st.integers(0, 255), st.booleans(), st.integers(1, 100))
@settings(max_examples=300)
def test_damaged_answers(at, value, cut, piece):
    """A good answer with a byte changed or its end cut off: what is read is what was sent, or an error."""

    class Damaged(Wire):
        said = 0

        def _say(self, data):
            data, place = bytearray(data), at - self.said
            self.said += len(data)
            if 0 <= place < len(data):
                data[place] = value
                if cut:
                    del data[place:]
                    self.ended = True
            super()._say(data)

    outcomes(lambda: Damaged(echo, piece=piece))
