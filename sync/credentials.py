"""The API key: where it is found, and how it is kept from ending up anywhere else."""

from __future__ import annotations

import base64
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .errors import NoCredentials

_VARIABLES = ("RUNFERRY_API_KEY", "WANDB_API_KEY")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ApiKey:
    """A key that shows itself to nobody but `header_for`, and there only to the server that it was found for."""

    __slots__ = ("_origin", "_secret", "source")

    def __init__(self, secret: str, *, base_url: str, source: str) -> None:
        secret = secret.strip()
        if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise NoCredentials(f"the API key from {source} is empty or holds characters that no key has")
        self._secret = secret
        self._origin = origin_of(base_url)
        self.source = source
        """Where it was found, for messages."""

    def header_for(self, url: str) -> str | None:
        """The Authorization header for `url`; None for every other scheme, host or port than the base URL's."""
        if origin_of(url) != self._origin:
            return None
        return "Basic " + base64.b64encode(f"api:{self._secret}".encode()).decode()

    def hide(self, text: bytes) -> bytes:
        """`text` without the key, in whichever form it was sent."""
        for secret in (f"api:{self._secret}".encode(), self._secret.encode()):
            text = text.replace(base64.b64encode(secret), b"***").replace(secret, b"***")
        return text

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an API key is not pickled")


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `url`, with the default port filled in.

    Raises:
        ValueError: `url` is no http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"not an http(s) URL: {parts.scheme}://{parts.hostname or ''}")
    return parts.scheme, parts.hostname.lower(), parts.port or _DEFAULT_PORTS[parts.scheme]


def find_api_key(base_url: str, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> ApiKey:
    """The key for `base_url`: `RUNFERRY_API_KEY`, `WANDB_API_KEY`, then netrc (`$NETRC`, else `~/.netrc`).

    A netrc entry is looked up by the host with its port as the URL spells it, e.g. `machine 127.0.0.1:8080`.

    Raises:
        NoCredentials: none was found, or the netrc file cannot be read.
    """
    for variable in _VARIABLES:
        if environ.get(variable, "").strip():
            return ApiKey(environ[variable], base_url=base_url, source=variable)
    path = _netrc_path(environ, home or Path.home())
    machine = urlsplit(base_url).netloc.rpartition("@")[2]
    try:
        entry = netrc.netrc(str(path)).authenticators(machine) if path.is_file() else None
    except netrc.NetrcParseError as error:
        # The parser's own text may quote the token it stumbled on, which can be the password.
        raise NoCredentials(f"{path}, line {error.lineno}: not a valid netrc file") from None
    except OSError as error:
        raise NoCredentials(f"{path}: {error.strerror}") from error
    if entry is not None and entry[2]:
        return ApiKey(entry[2], base_url=base_url, source=str(path))
    raise NoCredentials(
        f"no API key for {machine}: set RUNFERRY_API_KEY or WANDB_API_KEY, or add "
        f"`machine {machine} login user password <key>` to {path}"
    )


def _netrc_path(environ: Mapping[str, str], home: Path) -> Path:
    if environ.get("NETRC"):
        return Path(environ["NETRC"]).expanduser()
    windows = home / "_netrc"
    return windows if os.name == "nt" and windows.is_file() else home / ".netrc"
