"""AMD devices: the driver's files, who reads what, and ROCm's binding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from runferry.sampler import Probe, SamplerSettings
from runferry.sampler.engine import Engine
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.amd import AmdCommandProbe, AmdProbe, AmdSysfsProbe, chosen, unknown, which_probe
from runferry.sampler.probes.amd_processes import kfd_devices, memory_used
from runferry.sampler.probes.amd_smi import AmdSmiSource
from runferry.sampler.probes.amd_source import Board
from runferry.sampler.probes.amd_sysfs import SysfsSource

HERE = Path(__file__).parent


def card(number, address, **files):
    """A card in /sys; values as text."""
    device = f"/sys/class/drm/card{number}/device"
    plain = {"vendor": "0x1002\n", "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n"} | files
    return {f"{device}/{name}": value for name, value in plain.items()}


FULL = {
    "gpu_busy_percent": "73\n",
    "mem_busy_percent": "12\n",
    "mem_info_vram_used": f"{16 << 30}\n",
    "mem_info_vram_total": f"{64 << 30}\n",
    "pp_mclk_od": "0\n",
    "device": "0x740c\n",
    "unique_id": "51a0000000000000\n",
    "vbios_version": "113-D65209-073\n",
    "power_dpm_force_performance_level": "auto\n",
    "hwmon/hwmon5/power1_average": "312000000\n",
    "hwmon/hwmon5/power1_cap": "520000000\n",
    "hwmon/hwmon5/temp1_label": "edge\n",
    "hwmon/hwmon5/temp1_input": "41000\n",
    "hwmon/hwmon5/temp3_label": "mem\n",
    "hwmon/hwmon5/temp3_input": "45000\n",
}


POWERS = {
    "hwmon/hwmon1/power1_average": "3000000\n",
    "hwmon/hwmon1/power1_input": "9000000\n",
    "vbios_version": "113-OTHER-1\n",
}


def test_the_driver_s_files(machine, sampled):
    """Units of the kernel become W and degrees; cards go by PCI address; another vendor's and connectors are no cards."""
    machine.write(card(1, "0000:c1:00.0", **FULL))
    machine.write(card(0, "0000:c2:00.0", gpu_busy_percent="5", **{"hwmon/hwmon6/power1_input": "9000000"}))
    machine.write(card(2, "0000:03:00.0", vendor="0x1a03", gpu_busy_percent="1"))
    machine.write({"/sys/class/drm/card1-DP-1/device/vendor": "0x1002"})
    machine.write(card(3, "0000:01:00.0"))  # a display-only part
    probe = sampled(AmdSysfsProbe(), machine.context())
    assert probe.next() == {
        "gpu.0.gpu": 73.0,
        "gpu.0.memoryAllocated": 25.0,
        "gpu.0.memoryReadWriteActivity": 12.0,
        "gpu.0.memoryOverDrive": 0.0,
        "gpu.0.temp": 45.0,
        "gpu.0.powerWatts": 312.0,
        "gpu.0.powerPercent": 60.0,
        "gpu.1.gpu": 5.0,
        "gpu.1.powerWatts": 9.0,
    }
    first = probe.probe.metadata()["gpu_amd"][0]
    assert first == {
        "id": "0",
        "unique_id": "51a0000000000000",
        "vbios_version": "113-D65209-073",
        "performance_level": "auto",
        "gpu_memory_overdrive": "0",
        "max_power": "520.0",
        "model": "0x740c",
        "vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
        "sku": "D65209",
    }


def test_cards_by_number_where_the_bus_does_not_tell(machine, sampled):
    """Nine before ten; of two sensors of power the average counts; a part without load but with memory is a card."""
    for number in (10, 9):
        machine.write(card(number, "", uevent="", gpu_busy_percent=f"{number}\n"))
    machine.write(card(11, "", uevent="", mem_info_vram_total="8\n", mem_info_vram_used="2\n", product_number="P1"))
    machine.write({f"/sys/class/drm/card11/device/{name}": text for name, text in POWERS.items()})
    probe = sampled(AmdSysfsProbe(), machine.context())
    assert probe.next() == {
        "gpu.0.gpu": 9.0,
        "gpu.1.gpu": 10.0,
        "gpu.2.memoryAllocated": 25.0,
        "gpu.2.powerWatts": 3.0,
    }
    assert [board.get("sku") for board in probe.probe.metadata()["gpu_amd"]] == [None, None, "P1"]


def test_a_sleeping_card_is_left_alone(machine, sampled):
    """Reading the sensors of a suspended card would wake it; it has values again when something else has."""
    machine.write(card(0, "0000:03:00.0", **FULL, **{"power/runtime_status": "suspended\n"}))
    probe = sampled(AmdSysfsProbe(), machine.context())
    assert probe.next() == {}
    machine.write(card(0, "0000:03:00.0", **{"power/runtime_status": "active\n"}))
    assert probe.next()["gpu.0.gpu"] == 73.0


def test_a_card_that_goes_and_comes(machine, sampled):
    """A card that is unplugged leaves its number empty; the others keep theirs, and it has its own again."""
    for number in range(3):
        machine.write(card(number, f"0000:c{number}:00.0", **FULL | {"gpu_busy_percent": f"{number}\n"}))
    probe = sampled(AmdSysfsProbe(), machine.context())
    whole = probe.next()
    folder = machine.root / "sys/class/drm/card1"
    folder.rename(machine.root / "gone")
    assert probe.next() == {key: value for key, value in whole.items() if not key.startswith("gpu.1.")}
    (machine.root / "gone").rename(folder)
    assert probe.next() == whole


def test_sixty_four_cards(machine, sampled):
    """Each under its number, of three digits of buses."""
    for number in range(64):
        machine.write(card(number, f"{number // 8:04x}:{0x10 + number % 8:02x}:00.0", gpu_busy_percent=f"{number}"))
    assert sampled(AmdSysfsProbe(), machine.context()).next() == {f"gpu.{n}.gpu": float(n) for n in range(64)}


@pytest.mark.parametrize("odd", ["", "garbage", "-5", "120", "99999999999999999999999999999999999"])
def test_odd_files(machine, sampled, odd):
    """Whatever stands in one file: the other values are there, nothing is clamped."""
    machine.write(card(0, "0000:03:00.0", **FULL | {"gpu_busy_percent": odd, "hwmon/hwmon5/temp3_input": odd}))
    values = sampled(AmdSysfsProbe(), machine.context()).next()
    assert values["gpu.0.powerWatts"] == 312.0
    assert values.get("gpu.0.gpu") == {"-5": -5.0, "120": 120.0}.get(odd)


def test_amd_comes_behind_nvidia(machine, sampled):
    """In a host with both vendors no index is used twice; the type is NVIDIA's to tell, and counts are added up."""
    machine.write({f"/proc/driver/nvidia/gpus/0000:0{n}:00.0/information": "" for n in (1, 2)})
    machine.write(card(0, "0000:c1:00.0", **FULL))
    probe = sampled(AmdSysfsProbe(), machine.context())
    assert {key.rsplit(".", 1)[0] for key in probe.next()} == {"gpu.2"}
    metadata = probe.probe.metadata()
    assert (metadata["gpu_count"], len(metadata["gpu_amd"]), "gpu_type" in metadata) == (1, 1, False)


def test_a_record_counts_the_devices_of_both_vendors_once(machine, clock):
    """Each probe tells its own; the sum is the host's."""

    class Nvidia(Probe):
        name = "nvidia"

        def sample(self, ctx, out):
            out["gpu.0.gpu"] = 1.0

        def metadata(self):
            return {"gpu_count": 2, "gpu_type": "H100"}

    machine.write({f"/proc/driver/nvidia/gpus/0000:0{n}:00.0/information": "" for n in (1, 2)})
    machine.write(card(0, "0000:c1:00.0", **FULL))
    probes = [Nvidia(), AmdSysfsProbe()]
    engine = Engine(
        SamplerSettings(), lambda sample: None, clock=clock, root=str(machine.root), warn=print, probes=probes
    )
    engine.open()
    engine.settle(20)
    told = engine.metadata()
    engine.close(1.0)
    assert (told["gpu_count"], told["gpu_type"], len(told["gpu_amd"])) == (3, "H100", 1)


def test_the_extended_set(machine, sampled):
    """Bytes of memory are ours alone, so they come on request only."""
    machine.write(card(0, "0000:c1:00.0", **FULL))
    assert sampled(AmdSysfsProbe(), machine.context(extended=True)).next()["gpu.0.memoryAllocatedBytes"] == 16 << 30


def test_processes_by_the_compute_driver_and_by_open_files(machine, sampled):
    """A device that a monitored process holds memory of repeats its values for it; other people's processes do not count."""
    machine.write(card(0, "0000:c1:00.0", **FULL) | card(1, "0000:c2:00.0", **FULL) | card(2, "0000:c3:00.0", **FULL))
    machine.write(
        {
            "/sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
            "/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "51110\n",
            "/sys/class/kfd/kfd/topology/nodes/1/properties": "cpu_cores_count 0\nlocation_id 49408\ndomain 0\n",
            "/sys/class/kfd/kfd/proc/4242/vram_51110": "1024\n",
            "/sys/class/kfd/kfd/proc/77/vram_51110": "4096\n",
        }
    )
    machine.process(4242, children=(4243,))
    machine.process(4243, parent=4242)
    for name in ("7", "8"):  # two copies of one descriptor
        machine.link(f"/proc/4243/fd/{name}", "/dev/dri/renderD129")
        machine.write(
            {
                f"/proc/4243/fdinfo/{name}": "drm-driver:\tamdgpu\ndrm-pdev:\t0000:c2:00.0\ndrm-client-id:\t9\ndrm-memory-vram:\t3 KiB\n"
            }
        )
    values = sampled(AmdSysfsProbe(), machine.context(extended=True)).next()
    assert values["gpu.process.0.memoryUsedBytes"] == 1024
    assert values["gpu.process.0.gpu"] == 73.0
    assert values["gpu.process.1.memoryUsedBytes"] == 3072
    assert values["gpu.process.0.powerPercent"] == 60.0
    assert not any(key.startswith("gpu.process.2.") for key in values)
    assert not any(key.startswith("gpu.process.") for key in sampled(AmdSysfsProbe(), machine.context()).next())


def test_a_forked_worker_has_no_memory_of_its_own(machine):
    """Files that a child has of its parent count once, and not at all where the compute driver tells of the device."""
    machine.write({"/sys/class/kfd/kfd/proc/10/vram_7": "5000\n"})
    for pid in (10, 11):
        for name, address in (("3", "0000:C1:00.0"), ("4", "0000:c2:00.0")):
            machine.link(f"/proc/{pid}/fd/{name}", "/dev/dri/renderD128")
            fields = f"drm-driver: amdgpu\ndrm-pdev: {address}\ndrm-client-id: {name}\ndrm-memory-vram: 2 MiB\n"
            machine.write({f"/proc/{pid}/fdinfo/{name}": fields})
    used = memory_used(machine.context(), (10, 11), {7: "0000:c1:00.0"})
    assert used == {"0000:c1:00.0": 5000, "0000:c2:00.0": 2 << 20}


def test_files_that_are_no_memory_of_amd(machine):
    """Other drivers' nodes, other files, and descriptors without a client number, which are each their own."""
    told = "drm-pdev: 0000:c1:00.0\ndrm-memory-vram: 5 GiB\n"
    for name, target, driver in (
        ("1", "/dev/dri/card0", "i915"),
        ("2", "/tmp/log", "amdgpu"),
        ("3", "/dev/dri/renderD128", "amdgpu"),
        ("4", "/dev/dri/renderD128", "amdgpu"),
    ):
        machine.link(f"/proc/10/fd/{name}", target)
        machine.write({f"/proc/10/fdinfo/{name}": f"drm-driver: {driver}\n{told}"})
    assert memory_used(machine.context(), (10,), {}) == {"0000:c1:00.0": 10 << 30}


def test_processes_of_a_card_that_sleeps(machine, sampled):
    """A card without values repeats none for its processes."""
    machine.write(card(0, "0000:c1:00.0", **FULL, **{"power/runtime_status": "suspended"}))
    machine.process(4242)
    machine.link("/proc/4242/fd/3", "/dev/dri/renderD128")
    fields = "drm-driver: amdgpu\ndrm-pdev: 0000:c1:00.0\ndrm-memory-vram: 5 MiB\n"
    machine.write({"/proc/4242/fdinfo/3": fields})
    assert sampled(AmdSysfsProbe(), machine.context(extended=True)).next() == {}


def test_addresses_of_compute_devices(machine):
    """Bus, device and function are packed in one number beside the domain; CPUs and half-told nodes are none."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    for node, (number, properties) in enumerate(
        [
            ("0", "location_id 0\ndomain 0\n"),
            ("7", f"simd_count 4\nlocation_id {0xC1 << 8 | 0x1F << 3 | 3}\ndomain 65536\n"),
            ("8", "domain 0\n"),
            ("9", "location_id x\n"),
        ]
    ):
        machine.write({f"{nodes}/{node}/gpu_id": number, f"{nodes}/{node}/properties": properties})
    assert kfd_devices(machine.context()) == {7: "10000:c1:1f.3"}


# --- who reads


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, False),
        ({"/sys/module/amdgpu/initstate": "live\n"}, True),
        ({"/sys/module/amdgpu/initstate": "coming\n"}, False),
        ({"/sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n"}, False),
        ({"/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "51110\n"}, True),  # built into the kernel
        (card(0, "0000:03:00.0"), True),
        (card(0, "0000:03:00.0", vendor="0x8086"), False),
    ],
)
def test_the_gate(machine, files, there):
    """A loaded module, or where it is built in a compute node or a card; nothing else starts a probe."""
    machine.write(files)
    found = [probe.discover(machine.context()) for probe in (AmdProbe(), AmdSysfsProbe(), AmdCommandProbe())]
    assert found.count(None) == there
    assert there or all("no AMD driver" in reason for reason in found)


def test_one_probe_takes_the_devices(machine, monkeypatch):
    """Libraries before files before commands, among what the settings allow; ROCm's folder may be named elsewhere."""
    machine.write({"/sys/module/amdgpu/initstate": "live\n"})
    assert which_probe(machine.context()) == "amd_command"
    machine.write(card(0, "0000:03:00.0", **FULL))
    assert which_probe(machine.context()) == "amd_sysfs"
    machine.write({"/opt/rocm-7.0.0/lib/librocm_smi64.so.7": ""})
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.setenv(name, "/opt/rocm-7.0.0")
        assert which_probe(machine.context()) == "amd"
        monkeypatch.delenv(name)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/none:/opt/rocm-7.0.0/lib")
    assert which_probe(machine.context()) == "amd"
    assert which_probe(machine.context(skip_probes=("amd",))) == "amd_sysfs"
    assert AmdSysfsProbe().discover(machine.context()) == "probe amd reads AMD's devices"


BOARDS = (
    Board(0, unique_id="51a0000000000000"),
    Board(1, unique_id="0x61B0000000000001"),
    Board(2, unique_id="a0000000000002"),
)


@pytest.mark.parametrize(
    ("ids", "environ", "positions"),
    [
        (None, {"HIP_VISIBLE_DEVICES": "1"}, [0, 1, 2]),
        (("0", "3"), {}, [1]),  # two devices of NVIDIA come first
        (("61b",), {}, [1]),
        (("GPU-51A0",), {}, [0]),
        (("visible",), {}, [0, 1, 2]),
        (("visible",), {"HIP_VISIBLE_DEVICES": "1"}, [1]),
        (("visible",), {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}, [0]),
        (("visible",), {"ROCR_VISIBLE_DEVICES": "GPU-61b0000000000001"}, [1]),
        (("visible",), {"HIP_VISIBLE_DEVICES": ""}, []),
        (("0", "visible"), {"HIP_VISIBLE_DEVICES": "1"}, [1]),
        (("visible",), {"CUDA_VISIBLE_DEVICES": "1"}, [0, 1, 2]),  # NVIDIA's, of which there are some
        (("GPU-00A0000000000002",), {}, [2]),  # some sources tell no leading zeros
        (("00a0", "a0"), {}, [2]),
        (("GPU-",), {}, []),
    ],
)
def test_selection(ids, environ, positions):
    """By index among all devices, by unique id, or by ROCm's variables, which count AMD's devices."""
    assert [board.position for board in chosen(ids, BOARDS, 2, environ)] == positions


def test_without_nvidia_cuda_s_variable_is_rocm_s():
    """ROCm takes it, too."""
    assert [board.position for board in chosen(("visible",), BOARDS, 0, {"CUDA_VISIBLE_DEVICES": "1"})] == [1]


@pytest.mark.parametrize(
    ("before", "in_vain"),
    [
        (0, ["3", "9", "61c", "MIG-1", "9" * 5000]),
        (2, ["9"]),  # the others may be NVIDIA's, whose probe tells what it knows
    ],
)
def test_ids_that_name_no_device(before, in_vain):
    """Told by the probe that can know; `visible` is none."""
    assert unknown(("0", "3", "9", "61b", "61c", "MIG-1", "visible", "9" * 5000), BOARDS, before) == in_vain


def test_what_names_no_device_is_told(machine, sampled):
    """As of NVIDIA's devices."""
    machine.write(card(1, "0000:c1:00.0", **FULL))
    probe = sampled(AmdSysfsProbe(), machine.context(gpu_device_ids=("0", "7")))
    probe.next()
    assert list(probe.probe.notices) == ["gpu_device_ids: '7' names no device, or several"]


# --- the binding


@pytest.fixture
def fake_amdsmi():
    spec = importlib.util.spec_from_file_location("fake_amdsmi", HERE / "fake" / "amdsmi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeAmdSmi


def test_the_binding_in_its_own_units(fake_amdsmi, machine, sampled):
    """Degrees, W and steps of energy as the binding tells them; limits in uW or W; N/A and all ones are left out."""
    probe = sampled(AmdProbe([AmdSmiSource(fake_amdsmi())]), machine.context())
    assert probe.next() == {
        "gpu.0.gpu": 97.0,
        "gpu.0.memoryAllocated": 75.0,
        "gpu.0.memoryReadWriteActivity": 41.0,
        "gpu.0.memoryOverDrive": 0.0,
        "gpu.0.temp": 57.0,
        "gpu.0.powerWatts": 600.0,
        "gpu.0.powerPercent": 80.0,
        "gpu.0.energyJoules": 61.0,
        "gpu.1.gpu": 98.0,
        "gpu.1.memoryAllocated": 75.0,
        "gpu.1.memoryOverDrive": 0.0,
        "gpu.1.temp": 57.0,
        "gpu.1.energyJoules": 61.0,
    }
    metadata = probe.probe.metadata()
    assert metadata["gpu_type"] == "AMD Instinct MI300X"
    assert metadata["gpu_amd"][1] == {
        "id": "1",
        "unique_id": "0x00A0000000000001",
        "vbios_version": "113-M3000100-102",
        "performance_level": "auto",
        "gpu_overdrive": "0",
        "gpu_memory_overdrive": "0",
        "max_power": "750.0",
        "series": "AMD Instinct MI300X",
        "model": "0x74a1",
        "vendor": "Advanced Micro Devices Inc. [AMD/ATI]",
        "sku": "M3000100",
    }


@pytest.mark.parametrize(
    ("power", "watts"),
    [
        ({"current_socket_power": 0, "average_socket_power": 7}, 7.0),  # MI200 has the average only
        ({"current_socket_power": 0, "average_socket_power": "N/A"}, 0.0),
        ({"socket_power": 9}, 9.0),  # ROCm 6.4
        ({"current_socket_power": 0xFFFF}, None),
    ],
)
def test_the_binding_s_names_of_power(fake_amdsmi, machine, power, watts):
    """The first that is not zero, zero where all are; all ones are no value."""
    smi = fake_amdsmi(devices=1)
    smi.amdsmi_get_power_info = lambda _: power
    smi.amdsmi_get_energy_count = lambda _: {"power": 2_000_000, "counter_resolution": 0.5}  # as ROCm 5.7 named it
    source = AmdSmiSource(smi)
    source.open(machine.context())
    values = source.read(machine.context())[0]
    assert values.get("powerWatts") == watts
    assert values["energyJoules"] == 1.0


def test_calls_that_fail_cost_their_value_and_come_back(fake_amdsmi, machine, sampled):
    """One failing call costs one key; when all fail the error is told; when they work again, so do the keys."""
    smi = fake_amdsmi(fail={"amdsmi_get_gpu_activity"})
    probe = sampled(AmdProbe([AmdSmiSource(smi)]), machine.context())
    assert "gpu.0.gpu" not in (values := probe.next())
    assert values["gpu.0.temp"] == 57.0
    smi.fail = {name for name in dir(fake_amdsmi) if name.startswith("amdsmi_get_")}
    with pytest.raises(RuntimeError, match="no device tells anything"):
        probe.next()
    smi.fail = set()
    assert probe.next()["gpu.0.gpu"] == 97.0
    probe.probe.close()
    probe.probe.close()
    assert not smi.is_open


def test_a_library_that_cannot_open_gives_way(fake_amdsmi, machine, sampled):
    """The next source is opened in its place; with none left the probe says why of each."""
    machine.write(card(0, "0000:c1:00.0", **FULL))
    for smi in (fake_amdsmi(broken=True), fake_amdsmi(devices=0)):
        probe = sampled(AmdProbe([AmdSmiSource(smi), SysfsSource()]), machine.context())
        assert probe.next()["gpu.0.gpu"] == 73.0
        assert not smi.is_open
    with pytest.raises(ProbeUnavailableError, match=r"amdsmi: .*34.*; amdsmi: amdsmi finds no device"):
        AmdProbe([AmdSmiSource(fake_amdsmi(broken=True)), AmdSmiSource(fake_amdsmi(devices=0))]).open(machine.context())
