"""Putting bytes to where a server said: whole, in blocks, and once more when the place has expired meanwhile."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import BinaryIO, Protocol, TypeVar

from .api import Api
from .errors import AuthError, Permanent

Place = TypeVar("Place")

MIB = 1024 * 1024
AZURE_HEADER = "x-ms-blob-type"
AZURE_WHOLE = 256 * MIB
"""Bytes up to which Azure's storage gets a file in one piece."""
AZURE_BLOCK = 100 * MIB
_MOST_BLOCKS = 50_000
_NOT_EXPIRED = frozenset({0, 200})  # statuses of errors that are not the storage's


class Source(Protocol):
    """Bytes to upload."""

    @property
    def size(self) -> int:
        """How many."""

    def open(self) -> BinaryIO:
        """A new reader from the start, for each attempt."""

    def open_at(self, start: int) -> BinaryIO:
        """A new reader from there."""


def put(api: Api, name: str, url: str, headers: Mapping[str, str], source: Source) -> None:
    """Put a file with the headers that the server wants; Azure's storage takes a larger one in blocks only."""
    blobs = any(header.lower() == AZURE_HEADER for header in headers)
    if blobs and source.size > AZURE_WHOLE:
        _put_blocks(api, name, url, headers, source)
    else:
        api.put(name, url, headers, source.open, source.size)


def _put_blocks(api: Api, name: str, url: str, headers: Mapping[str, str], source: Source) -> None:
    block = max(AZURE_BLOCK, -(-source.size // _MOST_BLOCKS))
    join = "&" if "?" in url else "?"
    ids: list[str] = []
    for start in range(0, source.size, block):
        ids.append(base64.b64encode(f"{len(ids):08}".encode()).decode())
        size = min(block, source.size - start)
        place = f"{url}{join}comp=block&blockid={ids[-1].replace('=', '%3D')}"
        api.put(name, place, {}, lambda start=start: source.open_at(start), size)  # type: ignore[misc]  # a default binds it
    names = "".join(f"<Latest>{one}</Latest>" for one in ids)  # base64 has nothing to escape
    body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{names}</BlockList>'.encode()
    kept = {key.lower(): value for key, value in headers.items()}
    about = {f"x-ms-blob-{key}": kept[key] for key in ("content-type", "content-md5") if key in kept}
    api.put(name, f"{url}{join}comp=blocklist", about, lambda: io.BytesIO(body), len(body))


def renewing(send: Callable[[Place], None], place: Place, renew: Callable[[], Place | None]) -> None:
    """`send` to `place`; if that has expired while it waited for its turn, once more to the one that `renew` gives."""
    try:
        send(place)
    except Permanent as error:
        if not _has_expired(error):
            raise
        again = renew()
        if again is None:
            raise
        send(again)


def _has_expired(error: Permanent) -> bool:
    """Storages say 401 or 403, or another 4xx and that it has expired."""
    if isinstance(error, AuthError):
        return True
    return error.status not in _NOT_EXPIRED and "expired" in str(error).lower()
