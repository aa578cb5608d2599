"""Config from files: the setting `config_paths`, and `config-defaults.yaml` beside the script's working directory.

A file is a mapping in JSON or YAML. The peer wraps each value, as `lr: {value: 0.1, desc: null}`; plain values are
taken as they are. YAML needs PyYAML, which is no dependency: without it such a file is named and left out.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .bounded import read_bounded

DEFAULTS = "config-defaults.yaml"

_MAX_BYTES = 16 << 20
_MAX_VALUES = 1_000_000
"""Aliases make a few lines of YAML stand for more values than any memory holds."""
_MAX_DEPTH = 128
_WRAPPING = {"value", "desc"}
_NOT_CONFIG = {"wandb_version", "_wandb"}


def config_from_files(paths: Iterable[str], warn: Callable[[str], None], folder: Path = Path()) -> dict[str, Any]:
    """What the files say together, later ones over earlier ones. Files that cannot be followed are named.

    Args:
        paths: relative ones from `folder`.
        warn: takes one line for the user.
        folder: where `config-defaults.yaml` may stand, the weakest of all.
    """
    config: dict[str, Any] = {}
    for path, expected in ((folder / DEFAULTS, False), *((folder / Path(path).expanduser(), True) for path in paths)):
        try:
            config.update(read_config(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            if expected:
                warn(f"config file {path}: {error.strerror}")
        except Exception as error:  # a parser's errors are of many types
            why = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
            warn(f"config file {path} is left out: {why}")
    return config


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The names and values of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no mapping, too large, or in YAML without PyYAML.
    """
    path = Path(path).expanduser()
    text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    import json

    found = json.loads(text) if path.suffix.lower() == ".json" else _yaml(text)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("it is not a mapping of names to values")  # noqa: TRY004 - a file's fault, no caller's
    if found.get("wandb_version", 1) != 1:
        raise ValueError(f"its wandb_version is {found['wandb_version']!r}, and only 1 is known")
    _count(found, {}, _MAX_DEPTH)
    return {str(name): _unwrapped(value) for name, value in found.items() if name not in _NOT_CONFIG}


def _yaml(text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")  # optional: no dependency of ours
    except ImportError:
        import json

        try:
            return json.loads(text)  # which is YAML too
        except ValueError:
            raise ValueError("YAML needs PyYAML, which is not installed; JSON needs nothing") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:  # its own text repeats the line, and what secret stands there
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"{getattr(error, 'problem', None) or 'it is not YAML'}{where}") from None


def _unwrapped(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) and "value" in value and value.keys() <= _WRAPPING else value


def _count(value: Any, known: dict[int, int], depth: int) -> int:
    """How many values `value` holds when each alias is written out."""
    if depth == 0:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(item, known, depth - 1) for item in items)
    if known[id(value)] > _MAX_VALUES:
        raise ValueError(f"it holds more than {_MAX_VALUES} values")
    return known[id(value)]
