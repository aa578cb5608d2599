"""Which probes there are: our own by name, those of other packages by entry point."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator

from .probe import Probe
from .settings import SamplerSettings

ENTRY_POINTS = "runferry.probes"  # group in which other packages offer subclasses of Probe

# name -> module:class, imported when a sampler starts
BUILT_IN = {
    "cpu": ".probes.cpu:CpuProbe",
    "memory": ".probes.memory:MemoryProbe",
    "disk_usage": ".probes.disk_usage:DiskUsageProbe",
    "disk_io": ".probes.disk_io:DiskIoProbe",
    "network": ".probes.network:NetworkProbe",
    "portable": ".probes.portable:PortableProbe",
    "psi": ".probes.psi:PsiProbe",
    "cgroup": ".probes.cgroup_events:CgroupEventsProbe",
    "host_cpu": ".probes.host_cpu:HostCpuProbe",
    "host_memory": ".probes.host_memory:HostMemoryProbe",
    "vmstat": ".probes.vmstat:VmstatProbe",
    "load": ".probes.load:LoadProbe",
    "cpu_temperature": ".probes.cpu_temperature:CpuTemperatureProbe",
    "shm": ".probes.shm:ShmProbe",
    "proc_io": ".probes.proc_io:ProcIoProbe",
    "proc_waits": ".probes.proc_waits:ProcWaitsProbe",
    "proc_files": ".probes.proc_files:ProcFilesProbe",
    "proc_groups": ".probes.proc_groups:ProcGroupsProbe",
    "proc_memory": ".probes.proc_memory:ProcMemoryProbe",
    "infiniband": ".probes.infiniband:InfinibandProbe",
    "net_links": ".probes.net_links:NetLinksProbe",
    "tcp": ".probes.tcp:TcpProbe",
    "nfs": ".probes.nfs:NfsProbe",
    "lustre": ".probes.lustre:LustreProbe",
    "rapl": ".probes.rapl:RaplProbe",
    "self_usage": ".probes.self_usage:SelfUsageProbe",
    "nvidia": ".probes.nvidia:NvidiaProbe",
    "dcgm": ".probes.nvidia_dcgm:DcgmDaemonProbe",
    "amd": ".probes.amd:AmdProbe",
    "amd_sysfs": ".probes.amd:AmdSysfsProbe",
    "amd_command": ".probes.amd:AmdCommandProbe",
    "apple": ".probes.apple:AppleProbe",
    "apple_memory": ".probes.apple_memory:AppleMemoryProbe",
    "ipu": ".probes.ipu:IpuProbe",
    "tpu": ".probes.tpu:TpuProbe",
    "trainium": ".probes.trainium:TrainiumProbe",
    "openmetrics": ".probes.openmetrics:OpenMetricsProbe",
    "dcgm_exporter": ".probes.dcgm_exporter:DcgmExporterProbe",
}


def load(reference: str, package: str | None = __package__) -> type[Probe]:
    """The class that `module:class` names (a leading dot: in this package)."""
    module, _, name = reference.partition(":")
    found: type[Probe] = getattr(importlib.import_module(module, package), name)
    return found


def load_modules() -> None:
    """Import what the threads of a sampler would import later.

    A module that one thread imports while another forks stays locked in the child for ever.
    """
    importlib.import_module("importlib.metadata")
    importlib.import_module(".supervisor", __package__)
    if os.name == "posix":
        importlib.import_module("pwd")  # for the user's name
    for reference in BUILT_IN.values():
        load(reference)


def chosen(settings: SamplerSettings, name: str) -> bool:
    """Whether the settings let probe `name` run."""
    return (settings.probes is None or name in settings.probes) and name not in settings.skip_probes


def built_in(settings: SamplerSettings) -> Iterator[Probe]:
    """Our own probes, as the settings choose."""
    for name, reference in BUILT_IN.items():
        if chosen(settings, name):
            yield from load(reference).instances(settings)


def third_party(settings: SamplerSettings, warn: Callable[[str], None]) -> Iterator[Probe]:
    """Probes of installed packages. One that cannot be loaded, takes a name of ours, or is not there: a warning."""
    from importlib.metadata import entry_points  # slow: read after the first sample

    entries = entry_points(group=ENTRY_POINTS)
    known = {*BUILT_IN, *(entry.name for entry in entries)}
    for name in sorted({*(settings.probes or ()), *settings.skip_probes, *settings.probe_intervals} - known):
        warn(f"there is no probe {name!r}; there are {', '.join(sorted(known))}")
    for entry in entries:
        if entry.name in BUILT_IN:
            warn(f"probe {entry.name!r} of {entry.value} is not used: the name is taken")
        elif chosen(settings, entry.name):
            try:
                yield from entry.load().instances(settings)
            except Exception as error:  # code of others must not end sampling
                warn(f"probe {entry.name!r} of {entry.value} cannot be loaded: {error!r}")
