"""`runferry sample`: this machine's metrics as JSON."""

from __future__ import annotations

import math
import os
import queue
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import click

from ..sampler import Sample, Sampler, SamplerSettings, sample_once
from ..sampler.context import Context
from ..sampler.proctree import read_process
from ..sampler.settings import DEFAULT_INTERVAL, LEAST_INTERVAL
from .text import plain_json

READINGS_APART = 0.5  # s, without --watch
LOOK_EVERY = 0.5  # s between two looks whether there is still something to watch
DEVICES_WITHIN = 5.0  # s that devices may take to open
NOTHING = "runferry sample: nothing could be read by the probes asked for"


def _line(sample: Sample) -> str:
    seconds, nanoseconds = divmod(sample.timestamp_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return plain_json({"timestamp": f"{moment}.{nanoseconds // 1000:06d}Z", "values": sample.values})


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return True  # the probes will tell
    if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - it raises for nothing
        process = read_process(Context(SamplerSettings()), pid)
        return process is not None and process.alive
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _watch(settings: SamplerSettings) -> None:
    """Print samples until interrupted, or nothing is left to watch. The sampler's thread only hands them over.

    A closed pipe shows here.
    """
    samples: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    sampler = Sampler(settings, samples.put)
    sampler.start()
    patience = time.monotonic() + settings.interval + DEVICES_WITHIN  # rates come with the second sample
    try:
        while True:
            with suppress(queue.Empty):
                click.echo(_line(samples.get(timeout=LOOK_EVERY)))
                sys.stdout.flush()
                patience = math.inf
            if not _exists(settings.pid):
                click.echo(f"runferry sample: process {settings.pid} has ended", err=True)
                return
            if samples.empty() and (time.monotonic() > patience or sampler.idle):
                click.echo(NOTHING, err=True)
                sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sampler.stop()


@click.command()
@click.option("--watch", is_flag=True, help="Print one line per interval until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=LEAST_INTERVAL),
    help=f"Seconds between two lines of --watch, at least 0.1 [{DEFAULT_INTERVAL:g}]; without --watch, seconds "
    f"between the two readings that rates are taken from [{READINGS_APART:g}].",
)
@click.option("--pid", type=int, help="Root of the process metrics (cpu, proc.*, gpu.process.*) [this command].")
@click.option("--disk", "disks", multiple=True, metavar="PATH", help="Path whose disk to report; repeatable [/].")
@click.option("--label", help="Append /l:LABEL to every key.")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="Run only this probe; repeatable.")
@click.option("--skip-probe", "skip_probes", multiple=True, metavar="NAME", help="Leave out this probe; repeatable.")
@click.option("--gpu", "gpus", multiple=True, metavar="ID", help="NVML index or UUID, or 'visible'; repeatable [all].")
@click.option("--per-core", is_flag=True, help="Add the load of each core.")
@click.option("--per-interface", is_flag=True, help="Add the traffic of each network interface.")
@click.option("--extended", is_flag=True, help="Add rates and other keys that the W&B list does not have.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: as without it.")
@click.option("--self", "self_metrics", is_flag=True, help="Add what each probe costs.")
def command(*, watch: bool, interval: float | None, pid: int | None, as_json: bool, **options: Any) -> None:  # noqa: ARG001 - accepted for scripts
    """Print this machine's metrics: one JSON object with `timestamp` and `values`.

    \b
    runferry sample                       one sample
    runferry sample --watch --interval 1  one line per second
    runferry sample --pid 4242            of another process and its children

    A metric that cannot be read is left out; docs/metrics.md lists the keys, `runferry doctor` says why. The settings
    are those of a run here (docs/settings.md); the options go before them, and what probes cost comes with --self only.

    \b
    Exit codes: 0 there is a sample
                1 nothing that was asked for could be read
                2 usage, or a setting that cannot be followed
                130 interrupted
    """
    from ..writer import Settings, SettingsError
    from ..writer.report import warn_on_stderr
    from ..writer.sampling import sampler_settings
    from ..writer.settings import resolve, tell

    if pid is not None and not _exists(pid):
        raise click.UsageError(f"--pid: there is no process {pid}")
    for disk in options["disks"]:
        if not os.path.lexists(disk):
            raise click.UsageError(f"--disk: there is no {disk}")
    if options["probes"] or options["skip_probes"]:
        from ..sampler.checkup import known_probes  # reads what is installed

        if unknown := sorted({*options["probes"], *options["skip_probes"]} - set(known := known_probes())):
            raise click.UsageError(f"there is no probe {unknown[0]!r}; there are {', '.join(known)}")
    try:
        given = Settings(
            sample_interval=interval,
            stats_pid=pid,
            disk_paths=options["disks"] or None,
            label=options["label"],
            probes=options["probes"] or None,
            skip_probes=options["skip_probes"] or None,
            gpu_device_ids=options["gpus"] or None,
            per_core=options["per_core"] or None,
            per_interface=options["per_interface"] or None,
            extended=options["extended"] or None,
        )
        resolved = resolve(given)
        settings = sampler_settings(resolved, pid=os.getpid(), label="")
    except (SettingsError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    settings = replace(settings, self_metrics=options["self_metrics"])
    tell(resolved, warn_on_stderr)
    if watch:
        _watch(settings)
        return
    sample = sample_once(settings, pause=READINGS_APART if interval is None else interval)
    click.echo(_line(sample))
    if options["gpus"] and not any(key.startswith("gpu.") for key in sample.values):
        click.echo("runferry sample: no such GPU was found", err=True)
        sys.exit(1)
    if not sample.values:
        click.echo(NOTHING, err=True)
        sys.exit(1)
