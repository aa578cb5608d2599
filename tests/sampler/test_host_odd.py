"""Kernel files with anything in them: no probe of the host fails, clamps, or makes up a number."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.sampler import ProbeUnavailableError, SamplerSettings, registry
from runferry.sampler.context import Context
from runferry.sampler.metric import Kind

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
STAT = "{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 {n} 5 {n} 3 2 1 20 0 4 0 {started} 0 {n} 0 0\n"
HOST = [
    "cpu",
    "cgroup",
    "cpu_temperature",
    "disk_io",
    "disk_usage",
    "host_cpu",
    "host_memory",
    "infiniband",
    "load",
    "lustre",
    "memory",
    "net_links",
    "network",
    "nfs",
    "proc_files",
    "proc_groups",
    "proc_io",
    "proc_memory",
    "proc_waits",
    "psi",
    "rapl",
    "shm",
    "tcp",
    "vmstat",
]


def files(n):
    """A machine in which every probe of the host finds something; its counters grow with `n`."""
    found = {}
    for name in ("cgroup-v2-k8s.json", "fs-infiniband.json", "fs-nfs-lustre.json"):
        found |= json.loads((FIXTURES / name).read_text())
    for pid, parent, name in ((4242, 1, "python3"), (10, 4242, "pt_data_worker"), (11, 10, "ptxas")):
        found[f"/proc/{pid}/stat"] = STAT.format(pid=pid, name=name, parent=parent, n=n, started=pid)
        found[f"/proc/{pid}/cmdline"] = "python3\0train.py\0"
        found[f"/proc/{pid}/io"] = f"rchar: {n}\nwchar: {n}\nread_bytes: {n}\nwrite_bytes: {n}\n"
        found[f"/proc/{pid}/schedstat"] = f"{n} {n} {n}\n"
        found[f"/proc/{pid}/smaps_rollup"] = f"Rss: 5 kB\nPss: {n} kB\nPrivate_Dirty: {n} kB\n"
        found[f"/proc/{pid}/limits"] = "Max open files            1024      4096      files\n"
        found[f"/proc/{pid}/task/{pid}/children"] = {4242: "10", 10: "11", 11: ""}[pid]
    for name in ("stat", "io", "cmdline", "smaps_rollup", "fd/0"):
        found[f"/proc/self/{name}"] = ""
    found["/proc/10/status"] = f"voluntary_ctxt_switches:\t{n}\nnonvoluntary_ctxt_switches:\t{n}\n"
    return found | {
        "/proc/stat": f"cpu  {n} 2 3 {n} 5 6 7 8 9 10\ncpu0 {n} 2 3 {n} 5 6 7 8 9 10\n",
        "/proc/meminfo": f"MemTotal: 90000000 kB\nMemAvailable: {n} kB\nSwapTotal: 9 kB\nSwapFree: 5 kB\n"
        + "".join(f"{name}: {n} kB\n" for name in ("Cached", "Dirty", "Writeback", "Shmem", "Slab", "HugePages_Free")),
        "/proc/vmstat": f"pgmajfault {n}\noom_kill {n}\npswpin {n}\npswpout {n}\nallocstall_dma {n}\n",
        "/proc/loadavg": "1.5 2.5 3.5 1/2 3\n",
        "/proc/uptime": "5.5 6.6\n",
        "/proc/diskstats": f"8 0 sda {n} 0 {n} {n} {n} 0 {n} {n} 0 {n} {n}\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n",
        "/proc/self/mountinfo": "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 1 0:9 / /data rw - nfs4 s:/d rw\n",
        "/sys/class/block/sda1/partition": "1\n",
        "/proc/net/dev": f" face |bytes\n lo: 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\neth0: {n} 2 {n} {n} 5 6 7 8 {n} 1 2 3 4 5 6 7\n",
        "/sys/class/net/eth0/speed": "100\n",
        "/proc/net/snmp": f"Tcp: RtoMin RetransSegs\nTcp: 200 {n}\n",
        "/proc/net/netstat": f"TcpExt: TW ListenDrops\nTcpExt: 9 {n}\n",
        "/proc/net/sockstat": "TCP: inuse 1 orphan 0 tw 19\n",
        "/proc/pressure/cpu": f"some avg10=1.00 total={n}\nfull avg10=1.00 total={n}\n",
        "/sys/class/hwmon/hwmon0/name": "coretemp\n",
        "/sys/class/hwmon/hwmon0/temp1_label": "Package id 0\n",
        "/sys/class/hwmon/hwmon0/temp1_input": "45000\n",
        "/sys/class/powercap/intel-rapl:0/name": "package-0\n",
        "/sys/class/powercap/intel-rapl:0/energy_uj": f"{n}\n",
        "/sys/devices/system/cpu/online": "0-15\n",
        "/proc/self/mountstats": "device s:/d mounted on /data with fstype nfs4 statvers=1.1\n"
        f"\tage:\t5\n\t        READ: {n} {n} 0 {n} {n} 4 {n} 8 0\n\t       WRITE: {n} {n} 1 {n} 9 12 {n} 9 1\n",
        "/sys/fs/cgroup/c1/cpu.stat": f"nr_periods {n}\nnr_throttled {n // 2}\nthrottled_usec {n}\n",
        "/dev/shm/x": "",
    }


LINKS = {
    "/sys/dev/block/8:1": "../../devices/block/sda/sda1",
    "/sys/class/block/sda1": "../../devices/block/sda/sda1",
}


class Memory(Context):
    """A machine that is a dict: path -> text."""

    def __init__(self, files, root):
        chosen = SamplerSettings(pid=4242, extended=True, per_core=True, per_interface=True, disk_paths=("/", "/data"))
        super().__init__(chosen, root=root, own_pids={11})
        self.files = files
        self.begin(1000.0)

    def read(self, path):
        return self.files.get(path)

    def exists(self, path):
        return path in self.files or path in LINKS or any(file.startswith(path + "/") for file in self.files)

    def list(self, path):
        below = path.rstrip("/") + "/"
        return sorted({file.removeprefix(below).split("/")[0] for file in self.files if file.startswith(below)})

    def link(self, path):
        return LINKS.get(path)


class Host:
    """The host's probes on one such machine. What raises, fails the test."""

    def __init__(self, files, root):
        self.ctx = Memory(files, root)
        self.probes = []
        for name in HOST:
            for probe in registry.load(registry.BUILT_IN[name]).instances(self.ctx.settings):
                try:
                    if probe.discover(self.ctx) is None:
                        probe.open(self.ctx)
                        self.probes.append(probe)
                except ProbeUnavailableError:
                    pass

    def sample(self, files, after=1.0):
        self.ctx.files = files
        self.ctx.begin(self.ctx.now + after)
        values = {}
        for probe in self.probes:
            written = {}
            probe.sample(self.ctx, written)
            for key, value in written.items():
                assert type(value) in {int, float}, (key, value)
                assert math.isfinite(value), (key, value)
                assert any(metric.matches(key) for metric in probe.metrics), key
            assert not values.keys() & written
            values |= written
        return values


FIRST, SECOND = files(1000), files(3000)
ODD = st.one_of(
    st.sampled_from(
        ["-1", "-99999", "0", "", "max", "N/A", "1e308", "nan", "18446744073709551615", "9" * 5000, "²", "٣"]
    ),
    st.integers().map(str),
    st.text(max_size=8),
)


@st.composite
def damaged(draw, whole):
    """`whole` with some files gone, cut off, replaced, or with odd words in place of some of their words."""
    found = dict(whole)
    for path in draw(st.lists(st.sampled_from(sorted(whole)), min_size=1, max_size=6, unique=True)):
        text = found.pop(path)
        how = draw(st.sampled_from(["gone", "cut", "replaced", "words"]))
        if how == "cut":
            found[path] = text[: draw(st.integers(0, len(text)))]
        elif how == "replaced":
            found[path] = draw(ODD | st.text())
        elif how == "words" and text:
            words = text.split(" ")
            for index in draw(st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=4)):
                words[index] = draw(ODD)
            found[path] = " ".join(words)
    return found


@settings(max_examples=60, deadline=None)
@given(damaged(FIRST), damaged(SECOND), st.sampled_from([FIRST, SECOND]))
def test_anything_in_any_file(root, first, second, third):
    """Values stay finite numbers under declared keys, whatever the files hold, while sampling and while opening."""
    host = Host(first, root)
    for each in (first, second, third, second):
        host.sample(each)


@settings(max_examples=60, deadline=None)
@given(damaged(SECOND))
def test_what_is_damaged_costs_its_own_keys(root, broken):
    """After a look at damaged files all keys are there again."""
    host, unharmed = Host(FIRST, root), Host(FIRST, root)
    host.sample(broken)
    host.sample(SECOND)
    unharmed.sample(SECOND)
    unharmed.sample(SECOND)
    last, expected = host.sample(files(3000)), unharmed.sample(files(3000))
    assert set(expected) <= set(last)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder for statvfs."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "dev/shm").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "proc/4242/fd/0").mkdir(parents=True)
    return str(folder)


def test_every_probe_of_the_host_finds_something(root):
    """The machine of these tests has a value of every form of key that is told of Linux hosts."""
    host = Host(FIRST, root)
    host.sample(SECOND)
    values = host.sample(files(4000))
    never = {metric.key for probe in host.probes for metric in probe.metrics if not any(map(metric.matches, values))}
    assert {probe.name for probe in host.probes} == set(HOST)
    adapter = ("rdmaReadBytesRate", "rdmaWriteBytesRate", "rxDrops")  # of another kind of port
    assert never == {f"ib.{{device}}.{{port}}.{key}" for key in adapter}


def test_one_bad_line_costs_one_device(root):
    """A disk, an interface, a process whose line makes no sense leaves the others as they are."""
    host = Host(FIRST, root)
    host.sample(SECOND)
    expected = host.sample(files(4000))
    more = files(5000)
    for path, line in (
        ("/proc/diskstats", "8 16 sdb 1 2 x 4 5 6 7 8 9 10 11\n8 32\n"),
        ("/proc/net/dev", "eth1: 1 2 -\n eth2\n: 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\n"),
        ("/proc/vmstat", "pgmajfault\nnonsense x\n"),
        ("/proc/meminfo", "Dirty: lots kB\nMemTotal\n"),
        ("/proc/self/mountstats", "\tREAD: 1 2\ndevice x\n"),
        ("/proc/4242/task/4242/children", " 999 x -5"),
    ):
        more[path] += line
    more["/proc/999/stat"] = "999 (torn"
    assert set(host.sample(more)) == set(expected)


def test_two_samples_at_one_moment(root):
    """Where no time has passed there are no rates; the next sample has them again."""
    host = Host(FIRST, root)
    host.sample(SECOND)
    intervals = [metric for probe in host.probes for metric in probe.metrics if metric.kind is Kind.INTERVAL]
    at_once = host.sample(files(4000), after=0.0)
    rates = {key for key in at_once if any(metric.matches(key) for metric in intervals)}
    assert {key for key in rates if not key.startswith(("cpu.0.", "host.cpu."))} == set()  # those are of CPU time
    assert set(host.sample(files(5000))) > set(at_once)


def test_odd_but_true_values_are_told_as_they_are(root):
    """Below zero and above 100 %: free memory above the whole, a cold sensor, more CPU time than there are CPUs."""
    host = Host(FIRST, root)
    odd = SECOND | {
        "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 1500 kB\nSwapTotal: 5 kB\nSwapFree: 9 kB\n",
        "/sys/class/hwmon/hwmon0/temp1_input": "-5500\n",
        "/sys/fs/cgroup/c1/memory.max": "max\n",
        "/sys/fs/cgroup/c1/cpu.max": "10000 100000\n",
    }
    for _ in range(20):
        host.sample(odd)
    stat = STAT.format(pid=4242, name="python3", parent=1, n=9000, started=4242)
    values = host.sample(odd | {"/proc/4242/stat": stat})
    assert values["memory_percent"] == -50.0
    assert values["swap.used_percent"] == -80.0
    assert values["cpu.avg_temp"] == -5.5
    assert values["cpu"] > 100
