"""Settings of a run: what there is (`Resolved`), what was given in code (`Settings`), and how they are decided."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import UsageError
from .settings_sources import Decisions, decide_all
from .settings_table import BY_KEY, SETTINGS, UNSUPPORTED, Resolved, key_of, shown

__all__ = ["Resolved", "Settings", "SettingsError", "examine", "new_id", "resolve", "tell"]

ID_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 8

_told: set[str] = set()


class SettingsError(UsageError, ValueError):
    """A setting has a value that it cannot have; says which, where it stands, and what the setting takes."""


class Settings:
    """Settings given in code, by keyword or by attribute; docs/settings.md lists them.

    What is not given (or None) is decided by the environment, the settings files and the defaults. Values are kept as
    they are given and checked by `init`. The peer's names are understood. Names that are no settings are kept in
    `unknown` and named once by `init`, because scripts written for the peer carry some.
    """

    unknown: list[str]

    def __init__(self, **given: Any) -> None:
        self.__dict__["unknown"] = []
        for name, value in given.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        key = key_of(name)
        if key not in BY_KEY:
            unwanted = value is None or (value is False and key in UNSUPPORTED)
            if not unwanted and name not in self.unknown:
                self.__dict__["unknown"] = [*self.unknown, name]  # not its value: it may be a key
            return
        own = _own(key)
        if value is None:
            self.__dict__.pop(own, None)
        else:
            self.__dict__[own] = value

    def __getattr__(self, name: str) -> Any:
        key = key_of(name)
        if key not in BY_KEY:
            raise AttributeError(f"{name} is no setting")
        return self.__dict__.get(_own(key))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(setting.name for setting in SETTINGS)]

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, Settings) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return shown("Settings", self.given())

    def given(self) -> dict[str, Any]:
        """What was given, by the settings' names."""
        return {name: value for name, value in self.__dict__.items() if name != "unknown"}


def _own(key: str) -> str:
    """The key that stands for all names of a setting; switches stand for themselves."""
    setting = BY_KEY[key]
    return key if key in setting.switches else setting.name


def resolve(
    arguments: Settings,
    base: Settings | Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Resolved:
    """Decide every setting.

    Args:
        arguments: given one by one, the strongest.
        base: given as an object or a mapping.
        environ: the environment; the process's own unless given.
        home: the user's home; found by the environment unless given.

    Raises:
        SettingsError: a value that its setting cannot have. From a variable or a file it is an error only where the
            run would go elsewhere without it (`Setting.steers`); else it is among the warnings, and the next one counts.
    """
    decided = examine(arguments, base, environ, home)
    for decision in decided.each:
        for problem in decision.problems:
            if problem.fatal:
                raise SettingsError(problem.text)
    values = {decision.setting.attribute: decision.value for decision in decided.each}
    given_id = values["run_id"] is not None
    if not given_id:
        values["run_id"] = new_id()
    return Resolved({**values, "given_id": given_id, "warnings": decided.warnings})


def examine(
    arguments: Settings,
    base: Settings | Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Decisions:
    """As `resolve`, but says where each value comes from, and raises for none of them.

    Raises:
        SettingsError: `base` holds no settings at all.
    """
    if isinstance(base, Mapping):
        base = Settings(**{str(name): value for name, value in base.items()})
    elif base is not None and not isinstance(base, Settings):
        raise SettingsError(f"settings: a {type(base).__name__} is neither Settings nor a mapping")
    base = base or Settings()
    if home is None:
        home = _home(environ)
    unknown = [*arguments.unknown, *base.unknown]
    return decide_all(arguments.given(), base.given(), os.environ if environ is None else environ, home, unknown)


def tell(resolved: Resolved, warn: Callable[[str], None]) -> None:
    """Pass the warnings of `resolved` on, each once per process."""
    for line in () if resolved.silent else resolved.warnings:
        if line not in _told:
            _told.add(line)
            warn(line)


def _home(environ: Mapping[str, str] | None) -> Path | None:
    if environ is not None:
        found = environ.get("HOME") or environ.get("USERPROFILE")
        return Path(found) if found else None
    found = os.path.expanduser("~")  # noqa: PTH111 - it raises for nothing
    return None if found == "~" else Path(found)


def new_id() -> str:
    """A run id that no seeding of random numbers repeats."""
    return id_of(int.from_bytes(os.urandom(16), "big"))  # 128 bits on 41: the bias of the remainder is beyond measure


def id_of(number: int, length: int = ID_LENGTH) -> str:
    """The run id that the last digits of a number make, of those that an id may have."""
    letters = []
    for _ in range(length):
        number, digit = divmod(number, len(ID_CHARACTERS))
        letters.append(ID_CHARACTERS[digit])
    return "".join(letters)
