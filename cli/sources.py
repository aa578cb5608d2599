"""What commands are given to read: paths, patterns, bundles, packed logs, `-` and URLs, opened as plain paths."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..sync.errors import UsageError
from ..sync.places import default_state_dir
from ..sync.plan import expanded
from .text import printable

if TYPE_CHECKING:
    from ..bundle import Opened

_PACKED = re.compile(r"[^.].*(\.wandb\.(gz|zst|zstd)|\.tar\.zst(\.\d{3})?)")
_LISTINGS = 64
"""Folders that are listed for the sake of a hint: of thousands on a network file system, that is no wait."""


@contextlib.contextmanager
def opened_paths(sources: Iterable[str | Path], *, lasts: bool = False) -> Iterator[Opened]:
    """Plain paths for the sources of a command, as `bundle.opened` gives them; what is wrong with bundles goes to standard error.

    With `lasts` side files of a sync beside logs that were packed are kept, in the state directory, and found again.

    Raises:
        click.ClickException: a bundle is refused, or cannot be read at all.
        UsageError: a path is empty, or a pattern that nothing matches.
    """
    from ..bundle import BundleError, opened

    def plain() -> Iterator[str]:
        for source in sources:
            if isinstance(source, str) and "://" in source:
                yield source
            else:
                yield from expanded([source])

    lasting: Path | None = None
    if lasts:
        with contextlib.suppress(UsageError):  # a user without a home directory
            lasting = default_state_dir() / "bundles"
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(opened([*plain()], lasting=lasting))
        except BundleError as error:
            raise click.ClickException(printable(str(error))) from None
        for problem in found.problems:
            click.echo(printable(problem), err=True)
        if packed := _packed_below(path for path in found.paths if path not in found.sources):
            click.echo(
                printable(f"{packed}: not read: what is packed in a folder has to be named, or a pattern for it"),
                err=True,
            )
        yield found


def _packed_below(paths: Iterable[Path]) -> str | None:
    """The first bundle or packed log that lies in a folder, or in one of its folders; folders stand for plain logs alone."""
    left = _LISTINGS
    for path in paths:
        folders, depth = [os.fspath(path)], 0
        while folders and depth < 2:
            inner: list[str] = []
            for folder in folders[:left]:
                left -= 1
                with (
                    contextlib.suppress(OSError),
                    os.scandir(folder) as entries,
                ):  # no folder, or the command says what is wrong
                    for entry in entries:
                        if _PACKED.fullmatch(entry.name) and entry.is_file():
                            return entry.path
                        if not depth and entry.is_dir(follow_symlinks=False):
                            inner.append(entry.path)
            folders, depth = inner, depth + 1
    return None
