"""What commands are given to read: paths, patterns, bundles, packed logs, `-` and URLs, opened as plain paths."""

from __future__ import annotations

import contextlib
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
        yield found
