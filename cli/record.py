"""`runferry record`: run any command as a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from .text import plain_json

DURABILITY = ("relaxed", "normal", "record", "disk")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--project", help="Project of the run (default: WANDB_PROJECT, else uncategorized).")
@click.option("--entity", help="Entity of the project (default: WANDB_ENTITY, else the backend's).")
@click.option("--name", help="Display name of the run.")
@click.option("--id", "run_id", help="Id of the run (default: eight random characters).")
@click.option(
    "--resume", type=click.Choice(("allow", "must", "never", "auto")), help="Go on with a run; see docs/resume.md."
)
@click.option("--group", help="Group of the run.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Where the folder wandb goes (default: here).")
@click.option("--interval", type=click.FloatRange(min=0.1), help="Seconds between samples (default: 15).")
@click.option("--label", help="Append /l:LABEL to every metric, to keep the nodes of a run apart.")
@click.option("--secondary", is_flag=True, help="A further node of the run --id: its metrics and console, not the end.")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Run only this probe; repeatable.")
@click.option("--skip-probe", "skip_probes", multiple=True, metavar="NAME", help="Leave out this probe; repeatable.")
@click.option(
    "--disk", "disks", multiple=True, metavar="PATH", help="Path whose disk to sample; repeatable (default: /)."
)
@click.option("--extended/--no-extended", default=None, help="Also metrics beyond the W&B list; see docs/metrics.md.")
@click.option("--durability", type=click.Choice(DURABILITY), help="What a crash may lose; see docs/writing.md.")
@click.option("--pty/--no-pty", default=None, help="Give CMD pseudo-terminals (default: where our own output is one).")
@click.option("--quiet", is_flag=True, help="Print nothing of our own but warnings.")
@click.option("--json", "as_json", is_flag=True, help="Say what we say as JSON, one object per line on standard error.")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    *,
    project: str | None,
    entity: str | None,
    name: str | None,
    run_id: str | None,
    resume: str | None,
    group: str | None,
    tags: tuple[str, ...],
    folder: Path | None,
    interval: float | None,
    label: str | None,
    secondary: bool,
    probes: tuple[str, ...],
    skip_probes: tuple[str, ...],
    disks: tuple[str, ...],
    extended: bool | None,
    durability: str | None,
    pty: bool | None,
    quiet: bool,
    as_json: bool,
    cmd: tuple[str, ...],
) -> None:
    """Run CMD and log its console output, its exit code and the system metrics of its processes.

    CMD's code is not changed and not looked at; put `--` before it:

    \b
        runferry record --project digits -- python train.py --lr 0.1

    The exit code is CMD's own (128 + n if signal n ended it, 127 if there is no such command, 126 if it cannot be run).
    Signals are passed on.

    Under Slurm, torchrun and MPI rank 0 is the run, local rank 0 of each other node logs its console and, under the
    host's name, its node's metrics; other ranks run CMD only. Where nothing starts the nodes together, name the run and them:

    \b
        runferry record --id r1 --label a -- CMD                   # the first node
        runferry record --id r1 --label b --secondary -- CMD       # each of the others
    """
    if probes or skip_probes:
        from ..sampler.checkup import known_probes  # reads what is installed

        if unknown := sorted({*probes, *skip_probes} - set(known := known_probes())):
            raise click.UsageError(f"there is no probe {unknown[0]!r}; there are {', '.join(known)}")
    from .. import __version__
    from ..writer import Run, Settings, SettingsError, UsageError
    from ..writer.command import CommandError, run_command
    from ..writer.ranks import Role, rank_of
    from ..writer.report import say, warn_on_stderr
    from ..writer.resume import begin as begin_at
    from ..writer.settings import resolve

    given = Settings(
        project=project,
        entity=entity,
        name=name,
        run_id=run_id,
        resume=resume,
        group=group,
        tags=tags or None,
        dir=folder,
        sample_interval=interval,
        label=label,
        probes=probes or None,
        skip_probes=skip_probes or None,
        disk_paths=disks or None,
        extended=extended,
        durability=durability,
        console="off",  # the command's output is taken at its source, not from our own streams
        silent=quiet or as_json or None,
    )
    try:
        settings = resolve(given)
        rank = rank_of(os.environ)
        role = Role.FULL if settings.ranks == "all" else rank.role
        if role is Role.FULL and (secondary or not settings.primary):
            if not settings.given_id:
                raise UsageError("--secondary: say of which run, by --id")
            role = Role.SAMPLER
        start = begin_at(settings, os.environ, role, argv=cmd)
    except (SettingsError, UsageError) as error:
        raise click.UsageError(str(error)) from error
    for line in (*settings.warnings, *start.warnings):  # --quiet and --json leave warnings
        warn_on_stderr(line)

    runs: list[Run] = []

    def begin(pid: int) -> Run:
        run = Run(start.settings, role=role, behind=start.behind, version=__version__, pid=pid, argv=cmd)
        runs.append(run)
        if as_json:
            begun = {"run": run.id, "log": run.log_path, "rank": rank.rank, "role": role.value}
            click.echo(plain_json({"type": "run_started", **begun}), err=True)
        elif run.log_path and settings.talks:
            say(f"logging run {run.id} to {run.log_path}")
            for line in start.notes:
                say(line)
        return run

    try:
        code = run_command(cmd, begin, terminal=pty)
    except CommandError as error:
        click.echo(f"runferry record: {error.filename}: {error.strerror}", err=True)
        code = error.code
    for run in runs if as_json else ():
        report = run.finish()  # it has ended: what became of it
        done = {"type": "run_done", "run": run.id, "log": run.log_path, "exit_code": code, "complete": report.complete}
        dropped = {"rows_dropped": report.rows_dropped, "others_dropped": report.others_dropped}
        click.echo(plain_json({**done, **dropped}), err=True)
    if code and runs and role is Role.SAMPLER and settings.given_id and not as_json:
        warn_on_stderr(
            f"exit code {code} on this node is not in the run's log: how run {runs[0].id} ended is the first node's to say"
        )
    sys.exit(code)
