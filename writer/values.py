"""What training code logs, as JSON can hold it: copied at once, because the caller goes on changing it.

Where the peer has a form for a value, it is the same one here (`docs/values.md` has the table and the exceptions).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from ..logformat.constants import MAX_NESTING
from .arrays import MAX_LISTED, NoFormError, count, elements, is_array, is_scalar

PLAIN = frozenset({float, int, bool, str, type(None)})
"""The types that a row holds as they are."""
PLAIN_OR_NESTED = PLAIN | {list, dict}
"""The types of all that `plain` returns."""
NAMES = frozenset({str})
"""The types that are names of a row's values as they are."""

Path = tuple[str, ...]
Key = str | Path
"""A metric's name, or its path where it came from a nested dict."""

MAX_RANGE = 65_536
"""Elements of a `range`: a longer one is a bound of something, and no list."""
MAX_FORMS = 1024
"""Types whose form is remembered; code that makes types without end starts over."""


def path_of(key: Key) -> Path:
    """A row's key as a path."""
    return (key,) if isinstance(key, str) else key


class UnloggableError(TypeError):
    """A value that no reader of the log could hold; says of which type."""


class TooDeepError(UnloggableError):
    """A value that holds itself, or nests deeper than any reader follows."""

    def __init__(self) -> None:
        super().__init__(f"nested without end, or more than {MAX_NESTING} levels deep")


# -- rows ----------------------------------------------------------------------------------------------------------


def all_plain(row: dict[Any, Any]) -> bool:
    """Whether a row holds each of its values as it is.

    A loop, because the caches are cold between two steps of training: it takes half the time of `set.issuperset` then.
    """
    for value in row.values():
        kind = type(value)
        if kind is not float and kind not in PLAIN:
            return False
    return True


def flatten(data: Mapping[Any, Any], dropped: dict[str, str]) -> dict[Key, Any]:
    """A row of plain values and `Media` by key; nested dicts become paths, and an empty dict nothing.

    What cannot be logged is left out and named in `dropped` (dotted key -> reason); the rest of the row stands. Of two
    keys with the same text the later one counts.
    """
    row: dict[Key, Any] = {}
    try:
        for name, given in list(data.items()):  # a copy: another thread may go on changing it
            if type(name) is str:  # at once, what most rows are made of
                value = given.item() if _forms.get(type(given)) is _scalar else given
                if type(value) in PLAIN:
                    row[name] = value
                    continue
            for path, value in _leaves(((name, given),), (), dropped):
                row[path[0] if len(path) == 1 else path] = value
    except Exception as error:  # a mapping of somebody else's that does not tell its items
        dropped["rest"] = f"{type(error).__name__}: {error}"
    return row


def _leaves(items: Iterable[tuple[Any, Any]], above: Path, dropped: dict[str, str]) -> Iterator[tuple[Path, Any]]:
    if len(above) > MAX_NESTING:
        raise TooDeepError
    for name, given in items:
        path, nested = (*above, "?"), False
        try:
            path = (*above, name if type(name) is str else name_of(name))
            nested = isinstance(given, Mapping)
            value = given if nested else plain_or_medium(given)
            if nested or type(value) is dict:  # a dict, or what stands as one: a histogram, a dataclass
                yield from _leaves(list(value.items()), path, dropped)
            else:
                yield path if type(value) in PLAIN_OR_NESTED else value.where(path), value
        except (UnloggableError, RecursionError) as error:
            if nested and above:
                raise  # too deep: at once to the top, since each level that goes on would double the work
            dropped[".".join(path)] = str(TooDeepError() if isinstance(error, RecursionError) else error)
        except Exception as error:  # whatever a foreign type does, it costs its own key only
            dropped[".".join(path)] = f"{type(error).__name__}: {error}"


def plain_or_medium(value: Any) -> Any:
    """As `plain`; what has no such form, but is a medium or stands for one, as that `Media`.

    Raises:
        UnloggableError: it is neither.
    """
    try:
        return plain(value)
    except UnloggableError:
        from .media import media_of  # only for what has no plain form, so that rows of numbers cost nothing

        medium = media_of(value)
        if medium is None:
            raise
        return medium


def name_of(key: Any) -> str:
    """A key's text. Bytes, tuples and functions as the peer has them: "a", "a,b", "math.sin"."""
    if isinstance(key, (str, bytes)):
        return _text_of(key)
    if isinstance(key, tuple):
        return ",".join(map(name_of, key))
    return _qualified(key) if isinstance(key, _NAMED) else str(key)


# -- values --------------------------------------------------------------------------------------------------------


def plain(value: Any, room: int = MAX_NESTING) -> Any:
    """`value` as JSON's own types, deeply copied. NaN and infinities stay. `room`: levels that it may have.

    Raises:
        UnloggableError: the value has no such form, nests too deep, or raised when it was asked.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    try:
        form = _forms.get(kind)
        if form is None:
            if len(_forms) >= MAX_FORMS:
                _forms.clear()
            form = _forms[kind] = _form_of(kind)
        return form(value, room)
    except UnloggableError:
        raise
    except RecursionError as error:
        raise TooDeepError from error
    except NoFormError as error:
        raise UnloggableError(f"{_type_of(value)}: {error}") from None
    except Exception as error:  # whatever a foreign type does
        raise UnloggableError(f"{_type_of(value)}: {type(error).__name__}: {error}") from error


Form = Callable[[Any, int], Any]
_forms: dict[type, Form] = {}


def _form_of(kind: type) -> Form:
    """How values of a type become plain; decided once per type, since rows bring the same types again and again."""
    for bases, form in _FORMS:
        if issubclass(kind, bases):
            return form
    if is_record(kind):
        return lambda value, room: {name: plain(item, _less(room)) for name, item in fields_of(value)}
    if is_array(kind):
        if is_scalar(kind):
            return _scalar
        return lambda value, room: plain(elements(value), _less(room))
    if any((base.__module__, base.__name__) in _TEXTS for base in kind.__mro__):
        return lambda value, _: str(value)
    if kind.__name__ == "NAType" and kind.__module__.startswith("pandas"):
        return lambda _value, _room: None
    return _refused


def _scalar(value: Any, room: int) -> Any:
    only = value.item()
    return only if type(only) in PLAIN else plain(elements(value), _less(room))


def _listed(value: Any, convert: Callable[[Any], Any]) -> list[Any]:
    if isinstance(value, range) and len(value) > MAX_RANGE:
        raise UnloggableError(f"a range of {len(value)} numbers is too long for a list")
    items = [convert(item) for item in list(value)]
    if isinstance(value, AbstractSet):
        items.sort(key=_set_order)  # the same in every process, whatever the hashes are
    return items


def _set_order(item: Any) -> tuple[bool, Any, str]:
    number = isinstance(item, (int, float)) and item == item  # noqa: PLR0124 - NaN has no order
    return (not number, item if number else 0, str(item))


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    return bytes(value).decode("utf-8", "replace")


def _complex_text(value: complex) -> str:
    return str(complex(value)).strip("()").replace("nan", "NaN").replace("inf", "Infinity")


def _duration(value: timedelta) -> str:
    """ISO 8601 in days and smaller units: "P1DT2H3M4.000005S"."""
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06d}" if value.microseconds else ""
    day = f"{value.days}D" if value.days else ""
    clock = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if seconds or fraction or not (day or clock):
        clock += f"{seconds}{fraction}S"
    return f"{sign}P{day}T{clock}" if clock else f"{sign}P{day}"


def _qualified(value: Any) -> str:
    return ".".join(filter(None, (getattr(value, "__module__", None), value.__qualname__)))


def _refused(value: Any, _room: int) -> Any:
    raise UnloggableError(f"a log cannot hold a value of type {_type_of(value)}")


_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType)
_LISTS = (list, tuple, set, frozenset, Sequence, AbstractSet)
_FORMS: tuple[tuple[Any, Form], ...] = (
    (Enum, lambda value, room: plain(value.value, room)),
    (Mapping, lambda value, room: {name_of(key): plain(item, _less(room)) for key, item in list(value.items())}),
    (float, lambda value, _: float(value)),  # numpy.float64 is one
    (int, lambda value, _: int(value)),
    (complex, lambda value, _: _complex_text(value)),
    ((str, bytes, bytearray, memoryview), lambda value, _: _text_of(value)),
    ((date, time), lambda value, _: value.isoformat()),
    (timedelta, lambda value, _: _duration(value)),
    (_LISTS, lambda value, room: _listed(value, lambda item: plain(item, _less(room)))),
    (_NAMED, lambda value, _: _qualified(value)),
    (os.PathLike, lambda value, _: _text_of(os.fspath(value))),
)
"""What is a form's base, and the form; the first that fits counts."""
_TEXTS = {("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID")}
"""Further types whose text is their form, by name, since not every program loads their modules."""


def is_mapping(kind: type) -> bool:
    """Whether a type is a mapping, or behaves as one and is no table: ml_collections' `ConfigDict`."""
    return issubclass(kind, Mapping) or (
        all(callable(getattr(kind, name, None)) for name in ("keys", "items", "__getitem__"))
        and not hasattr(kind, "__array__")
    )


def is_record(kind: type) -> bool:
    """Whether a type is a dataclass, and no medium."""
    return hasattr(kind, "__dataclass_fields__") and not callable(getattr(kind, "stage", None))


def fields_of(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass's instance."""
    return [(field.name, getattr(value, field.name)) for field in sys.modules["dataclasses"].fields(value)]


def _less(room: int) -> int:
    if room <= 0:
        raise TooDeepError
    return room - 1


def _type_of(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# -- configs -------------------------------------------------------------------------------------------------------


def described(value: Any) -> Any:
    """As `plain`, for a config, which is there to be read: what has no such form stands as its text.

    As the peer has it, members of an enumeration stand by their name, durations as Python prints them, and arrays too
    long for a list as text.
    """
    try:
        return _described(value, MAX_NESTING)
    except Exception:  # it nests without end, or raised when it was asked
        return _text(value)


def _described(value: Any, room: int) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, Enum):
        return value.name
    if is_mapping(kind):
        return {name_of(key): _described(item, _less(room)) for key, item in items_of(value)}
    if is_record(kind):
        return {name: _described(item, _less(room)) for name, item in fields_of(value)}
    try:
        if isinstance(value, _LISTS) and not isinstance(value, (str, bytes, bytearray, memoryview)):
            return _listed(value, lambda item: _described(item, _less(room)))
        if isinstance(value, timedelta) or (is_array(kind) and count(value) > MAX_LISTED):
            return _text(value)
        return plain(value, room)
    except TooDeepError:
        raise
    except Exception:  # whatever a foreign type does
        return _text(value)


def items_of(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """The items; one that raises when it is asked for, as an interpolation may, stands as its error."""
    try:
        return list(value.items())
    except Exception:  # whatever a foreign type does
        return [(key, _item_of(value, key)) for key in list(value)]


def _item_of(value: Mapping[Any, Any], key: Any) -> Any:
    try:
        return value[key]
    except Exception as error:  # whatever a foreign type does
        return f"<{type(error).__name__}>"


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # its own text raises, or nests too deep
        return f"<{_type_of(value)}>"
