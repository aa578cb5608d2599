"""GET for probes, against servers that do everything a server should not."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
import traceback

import pytest
from runferry.sampler.http import (
    AddressError,
    Answer,
    DeadlineError,
    ElsewhereError,
    Endpoint,
    GarbledError,
    HttpError,
    StatusError,
    TooLargeError,
    UnreachableError,
)
from support.certificates import server_context
from support.rawserver import RawServer

SECRET = "Bearer tell-nobody"


def answer(body=b"", *, status="200 OK", **headers):
    """The bytes of a response."""
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def complete(body, **headers):
    return answer(body, Content_Length=len(body), **headers)


@contextlib.contextmanager
def answering_once(address, data):
    """A listener that sends `data` to its first caller, whatever that one says: its port, and what was said."""
    said = []
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.create_server(address, family=family) as listener:

        def once():
            connection, _ = listener.accept()
            with connection:
                said.append(connection.recv(65536))
                connection.sendall(data)

        thread = threading.Thread(target=once, daemon=True)
        thread.start()
        yield listener.getsockname()[1], said
        thread.join(5)


@pytest.fixture
def serve():
    """Start a server that answers its first request with the first of some bytes or calls, and so on."""
    with contextlib.ExitStack() as servers:

        def start(*answers, **options):
            return servers.enter_context(RawServer(*map(last, answers), **options))

        yield start


def last(answer):
    """The connection ends with it."""

    def act(connection):
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(answer)
        connection.close()

    return act


def drip(connection, data):
    """A byte now and then, until the other side has had enough."""
    for byte in data:
        time.sleep(0.02)
        connection.sendall(bytes([byte]))


def silent(connection):
    """No answer, as long as the other side waits for one."""
    connection.recv(1)


def fails(server, kind, **limits):
    """What `get` raises, which tells no header's value in any form."""
    with pytest.raises(kind) as caught:
        Endpoint(server.url, {"Authorization": SECRET}).get(**{"within": 3.0, **limits})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 120
    return str(caught.value)


def test_an_answer_and_what_was_asked(serve):
    """The body comes whole with its type; the request holds the headers given, the type wanted, and no more."""
    server = serve(complete(b"a 1\n", Content_Type="Text/Plain; version=0.0.4"))
    endpoint = Endpoint(server.url + "metrics?q=a b&x=ä", {"X-Team": "blue"})
    assert endpoint.get(accept="text/plain") == Answer("text/plain; version=0.0.4", b"a 1\n")
    assert server.requests[0].decode().split("\r\n")[:-2] == [
        "GET /metrics?q=a%20b&x=%C3%A4 HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Accept: text/plain",
        "Accept-Encoding: gzip",
        "Connection: close",
        "X-Team: blue",
    ]


@pytest.mark.parametrize("user", ["anna:tell-nobody", "tell-nobody", ":tell-nobody", "tell-nobody%40x", ""])
def test_a_url_with_a_user_or_a_password_is_refused(user):
    """URLs are shown to people; the error says where credentials go, and shows none."""
    with pytest.raises(AddressError, match=r"^its URL holds a user or a password: give a header Author") as caught:
        Endpoint(f"http://{user}@host/")
    assert "tell-nobody" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 tell-nobody", "404 Not Found", "503 x", "204 No Content"])
def test_a_status_other_than_200_is_an_error(serve, status):
    """The number is told with its usual name, never with the server's words."""
    number = int(status[:3])
    text = fails(serve(answer(b"", status=status, Content_Length=0)), StatusError)
    assert text.startswith(f"it answers {number} ")
    assert "tell-nobody" not in text


def test_a_redirect_on_the_same_server_is_followed_with_the_headers(serve):
    """`/metrics` to `/metrics/`, as frameworks do."""
    server = serve(answer(status="307 x", Location="/metrics/", Content_Length=0), complete(b"b 2\n"))
    assert Endpoint(server.url + "metrics", {"X-Key": "k"}).get().body == b"b 2\n"
    assert [request.split(b" ")[1] for request in server.requests] == [b"/metrics", b"/metrics/"]
    assert all(b"X-Key: k\r\n" in request for request in server.requests)


def test_a_redirect_elsewhere_is_not_followed(serve):
    """Another port, host or scheme is not asked, with or without headers; it is not named either."""
    other = serve(complete(b"stolen"))
    for place in (other.url, other.url.replace("127.0.0.1", "localhost"), "https://127.0.0.1/", "//example.org/x"):
        text = fails(serve(answer(status="302 Found", Location=place, Content_Length=0)), ElsewhereError)
        assert text == "it redirects to another server; give that one's address if it is the right one"
    assert other.requests == []
    fails(serve(answer(status="302 Found", Location="http://[::1", Content_Length=0)), GarbledError)


def test_redirects_without_end_end(serve):
    """Four requests at most."""
    server = serve(answer(status="301 x", Location="/", Content_Length=0))
    assert fails(server, GarbledError) == "more than 3 redirects"
    assert len(server.requests) == 4


@pytest.mark.parametrize("part", ["header", "body", "chunked", "length"])
def test_a_slow_answer_ends_at_the_deadline(serve, part):
    """A byte now and then does not put the deadline off, wherever in the answer it comes."""

    def act(connection):
        if part == "header":
            drip(connection, answer(X_Long="x" * 1000))
            return
        head = answer(**{"Transfer_Encoding": "chunked"} if part == "chunked" else {"Content_Length": 9999})
        connection.sendall(head if part != "length" else answer())
        drip(connection, (b"1\r\nx\r\n" if part == "chunked" else b"x") * 1000)

    server = serve(act)
    started = time.monotonic()
    assert fails(server, DeadlineError, within=0.3) == "no whole answer in time"
    assert time.monotonic() - started < 1.5


def test_a_server_that_never_answers(serve):
    """It accepts, reads, and is silent."""
    fails(serve(silent), DeadlineError, within=0.2)


def test_a_server_that_never_accepts():
    """A full backlog, as of a process that is stopped, ends by the deadline of connecting or of the answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        endpoint = Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        with pytest.raises(DeadlineError):
            endpoint.get(connect_within=0.2, within=0.3)


def test_a_silent_tls_server_ends_by_the_deadline_of_connecting(serve):
    """The handshake counts as connecting."""
    server = serve(silent)
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="no connection in time"):
        Endpoint(server.url.replace("http:", "https:")).get(connect_within=0.3, within=60.0)
    assert time.monotonic() - started < 30.0


def test_nobody_listens_and_nobody_is_called_so():
    """Refused connections and unknown names are told apart."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnreachableError, match="refused"):
        Endpoint(f"http://127.0.0.1:{port}/").get()
    with pytest.raises(UnreachableError, match="its name cannot be looked up"):
        Endpoint("http://no-such-host.invalid/").get()


def test_a_connection_that_is_reset(serve):
    """In the head and in the body."""

    def reset(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def in_head(connection):
        reset(connection)

    def in_body(connection):
        connection.sendall(answer(b"half", Content_Length=100))
        reset(connection)

    fails(serve(in_head), UnreachableError)
    fails(serve(in_body), HttpError)  # reset, or cut off, as the bytes in flight have it


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (answer(b"half", Content_Length=100), GarbledError),
        (answer(b"5\r\nhel", Transfer_Encoding="chunked"), GarbledError),
        (answer(b"zz\r\nhello", Transfer_Encoding="chunked"), GarbledError),
        (b"", HttpError),
        (b"SSH-2.0-OpenSSH_9.6\r\n", GarbledError),
        (b"HTTP/1.1 tell-nobody\r\n\r\n", GarbledError),
        (answer(b"x" * 70000, X="y" * 70000), GarbledError),
        (answer(b"", **{f"H{i}": i for i in range(200)}), GarbledError),
        (complete(gzip.compress(b"hello")[:-9], Content_Encoding="gzip"), GarbledError),
        (complete(b"no gzip at all", Content_Encoding="gzip"), GarbledError),
        (complete(b"hello", Content_Encoding="br"), GarbledError),
    ],
)
def test_what_is_no_answer(serve, data, kind):
    """Cut off, no HTTP, endless headers, broken or unknown packing: an error each, told without the server's words."""
    assert "tell-nobody" not in fails(serve(data), kind)


def test_a_chunked_answer(serve):
    """Chunks of any size, with extensions and a trailer."""
    body = b"3;x=y\r\na 1\r\n1\r\n\n\r\n0\r\nTrailer: t\r\n\r\n"
    assert Endpoint(serve(answer(body, Transfer_Encoding="chunked")).url).get().body == b"a 1\n"


def test_an_answer_in_gzip(serve):
    """Also in several members, as concatenated by a proxy; the type is as sent."""
    packed = gzip.compress(b"a 1\n") + gzip.compress(b"b 2\n")
    assert Endpoint(serve(complete(packed, Content_Encoding="gzip")).url).get().body == b"a 1\nb 2\n"


def test_what_is_too_large(serve):
    """By what the header promises, by what comes, and by what gzip holds; memory stays within the cap."""
    promised = serve(answer(b"", Content_Length=1 << 40))
    assert fails(promised, TooLargeError) == "the answer is larger than 16 MiB"
    fails(serve(answer(b"x" * 5000)), TooLargeError, longest=4999)
    fails(serve(answer(b"2000\r\n" + b"x" * 0x2000, Transfer_Encoding="chunked")), TooLargeError, longest=4999)
    halves = gzip.compress(b"x" * 3000) * 2
    fails(serve(complete(halves, Content_Encoding="gzip")), TooLargeError, longest=5999)
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 70000
    fails(serve(complete(bomb, Content_Encoding="gzip")), TooLargeError, longest=1 << 20)
    assert Endpoint(serve(complete(b"x" * 4999)).url).get(longest=4999).body == b"x" * 4999


FRAMES = {
    "a chunk of -1 bytes": (answer(b"-1\r\n", Transfer_Encoding="chunked"), b"x" * 60000),
    "trailers": (answer(b"0\r\n", Transfer_Encoding="chunked"), b"A: b\r\n" * 9000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "extensions": (answer(b"", Transfer_Encoding="chunked"), (b"1;" + b"x" * 3000 + b"\r\ny\r\n") * 20),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_without_end(serve, frame):
    """What is no body is bounded, too: neither memory nor the time until the deadline is the server's to take."""
    head, piece = FRAMES[frame]

    def flood(connection):
        connection.sendall(head)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(piece)

    assert fails(serve(flood), TooLargeError, within=20.0, longest=1 << 16) == "the answer has no end"


def test_small_chunks_of_a_body_of_any_size(serve):
    """The bound of the frame is for what no server sends: a chunk per line stays far within it."""
    chunks = b"8\r\nabcdefg\n\r\n" * 4000 + b"0\r\n\r\n"
    server = serve(answer(chunks, Transfer_Encoding="chunked"))
    assert len(Endpoint(server.url).get(longest=32000).body) == 32000


def test_gzip_in_many_pieces_is_not_unpacked(serve):
    """Each piece costs a copy of the rest: of 800,000 in one answer the time would be hours."""
    empty = gzip.compress(b"")
    assert Endpoint(serve(complete(empty * 64, Content_Encoding="gzip")).url).get().body == b""
    assert fails(serve(complete(empty * 65, Content_Encoding="gzip")), GarbledError) == "packed in more than 64 pieces"


def addresses(monkeypatch, *found, first=socket.AF_INET):
    """Names have these addresses, the first one of another family if need be."""
    families = [first, *(socket.AF_INET for _ in found[1:])]
    known = [(family, socket.SOCK_STREAM, 0, "", address) for family, address in zip(families, found, strict=True)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)


def test_the_next_address_of_a_name_is_tried_in_time(monkeypatch, serve):
    """One that swallows all, as a broken IPv6 route does, leaves its share of the time to the next."""
    server = serve(complete(b"a 1\n"))
    with socket.socket() as mute, contextlib.ExitStack() as waiting:
        mute.bind(("127.0.0.1", 0))
        mute.listen(0)
        for _ in range(4):  # fills the backlog
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(mute.getsockname())
        addresses(monkeypatch, mute.getsockname(), ("127.0.0.1", server.port))
        assert Endpoint("http://two.invalid/").get(connect_within=1.0).body == b"a 1\n"


def test_a_family_of_addresses_that_the_system_lacks(monkeypatch, serve):
    """`localhost` may have an address of version six where there is none: the other one is tried."""
    server = serve(complete(b"a 1\n"))
    addresses(monkeypatch, ("::1", 80), ("127.0.0.1", server.port), first=9999)
    assert Endpoint("http://localhost/").get().body == b"a 1\n"


def test_certificates_are_checked(serve, tmp_path):
    """A certificate is refused unless one of the usual variables names it; then the name has to be right, too."""
    context, certificate = server_context(tmp_path)
    server = serve(complete(b"a 1\n"), tls=context)
    with pytest.raises(UnreachableError, match="its certificate is not trusted: self"):
        Endpoint(server.url, environ={}).get()
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        assert Endpoint(server.url, environ={variable: str(certificate)}).get().body == b"a 1\n"
    with pytest.raises(UnreachableError, match="its certificate is not trusted"):
        Endpoint(server.url.replace("127.0.0.1", "localhost"), environ={"CURL_CA_BUNDLE": str(certificate)}).get()
    with pytest.raises(UnreachableError, match="CURL_CA_BUNDLE names no file of certificates"):
        Endpoint(server.url, environ={"CURL_CA_BUNDLE": str(tmp_path / "none")}).get()


def test_openssl_variables_count_first(monkeypatch, serve, tmp_path):
    """SSL_CERT_FILE is what OpenSSL itself reads."""
    context, certificate = server_context(tmp_path)
    server = serve(complete(b"a 1\n"), tls=context)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    assert Endpoint(server.url).get().body == b"a 1\n"


def test_a_folder_of_certificates(monkeypatch, serve, tmp_path):
    """It may stand in each of the variables, too, and counts even when it is empty; it is read once."""
    context, certificate = server_context(tmp_path)
    server = serve(complete(b"a 1\n"), tls=context)
    folder = tmp_path / "folder"
    folder.mkdir()
    endpoint = Endpoint(server.url, environ={"REQUESTS_CA_BUNDLE": str(folder)})
    with pytest.raises(UnreachableError, match="its certificate is not trusted"):
        endpoint.get()
    trust = endpoint._tls
    with pytest.raises(UnreachableError, match="its certificate is not trusted"):
        endpoint.get()
    assert endpoint._tls is trust
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    with pytest.raises(UnreachableError, match="its certificate is not trusted"):
        Endpoint(server.url, environ={"SSL_CERT_DIR": str(folder), "CURL_CA_BUNDLE": str(certificate)}).get()


def test_tls_that_is_none():
    """A plain server behind an https URL."""
    plain = answering_once(("127.0.0.1", 0), b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with plain as (port, _), pytest.raises(UnreachableError, match="TLS failed"):
        Endpoint(f"https://127.0.0.1:{port}/", environ={}).get()


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://host/", {}),
        ("localhost:9400/metrics", {}),
        ("http://", {}),
        ("http://host:port/", {}),
        ("http://[::1/", {}),
        ("http://ho st/", {}),
        ("http://h/", {"X": SECRET + "\r\nEvil: 1"}),
        ("http://h/", {"X": SECRET + "\u20ac"}),
        ("http://h/", {"a b": SECRET}),
        ("http://h/", {"Transfer-Encoding": "chunked"}),
        ("http://h/", {"Host": "other"}),
    ],
)
def test_what_cannot_be_asked(url, headers):
    """Told when it is built, without the value of a header."""
    with pytest.raises(AddressError) as caught:
        Endpoint(url, headers)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_host_name_that_is_none():
    """What no name lookup takes is an address error, not a fault of ours."""
    with pytest.raises((AddressError, UnreachableError)):
        Endpoint(f"http://{'x' * 300}.example/").get()


def test_ports_that_need_no_telling():
    """Those that the scheme implies; brackets are for addresses of version six."""
    assert repr(Endpoint("http://h/")) == "Endpoint(http://h:80)"
    assert repr(Endpoint("https://h/")) == "Endpoint(https://h:443)"
    assert Endpoint("http://[::1]/a")._followed("/a", "/b?c=d") == "/b?c=d"
    assert Endpoint("http://[::1]/a")._followed("/a/b", "http://[::1]:80/c") == "/c"


def test_what_a_server_is_told_of_its_own_port_and_of_headers_given(monkeypatch, serve):
    """The port, unless it is the scheme's own; a header that is given, in any case, stands for ours."""
    server = serve(complete(b""))
    addresses(monkeypatch, ("127.0.0.1", server.port))
    for port in ("", ":80", ":443"):
        Endpoint(f"http://h.invalid{port}/", {"accept": "text/x"}).get()
    heads = [request.decode().split("\r\n") for request in server.requests]
    assert [head[1] for head in heads] == ["Host: h.invalid", "Host: h.invalid", "Host: h.invalid:443"]
    for head in heads:
        assert [line for line in head if line.lower().startswith("accept:")] == ["accept: text/x"]


def test_a_name_beyond_ascii():
    """It is asked for as name servers have it."""
    assert repr(Endpoint("http://b\xfccher.invalid:81/")) == "Endpoint(http://xn--bcher-kva.invalid:81)"


def test_version_six():
    """A host in brackets is asked with brackets."""
    try:
        with answering_once(("::1", 0), complete(b"a 1\n")) as (port, got):
            assert Endpoint(f"http://[::1]:{port}/").get().body == b"a 1\n"
    except OSError:
        pytest.skip("no IPv6 here")
    assert f"Host: [::1]:{port}\r\n".encode() in got[0]


def test_version_six_by_an_interface(monkeypatch, serve):
    """It is written `%25` in a URL, looked up as `%`, and told to no server."""
    server = serve(complete(b"a 1\n"))
    endpoint = Endpoint(f"http://[fe80::1%25Eth0]:{server.port}/")
    assert repr(endpoint) == f"Endpoint(http://fe80::1%Eth0:{server.port})"
    addresses(monkeypatch, ("127.0.0.1", server.port))
    assert endpoint.get().body == b"a 1\n"
    assert f"Host: [fe80::1]:{server.port}\r\n".encode() in server.requests[0]
