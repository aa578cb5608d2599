"""Settings that name what is not here: sampling goes on without it, and says so once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import registry
from .context import Context
from .settings import SamplerSettings

_OF_DEVICES = ("nvidia", "amd")  # that follow `gpu_device_ids`
_SETTING = {  # that a probe asks for; else it is `extended`
    "self_usage": "self_usage",
    "dcgm": "dcgm_profiling",
    "openmetrics": "open_metrics_endpoints",
    "dcgm_exporter": "dcgm_exporter",
}


def misfits(ctx: Context) -> Iterator[str]:
    """A line for each setting that names nothing. Looks only at files that answer at once; paths of disks are no such."""
    settings = ctx.settings
    if ctx.exists("/proc/stat") and not ctx.exists(f"/proc/{settings.pid}"):
        yield f"there is no process {settings.pid}: nothing is known of the process (cpu, proc.*)"
    wanted = settings.gpu_device_ids
    if wanted and "visible" not in wanted and not any(registry.SIGNS[name](ctx) for name in _OF_DEVICES):
        yield f"gpu_device_ids: {', '.join(wanted)} cannot be sampled: no driver of NVIDIA or AMD is on this machine"
    yield from _headers_of_nobody(settings)


def idle_probes(ctx: Context) -> Iterator[str]:
    """A line for each of our probes that is asked for by name and that a first look rules out."""
    settings = ctx.settings
    for name in settings.probes or ():
        if name in settings.skip_probes:
            continue
        if name in registry.REQUESTS and not registry.REQUESTS[name](settings):
            yield f"probe {name!r} does not run: it does only with the setting {_SETTING.get(name, 'extended')}"
        elif name in registry.SIGNS and not registry.SIGNS[name](ctx):
            yield f"probe {name!r} does not run: what it reads is not on this machine"


def _headers_of_nobody(settings: SamplerSettings) -> Iterator[str]:
    endpoints = {*settings.open_metrics_endpoints, "dcgm_exporter"}
    for name, headers in settings.open_metrics_http_headers.items():
        if isinstance(headers, Mapping) and name not in endpoints:
            yield f"open_metrics_http_headers: there is no endpoint {name!r}; its headers go nowhere"
