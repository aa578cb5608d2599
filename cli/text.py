"""How the commands print: text from logs is untrusted, so nothing of it reaches the terminal as a control sequence."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any, ClassVar

import click

PIPE_WIDTH = 250
"""Columns where no terminal says how wide it is: wide enough that nothing folds."""

_UNITS = ("B", "kB", "MB", "GB", "TB")


stale_after_option = click.option(
    "--stale-after",
    default=600.0,
    show_default=True,
    help="Seconds of silence after which a run without exit record counts as crashed.",
)


def printable(text: str) -> str:
    """`text` with control characters shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


_OPERATIONS = {
    "ClientIDMapping": "ask for an artifact",
    "CommitArtifact": "commit an artifact",
    "CompleteMultipartUploadArtifact": "end an upload",
    "CreateArtifact": "make an artifact",
    "CreateArtifactFiles": "ask where an artifact's files go",
    "CreateArtifactManifest": "make an artifact's list",
    "CreateRunFiles": "ask where files go",
    "NotifyScriptableRunAlert": "tell an alert",
    "RewindRun": "rewind the run",
    "RunResumeStatus": "ask for the run",
    "ServerFeaturesQuery": "ask what the server can do",
    "UpdateArtifactManifest": "update an artifact's list",
    "UpsertBucket": "make the run",
    "UseArtifact": "tell that the run uses an artifact",
    "VerifyPage": "ask for the run's files",
    "VerifyRun": "ask for the run",
    "VerifyRunPart": "ask for the run",
    "VerifySteps": "ask for the run's rows",
}
_OPERATION = re.compile(rf"\b(?:{'|'.join(sorted(_OPERATIONS, key=len, reverse=True))})(?=: | |$|\))")


def in_words(text: str) -> str:
    """`text` with the names of requests as what they are for."""
    return _OPERATION.sub(lambda found: _OPERATIONS[found[0]], text)


class Printer:
    """Prints lines as long as anybody takes them. What goes on behind them goes on: an exit code says how it ended."""

    def __init__(self) -> None:
        self._is_heard = {False: True, True: True}
        """Of standard output and standard error."""

    def __call__(self, text: str, *, err: bool = False) -> None:
        """Print a line."""
        if not self._is_heard[err]:
            return
        try:
            click.echo(text, err=err)
        except BrokenPipeError:  # `| head`
            self._is_heard[err] = False
        except OSError as error:
            self._is_heard[err] = False
            if not err:
                self(f"runferry: no more shown: {error.strerror}", err=True)


def clip(text: str, width: int) -> str:
    """At most `width` characters; a cut shows."""
    return text if len(text) <= width else text[: width - 1] + "…"


_UNSHOWN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and terminals obey or readers take for the end of a line."""


def plain_json(value: Any) -> str:
    """One line of JSON, characters beyond ASCII as they are, but for controls; these and lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _UNSHOWN.sub(lambda char: f"\\u{ord(char[0]):04x}", text).encode("utf-8", "backslashreplace").decode()


class JsonCommand(click.Command):
    """A command whose `--json` ends with a `done` also where it cannot be followed: no key, nothing at a path."""

    more: ClassVar[dict[str, Any]] = {}
    """What else its `done` has."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: D102 - click's
        try:
            return super().invoke(ctx)
        except click.ClickException:
            if ctx.params.get("as_json"):
                click.echo(plain_json({"type": "done", "exit_code": 2, "counts": {}, **self.more}))
            raise


def tell_failure(problem: str, *, as_json: bool) -> None:
    """What ended a command with exit code 1; with `--json` as its last two lines."""
    if as_json:
        click.echo(plain_json({"type": "problem", "problem": problem}))
        click.echo(plain_json({"type": "done", "exit_code": 1, "counts": {}}))
    else:
        click.echo(f"Error: {printable(problem)}", err=True)


def when(seconds: float) -> str:
    """A time of this machine's zone, to the second; seconds since the epoch, if that is in no calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OSError, OverflowError, ValueError):  # what a damaged log, or one by a wrong clock, says
        return f"{seconds:g} s"


def size(count: int) -> str:
    """Bytes for people, decimal units."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError(unit)


def span(seconds: float) -> str:
    """A wait for people, rounded up, in the unit that takes two digits where one does."""
    whole = math.ceil(max(0.0, seconds))
    for length, unit in ((3_600, "h"), (60, "min")):
        if whole >= 100 * length / 60 and whole >= length:
            return f"{math.ceil(whole / length)} {unit}"
    return f"{whole} s"
