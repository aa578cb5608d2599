"""The two environment records of a run, as plain dicts in the record's field names. Unknown fields are left out."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from . import gitinfo, registry
from .cgroup import logical_cpus, read_meminfo
from .context import Context
from .hostinfo import cpu_model, physical_cores
from .probe import Tier
from .redact import is_secret_name, known_secrets, redact_argv, redact_text
from .runners import Runner
from .settings import SamplerSettings

_T = TypeVar("_T")
_ANSWER_WITHIN = 1.0  # s for a file system to tell its size
REDACTED = ("argv", "environment", "git")
_NO_PROGRAM = {"", "-c", "-m"}  # sys.argv[0] where no file is run


def _bounded(call: Callable[[], _T], timeout: float) -> _T | None:
    """What `call` returns, or None if it fails or takes longer than `timeout` s (its daemon thread is then left)."""
    results: list[_T] = []

    def run() -> None:
        try:
            results.append(call())
        except (OSError, KeyError, ValueError):  # no such user, unreachable path
            return

    thread = threading.Thread(target=run, name="runferry-environment", daemon=True)
    thread.start()
    thread.join(timeout)
    return results[0] if results else None


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


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


def execution_context(
    settings: SamplerSettings,  # noqa: ARG001 - one signature for both records
    *,
    argv: Sequence[str] | None = None,
    started_at_ns: int | None = None,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    redact: Collection[str] = REDACTED,
) -> dict[str, Any]:
    """Who runs what, where: the first environment record.

    Keys: os, python, started_at (int, ns since 1970), args (list), program, code_path, code_path_local, root, host,
    username, executable, docker, slurm (dict), git ({remote_url, commit}). Arguments and URLs are redacted.

    Args:
        settings: the sampler's.
        argv: command line of the run; this process's unless given.
        started_at_ns: start of the run; now unless given.
        folder: where the run was started; the working directory unless given.
        environ: environment of the run; this process's unless given.
        redact: what is redacted: "argv", "environment" (Slurm's variables, the image) and "git" (the remote's URL).
    """
    argv = sys.argv if argv is None else argv
    environ = os.environ if environ is None else environ
    folder = Path.cwd() if folder is None else folder
    name = argv[0] if argv else ""
    docker = environ.get("WANDB_DOCKER")
    program = None if name in _NO_PROGRAM else _program(name, folder)
    repository = _bounded(lambda: gitinfo.find(folder.resolve(), redact="git" in redact), _ANSWER_WITHIN)
    local = _below(program, folder.resolve())
    return _known(
        {
            "os": _system(),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "started_at": time.time_ns() if started_at_ns is None else started_at_ns,
            "args": redact_argv(argv[1:], known_secrets(environ)).args if "argv" in redact else list(argv[1:]),
            "program": None if program is None else str(program),
            "code_path": _below(program, repository.root if repository else None) or local,
            "code_path_local": local,
            "root": str(folder),
            "host": platform.node(),
            "username": _bounded(getpass.getuser, _ANSWER_WITHIN),  # may ask a directory server
            "executable": sys.executable,
            "docker": redact_text(docker).text if docker and "environment" in redact else docker,
            "slurm": slurm(environ, redact="environment" in redact),
            "git": _known({"remote_url": repository.remote_url, "commit": repository.commit}) if repository else None,
        }
    )


def _disk(path: str) -> dict[str, int]:
    sizes = os.statvfs(path)
    return {
        "total": sizes.f_blocks * sizes.f_frsize,
        "used": (sizes.f_blocks - sizes.f_bfree) * sizes.f_frsize,
    }


def _devices(ctx: Context, timeout: float) -> dict[str, Any]:
    """Fields of the devices whose vendor libraries answer within `timeout` s; starts a helper per vendor found."""
    ready = threading.Condition()
    runners: list[Runner] = []
    for probe in registry.built_in(ctx.settings):
        if probe.tier is Tier.HELPER and probe.discover(ctx) is None:
            from .supervisor import HelperRunner  # only where there is a device

            runners.append(HelperRunner(probe, ctx, ready))
    for runner in runners:
        runner.request(time.monotonic())
    with ready:
        ready.wait_for(lambda: not any(runner.opening for runner in runners), timeout)
    fields: dict[str, Any] = {}
    for runner in runners:
        fields.update(runner.metadata())
        runner.close(1.0)
    return fields


def hardware(settings: SamplerSettings, *, root: str = "/", devices_within: float = 2.0) -> dict[str, Any]:
    """What the host is made of: the second environment record. Limits of containers are not applied.

    Keys: cpu_count, cpu_count_logical, cpu ({count, count_logical, model}), memory ({total}), disk ({path: {total,
    used}}), and with GPUs gpu_type, gpu_count, cuda_version, gpu_nvidia ([{name, memory_total, cuda_cores,
    architecture, uuid, pci_bus_id, numa_node}]); sizes in bytes.

    Takes a few milliseconds without GPUs. With GPUs it waits for the driver, at most `devices_within` s, and leaves
    their fields out if that was too short (0: does not ask): call it off the training thread. A disk path that does
    not answer costs one second.
    """
    ctx = Context(settings, root=root)
    devices = _devices(ctx, devices_within) if devices_within > 0 else {}
    cores = settings.cpu_count or physical_cores(ctx)
    logical = settings.cpu_logical_count or logical_cpus(ctx) or None
    disks = {path: _bounded(partial(_disk, ctx.path(path)), _ANSWER_WITHIN) for path in settings.disk_paths}
    return _known(
        {
            "cpu_count": cores,
            "cpu_count_logical": logical,
            "cpu": _known({"count": cores, "count_logical": logical, "model": cpu_model(ctx)}),
            "memory": _known({"total": read_meminfo(ctx).get("MemTotal")}),
            "disk": {path: size for path, size in disks.items() if size is not None},
            **devices,
            "gpu_type": settings.gpu_type or devices.get("gpu_type"),
            "gpu_count": settings.gpu_count or devices.get("gpu_count"),
        }
    )
