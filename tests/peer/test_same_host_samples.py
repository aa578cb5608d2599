"""Two samplers of ours and the peer's look at the same process, host and disk at the same time."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import time

import pytest
from runferry.logformat import load
from runferry.sampler import Sampler, SamplerSettings
from support import peer

INTERVAL = 1.0  # s
WORK = """
import os, random, sys, threading, time
folder = sys.argv[1]
def work(share):
    held, file = [], open(os.path.join(folder, str(os.getpid())), "wb", buffering=0)
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < share / 10:
            pass
        held.append(os.urandom(1 << 17))
        if len(held) > 400:
            del held[:200]
        file.write(bytes(1 << 17))
        os.fdatasync(file.fileno())
        time.sleep(random.uniform(0.02, 0.13))  # in step with no sampler
if os.fork() == 0:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    work(0.1)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
work(0.3)
"""
"""A process and its child: threads, a steady load, memory that grows and is given back, a file that is synced."""
PEER = """
import sys, wandb
settings = wandb.Settings(
    x_stats_sampling_interval=1.0, x_stats_pid=int(sys.argv[1]), x_stats_track_process_tree=True,
    x_stats_disk_paths=("/", "/dev"), console="off",
)
run = wandb.init(mode="offline", settings=settings)
print("ready", flush=True)
sys.stdin.read()
run.finish()
"""
NETWORK = """
import json, os, pathlib, socket, subprocess, sys, time
from runferry.sampler import Sampler, SamplerSettings
subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # the one that was there shows the other interfaces
v6 = pathlib.Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
v6.exists() and v6.write_text("1")
for line in '''
link set lo up
link add bridge0 type bridge
link add member0 type veth peer name guest0
link add plain0 type veth peer name plain1
link set member0 master bridge0
address add 10.9.9.2/24 dev guest0
address add 10.9.8.2/24 dev plain0
'''.split("\\n"):
    line and subprocess.run(["ip", *line.split()], check=True)
for link in ("bridge0", "member0", "guest0", "plain0", "plain1"):
    subprocess.run(["ip", "link", "set", link, "up"], check=True)
theirs = subprocess.Popen([*json.loads(sys.argv[1]), str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert theirs.stdout.readline() == b"ready\\n"
samples = []
sampler = Sampler(SamplerSettings(interval=1.0, probes=("network",), self_metrics=False), samples.append)
sampler.start()
time.sleep(2.5)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for size in range(100, 1000, 10):
        for net, weight in (("9", 1), ("8", 3), ("127", 2)):
            to = "127.0.0.1" if net == "127" else f"10.9.{net}.255"
            for _ in range(weight):
                sender.sendto(bytes(size), (to, 9))
        time.sleep(0.03)
time.sleep(2.5)
sampler.stop()
theirs.communicate()
print(json.dumps(samples[-1].values))
"""
"""In a network namespace of its own: a bridge with a member, a pair of links, loopback; each carries what no other does."""
TOTALS = ("disk.in", "disk.out", ".in", ".out", "network.")
"""Ends and beginnings of keys that count from when a sampler began, which is not the same moment for all."""
ONLY_OURS = {"disk.in", "disk.out"}
"""Keys of the documented list that the peer does not write any more."""
FLOAT32 = 1e-6
"""The peer works with short floats here and there."""


def side_by_side(folder, seconds):
    """What two samplers of ours, half an interval apart, and the peer's saw: key -> [(s since 1970, value)] each."""
    work = subprocess.Popen([sys.executable, "-c", WORK, folder], stdin=subprocess.PIPE)
    command = [peer.PYTHON, "-c", PEER, str(work.pid)]
    theirs = subprocess.Popen(
        command, cwd=folder, env=peer.environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    ours = ([], [])
    settings = SamplerSettings(
        interval=INTERVAL, pid=work.pid, disk_paths=("/", "/dev"), cpu_norm="physical", self_metrics=False
    )
    samplers = [Sampler(settings, found.append) for found in ours]
    try:
        assert theirs.stdout.readline() == b"ready\n"
        samplers[0].start()
        time.sleep(INTERVAL / 2)
        samplers[1].start()
        time.sleep(seconds)
    finally:
        for sampler in samplers:
            sampler.stop()
        theirs.communicate(timeout=60)
        work.communicate(timeout=10)
    (log,) = folder.glob("wandb/*run-*/run-*.wandb")
    samples = load(log).samples
    return [*map(series, ours), series(samples)]


def series(samples):
    found = {}
    for sample in samples:
        for key, value in sample.values.items():
            found.setdefault(key, []).append((sample.timestamp_ns / 1e9, float(value)))
    return found


def at(points, moment):
    """The value at a moment, on the line between the readings around it."""
    index = bisect.bisect_right(points, (moment, math.inf))
    (t0, v0), (t1, v1) = points[index - 1], points[index]
    return v0 + (v1 - v0) * (moment - t0) / (t1 - t0)


def differences(first, second, window, *, total):
    """`second` - `first` at the readings of `first` in the window; of totals, what they differ by more than at first."""
    begin, end = window
    found = [at(second, moment) - value for moment, value in first if begin <= moment < end]
    base = statistics.median(found[: len(found) // 4]) if total else 0.0
    return [difference - base for difference in found]


def disagreements(ours, again, theirs):
    """Keys of which the peer's values are further from ours than the noise of two samplers of ours allows.

    The median of the differences, of totals that of the last quarter, may be that of the noise and four of its
    standard errors; nine of ten differences may be twice the largest of the noise. Where there is no noise the values
    are the same. Medians, because a single event between two readings is no disagreement.
    """
    found = {}
    for key in sorted((ours.keys() & theirs.keys()) - ONLY_OURS):
        lines = ours[key], again[key], theirs[key]
        window = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
        total = key.startswith(TOTALS) or key.endswith(TOTALS)
        noise = differences(lines[0], lines[1], window, total=total)
        apart = differences(lines[0], lines[2], window, total=total)
        tail = len(noise) // 4 if total else len(noise)
        tiny = FLOAT32 * max(abs(value) for _, value in lines[0])
        allowed = abs(statistics.median(noise[-tail:])) + 4 * statistics.pstdev(noise) / math.sqrt(tail) + tiny
        farthest = 2 * max(map(abs, noise)) + tiny
        middle = statistics.median(apart[-tail:])
        usual = sorted(map(abs, apart))[int(0.9 * (len(apart) - 1))]
        if abs(middle) > allowed or usual > farthest:
            found[key] = f"median {middle:.4g} (allowed {allowed:.4g}), nine of ten {usual:.4g} ({farthest:.4g})"
    return found


@pytest.fixture
def seen(tmp_path, request):
    if reason := peer.missing():
        pytest.skip(reason)
    return side_by_side(tmp_path, request.param)


HOST = {
    "cpu",
    "proc.cpu.threads",
    "proc.memory.rssMB",
    "proc.memory.percent",
    "memory_percent",
    "proc.memory.availableMB",
    "disk./.usagePercent",
    "disk./.usageGB",
    "disk./dev.usagePercent",
    "network.sent",
    "network.recv",
    "network.tcpRetransmits",
}


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peer reads other sources elsewhere")
@pytest.mark.parametrize("seen", [60], indirect=True)
def test_a_minute_side_by_side(seen):
    """Every key that both write agrees within the noise of two samplers of ours; the peer has none that we lack."""
    ours, again, theirs = seen
    assert ours.keys() == again.keys()
    assert theirs.keys() >= HOST
    assert {key for key in theirs if not key.startswith("gpu.")} - ours.keys() == set()
    for line in itertools.chain(ours.values(), theirs.values()):
        assert len(line) >= 55
    assert disagreements(ours, again, theirs) == {}


def test_what_counts_as_agreement():
    """The same value seen at other moments agrees, with one event between two readings; a scale or an offset does not."""
    chance = random.Random(1)
    steps = list(itertools.accumulate(chance.uniform(0, 2) for _ in range(700)))

    def seen_by(phase, *, scale=1.0, offset=0.0, event=0.0):
        moments = [phase + second + chance.uniform(0, 0.01) for second in range(60)]
        return {
            "cpu": [(moment, scale * (20 + steps[int(10 * moment)] % 3) + offset) for moment in moments],
            "disk.vda.out": [
                (moment, scale * (steps[int(10 * moment)] - steps[int(10 * phase)])) for moment in moments
            ],
            "proc.cpu.threads": [(moment, scale * 4) for moment in moments],
            "network.sent": [(moment, scale * event * (moment > 30.3)) for moment in moments],
        }

    ours, again = seen_by(0.1, event=60.0), seen_by(0.6, event=60.0)
    assert disagreements(ours, again, seen_by(0.4, event=60.0)) == {}
    assert disagreements(ours, again, seen_by(0.4, scale=1.1, event=60.0)).keys() == ours.keys()
    assert disagreements(ours, again, seen_by(0.4, offset=2, event=60.0)).keys() == {"cpu"}


def in_a_namespace(folder, *command):
    """Run a command in new user and network namespaces; skip where that is not allowed."""
    whole = ["unshare", "--map-root-user", "--net", "--mount", *command]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare, or no ip")
    trial = [
        *whole[:4],
        "sh",
        "-c",
        "mount -t sysfs sysfs /sys && ip link add x type veth && ip link add y type bridge",
    ]
    if subprocess.run(trial, check=False, capture_output=True).returncode:
        pytest.skip("no network namespaces for us here")
    environ = peer.environment(folder)
    return subprocess.run(whole, check=False, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="network namespaces are Linux's")
def test_which_interfaces_count(tmp_path):
    """Bytes on a bridge, its member, links and loopback: the peer and we count the same ones, to the byte."""
    if reason := peer.missing():
        pytest.skip(reason)
    command = json.dumps([str(peer.PYTHON), "-c", PEER])
    done = in_a_namespace(tmp_path, sys.executable, "-c", NETWORK, command)
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("wandb/*run-*/run-*.wandb")
    ours, theirs = json.loads(done.stdout.splitlines()[-1]), load(log).samples[-1].values
    assert {key: ours[key] for key in ("network.sent", "network.recv")} == {
        key: theirs[key] for key in ("network.sent", "network.recv")
    }
    assert ours["network.sent"] > 100_000
