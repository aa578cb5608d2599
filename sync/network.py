"""How the network is reached: timeouts, proxies, certificates and extra headers, from the variables that users set for that.

| what | from, the first that is set |
|---|---|
| seconds without a byte | `RUNFERRY_HTTP_TIMEOUT`, `WANDB_HTTP_TIMEOUT` |
| proxy for https | `WANDB_HTTPS_PROXY`, `https_proxy`, `HTTPS_PROXY`, `all_proxy`, `ALL_PROXY` |
| proxy for http | `WANDB_HTTP_PROXY`, `http_proxy`, `HTTP_PROXY`, `all_proxy`, `ALL_PROXY` |
| hosts without a proxy | `no_proxy`, `NO_PROXY`; loopback never has one |
| trusted certificates | `SSL_CERT_FILE` and `SSL_CERT_DIR`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`, the system's |
| headers to the base URL's server | `RUNFERRY_X_EXTRA_HTTP_HEADERS`, `WANDB_X_EXTRA_HTTP_HEADERS` (a JSON object) |

Certificates are always checked: `WANDB_INSECURE_DISABLE_SSL` is not followed, as whoever answered would get the key.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from .errors import UsageError

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT_S = 10.0  # name lookup, all addresses and TLS
STALL_TIMEOUT_S = 60.0  # without a byte in either direction
_LONGEST_TIMEOUT_S = 3600.0
_TIMEOUTS = ("RUNFERRY_HTTP_TIMEOUT", "WANDB_HTTP_TIMEOUT")
_PROXIES = {
    "https": ("WANDB_HTTPS_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("WANDB_HTTP_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}
_PORTS = {"http": 80, "https": 443}
_HEADERS = ("RUNFERRY_X_EXTRA_HTTP_HEADERS", "WANDB_X_EXTRA_HTTP_HEADERS")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset(
    [
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
    ]
)
"""Headers that say who asks, and how a request and its answer are to be read."""


@dataclass(frozen=True)
class Proxy:
    """A proxy, its password kept apart from what is shown."""

    url: str
    """Scheme, host and port."""
    variable: str
    user: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.url} ({self.variable})"


@dataclass(frozen=True)
class Network:
    """How to reach servers."""

    connect_s: float = CONNECT_TIMEOUT_S
    stall_s: float = STALL_TIMEOUT_S
    proxies: Mapping[str, Proxy] = field(default_factory=dict)
    """Scheme of the server's URL -> its proxy."""
    direct: tuple[str, ...] = ()
    """Entries of NO_PROXY, in lower case."""
    trusted_file: str | None = None
    trusted_folder: str | None = None
    trusted_by: str = ""
    """The variable that names them."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """To go with each request to the base URL's server, and to no other. They may be secret."""

    def proxy_for(self, url: str) -> Proxy | None:
        """The proxy on the way to `url`; None for a direct way."""
        parts = urlsplit(url)
        proxy = self.proxies.get(parts.scheme)
        port = parts.port or _PORTS.get(parts.scheme)
        if proxy is None or self._is_direct((parts.hostname or "").lower(), port):
            return None
        return proxy

    def check(self, url: str) -> None:
        """Whether `url` can be reached so at all.

        Raises:
            UsageError: the certificates cannot be read, or a package for the proxy is missing.
        """
        proxy = self.proxy_for(url)
        if proxy is not None and proxy.url.startswith("socks") and find_spec("socksio") is None:
            raise UsageError(f"the proxy {proxy} needs one package more: pip install socksio")
        if url[:6].lower() == "https:":
            self.tls()

    def tls(self) -> ssl.SSLContext:
        """What decides whom to trust.

        Raises:
            UsageError: the files that a variable names cannot be read.
        """
        import ssl

        try:
            if self.trusted_file or self.trusted_folder:
                return ssl.create_default_context(cafile=self.trusted_file, capath=self.trusted_folder)
        except (OSError, ssl.SSLError) as error:
            place = self.trusted_file or self.trusted_folder
            raise UsageError(f"{self.trusted_by}: {place}: no certificates can be read there: {error}") from error
        context = ssl.create_default_context()
        if not context.get_ca_certs() and not _has_system_folder():
            import certifi

            context.load_verify_locations(certifi.where())
        return context

    def hide(self, text: bytes) -> bytes:
        """`text` without the values of the extra headers and the passwords of proxies, in whichever form they were sent."""
        secrets = [value.encode() for value in self.headers.values()]
        for proxy in self.proxies.values():
            if proxy.user is not None:
                user, password = proxy.user.encode(), proxy.password.encode()
                secrets += [base64.b64encode(user + b":" + password), password, quote(password).encode()]
        for secret in secrets:
            if len(secret) > 3:  # what is shorter is no secret, and in every text
                text = text.replace(secret, b"***")
        return text

    def _is_direct(self, host: str, port: int | None) -> bool:
        address = _address(host)
        return _is_loopback(host) or any(_matches(entry, host, address, port) for entry in self.direct)


def is_loopback(url: str) -> bool:
    """Whether a URL is of this machine."""
    return _is_loopback((urlsplit(url).hostname or "").lower())


def find_network(environ: Mapping[str, str] = os.environ) -> Network:
    """What the environment says of the network.

    Raises:
        UsageError: a variable cannot be followed. Values that may be secret are not shown.
    """
    proxies = {}
    for scheme, variables in _PROXIES.items():
        for variable in variables:
            if environ.get(variable, "").strip():
                proxies[scheme] = _proxy(environ[variable].strip(), variable)
                break
    stall = _timeout(environ)
    file, folder, variable = _trusted(environ)
    direct = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return Network(
        min(CONNECT_TIMEOUT_S, stall),
        stall,
        proxies,
        tuple(direct.replace(",", " ").lower().split()),
        file,
        folder,
        variable,
        dict(_headers(environ)),
    )


def _timeout(environ: Mapping[str, str]) -> float:
    for variable in _TIMEOUTS:
        text = environ.get(variable, "").strip()
        if text:
            try:
                seconds = float(text)
            except ValueError:
                seconds = 0.0
            if not 0.0 < seconds <= _LONGEST_TIMEOUT_S:
                raise UsageError(f"{variable}: not a number of seconds up to {_LONGEST_TIMEOUT_S:.0f}")
            return seconds
    return STALL_TIMEOUT_S


def _proxy(text: str, variable: str) -> Proxy:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        host = None
    if not host:
        raise UsageError(f"{variable}: not the URL of a proxy")
    scheme = parts.scheme.lower()
    if scheme == "https":
        raise UsageError(
            f"{variable}: give the proxy as http://...; what goes through it to an https server is encrypted"
        )
    if scheme not in ("http", "socks5", "socks5h"):
        raise UsageError(f"{variable}: no proxy of kind {scheme}; http and socks5 are known")
    shown = f"[{host}]" if ":" in host else host
    default = 80 if scheme == "http" else 1080
    user = unquote(parts.username) if parts.username is not None else None
    kind = "http" if scheme == "http" else "socks5"  # which leaves names to the proxy, as socks5h says
    return Proxy(f"{kind}://{shown}:{port or default}", variable, user, unquote(parts.password or ""))


def _trusted(environ: Mapping[str, str]) -> tuple[str | None, str | None, str]:
    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    if file or folder:
        return file or None, folder or None, "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        place = environ.get(variable)
        if place:
            return (None, place, variable) if Path(place).is_dir() else (place, None, variable)
    return None, None, ""


def _headers(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable in _HEADERS:
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            headers = json.loads(text)
        except (ValueError, RecursionError):
            headers = None
        if not isinstance(headers, dict):
            raise UsageError(f"{variable}: not a JSON object of header names and values")
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
                raise UsageError(f"{variable}: {name!r} is no header that can be added")
            yield name, _checked(value, variable)
        return


def _checked(value: object, variable: str) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
        raise UsageError(f"{variable}: a value is no text that a header can hold")
    return value


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _matches(
    entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int | None
) -> bool:
    """Whether an entry of NO_PROXY is about this host: `*`, a name and all below it, an address, a network, each with a port."""
    if entry == "*":
        return True
    name, colon, of_port = entry.rpartition(":")
    if colon and of_port.isdigit() and (":" not in name or name.endswith("]")):
        if str(port) != of_port:
            return False
        entry = name
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            return False
    entry = entry.removeprefix("*").lstrip(".")
    return bool(entry) and (host == entry or host.endswith("." + entry))


def _has_system_folder() -> bool:
    """Whether OpenSSL looks for single certificates in a folder, which it does only when it meets a server."""
    import ssl

    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).iterdir())
