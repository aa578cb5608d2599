"""What `extended` adds of the host: a machine that is a folder."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from runferry.sampler import ProbeUnavailableError
from runferry.sampler.probes.cpu_temperature import CpuTemperatureProbe
from runferry.sampler.probes.host_cpu import HostCpuProbe
from runferry.sampler.probes.host_memory import HostMemoryProbe
from runferry.sampler.probes.load import LoadProbe
from runferry.sampler.probes.net_links import NetLinksProbe
from runferry.sampler.probes.rapl import RaplProbe
from runferry.sampler.probes.shm import ShmProbe
from runferry.sampler.probes.tcp import TcpProbe
from runferry.sampler.probes.vmstat import VmstatProbe


@pytest.fixture
def ctx(machine):
    return machine.context(extended=True)


def test_host_cpu_split(machine, ctx, sampled):
    """Shares of all CPUs' time; nice counts as user, soft interrupts as irq; a time that fell is left out once."""
    machine.write({"/proc/stat": "cpu  100 10 50 800 20 5 5 10 7 7\ncpu0 1 1 1 1 1 1 1 1\n"})
    probe = sampled(HostCpuProbe(), ctx)
    machine.write({"/proc/stat": "cpu  140 20 70 900 40 8 7 15 9 9\ncpu0 1 1 1 1 1 1 1 1\n"})
    assert probe.next() == {
        "host.cpu.user": 25.0,
        "host.cpu.system": 10.0,
        "host.cpu.iowait": 10.0,
        "host.cpu.irq": 2.5,
        "host.cpu.steal": 2.5,
    }
    assert probe.next() == {}  # no time has passed
    machine.write({"/proc/stat": "cpu  240 20 70 900 39 8 7 15 9 9\n"})
    values = probe.next()
    assert "host.cpu.iowait" not in values
    assert values["host.cpu.steal"] == 0.0
    machine.write({"/proc/stat": "cpu  240 20\n"})
    assert probe.next() == {}


def test_host_memory_and_swap(machine, ctx, sampled):
    """MiB of page cache and what is to be written; swap in bytes and per cent, no share of none."""
    info = {"Cached": 2048, "Dirty": 1024, "Writeback": 512, "Shmem": 256, "Slab": 128}
    lines = "".join(f"{name}: {mib * 1024} kB\n" for name, mib in info.items())
    machine.write({"/proc/meminfo": f"{lines}HugePages_Free:  7\nSwapTotal: 4000 kB\nSwapFree: 1000 kB\n"})
    probe = sampled(HostMemoryProbe(), ctx)
    assert probe.next() == {
        "host.memory.cachedMB": 2048,
        "host.memory.dirtyMB": 1024,
        "host.memory.writebackMB": 512,
        "host.memory.shmemMB": 256,
        "host.memory.slabMB": 128,
        "host.memory.hugepagesFree": 7,
        "swap.used": 3000 * 1024,
        "swap.used_percent": 75.0,
    }
    machine.write({"/proc/meminfo": "SwapTotal: 0 kB\nSwapFree: 0 kB\n"})
    assert probe.next() == {"swap.used": 0}


def test_vmstat_rates(machine, ctx, sampled):
    """Per second since the last sample, stalls over all zones; a counter that fell is left out once."""
    before = "pgmajfault 100\noom_kill 1\npswpin 5\npswpout 5\nallocstall_dma 1\nallocstall_normal 2\nother 1\n"
    machine.write({"/proc/vmstat": before})
    probe = sampled(VmstatProbe(), ctx)
    machine.write({"/proc/vmstat": "pgmajfault 200\noom_kill 2\npswpin 4\nallocstall_dma 2\nallocstall_normal 7\n"})
    assert probe.next(after=2.0) == {
        "host.vm.majorFaultsRate": 50.0,
        "host.vm.oomKillsRate": 0.5,
        "host.vm.allocStallRate": 3.0,
    }


def test_load_and_uptime(machine, ctx, sampled):
    """As the kernel has them; what is no number is left out."""
    machine.write({"/proc/loadavg": "5.46 2.93 x 7/144 3810\n", "/proc/uptime": "36257.61 22693.77\n"})
    assert sampled(LoadProbe(), ctx).next() == {"system.load1": 5.46, "system.load5": 2.93, "system.uptime": 36257.61}
    machine.write({"/proc/loadavg": "nan inf 0.5", "/proc/uptime": ""})
    assert sampled(LoadProbe(), ctx).next() == {"system.load15": 0.5}


def hwmon(number, driver, **sensors):
    folder = f"/sys/class/hwmon/hwmon{number}"
    files = {f"{folder}/name": f"{driver}\n"}
    for index, (label, degrees) in enumerate(sensors.items(), 1):
        files[f"{folder}/temp{index}_label"] = label.replace("_", " ") + "\n"
        files[f"{folder}/temp{index}_input"] = f"{degrees}\n"
    return files


def test_temperature_of_the_cpus(machine, ctx, sampled):
    """The mean of all packages; sensors of other parts, and cores where there are packages, are left aside."""
    machine.write(hwmon(0, "nvme", Composite=90000))
    machine.write(hwmon(1, "coretemp", Package_id_0=61000, Core_0=80000))
    machine.write(hwmon(2, "coretemp", Package_id_1=-1000))
    machine.write({"/sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n"})
    probe = sampled(CpuTemperatureProbe(), ctx)
    assert probe.next() == {"cpu.avg_temp": 30.0}
    machine.write({"/sys/class/hwmon/hwmon1/temp1_input": ""})
    assert probe.next() == {"cpu.avg_temp": -1.0}


def test_temperature_from_other_sensors(machine, sampled):
    """On AMD the die before the control value; else a thermal zone of the CPU; else there is no such probe."""
    machine.write({"/sys/class/thermal/thermal_zone0/type": "acpitz\n"})
    with pytest.raises(ProbeUnavailableError, match="no sensor of a CPU"):
        CpuTemperatureProbe().open(machine.context(extended=True))
    zone = "/sys/class/thermal/thermal_zone1"
    machine.write({f"{zone}/type": "cpu-thermal\n", f"{zone}/temp": "42500\n"})
    assert sampled(CpuTemperatureProbe(), machine.context(extended=True)).next() == {"cpu.avg_temp": 42.5}
    machine.write(hwmon(0, "k10temp", Tctl=70000, Tccd1=50000, Tdie=60000))
    assert sampled(CpuTemperatureProbe(), machine.context(extended=True)).next() == {"cpu.avg_temp": 60.0}


def test_shared_memory(machine, ctx, sampled, monkeypatch):
    """Used blocks of all; without a size there is no share."""
    machine.write({"/dev/shm/x": ""})
    sizes = {"f_blocks": 1000, "f_bfree": 250}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**sizes))
    probe = sampled(ShmProbe(), ctx)
    assert probe.next() == {"shm.usedPercent": 75.0}
    sizes["f_blocks"] = 0
    assert probe.next() == {}


def links(**interfaces):
    """/proc/net/dev: interface -> (bytes, errors, drops) received, the same sent."""
    rows = [f"{name}: {a} 1 {b} {c} 0 0 0 0 {d} 1 {e} {f} 0 0 0 0" for name, (a, b, c, d, e, f) in interfaces.items()]
    return {"/proc/net/dev": "Inter-|   Receive\n face |bytes packets\n" + "\n".join(rows) + "\n"}


def test_trouble_and_load_of_interfaces(machine, ctx, sampled):
    """Counts since the sampler began and the share of the line's speed, for interfaces with hardware behind them."""
    machine.write(links(eth0=(0, 1, 2, 0, 3, 4), eth1=(0, 0, 0, 0, 0, 0), veth7=(0, 0, 0, 0, 0, 0)))
    for name, speed in (("eth0", "10000\n"), ("eth1", "-1\n")):
        machine.write({f"/sys/class/net/{name}/device/x": "", f"/sys/class/net/{name}/speed": speed})
    probe = sampled(NetLinksProbe(), ctx)
    machine.write(links(eth0=(125_000_000, 2, 4, 250_000_000, 6, 8), eth1=(0, 0, 0, 0, 0, 0), veth7=(0, 1, 1, 0, 1, 1)))
    assert probe.next() == {
        "net.eth0.drops": 6,
        "net.eth0.errors": 4,
        "net.eth0.speedMbps": 10000,
        "net.eth0.utilPercent": 20.0,
        "net.eth1.drops": 0,
        "net.eth1.errors": 0,
    }
    machine.write({"/sys/class/net/eth0/speed": "25000\n"})
    speeds = [probe.next()["net.eth0.speedMbps"] for _ in range(20)]
    assert speeds[17:] == [10000, 25000, 25000]


def test_interfaces_of_a_container(machine, ctx, sampled):
    """Where no interface has hardware behind it, all but loopback are told."""
    machine.write(links(lo=(0, 0, 0, 0, 0, 0), eth0=(0, 0, 0, 0, 0, 0)))
    assert set(sampled(NetLinksProbe(), ctx).next()) == {"net.eth0.drops", "net.eth0.errors"}


def test_tcp(machine, ctx, sampled):
    """Segments sent again per second, connections refused since the sampler began, closed ones that linger."""
    machine.write({"/proc/net/snmp": "Tcp: RtoMin RetransSegs\nTcp: 200 40\n"})
    machine.write({"/proc/net/netstat": "TcpExt: TW ListenDrops\nTcpExt: 9 5\nIpExt: A\nIpExt: 1\n"})
    machine.write({"/proc/net/sockstat": "sockets: used 22\nTCP: inuse 1 orphan 0 tw 19 alloc 1 mem 28\n"})
    probe = sampled(TcpProbe(), ctx)
    machine.write({"/proc/net/snmp": "Tcp: RtoMin RetransSegs\nTcp: 200 44\n"})
    machine.write({"/proc/net/netstat": "TcpExt: TW ListenDrops\nTcpExt: 9 8\n"})
    assert probe.next(after=2.0) == {"tcp.retransRate": 2.0, "tcp.listenDrops": 3, "tcp.timeWait": 19}
    machine.write({"/proc/net/snmp": "Tcp: RtoMin\n", "/proc/net/netstat": "", "/proc/net/sockstat": "TCP: tw\n"})
    assert probe.next() == {}


def rapl(zone, name, energy, wraps_at=""):
    folder = f"/sys/class/powercap/{zone}"
    return {f"{folder}/name": name, f"{folder}/energy_uj": f"{energy}\n", f"{folder}/max_energy_range_uj": wraps_at}


def test_energy_of_the_cpus(machine, ctx, sampled):
    """Power between two samples and energy since the sampler began, by zone, across the counter's wrap."""
    machine.write(rapl("intel-rapl:0", "package-0\n", 100_000_000, "262143328850\n"))
    machine.write(rapl("intel-rapl:0:0", "dram\n", 262_143_000_000, "262143328850\n"))
    machine.write(rapl("intel-rapl-mmio:0", "package-0\n", 5, "9\n"))
    machine.write(rapl("intel-rapl:1", "psys\n", 1000))
    probe = sampled(RaplProbe(), ctx)
    machine.write(rapl("intel-rapl:0", "package-0\n", 500_000_000, "262143328850\n"))
    machine.write(rapl("intel-rapl:0:0", "dram\n", 671_150, "262143328850\n"))
    machine.write(rapl("intel-rapl:1", "psys\n", 10))
    assert probe.next(after=2.0) == {
        "rapl.package-0.powerWatts": 200.0,
        "rapl.package-0.energyJoules": 400.0,
        "rapl.package-0-dram.powerWatts": 0.5,
        "rapl.package-0-dram.energyJoules": 1.0,
        "rapl.psys.energyJoules": 0.0,  # it fell and does not say where it wraps
    }


def test_energy_that_cannot_be_read(machine, ctx):
    """Where the kernel keeps it from us, or has none, the reason says so."""
    machine.write({"/sys/class/powercap/intel-rapl:0/name": "package-0\n"})
    with pytest.raises(ProbeUnavailableError, match="takes root"):
        RaplProbe().open(ctx)
