"""One request over a real connection: what is sent, what is believed, and when it ends."""

from __future__ import annotations

import io
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runferry.sync import transport as module
from runferry.sync.errors import Interrupted, Permanent, Retryable, UsageError
from runferry.sync.network import Network, find_network
from runferry.sync.transport import HttpTransport, Request
from support.certificates import server_context
from support.rawserver import RawServer, reply
from support.tunnel import make_tunnel


@pytest.fixture
def transport() -> Iterator[HttpTransport]:
    made = HttpTransport(network=Network(connect_s=2.0, stall_s=1.0))
    yield made
    made.close()


def head(request: bytes) -> list[bytes]:
    return request.partition(b"\r\n\r\n")[0].split(b"\r\n")


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_body_has_a_length_and_arrives_whole(transport: HttpTransport) -> None:
    """Bodies in memory and from files go with a Content-Length, empty ones too, and never chunked; on one connection."""
    big = bytes(range(256)) * 4000
    with RawServer(reply()) as server:
        for body, size in ((big, 0), (lambda: io.BytesIO(big), len(big)), (b"", 0)):
            assert transport.send(Request("PUT", server.url, {}, body, size)).status == 200

        assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [big, big, b""]
        lengths = [line for request in server.requests for line in head(request) if line.startswith(b"Content-Length")]
        assert lengths == [b"Content-Length: 1024000"] * 2 + [b"Content-Length: 0"]
        assert not any(b"Transfer-Encoding" in request[:1000] for request in server.requests)
        assert server.connected == 1


def test_requests_say_who_sends_them_and_ask_for_nothing_packed(transport: HttpTransport) -> None:
    """The user agent is ours; a few packed kB could become gigabytes, so none is asked for."""
    with RawServer(reply()) as server:
        transport.send(Request("GET", server.url))

        lines = head(server.requests[0])
    assert b"Accept-Encoding: identity" in lines
    assert any(line.startswith(b"User-Agent: runferry") for line in lines)


def test_a_header_that_is_given_takes_the_place_of_ours(transport: HttpTransport) -> None:
    """Whatever the case of its letters: it goes once."""
    with RawServer(reply()) as server:
        transport.send(Request("GET", server.url, {"user-agent": "mine"}))

        names = [line for line in head(server.requests[0]) if line.lower().startswith(b"user-agent")]
    assert names == [b"user-agent: mine"]


def test_the_time_that_the_network_took_for_a_body_is_told(transport: HttpTransport) -> None:
    """Not the time that the server thought about it."""

    def think(connection: socket.socket) -> None:
        time.sleep(0.3)
        connection.sendall(reply())

    with RawServer(think) as server:
        answer = transport.send(Request("POST", server.url, {}, b"x" * 100_000))

    assert 0.0 < answer.sent_in < 0.2


# -- what is believed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_a_packed_answer_is_not_unpacked(transport: HttpTransport, coding: str) -> None:
    """It was not asked for, and is the server's last word."""
    packed = reply(b"(not looked at)", headers=f"Content-Encoding: {coding}\r\n")
    with RawServer(packed) as server, pytest.raises(Permanent, match="packed"):
        transport.send(Request("GET", server.url))


@pytest.mark.parametrize("status", ["302 Found", "401 Unauthorized", "429 Too Many Requests", "503 Busy"])
def test_a_packed_refusal_is_what_its_status_says(transport: HttpTransport, status: str) -> None:
    """Proxies pack their pages for everybody: status and headers count all the same, and nothing is unpacked."""
    packed = reply(b"(not looked at)", status, "Content-Encoding: gzip\r\nRetry-After: 7\r\nLocation: /x\r\n")
    with RawServer(packed) as server:
        answer = transport.send(Request("GET", server.url))

    assert (answer.status, answer.headers["retry-after"], answer.body) == (int(status[:3]), "7", b"")


def test_an_answer_that_says_it_is_huge_is_not_read(transport: HttpTransport) -> None:
    """A Content-Length of a gigabyte is refused before a byte of it is kept."""
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 1000
    with RawServer(huge) as server, pytest.raises(Retryable, match="larger than"):
        transport.send(Request("GET", server.url))


def test_an_answer_that_grows_without_end_is_ended(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body without a length is read up to the cap."""
    monkeypatch.setattr(module, "_MAX_ANSWER", 1_000_000)

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with RawServer(pour) as server, pytest.raises(Retryable, match="larger than"):
        transport.send(Request("GET", server.url))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X-Flood: yes\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 20\r\n\r\n",
        b"\x00\x01\x02 nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
        b"",
    ],
    ids=["header flood", "long header", "two lengths", "no HTTP", "cut", "nothing"],
)
def test_answers_that_are_none_are_retryable(transport: HttpTransport, answer: bytes) -> None:
    """Whatever is wrong with the bytes becomes the one type that the retry loop knows."""

    def say(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with RawServer(say) as server, pytest.raises(Retryable):
        transport.send(Request("GET", server.url))


def test_redirects_are_not_followed(transport: HttpTransport) -> None:
    """A redirect is an answer like any other: the key never travels to where it points."""
    with (
        RawServer(reply()) as other,
        RawServer(reply(status="302 Found", headers=f"Location: {other.url}\r\n")) as server,
    ):
        answer = transport.send(Request("POST", server.url, {"Authorization": "Basic x"}, b"{}"))

        assert answer.status == 302
        assert other.requests == []


# -- connections that are kept -------------------------------------------------------------------------------------------


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_kept_connection_that_the_server_has_ended_is_no_failure(transport: HttpTransport, kind: str) -> None:
    """It ends while the next request is on its way: that goes again at once, whole, over a new connection."""
    body = b"x" * 100_000 if kind == "memory" else lambda: io.BytesIO(b"x" * 100_000)
    with RawServer(reply(), hang_up, reply(b"again")) as server:
        transport.send(Request("GET", server.url))

        assert transport.send(Request("PUT", server.url, {}, body, 100_000)).body == b"again"

        assert server.connected == 2
        assert server.requests[2].endswith(b"\r\n\r\n" + b"x" * 100_000)


def test_a_new_connection_that_is_ended_is_a_failure(transport: HttpTransport) -> None:
    """Nothing is sent again by itself where the server never answered on that connection."""
    with RawServer(hang_up, reply()) as server:
        with pytest.raises(Retryable):
            transport.send(Request("GET", server.url))

        assert len(server.requests) == 1


def test_an_answer_that_breaks_off_on_a_kept_connection_is_a_failure(transport: HttpTransport) -> None:
    """The server has taken the request: the retry loop decides."""

    def half(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")
        hang_up(connection)

    with RawServer(reply(), half, reply()) as server:
        transport.send(Request("GET", server.url))
        with pytest.raises(Retryable):
            transport.send(Request("GET", server.url))

        assert len(server.requests) == 2


# -- answers before the end of a request ---------------------------------------------------------------------------------


class EarlyServer:
    """Answers as soon as it has seen the head of a request; then `goes_on`, which is to read slowly unless given."""

    def __init__(self, answer: bytes, goes_on: Callable[[socket.socket], None] | None = None) -> None:
        self._answer, self._goes_on = answer, goes_on or self.read_on
        self.taken = 0

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.taken += len(connection.recv(1000))
            connection.sendall(self._answer)
            self._goes_on(connection)

    def read_on(self, connection: socket.socket) -> None:
        while part := connection.recv(65536):
            self.taken += len(part)
            time.sleep(0.01)


BODY = b"x" * 20_000_000


def test_a_refusal_before_the_end_of_a_body_spares_the_rest(transport: HttpTransport) -> None:
    """A 413 that comes while the body is sent is heard then, by a server that goes on to read and by one that hangs up."""
    server = EarlyServer(reply(b"big", "413 Too Large"))
    with server as url:
        assert transport.send(Request("POST", url, {}, BODY)).status == 413
    assert server.taken < 10_000_000

    with EarlyServer(reply(b"big", "413 Too Large"), lambda _: None) as url:
        assert transport.send(Request("POST", url, {}, BODY)).status == 413


def test_an_interim_answer_stops_no_body(transport: HttpTransport) -> None:
    """103 in the middle of a body is none yet."""

    def finish(connection: socket.socket) -> None:
        server.read_to(connection, len(BODY))
        connection.sendall(reply(b"done"))

    class Whole(EarlyServer):
        def read_to(self, connection: socket.socket, size: int) -> None:
            while self.taken < size:
                self.taken += len(connection.recv(1 << 20))

    server = Whole(b"HTTP/1.1 103 Early Hints\r\n\r\n", finish)
    with server as url:
        assert transport.send(Request("POST", url, {}, BODY)).body == b"done"


def test_a_success_before_the_end_of_a_body_is_no_acknowledgement(transport: HttpTransport) -> None:
    """Whoever says 200 and hangs up in the middle of a body has not got it."""
    with EarlyServer(reply(), lambda _: None) as url, pytest.raises(Retryable, match="before it had the whole body"):
        transport.send(Request("POST", url, {}, BODY))


# -- when it ends ------------------------------------------------------------------------------------------------------


def short(monkeypatch: pytest.MonkeyPatch, stall: float) -> HttpTransport:
    """A transport whose attempts may take two stalls and nothing for the body."""
    monkeypatch.setattr(module, "_SLOWEST_UPLINK", 1e12)
    return HttpTransport(network=Network(connect_s=2.0, stall_s=stall))


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(200):
        connection.sendall(b"X: y\r\n")
        time.sleep(0.05)


def drip_interim(connection: socket.socket) -> None:
    for _ in range(200):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


def drip_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(200):
        connection.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize("drip", [drip_headers, drip_interim, drip_body])
def test_answers_that_never_end_are_ended(
    monkeypatch: pytest.MonkeyPatch, drip: Callable[[socket.socket], None]
) -> None:
    """A byte now and then keeps no request alive beyond its time: headers, interim answers, body."""
    transport = short(monkeypatch, 0.3)
    begun = time.monotonic()
    with RawServer(drip) as server, pytest.raises(Retryable) as caught:
        transport.send(Request("GET", server.url))

    assert caught.value.late
    assert time.monotonic() - begun < 3.0
    transport.close()


def test_a_server_that_says_nothing_is_left_after_the_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """PUT as any other request: no bytes for the stall time end the attempt."""
    transport = short(monkeypatch, 0.3)
    with RawServer(lambda _: time.sleep(2)) as server, pytest.raises(Retryable, match="no answer in time") as caught:
        transport.send(Request("PUT", server.url, {}, b"x" * 10))

    assert caught.value.late
    transport.close()


def test_a_server_that_takes_nothing_is_left_after_the_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that nobody reads does not wait for ever either."""
    transport = short(monkeypatch, 0.3)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with pytest.raises(Retryable) as caught:
            transport.send(Request("PUT", url, {}, b"x" * 50_000_000))

    assert caught.value.late
    transport.close()


def test_a_server_that_takes_a_body_too_slowly_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bytes now and then keep no upload alive beyond its time either."""
    transport = short(monkeypatch, 0.4)
    begun = time.monotonic()
    with EarlyServer(b"") as url, pytest.raises(Retryable) as caught:
        transport.send(Request("PUT", url, {}, b"x" * 50_000_000))

    assert caught.value.late
    assert time.monotonic() - begun < 4.0
    transport.close()


def test_a_file_that_became_shorter_is_a_last_word(transport: HttpTransport) -> None:
    """The bytes that were promised are not there any more; the message says so."""
    with RawServer(reply()) as server, pytest.raises(Permanent, match="became shorter"):
        transport.send(Request("PUT", server.url, {}, lambda: io.BytesIO(b"short"), 100_000))


def test_a_name_server_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver cannot be interrupted, and is not waited for."""
    silent = threading.Event()

    def ask(*_: object, **__: object) -> list[object]:
        silent.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    transport = HttpTransport(network=Network(connect_s=0.3))
    begun = time.monotonic()
    with pytest.raises(Retryable, match=r"cannot reach nowhere\.test: no address of nowhere\.test in time"):
        transport.send(Request("GET", "http://nowhere.test/"))
    assert time.monotonic() - begun < 3.0
    silent.set()
    transport.close()


def test_the_next_address_is_tried_where_one_is_dead(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with several addresses is reached by whichever answers."""
    with RawServer(reply()) as server:
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (1, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)

        assert transport.send(Request("GET", "http://two.test/")).status == 200


def test_the_address_that_answered_is_tried_first_the_next_time(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that swallows packets, as IPv6 does behind some routers, costs its share of the time once."""
    tried: list[int] = []
    patience: list[float | None] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[1])
        patience.append(self.gettimeout())
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    with RawServer(reply(headers="Connection: close\r\n")) as server:
        ports = (1, server.port)
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: list(addresses))
        for _ in range(2):
            transport.send(Request("GET", "http://two.test/"))

        assert tried == [1, server.port, server.port]
        assert patience[0] is not None
        assert patience[0] <= 1.0  # of 2 s for both


def test_an_address_that_this_machine_cannot_use_is_passed_over(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names have IPv6 addresses also where the kernel has no IPv6; with no other one it is a failure like any."""
    with RawServer(reply()) as server:
        there = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))
        none = (123, socket.SOCK_STREAM, 6, "", ("::1", server.port, 0, 0))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [none, there])
        assert transport.send(Request("GET", "http://two.test/")).status == 200

        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [none])
        with pytest.raises(Retryable, match="family"):
            transport.send(Request("GET", "http://other.test/"))


@pytest.mark.parametrize(
    "url", ["http://a..b/", "http://" + "x" * 64 + ".test/", "http:///x", "//x", "ftp://x/", "http://h:99999/"]
)
def test_what_is_no_url_is_a_last_word(transport: HttpTransport, url: str) -> None:
    """It is not asked for again and again."""
    with pytest.raises(Permanent, match="cannot be sent"):
        transport.send(Request("GET", url))


@pytest.mark.parametrize("value", ["secret\r\nX: y", " secret", "secret\x00", "s\u00e9cret"])
def test_a_header_that_cannot_be_sent_is_named_without_its_value(transport: HttpTransport, value: str) -> None:
    """Headers of uploads come from servers, and may be secret."""
    with pytest.raises(Permanent, match="the value of X-Token") as caught:
        transport.send(Request("GET", "http://127.0.0.1:1/", {"X-Token": value}))
    assert "cret" not in repr(caught.value)


def test_a_target_is_spelled_as_request_lines_allow(transport: HttpTransport) -> None:
    """Blanks and letters beyond ASCII are percent-encoded, what is encoded stays so, and no line break gets in."""
    with RawServer(reply()) as server:
        transport.send(Request("GET", server.url + "a b/\u00fc/%2F?q=x y&z=%20\r\nX: y"))
        assert head(server.requests[0])[0] == b"GET /a%20b/%C3%BC/%2F?q=x%20y&z=%20X:%20y HTTP/1.1"


def test_a_host_that_refuses_is_named(transport: HttpTransport) -> None:
    """The message has host and port, and not the path of a signed URL."""
    with pytest.raises(Retryable, match=r"cannot reach 127\.0\.0\.1:1: ") as caught:
        transport.send(Request("PUT", "http://127.0.0.1:1/secret?signature=1"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("moment", ["lookup", "handshake", "answer", "before"])
def test_a_stop_ends_whatever_is_under_way(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """A lookup, a TLS handshake, a wait for an answer, and a request that has not begun."""
    stop = threading.Event()
    transport = HttpTransport(network=Network(), stop=stop)
    released = threading.Event()
    with RawServer(lambda _: released.wait(20)) as server:
        if moment == "lookup":
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(20))

        def end() -> None:
            stop.set()
            transport.abort()

        timer = threading.Timer(0.0 if moment == "before" else 0.3, end)
        timer.start()
        if moment == "before":
            timer.join()
        url = server.url.replace("http:", "https:") if moment == "handshake" else server.url
        begun = time.monotonic()
        with pytest.raises(Interrupted):
            transport.send(Request("GET", url))
        assert time.monotonic() - begun < 5.0
        released.set()
        timer.join()
    transport.close()


# -- certificates ------------------------------------------------------------------------------------------------------


def test_a_certificate_that_nobody_vouches_for_is_a_last_word(tmp_path: Path) -> None:
    """One attempt, and the message says which variable to set."""
    context, _ = server_context(tmp_path)
    transport = HttpTransport(network=Network())
    with RawServer(reply(), tls=context) as server, pytest.raises(Permanent, match=r"not trusted.*SSL_CERT_FILE"):
        transport.send(Request("GET", server.url))
    transport.close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_private_authority_is_trusted_by_the_usual_variables(tmp_path: Path, variable: str) -> None:
    """The file that the variable names makes the server known; for a folder, its hashed links do."""
    context, certificate = server_context(tmp_path)
    place = certificate
    if variable == "SSL_CERT_DIR":
        place = tmp_path / "certificates"
        place.mkdir()
        (place / f"{subject_hash(certificate)}.0").write_bytes(certificate.read_bytes())
    transport = HttpTransport(network=find_network({variable: str(place)}))
    with RawServer(reply(), tls=context) as server:
        assert transport.send(Request("GET", server.url)).status == 200
    transport.close()


def subject_hash(certificate: Path) -> str:
    command = ["openssl", "x509", "-subject_hash", "-noout", "-in", certificate]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_name_in_a_certificate_is_checked(tmp_path: Path) -> None:
    """A trusted certificate of another host is none for this one."""
    context, certificate = server_context(tmp_path, "other.test")
    transport = HttpTransport(network=find_network({"SSL_CERT_FILE": str(certificate)}))
    with RawServer(reply(), tls=context) as server, pytest.raises(Permanent, match="not trusted"):
        transport.send(Request("GET", server.url))
    transport.close()


def test_a_check_that_somebody_wants_off_stays_on(tmp_path: Path) -> None:
    """WANDB_INSECURE_DISABLE_SSL is not followed: whoever answered would get the key."""
    context, _ = server_context(tmp_path)
    transport = HttpTransport(network=find_network({"WANDB_INSECURE_DISABLE_SSL": "true"}))
    with RawServer(reply(), tls=context) as server, pytest.raises(Permanent, match="not trusted"):
        transport.send(Request("GET", server.url))
    transport.close()


def test_a_file_of_certificates_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The variable and the path stand in the message."""
    missing = tmp_path / "nothing.pem"
    transport = HttpTransport(network=find_network({"REQUESTS_CA_BUNDLE": str(missing)}))

    with pytest.raises(UsageError, match=r"REQUESTS_CA_BUNDLE: .*nothing\.pem"):
        transport.send(Request("GET", "https://127.0.0.1:1/"))


def test_a_name_without_an_address_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be spelt wrong, which no other attempt mends; or the network may come, so it is tried again."""
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(unknown))
    transport = HttpTransport(network=Network())

    with pytest.raises(Retryable, match=r"cannot reach nope\.invalid: .*no address for that name .*spelt right"):
        transport.send(Request("GET", "http://nope.invalid/"))
    transport.close()


def test_a_mismatch_of_tls_is_not_tried_again() -> None:
    """A server that speaks no TLS stays so: an error that names the host."""
    transport = HttpTransport(network=Network())

    def plain() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=plain)
        thread.start()
        with pytest.raises(Permanent, match=f"no secure connection to 127.0.0.1:{port}.*try http://"):
            transport.send(Request("POST", f"https://127.0.0.1:{port}/", {}, b"{}"))
        thread.join()
    transport.close()


# -- proxies -----------------------------------------------------------------------------------------------------------


def test_an_https_server_is_reached_through_a_tunnel(tmp_path: Path) -> None:
    """CONNECT with the name as it stands, the password as a header for the proxy only, TLS with the server itself."""
    context, certificate = server_context(tmp_path, "far.test")
    proxy, targets = make_tunnel()
    with RawServer(reply(), tls=context) as server, proxy:
        environ = {
            "HTTPS_PROXY": f"http://me:s%40cret@127.0.0.1:{proxy.port}",
            "SSL_CERT_FILE": str(certificate),
        }
        transport = HttpTransport(network=find_network(environ))
        answer = transport.send(
            Request("POST", f"https://far.test:{server.port}/graphql", {"Authorization": "Basic KEY"}, b"{}")
        )
        transport.close()

    assert answer.status == 200
    assert targets == [f"CONNECT far.test:{server.port}"]
    assert b"Proxy-Authorization: Basic bWU6c0BjcmV0" in proxy.requests[0]
    assert b"KEY" not in proxy.requests[0]
    assert b"Proxy-Authorization" not in server.requests[0]


def test_an_http_server_is_asked_for_by_its_whole_url() -> None:
    """A proxy of plain HTTP gets the request itself."""
    with RawServer(reply()) as proxy:
        transport = HttpTransport(network=find_network({"http_proxy": f"127.0.0.1:{proxy.port}"}))
        assert transport.send(Request("GET", "http://far.test:81/x")).status == 200
        transport.close()

        assert head(proxy.requests[0])[0] == b"GET http://far.test:81/x HTTP/1.1"


@pytest.mark.parametrize(("status", "error"), [("407 Who are you", Permanent), ("502 Bad Gateway", Retryable)])
def test_a_proxy_that_refuses_is_named_without_its_password(status: str, error: type[Exception]) -> None:
    """What the proxy says and who it is; a 4xx of it is a last word."""
    proxy, _ = make_tunnel(f"HTTP/1.1 {status}\r\n\r\n".encode())
    with proxy:
        environ = {"WANDB_HTTPS_PROXY": f"http://me:s3cret@127.0.0.1:{proxy.port}"}
        transport = HttpTransport(network=find_network(environ))
        with pytest.raises(error) as caught:
            transport.send(Request("GET", "https://far.test/"))
        transport.close()

    words = str(caught.value)
    assert f"far.test through the proxy http://127.0.0.1:{proxy.port} (WANDB_HTTPS_PROXY)" in words
    assert status in words
    assert "s3cret" not in words + repr(transport._network)


def test_a_proxy_that_repeats_the_password_shows_it_to_nobody() -> None:
    """Neither in clear nor as it was sent; CONNECT puts the words of the proxy into the error."""
    proxy, _ = make_tunnel(b"HTTP/1.1 407 no p@ssword nor am9lOnBAc3N3b3Jk\r\nContent-Length: 0\r\n\r\n")
    with proxy:
        network = find_network({"HTTPS_PROXY": f"http://joe:p%40ssword@127.0.0.1:{proxy.port}"})
        with pytest.raises(Permanent, match=r"407 no \*\*\* nor \*\*\*"):
            HttpTransport(network=network).send(Request("GET", "https://backend.test/"))


def test_a_proxy_that_is_down_is_named() -> None:
    """Host and proxy both stand in the message: which of them is to be looked at."""
    transport = HttpTransport(network=find_network({"HTTPS_PROXY": "http://127.0.0.1:1"}))
    with pytest.raises(
        Retryable, match=r"cannot reach far\.test through the proxy http://127\.0\.0\.1:1 \(HTTPS_PROXY\)"
    ):
        transport.send(Request("GET", "https://far.test/"))
    transport.close()


def test_a_socks_proxy_says_what_it_needs() -> None:
    """The package for it is no dependency; the message says how to get it."""
    transport = HttpTransport(network=find_network({"ALL_PROXY": "socks5://127.0.0.1:1080"}))
    with pytest.raises(UsageError, match="pip install socksio"):
        transport.send(Request("GET", "https://far.test/"))
    transport.close()


def test_loopback_is_never_proxied() -> None:
    """A server on this machine is asked directly, whatever the variables say."""
    with RawServer(reply()) as server:
        transport = HttpTransport(network=find_network({"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "x:1"}))
        assert transport.send(Request("GET", server.url)).status == 200
        transport.close()
