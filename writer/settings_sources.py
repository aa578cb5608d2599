"""Where the values of settings come from, and which of them counts: the strongest that is there.

argument > `settings=` > RUNFERRY_* > WANDB_* > files of the workspace > files of the user > default
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .settings_files import SettingsFile, read_settings_file, user_files, workspace_files
from .settings_table import (
    ANYWHERE,
    BY_KEY,
    NOT_IN_WORKSPACE,
    OWN_VARIABLES,
    SETTINGS,
    UNSUPPORTED,
    WITHOUT_EFFECT,
    Resolved,
    Setting,
    key_of,
)
from .settings_values import FLAG, FOLDER, Kind, WrongError, split, unwrapped

DEFAULT = "default"

_OURS = "RUNFERRY_"
_SHOWN = 200  # characters of a wrong value that a message repeats
_NAME_SHOWN = 60  # characters of its name
_NAMED = 12  # unknown settings that a message names


class Given(NamedTuple):
    """A value as somebody gave it."""

    value: Any
    place: str
    """Where it stands, for people: "argument", "WANDB_MODE", "/home/me/.config/wandb/settings:3"."""
    shown: str
    """How a message begins that speaks of it, up to the value."""


class Source(NamedTuple):
    """One place that gives settings; `values` by key."""

    values: Mapping[str, Given]
    is_text: bool = False
    """Its values are text of a variable or a file: lists stand between commas, and what is empty is not there."""


class Problem(NamedTuple):
    """A value that its setting cannot have."""

    text: str
    place: str
    fatal: bool
    """It ends `init`; else the next source counts."""


class Decision(NamedTuple):
    """What was decided for one setting, and why."""

    setting: Setting[Any]
    value: Any
    place: str
    problems: tuple[Problem, ...]
    """Of stronger values, that could not be taken."""
    remark: str = ""
    """What its user is told of a value that was taken."""


class Decisions(NamedTuple):
    """Every setting's decision, in the order of the table."""

    each: tuple[Decision, ...]
    notes: tuple[str, ...]
    """What else there is to say: of files, and of names that are no settings."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is no reason to stop, a line each."""
        passed_over = (
            f"{problem.text}; {'the default' if decision.place == DEFAULT else decision.place} counts instead"
            for decision in self.each
            for problem in decision.problems
            if not problem.fatal
        )
        return (*passed_over, *self.notes)


def decide_all(
    arguments: Mapping[str, Any],
    base: Mapping[str, Any],
    environ: Mapping[str, str],
    home: Path | None,
    unknown: Iterable[str] = (),
) -> Decisions:
    """Decide every setting.

    Args:
        arguments: by key, the strongest.
        base: what `settings=` gave, by key.
        environ: the environment.
        home: the user's home; None where there is none to look in.
        unknown: names that were given in code and are no settings.
    """
    direct = [*_code(arguments, base), *_environment(environ)]
    # A workspace is where the runs go, and where the script is started: the peer's commands write there.
    roots = dict.fromkeys((_decide(Resolved.root, direct).value, FOLDER.read(".")))
    scopes = {path: {ANYWHERE} for root in roots for path in workspace_files(root)}
    for path in user_files(environ, home):
        scopes.setdefault(path, {ANYWHERE, NOT_IN_WORKSPACE})
    files = [file for path in scopes if (file := read_settings_file(path)) is not None]
    refused: list[str] = []
    sources = [*direct, *(_file(file, scopes[file.path], refused) for file in files)]
    sources = [source for source in sources if source.values]
    each = tuple(_decide(setting, sources) for setting in SETTINGS)
    remarks = (decision.remark for decision in each if decision.remark)
    unknown = (*unknown, *_strange_variables(environ))
    return Decisions(
        each, (*(file.problem for file in files if file.problem), *refused, *remarks, *_unknown(unknown, files))
    )


def _code(arguments: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Source]:
    yield Source({key: Given(value, "argument", key) for key, value in arguments.items()})
    yield Source({key: Given(value, "settings=", f"settings: {key}") for key, value in base.items()})


def _environment(environ: Mapping[str, str]) -> Iterator[Source]:
    ours: dict[str, Given] = {}
    peers: dict[str, Given] = {}
    for name in environ:
        prefix, _, rest = name.partition("_")
        if prefix not in {"RUNFERRY", "WANDB"}:
            continue
        key = key_of(rest.lower())
        setting = BY_KEY.get(key)
        text = environ.get(name, "")
        if setting is None or not text.strip():
            continue
        if prefix == "RUNFERRY":
            ours[key] = Given(text, name, name)
        elif key in setting.peer:
            peers[key] = Given(text, name, name)
    yield Source(ours, is_text=True)
    yield Source(peers, is_text=True)


def _strange_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that nobody but us can mean, and that we don't know. The peer's may be its own."""
    for name in environ:
        rest = name.removeprefix(_OURS)
        if rest != name and key_of(rest.lower()) not in BY_KEY and rest not in OWN_VARIABLES and environ[name].strip():
            yield name


def _file(file: SettingsFile, scopes: set[str], refused: list[str]) -> Source:
    values = {}
    for name, line in file.values.items():
        key = key_of(name)
        setting = BY_KEY.get(key)
        place = f"{file.path}:{line.number}"
        if setting is None or not line.value:
            continue
        if setting.scope in scopes:
            values[key] = Given(line.value, place, f"{place}: {name}")
        elif name != "base_url":  # a sync reads that itself, where it may stand
            refused.append(f"{place}: {name} is ignored: it is {setting.scope}")
    return Source(values, is_text=True)


def _decide(setting: Setting[Any], sources: Iterable[Source]) -> Decision:
    problems: list[Problem] = []
    for source in sources:
        for key in setting.keys:
            given = source.values.get(key)
            if given is None:
                continue
            is_switch = key in setting.switches
            kind: Kind[Any] = FLAG if is_switch else setting.kind
            try:
                value = kind.read(split(given.value) if kind.listed and source.is_text else unwrapped(given.value))
            except Exception as error:  # whatever the value's type does when it is asked
                shown = "..." if kind.secret else _shown(given.value)
                why = f"{error}; " if isinstance(error, WrongError) else ""
                text = f"{given.shown}={shown}: {why}{key} takes {kind.takes}"
                fatal = not source.is_text or (setting.steers and not is_switch)
                problems.append(Problem(text, given.place, fatal))
                continue
            if is_switch:
                if not value:
                    continue
                value = setting.kind.read(setting.switches[key])
            return Decision(setting, value, given.place, tuple(problems), _remark(kind, given))
    value = None if setting.default is None else setting.kind.read(setting.default)
    return Decision(setting, value, DEFAULT, tuple(problems))


def _remark(kind: Kind[Any], given: Given) -> str:
    if not kind.remarks:
        return ""
    told = kind.remarks.get(str(unwrapped(given.value)).strip().lower())
    return f"{given.shown}={_shown(given.value)}: {told}" if told else ""


def _shown(value: Any) -> str:
    from ..sampler.redact import redact_text

    if not isinstance(value, (str, int, float, os.PathLike)):
        return f"a {type(value).__name__}"
    text = redact_text(repr(value)).text
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _unknown(names: Iterable[str], files: Iterable[SettingsFile]) -> Iterator[str]:
    """A line for each name whose absence somebody could miss, and one for all others that are no settings."""
    unknown: dict[str, str] = dict.fromkeys(names, "")
    for file in files:
        unknown.update({name: f" ({file.path})" for name in file.values if key_of(name) not in BY_KEY})
    keys = {name: name.removeprefix(_OURS).lower() if name.startswith(_OURS) else name for name in unknown}
    for key, instead in UNSUPPORTED.items():
        yield from (f"{name} is not followed: {instead}" for name in unknown if keys[name] == key)
    others = sorted(name for name in unknown if keys[name] not in UNSUPPORTED.keys() | WITHOUT_EFFECT)
    if others:
        more = f" and {len(others) - _NAMED} more" if others[_NAMED:] else ""
        named = ", ".join(_named(name) + unknown[name] for name in others[:_NAMED])
        yield f"these settings have no meaning here: {named}{more}"


def _named(name: str) -> str:
    import difflib

    shown = name if name.isprintable() else ascii(name)
    shown = shown if len(shown) <= _NAME_SHOWN else f"{shown[:_NAME_SHOWN]}..."
    variable = name.startswith(_OURS)
    words = [*BY_KEY, *map(str.lower, OWN_VARIABLES)] if variable else BY_KEY
    word = name.removeprefix(_OURS).lower() if variable else name
    near = difflib.get_close_matches(word[:_NAME_SHOWN], words, n=1, cutoff=0.8)
    if not near:
        return shown
    return f"{shown} (did you mean {_OURS + near[0].upper() if variable else near[0]}?)"
