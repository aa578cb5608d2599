"""How a sync shows itself: JSON lines, plain lines, or a live view on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from .text import plain_json, printable

if TYPE_CHECKING:
    from ..sync import Event


class JsonLines:
    """Every event as one line on standard output."""

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        click.echo(plain_json(event.as_json()))

    def close(self) -> None:
        """Nothing is held."""


class PlainLines:
    """For logs and pipes: verdicts on standard output, everything that explains a wait on standard error."""

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        text, is_result = describe(event)
        if text:
            click.echo(text, err=not is_result)

    def close(self) -> None:
        """Nothing is held."""


class Terminal:
    """A bar per log that is being sent, with the lines of `PlainLines` scrolling above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()
        self._tasks: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        log = getattr(event, "log", "")
        if event.type == "run_started":
            done = event.rows - event.new_rows  # type: ignore[attr-defined]
            self._tasks[log] = self._progress.add_task(event.run, total=event.rows, completed=done)  # type: ignore[attr-defined]
        elif event.type == "progress" and log in self._tasks:
            self._progress.update(self._tasks[log], completed=event.rows)  # type: ignore[attr-defined]
        elif event.type == "run_done" and log in self._tasks:
            self._progress.remove_task(self._tasks.pop(log))
        text, is_result = describe(event)
        if text:
            if is_result and not sys.stdout.isatty():
                click.echo(text)
            else:
                self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bars away."""
        self._progress.stop()


def describe(event: Event) -> tuple[str, bool]:
    """An event in one line (empty for those that only move a bar), and whether it is a result rather than news."""
    values: Any = event
    if event.type == "plan":
        return f"{_count(values.logs, 'log')} of {_count(values.runs, 'run')}", False
    if event.type == "run_started":
        return f"{values.run}: {values.new_rows} of {_count(values.rows, 'row')} to {values.target}", False
    if event.type == "retry":
        when = time.strftime("%H:%M:%S", time.localtime(values.at))
        return (
            f"retrying {values.what} in {values.wait:.1f} s (at {when}, attempt {values.attempt + 1}): {values.reason}",
            False,
        )
    if event.type == "paused":
        return f"waiting {values.wait:.1f} s before {values.what}: {values.reason}", False
    if event.type == "run_done":
        parts = [f"{values.verdict.value:<8}{printable(values.log)}"]
        sent = values.rows or values.rows_sent or values.files_sent
        if sent and values.verdict.value != "skipped":
            parts.append(
                f"{_count(values.rows, 'row')}, {values.rows_sent} new, {_count(values.files_sent, 'file')} sent"
            )
        if values.reason:
            parts.append(printable(values.reason))
        return "  ".join(parts), True
    if event.type == "done":
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(values.counts.items()))
        return counts or "nothing to sync", False
    return "", False


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
