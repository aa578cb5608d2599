"""`run.config` and `run.summary`: mappings that record what is done to them, from any thread."""

from __future__ import annotations

import os
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any

from .errors import UsageError
from .values import Path, UnloggableError, described, fields_of, is_mapping, is_record, items_of, name_of, plain

Changed = Callable[[Path, Any], None]
"""Told the path and the plain value that stands there now; `REMOVED` where nothing does."""

REMOVED: Any = object()


class _Attributes:
    """Items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]  # type: ignore[index]  # what it is mixed into is a mapping
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}") from None


class LiveDict(_Attributes, dict[str, Any]):
    """A dict whose changes, at any depth, are told; items can be read and set as attributes too.

    Values are kept as JSON's own types, so what is read is what the log holds. Several threads may change it: each
    change is whole, and what is told last of a key is what stands there.

    Its own items are plain all the way down: `dict(config)`, `{**config}` and `config.items()` are what YAML and
    OmegaConf take. A dict that is asked for by its name comes as a LiveDict of its own, which writes through.
    """

    def __init__(
        self,
        changed: Changed,
        convert: Callable[[Any], Any] = plain,
        path: Path = (),
        behind: dict[str, Any] | None = None,
    ) -> None:
        """Nothing is in it, or what is in the plain dict `behind` it."""
        super().__init__(behind or {})
        # Past our own __setattr__, which would make items of them.
        object.__setattr__(self, "_changed", changed)
        object.__setattr__(self, "_convert", convert)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_behind", behind)
        object.__setattr__(self, "_live", {})  # id of a plain dict -> the LiveDict before it, which keeps it alive

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Take plain values over without telling."""
        for name, value in values.items():
            dict.__setitem__(self, name, _copied(value))

    def _alive(self, name: str, value: Any) -> Any:
        """What stands at `name`, as it is handed out."""
        if type(value) is not dict:
            return value
        live = self._live.get(id(value))
        if live is None:  # one per dict, whatever threads ask at a time: what one changes there the others see
            fresh = LiveDict(self._changed, self._convert, (*self._path, name), value)
            live = self._live.setdefault(id(value), fresh)
        return live

    def _put(self, name: str, value: Any) -> None:
        self._live.pop(id(dict.get(self, name)), None)
        dict.__setitem__(self, name, value)
        if self._behind is not None:
            self._behind[name] = value

    def _drop(self, name: str) -> Any:
        value = dict.pop(self, name)
        self._live.pop(id(value), None)
        if self._behind is not None:
            self._behind.pop(name, None)
        return value

    def _tell(self, name: str, told: Any) -> None:
        """Tell what stands at `name`, which is `told` unless another thread came in between: then again."""
        while True:
            self._changed((*self._path, name), _copied(told))
            stands = dict.get(self, name, REMOVED)
            if stands is told:
                return
            told = stands

    # -- changes -----------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set one value. UnloggableError, a TypeError, if no log can hold it."""
        name = name_of(key)
        kept = self._convert(value)
        self._put(name, kept)
        self._tell(name, kept)

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def update(self, *args: Any, **values: Any) -> None:
        """Set several values at once; what this dict has and they have not stays."""
        for name, value in dict(*args, **values).items():
            self[name] = value

    def __ior__(self, other: Any) -> LiveDict:  # type: ignore[override,misc]  # noqa: PYI034 - Self needs Python 3.11
        self.update(other)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, set to `default` if it has none."""
        if key not in self:
            self[key] = default
        return self[key]

    def setdefaults(self, values: Any) -> None:
        """Set what is not set yet."""
        for name, value in values_of(values).items():
            self.setdefault(name, value)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove `key` and return its value."""
        name = name_of(key)
        try:
            value = self._drop(name)
        except KeyError:
            if default:
                return default[0]
            raise
        self._tell(name, REMOVED)
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last item and return it."""
        name = next(reversed(self), None)
        if name is None:
            raise KeyError("popitem: there is none")
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove every item."""
        for name in list(self):
            self.pop(name, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        name = name_of(key)
        return self._alive(name, super().__getitem__(name))

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(name_of(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`."""
        try:
            return self[key]
        except KeyError:
            return default

    def as_dict(self) -> dict[str, Any]:
        """A plain copy, nested dicts included, as one moment had it at each level."""
        return {name: _copied(value) for name, value in dict.copy(self).items()}

    def __reduce__(self) -> Any:
        return dict, (self.as_dict(),)

    def __copy__(self) -> dict[str, Any]:
        return self.as_dict()

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return self.as_dict()

    def copy(self) -> dict[str, Any]:
        """A plain copy."""
        return self.as_dict()


def _copied(value: Any) -> Any:
    """A plain value that shares no list or dict with `value`."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):  # taken in one go: other threads may go on changing it
        return {name: _copied(item) for name, item in dict(value).items()}
    return value


class Config(LiveDict):
    """The run's configuration. What has no form in a log stands as its text."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed, described)

    def update(  # type: ignore[override]  # the peer's signature
        self,
        values: Any = (),
        allow_val_change: bool | None = None,  # noqa: ARG002 - see below
        **named: Any,
    ) -> None:
        """Set several values; what is not named stays.

        Args:
            values: what `init(config=...)` takes, or pairs.
            allow_val_change: the peer's: here changes are always allowed.
            named: further values.

        Raises:
            UnloggableError: `values` is none of it.
        """
        pairs = (
            isinstance(values, Iterable) and not isinstance(values, (str, os.PathLike)) and not is_mapping(type(values))
        )
        given = dict(values) if pairs and not _has_values(values) else values_of(values)
        for name, value in (given | named).items():
            self[name] = value

    def set_all(self, values: Any) -> None:
        """Take over what `init(config=...)` was given, without telling.

        Raises:
            UnloggableError: it has no names and values.
        """
        self._fill({name_of(name): described(value) for name, value in values_of(values).items()})


def values_of(source: Any) -> dict[Any, Any]:
    """The names and values of what may be a config.

    That is a mapping, a dataclass's instance, absl's flags, the path of a JSON or YAML file, or any object with
    attributes, such as `argparse.Namespace`.

    Raises:
        UnloggableError: it is none of these.
    """
    if is_mapping(type(source)):
        return dict(items_of(source))
    if isinstance(source, (str, os.PathLike)):
        from .config_files import read_config

        try:
            return read_config(source)
        except Exception as error:  # a parser's errors are of many types
            from ..sampler.redact import redact_text

            why = getattr(error, "strerror", None) or error
            # What was meant as the config itself may hold a secret.
            raise UnloggableError(redact_text(f"config: the file {os.fspath(source)!r}: {why}").text) from None
    if callable(getattr(source, "flag_values_dict", None)):
        return dict(source.flag_values_dict())
    if is_record(type(source)):
        return dict(fields_of(source))
    try:
        return dict(vars(source))
    except TypeError:
        raise UnloggableError(f"config: {type(source).__qualname__} has no names and values") from None


def _has_values(source: Any) -> bool:
    return is_record(type(source)) or callable(getattr(source, "flag_values_dict", None)) or hasattr(source, "__dict__")


def selected(source: Any, include: Collection[str] | None, exclude: Collection[str] | None) -> Any:
    """A config, or the part of it whose top-level names are wanted.

    Raises:
        UsageError: both parts are named.
        UnloggableError: `source` is no config.
    """
    if include and exclude:
        raise UsageError("config_include_keys and config_exclude_keys: give one of them")
    if source is None or not (include or exclude):
        return source
    values = values_of(source).items()
    return {name: value for name, value in values if (name in include if include else name not in (exclude or ()))}


class Summary(_Attributes, MutableMapping[str, Any]):
    """The run's summary: the last value of each metric, and what was set here; items are attributes too.

    Reading waits until the rows logged before are counted in; nested dicts that were read are live, but show what was
    there then.
    """

    def __init__(
        self, changed: Changed, fetch: Callable[[], dict[str, Any] | None], convert: Callable[[Any], Any] = plain
    ) -> None:
        """Nothing is read yet.

        Args:
            changed: told of each change.
            fetch: the whole summary, plain, the same object as long as nothing changed; None where there is none to
                fetch, and what is set here is all.
            convert: makes values plain.
        """
        # Past our own __setattr__, which would make items of them.
        object.__setattr__(self, "_changed", changed)
        object.__setattr__(self, "_fetch", fetch)
        object.__setattr__(self, "_convert", convert)
        object.__setattr__(self, "_last", (None, LiveDict(changed, convert)))

    def _read(self) -> LiveDict:
        values = self._fetch()
        seen: dict[str, Any] | None
        tree: LiveDict
        seen, tree = self._last
        if values is None or values is seen:
            return tree
        tree = LiveDict(self._changed, self._convert)  # a new one: other threads may be reading the last
        tree._fill(values)  # noqa: SLF001 - a LiveDict has few names of its own: all others are items
        object.__setattr__(self, "_last", (values, tree))
        return tree

    def __getitem__(self, key: Any) -> Any:
        return self._read()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set one value. UnloggableError, a TypeError, if no log can hold it."""
        self._set({key: value})

    def __delitem__(self, key: Any) -> None:
        del self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def update(self, *args: Any, **values: Any) -> None:
        """Set several values at once; what the summary has and they have not stays."""
        self._set(dict(*args, **values))

    def _set(self, values: dict[Any, Any]) -> None:
        _, tree = self._last
        object.__setattr__(self, "_last", (None, tree))  # what is read next is what the log took of it
        tree.update(values)

    def clear(self) -> None:
        """Remove every item."""
        self._read().clear()

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._read().keys()

    def values(self) -> ValuesView[Any]:
        """The values."""
        return self._read().values()

    def items(self) -> ItemsView[str, Any]:
        """Names and values."""
        return self._read().items()

    def as_dict(self) -> dict[str, Any]:
        """A plain copy, nested dicts included."""
        return self._read().as_dict()

    def copy(self) -> dict[str, Any]:
        """A plain copy."""
        return self.as_dict()

    def __copy__(self) -> dict[str, Any]:
        return self.as_dict()

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return self.as_dict()

    def __reduce__(self) -> Any:
        return dict, (self.as_dict(),)

    def __repr__(self) -> str:
        return repr(self.as_dict())
