"""The body of a file stream request: lines for numbered places of a run's streams, and marks of its life."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from .database import MAX_LINE
from .errors import BadRequestError, TooLargeError

HISTORY = "wandb-history.jsonl"
EVENTS = "wandb-events.jsonl"
SUMMARY = "wandb-summary.json"
CONSOLE = "output.log"

MAX_NAME_BYTES = 4096


@dataclass(frozen=True)
class Chunk:
    """`content[i]` belongs to line `offset + i`."""

    offset: int
    content: list[str]


@dataclass(frozen=True)
class StreamUpdate:
    """One decoded request; all empty is a heartbeat."""

    files: Mapping[str, Chunk]
    uploaded: tuple[str, ...]
    preempting: bool
    complete: bool
    exit_code: int | None


def safe_name(name: object) -> bool:
    """Whether a file name stays inside the run's folder wherever the files are written out again."""
    return (
        isinstance(name, str)
        and 0 < len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES
        and "\0" not in name
        and not name.startswith(("/", "\\"))
        and name[1:2] != ":"
        and ".." not in name.replace("\\", "/").split("/")
    )


def decode(body: bytes) -> StreamUpdate:
    """Decodes a request body.

    Raises:
        BadRequestError: says which part is not what the protocol has.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadRequestError("the body is not a JSON object")
    files = data.get("files") or {}
    if not isinstance(files, dict):
        raise BadRequestError("files is not an object")
    uploaded = data.get("uploaded") or []
    if not isinstance(uploaded, list) or not all(safe_name(name) for name in uploaded):
        raise BadRequestError("uploaded is not a list of file names")
    exit_code = data.get("exitcode")
    if exit_code is not None and (type(exit_code) is not int or not -(2**31) <= exit_code < 2**31):
        raise BadRequestError("exitcode is not a 32-bit integer")
    return StreamUpdate(
        files={name: _chunk(name, part) for name, part in files.items()},
        uploaded=tuple(uploaded),
        preempting=data.get("preempting") is True,
        complete=data.get("complete") is True,
        exit_code=exit_code,
    )


def _chunk(name: str, part: object) -> Chunk:
    if not safe_name(name):
        raise BadRequestError(f"files: {name!r} is not a file name")
    if not isinstance(part, dict):
        raise BadRequestError(f"files[{name!r}] is not an object")
    offset, content = part.get("offset", 0), part.get("content") or []
    if not isinstance(content, list) or not all(isinstance(line, str) for line in content):
        raise BadRequestError(f"files[{name!r}].content is not a list of strings")
    if type(offset) is not int or not 0 <= offset <= MAX_LINE - len(content):
        raise BadRequestError(f"files[{name!r}].offset is not a line number")
    return Chunk(offset, content)


def gunzip(body: bytes, limit: int) -> bytes:
    """Unpacks a gzip body of at most `limit` bytes.

    Raises:
        BadRequestError: not gzip, or cut off.
        TooLargeError: it unpacks to more.
    """
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequestError(f"the body is not gzip: {error}") from None
    if len(data) > limit:
        raise TooLargeError(f"the body unpacks to more than {limit} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequestError("the gzip body is cut off or followed by other bytes")
    return data
