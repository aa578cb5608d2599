"""`runferry sample`: this machine's metrics as JSON."""

from __future__ import annotations

import json
import os
import queue
import sys
from datetime import datetime, timezone
from typing import Any

import click

from ..sampler import Sample, Sampler, SamplerSettings, sample_once
from ..sampler.settings import DEFAULT_INTERVAL

READINGS_APART = 0.5  # s, without --watch


def _line(sample: Sample) -> str:
    seconds, nanoseconds = divmod(sample.timestamp_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return json.dumps(
        {"timestamp": f"{moment}.{nanoseconds // 1000:06d}Z", "values": sample.values}, ensure_ascii=False
    )


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return True  # the probes will tell
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _watch(settings: SamplerSettings) -> None:
    """Print samples until interrupted. The sampler's thread only hands them over; a closed pipe shows here."""
    samples: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    sampler = Sampler(settings, samples.put)
    sampler.start()
    try:
        while True:
            click.echo(_line(samples.get()))
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sampler.stop()


@click.command()
@click.option("--watch", is_flag=True, help="Print one line per interval until Ctrl-C.")
@click.option(
    "--interval",
    type=float,
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

    A metric that cannot be read is left out; docs/metrics.md lists the keys, `runferry doctor` says why.

    \b
    Exit codes: 0 there is a sample
                1 nothing that was asked for could be read
                2 usage
                130 interrupted
    """
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
        settings = SamplerSettings(
            interval=DEFAULT_INTERVAL if interval is None else interval,
            pid=os.getpid() if pid is None else pid,
            disk_paths=options["disks"] or ("/",),
            label=options["label"],
            probes=options["probes"] or None,
            skip_probes=options["skip_probes"],
            gpu_device_ids=options["gpus"] or None,
            per_core=options["per_core"],
            per_interface=options["per_interface"],
            extended=options["extended"],
            self_metrics=options["self_metrics"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if watch:
        _watch(settings)
        return
    sample = sample_once(settings, pause=READINGS_APART if interval is None else interval)
    click.echo(_line(sample))
    if options["gpus"] and not any(key.startswith("gpu.") for key in sample.values):
        click.echo("runferry sample: no such GPU was found", err=True)
        sys.exit(1)
    if not sample.values:
        click.echo("runferry sample: nothing could be read by the probes asked for", err=True)
        sys.exit(1)
