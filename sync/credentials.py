"""Who we are to the server: an API key, or an identity token that is exchanged for access tokens (`identity`).

Secrets show themselves in nothing but the Authorization header of requests to the server that they were found for. They
never come from the command line, and never go to a file.
"""

from __future__ import annotations

import base64
import netrc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from .errors import NoCredentials, UsageError

_VARIABLES = ("RUNFERRY_API_KEY", "WANDB_API_KEY")
_FILE_VARIABLE = "RUNFERRY_API_KEY_FILE"
_TOKEN_VARIABLES = ("RUNFERRY_IDENTITY_TOKEN_FILE", "WANDB_IDENTITY_TOKEN_FILE")
_USER_HEADERS = {"WANDB_USERNAME": "X-WANDB-USERNAME", "WANDB_USER_EMAIL": "X-WANDB-USER-EMAIL"}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAME_SERVICE = {"api.forge.coreweave.com": "api.wandb.ai"}
"""Newer names of hosts, and the name under which a netrc file may still have them."""
LONGEST = 64 * 1024  # bytes of a file with a key or token
_HIDDEN_FROM = 16
"""Characters. A shorter key protects nothing, and hiding it would cut up answers that hold the same letters by chance."""

Exchange = Callable[[bytes], Any]
"""Posts a form to the server's token endpoint; the JSON document of its answer."""


class Credentials(Protocol):
    """What a request to the server is signed with. Used by any thread."""

    source: str
    """Where it was found, for messages."""

    def header_for(self, url: str, exchange: Exchange) -> str | None:
        """The Authorization header for `url`; None for every other scheme, host or port than the base URL's."""

    def renew(self, header: str | None) -> bool:
        """The server refused `header`: whether another one may be had."""

    def hide(self, text: bytes) -> bytes:
        """`text` without the secrets, in whichever form they were sent."""


class SecretText(str):
    """A text that a traceback with local variables does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        raise TypeError("a secret is not pickled")


class SecretBytes(bytes):
    """The same as bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "b'***'"

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        raise TypeError("a secret is not pickled")


class ApiKey:
    """A key that shows itself to nobody but `header_for`, and there only to the server that it was found for.

    Keys are not held to a length or a prefix: servers that people run themselves have their own, and each says which it
    takes. What cannot be a key is refused.
    """

    __slots__ = ("_origin", "_secret", "source")

    def __init__(self, secret: str, *, base_url: str, source: str) -> None:
        self.source = source
        """Where it was found, for messages."""
        self._secret = secret = SecretText(secret.strip())
        if not is_token(secret):
            raise NoCredentials(f"the API key from {source} is empty or holds characters that no key has")
        self._origin = origin_of(base_url)

    def header_for(self, url: str, _exchange: Exchange | None = None) -> str | None:
        """The Authorization header for `url`; None for every other scheme, host or port than the base URL's."""
        if origin_of(url) != self._origin:
            return None
        return SecretText("Basic " + base64.b64encode(f"api:{self._secret}".encode()).decode())

    def renew(self, _header: str | None) -> bool:
        """A key that was refused stays so."""
        return False

    def hide(self, text: bytes) -> bytes:
        """`text` without the key, in whichever form it was sent."""
        text = text.replace(base64.b64encode(f"api:{self._secret}".encode()), b"***")
        if len(self._secret) >= _HIDDEN_FROM:
            for secret in (f"api:{self._secret}".encode(), self._secret.encode()):
                text = text.replace(base64.b64encode(secret), b"***").replace(secret, b"***")
        return text

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source})"

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        raise TypeError("an API key is not pickled")


def is_token(text: str) -> bool:
    """Whether a text can stand in a header as one word."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `url`, with the default port filled in.

    Raises:
        ValueError: `url` is no http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"not an http(s) URL: {parts.scheme}://{parts.hostname or ''}")
    return parts.scheme, parts.hostname.lower(), parts.port or _DEFAULT_PORTS[parts.scheme]


def find_credentials(base_url: str, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Credentials:
    """What `base_url` is asked with.

    In this order: `RUNFERRY_API_KEY`, the file that `RUNFERRY_API_KEY_FILE` names, `WANDB_API_KEY`; the identity token in the
    file that `RUNFERRY_IDENTITY_TOKEN_FILE` or `WANDB_IDENTITY_TOKEN_FILE` names; netrc (`$NETRC`, else `~/.netrc`).
    An entry of netrc is looked up by the host with its port as the URL spells it, e.g. `machine 127.0.0.1:8080`, then
    `default`.

    Raises:
        NoCredentials: none was found, a file cannot be read, or key and token are both set.
    """
    given = [name for name in (_VARIABLES[0], _FILE_VARIABLE, _VARIABLES[1]) if environ.get(name, "").strip()]
    tokens = [name for name in _TOKEN_VARIABLES if environ.get(name, "").strip()]
    if given and tokens:
        raise NoCredentials(f"{given[0]} and {tokens[0]} are both set: which of them is meant? Unset the other")
    if given:
        name, value = given[0], environ[given[0]]
        return (
            key_from_file(value, base_url=base_url, source=name)
            if name == _FILE_VARIABLE
            else _key(value, base_url, name)
        )
    if tokens:
        from .identity import IdentityToken

        return IdentityToken(_at_home(environ[tokens[0]], tokens[0]), base_url=base_url, source=tokens[0])
    return _from_netrc(base_url, environ, home)


def key_from_file(path: str | os.PathLike[str], *, base_url: str, source: str) -> ApiKey:
    """The key that stands in a file, which may be a pipe. Who may read it is not looked at: containers get theirs so.

    Raises:
        NoCredentials: it cannot be read, or holds no key.
    """
    return _key(read_secret(_at_home(path, source), source), base_url, f"{source} ({path})")


def _at_home(path: str | os.PathLike[str], source: str) -> Path:
    """`path` with the home directory for `~`.

    Raises:
        NoCredentials: nobody knows where that is, as in a container whose user has no name.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise NoCredentials(f"{source}: {os.fspath(path)}: there is no such home directory") from None


def read_secret(path: Path, source: str) -> SecretText:
    """The text of a file that holds one secret.

    Raises:
        NoCredentials: it cannot be read, or is too large for one.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST + 1)
    except OSError as error:
        raise NoCredentials(f"{source}: {path}: {error.strerror}") from None
    if len(text) > LONGEST:
        raise NoCredentials(f"{source}: {path} is too large for a key or token")
    return secret_text(text)


def secret_text(data: bytes) -> SecretText:
    """What bytes say, without white space around it and the mark that some editors put before it."""
    return SecretText(data.decode("utf-8-sig", "replace").strip())


def user_headers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Whose runs these are where the key is a service account's: `WANDB_USERNAME`, `WANDB_USER_EMAIL`, if they are set.

    Raises:
        UsageError: a name that no header can hold; the runs would be the service account's.
    """
    found = {}
    for name, header in _USER_HEADERS.items():
        value = environ.get(name, "").strip()
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"{name}: letters that no header can hold, so whose runs these are cannot be said")
        if value:
            found[header] = value
    return found


def _key(secret: str, base_url: str, source: str) -> ApiKey:
    return ApiKey(SecretText(secret), base_url=base_url, source=source)


def _from_netrc(base_url: str, environ: Mapping[str, str], home: Path | None) -> ApiKey:
    path = _netrc_path(environ, home)
    machine = urlsplit(base_url).netloc.rpartition("@")[2]
    try:
        hosts: Mapping[str, tuple[str, str | None, str | None]] = netrc.netrc(str(path)).hosts if path.is_file() else {}
    except netrc.NetrcParseError as error:
        # The parser's own text may quote the token it stumbled on, which can be the password.
        raise NoCredentials(f"{path}, line {error.lineno}: not a valid netrc file") from None
    except OSError as error:
        raise NoCredentials(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NoCredentials(f"{path}: not a valid netrc file") from None
    for name in (machine, _SAME_SERVICE.get(machine.lower()), "default"):
        entry = hosts.get(name) if name else None
        if entry is not None and entry[2]:
            return _key(entry[2], base_url, str(path))
    raise NoCredentials(
        f"no API key for {machine}: set RUNFERRY_API_KEY or WANDB_API_KEY, or add "
        f"`machine {machine} login user password <key>` to {path}"
    )


def _netrc_path(environ: Mapping[str, str], home: Path | None) -> Path:
    if environ.get("NETRC"):
        return _at_home(environ["NETRC"], "NETRC")
    home = home or Path(os.path.expanduser("~"))  # noqa: PTH111 - it raises for nothing: without a home there is no such file
    windows = home / "_netrc"
    return windows if os.name == "nt" and windows.is_file() else home / ".netrc"
