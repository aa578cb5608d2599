"""Apple silicon: what the system prints and counts, made into values."""

from __future__ import annotations

import json
import math
import plistlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler.probes.apple_figures import (
    Accelerator,
    Channel,
    Tables,
    accelerator_values,
    chip_values,
    describe,
    parse_accelerator,
    parse_tables,
    powermetrics_values,
    sensor_values,
    system_power,
)
from runferry.sampler.probes.apple_memory import memory_values
from runferry.sampler.probes.apple_tools import parse_sysctl

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"
SWAP = "vm.swapusage: total = 2048.00M  used = 512.50M  free = 1535.50M  (encrypted)\n"


def counted():
    """The fixture as (channels, tables, seconds)."""
    told = json.loads((FIXTURES / "apple-ioreport-delta.json").read_text())
    channels = [
        Channel(
            entry["group"],
            entry["subgroup"],
            entry["channel"],
            entry.get("unit", ""),
            entry.get("value"),
            [tuple(state) for state in entry.get("states", ())],
        )
        for entry in told["channels"]
    ]
    tables = {kind: tuple(float(mhz) for mhz in row if mhz) for kind, row in told["dvfs_mhz"].items()}
    return channels, Tables(**tables), told["duration_ms"] / 1000


def test_what_ioreg_prints():
    """The driver's own figures: load and memory in use of what is allocated."""
    accelerator = parse_accelerator((FIXTURES / "apple-ioreg-IOAccelerator.plist").read_bytes())
    assert accelerator_values(accelerator) == {"gpu.0.gpu": 73.0, "gpu.0.memoryAllocated": 37.5}
    assert accelerator.cores == 19


def test_what_ioreport_counts():
    """Powers are energy by time in any unit; loads and frequencies are weighted by the time in each state."""
    values = chip_values(*counted())
    assert values == {
        "gpu.0.powerWatts": pytest.approx(9.12, abs=0.005),
        "cpu.powerWatts": pytest.approx(4.812),
        "ane.power": 0.0,
        "gpu.0.gpu": pytest.approx(100 * (0.1 * 444 + 0.63 * 1398) / 1398),
        "gpu.0.freq": pytest.approx((0.1 * 444 + 0.63 * 1398) / 0.73),
        "cpu.ecpu_percent": pytest.approx(100 * (0.15 * 912 + 0.15 * 1800 + 0.1 * 2424) / 2424),
        "cpu.ecpu_freq": pytest.approx(1623.0),
        "cpu.pcpu_percent": pytest.approx(100 * (0.3 * 1200 + 0.5 * 3504) / 3504),
        "cpu.pcpu_freq": pytest.approx(2640.0),
    }
    assert chip_values(counted()[0], counted()[1], 4.0)["gpu.0.powerWatts"] == pytest.approx(2.28, abs=0.005)


def test_power_percent_where_the_limit_is_known():
    """Of the one chip whose limit the documented metric names; left out for others and where a power is missing."""
    channels, tables, seconds = counted()
    values = chip_values(channels, tables, seconds, chip="Apple M1")
    assert values["gpu.0.powerPercent"] == pytest.approx(100 * (9.12025 + 4.812) / 16.5)
    assert "gpu.0.powerPercent" not in chip_values(channels, tables, seconds, chip="Apple M2 Pro")
    assert "gpu.0.powerPercent" not in chip_values(channels[:2], tables, seconds, chip="Apple M1")


def test_missing_or_foreign_tables_cost_their_keys_only():
    """Without frequencies there is no load by frequency; powers and the other cores stay."""
    channels, tables, seconds = counted()
    values = chip_values(channels, tables._replace(gpu=(), ecpu=(1.0, 2.0)), seconds)
    assert not {"gpu.0.gpu", "gpu.0.freq", "cpu.ecpu_percent"} & set(values)
    assert {"gpu.0.powerWatts", "cpu.pcpu_percent"} <= set(values)
    assert "gpu.0.gpu" not in chip_values(channels, tables._replace(gpu=(1.0, 2.0, 3.0)), seconds)


def test_idle_cores():
    """A GPU that is off runs at 0 MHz; cores that did nothing have no frequency; no time passed, no value."""
    off = Channel("GPU Stats", "GPU Performance States", "GPUPH", states=[("OFF", 10), ("P1", 0)])
    core = Channel(
        "CPU Stats", "CPU Core Performance States", "ECPU000", states=[("DOWN", 3), ("IDLE", 7), ("V0P0", 0)]
    )
    tables = Tables((600.0,), (600.0,), (444.0,))
    assert chip_values([off, core], tables, 1.0) == {"gpu.0.gpu": 0.0, "gpu.0.freq": 0.0, "cpu.ecpu_percent": 0.0}
    assert chip_values([off._replace(states=[("OFF", 0), ("P1", 0)])], tables, 1.0) == {}


def test_several_dies_and_renamed_cores():
    """Chips of two dies have channels per die, newer chips call their slower cores M: all are counted once."""
    states = [("IDLE", 50), ("V0P0", 50)]
    named = ["DIE_0_ECPU0", "PCPU0", "ECPU", "ECPM0"]
    channels = [Channel("CPU Stats", "CPU Core Performance States", name, states=states) for name in named]
    busy = [("IDLE", 0), ("V0P0", 100)]
    channels.append(Channel("CPU Stats", "CPU Core Performance States", "DIE_1_MCPU1", states=busy))
    channels += [Channel("Energy Model", "", f"DIE_{die}_CPU Energy", "mJ", 1500) for die in (0, 1)]
    values = chip_values(channels, Tables((1000.0,), (2000.0,), ()), 1.0)
    assert values == {
        "cpu.ecpu_percent": 75.0,
        "cpu.ecpu_freq": 1000.0,
        "cpu.pcpu_percent": 50.0,
        "cpu.pcpu_freq": 2000.0,
        "cpu.powerWatts": 3.0,
    }


@pytest.mark.parametrize(("unit", "watts"), [("mJ", 5.0), ("uJ", 0.005), ("nJ", 0.000005)])
def test_units_of_energy(unit, watts):
    """Thousandths, millionths and thousand-millionths of a joule, by second."""
    values = chip_values([Channel("Energy Model", "", "GPU Energy", unit, 10_000)], Tables(), 2.0)
    assert values == {"gpu.0.powerWatts": pytest.approx(watts)}


@pytest.mark.parametrize(("unit", "value"), [("kJ", 1), ("mJ", -5), ("mJ", None)])
def test_energy_that_is_none(unit, value):
    """An unknown unit, a counter set back and a missing number are left out."""
    assert chip_values([Channel("Energy Model", "", "GPU Energy", unit, value)], Tables(), 1.0) == {}


def pmgr(**tables):
    return plistlib.dumps([{"name": "other"}, {"IOName": "pmgr", **tables}])


def pairs(*frequencies):
    return b"".join(struct.pack("<II", frequency, 700) for frequency in frequencies)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (
            {"voltage-states1-sram": pairs(600_000_000, 2_064_000_000), "voltage-states5-sram": pairs(3_204_000_000)},
            Tables((600.0, 2064.0), (3204.0,), ()),
        ),
        (
            {
                "voltage-states1-sram": pairs(1_020_000),
                "voltage-states5-sram": pairs(4_512_000),
                "voltage-states9": pairs(0, 338_000_000),
            },
            Tables((1020.0,), (4512.0,), (338.0,)),
        ),
        (
            {
                "acc-clusters": bytes([22, 0, *[0] * 6, 23, 1, *[0] * 6, 5, 2, *[0] * 6]),
                "voltage-states23-sram": pairs(1_344_000),
                "voltage-states5-sram": pairs(4_608_000),
            },
            Tables((1344.0,), (4608.0,), ()),
        ),
        ({}, Tables()),
        ({"voltage-states1-sram": b"123", "voltage-states5-sram": "text", "acc-clusters": b""}, Tables()),
    ],
    ids=["hertz", "kilohertz", "ranked clusters", "none", "odd"],
)
def test_tables_of_frequencies(tables, expected):
    """In Hz or, from the M4 on, kHz; the entry for off is no frequency; newer chips rank their clusters."""
    assert parse_tables(pmgr(**tables)) == expected


def test_sensors():
    """The mean of sensors that are connected, from the controller, else by name; none is no value."""
    told = json.loads((FIXTURES / "apple-smc-keys.json").read_text())
    hid = told.pop("hid")
    smc = {key: entry["value"] for key, entry in told.items()}
    assert sensor_values(smc, hid) == {"gpu.0.temp": 48.5, "cpu.avg_temp": pytest.approx((51.25 + 53.75 + 47) / 3)}
    assert sensor_values({"Tp01": 0.0, "Tg05": -4.0, "Te05": 200.0}, hid) == {
        "gpu.0.temp": 47.9,
        "cpu.avg_temp": pytest.approx((50.1 + 46.4) / 2),
    }
    assert sensor_values({"Tg05": math.nan}, {}) == {}


@pytest.mark.parametrize(("told", "watts"), [(21.4, 21.4), (5.0, 13.9), (None, None), (0.0, None), (math.nan, None)])
def test_power_of_the_system_is_no_less_than_the_chip_s(told, watts):
    """The controller averages over longer than a sample; what it does not tell is left out."""
    values = {"cpu.powerWatts": 4.8, "gpu.0.powerWatts": 9.1, "gpu.0.gpu": 99.0}
    system_power(values, told)
    assert values.get("system.powerWatts") == (None if watts is None else pytest.approx(watts))


def test_powermetrics():
    """Its mW become W, its Hz MHz (the GPU's are MHz already); a NUL before the list is passed over."""
    data = (FIXTURES / "apple-powermetrics.plist").read_bytes()
    assert powermetrics_values(data) == powermetrics_values(b"\0" + data + b"\n\0")
    assert powermetrics_values(data) == {
        "gpu.0.freq": 1298.0,
        "gpu.0.powerWatts": pytest.approx(9.12025),
        "cpu.powerWatts": pytest.approx(4.8125),
        "ane.power": 0.0,
        "cpu.ecpu_percent": pytest.approx(38.0),
        "cpu.ecpu_freq": 1900.0,
        "cpu.pcpu_percent": pytest.approx(79.0),
        "cpu.pcpu_freq": 3100.0,
    }


def test_powermetrics_of_several_clusters():
    """Cores of one kind in several clusters: the mean of both, for loads and frequencies."""
    clusters = [{"name": f"P{n}-Cluster", "idle_ratio": 0.2 + 0.4 * n, "freq_hz": 1e9 * (n + 1)} for n in (0, 1)]
    assert powermetrics_values(plistlib.dumps({"processor": {"clusters": [*clusters, {"name": "P9"}, "odd"]}})) == {
        "cpu.pcpu_percent": pytest.approx(60.0),
        "cpu.pcpu_freq": 1500.0,
    }


def test_memory():
    """Active, inactive, wired, speculative and compressed pages, less purgeable ones and files; swap by sysctl."""
    vm_stat = (FIXTURES / "apple-vm_stat.txt").read_text()
    used = (512000 + 480000 + 160000 + 12000 + 80000 - 9000 - 300000) * 16384
    assert memory_values(vm_stat, parse_sysctl(f"hw.memsize: {16 << 30}\n{SWAP}")) == {
        "memory.used": used,
        "memory.used_percent": pytest.approx(100 * used / (16 << 30)),
        "swap.used": int(512.5 * (1 << 20)),
        "swap.used_percent": pytest.approx(25.02, abs=0.005),
    }
    assert memory_values(vm_stat, {}) == {"memory.used": used}
    assert memory_values(vm_stat.replace("Pages active", "Pages busy"), {}) == {}
    assert memory_values(vm_stat, {"hw.memsize": "0"}) == memory_values(vm_stat, {"hw.memsize": "9" * 30})
    assert memory_values("", {"vm.swapusage": "total = 0.00M  used = 0.00M"}) == {"swap.used": 0}


def test_the_record():
    """Names and counts by sysctl, cores of the GPU by its driver; unknown ones are left out."""
    told = parse_sysctl(
        f"hw.memsize: {32 << 30}\nhw.model: Mac14,9\nhw.perflevel0.physicalcpu: 6\nhw.perflevel1.physicalcpu: 4\n"
        f"machdep.cpu.brand_string: Apple M2 Pro\n{SWAP}"
    )
    assert describe(told, Accelerator(None, None, None, 19)) == {
        "name": "Apple M2 Pro",
        "pcpu_cores": 6,
        "ecpu_cores": 4,
        "gpu_cores": 19,
        "memory_gb": 32,
        "ram_total_bytes": 32 << 30,
        "swap_total_bytes": 2 << 30,
        "mac_model": "Mac14,9",
    }
    assert describe({}, None) == {}


TREES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text("abE ", max_size=8) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["PerformanceStatistics", "Device Utilization %", "In use system memory", "Alloc system memory", "processor",
             "clusters", "name", "idle_ratio", "freq_hz", "gpu", "gpu_power", "model", "gpu-core-count", "acc-clusters",
             "voltage-states1-sram", "voltage-states5-sram", "voltage-states9"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(TREES)
def test_any_property_list_is_survived(tree):
    """Whatever tree in the list: no exception, and only finite numbers come out."""
    data = plistlib.dumps(tree)
    values = powermetrics_values(data)
    for found in (parse_accelerator(data), parse_accelerator(plistlib.dumps([tree]))):
        values |= accelerator_values(found) if found is not None else {}
    tables = parse_tables(plistlib.dumps([tree]))
    assert all(math.isfinite(value) for value in [*values.values(), *tables.ecpu, *tables.pcpu, *tables.gpu])


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_survived(data):
    """Half a list, another format, nothing: no exception."""
    assert parse_accelerator(data) is None
    assert parse_tables(data) == Tables()
    assert powermetrics_values(data) == {}
    memory_values(data.decode("utf-8", "replace"), parse_sysctl(data.decode("utf-8", "replace")))


STATES = st.lists(st.tuples(st.sampled_from(["IDLE", "OFF", "P1", "P2"]), st.integers(-5, 2**63 - 1)), max_size=4)
CHANNELS = st.builds(
    Channel,
    st.sampled_from(["Energy Model", "CPU Stats", "GPU Stats", ""]),
    st.sampled_from(["CPU Core Performance States", "GPU Performance States", ""]),
    st.sampled_from(["GPUPH", "ECPU0", "PCPU1", "GPU Energy", "ANE", "CPU Energy"]),
    st.sampled_from(["mJ", "nJ", ""]),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    STATES,
)
MHZ = st.lists(st.floats(0.001, 1e4), max_size=3).map(tuple)


@given(st.lists(CHANNELS, max_size=6), st.builds(Tables, MHZ, MHZ, MHZ), st.floats(allow_nan=False))
def test_any_counts_are_survived(channels, tables, seconds):
    """Whatever was counted over whatever time: finite numbers or nothing."""
    values = chip_values(channels, tables, seconds, chip="Apple M1")
    assert all(math.isfinite(value) for value in values.values())
