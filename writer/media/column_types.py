"""The types of a table's columns, as the format has them: they grow with the values, and refuse what does not fit.

A type takes a value and gives the type that the column then has, or None where the value does not fit in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from numbers import Number
from typing import Any

from .base import Media
from .content import FileMedia
from .image import Image
from .libraries import is_array, is_missing


class ColumnType:
    """Any type. A type that knows no better takes its own like."""

    name = ""

    def take(self, value: Any) -> ColumnType | None:
        """The type that the column has with this value, or None."""
        return self.join(type_of(value))

    def join(self, other: ColumnType) -> ColumnType | None:
        """The type of what is of this type or `other`, or None."""
        return self if self == other else None

    def params(self) -> dict[str, Any]:
        """Its parameters as JSON."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """It as the format has it."""
        params = self.params()
        return {"wb_type": self.name} | ({"params": params} if params else {})

    def __str__(self) -> str:
        return self.name.capitalize()


@dataclass(frozen=True)
class Plain(ColumnType):
    """A type without parameters."""

    name: str


NONE, STRING, NUMBER = Plain("none"), Plain("string"), Plain("number")
BOOLEAN, TIMESTAMP = Plain("boolean"), Plain("timestamp")


@dataclass(frozen=True)
class Unknown(ColumnType):
    """Becomes the type of the first value."""

    name = "unknown"

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        return None if other == NONE else other


@dataclass(frozen=True)
class Anything(ColumnType):
    """Takes all but None."""

    name = "any"

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        return None if other == NONE else self


@dataclass(frozen=True)
class PythonObject(ColumnType):
    """What the format has no type for, by the name of its class."""

    class_name: str
    name = "pythonObject"

    def params(self) -> dict[str, Any]:
        """As for any type."""
        return {"class_name": self.class_name}

    def __str__(self) -> str:
        return f"Pythonobject(class_name:{self.class_name})"


@dataclass(frozen=True, eq=False)
class Constant(ColumnType):
    """One value, and no other."""

    value: Any
    name = "const"

    def take(self, value: Any) -> ColumnType | None:
        """As for any type."""
        return self if type(value) is type(self.value) and value == self.value else None

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        return self if isinstance(other, Constant) and self.take(other.value) else None

    def params(self) -> dict[str, Any]:
        """As for any type."""
        return {"val": self.value, "is_set": False}

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Union(ColumnType):
    """One of several types, in the order of their texts."""

    members: tuple[ColumnType, ...]
    name = "union"

    @classmethod
    def of(cls, members: Iterable[ColumnType]) -> Union:
        """The union of all; a union among them counts as its members."""
        flat = [part for member in members for part in (member.members if isinstance(member, Union) else (member,))]
        return cls(tuple(sorted(flat, key=str)))

    def take(self, value: Any) -> ColumnType | None:
        """As for any type."""
        return self._grown(lambda member: member.take(value))

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        grown: ColumnType | None = self
        for part in other.members if isinstance(other, Union) else (other,):
            if not isinstance(grown, Union):
                return None
            grown = grown._grown(lambda member, part=part: member.join(part))  # noqa: SLF001 - a Union too
        return grown

    def _grown(self, take: Any) -> Union | None:
        for member in self.members:
            taken = take(member)
            if taken is not None:
                at = self.members.index(member)
                return self if taken == member else Union.of([*self.members[:at], taken, *self.members[at + 1 :]])
        return None

    def params(self) -> dict[str, Any]:
        """As for any type."""
        return {"allowed_types": [member.to_json() for member in self.members]}

    def __str__(self) -> str:
        return " or ".join(map(str, self.members))


@dataclass(frozen=True)
class Listed(ColumnType):
    """Lists; `length` None: of several lengths."""

    element: ColumnType
    length: int | None = None
    name = "list"

    def take(self, value: Any) -> ColumnType | None:
        """As for any type."""
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            return None
        items = list(value)
        element: ColumnType | None = self.element
        for item in items:
            element = element.take(item) if element is not None else None
        return None if element is None else Listed(element, len(items))

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        if not isinstance(other, Listed):
            return None
        element = self.element.join(other.element)
        return None if element is None else Listed(element, self.length if self.length == other.length else None)

    def params(self) -> dict[str, Any]:
        """As for any type."""
        return {"element_type": self.element.to_json(), "length": self.length}

    def __str__(self) -> str:
        return f"{self.element}[]"


@dataclass(frozen=True)
class Array(ColumnType):
    """Arrays of numpy of one shape; those of a column lie in a file of the artifact."""

    shape: tuple[int, ...]
    file: tuple[str, str] | None = None
    """Path of the file, and name of the array in it."""
    name = "ndarray"

    def take(self, value: Any) -> ColumnType | None:
        """As for any type."""
        if is_array(value):
            return self if tuple(value.shape) == self.shape else None
        return self if isinstance(value, list) else None

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        alike = isinstance(other, Array) and other.shape == self.shape
        return self if alike or isinstance(other, Listed) else None

    def params(self) -> dict[str, Any]:
        """As for any type."""
        path = {"path": self.file[0], "key": self.file[1]} if self.file else None
        return {"shape": list(self.shape), "serialization_path": path}

    def __str__(self) -> str:
        return f"Ndarray(shape:{list(self.shape)})"


@dataclass(frozen=True, eq=False)
class TypedDict(ColumnType):
    """Dicts with these keys."""

    types: Mapping[Any, ColumnType]
    name = "typedDict"

    def take(self, value: Any) -> ColumnType | None:
        """As for any type."""
        if not isinstance(value, Mapping) or value.keys() - self.types.keys():
            return None
        return self._grown({key: kind.take(value.get(key)) for key, kind in self.types.items()})

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        if not isinstance(other, TypedDict) or other.types.keys() - self.types.keys():
            return None
        return self._grown({key: kind.join(other.types.get(key, Unknown())) for key, kind in self.types.items()})

    def _grown(self, types: dict[Any, ColumnType | None]) -> TypedDict | None:
        grown = {key: kind for key, kind in types.items() if kind is not None}
        return TypedDict(grown) if len(grown) == len(types) else None

    def params(self) -> dict[str, Any]:
        """As for any type."""
        return {"type_map": {str(key): kind.to_json() for key, kind in self.types.items()}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedDict) and self.types == other.types

    __hash__ = None  # type: ignore[assignment]  # its types are a dict

    def __str__(self) -> str:
        return str({key: str(kind) for key, kind in self.types.items()})


_LAYERS = ("box_layers", "mask_layers")
_NAMES = ("box_class_maps", "mask_class_maps")


@dataclass(frozen=True)
class ImageType(ColumnType):
    """Images, and which layers and classes they have."""

    layers: Mapping[str, Any]
    name = "image-file"

    @classmethod
    def of(cls, image: Image) -> ImageType:
        """The type of one image."""
        boxes, masks = image._boxes, image._masks  # noqa: SLF001 - of the same package
        both = {"box": boxes, "mask": masks}
        found: dict[str, Any] = {
            f"{name}_layers": {key: set(layer.labels or {}) for key, layer in layers.items()}
            for name, layers in both.items()
        }
        for name, layers in both.items():
            found[f"{name}_class_maps"] = {
                key: {str(number): label for number, label in layer.labels.items()}
                for key, layer in layers.items()
                if layer.labels is not None
            }
        found["box_score_keys"] = {
            score for layer in boxes.values() for box in getattr(layer, "boxes", ()) for score in box.get("scores", ())
        }
        classes = image._classes  # noqa: SLF001
        found["class_map"] = {str(key): name for key, name in classes.names().items()} if classes else {}
        return cls(found)

    def join(self, other: ColumnType) -> ColumnType | None:
        """As for any type."""
        if not isinstance(other, ImageType):
            return None
        mine, theirs = self.layers, other.layers
        joined: dict[str, Any] = {
            "box_score_keys": mine["box_score_keys"] | theirs["box_score_keys"],
            "class_map": theirs["class_map"] | mine["class_map"],
        }
        for name in _LAYERS:
            joined[name] = {
                key: mine[name].get(key, set()) | theirs[name].get(key, set()) for key in mine[name] | theirs[name]
            }
        for name in _NAMES:
            joined[name] = {
                key: theirs[name].get(key, {}) | mine[name].get(key, {}) for key in mine[name] | theirs[name]
            }
        return ImageType(joined)

    def params(self) -> dict[str, Any]:
        """As for any type."""

        def constant(name: str) -> dict[str, Any]:
            value = self.layers[name]
            if isinstance(value, set):
                shown: Any = sorted(value, key=str)
            else:
                shown = {key: sorted(part, key=str) if isinstance(part, set) else part for key, part in value.items()}
            return {"wb_type": "const", "params": {"val": shown, "is_set": isinstance(value, set)}}

        return {name: constant(name) for name in ("box_score_keys", "class_map", *_LAYERS, *_NAMES)}


def optional_type(kind: ColumnType) -> ColumnType:
    """The type, or None."""
    return Union.of([kind, NONE])


_CLASSES: dict[type, ColumnType] = {
    type(None): NONE,
    str: STRING,
    int: NUMBER,
    float: NUMBER,
    complex: NUMBER,
    bool: BOOLEAN,
}
_NUMPY_KINDS = {"b": BOOLEAN, "i": NUMBER, "u": NUMBER, "f": NUMBER, "c": NUMBER, "M": TIMESTAMP, "U": STRING}


def type_of(value: Any) -> ColumnType:
    """The type of one value. NaN is nothing, as in data frames."""
    known = _CLASSES.get(type(value))
    if known is not None:
        return NONE if type(value) is float and math.isnan(value) else known
    if is_missing(value):
        return NONE
    if isinstance(value, Image):
        return ImageType.of(value)
    if isinstance(value, Media):
        typed = isinstance(value, FileMedia) and value.TYPED
        return Plain(value.KIND) if typed else PythonObject(type(value).__name__)
    if is_array(value):
        return Array(tuple(value.shape))
    if isinstance(value, Mapping):
        return TypedDict({key: type_of(item) for key, item in value.items()})
    if isinstance(value, (list, tuple, set, frozenset)):
        items = list(value)
        start: ColumnType = Unknown()
        if any(item is None for item in items):
            start = optional_type(start)
        kind: ColumnType | None = start
        for item in items:
            kind = kind.take(item) if kind is not None else None
        return PythonObject(type(value).__name__) if kind is None else Listed(kind, len(items))
    numpy_kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(numpy_kind, str) and numpy_kind in _NUMPY_KINDS:
        return _NUMPY_KINDS[numpy_kind]
    if isinstance(value, date):
        return TIMESTAMP
    for base, kind_of_base in ((str, STRING), (bool, BOOLEAN), (Number, NUMBER)):
        if isinstance(value, base):
            return kind_of_base
    return PythonObject(type(value).__name__)


def type_by_class(value: Any) -> bool:
    """Whether all values of its class have one type: scalars of numpy, and dates."""
    return isinstance(value, date) or (type(value).__module__ == "numpy" and not is_array(value))


def type_from(dtype: Any) -> ColumnType:
    """The type that a user's `dtype` means: a type of Python or of media, a list or dict of these, or a constant."""
    if isinstance(dtype, ColumnType):
        return dtype
    if isinstance(dtype, type):
        return _type_from_class(dtype)
    if isinstance(dtype, list):
        if len(dtype) > 1:
            return Union.of(map(type_from, dtype))
        return Listed(type_from(dtype[0]) if dtype else Unknown())
    if isinstance(dtype, dict):
        return TypedDict({key: type_from(inner) for key, inner in dtype.items()})
    return Constant(dtype)


def _type_from_class(kind: type) -> ColumnType:
    if kind in _CLASSES:
        return _CLASSES[kind]
    if issubclass(kind, Image):
        return ImageType({name: {} for name in ("class_map", *_LAYERS, *_NAMES)} | {"box_score_keys": set()})
    if issubclass(kind, FileMedia) and kind.TYPED:
        return Plain(kind.KIND)
    if issubclass(kind, date):
        return TIMESTAMP
    if issubclass(kind, (list, tuple, set, frozenset)):
        return Listed(Unknown())
    if issubclass(kind, dict):
        return TypedDict({})
    if issubclass(kind, Number):
        return NUMBER
    return PythonObject(kind.__name__)
