"""`runferry settings`: every setting, its value, and where it comes from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from .text import PIPE_WIDTH, plain_json, printable


class Row(NamedTuple):
    """One setting as it is shown."""

    name: str
    value: Any
    source: str
    problem: str = ""


@click.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The folder that holds wandb (default: here).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per setting and line.")
def command(*, folder: Path | None, as_json: bool) -> None:
    """Show every setting, its value, and where the value comes from.

    The strongest that gives one counts: an argument of `init`, its `settings=`, RUNFERRY_* and WANDB_* variables,
    the settings files of the folder and of the user, the default. Of keys only is shown that they are set; what looks
    like one within another value, such as in a URL, is hidden.

    Exit code 2: a setting has a value that it cannot have.
    """
    from ..writer.report import warn_on_stderr
    from ..writer.settings import Settings, examine

    decided = examine(Settings(dir=folder))
    rows = []
    for decision in decided.each:
        wrong = next((problem for problem in decision.problems if problem.fatal), None)
        value, source = (None, wrong.place) if wrong else (_redacted(decision.value), decision.place)
        problem = "; ".join(problem.text for problem in decision.problems)
        rows.append(Row(decision.setting.name, value, "--dir" if source == "argument" else source, problem))
    rows = [row for row in rows if row.name != "base_url"] + [*_server()]
    for note in decided.notes:
        warn_on_stderr(note)
    if as_json:
        for row in rows:
            click.echo(plain_json({"type": "setting", **row._asdict(), "value": _plain(row.value)}))
    else:
        _print_table(rows)
    if any(row.problem for row in rows):
        sys.exit(2)


def _server() -> Iterator[Row]:
    """What a sync takes for its server and its key."""
    from ..sync import NoCredentials, SyncSettings, UsageError
    from ..sync.credentials import find_credentials
    from ..sync.settings import locate_base_url

    source = "default"
    try:
        url, source = locate_base_url()
        SyncSettings(base_url=url)
    except UsageError as error:
        yield Row("base_url", None, source, str(error))
        return
    yield Row("base_url", _redacted(url), source)
    try:
        key = find_credentials(url)
    except NoCredentials as error:
        missing = str(error).startswith("no API key")
        yield Row("api_key", None, "default", "" if missing else str(error))
    else:
        yield Row("api_key", "set", key.source)


def _redacted(value: Any) -> Any:
    """The value without what looks like a credential, such as `token=` in a URL's query."""
    from ..sampler.redact import redact_text
    from ..writer.settings_values import Hidden

    if isinstance(value, str):
        return redact_text(value).text
    if isinstance(value, tuple):
        return tuple(map(_redacted, value))
    if isinstance(value, dict) and not isinstance(value, Hidden):
        return {name: _redacted(item) for name, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    from ..writer.settings_values import Hidden

    if isinstance(value, Path):
        return os.fspath(value)
    return sorted(value) if isinstance(value, (frozenset, Hidden)) else value  # of secrets the names


def _text(row: Row) -> str:
    """A value as somebody would write it."""
    from ..writer.settings_table import BY_KEY

    if row.value is None:
        return "not set"
    setting = BY_KEY.get(row.name)
    return setting.kind.write(row.value) if setting else str(row.value)


def _print_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = (
        ("setting", "value", "from", "problem") if any(row.problem for row in rows) else ("setting", "value", "from")
    )
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title == "setting")
    for row in rows:
        table.add_row(
            *(Text(printable(cell)) for cell in (row.name, _text(row), row.source, row.problem)[: len(titles)])
        )
    console.print(table)
