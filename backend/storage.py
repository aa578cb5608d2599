"""Signed addresses: what may be sent to one or fetched from one, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .artifact_model import ArtifactError
from .artifacts import Artifacts
from .blobs import Upload
from .contents import Contents
from .errors import BadRequestError, NotFoundError
from .keys import UploadSigner
from .manifest import base64_md5
from .store import Store

RUN, CONTENT, MANIFEST, PART, DOWNLOAD = "r", "a", "m", "p", "b"
NEEDS_MD5 = frozenset({CONTENT, PART})
"""Whose clients are told to send `Content-MD5`."""


@dataclass(frozen=True)
class Addresses:
    """Makes signed addresses that begin with `base_url` (without a trailing slash) and hold from now on for a day."""

    signer: UploadSigner
    clock: Callable[[], float]
    base_url: str

    def run_file(self, run: int, name: str) -> str:
        """To send a file of a run."""
        return self._sign(f"{RUN}{run}", name)

    def content(self, artifact: int, name: str) -> str:
        """To send a file of an artifact."""
        return self._sign(f"{CONTENT}{artifact}", name)

    def manifest(self, manifest: int, name: str) -> str:
        """To send a manifest."""
        return self._sign(f"{MANIFEST}{manifest}", name)

    def part(self, multipart: str, number: int) -> str:
        """To send one part of a body."""
        return self._sign(f"{PART}{multipart}", str(number))

    def download(self, blob: str, name: str) -> str:
        """To fetch bytes, saved as `name`."""
        return self._sign(f"{DOWNLOAD}{blob}", name)

    def _sign(self, place: str, name: str) -> str:
        return self.base_url + self.signer.sign(place, name, self.clock())


class Storage:
    """What lies behind signed addresses."""

    def __init__(self, store: Store, artifacts: Artifacts, contents: Contents) -> None:
        self._store = store
        self._artifacts = artifacts
        self._contents = contents

    def put(self, place: str, name: str, upload: Upload, content_md5: str | None) -> str:
        """Keeps a body that was sent to the address; its hex MD5. `content_md5` is the header of that name.

        Raises:
            BadRequestError: the bytes are not those that were announced.
            NotFoundError: what they belong to is gone.
        """
        kind, key = place[:1], place[1:]
        if content_md5 is None and kind in NEEDS_MD5:
            raise BadRequestError("the headers that came with the address are missing: Content-MD5")
        if content_md5 is not None and content_md5 != base64_md5(upload.md5):
            raise BadRequestError(f"the body has the MD5 {base64_md5(upload.md5)}, and its header says {content_md5}")
        number = name if kind == PART else key
        if not re.fullmatch("[0-9]{1,18}", number):
            raise BadRequestError("nothing can be sent to this address")
        try:
            if kind == RUN:
                return self._store.put_file(int(number), name, upload).md5 or ""
            if kind == CONTENT:
                return self._contents.put(int(number), name, upload)
            if kind == PART:
                return self._contents.put_part(key, int(number), upload)
            if kind == MANIFEST:
                return self._artifacts.put_manifest(int(number), upload)
        except ArtifactError as error:
            raise NotFoundError(str(error)) from None
        raise BadRequestError("nothing can be sent to this address")

    def get(self, place: str) -> Path | None:
        """The file behind an address to fetch from; None if it is none or the bytes are gone."""
        if not re.fullmatch(DOWNLOAD + "[0-9a-f]{64}", place):
            return None
        path = self._store.blobs.path(place[1:])
        return path if path.exists() else None
