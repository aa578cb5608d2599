"""Which probes there are: our own by name, those of other packages by entry point."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from .context import Context
from .probe import Probe, Tier, in_words
from .settings import SamplerSettings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "runferry.probes"  # group in which other packages offer subclasses of Probe

# name -> module:class, imported when a sampler starts that may need it
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


# A module costs up to 5 ms of CPU: one is imported only where these let it. Probe -> what asks for it.
_EXTENDED = (
    "psi",
    "cgroup",
    "host_cpu",
    "host_memory",
    "vmstat",
    "load",
    "cpu_temperature",
    "shm",
    "proc_io",
    "proc_waits",
    "proc_files",
    "proc_groups",
    "proc_memory",
    "infiniband",
    "net_links",
    "tcp",
    "nfs",
    "lustre",
    "rapl",
)
REQUESTS: dict[str, Callable[[SamplerSettings], object]] = {
    **dict.fromkeys(_EXTENDED, lambda settings: settings.extended),
    "self_usage": lambda settings: settings.self_usage,
    "dcgm": lambda settings: settings.dcgm_profiling,
    "openmetrics": lambda settings: settings.open_metrics_endpoints,
    "dcgm_exporter": lambda settings: settings.dcgm_exporter,
}
_NVIDIA = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_AMD = ("/sys/module/amdgpu", "/sys/class/kfd")


def _amd(ctx: Context) -> object:
    return any(map(ctx.exists, _AMD)) or any(name.startswith("card") for name in ctx.list("/sys/class/drm"))


def _nvidia(ctx: Context) -> object:
    return sys.platform == "win32" or any(map(ctx.exists, _NVIDIA))


def _tpu(ctx: Context) -> object:
    from .probes.tpu_chips import find_chips  # a tenth of the probe

    return find_chips(ctx)


def _trainium(ctx: Context) -> object:
    driver = "/sys/devices/virtual/neuron_device"
    return ctx.exists(driver) or any(name.startswith("neuron") for name in ctx.list("/dev"))


def _ipu(_ctx: Context) -> object:
    try:
        return importlib.util.find_spec("gcipuinfo")
    except (ImportError, ValueError):  # something of that name without a file
        return True


# Probe -> a look at a few files that is true wherever its device is. The probe's own `discover` looks more closely.
SIGNS: dict[str, Callable[[Context], object]] = {
    "nvidia": _nvidia,
    "dcgm": _nvidia,
    "amd": _amd,
    "amd_sysfs": _amd,
    "amd_command": _amd,
    "apple": lambda ctx: ctx.exists("/usr/sbin/ioreg"),
    "apple_memory": lambda ctx: ctx.exists("/usr/bin/vm_stat"),
    "ipu": _ipu,
    "tpu": _tpu,
    "trainium": _trainium,
    "portable": lambda ctx: not ctx.exists("/proc/stat"),
}


def load(reference: str, package: str | None = __package__) -> type[Probe]:
    """The class that `module:class` names (a leading dot: in this package)."""
    module, _, name = reference.partition(":")
    found: type[Probe] = getattr(importlib.import_module(module, package), name)
    return found


def chosen(settings: SamplerSettings, name: str) -> bool:
    """Whether the settings let probe `name` run."""
    return (settings.probes is None or name in settings.probes) and name not in settings.skip_probes


def wanted(ctx: Context) -> Iterator[str]:
    """The names of our own probes that the settings let run and that a first look does not rule out."""
    settings = ctx.settings
    for name in BUILT_IN:
        if not chosen(settings, name) or (name in REQUESTS and not REQUESTS[name](settings)):
            continue
        try:
            here = name not in SIGNS or SIGNS[name](ctx)
        except Exception:  # a module of that probe is damaged: loading it tells
            here = True
        if here:
            yield name


def load_modules(settings: SamplerSettings) -> None:
    """Import what the threads of a sampler with these settings would import later, but for what is of other packages.

    A module that one thread imports while another forks stays locked in the child for ever. Probes of other packages,
    and what finds them, are imported while `Sampler.loading`.
    """
    if os.name == "posix":
        importlib.import_module("pwd")  # for the user's name
    for name in wanted(Context(settings)):
        try:
            tier = load(BUILT_IN[name]).tier
        except Exception:  # noqa: S112 - `built_in` warns of it
            continue
        if tier is Tier.HELPER:
            importlib.import_module(".supervisor", __package__)


def built_in(settings: SamplerSettings, warn: Callable[[str], None], *, root: str = "/") -> Iterator[Probe]:
    """Our own probes, as the settings choose, but for those of devices that are not here.

    One that cannot be loaded: a warning.
    """
    for name in wanted(Context(settings, root=root)):
        try:
            yield from load(BUILT_IN[name]).instances(settings)
        except Exception as error:  # a file of the package is damaged, or not ours: the others go on without it
            warn(f"probe {name!r} cannot be loaded: {in_words(error)}")


def _offers() -> Sequence[EntryPoint]:
    """The entry points of other packages' probes."""
    if not _may_be_offered(sys.path):
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def _may_be_offered(places: Iterable[str]) -> bool:
    """Whether a package below one of `places` may have probes: a look that is true where `entry_points` finds any.

    That one, with what it imports, takes 20 ms of CPU and 3 MB, and most machines have no such package.
    """
    for place in map(Path, places):
        if place.is_file():  # a zip file, or the like
            return True
        try:
            found = os.listdir(place)  # noqa: PTH208 - hundreds of names
        except OSError:  # not there: nothing is imported from it either
            continue
        for name in found:
            if not name.lower().endswith((".dist-info", "egg-info")):
                continue
            try:
                if ENTRY_POINTS.encode() in (place / name / "entry_points.txt").read_bytes():
                    return True
            except OSError:  # it has none
                continue
    return any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder)


def unknown_probes(settings: SamplerSettings, known: Collection[str]) -> Iterator[str]:
    """A line for each probe that the settings name and that there is not."""
    for name in sorted({*(settings.probes or ()), *settings.skip_probes, *settings.probe_intervals} - set(known)):
        yield f"there is no probe {name!r}; there are {', '.join(sorted(known))}"


def third_party(settings: SamplerSettings, warn: Callable[[str], None]) -> Iterator[Probe]:
    """Probes of installed packages. One that cannot be loaded, takes a name of ours, or is not there: a warning."""
    entries = _offers()
    for line in unknown_probes(settings, {*BUILT_IN, *(entry.name for entry in entries)}):
        warn(line)
    for entry in entries:
        if entry.name in BUILT_IN:
            warn(f"probe {entry.name!r} of {entry.value} is not used: the name is taken")
        elif chosen(settings, entry.name):
            try:
                yield from entry.load().instances(settings)
            except Exception as error:  # code of others must not end sampling
                warn(f"probe {entry.name!r} of {entry.value} cannot be loaded: {in_words(error)}")
