"""Identity tokens (OIDC): the token of a workload, exchanged at the server for access tokens that live for an hour or so.

    POST BASE/oidc/token    grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=<token>
    -> {"access_token": .., "expires_in": seconds}, then `Authorization: Bearer <access token>`

Access tokens stay in memory. The peer keeps them in a file for its next process; here a process makes one exchange, and
a secret less lies about.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .credentials import Exchange, SecretBytes, SecretText, is_token, origin_of, read_secret
from .errors import AuthError, NoCredentials, Permanent

RENEW_BEFORE_S = 300.0
"""An access token is exchanged anew so long before its end: a request may wait that long for its turn."""
_UNKNOWN_S = 1e9
_FORM = b"grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion="
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REMEMBERED = 4  # tokens of each kind that answers are searched for: requests that began with older ones are over


class IdentityToken:
    """The identity token in a file, and the access token that it was exchanged for last. Used by any thread."""

    def __init__(
        self, path: Path, *, base_url: str, source: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is exchanged yet.

        Args:
            path: read for each exchange: whoever wrote it replaces it before it expires.
            base_url: the server.
            source: where the path was found, for messages.
            monotonic: seconds that only grow.

        Raises:
            NoCredentials: there is no token in the file.
        """
        self.source = f"{source} ({path})"
        """Where it was found, for messages."""
        self._path, self._monotonic = path, monotonic
        self._origin = origin_of(base_url)
        self._lock = threading.Lock()
        self._header: SecretText | None = None
        self._renew_at = 0.0
        self._assertions: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._accesses: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._exchanger: int | None = None
        """The thread that waits for an access token: in what it gets, an access token is no leak."""
        self._read()

    def header_for(self, url: str, exchange: Exchange) -> str | None:
        """The Authorization header for `url`; None for every other scheme, host or port than the base URL's.

        Raises:
            AuthError: the server does not take the identity token, or there is none any more.
            SyncError: the exchange did not get through.
        """
        if origin_of(url) != self._origin:
            return None
        with self._lock:  # one exchange serves all who wait
            if self._header is None or self._monotonic() >= self._renew_at:
                self._exchange(exchange)
            return self._header

    def renew(self, header: str | None) -> bool:
        """The server refused `header`: another one may be had, unless somebody has got it meanwhile."""
        with self._lock:
            if header is not None and header == self._header:
                self._header = None
        return header is not None

    def hide(self, text: bytes) -> bytes:
        """`text` without any of the tokens."""
        secrets = list(self._assertions)
        if threading.get_ident() != self._exchanger:
            secrets += self._accesses
        for secret in secrets:
            text = text.replace(secret, b"***")
        return text

    def _read(self) -> SecretText:
        token = SecretText("".join(read_secret(self._path, self.source).split()))
        if not _JWT.fullmatch(token):
            raise NoCredentials(f"{self.source}: not an identity token (three parts with dots between them)")
        return token

    def _exchange(self, exchange: Exchange) -> None:
        try:
            token = SecretBytes(self._read().encode())
        except NoCredentials as error:
            raise AuthError(str(error), status=401) from None
        _remember(token, self._assertions)
        asked_at = self._monotonic()
        self._exchanger = threading.get_ident()
        try:
            document = exchange(SecretBytes(_FORM + token))
        except Permanent as error:
            raise AuthError(f"the identity token from {self.source} is not accepted: {error}", status=401) from error
        finally:
            self._exchanger = None
        access, lifetime = _access_token(document)
        if access is None:
            raise AuthError(f"the server gave no access token for the one from {self.source}", status=401)
        _remember(access.encode(), self._accesses)
        self._header = SecretText(f"Bearer {access}")
        # One that lives for minutes only is not exchanged at every request.
        self._renew_at = asked_at + lifetime - min(RENEW_BEFORE_S, lifetime / 2)

    def __repr__(self) -> str:
        return f"IdentityToken(from {self.source})"

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        raise TypeError("an identity token is not pickled")


def _remember(secret: bytes, among: deque[bytes]) -> None:
    if secret not in among:
        among.append(secret)


def _access_token(document: Any) -> tuple[SecretText | None, float]:
    """The access token of an answer and how long it lives; until the server refuses it, where it does not say."""
    if not isinstance(document, dict):
        return None, 0.0
    token, lifetime = document.get("access_token"), document.get("expires_in")
    if not isinstance(token, str) or not is_token(token):
        return None, 0.0
    if isinstance(lifetime, (int, float)) and not isinstance(lifetime, bool) and lifetime > 0:
        return SecretText(token), float(min(lifetime, _UNKNOWN_S))
    return SecretText(token), _UNKNOWN_S
