"""How a sync shows itself: JSON lines, plain lines, or a live table on a terminal.

Verdicts go to standard output, everything that explains them or a wait to standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import click

from ..sync.board import Board, groups, shape
from ..sync.report import (
    Cleaned,
    Event,
    Finished,
    Paused,
    Planned,
    Retrying,
    RunReport,
    Started,
    Verdict,
    WouldSend,
    counted,
)
from .text import clip, in_words, plain_json, printable, size, span

if TYPE_CHECKING:
    from rich.console import Console

    from ..sync.counters import Counters

STARTED_AFTER_S = 5.0
"""A run that is done sooner is not announced: its verdict says it all."""
PROGRESS_EVERY_S = 30.0
REPEAT_AFTER_S = 60.0
"""A wait for the same reason is told again after so many seconds."""
FRAMES_PER_S = 4
_GROUPS_FROM = 10  # logs: fewer verdicts still stand on the screen
_MOST_GROUPS = 20
_MOST_REASONS = 1000
_LONGEST_REASON = 200  # characters, of a wait or a group; a server may answer with a page. Verdicts say all of it


_NEXT = {75: "; try again later: nothing but time is missing", 130: "; interrupted: the next sync goes on from here"}
"""Exit code -> what to do, where it is not each log's own matter."""


class View(Protocol):
    """Shows a sync. `tick` is called every now and then, from a thread of its own."""

    def __call__(self, event: Event) -> None:
        """Tell of an event."""

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """Nothing more will come."""


def view_for(*, as_json: bool, counters: Counters | None = None) -> View:
    """The view for where the output goes."""
    if as_json:
        return JsonLines()
    if sys.stderr.isatty():
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_dumb_terminal:
            return Ticking(Terminal(console, counters=counters), 1 / FRAMES_PER_S)
    return Ticking(PlainLines(), 1.0)


class Ticking:
    """A view, and the thread that ticks it; where the system allows none, events do. Events and ticks never meet."""

    def __init__(self, view: View, every: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._every = every
        self._monotonic = monotonic
        self._ticked_at = monotonic()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="runferry-view", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        with self._guard:
            self._view(event)
            if self._thread is None and self._monotonic() - self._ticked_at >= self._every:
                self._ticked_at = self._monotonic()
                with contextlib.suppress(OSError, ValueError):  # as in the thread
                    self._view.tick()

    def tick(self) -> None:
        """Time has passed."""
        with self._guard:
            self._view.tick()

    def close(self) -> None:
        """End the thread, then the view."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self._view.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.tick()
            except (OSError, ValueError):  # whoever looked has gone: the sync goes on
                return


class JsonLines:
    """Every event as one line on standard output."""

    def __call__(self, event: Event) -> None:
        """Print it."""
        click.echo(plain_json(event.as_json()))

    def tick(self) -> None:
        """Events say all."""

    def close(self) -> None:
        """Nothing is held."""


class PlainLines:
    """For logs and pipes: one line per verdict; waits and long silences are explained, each once in a while."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._board = Board(now)
        self._now = now
        self._lines = Lines(self._board)
        self._spoke = now()
        self._unannounced: set[str] = set()
        """Logs that have begun and were not named yet."""

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        self._board(event)
        if isinstance(event, Started):
            self._unannounced.add(event.log)
        elif isinstance(event, RunReport):
            self._unannounced.discard(event.log)
        for text, is_result in self._lines.of(event):
            self._say(text, is_result=is_result)

    def tick(self) -> None:
        """Announce runs that take long, and say how far it came when nothing was said for long."""
        now = self._now()
        for log in tuple(self._unannounced):
            active = self._board.active.get(log)
            if active is not None and now - active.began >= STARTED_AFTER_S:
                self._unannounced.discard(log)
                new = active.of - active.first
                about = "about " if active.estimated else ""
                self._say(f"{active.run}: {about}{new} of {counted(active.of, 'row')} to {active.target}")
        if now - self._spoke >= PROGRESS_EVERY_S and (self._board.active or self._board.waits):
            self._say(self._progress())

    def close(self) -> None:
        """Nothing is held."""

    def _say(self, text: str, *, is_result: bool = False) -> None:
        self._spoke = self._now()
        click.echo(printable(text), err=not is_result)

    def _progress(self) -> str:
        board = self._board
        parts = [f"{len(board.verdicts)} of {counted(board.logs, 'log')} done, {counted(board.sent, 'row')} sent"]
        rate = board.rate()
        if rate >= 1:
            parts.append(f"{rate:.0f} rows/s")
        parts += [
            f"{log.run} at {log.rows} of {'about ' if log.estimated else ''}{log.of}"
            for log in islice(board.active.values(), 3)
        ]
        parts += [f"next attempt in {span(wait.until - self._now())}" for wait in board.waits[-1:]]
        if board.closed_for:
            parts.append(f"the server's limit: waiting {span(board.closed_for)}")
        return ", ".join(parts)


class Terminal:
    """A live table of what is being sent; verdicts scroll above it. Nothing is drawn but by `tick`."""

    def __init__(
        self, console: Console, *, counters: Counters | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.live import Live

        self._console = console
        self._now = now
        self._board = Board(now)
        self._lines = Lines(self._board)
        self._counters = counters
        self._bytes: list[tuple[float, int]] = []
        self._waiting: list[str] = []
        """Lines that are to be printed at the next tick."""
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=False,  # where verdicts may go to a file
            redirect_stderr=False,
        )
        self._live.start()

    def __call__(self, event: Event) -> None:
        """Note it; results that go to a pipe are printed at once."""
        self._board(event)
        for text, is_result in self._lines.of(event):
            if is_result and not sys.stdout.isatty():
                click.echo(text)
            else:
                self._waiting.append(text)

    def tick(self) -> None:
        """Draw."""
        from rich.text import Text

        frame = Text("\n".join(self.frame()), no_wrap=True, overflow="crop", end="")
        self._live.update(frame, refresh=not self._waiting)
        self._flush()  # which draws the new table below the lines

    def frame(self) -> list[str]:
        """The table as lines that fit."""
        from .syncframe import frame

        return frame(self._board, self._console.width, self._console.height - 1, self._bytes_per_second())

    def close(self) -> None:
        """Take the table away, and print what is left to say."""
        self._live.stop()
        self._flush()

    def _flush(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def _bytes_per_second(self) -> float | None:
        """Over the last few seconds."""
        if self._counters is None:
            return None
        now = self._now()
        self._bytes = [*self._bytes[-40:], (now, self._counters.read().sent)]
        (began, first), (_, last) = self._bytes[0], self._bytes[-1]
        return (last - first) / max(now - began, 1.0)


class Lines:
    """What events have to say in words: each a line, and whether it is a result rather than news."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._told: dict[str, tuple[float, int]] = {}
        """Reason of a wait -> when it was told last, and how often it came since."""
        self._dry = False
        self._denied = False
        """It was told that the server does not know the key."""

    def of(self, event: Event) -> list[tuple[str, bool]]:
        """The lines of an event, after the board was told of it; they hold nothing that a terminal would obey."""
        return [(printable(in_words(text)), is_result) for text, is_result in self._of(event)]

    def _of(self, event: Event) -> list[tuple[str, bool]]:
        if isinstance(event, Planned):
            return [(f"{counted(event.logs, 'log')} of {counted(event.runs, 'run')}", False)]
        if isinstance(event, (Retrying, Paused)):
            return [(text, False) for text in self._wait(event)]
        if isinstance(event, WouldSend):
            self._dry = True
        elif isinstance(event, RunReport):
            if event.credentials and self._denied:
                event = replace(event, reason="as above: the key")
            self._denied |= event.credentials
            return [(verdict_line(event), True)]
        elif isinstance(event, Cleaned):
            return [(clean_line(event), True)]
        elif isinstance(event, Finished):
            return [(text, False) for text in [*self._undone(), _counts(event)]]
        return []

    def _wait(self, event: Retrying | Paused) -> list[str]:
        """The first of its kind, and later ones once in a while: a thousand requests may wait for one server."""
        now, kind = self._board.now(), f"{event.type} {shape(event.reason)}"
        at, more = self._told.get(kind, (None, 0))
        if at is not None and now - at < REPEAT_AFTER_S:
            self._told[kind] = at, more + 1
            return []
        if len(self._told) >= _MOST_REASONS:
            self._told.clear()
        self._told[kind] = now, 0
        since = f" ({more} more since the last such line)" if more else ""
        if isinstance(event, Paused):
            return [f"waiting {event.wait:.1f} s before {event.what}: {clip(event.reason, _LONGEST_REASON)}{since}"]
        when = time.strftime("%H:%M:%S", time.localtime(event.at))
        next_one = f"in {event.wait:.1f} s (at {when}, after attempt {event.attempt})"
        return [f"retrying {event.what} {next_one}: {clip(event.reason, _LONGEST_REASON)}{since}"]

    def _undone(self) -> list[str]:
        """What is not at the server, by reason, where the verdicts have scrolled away."""
        if len(self._board.verdicts) <= _GROUPS_FROM:
            return []
        undone = [
            report
            for report in self._board.undone.values()
            if not (self._dry and report.verdict is Verdict.SKIPPED and not report.try_again)
        ]
        found = groups(undone)
        lines = []
        for group in found[:_MOST_GROUPS]:
            more = f" and {group.count - len(group.names)} more" if group.count > len(group.names) else ""
            names = ", ".join(group.names) + more
            lines.append(f"{group.count} {group.verdict.value}: {clip(group.reason, _LONGEST_REASON)}: {names}")
        if len(found) > _MOST_GROUPS:
            rest = sum(group.count for group in found[_MOST_GROUPS:])
            lines.append(f"{counted(rest, 'log')} for other reasons")
        return lines


def verdict_line(report: RunReport) -> str:
    """The last word on one log, in one line."""
    parts = [f"{report.verdict.value:<8}{printable(report.log)}"]
    if report.verdict is not Verdict.SKIPPED:
        if report.rows or report.rows_sent or report.files_sent:
            files = counted(report.files_sent, "file")
            about = "about " if report.estimated else ""
            parts.append(f"{about}{counted(report.rows, 'row')}, {report.rows_sent} new, {files} sent")
        if report.url is not None:
            parts.append(printable(report.url))
    if report.reason:
        parts.append(printable(report.reason))
    return "  ".join(parts)


def clean_line(event: Cleaned) -> str:
    """What became of a run's directories, in one line."""
    there = os.path.dirname(event.logs[0]) if event.run else event.logs[0]  # noqa: PTH120 - texts that came as texts
    parts = [f"{event.fate:<10}{printable(there)}"]
    parts += [size(event.bytes)] if event.bytes else []
    parts += [f"and {len(event.logs) - 1} more of this run"] if len(event.logs) > 1 else []
    parts += [printable(event.reason)] if event.reason else []
    return "  ".join(parts)


def _counts(event: Finished) -> str:
    text = ", ".join(f"{count} {verdict}" for verdict, count in sorted(event.counts.items())) or "nothing to sync"
    text += _NEXT.get(event.exit_code, "")
    left_out = sum(event.left_out.values())
    why = ", ".join(f"{number} by --{reason.replace('_', '-')}" for reason, number in sorted(event.left_out.items()))
    return f"{text}; {counted(left_out, 'run')} left out: {why}" if left_out else text
