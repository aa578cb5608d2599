"""`runferry doctor`: which metrics this machine gives, why not others, and what they cost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .text import PIPE_WIDTH, plain_json, printable

if TYPE_CHECKING:
    from ..sampler.checkup import Checkup, Finding
    from ..writer.settings import Resolved

_ORDER = ("hangs", "failed", "ok", "absent", "off")


@click.command()
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Try only this probe; repeatable.")
@click.option("--skip-probe", "skip_probes", multiple=True, metavar="NAME", help="Leave out this probe; repeatable.")
@click.option("--disk", "disks", multiple=True, metavar="PATH", help="Path whose disk to try; repeatable [/].")
@click.option("--extended", is_flag=True, help="Also what only the setting `extended` asks for.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Where logs are to go [as of a run: here].")
@click.option(
    "--within", type=click.FloatRange(min=0.5, max=600), default=10.0, show_default=True,
    help="Seconds for all; what has not answered by then hangs.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: probes, limits, warnings, a summary.")
def command(
    *,
    probes: tuple[str, ...],
    skip_probes: tuple[str, ...],
    disks: tuple[str, ...],
    extended: bool,
    folder: Path | None,
    within: float,
    as_json: bool,
) -> None:
    """Try each probe of system metrics as a run would: what it finds, why not, and what it costs in ms.

    The settings are those of a run here (docs/settings.md); the options below go before them.

    \b
    Exit codes: 0 every source that is here can be read
                1 one hangs or fails, or a warning says what a run will stumble over
                2 usage
    """
    from ..sampler.checkup import check, known_probes
    from ..writer import Settings, SettingsError
    from ..writer.sampling import sampler_settings
    from ..writer.settings import resolve

    if unknown := sorted({*probes, *skip_probes} - set(known := known_probes())):
        raise click.UsageError(f"there is no probe {unknown[0]!r}; there are {', '.join(known)}")
    given = Settings(
        probes=probes or None,
        skip_probes=skip_probes or None,
        disk_paths=disks or None,
        extended=extended or None,
        dir=folder,
    )
    try:
        resolved = resolve(given)
        settings = sampler_settings(resolved, pid=os.getpid(), label="")
    except (SettingsError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    found = check(settings, within=within, folder=str(resolved.root))
    found.warnings[:0] = _of_the_settings(resolved)
    found.findings.sort(key=lambda finding: _ORDER.index(finding.state))
    (_print_json if as_json else _print_text)(found)
    sys.exit(0 if found.healthy and not found.warnings else 1)


def _of_the_settings(resolved: Resolved) -> Iterator[str]:
    """What a run here would be told of its settings, and whether it samples at all."""
    yield from resolved.warnings
    if resolved.mode == "disabled":
        yield "a run here writes nothing: the setting mode is disabled"
    elif resolved.disable_stats:
        yield "a run here has no system metrics: the setting disable_stats is on"


def _print_json(found: Checkup) -> None:
    for finding in found.findings:
        click.echo(plain_json(finding.as_record()))
    click.echo(plain_json({"type": "limits", **found.limits}))
    for text in found.warnings:
        click.echo(plain_json({"type": "warning", "text": text}))
    states = [finding.state for finding in found.findings]
    counts: dict[str, Any] = {state: states.count(state) for state in _ORDER}
    click.echo(plain_json({"type": "done", **counts, "warnings": len(found.warnings)}))


def _print_text(found: Checkup) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("probe", "state", "keys", "open ms", "sample ms"):
        table.add_column(title, justify="left" if title in {"probe", "state"} else "right", no_wrap=True)
    table.add_column("", overflow="fold")
    off: dict[str, list[str]] = {}
    for finding in found.findings:
        if finding.state == "off":
            off.setdefault(finding.why, []).append(finding.probe)
            continue
        table.add_row(*(Text(printable(cell)) for cell in _cells(finding)))
    console.print(table)
    for why, names in off.items():
        click.echo(f"\n{printable(why)}: {printable(', '.join(names))}")
    click.echo(f"\nlimits: {_limits_in_words(found.limits)}")
    for text in found.warnings:
        click.echo(f"warning: {printable(text)}")


def _cells(finding: Finding) -> tuple[str, ...]:
    keys = str(len(finding.keys)) if finding.keys else ""
    return finding.probe, finding.state, keys, _ms(finding.open_ms), _ms(finding.sample_ms), finding.why


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _limits_in_words(limits: dict[str, Any]) -> str:
    words = [
        f"{limits['cpus']:g} of {limits['host_cpus']} CPUs" if {"cpus", "host_cpus"} <= set(limits) else "CPUs unknown"
    ]
    if "cpu_quota" in limits:
        words[0] += f" (a quota of {limits['cpu_quota']['group']})"
    total = limits.get("host_memory")
    if "memory" in limits:
        of = f" of {total / 2**30:.1f}" if total else ""
        words.append(f"{limits['memory']['bytes'] / 2**30:.1f}{of} GiB memory (of {limits['memory']['group']})")
    elif total:
        words.append(f"all of {total / 2**30:.1f} GiB memory")
    return printable(", ".join(words))
