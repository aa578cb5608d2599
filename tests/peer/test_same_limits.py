"""The peer and we in containers: control groups as files, which both are made to take for their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from runferry.logformat import load
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probes.cpu import CpuProbe
from runferry.sampler.probes.memory import MemoryProbe
from support import peer

FIXTURES = peer.ROOT / "fixtures" / "sampler"
REDIRECT = peer.ROOT / "tests" / "sampler" / "fake" / "redirect.c"
PEER = """
import os, sys, wandb
pid = int(sys.argv[1])
run = wandb.init(mode="offline", settings=wandb.Settings(x_stats_sampling_interval=1.0, x_stats_pid=pid, console="off"))
print("ready", flush=True)
sys.stdin.read()
run.finish()
"""
BOTH = ("memory_percent", "proc.memory.availableMB", "proc.memory.oomKills", "proc.cpu.throttledPercent")


class Container:
    """The files of a fixture below a folder, for a process that lives."""

    def __init__(self, name, root, pid):
        self.root, self.pid = root, pid
        self.write(
            {
                path.replace("/4242/", f"/{pid}/"): text
                for path, text in json.loads((FIXTURES / name).read_text()).items()
            }
        )

    def write(self, files):
        for path, text in files.items():
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def change(self):
        """Kills and throttled periods that come while both are sampling."""
        self.write(
            {
                "/sys/fs/cgroup/c1/memory.events": "oom 3\noom_kill 4\n",
                "/sys/fs/cgroup/c1/cpu.stat": "nr_periods 1100\nnr_throttled 150\nthrottled_usec 9000000\n",
            }
        )


@pytest.fixture
def work():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def by_us(container):
    """What our probes see: key -> all its values."""
    ctx = Context(SamplerSettings(pid=container.pid), root=str(container.root), own_pids=set())
    probes = CpuProbe(), MemoryProbe()
    seen = {}
    for step in range(4):
        if step == 2:
            container.change()
        ctx.begin(1000.0 + step)
        for probe in probes:
            values = {}
            probe.sample(ctx, values)
            for key, value in values.items():
                seen.setdefault(key, []).append(value)
    return seen


def by_the_peer(container, folder):
    """The same of the peer, opening its files below the container's folder."""
    if reason := peer.missing():
        pytest.skip(reason)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "redirect.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, REDIRECT, "-ldl"], check=True)
    own = f"/proc/{container.pid}"
    environ = peer.environment(
        folder,
        LD_PRELOAD=str(library),
        REDIRECTED=f"{own}/cgroup:{own}/mountinfo:/sys/fs/cgroup",
        REDIRECT_TO=str(container.root),
    )
    command = [peer.PYTHON, "-c", PEER, str(container.pid)]
    process = subprocess.Popen(command, cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(2.5)
        container.change()
        time.sleep(2.5)
    finally:
        process.communicate(timeout=60)
    (log,) = folder.glob("wandb/*run-*/run-*.wandb")
    seen = {}
    for sample in load(log).samples:
        for key, value in sample.values.items():
            seen.setdefault(key, []).append(value)
    return seen


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups are Linux's")
def test_a_pod_is_the_same_to_both(tmp_path, work):
    """62.5 % of the pod's limit, 12 GiB left, the same kills and throttled periods when they come."""
    ours = by_us(Container("cgroup-v2-k8s.json", tmp_path / "ours", work.pid))
    theirs = by_the_peer(Container("cgroup-v2-k8s.json", tmp_path / "theirs", work.pid), tmp_path)
    assert set(ours["memory_percent"]) == {62.5}
    for key in BOTH:
        assert set(ours[key]) == set(theirs[key]), key
    assert set(ours["proc.memory.oomKills"]) == {0, 3}
    assert ours["proc.cpu.throttledPercent"] == [25.0]


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups are Linux's")
@pytest.mark.parametrize("name", ["cgroup-v2-slurm-nested.json", "cgroup-v1-docker.json"])
def test_limits_that_the_peer_does_not_see(tmp_path, work, name):
    """A limit on an ancestor, or of version 1: 75 % to us; the peer tells the host's memory."""
    assert set(by_us(Container(name, tmp_path / "ours", work.pid))["memory_percent"]) == {75.0}
    theirs = by_the_peer(Container(name, tmp_path / "theirs", work.pid), tmp_path)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for percent, free in zip(theirs["memory_percent"], theirs["proc.memory.availableMB"], strict=True):
        assert percent == pytest.approx(100 * (1 - free * 2**20 / total), abs=0.1)
