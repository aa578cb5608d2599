"""Paths on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a pipe would be waited for, a device may have no end."""
    return path.exists() and not (path.is_file() or path.is_dir())


class SomePath(click.Path):
    """A path that is not empty: `"$FOLDER"` of a variable that is not set is no wish for the folder that one is in."""

    def __init__(self) -> None:
        super().__init__(
            path_type=Path, readable=False
        )  # each command says itself what it cannot read, and ends with 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: D102 - click's
        if value == "":
            raise click.ClickException("a path is empty: is a variable not set?")
        return super().convert(value, param, ctx)


class Source(SomePath):
    """Something to read or write that may also be `-`, or a URL, which a path would take a slash from."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: D102 - click's
        if isinstance(value, str) and "://" in value:
            return value
        return super().convert(value, param, ctx)
