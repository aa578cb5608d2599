"""Keys and tokens: where they are found, whom they are shown to, and where they must not surface."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runferry.sync.api import Api
from runferry.sync.channel import Channel
from runferry.sync.credentials import ApiKey, SecretBytes, SecretText, find_credentials, key_from_file, user_headers
from runferry.sync.errors import AuthError, NoCredentials, OutOfTime, Retryable, UsageError
from runferry.sync.identity import RENEW_BEFORE_S, IdentityToken
from runferry.sync.pacer import Pacers
from runferry.sync.report import silent
from runferry.sync.transport import Answer, Request
from support import logs
from support.clock import FakeClock

URL = "http://127.0.0.1:8080"
SECRET = "s3cr3t" * 8
JWT = "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"


def test_the_key_comes_from_the_environment_before_netrc(tmp_path: Path) -> None:
    """RUNFERRY_API_KEY, then WANDB_API_KEY, then the netrc entry of the host with its port."""
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1:8080 login user password {SECRET}\n")
    environ = {"RUNFERRY_API_KEY": "a" * 40, "WANDB_API_KEY": "b" * 40}

    assert find_credentials(URL, environ, tmp_path).source == "RUNFERRY_API_KEY"
    assert find_credentials(URL, {"WANDB_API_KEY": "b" * 40}, tmp_path).source == "WANDB_API_KEY"
    assert find_credentials(URL, {}, tmp_path).header_for(URL) == ApiKey(SECRET, base_url=URL, source="").header_for(
        URL
    )
    (tmp_path / "other").write_text("default login user password " + "d" * 40)
    assert find_credentials(URL, {"NETRC": str(tmp_path / "other")}, tmp_path).source == str(tmp_path / "other")


def test_no_key_is_an_error_that_says_where_keys_come_from(tmp_path: Path) -> None:
    """Without a key the message names both variables, netrc, and the machine to write there."""
    with pytest.raises(NoCredentials, match=r"RUNFERRY_API_KEY.*WANDB_API_KEY.*127\.0\.0\.1:8080.*\.netrc"):
        find_credentials(URL, {}, tmp_path)


def test_a_broken_netrc_does_not_show_its_secrets(tmp_path: Path) -> None:
    """The error about a netrc file gives its line and nothing of its content."""
    (tmp_path / ".netrc").write_text(f"machine x login y passw {SECRET}\n")

    with pytest.raises(NoCredentials) as caught:
        find_credentials(URL, {}, tmp_path)

    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8081/x", "https://127.0.0.1:8080/x", "http://evil.test/", "http://127.0.0.1:8080@evil.test/"],
)
def test_the_key_goes_to_its_own_origin_only(url: str) -> None:
    """Another port, scheme or host gets no Authorization header."""
    assert ApiKey(SECRET, base_url=URL, source="test").header_for(url) is None


def test_the_key_hides_from_reprs_and_pickles() -> None:
    """Neither repr, str, format nor pickle shows the key."""
    key = ApiKey(SECRET, base_url=URL, source="test")

    assert SECRET not in f"{key!r} {key}"
    with pytest.raises(TypeError):
        pickle.dumps(key)


@pytest.mark.parametrize("secret", ["", "  ", "two words", "line\nbreak\x00", "k\u00e9y"])
def test_what_cannot_be_a_header_is_no_key(secret: str) -> None:
    """A key that would break the header is refused before anything is sent."""
    with pytest.raises(NoCredentials):
        ApiKey(secret, base_url=URL, source="test")


def test_a_newer_name_of_the_service_finds_the_older_entry(tmp_path: Path) -> None:
    """Its own entry first, then the one of the name that it had before, then the default."""
    path = tmp_path / ".netrc"
    newer, older, other = "n" * 40, "o" * 40, "d" * 40
    path.write_text(f"machine api.wandb.ai password {older}\ndefault login user password {other}\n")
    url = "https://api.forge.coreweave.com"
    assert _sent(find_credentials(url, {}, tmp_path), url) == _basic(older)
    assert _sent(find_credentials("https://wandb.example", {}, tmp_path), "https://wandb.example") == _basic(other)
    with path.open("a") as file:
        file.write(f"machine api.forge.coreweave.com password {newer}\n")
    assert _sent(find_credentials(url, {}, tmp_path), url) == _basic(newer)


def test_netrc_is_never_written(tmp_path: Path) -> None:
    """Looking a key up leaves every byte of it, and makes none where there is none."""
    path = tmp_path / ".netrc"
    text = f"# mine\nmachine other login a password b\nmachine 127.0.0.1:8080 login user password {SECRET}\n"
    path.write_text(text)
    path.chmod(0o600)
    before = path.stat()
    find_credentials(URL, {}, tmp_path)
    assert (path.read_text(), path.stat().st_mtime_ns) == (text, before.st_mtime_ns)
    path.unlink()
    with pytest.raises(NoCredentials):
        find_credentials(URL, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def _sent(key: Any, url: str) -> str | None:
    return key.header_for(url, _no_exchange)


def _basic(secret: str) -> str | None:
    return ApiKey(secret, base_url=URL, source="").header_for(URL)


def _no_exchange(_: bytes) -> Any:
    raise AssertionError("there is nothing to exchange")


def test_a_key_from_a_file(tmp_path: Path) -> None:
    """White space around it goes, and an editor's mark; it comes before the peer's variable, and after our own."""
    path = tmp_path / "key"
    path.write_text(f"\n {SECRET}\r\n", encoding="utf-8-sig")
    environ = {"RUNFERRY_API_KEY_FILE": str(path), "WANDB_API_KEY": "b" * 40}
    assert _sent(find_credentials(URL, environ, tmp_path), URL) == _basic(SECRET)
    environ["RUNFERRY_API_KEY"] = "c" * 40
    assert _sent(find_credentials(URL, environ, tmp_path), URL) == _basic("c" * 40)


@pytest.mark.parametrize("content", [None, b"", b"x" * 70_000, b"one other", b"\xff\xfe"])
def test_a_file_without_a_key(tmp_path: Path, content: bytes | None) -> None:
    """The error names the file, and nothing of what is in it."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoCredentials, match=r"--key-file.*key") as caught:
        key_from_file(path, base_url=URL, source="--key-file")
    assert "one other" not in str(caught.value).replace(str(path), "")


def test_a_key_may_be_short(tmp_path: Path) -> None:
    """Servers of one's own have keys of their own; hiding a short one would cut up answers, so only its header is hidden."""
    key = ApiKey("id", base_url=URL, source="test")
    header = (key.header_for(URL) or "").encode().removeprefix(b"Basic ")
    assert key.hide(b'{"id": "' + header + b'"}') == b'{"id": "***"}'


def test_a_long_key_is_hidden_in_every_form() -> None:
    """As it is, and as it was sent."""
    key = ApiKey(SECRET, base_url=URL, source="test")
    header = (key.header_for(URL) or "").encode().removeprefix(b"Basic ")
    assert key.hide(b"a " + SECRET.encode() + b" b " + header) == b"a *** b ***"


def test_a_traceback_with_local_variables_shows_no_key() -> None:
    """Error collectors print the values of all frames: those that hold a secret hide it."""

    def fail(key: ApiKey) -> None:
        header = key.header_for(URL)
        headers = {"Authorization": header}
        raise RuntimeError(len(headers))

    try:
        fail(ApiKey(SECRET, base_url=URL, source="test"))
    except RuntimeError as error:
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "***" in shown
    assert SECRET not in shown
    assert (_basic(SECRET) or "").removeprefix("Basic ") not in shown


@pytest.mark.parametrize("bad", [f"{SECRET} x", f"{SECRET}\x00"])
def test_a_refused_key_is_not_in_its_traceback(bad: str) -> None:
    """Not even one that is none."""
    try:
        ApiKey(SecretText(bad), base_url=URL, source="test")
    except NoCredentials as error:
        frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames.stack.pop(0)  # ours
    assert SECRET not in "".join(frames.format())


@pytest.mark.parametrize("secret", [SecretText("abc"), SecretBytes(b"abc")])
def test_secrets_are_neither_shown_nor_pickled(secret: Any) -> None:
    """They are equal to what they hold, and can be sent."""
    assert "abc" not in repr([secret])
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_whose_runs_they_are_is_said_where_it_is_set() -> None:
    """A service account sends for somebody; what cannot be a header is left out."""
    assert user_headers({}) == {}
    assert user_headers({"WANDB_USERNAME": " Ada L "}) == {"X-WANDB-USERNAME": "Ada L"}
    for email in ("a@b\r\nX: y", "ä@b"):
        with pytest.raises(UsageError, match="WANDB_USER_EMAIL"):
            user_headers({"WANDB_USERNAME": "ada", "WANDB_USER_EMAIL": email})


# -- identity tokens -----------------------------------------------------------------------------------------------------


class TokenServer:
    """A transport: exchanges identity tokens, and takes the access token that it gave last, until it expires."""

    def __init__(self, clock: FakeClock, lifetime: Any = 3600) -> None:
        self.clock, self.lifetime = clock, lifetime
        self.exchanges: list[bytes] = []
        self.calls = 0
        self.fault: Callable[[], Answer | Exception | None] = lambda: None
        self._valid: dict[str, float] = {}
        self._guard = threading.Lock()

    def send(self, request: Request) -> Answer:
        with self._guard:
            if request.url.endswith("/oidc/token"):
                return self._exchange(request)
            self.calls += 1
            if self.clock.monotonic() < self._valid.get(request.headers.get("Authorization", ""), 0.0):
                return Answer(200, {}, b'{"data": {}}')
            return Answer(401, {}, b"no: " + request.headers.get("Authorization", "").encode())

    def _exchange(self, request: Request) -> Answer:
        fault = self.fault()
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        assert request.headers == {"Content-Type": "application/x-www-form-urlencoded"}
        assert isinstance(request.body, bytes)
        self.exchanges.append(bytes(request.body))
        token = f"access-token-number-{len(self.exchanges)}"
        says = isinstance(self.lifetime, (int, float)) and self.lifetime is not True and self.lifetime > 0
        lifetime = min(self.lifetime, 1e9) if says else 3600
        self._valid = {f"Bearer {token}": self.clock.monotonic() + lifetime}
        return Answer(200, {}, json.dumps({"access_token": token, "expires_in": self.lifetime}).encode())

    def revoke(self) -> None:
        self._valid.clear()


class Rig:
    """A token in a file, a server, and the calls of a sync between them."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.clock = FakeClock()
        self.server = TokenServer(self.clock, **options)
        self.path = folder / "token"
        self.path.write_text(JWT)
        self.token = IdentityToken(
            self.path, base_url=URL, source="WANDB_IDENTITY_TOKEN_FILE", monotonic=self.clock.monotonic
        )
        rng = random.Random(1)
        self.channel = Channel(
            self.server, clock=self.clock, rng=rng, retry_for=600, reporter=silent, hide=self.token.hide
        )
        self.api = Api(URL, self.token, self.channel, Pacers(self.clock, rng))

    def call(self) -> None:
        self.api.execute("Query", "query", {}, "p")


@pytest.fixture
def tokens(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_one_exchange_serves_a_sync(tokens: Rig) -> None:
    """The form that servers know, white space around the token stripped; the access token is the bearer."""
    tokens.path.write_text(f"  {JWT}\n")
    for _ in range(20):
        tokens.call()
    assert tokens.server.exchanges == [
        b"grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=" + JWT.encode()
    ]
    assert tokens.server.calls == 20


def test_a_long_sync_outlives_its_tokens(tokens: Rig) -> None:
    """Ten hours of requests: renewed five minutes before each end, from the file as it is then, and none is refused."""
    for minute in range(600):
        tokens.path.write_text(f"{JWT}{minute}")
        tokens.call()
        tokens.clock.advance(60)
    lasts = (3600 - RENEW_BEFORE_S) / 60
    assert len(tokens.server.exchanges) == pytest.approx(600 / lasts, abs=1)
    assert tokens.server.calls == 600
    assert tokens.server.exchanges[1].endswith(f"{JWT}{int(lasts)}".encode())


@pytest.mark.parametrize(
    ("lifetime", "most"), [(60, 21), (None, 1), (-5, 1), (True, 1), ("x", 1), (float("inf"), 1), (10**400, 1)]
)
def test_lifetimes_that_are_short_or_make_no_sense(tmp_path: Path, lifetime: Any, most: int) -> None:
    """A token of a minute is not exchanged at every request; without a lifetime it holds until it is refused."""
    rig = Rig(tmp_path, lifetime=lifetime)
    for _ in range(300):
        rig.call()
        rig.clock.advance(2)
    assert len(rig.server.exchanges) <= most


def test_a_token_that_is_revoked_is_exchanged_once_anew(tokens: Rig) -> None:
    """A 401 before its time gets one more attempt, with another token."""
    tokens.call()
    tokens.server.revoke()
    tokens.call()
    assert (len(tokens.server.exchanges), tokens.server.calls) == (2, 3)


def test_a_server_that_refuses_what_it_gives_is_not_asked_for_ever(tokens: Rig) -> None:
    """Two attempts, then it is an error that shows none of the tokens."""
    tokens.server.lifetime = 0.001
    tokens.clock.advance(1)
    real = tokens.server.send

    def send(request: Request) -> Answer:
        answer = real(request)
        tokens.server.revoke()
        return answer

    tokens.server.send = send  # type: ignore[method-assign]
    with pytest.raises(AuthError) as caught:
        tokens.call()
    assert (tokens.server.calls, caught.value.status) == (2, 401)
    assert "access-token" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_an_exchange_that_is_refused_is_final(tokens: Rig, status: int) -> None:
    """It is about the credentials, names where the token is from, and shows nothing of it."""
    tokens.server.fault = lambda: Answer(status, {}, b"bad assertion " + JWT.encode())
    with pytest.raises(
        AuthError, match=r"identity token from WANDB_IDENTITY_TOKEN_FILE .*not accepted.*HTTP"
    ) as caught:
        tokens.call()
    assert caught.value.status == 401
    assert JWT not in str(caught.value)
    assert tokens.server.calls == 0


@pytest.mark.parametrize(
    "fault", [Answer(503, {}, b""), Answer(429, {}, b""), Retryable("reset"), Answer(200, {}, b"{")]
)
def test_an_exchange_that_fails_is_retried(tokens: Rig, fault: Any) -> None:
    """As every other request."""
    left = [fault] * 3
    tokens.server.fault = lambda: left.pop() if left else None
    tokens.call()
    assert len(tokens.server.exchanges) == 1


def test_an_exchange_that_never_works_ends(tokens: Rig) -> None:
    """Within the time that is given to each request."""
    tokens.server.fault = lambda: Answer(503, {}, b"")
    with pytest.raises(OutOfTime):
        tokens.call()
    assert sum(tokens.clock.sleeps) <= 600


@pytest.mark.parametrize("body", [b"{}", b'{"access_token": 5}', b'{"access_token": "a b"}', b'{"access_token": ""}'])
def test_an_answer_without_a_token(tokens: Rig, body: bytes) -> None:
    """Nothing that could not be a header is taken for one."""
    tokens.server.fault = lambda: Answer(200, {}, body)
    with pytest.raises(AuthError, match="no access token"):
        tokens.call()


def test_a_server_that_gives_the_same_token_again(tokens: Rig) -> None:
    """It is hidden in answers, but for the one that brings it."""
    same = Answer(200, {}, b'{"access_token": "the-same-access-token", "expires_in": 600}')
    tokens.server.fault = lambda: same
    header = tokens.token.header_for(URL, tokens.api._exchange)
    tokens.clock.advance(301)
    assert tokens.token.header_for(URL, tokens.api._exchange) == header == "Bearer the-same-access-token"
    assert tokens.token.hide(b"x the-same-access-token") == b"x ***"


def test_many_threads_exchange_once(tokens: Rig) -> None:
    """Whoever comes while an exchange is under way waits for it; of those that were refused, one renews."""
    threads = [threading.Thread(target=tokens.call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens.server.exchanges) == 1
    tokens.server.revoke()
    assert [tokens.token.renew("Bearer access-token-number-1") for _ in range(8)] == [True] * 8
    tokens.call()
    assert len(tokens.server.exchanges) == 2
    assert tokens.token.renew("Bearer access-token-number-1")  # refused long ago, and told late
    tokens.call()
    assert len(tokens.server.exchanges) == 2


def test_the_access_token_goes_to_its_own_origin_only(tokens: Rig) -> None:
    """And for another one nothing is exchanged."""
    assert tokens.token.header_for("https://evil.test/", tokens.api._exchange) is None
    assert tokens.server.exchanges == []


def test_a_token_that_vanishes_ends_the_sync(tokens: Rig) -> None:
    """At the next exchange: an error of the credentials, not of one run."""
    tokens.path.unlink()
    with pytest.raises(AuthError, match="No such file") as caught:
        tokens.call()
    assert caught.value.status == 401


@pytest.mark.parametrize("text", ["", "abc", "a.b", "a.b.c.d", "a.b.c d.e.f", "a.b.\u00e9"])
def test_what_is_no_identity_token(tmp_path: Path, text: str) -> None:
    """It is refused before anything is sent."""
    (tmp_path / "token").write_text(text)
    with pytest.raises(NoCredentials, match="not an identity token"):
        IdentityToken(tmp_path / "token", base_url=URL, source="WANDB_IDENTITY_TOKEN_FILE")


def test_key_and_token_together_are_an_error(tmp_path: Path) -> None:
    """Nobody can tell which is meant; both are named."""
    (tmp_path / "token").write_text(JWT)
    environ = {"WANDB_API_KEY": "k" * 40, "WANDB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    with pytest.raises(NoCredentials, match="WANDB_API_KEY and WANDB_IDENTITY_TOKEN_FILE"):
        find_credentials(URL, environ, tmp_path)
    del environ["WANDB_API_KEY"]
    assert "WANDB_IDENTITY_TOKEN_FILE" in find_credentials(URL, environ, tmp_path).source


def test_the_token_hides_from_reprs_pickles_and_tracebacks(tokens: Rig) -> None:
    """Before and behind the exchange."""
    tokens.call()
    assert "eyJ" not in f"{tokens.token!r} {tokens.token}"
    with pytest.raises(TypeError):
        pickle.dumps(tokens.token)
    tokens.server.fault = lambda: Answer(400, {}, b"")
    tokens.server.revoke()
    try:
        tokens.call()
    except AuthError as error:
        chain: BaseException | None = error
        while chain is not None:
            shown = traceback.TracebackException.from_exception(chain, capture_locals=True, lookup_lines=False)
            text = "".join(shown.format(chain=False))
            assert "eyJ" not in text
            assert "access-token-number" not in text
            chain = chain.__cause__


def test_nothing_of_a_sync_shows_the_key(tmp_path: Path) -> None:
    """Command line, output and files of a whole sync against a server that repeats what it was sent."""
    log = logs.simple_run(tmp_path / "wandb", rows=3)
    script = """
import base64, logging, os, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
logging.basicConfig(level=logging.DEBUG)

class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.headers["Authorization"].encode()
        body += b" " + base64.b64decode(body.split()[1])
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Echo", self.headers["Authorization"])
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass

server = HTTPServer(("127.0.0.1", 0), Echo)
threading.Thread(target=server.serve_forever, daemon=True).start()
from runferry.cli import main
sys.argv = ["runferry", "sync", "--json", "--base-url", f"http://127.0.0.1:{server.server_port}", sys.argv[1]]
main()
"""
    environ = {**os.environ, "RUNFERRY_API_KEY": SECRET, "RUNFERRY_STATE_DIR": str(tmp_path / "state")}
    line = [sys.executable, "-c", script, str(log)]
    done = subprocess.run(line, env=environ, capture_output=True, timeout=60, check=False)

    assert done.returncode == 1, done.stderr
    assert b"HTTP 400: Basic ***" in done.stdout
    encoded = (_basic(SECRET) or "").removeprefix("Basic ").encode()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for text in (done.stdout, done.stderr, *files):
        assert SECRET.encode() not in text
        assert encoded not in text


@pytest.mark.parametrize("how", ["--key-file", "--key-stdin"])
def test_the_command_takes_the_key_from_a_file_or_a_pipe(tmp_path: Path, how: str) -> None:
    """So that it stands in no environment and in no list of processes; what is no key is told before anything is sent."""
    logs.simple_run(tmp_path / "wandb", rows=3)
    (tmp_path / "key").write_text(f"{SECRET} x\n")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    given = [how, "key"] if how == "--key-file" else [how]
    line = [
        sys.executable,
        "-m",
        "runferry.cli",
        "sync",
        "--base-url",
        "http://127.0.0.1:9",
        "--retry-for",
        "0",
        *given,
    ]
    with (tmp_path / "key").open("rb") as key:
        done = subprocess.run(
            line, cwd=tmp_path, env=environ, stdin=key, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert f"API key from {how}" in done.stderr
    (tmp_path / "key").write_text(f"{SECRET}\n", encoding="utf-8-sig")
    with (tmp_path / "key").open("rb") as key:
        done = subprocess.run(
            line, cwd=tmp_path, env=environ, stdin=key, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 75, done.stderr  # nobody answers there: the key was good
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.skipif(os.name != "posix", reason="descriptors as POSIX has them")
def test_a_key_from_a_closed_standard_input(tmp_path: Path) -> None:
    """As daemons start their children: an error in words, exit code 2."""
    logs.simple_run(tmp_path / "wandb", rows=1)
    program = (
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'runferry.cli', *sys.argv[1:]])"
    )
    line = [sys.executable, "-c", program, "sync", "--key-stdin", str(tmp_path / "wandb")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr
