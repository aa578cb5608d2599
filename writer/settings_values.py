"""Which values a setting may have, and how text and objects become one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..logformat.rundir import valid_run_id

T = TypeVar("T")

REDACTED_PARTS = frozenset({"argv", "environment", "config", "git"})

_TRUE = {"true", "yes", "on", "1", "t", "y"}
_FALSE = {"false", "no", "off", "0", "f", "n"}
_MAX_TAG = 64  # characters that a backend takes
_MAX_PROJECT = 128
_NO_PROJECT = frozenset("/\\#?%:")
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


class Hidden(dict[str, Any]):
    """A mapping whose values are nobody's to see, such as the headers that a server wants."""

    def __repr__(self) -> str:
        return f"<values of {', '.join(sorted(self))}>" if self else "{}"


class WrongError(ValueError):
    """What is wrong with a value, in words that repeat nothing of it that may be secret."""


class Kind(Generic[T]):
    """What a setting takes.

    Attributes:
        takes: the values, in words.
        read: the value for what was given; raises for what it cannot be.
        listed: text of the environment or a file holds several values between commas.
        write: the text that a value may be given as.
        secret: no message and no list repeats a value.
        remarks: what its user is told of some words that are taken for others.
    """

    __slots__ = ("listed", "read", "remarks", "secret", "takes", "write")

    def __init__(
        self,
        takes: str,
        read: Callable[[Any], T],
        *,
        listed: bool = False,
        write: Callable[[T], str] | None = None,
        remarks: Mapping[str, str] | None = None,
        secret: bool = False,
    ) -> None:
        self.takes, self.read, self.listed, self.secret = takes, read, listed, secret
        self.write: Callable[[T], str] = write or _written
        self.remarks: Mapping[str, str] = remarks or {}


def choice(*choices: str, also: Mapping[str, str] | None = None, remarks: Mapping[str, str] | None = None) -> Kind[str]:
    """One of some words, in any case; `also` names further ones and what they mean."""
    also = also or {}
    meanings = {**{word: word for word in choices}, **also}
    known = (*choices, *(f"{word} ({meaning})" for word, meaning in also.items()))
    return Kind(words(known), lambda value: meanings[str(value).strip().lower()], remarks=remarks)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def words(items: tuple[str, ...], last: str = "or") -> str:
    """Items as a sentence lists them."""
    return f" {last} ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def split(text: str) -> tuple[str, ...]:
    """The items of a JSON list, else the parts between commas, without blanks around them and empty ones."""
    if text.lstrip().startswith("["):
        import json

        try:
            return _texts(json.loads(text))
        except ValueError as error:
            if re.match(r"\s*\[\s*\"", text):  # nobody's first item begins so
                raise WrongError("it begins as a JSON list, and is none") from error
    return tuple(part for item in text.split(",") if (part := item.strip()))


def unwrapped(value: Any) -> Any:
    """What stands behind the member of an enumeration, and the text of bytes."""
    if isinstance(value, Enum):
        value = value.value
    return value.decode() if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    value = unwrapped(value)
    text = str(value)
    if not isinstance(value, str) and (value is None or hasattr(value, "__iter__") or text.startswith("<")):
        raise TypeError  # nobody's name is that of an object's place in memory
    if text.isascii():
        return text
    # Bytes of the environment that are no UTF-8 come as lone surrogates, which no record can hold.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _flag(value: Any) -> bool:
    if not isinstance(value, str):
        if value not in (0, 1):  # True and False of any type are these
            raise ValueError
        return bool(value)
    word = value.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError
    return word in _TRUE


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        raise TypeError
    return tuple(map(_text, (value,) if isinstance(value, (str, os.PathLike)) else value))


def _tags(value: Any) -> tuple[str, ...]:
    tags = _texts(value)
    if not all(0 < len(tag) <= _MAX_TAG for tag in tags):
        raise ValueError
    return tags


def _project(value: Any) -> str:
    project = _text(value)
    if len(project) > _MAX_PROJECT or project in {".", ".."} or not _NO_PROJECT.isdisjoint(project):
        raise ValueError
    return project


def _run_id(value: Any) -> str:
    run_id = _text(value)
    if not valid_run_id(run_id):
        raise ValueError
    return run_id


def _folder(value: Any) -> Path:
    path = Path(value).expanduser()
    with suppress(FileNotFoundError):  # the working directory was removed: the log cannot be made, and says so
        path = path.absolute()
    if b"\0" in os.fsencode(path):  # which raises for what no file system can hold
        raise ValueError
    return path


def _server(value: Any) -> str:
    url = _text(value).strip()
    if "@" in url or (url and not re.fullmatch(r"https?://[^\s/]\S*", url)):
        raise ValueError
    return url


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0.1 <= seconds <= 1e6:  # as the sampler has it; NaN fails too
        raise ValueError
    return seconds


def _byte_count(value: Any) -> int:
    if isinstance(value, str):
        match = _BYTES.fullmatch(value.strip())
        if match is None:
            raise ValueError
        number, unit, binary = match.groups()
        if binary and not unit:
            raise ValueError
        factor = (1024 if binary else 1000) ** _UNITS[unit.upper()]
        value = (int(number) if number.isdecimal() else float(number)) * factor  # a float holds no 63 bits
    count = int(value)
    if isinstance(value, bool) or not 0 <= count < 1 << 63:
        raise ValueError
    return count


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count < 1 << 31:
        raise ValueError
    return count


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = int(value)
        if isinstance(value, bool) or not least <= number < 1 << 31:
            raise ValueError
        return number

    return read


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        from ..sampler.settings import parse_mapping

        value = parse_mapping(value)
    if not isinstance(value, Mapping):
        raise TypeError
    return {_text(name): item for name, item in value.items()}


def _intervals(value: Any) -> dict[str, float]:
    intervals = {name: float(seconds) for name, seconds in _mapping(value).items()}
    for name, seconds in intervals.items():
        if not 0 <= seconds <= 1e6:  # as the sampler has it
            raise WrongError(f"{seconds:g} s for {name!r} is not from 0 to 1,000,000")
    return intervals


def _address(value: Any) -> str:
    url = _text(value).strip()
    if re.match(r"https?://[^\s/?#]*@", url):
        raise WrongError("the URL holds a user or a password: give a header Authorization instead")
    if url and not re.fullmatch(r"https?://[^\s/@?#]+([/?#].*)?", url):
        raise ValueError
    return url


def _endpoints(value: Any) -> dict[str, str]:
    found = {}
    for name, url in _mapping(value).items():
        try:
            found[name] = _address(url)
        except WrongError as error:
            raise WrongError(f"{name!r}: {error}") from None
    return found


def _headers(value: Any) -> Hidden:
    return Hidden(
        (name, _texts_of(item) if isinstance(item, Mapping) else _text(item)) for name, item in _mapping(value).items()
    )


def _filters(value: Any) -> tuple[str, ...] | dict[str, dict[str, str]]:
    if isinstance(value, str):
        value = _mapping(value) if value.lstrip().startswith("{") else split(value)
    if isinstance(value, Mapping):
        return {pattern: _texts_of(labels) for pattern, labels in _mapping(value).items()}
    return _texts(value)


def _texts_of(value: Any) -> dict[str, str]:
    return {name: _text(text) for name, text in _mapping(value).items()}


def _hidden(headers: Hidden) -> str:
    return repr(headers) if headers else ""


def _as_json(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    import json

    return json.dumps(value) if value else ""


def _amount(count: int) -> str:
    """Bytes in the largest unit that leaves no fraction."""
    for base, ending in ((1024, "iB"), (1000, "B")):
        for unit, power in sorted(_UNITS.items(), key=lambda item: -item[1])[:-1]:
            if count and count % base**power == 0:
                return f"{count // base**power} {unit}{ending}"
    return str(count)


def _resume(value: Any) -> str:
    if not isinstance(value, str):
        return "auto" if _flag(value) else ""
    # No other word for true or false: a run that goes on where it should not cannot be told apart again.
    meanings = {"": "", "false": "", "true": "auto", **{word: word for word in ("allow", "must", "never", "auto")}}
    return meanings[value.strip().lower()]


def _reinit(value: Any) -> str:
    word = str(value).strip().lower()
    if word in {"default", "return_previous", "finish_previous", "create_new"}:
        return word
    return "finish_previous" if _flag(word) else "return_previous"


def _redact(value: Any) -> frozenset[str]:
    items = split(value.replace(" ", ",")) if isinstance(value, str) else value
    if isinstance(items, int):
        return REDACTED_PARTS if items else frozenset()
    left: set[str] = set()
    for item in map(str.lower, items):
        if item in _FALSE | {"none"}:
            left |= REDACTED_PARTS
        elif item.startswith("-") and item[1:] in REDACTED_PARTS:
            left.add(item[1:])
        elif item not in _TRUE | {"all"}:
            raise ValueError
    return REDACTED_PARTS - left


def _redacted(parts: frozenset[str]) -> str:
    left = ", ".join(f"-{part}" for part in sorted(REDACTED_PARTS - parts))
    return (left or "all") if parts else "off"


TEXT = Kind("text", _text)
FLAG = Kind("true or false", _flag)
LIST = Kind("a list of texts", _texts, listed=True)
TAGS = Kind(f"a list of texts, each of 1 to {_MAX_TAG} characters", _tags, listed=True)
PROJECT = Kind(f"up to {_MAX_PROJECT} characters, none of {' '.join(sorted(_NO_PROJECT))}", _project)
RUN_ID = Kind("1 to 128 bytes of printable characters, none of : ; , # ? / \\ '", _run_id)
FOLDER = Kind("a path", _folder)
SERVER = Kind("an http(s) URL without a user and a password", _server)
SECONDS = Kind("seconds from 0.1 to 1,000,000", _seconds)
BYTES = Kind("bytes, or text such as 500 MB or 1 GiB", _byte_count, write=_amount)
COUNT = Kind("a whole number; 0 for what is found", _count)
NUMBER = Kind("a whole number from 1", _whole(1))
SAMPLES = Kind("a whole number; -1 for all", _whole(-1))
INTERVALS = Kind("seconds from 0 to 1,000,000 by probe, as `name=30, ...` or a JSON object", _intervals, write=_as_json)
ADDRESS = Kind("an http(s) URL without a user and a password", _address)
ENDPOINTS = Kind(
    "http(s) URLs by name, without a user and a password, as `name=URL, ...` or a JSON object",
    _endpoints,
    write=_as_json,
)
HEADERS = Kind("texts by header, and these by endpoint, as a JSON object", _headers, write=_hidden, secret=True)
FILTERS = Kind("patterns, or as a JSON object patterns of labels' values by label by pattern", _filters, write=_as_json)
RESUME = Kind("allow, must, never, auto, true (auto) or false", _resume, write=lambda mode: mode or "false")
REINIT = Kind("return_previous, finish_previous, create_new, default, true (finish_previous) or false", _reinit)
REDACT = Kind(
    f"all, off, or what is left as it is: {words(tuple(f'-{p}' for p in sorted(REDACTED_PARTS)))}",
    _redact,
    write=_redacted,
)
