"""The command line: one module per command, loaded only when that command runs."""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import os
import sys

import click

_GARBAGE = 20_000
"""New objects between two looks for garbage: what a start makes stays, and looking after each 700 took a tenth of its time."""

# command -> one line of help, so that `runferry --help` imports no command.
COMMANDS = {
    "sync": "Replay logs to a backend; safe to stop and to repeat.",
    "verify": "Whether logs are whole; with --remote, whether the server holds what they hold.",
    "clean": "Delete run directories of which everything is at the server.",
    "ls": "The state of every run found.",
    "show": "What a log holds: records, rows, summary, damage.",
    "grep": "Lines that runs printed, with the step and metrics of that moment.",
    "repair": "Damaged logs as new, sound ones, for readers that stop at damage.",
    "export": "Runs as Parquet, CSV, JSONL, TensorBoard event files, or a page.",
    "pack": "Runs as one checked file, to carry where no network goes.",
    "unpack": "The runs of such a file as directories again.",
    "record": "Run a command: samples, console and exit code in a log, no code change.",
    "settings": "Every setting, its value, and where it comes from.",
    "sample": "One sample of this machine's metrics as JSON.",
    "doctor": "Which metrics this machine gives, why not others, and what they cost.",
    "serve": "The embedded backend: the W&B protocol and a page, on one SQLite file.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: `cli/<name>.py` defines `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002, D102 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: D102 - click's
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {cmd_name!r}.{hint}", ctx)
        command: click.Command = importlib.import_module(f".{cmd_name}", __package__).command
        return command

    def invoke(self, ctx: click.Context) -> object:  # noqa: D102 - click's
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # `runferry show | head`: whoever reads wants no more, so nothing failed
            _drop_output()
            ctx.exit(0)
        return done

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002, D102 - click's
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _drop_output() -> None:
    """What is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="runferry")
def group() -> None:
    """Offline-first experiment logging: write a .wandb log anywhere, replay it to the backend later.

    Exit codes: 0 all done, 1 some partial or failed, 2 usage or credentials, 75 try again later, 130 interrupted.
    """


def _open_streams() -> None:
    """Let what is printed to a closed stream (`>&-`) go nowhere; else it would raise, or the next file opened would get it."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free: 0, then 1 and 2
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - to the end of the process


def main() -> None:
    """The console script `runferry`."""
    gc.set_threshold(_GARBAGE)
    _open_streams()
    try:
        code = group.main(prog_name="runferry", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        sys.exit(2)
    except OSError as error:  # a full disk below the output, mostly
        with contextlib.suppress(OSError):
            click.echo(f"Error: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", err=True)
        _drop_output()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)  # click hands an `Exit` of a command over as its code
