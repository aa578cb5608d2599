"""What of a run's settings reaches the sampler, samples that stay in memory, and pauses between a notebook's cells."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
import types
from datetime import datetime, timezone

import pytest
from runferry.sampler import Sampler, SamplerSettings
from runferry.writer import attendant
from runferry.writer.sampling import SampleBuffer, sampler_settings
from runferry.writer.settings import Settings, SettingsError, resolve

GIVEN = {
    "STATS_PID": ("17", "pid", 17),
    "SAMPLE_INTERVAL": ("2.5", "interval", 2.5),
    "PROCESS_TREE": ("false", "process_tree", False),
    "DISK_PATHS": ("/a,/b", "disk_paths", ("/a", "/b")),
    "LABEL": ("n0", "label", "n0"),
    "PROBES": ("cpu, memory", "probes", ("cpu", "memory")),
    "SKIP_PROBES": ("nvidia", "skip_probes", ("nvidia",)),
    "PROBE_INTERVALS": ("amd=60", "probe_intervals", {"amd": 60.0}),
    "GPU_DEVICE_IDS": ("0,2", "gpu_device_ids", ("0", "2")),
    "NO_CGROUP": ("true", "no_cgroup", True),
    "CPU_NORM": ("physical", "cpu_norm", "physical"),
    "PER_CORE": ("true", "per_core", True),
    "PER_INTERFACE": ("true", "per_interface", True),
    "EXTENDED": ("true", "extended", True),
    "SEED_ALIASES": ("false", "seed_aliases", False),
    "SELF_METRICS": ("false", "self_metrics", False),
    "SELF_USAGE": ("true", "self_usage", True),
    "KEY_CAP": ("100", "key_cap", 100),
    "CPU_COUNT": ("3", "cpu_count", 3),
    "CPU_LOGICAL_COUNT": ("6", "cpu_logical_count", 6),
    "GPU_COUNT": ("8", "gpu_count", 8),
    "GPU_TYPE": ("G", "gpu_type", "G"),
    "NEURON_MONITOR_CONFIG_PATH": ("/n.json", "neuron_monitor_config_path", "/n.json"),
    "OPEN_METRICS_ENDPOINTS": ("a=http://a/m", "open_metrics_endpoints", {"a": "http://a/m"}),
    "OPEN_METRICS_FILTERS": ('{"a": {"b": "c"}}', "open_metrics_filters", {"a": {"b": "c"}}),
    "OPEN_METRICS_HTTP_HEADERS": ('{"A": "b"}', "open_metrics_http_headers", {"A": "b"}),
    "DCGM_EXPORTER": ("http://d/q", "dcgm_exporter", "http://d/q"),
    "DCGM_PROFILING": ("1", "dcgm_profiling", True),
    "POWERMETRICS": ("1", "powermetrics", True),
    "COREWEAVE_METADATA_BASE_URL": ("http://c/", "coreweave_metadata_base_url", "http://c"),
    "COREWEAVE_METADATA_ENDPOINT": ("/m", "coreweave_metadata_endpoint", "/m"),
}
"""Variable behind RUNFERRY_ -> its text, the sampler's field, and the value there."""

PEERS = {
    **{f"X_STATS_{name}": name for name in GIVEN},
    "X_STATS_PID": "STATS_PID",
    "X_STATS_SAMPLING_INTERVAL": "SAMPLE_INTERVAL",
    "X_STATS_TRACK_PROCESS_TREE": "PROCESS_TREE",
    "X_LABEL": "LABEL",
    "ENABLE_DCGM_PROFILING": "DCGM_PROFILING",
}
"""Variable behind WANDB_ -> the same behind RUNFERRY_."""


def test_every_setting_reaches_the_sampler():
    """Each of the sampler's settings can be given to a run, and arrives."""
    environ = {f"RUNFERRY_{name}": text for name, (text, _, _) in GIVEN.items()}
    resolved = resolve(Settings(), None, environ)
    assert resolved.warnings == ()
    found = dataclasses.asdict(sampler_settings(resolved, pid=1, label=""))
    assert found == {field: value for _, field, value in GIVEN.values()}


@pytest.mark.parametrize("variable", sorted(set(PEERS) - {f"X_STATS_{name}" for name in GIVEN} | {
    "X_STATS_DISK_PATHS", "X_STATS_GPU_DEVICE_IDS", "X_STATS_NO_CGROUP", "X_STATS_SELF_USAGE", "X_STATS_CPU_COUNT",
    "X_STATS_CPU_LOGICAL_COUNT", "X_STATS_GPU_COUNT", "X_STATS_GPU_TYPE", "X_STATS_NEURON_MONITOR_CONFIG_PATH",
    "X_STATS_OPEN_METRICS_ENDPOINTS", "X_STATS_OPEN_METRICS_FILTERS", "X_STATS_OPEN_METRICS_HTTP_HEADERS",
    "X_STATS_DCGM_EXPORTER", "X_STATS_COREWEAVE_METADATA_BASE_URL", "X_STATS_COREWEAVE_METADATA_ENDPOINT",
}))  # fmt: skip
def test_the_peers_variables_reach_the_sampler(variable):
    """The peer's name of a setting means the same."""
    text, field, value = GIVEN[PEERS[variable]]
    resolved = resolve(Settings(), None, {f"WANDB_{variable}": text})
    assert getattr(sampler_settings(resolved, pid=1, label=""), field) == value


def test_defaults_reach_the_sampler():
    """Without settings the sampler has its own defaults, the run's process and the node's label."""
    found = sampler_settings(resolve(Settings(), None, {}), pid=42, label="node3")
    assert found == SamplerSettings(pid=42, label="node3")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dcgm_exporter", "ftp://host"),
        ("dcgm_exporter", "http://user:word@host/"),
        ("open_metrics_endpoints", {"a": "localhost:9100"}),
        ("open_metrics_endpoints", "just text"),
        ("open_metrics_endpoints", ["http://a"]),
        ("probe_intervals", {"cpu": "often"}),
        ("probe_intervals", {"cpu": -1}),
        ("probe_intervals", {"cpu": float("nan")}),
        ("key_cap", 0),
        ("stats_buffer_size", -2),
        ("open_metrics_filters", {"a": "b"}),
    ],
)
def test_values_that_a_setting_cannot_have(name, value):
    """A wrong value is named with what the setting takes."""
    with pytest.raises(SettingsError, match=f"{name} takes "):
        resolve(Settings(**{name: value}), None, {})


def test_values_of_headers_are_shown_nowhere():
    """A header may hold a token: no list, message or representation has it."""
    resolved = resolve(Settings(open_metrics_http_headers={"X-Thing": "5ec2e7"}), None, {})
    assert "5ec2e7" not in repr(resolved)
    assert "5ec2e7" not in repr(sampler_settings(resolved, pid=1, label=""))
    warned = resolve(Settings(), None, {"RUNFERRY_OPEN_METRICS_HTTP_HEADERS": '{"X-Thing": "5ec2e7"'}).warnings
    assert len(warned) == 1
    assert "5ec2e7" not in warned[0]


def test_the_buffer_keeps_the_last_values_of_each_key():
    """The newest so many by key, without the run's label, with the time in UTC; -1 keeps all, 0 none."""
    at = datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=timezone.utc)
    start_ns = 1_714_564_800_250_000_000
    kept = {}
    for size in (2, -1, 0):
        buffer = SampleBuffer(size, "n0")
        for number in range(3):
            buffer.add(start_ns + number, {"cpu/l:n0": number, "gpu.0.temp/l:x/l:n0": 1})
        kept[size] = buffer.by_key()
    assert kept[2] == {"cpu": [(at, 1.0), (at, 2.0)], "gpu.0.temp/l:x": [(at, 1.0), (at, 1.0)]}
    assert [value for _, value in kept[-1]["cpu"]] == [0, 1, 2]
    assert kept[0] == {}


def test_a_run_has_its_system_metrics(begin):
    """With a buffer `run._system_metrics` has what was sampled, as in the peer; without one it is empty, and after the end."""
    assert begin()._system_metrics == {}
    run = begin(disable_stats=False, stats_buffer_size=5, probes=["memory"])
    deadline = time.monotonic() + 10
    while not run._system_metrics and time.monotonic() < deadline:
        time.sleep(0.01)
    ((at, value),) = run._system_metrics["memory_percent"]
    assert abs(at.timestamp() - time.time()) < 60
    assert 0 < value < 100
    run.finish()
    assert run._system_metrics == {}


def test_only_the_primary_writer_records_the_machine(begin, state):
    """One of several writers of a run says what the machine is; the others sample."""
    found = {}
    for primary in (True, False):
        run = begin(disable_stats=False, disable_meta=False, primary=primary, probes=["memory"])
        folded = state(*run.finish().paths)
        found[primary] = bool(folded.environment)
    assert found == {True: True, False: False}


class Events:
    """The callbacks of a notebook's shell."""

    def __init__(self):
        self.hooks = []

    def register(self, event, hook):
        self.hooks.append((event, hook))

    def unregister(self, event, hook):
        self.hooks.remove((event, hook))

    def trigger(self, event):
        for name, hook in list(self.hooks):
            if name == event:
                hook(object())


def test_nothing_is_sampled_between_cells(monkeypatch, tmp_path):
    """In a notebook sampling rests from the end of a cell to the beginning of the next; the run's end undoes that."""
    events = Events()
    shell = type("ZMQInteractiveShell", (), {"events": events})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    stats, arrived = [], threading.Condition()
    settings = resolve(
        Settings(disable_meta=True, sample_interval=0.1, probes=["memory"], dir=tmp_path), None, dict(os.environ)
    )
    found = attendant.Attendant(settings, lambda job: None, 0, print)

    def emit(sample):
        with arrived:
            stats.append(sample)
            arrived.notify_all()

    monkeypatch.setattr(found, "_emit", emit)
    found.start()

    def more():
        with arrived:
            count = len(stats)
            assert arrived.wait_for(lambda: len(stats) > count + 1, 10)

    more()
    events.trigger("post_run_cell")
    time.sleep(0.15)  # a tick may be under way
    with arrived:
        count = len(stats)
        assert not arrived.wait_for(lambda: len(stats) > count, 0.3)
    events.trigger("pre_run_cell")
    more()
    found.stop(2.0)
    assert events.hooks == []


def test_a_pause_before_the_sampler_is_there_holds():
    """Whoever pauses while the sampler is being made gets one that is paused; resuming undoes it."""
    found = attendant.Attendant(resolve(Settings(), None, {}), lambda job: None, 0, print)
    found.pause()
    assert found._paused
    sampler = Sampler(SamplerSettings(), lambda sample: None)
    found._sampler = sampler
    found.pause()
    assert sampler._paused
    found.resume()
    assert not sampler._paused
