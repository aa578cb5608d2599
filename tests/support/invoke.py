"""Commands called in this process, as a user calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result
from runferry.cli import group


def caller(command: str) -> Callable[..., Result]:
    """Calls that command with arguments of any type; options are those of `CliRunner.invoke`."""

    def call(*args: object, **options: Any) -> Result:
        return CliRunner().invoke(group, [command, *map(str, args)], catch_exceptions=False, **options)

    return call


def lines(done: Result) -> list[Any]:
    """What it printed with `--json`."""
    return [json.loads(line) for line in done.stdout.splitlines()]
