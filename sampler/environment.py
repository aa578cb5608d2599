"""The two environment records of a run, as plain dicts in the record's field names. Unknown fields are left out.

Every fact is found on a thread of its own (`gathering`): a home directory on a dead server, a directory service or a
driver that takes its time cost only their own fields, and those may still come later.
"""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from . import gitinfo, registry
from .cgroup import logical_cpus
from .clock import SystemClock
from .colab import colab_facts
from .context import Context
from .coreweave import coreweave_facts
from .engine import Engine, Sample
from .gathering import Fact, Fields, Gathering, merge
from .hostinfo import cpu_model, memory_total, physical_cores
from .kubernetes import kubernetes_facts
from .machine import machine_facts
from .probe import Probe
from .redact import is_secret_name, known_secrets, redact_argv, redact_text
from .settings import SamplerSettings

FIRST_WITHIN = 2.0  # s from the beginning to both records, with what is known by then
REST_WITHIN = 60.0  # s for the others; the first start of a driver that nobody keeps loaded takes that long
REDACTED = ("argv", "environment", "git")
HARDWARE_FIELDS = (
    *("cpu_count", "cpu_count_logical", "gpu_type", "gpu_count", "disk", "memory", "cpu", "apple", "gpu_nvidia"),
    *("cuda_version", "gpu_amd", "trainium", "tpu", "coreweave"),
)
"""Fields of the record; whatever else probes say of their devices is for the side record."""
_NO_PROGRAM = {"", "-c", "-m"}  # sys.argv[0] where no file is run


def _below(path: Path | None, folder: Path | None) -> str | None:
    """`path` relative to `folder`, None where it is not below it."""
    if path is None or folder is None:
        return None
    try:
        return path.relative_to(folder).as_posix()
    except ValueError:
        return None


def _system() -> str:
    """As `platform.platform(aliased=True)`, which starts the command `uname` to find out."""
    if not hasattr(os, "uname"):
        return platform.platform(aliased=True)
    host = os.uname()
    if host.sysname == "Darwin":
        return f"macOS-{platform.mac_ver()[0]}-{host.machine}"
    library = "".join(platform.libc_ver())
    return f"{host.sysname}-{host.release}-{host.machine}" + (f"-with-{library}" if library else "")


def slurm(environ: Mapping[str, str], *, redact: bool = True) -> dict[str, str]:
    """`SLURM_*` variables by lower-case suffix; credentials (SLURM_JWT) are left out, others redacted."""
    known = known_secrets(environ) if redact else ()
    return {
        name.removeprefix("SLURM_").lower(): redact_text(value, before=name, known=known).text if redact else value
        for name, value in sorted(environ.items())
        if name.startswith("SLURM_") and not (redact and is_secret_name(name))
    }


def _program(name: str, folder: Path) -> Path:
    """A script by its path; a command that is no path by where the system finds it."""
    path = folder / name
    found = None if os.sep in name or path.exists() else shutil.which(name)
    return path.resolve() if found is None else Path(found)


def context_facts(
    *,
    argv: Sequence[str],
    started_at_ns: int,
    folder: Path,
    environ: Mapping[str, str],
    redact: Collection[str] = REDACTED,
) -> dict[str, Fact]:
    """Who runs what, where, fact by fact; for the arguments see `execution_context`."""
    name = argv[0] if argv else ""
    docker = environ.get("WANDB_DOCKER")

    def given() -> Fields:
        """What needs no answer of anything."""
        return {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "started_at": started_at_ns,
            "args": redact_argv(argv[1:], known_secrets(environ)).args if "argv" in redact else list(argv[1:]),
            "root": str(folder),
            "host": platform.node(),
            "executable": sys.executable,
            "email": environ.get("RUNFERRY_USER_EMAIL") or environ.get("WANDB_USER_EMAIL"),
            "docker": redact_text(docker).text if docker and "environment" in redact else docker,
            "slurm": slurm(environ, redact="environment" in redact),
        }

    def program() -> Fields:
        if name in _NO_PROGRAM:
            return {}
        path = _program(name, folder)
        return {"program": str(path), "code_path_local": _below(path, folder.resolve())}

    def repository() -> Fields:
        found = gitinfo.find(folder.resolve(), redact="git" in redact)
        path = None if name in _NO_PROGRAM else _program(name, folder)
        fields: Fields = {"code_path": _below(path, found.root if found else None) or _below(path, folder.resolve())}
        if found is not None:
            known = {"remote_url": found.remote_url, "commit": found.commit}
            fields["git"] = {field: value for field, value in known.items() if value}
        return fields

    return {
        "command": given,
        "system": lambda: {"os": _system()},  # reads the interpreter's file
        "program": program,
        "git": repository,
        "user": lambda: {"username": getpass.getuser()},  # may ask a directory server
    }


def execution_context(
    settings: SamplerSettings,  # noqa: ARG001 - one signature for both records
    *,
    argv: Sequence[str] | None = None,
    started_at_ns: int | None = None,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    redact: Collection[str] = REDACTED,
    within: float = FIRST_WITHIN,
) -> Fields:
    """Who runs what, where: the first environment record.

    Keys: os, python, started_at (int, ns since 1970), args (list), program, code_path, code_path_local, root, host,
    username, executable, email, docker, slurm (dict), git ({remote_url, commit}). Arguments and URLs are redacted.

    Args:
        settings: the sampler's.
        argv: command line of the run; this process's unless given.
        started_at_ns: start of the run; now unless given.
        folder: where the run was started; the working directory unless given.
        environ: environment of the run; this process's unless given.
        redact: what is redacted: "argv", "environment" (Slurm's variables, the image) and "git" (the remote's URL).
        within: seconds; what is not known by then is left out.
    """
    facts = context_facts(
        argv=sys.argv if argv is None else argv,
        started_at_ns=time.time_ns() if started_at_ns is None else started_at_ns,
        folder=Path.cwd() if folder is None else folder,
        environ=os.environ if environ is None else environ,
        redact=redact,
    )
    return Gathering(facts).take(within)


def _disk(path: str, real: str) -> Fields:
    sizes = os.statvfs(real)
    total, free = sizes.f_blocks * sizes.f_frsize, sizes.f_bfree * sizes.f_frsize
    return {"disk": {path: {"total": total, "used": total - free}}}


def host_facts(ctx: Context) -> dict[str, Fact]:
    """What the host is made of, but for its devices. Limits of containers are not applied."""
    settings = ctx.settings

    def processors() -> Fields:
        cores = settings.cpu_count or physical_cores(ctx)
        logical = settings.cpu_logical_count or logical_cpus(ctx) or None
        cpu = {"count": cores, "count_logical": logical, "model": cpu_model(ctx)}
        known = {field: value for field, value in cpu.items() if value}
        return {"cpu_count": cores, "cpu_count_logical": logical, "cpu": known}

    def memory() -> Fields:
        total = memory_total(ctx)
        return {"memory": {"total": total}} if total else {}

    disks: dict[str, Fact] = {
        f"disk {path}": partial(_disk, path, ctx.path(path) if os.name == "posix" else path)
        for path in (settings.disk_paths if hasattr(os, "statvfs") else ())
    }
    return {"processors": processors, "memory": memory, **disks}


def _surroundings(ctx: Context, environ: Mapping[str, str]) -> dict[str, Fact]:
    """What a server of the cluster or of the host is asked, where there is a sign of one."""
    return {**kubernetes_facts(ctx, environ), **colab_facts(ctx), **coreweave_facts(ctx, environ)}


class Devices(Protocol):
    """Whoever has the probes of devices open: a `Sampler`, or an `Engine`."""

    def settle(self, timeout: float) -> bool:
        """Wait until none is opening any more, at most `timeout` s."""

    def metadata(self) -> Fields:
        """What those that have opened know."""


def _tells(probe: Probe) -> bool:
    return type(probe).metadata is not Probe.metadata


def open_devices(settings: SamplerSettings, *, root: str = "/") -> Engine:
    """The probes that know of devices, being opened, for where no sampler runs. To be closed."""
    probes = [probe for probe in registry.built_in(settings, _nowhere, root=root) if _tells(probe)]
    engine = Engine(settings, _nowhere, clock=SystemClock(), root=root, warn=_nowhere, probes=probes)
    engine.open()
    engine.tick(grace=0.0)
    return engine


def _nowhere(_told: Sample | str) -> None:
    """Nobody wants it."""


def hardware(settings: SamplerSettings, *, root: str = "/", devices_within: float = FIRST_WITHIN) -> Fields:
    """What the host is made of: the second environment record. Limits of containers are not applied.

    Keys: cpu_count, cpu_count_logical, cpu ({count, count_logical, model}), memory ({total}), disk ({path: {total,
    used}}), and with devices gpu_type, gpu_count, cuda_version, gpu_nvidia ([{name, memory_total, cuda_cores,
    architecture, uuid, pci_bus_id, numa_node}]), gpu_amd, apple, tpu, trainium; sizes in bytes.

    Takes a few milliseconds without devices. With some it waits for the drivers, at most `devices_within` s, and leaves
    their fields out if that was too short (0: does not ask): call it off the training thread.
    """
    gathering = Gathering(host_facts(Context(settings, root=root)))
    devices: Fields = {}
    if devices_within > 0:
        engine = open_devices(settings, root=root)
        try:
            engine.settle(devices_within)
            devices = engine.metadata()
        finally:
            engine.close(1.0)
    fields = gathering.take(FIRST_WITHIN)
    merge(fields, _told_of(devices, settings))
    return {field: value for field, value in fields.items() if field in HARDWARE_FIELDS}


def _told_of(devices: Mapping[str, Any], settings: SamplerSettings) -> Fields:
    """What probes say, with what the settings say instead."""
    told = {"gpu_type": settings.gpu_type, "gpu_count": settings.gpu_count}
    return {**devices, **{field: value for field, value in told.items() if value}}


class Inquiry:
    """Both environment records and the side record on their way: all facts are being found from the beginning on.

    Whatever hangs, `context` and `hardware` answer within 2 s of the beginning; what comes later is in `rest`.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        *,
        argv: Sequence[str],
        started_at_ns: int,
        folder: Path,
        environ: Mapping[str, str],
        redact: Collection[str] = REDACTED,
        devices: Devices | None = None,
        root: str = "/",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            settings: the sampler's.
            argv: as in `execution_context`; so are the next four.
            started_at_ns: see there.
            folder: see there.
            environ: see there.
            redact: see there.
            devices: a sampler that runs, so that no driver is opened twice; None opens the devices for this.
            root: where the machine is looked at.
            monotonic: a clock, in seconds.
        """
        ctx = Context(settings, root=root)
        self._settings, self._monotonic, self._begun = settings, monotonic, monotonic()
        self._context = Gathering(
            context_facts(argv=argv, started_at_ns=started_at_ns, folder=folder, environ=environ, redact=redact)
        )
        self._host = Gathering({**host_facts(ctx), **_surroundings(ctx, environ)})
        self._machine = Gathering(machine_facts(ctx, environ, (str(folder), *settings.disk_paths)))
        self._engine: Engine | None = None
        if devices is None:
            devices = self._engine = open_devices(settings, root=root)
        self._devices = devices
        self._hurried = False
        self._device_fields: Fields = {}
        self.side: Fields = {}
        """The side record so far: what the environment record has no fields for."""

    def _left(self) -> float:
        return self._begun + FIRST_WITHIN - self._monotonic()

    def context(self) -> Fields:
        """Who runs what, where."""
        return self._context.take(self._left())

    def hardware(self) -> Fields:
        """What the host is made of; the image and the notebook, which servers are asked, are among it."""
        fields = self._host.take(self._left())
        self._devices.settle(max(0.0, self._left()))
        merge(fields, self._new_of_devices())
        merge(self.side, self._machine.take(self._left()))
        return fields

    def rest(self) -> Fields:
        """What of both became known since; waits for all, at most a minute, until `hurry`. Closes what was opened."""
        deadline = self._begun + REST_WITHIN
        if not self._hurried:
            self._devices.settle(max(0.0, deadline - self._monotonic()))
        fields = self._new_of_devices()
        if self._engine is not None:
            self._engine.close(1.0)
        for gathering, into in ((self._context, fields), (self._host, fields), (self._machine, self.side)):
            merge(into, gathering.take(deadline - self._monotonic()))
        return fields

    def hurry(self) -> None:
        """End a wait, now and later; from any thread."""
        self._hurried = True
        for gathering in (self._context, self._host, self._machine):
            gathering.hurry()
        if self._engine is not None:
            self._engine.wake()

    @property
    def missing(self) -> dict[str, str]:
        """Facts that are not known, and why."""
        return {**self._context.missing, **self._host.missing, **self._machine.missing}

    def _new_of_devices(self) -> Fields:
        """Fields of the record that are not told yet, or otherwise; the others go to the side record.

        A list is told once: readers that merge records may add a second one to it.
        """
        found = _told_of(self._devices.metadata(), self._settings)
        merge(self.side, {field: value for field, value in found.items() if field not in HARDWARE_FIELDS})
        new = {
            field: value
            for field, value in found.items()
            if field in HARDWARE_FIELDS and value and value != self._device_fields.get(field)
            if not (isinstance(value, list) and field in self._device_fields)
        }
        self._device_fields.update(new)
        return new
