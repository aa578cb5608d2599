"""The JSON of amd-smi and rocm-smi by version, and how the programs are run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler.command import CommandError
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes import amd_command
from runferry.sampler.probes.amd import AmdCommandProbe
from runferry.sampler.probes.amd_command import CommandSource
from runferry.sampler.probes.amd_source import figure, reading

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


def text(name):
    return (FIXTURES / name).read_text()


def rocm_smi(name):
    return {
        position: amd_command.rocm_smi_reading(card)
        for position, card in amd_command.rocm_smi_cards(text(name)).items()
    }


def test_rocm_smi_by_version():
    """ROCm 5, 6 on MI250 and MI300X, and 7: each documented field under its key, powers from whichever field tells."""
    five, six, three = (
        rocm_smi("rocm-smi-5x-mi250.json"),
        rocm_smi("rocm-smi-6x-mi250.json"),
        rocm_smi("rocm-smi-6x-mi300x.json"),
    )
    assert five[0] == {
        "gpu": 90.0,
        "memoryAllocated": 31.0,
        "memoryReadWriteActivity": 31.0,
        "memoryOverDrive": 0.0,
        "temp": 45.0,
        "powerWatts": 312.0,
        "powerPercent": pytest.approx(100 * 312 / 560),
        "energyJoules": 107100.0,
    }
    assert six[0] == {
        "gpu": 99.0,
        "memoryAllocated": 62.0,
        "memoryReadWriteActivity": 37.0,
        "memoryOverDrive": 0.0,
        "temp": 53.0,
        "powerWatts": 405.0,
        "powerPercent": pytest.approx(100 * 405 / 560),
        "energyJoules": pytest.approx(93000.0000005),
    }
    assert three[1]["powerWatts"] == 612.0
    assert three[1]["powerPercent"] == pytest.approx(81.6)
    assert three[1]["memoryAllocated"] == 88.0


def test_card10_is_not_card1():
    """Cards go by their number, not by the order of their names."""
    five = rocm_smi("rocm-smi-5x-mi250.json")
    assert list(five) == [0, 1, 2, 10]
    assert (five[2]["temp"], five[10]["temp"]) == (47.0, 55.0)


def test_a_second_die_has_no_power():
    """Where power is told on the first die only, the second has neither power nor percent, not zero; the rest is there."""
    for name in ("rocm-smi-5x-mi250.json", "rocm-smi-6x-mi250.json"):
        values = rocm_smi(name)[1]
        assert not {"powerWatts", "powerPercent"} & set(values)
        assert {"gpu", "temp", "memoryAllocated"} <= set(values)


def test_fields_that_are_not_known_are_left_out():
    """N/A in one field of one card costs that field there."""
    found = rocm_smi("rocm-smi-7x-mi300x-partial.json")
    assert set(found[1]) - set(found[0]) == {"gpu", "temp"}
    assert found[0]["powerWatts"] == 611.0


def test_no_device_behind_a_warning():
    """A warning before the JSON is passed over; the system's own entry is no card."""
    assert amd_command.find_json(text("rocm-smi-no-gpu.txt")) == {"system": {"Driver version": "6.3.6"}}
    assert rocm_smi("rocm-smi-no-gpu.txt") == {}
    assert amd_command.find_json('[WARNING] {odd}\n{"card0": {}}') == {"card0": {}}


def test_exact_bytes_win_over_rounded_shares():
    """With sizes in bytes memoryAllocated is computed from them, in all versions."""
    values = amd_command.rocm_smi_reading(
        {"gpu memory use (%)": "7", "vram total memory (b)": "1000", "vram total used memory (b)": "255"}
    )
    assert values == {"memoryAllocated": 25.5, "memoryAllocatedBytes": 255.0, "memoryReadWriteActivity": 7.0}


@pytest.mark.parametrize("before", ["[17] loading", "[]", "{half", '["a", 1]'])
def test_lists_of_no_objects_are_warnings(before):
    """A number in brackets at the beginning of a line is some log's, not what the tool tells."""
    assert amd_command.find_json(before + '\n{"card0": {}}') == {"card0": {}}
    assert amd_command.find_json(before + '\n[{"gpu": 0}]') == [{"gpu": 0}]


def test_headers_of_all_versions_name_the_board():
    """ROCm 5 and 6 capitalise differently; both fill the hardware record."""
    cards = amd_command.rocm_smi_cards(text("rocm-smi-5x-mi250.json"))
    board = amd_command.rocm_smi_board(1, cards[1])
    assert (board.address, board.unique_id, board.name) == (
        "0000:c2:00.0",
        "51a0000000000001",
        "AMD INSTINCT MI250 (MCM) OAM AC MBA",
    )
    assert board.info["model"] == "0x0b0c"
    assert board.info["sclk_range"] == "500Mhz - 1700Mhz"
    six = amd_command.rocm_smi_board(0, amd_command.rocm_smi_cards(text("rocm-smi-6x-mi300x.json"))[0])
    assert (six.name, six.info["vendor"]) == ("AMD Instinct MI300X", "Advanced Micro Devices, Inc. [AMD/ATI]")


def test_amd_smi():
    """ROCm 7's tree with values and units; the limit comes from the other command."""
    devices = list(amd_command.amd_smi_devices(text("amd-smi-metric-7x.json")))
    assert [number for number, _ in devices] == [0, 1]
    assert amd_command.amd_smi_reading(devices[1][1], 750.0) == {
        "gpu": 98.0,
        "memoryAllocated": pytest.approx(100 * 172801 / 196592),
        "memoryAllocatedBytes": 172801.0 * 1024**2,
        "memoryReadWriteActivity": 41.0,
        "temp": 57.0,
        "powerWatts": 605.0,
        "powerPercent": pytest.approx(100 * 605 / 750),
        "energyJoules": 51234567.891,
    }


@pytest.mark.parametrize(
    "wrap",
    [
        lambda device: [device],
        lambda device: {"gpu_data": [device]},
        lambda device: {"gpu_data": device},
        lambda device: device,
    ],
)
def test_amd_smi_lists_and_objects(wrap):
    """A list (ROCm 6), a list or one device under gpu_data (ROCm 7), a bare device."""
    device = {"gpu": 3, "usage": {"gfx_activity": 5}}
    (found,) = amd_command.amd_smi_devices("WARNING: old\n" + json.dumps(wrap(device)))
    assert (found[0], amd_command.amd_smi_reading(found[1])) == (3, {"gpu": 5.0})


@pytest.mark.parametrize(
    ("limit", "watts"),
    [
        ({"max_power": {"value": 750, "unit": "W"}, "socket_power_limit": {"value": 700, "unit": "W"}}, [(0, 700.0)]),
        (
            {"ppt0": {"max_power_limit": "N/A", "socket_power_limit": {"value": 1000, "unit": "W"}}, "ppt1": "N/A"},
            [(0, 1000.0)],
        ),
        ({"max_power": "N/A"}, []),
        ("N/A", []),
    ],
)
def test_amd_smi_limits(limit, watts):
    """The limit in force before the highest possible, by power domain in newer versions; none where none is told."""
    assert list(amd_command.amd_smi_limits([(0, {"limit": limit})])) == watts


@pytest.mark.parametrize("name", ["socket_power", "current_socket_power", "average_socket_power"])
def test_amd_smi_powers(name):
    """Whichever of its names a version has for it."""
    assert amd_command.amd_smi_reading({"power": {name: {"value": 5, "unit": "W"}}}) == {"powerWatts": 5.0}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("41.0", 41.0), ("-3", -3.0), ("7 %", 7.0), ("12%", 12.0), ("1e3", 1000.0), (5, 5.0), ("  8 W ", 8.0),
        ("N/A", None), ("N/A (Secondary die)", None), ("", None), ("nan", None), ("inf", None), (True, None), (None, None),
        ([], None), (0xFFFF, None), (0xFFFFFFFFFFFFFFFF, None), (10**400, None), ("1 2", None), ("0x10", None),
    ],
)  # fmt: skip
def test_figures(value, number):
    """Numbers with or without units; text for unknown, the driver's all ones and what is no number are left out."""
    assert figure(value) == number


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["N/A", "5", "-1 W"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["card0", "card10", "gpu_data", "gpu", "usage", "gfx_activity", "value", "unit", "power", "socket_power", "limit",
             "mem_usage", "total_vram", "GPU use (%)", "Max Graphics Package Power (W)", "PCI Bus", "Unique ID", "energy"]
        ) | st.text(max_size=4),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(TREES, st.text(max_size=20))
def test_any_json_is_survived(tree, before):
    """Whatever tree, behind whatever text: no exception, and only numbers come out."""
    printed = before + "\n" + json.dumps(tree)
    readings = []
    for position, card in amd_command.rocm_smi_cards(printed).items():
        readings.append(amd_command.rocm_smi_reading(card))
        assert amd_command.rocm_smi_board(position, card).position == position
    devices = list(amd_command.amd_smi_devices(printed))
    limits = dict(amd_command.amd_smi_limits(devices))
    readings += [amd_command.amd_smi_reading(device, limits.get(number)) for number, device in devices]
    assert all(isinstance(value, float) for values in readings for value in values.values())


def test_json_nested_without_end_is_survived():
    """Depth beyond the parser's is no crash."""
    assert amd_command.find_json("[" * 200_000) is None


# --- commands


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Put shell scripts on PATH; `calls` counts their runs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(amd_command, "_FOLDERS", ())

    class Programs:
        calls = staticmethod(
            lambda: (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        )

        @staticmethod
        def write(name, body):
            path = folder / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path / "calls"}\n{body}\n')
            path.chmod(0o755)

    return Programs


def cat(name):
    return f"exec cat {FIXTURES / name}"


def test_commands_at_most_every_15_s(programs, machine, sampled):
    """Between two runs there are no values: neither more load nor old numbers."""
    programs.write("rocm-smi", cat("rocm-smi-6x-mi300x.json"))
    probe = sampled(AmdCommandProbe(), machine.context())
    assert probe.next()["gpu.1.powerWatts"] == 612.0
    assert probe.next(14.0) == {}
    assert probe.next(1.0)["gpu.0.gpu"] == 100.0
    assert programs.calls() == ["rocm-smi -a --showmeminfo vram --json"] * 2
    assert probe.probe.metadata()["gpu_type"] == "AMD Instinct MI300X"
    assert probe.probe.metadata()["gpu_amd"][1]["id"] == "1"


def test_the_program_that_works_is_kept_to(programs, machine, sampled):
    """One that fails is not asked again where the other tells; a bad status with values is no failure."""
    programs.write("amd-smi", "exit 1")
    programs.write("rocm-smi", f"cat {FIXTURES / 'rocm-smi-6x-mi300x.json'}; exit 2")
    probe = sampled(AmdCommandProbe(), machine.context())
    assert probe.next()["gpu.0.gpu"] == probe.next(15.0)["gpu.0.gpu"] == 100.0
    assert [call.split()[0] for call in programs.calls()] == ["amd-smi", "amd-smi", "rocm-smi", "rocm-smi"]
    assert AmdCommandProbe.interval == amd_command.AT_MOST_EVERY


def test_amd_smi_before_rocm_smi(programs, machine, sampled):
    """Where both are there the newer one is asked; its limits are asked for once."""
    programs.write("rocm-smi", cat("rocm-smi-6x-mi300x.json"))
    static = '[{"gpu": 0, "limit": {"max_power": {"value": 1208, "unit": "W"}}, "asic": {"market_name": "MI355X"}}]'
    programs.write("amd-smi", f"[ $1 = static ] && echo '{static}' || {cat('amd-smi-metric-7x.json')}")
    probe = sampled(AmdCommandProbe(), machine.context())
    assert probe.next()["gpu.0.powerPercent"] == 50.0
    assert "gpu.1.powerPercent" not in probe.next(15.0)
    assert programs.calls() == ["amd-smi static --json", "amd-smi metric --json", "amd-smi metric --json"]
    assert probe.probe.metadata() == {
        "gpu_count": 2,
        "gpu_amd": [{"id": "0", "series": "MI355X"}, {"id": "1"}],
        "gpu_type": "MI355X",
    }


def test_output_that_is_no_utf_8(programs, machine, sampled):
    """A name in another encoding costs no value."""
    programs.write("rocm-smi", r"""printf '\377 warning\n{"card0": {"Card Series": "M\374", "GPU use (%%)": "5"}}'""")
    probe = sampled(AmdCommandProbe(), machine.context())
    assert probe.next() == {"gpu.0.gpu": 5.0}
    assert probe.probe.metadata()["gpu_type"] == "M\ufffd"


def test_devices_that_come_and_go_keep_their_numbers(programs, machine, sampled):
    """A device that one run does not list has no values then; the number of another is its own, not its place."""
    programs.write("rocm-smi", "")
    probe = sampled(AmdCommandProbe(), machine.context())
    for listed in ((0, 3), (3,), (0, 3)):
        cards = ", ".join(f'"card{n}": {{"GPU use (%)": "{n}"}}' for n in listed)
        programs.write("rocm-smi", f"echo '{{{cards}}}'")
        assert probe.next(15.0) == {f"gpu.{n}.gpu": float(n) for n in listed}


def test_limits_are_asked_for_until_they_are_told(programs, machine, sampled):
    """One failing run of amd-smi's other command does not cost the percentages of the whole run."""
    metric = cat("amd-smi-metric-7x.json")
    programs.write("amd-smi", f"[ $1 = static ] && exit 1 || {metric}")
    probe = sampled(AmdCommandProbe(), machine.context())
    values = probe.next()
    assert "gpu.0.powerWatts" in values
    assert "gpu.0.powerPercent" not in values
    static = '[{"gpu": 0, "limit": {"max_power": {"value": 1208, "unit": "W"}}}]'
    programs.write("amd-smi", f"[ $1 = static ] && echo '{static}' || {metric}")
    assert probe.next(15.0)["gpu.0.powerPercent"] == 50.0


def test_programs_go_by_their_own_name(programs, machine, sampled, tmp_path, monkeypatch):
    """A folder that is called like one program does not make another program it."""
    programs.write("rocm-smi", cat("rocm-smi-6x-mi300x.json"))
    (tmp_path / "bin").rename(tmp_path / "amd-smi")
    monkeypatch.setenv("PATH", f"{tmp_path}/amd-smi:/usr/bin:/bin")
    assert sampled(AmdCommandProbe(), machine.context()).next()["gpu.0.gpu"] == 100.0


@pytest.mark.parametrize(
    "body",
    [
        "sleep 30",
        "echo no driver >&2; exit 1",
        "echo '<html>'",
        """printf '{"gpu_data": [{"gpu": 0, "usage": {"gfx_act'""",
        "exec yes '{'",
        "kill -9 $$",
        "echo '{}'",
    ],
)
def test_a_program_that_gives_nothing_gives_way(programs, machine, body):
    """Hanging, failing, printing garbage, half an object or without end, dying: the other program is asked."""
    programs.write("amd-smi", body)
    programs.write("rocm-smi", cat("rocm-smi-6x-mi250.json"))
    ctx = machine.context()
    source = CommandSource(timeout=0.4)
    source.open(ctx)
    assert source.read(ctx)[0]["powerWatts"] == 405.0
    assert not ctx.own_pids


def test_programs_that_all_fail_are_named_and_asked_again(programs, machine, sampled):
    """An error tells of each program what it did; 15 s later they are tried again."""
    programs.write("rocm-smi", "echo no kfd >&2; exit 2")
    probe = sampled(AmdCommandProbe(), machine.context())
    with pytest.raises(CommandError, match=r"rocm-smi ended with status 2: no kfd"):
        probe.next()
    programs.write("rocm-smi", cat("rocm-smi-no-gpu.txt"))
    with pytest.raises(CommandError, match="lists no device"):
        probe.next(15.0)
    programs.write("rocm-smi", cat("rocm-smi-6x-mi300x.json"))
    assert probe.next(15.0)["gpu.0.gpu"] == 100.0


def test_no_programs(programs, machine, monkeypatch):
    """Without either program the probe is left out, with the reason."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ProbeUnavailableError, match="no amd-smi and no rocm-smi"):
        AmdCommandProbe().open(machine.context())


@pytest.mark.parametrize(("limit", "percent"), [(0.0, None), (None, None), (200.0, 50.0)])
def test_a_limit_of_zero_is_none(limit, percent):
    """Secondary dies tell 0 W: their share of it is not known."""
    assert reading(power=100.0, limit=limit).get("powerPercent") == percent


@given(
    st.dictionaries(st.sampled_from(["busy", "used", "total", "power", "limit", "energy"]), st.floats(allow_nan=False))
)
def test_readings_hold_numbers(figures):
    """Any figures, zero totals and limits included, give numbers under known keys."""
    values = reading(**figures)
    assert all(isinstance(value, float) for value in values.values())
    assert ("powerPercent" in values) == bool("power" in figures and figures.get("limit"))
    assert math.isfinite(values.get("gpu", 0.0)) or not math.isfinite(figures["busy"])
