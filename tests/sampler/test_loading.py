"""What a sampler's threads import, and when: a fork must meet none of it."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading

import pytest
from runferry.sampler import Sampler, SamplerSettings, Tier, registry, sample_once
from runferry.sampler.context import Context
from runferry.sampler.probes.apple import IOREG
from runferry.sampler.probes.apple_memory import VM_STAT
from runferry.sampler.probes.nvml_library import LINUX_SIGNS
from runferry.sampler.probes.trainium import DEVICES


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_threads_import_nothing_once_the_modules_are_loaded():
    """Neither samples nor the records of the machine load a module of ours or of the library behind `load_modules`."""
    code = """
import sys, threading
from runferry.sampler import Sampler, SamplerSettings, execution_context, hardware, load_modules
settings = SamplerSettings(interval=0.1)
load_modules(settings)
first = threading.Event()
before = set(sys.modules)
sampler = Sampler(settings, lambda sample: first.set())
sampler.start()
first.wait(20)
execution_context(settings), hardware(settings)
sampler.stop()
print(sorted(set(sys.modules) - before))
"""
    assert python(code) == "[]\n"


def test_only_what_may_run_is_imported():
    """Nothing that must be asked for and was not, no device's probe where there is none, nothing that lists packages."""
    code = """
import sys
before = set(sys.modules)
from runferry.sampler import SamplerSettings, load_modules, sample_once
settings = SamplerSettings(skip_probes=("nvidia",))
load_modules(settings)
sample_once(settings, pause=0)
print(*sorted(name.rpartition(".")[2] for name in set(sys.modules) - before if ".sampler.probes." in name))
print(*{"importlib.metadata", "subprocess", "ssl"} & set(sys.modules) - before)
"""
    probes, others = python(code).split("\n", 1)
    unasked = {registry.BUILT_IN[name].split(":")[0].rpartition(".")[2] for name in registry.REQUESTS}

    assert {"cpu", "memory"} <= set(probes.split())
    assert not unasked & set(probes.split())
    if sys.platform == "linux":
        assert not [name for name in probes.split() if name.startswith(("amd", "apple", "tpu_runtime", "trainium"))]
        assert others == "\n"


ASKED = SamplerSettings(
    extended=True,
    self_usage=True,
    dcgm_profiling=True,
    open_metrics_endpoints={"node": "http://127.0.0.1:9/"},
    dcgm_exporter="http://127.0.0.1:9/metrics",
)
TPU = "/sys/bus/pci/devices/0000:00:05.0"
AMD = "/sys/class/drm/card3/device"
MACHINES = {
    "nothing": {},
    "linux": {"/proc/stat": ""},
    **{sign: {f"{sign}/x": ""} for sign in (*LINUX_SIGNS, IOREG, VM_STAT, DEVICES)},
    "neuron": {"/dev/neuron11": ""},
    "tpu": {f"{TPU}/vendor": "0x1ae0", f"{TPU}/device": "0x0063"},
    "amd module": {"/sys/module/amdgpu/initstate": "live"},
    "amd node": {"/sys/class/kfd/kfd/topology/nodes/1/gpu_id": "7"},
    "amd card": {f"{AMD}/vendor": "0x1002"},
}


@pytest.mark.parametrize("settings", [SamplerSettings(), ASKED], ids=["plain", "asked"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_first_look_rules_out_nothing_that_is_there(machine, name, settings):
    """A probe that finds its source on a machine is imported there; the first look is the same or more generous."""
    machine.write(MACHINES[name])
    ctx = Context(settings, root=str(machine.root))
    found = {
        name
        for name, reference in registry.BUILT_IN.items()
        for probe in registry.load(reference).instances(settings)
        if probe.discover(ctx) is None
    }

    assert found <= set(registry.wanted(ctx))


@pytest.mark.parametrize(
    ("machine_name", "probes"),
    [
        *((sign, {"nvidia", "dcgm"}) for sign in LINUX_SIGNS),
        (IOREG, {"apple"}),
        (VM_STAT, {"apple_memory"}),
        (DEVICES, {"trainium"}),
        ("neuron", {"trainium"}),
        ("tpu", {"tpu"}),
        ("amd module", {"amd", "amd_sysfs", "amd_command"}),
        ("amd node", {"amd", "amd_sysfs", "amd_command"}),
        ("amd card", {"amd", "amd_sysfs", "amd_command"}),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="NVIDIA's files on Windows are looked for by its probe")
def test_a_device_adds_its_own_probes_only(machine, machine_name, probes):
    """What is imported beyond that of a machine without devices."""
    without = set(registry.wanted(Context(ASKED, root=str(machine.root))))
    machine.write(MACHINES[machine_name])

    assert set(registry.wanted(Context(ASKED, root=str(machine.root)))) - without == probes


@pytest.mark.parametrize("reference", ["no.such:Probe", ".probes.memory:NoSuchProbe", "builtins:object"])
def test_a_probe_that_cannot_be_loaded_is_left_out(machine, monkeypatch, reference):
    """A damaged file of the package costs its own keys, and one warning; loading ahead says nothing of it."""
    machine.write({"/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 40 kB\n"})
    monkeypatch.setattr(registry, "BUILT_IN", {"broken": reference, "memory": registry.BUILT_IN["memory"]})
    monkeypatch.setitem(registry.SIGNS, "broken", lambda ctx: registry.load(reference).discover(ctx))
    settings = SamplerSettings(self_metrics=False)
    warnings = []
    registry.load_modules(settings)
    values = sample_once(settings, root=str(machine.root), pause=0, warn=warnings.append).values

    assert "memory_percent" in values
    (warning,) = warnings
    assert warning.startswith("probe 'broken' cannot be loaded: ")


def test_no_process_is_started():
    """Where there is no device, nothing forks: not even to learn the name of the system."""
    code = """
import sys
started = []
watched = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}
sys.addaudithook(lambda event, arguments: started.append(event) if event in watched else None)
from runferry.sampler import SamplerSettings, execution_context, hardware, sample_once
settings = SamplerSettings(skip_probes=("nvidia",))
print(execution_context(settings)["os"])
hardware(settings, devices_within=0), sample_once(settings, pause=0)
print(started)
"""
    system, started = python(code).splitlines()

    assert started == "[]"
    if sys.platform == "linux":
        assert system == platform.platform(aliased=True)


def test_loading_ends_when_probes_of_others_are_there(monkeypatch, machine):
    """Whoever forks can wait for it."""
    hold = threading.Event()
    begun = threading.Event()

    def third_party(settings, warn):
        begun.set()
        hold.wait(20)
        return iter(())

    monkeypatch.setattr("runferry.sampler.registry.third_party", third_party)
    sampler = Sampler(SamplerSettings(), lambda sample: None, root=str(machine.root))
    assert not sampler.loading
    sampler.start()
    begun.wait(20)
    assert sampler.loading
    hold.set()
    sampler.stop()

    assert not sampler.loading


ON_THE_SAMPLER_S_THREAD = {
    *(
        "cpu",
        "memory",
        "disk_io",
        "network",
        "psi",
        "cgroup",
        "host_cpu",
        "host_memory",
        "vmstat",
        "load",
        "shm",
        "tcp",
    ),
    *("proc_io", "proc_waits", "proc_files", "proc_groups", "nfs", "lustre", "cpu_temperature", "rapl", "self_usage"),
}


def test_only_what_the_kernel_knows_itself_is_read_on_the_sampler_s_thread():
    """What asks a device's driver, a server or a program may hang, and would take all other metrics with it."""
    inline = {name for name, place in registry.BUILT_IN.items() if registry.load(place).tier is Tier.INLINE}
    assert inline == ON_THE_SAMPLER_S_THREAD
