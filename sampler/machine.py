"""What bounds and shapes a run's machine, beyond the fields of the log's environment record: our own side record.

It is a file of the run, `runferry-machine.json`, and tells why numbers are what they are: limits of containers, which
devices were visible, network cards, file systems under the paths that are watched, NUMA nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from .cgroup import Limits, find_limits, read_meminfo
from .context import Context
from .gathering import Fact, Fields
from .mounts import mount_of, read_mounts
from .redact import redact_text
from .tables import read_whole

VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "TPU_VISIBLE_CHIPS",
    "NEURON_RT_VISIBLE_CORES",
)
"""Variables that say which devices a process may use. Others of the environment are not looked at."""
RANKS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "RUNFERRY_RANK", "RUNFERRY_LOCAL_RANK"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"),
)
"""Variables of launchers that say which process of a job this is; those of Slurm are in the environment record."""
_CONTAINERS = (
    ("docker", "docker"),
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("slurm", "slurm"),
)
"""What stands in the path of a control group, and who makes such groups."""


def machine_facts(ctx: Context, environ: Mapping[str, str], paths: Sequence[str]) -> dict[str, Fact]:
    """The side record, fact by fact.

    Fields: limits ({cpus, cpu_quota, memory}), affinity, visible_devices, ranks (both by variable), network ([{name, ...}]), file_systems
    ({path: kind}), memory ({swap_total, huge_pages, huge_page_size}; bytes, count), numa ({node: CPUs}), kernel
    ({release, command_line_sha256}), container.

    Args:
        ctx: where the machine is looked at.
        environ: of the run.
        paths: absolute; their file systems are named.
    """
    return {
        "limits": partial(_limits, ctx),
        "variables": lambda: {"visible_devices": _of(environ, VISIBLE), "ranks": _of(environ, RANKS)},
        "network cards": lambda: {"network": _network(ctx)},
        "file systems": lambda: {"file_systems": _file_systems(ctx, paths)},
        "memory and NUMA": partial(_memory, ctx),
        "kernel": lambda: {"kernel": _kernel(ctx)},
        "container": lambda: {"container": _container(ctx)},
    }


def _of(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: redact_text(environ[name]).text for name in names if environ.get(name)}


def limits_told(limits: Limits) -> Fields:
    """Limits of control groups as a record has them; what does not bind is left out."""
    told: Fields = {"cpus": limits.cpus}
    if limits.quota is not None:
        told["cpu_quota"] = {"cpus": limits.quota.cpus, "group": limits.quota.folder}
    if limits.memory is not None:
        told["memory"] = {"bytes": limits.memory.limit, "group": limits.memory.folder, "version": limits.memory.version}
    return told


def _limits(ctx: Context) -> Fields:
    pid = ctx.settings.pid
    fields: Fields = {"limits": limits_told(find_limits(ctx, pid, ignore=False))}
    for line in (ctx.read(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            fields["affinity"] = line.partition(":")[2].strip()
    return fields


def _network(ctx: Context) -> list[dict[str, Any]]:
    """Interfaces with hardware behind them, or bonds of such."""
    found = []
    for name in ctx.list("/sys/class/net"):
        folder = f"/sys/class/net/{name}"
        if name == "lo" or not (ctx.exists(f"{folder}/device") or ctx.exists(f"{folder}/bonding")):
            continue
        driver = ctx.link(f"{folder}/device/driver")
        speed = read_whole(ctx, f"{folder}/speed")  # Mbit/s; -1, or an error, where the link is down
        card = {
            "name": name,
            "driver": driver.rpartition("/")[2] if driver else None,
            "speed_mbps": speed if speed is not None and speed > 0 else None,
            "mtu": read_whole(ctx, f"{folder}/mtu"),
            "state": (ctx.read(f"{folder}/operstate") or "").strip() or None,
        }
        found.append({field: value for field, value in card.items() if value is not None})
    return found + [{"name": name, "driver": "infiniband"} for name in ctx.list("/sys/class/infiniband")]


def _file_systems(ctx: Context, paths: Sequence[str]) -> dict[str, str]:
    """The kinds alone: where a network's file system comes from is nobody's business."""
    mounts = read_mounts(ctx, ctx.settings.pid)
    found = {path: mount_of(path, mounts) for path in dict.fromkeys((*paths, "/dev/shm"))}  # noqa: S108 - data loaders fill it
    return {path: mount.kind for path, mount in found.items() if mount is not None}


def _memory(ctx: Context) -> Fields:
    table = read_meminfo(ctx)
    memory = {
        "swap_total": table.get("SwapTotal"),
        "huge_pages": table.get("HugePages_Total"),
        "huge_page_size": table.get("Hugepagesize"),
    }
    nodes = {}
    for name in ctx.list("/sys/devices/system/node"):
        if name.startswith("node") and name[4:].isdecimal():
            nodes[name[4:]] = (ctx.read(f"/sys/devices/system/node/{name}/cpulist") or "").strip()
    return {"memory": {field: value for field, value in memory.items() if value is not None}, "numa": nodes}


def _kernel(ctx: Context) -> Fields:
    """Release and a digest of the command line: enough to see that two nodes were booted alike."""
    line = (ctx.read("/proc/cmdline") or "").strip()
    release = (ctx.read("/proc/sys/kernel/osrelease") or "").strip()
    told = {"release": release, "command_line_sha256": hashlib.sha256(line.encode()).hexdigest() if line else ""}
    return {field: value for field, value in told.items() if value}


def _container(ctx: Context) -> str | None:
    """What runs the container that this is; None outside of one."""
    if ctx.exists("/run/.containerenv"):
        return "podman"
    if ctx.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if ctx.exists("/.singularity.d") or ctx.exists("/.apptainer.d"):
        return "apptainer"
    if ctx.exists("/.dockerenv"):
        return "docker"
    if ctx.exists("/proc/sys/fs/binfmt_misc/WSLInterop") or "microsoft" in (ctx.read("/proc/version") or "").lower():
        return "wsl"
    groups = ctx.read(f"/proc/{ctx.settings.pid}/cgroup") or ""
    return next((maker for part, maker in _CONTAINERS if part in groups), None)
