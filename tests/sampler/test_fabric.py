"""RDMA ports and network file systems."""

from __future__ import annotations

from runferry.sampler.probes.infiniband import InfinibandProbe
from runferry.sampler.probes.lustre import LustreProbe, read_stats
from runferry.sampler.probes.nfs import NfsProbe, read_mountstats

PORT = "/sys/class/infiniband/mlx5_0/ports/1"
LLITE = "/proc/fs/lustre/llite/scratch-ffff8f00/stats"


def test_rates_and_counts_of_a_port(machine, sampled):
    """Data in bytes per second (ports count words of four), trouble since the sampler began."""
    machine.load("fs-infiniband.json")
    probe = sampled(InfinibandProbe(), machine.context(extended=True))
    machine.write(
        {
            f"{PORT}/counters/port_xmit_data": "250000001000\n",
            f"{PORT}/counters/port_rcv_data": "251000000500\n",
            f"{PORT}/counters/port_xmit_wait": "123460\n",
            f"{PORT}/counters/link_downed": "2\n",
            f"{PORT}/hw_counters/out_of_sequence": "20\n",
            f"{PORT}/hw_counters/np_cnp_sent": "0\n",  # reset
        }
    )
    values = probe.next(after=2.0)
    assert {key.removeprefix("ib.mlx5_0.1."): value for key, value in values.items()} == {
        "xmitBytesRate": 2000.0,
        "rcvBytesRate": 1000.0,
        "xmitWait": 4,
        "symbolErrors": 0,
        "linkDowned": 1,
        "linkRecovery": 0,
        "rcvErrors": 0,
        "xmitDiscards": 0,
        "out_of_sequence": 3,
        "packet_seq_err": 0,
        "local_ack_timeout_err": 0,
        "rnr_nak_retry_err": 0,
        "roce_adp_retrans": 0,
        "np_cnp_sent": 0,
        "rp_cnp_handled": 0,
    }


def test_ports_come_and_go(machine, sampled):
    """A device that is there later starts at its first reading; the counters of 64 bits are preferred."""
    machine.load("fs-infiniband.json")
    probe = sampled(InfinibandProbe(), machine.context(extended=True))
    later = "/sys/class/infiniband/mlx4_0/ports/2"
    data = {f"{later}/counters/port_xmit_data": "4294967295\n", f"{later}/counters/link_downed": "77\n"}
    machine.write(data | {f"{later}/counters_ext/port_xmit_data_64": "8000000000\n"})
    assert probe.next()["ib.mlx4_0.2.linkDowned"] == 0
    machine.write({f"{later}/counters_ext/port_xmit_data_64": "8000000010\n"})
    assert probe.next()["ib.mlx4_0.2.xmitBytesRate"] == 40.0


def test_elastic_fabric_adapter(machine, sampled):
    """It counts bytes, remote reads and writes apart, and drops."""
    folder = "/sys/class/infiniband/rdmap16s27/ports/1/hw_counters"
    for step in (0, 1):
        machine.write({f"{folder}/tx_bytes": f"{1000 + 500 * step}\n", f"{folder}/rx_bytes": f"{300 * step}\n"})
        machine.write({f"{folder}/rdma_read_bytes": f"{10 * step}\n", f"{folder}/rx_drops": f"{6 + step}\n"})
        if not step:
            probe = sampled(InfinibandProbe(), machine.context(extended=True))
    assert probe.next() == {
        "ib.rdmap16s27.1.xmitBytesRate": 500.0,
        "ib.rdmap16s27.1.rcvBytesRate": 300.0,
        "ib.rdmap16s27.1.rdmaReadBytesRate": 10.0,
        "ib.rdmap16s27.1.rxDrops": 1,
    }


def test_nfs_by_mount(machine, sampled):
    """Bytes per second and time to answer between two samples, requests sent again since the sampler began."""
    machine.load("fs-nfs-lustre.json")
    probe = sampled(NfsProbe(), machine.context(extended=True))
    assert probe.next() == {"nfs./data.retrans": 0, "nfs./data.readRate": 0.0, "nfs./data.writeRate": 0.0}
    text = (machine.root / "proc/self/mountstats").read_text()
    read = "READ: 9010 9014 0 1200000 9439184000 450 81050 82000 0"
    text = text.replace("READ: 9000 9001 0 1200000 9437184000 450 81000 82000 0", read)
    machine.write({"/proc/self/mountstats": text})
    assert probe.next(after=2.0) == {
        "nfs./data.readRate": 1_000_000.0,
        "nfs./data.writeRate": 0.0,
        "nfs./data.readRttMs": 5.0,
        "nfs./data.retrans": 3,
    }
    machine.write({"/proc/self/mountstats": ""})
    assert probe.next() == {}


def test_mount_points_with_odd_names():
    """Escapes are undone; other file systems, and what has no statistics, are no NFS."""
    text = (
        "device proc mounted on /proc with fstype proc\n"
        "device s:/a b mounted on /my\\040data with fstype nfs statvers=1.1\n"
        "\tper-op statistics\n\t        READ: 1 1 0 1 2 3 4 5\n\t       WRITE: 1 1\n\t     GETATTR: a b c d e f g h\n"
        "device s:/c mounted on /empty with fstype nfs4 statvers=1.1\n"
    )
    assert read_mountstats(text) == {"/my data": {"READ": (1, 1, 1, 2, 4)}, "/empty": {}}


def test_lustre_by_file_system(machine, sampled):
    """Bytes moved per second and metadata calls per second, over all mounts of a file system."""
    machine.load("fs-nfs-lustre.json")
    before = (machine.root / LLITE.lstrip("/")).read_text()
    machine.write({LLITE: before + "readdir 10 samples [usecs] 1 2 3\ndirty_pages_hits 5 samples [regs]\n"})
    probe = sampled(LustreProbe(), machine.context(extended=True))
    machine.write(
        {
            LLITE: "snapshot_time 1 secs.nsecs\n"
            "read_bytes 12001 samples [bytes] 4096 4194304 50331650000\n"
            "write_bytes 801 samples [bytes] 4096 4194304 3355443300\n"
            "open 520 samples [usecs] 10 9000 120000\n"
            "read 9 samples [usecs] 1 2 3\n"
            "readdir 14 samples [usecs] 1 2 3\n"
            "opencount 700 samples [reqs] 1 2 3\n"
            "dirty_pages_hits 99 samples [regs]\n"
        }
    )
    assert probe.next(after=2.0) == {
        "lustre.scratch.readRate": 1000.0,
        "lustre.scratch.writeRate": 50.0,
        "lustre.scratch.metadataRate": 12.0,
    }
    second = "/sys/kernel/debug/lustre/llite/scratch-aaaa/stats"
    machine.write({second: "open 1000 samples [regs]\n"})
    assert probe.next()["lustre.scratch.metadataRate"] == 0.0  # a mount that comes later adds no burst
    machine.write({second: "open 1003 samples [regs]\n"})
    assert probe.next()["lustre.scratch.metadataRate"] == 3.0


def test_lustre_lines_that_are_cut_off():
    """A line without its sum has no bytes."""
    assert read_stats("read_bytes 5 samples [bytes] 1 2\nopen x samples\nclose 7 samples\nopen\n\n") == {"close": 7}
