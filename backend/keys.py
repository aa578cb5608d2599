"""Who may write: API keys, and signed upload URLs that work without one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

KEYS_VARIABLE = "RUNFERRY_SERVE_API_KEYS"
KEY_FILE_NAME = "api-key"
MIN_KEY_LENGTH = 40  # clients refuse shorter ones
UPLOAD_TTL_S = 24 * 3600


@dataclass(frozen=True)
class ApiKeys:
    """The accepted keys. `file` is where they can be read, if anywhere."""

    keys: tuple[str, ...] = field(repr=False)
    file: Path | None = None

    def accepts(self, authorization: str | None) -> bool:
        """Checks an `Authorization: Basic base64(user:key)` header; the user name is not looked at."""
        scheme, _, encoded = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            given = base64.b64decode(encoded.strip(), validate=True).partition(b":")[2]
        except ValueError:  # not base64, or not even ASCII
            return False
        # Every key is compared, each in constant time, so that the time tells nothing about any of them.
        return sum(hmac.compare_digest(given, key.encode()) for key in self.keys) > 0


def load_keys(data_dir: Path, key_file: Path | None, environ: Mapping[str, str] = os.environ) -> ApiKeys:
    """The keys from `key_file` (one per line, # comments), else the environment (commas), else a generated one.

    Raises:
        ValueError: a source is named and holds no usable key.
        OSError: the key file cannot be read.
    """
    if key_file is not None:
        return ApiKeys(_checked(key_file.read_text("utf-8").splitlines(), str(key_file)), key_file)
    if KEYS_VARIABLE in environ:
        return ApiKeys(_checked(environ[KEYS_VARIABLE].split(","), KEYS_VARIABLE))
    path = data_dir / KEY_FILE_NAME
    if path.exists():
        return ApiKeys(_checked(path.read_text("utf-8").splitlines(), str(path)), path)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = secrets.token_hex(MIN_KEY_LENGTH // 2)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
    return ApiKeys((key,), path)


def _checked(lines: Iterable[str], source: str) -> tuple[str, ...]:
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise ValueError(f"{source} holds no API key")
    if any(len(key) < MIN_KEY_LENGTH for key in keys):
        raise ValueError(f"{source}: an API key has at least {MIN_KEY_LENGTH} characters")
    return keys


@dataclass(frozen=True)
class UploadSigner:
    """Addresses that carry their own permission: to send or fetch one file of one place, for a day."""

    secret: bytes = field(repr=False)

    def sign(self, place: str, name: str, now: float) -> str:
        """The path and query of an address; `place` holds no slash."""
        expires = int(now) + UPLOAD_TTL_S
        token = base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
        return f"/storage/{place}/{token}?expires={expires}&signature={self._signature(place, token, expires)}"

    def check(self, place: str, token: str, expires: str, signature: str, now: float) -> str | None:
        """The file name of a valid address, None for any other."""
        if not (expires.isascii() and expires.isdigit()) or len(expires) > 12 or int(expires) < now:
            return None
        if not hmac.compare_digest(signature.encode(), self._signature(place, token, int(expires)).encode()):
            return None
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()

    def _signature(self, place: str, token: str, expires: int) -> str:
        return hmac.new(self.secret, f"{place}/{token}/{expires}".encode(), hashlib.sha256).hexdigest()
