"""`run.config` and `run.summary`: dicts that record what is done to them."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextlib import suppress
from typing import Any

from .values import Path, UnloggableError, described, plain

Changed = Callable[[Path, Any], None]
"""Told the path and the plain value that stands there now; `REMOVED` where nothing does."""

REMOVED: Any = object()


class LiveDict(dict[str, Any]):
    """A dict whose changes, at any depth, are told; items can be read and set as attributes too.

    Values are kept as JSON's own types, so what is read is what the log holds.
    """

    def __init__(self, changed: Changed, convert: Callable[[Any], Any] = plain, path: Path = ()) -> None:
        super().__init__()
        # Past our own __setattr__, which would make items of them.
        object.__setattr__(self, "_changed", changed)
        object.__setattr__(self, "_convert", convert)
        object.__setattr__(self, "_path", path)

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Take plain values over without telling."""
        for name, value in values.items():
            dict.__setitem__(self, name, self._wrapped(name, value))

    def _wrapped(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        inner = LiveDict(self._changed, self._convert, (*self._path, name))
        inner._fill(value)
        return inner

    # -- changes -----------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set one value. UnloggableError, a TypeError, if no log can hold it."""
        name, value = str(key), self._convert(value)
        dict.__setitem__(self, name, self._wrapped(name, value))
        self._changed((*self._path, name), value)

    def __delitem__(self, key: Any) -> None:
        dict.__delitem__(self, str(key))
        self._changed((*self._path, str(key)), REMOVED)

    def update(self, *args: Any, **values: Any) -> None:
        """Set several values at once; what this dict has and they have not stays."""
        for name, value in dict(*args, **values).items():
            self[name] = value

    def __ior__(self, other: Any) -> LiveDict:  # type: ignore[override,misc]  # noqa: PYI034 - Self needs Python 3.11
        self.update(other)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, set to `default` if it has none."""
        if str(key) not in self:
            self[key] = default
        return self[str(key)]

    def setdefaults(self, values: Mapping[str, Any]) -> None:
        """Set what is not set yet."""
        for name, value in values.items():
            self.setdefault(name, value)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove `key` and return its value."""
        if str(key) not in self and default:
            return default[0]
        value = self[str(key)]
        del self[str(key)]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last item and return it."""
        name = next(reversed(list(self)))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove every item."""
        for name in list(self):
            del self[name]

    # -- attributes --------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}") from None

    def as_dict(self) -> dict[str, Any]:
        """A plain copy, nested dicts included."""
        return {name: value.as_dict() if isinstance(value, LiveDict) else value for name, value in self.items()}

    def __reduce__(self) -> Any:
        return dict, (self.as_dict(),)

    def __copy__(self) -> dict[str, Any]:
        return self.as_dict()

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return self.as_dict()

    def copy(self) -> dict[str, Any]:
        """A plain copy."""
        return self.as_dict()


class Config(LiveDict):
    """The run's configuration. What has no form in a log stands as its text."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed, described)

    def update(self, *args: Any, allow_val_change: bool | None = None, **values: Any) -> None:  # noqa: ARG002 - the peer's signature
        """Set several values; what is not named stays. `allow_val_change` is the peer's: changes are always allowed."""
        super().update(*args, **values)

    def snapshot(self) -> dict[str, Any]:
        """A plain copy, from another thread than the one that changes it."""
        for _ in range(100):
            with suppress(RuntimeError):  # changed in mid-copy: look again
                return self.as_dict()
        return {}

    def set_all(self, values: Any) -> None:
        """Take over what `init(config=...)` was given, without telling: a mapping, or an object with attributes.

        Raises:
            UnloggableError: it is neither.
        """
        if not isinstance(values, Mapping):
            try:
                values = vars(values)  # argparse.Namespace and its like
            except TypeError:
                raise UnloggableError(f"config: {type(values).__qualname__} is no mapping") from None
        self._fill({str(name): described(value) for name, value in values.items()})


class Summary(LiveDict):
    """The run's summary: the last value of each metric, and what was set here.

    Reading waits until the rows logged before are counted in. `fetch` gives the whole summary, plain.
    """

    def __init__(
        self, changed: Changed, fetch: Callable[[], dict[str, Any] | None], convert: Callable[[Any], Any] = plain
    ) -> None:
        super().__init__(changed, convert)
        object.__setattr__(self, "_fetch", fetch)

    def _refresh(self) -> None:
        tree = self._fetch()
        if tree is not None:
            dict.clear(self)
            self._fill(tree)

    def __getitem__(self, key: Any) -> Any:
        self._refresh()
        return dict.__getitem__(self, str(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`."""
        self._refresh()
        return dict.get(self, str(key), default)

    def __contains__(self, key: Any) -> bool:
        self._refresh()
        return dict.__contains__(self, str(key))

    def __iter__(self) -> Iterator[str]:
        self._refresh()
        return iter(list(dict.keys(self)))

    def __len__(self) -> int:
        self._refresh()
        return dict.__len__(self)

    def __eq__(self, other: object) -> bool:
        self._refresh()
        return dict.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        self._refresh()
        return dict.__repr__(self)

    def __delitem__(self, key: Any) -> None:
        self._refresh()
        super().__delitem__(key)

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """The names."""
        self._refresh()
        return dict(dict.items(self)).keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """The values."""
        self._refresh()
        return dict(dict.items(self)).values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Names and values."""
        self._refresh()
        return dict(dict.items(self)).items()
