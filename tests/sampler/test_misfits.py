"""Settings that name what is not here: a line each, and sampling goes on."""

from __future__ import annotations

import pytest
from runferry.sampler import SamplerSettings, sample_once
from runferry.sampler.http import StatusError
from runferry.sampler.misfits import idle_probes, misfits
from runferry.sampler.probe import in_words


@pytest.fixture
def warnings_of(machine):
    """What a sampler on the machine says, told these settings."""
    machine.write({"/proc/stat": "cpu0 1 0 0 1\n", "/proc/loadavg": "1 1 1 1/1 1\n"})
    machine.process(4242)

    def warnings_of(**settings):
        told = []
        sample_once(SamplerSettings(**{"pid": 4242, **settings}), pause=0.0, root=str(machine.root), warn=told.append)
        return told

    return warnings_of


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"probes": ("cpu",), "pid": 99}, "there is no process 99"),
        ({"probes": ("load",)}, "probe 'load' does not run: it does only with the setting extended"),
        ({"probes": ("self_usage",)}, "only with the setting self_usage"),
        ({"probes": ("openmetrics",)}, "only with the setting open_metrics_endpoints"),
        ({"probes": ("nvidia",)}, "probe 'nvidia' does not run: what it reads is not on this machine"),
        ({"probes": ("memory",)}, "probe memory is left out: no /proc/meminfo"),
        ({"probes": ("nope",)}, "there is no probe 'nope'; there are "),
        (
            {"probes": ("cpu",), "gpu_device_ids": ("0", "GPU-1")},
            "gpu_device_ids: 0, GPU-1 cannot be sampled: no driver",
        ),
        (
            {"probes": ("disk_usage",), "disk_paths": ("/nope",)},
            "disk_usage:/nope: this path cannot be reached: No such",
        ),
        (
            {"probes": ("cpu",), "open_metrics_http_headers": {"nobody": {"A": "SECRET"}}},
            "there is no endpoint 'nobody'; its headers go nowhere",
        ),
    ],
)
def test_what_names_nothing_is_told_once(warnings_of, settings, words):
    """One line, which has no header's value."""
    (line,) = warnings_of(**settings)
    assert words in line
    assert "SECRET" not in line


def test_what_names_something_is_no_warning(machine):
    """Headers for all and for the exporter, the rule `visible`, a process and probes that are there."""
    machine.write({"/proc/stat": "cpu0 1 0 0 1\n"})
    machine.process(4242)
    headers = {"A": "b", "dcgm_exporter": {"C": "d"}, "e": {"F": "g"}}
    ctx = machine.context(
        probes=("cpu", "load", "nvidia", "self_usage"),
        skip_probes=("nvidia", "self_usage"),  # both: then it does not run, as it should not
        extended=True,
        gpu_device_ids=("visible",),
        open_metrics_endpoints={"e": "http://h"},
        open_metrics_http_headers=headers,
    )
    assert [*misfits(ctx), *idle_probes(ctx)] == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StatusError(401), "it answers 401 Unauthorized"),
        (ValueError("x"), "ValueError: x"),
        (ValueError(), "ValueError"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory: /x"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (TimeoutError("late"), "TimeoutError: late"),
    ],
)
def test_errors_in_words(error, words):
    """Not as Python writes them."""
    assert in_words(error) == words
