"""What `sync` and `sync plan` are told alike: where runs go, and which of them are meant."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def target_options(command: Command) -> Command:
    """Where runs go, instead of where their logs say."""
    options = (
        click.option("-p", "--project", help="Send to this project instead of the log's."),
        click.option("-e", "--entity", help="Send to this user or team instead of the log's."),
        click.option("--id", "run_id", help="Send as this run. Several logs become one run, in order of their start."),
        click.option("--job-type", help="Job type to give the run instead of the log's."),
        click.option(
            "--replace-tags", metavar="OLD=NEW,..", help="Send other tags than the log's; OLD= leaves one out."
        ),
        click.option("--base-url", help="Server; else RUNFERRY_BASE_URL, WANDB_BASE_URL, your settings file."),
    )
    return _with(options, command)


def choice_options(command: Command) -> Command:
    """Which of the runs found are meant."""
    options = (
        click.option("--shard", metavar="I/N", help="Only share I of N (1/N to N/N), or `auto` in an array job."),
        click.option(
            "--state",
            "states",
            multiple=True,
            metavar="STATE,..",
            help="Only runs that stand so: finished, failed, crashed, running (or live).",
        ),
        click.option("--newer", metavar="WHEN", help="Only runs that have grown since: 2d, 12h, 2026-11-30, .."),
        click.option("--tag", "tags", multiple=True, help="Only runs with this tag; again for others."),
        click.option("--min-rows", type=click.IntRange(min=0), default=0, help="Only runs with so many rows."),
        click.option(
            "--include-synced",
            "--no-skip-synced",
            is_flag=True,
            help="Also logs marked as synced; lines go to the same places again.",
        ),
    )
    return _with(options, command)


def refuse_empty(options: dict[str, Any], *names: str) -> None:
    """An empty variable of the shell must not mean all runs, or another place than was meant.

    Raises:
        UsageError: one of these options is an empty text.
    """
    from ..sync import UsageError

    for name in names:
        if options[name] == "":
            raise UsageError(f"{name.replace('_', ' ')}: the text is empty: is a variable not set?")


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    """The command with these options, in their order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def settings_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options as `SyncSettings` takes them.

    Raises:
        UsageError: one of them says nothing that can be followed.
    """
    from ..sync import Shard, UsageError
    from ..sync.choice import parse_replacements, parse_since
    from ..sync.settings import find_base_url

    settings = dict(options)
    refuse_empty(settings, "newer", "shard", "project", "entity", "base_url", "replace_tags")
    settings["base_url"] = settings["base_url"] or find_base_url()
    if "" in settings["tags"] or any(not text.strip(" ,") for text in settings["states"]):
        raise UsageError("state and tag: the text is empty")
    newer, replace_tags = settings.pop("newer"), settings["replace_tags"]
    states = [state.strip() for text in settings["states"] for state in text.split(",") if state.strip()]
    return {
        **settings,
        "replace_tags": parse_replacements(replace_tags) if replace_tags else {},
        "shard": Shard.parse(settings["shard"]) if settings["shard"] else None,
        "states": ["running" if state == "live" else state for state in states],
        "newer_than": parse_since(newer, time.time()) if newer else None,
    }
