"""AWS Trainium: lines of neuron-monitor as recorded, and programs of that name that behave badly."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import Sampler, SamplerSettings
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.neuron_report import (
    Who,
    our_runtimes,
    read_devices,
    read_executions,
    read_hardware,
    read_runtimes,
)
from runferry.sampler.probes.trainium import TrainiumProbe, configuration, period_in

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


def lines_of(name):
    return (FIXTURES / name).read_text().splitlines()


def values_of(line, *, pids=(4242,), tag="", rank="", here=(), aliases=True):
    """What a line says for monitored processes; `here`: pids that can be seen besides."""
    line = json.loads(line) if isinstance(line, str) else line
    runtimes = our_runtimes(line, Who(pids, tag, rank, lambda pid: pid in {*pids, *here}))
    values = {}
    read_runtimes(runtimes, values, aliases=aliases)
    return values


def cores_in(values):
    return {key for key in values if key.endswith("utilization")}


# --- what a line says


def test_trn1():
    """Every documented key of two cores: utilisation, memory of device and host, and the host's under both names."""
    values = values_of(lines_of("neuron-monitor-trn1.jsonl")[0])
    assert values["trn.0.neuroncore_utilization"] == 42.25
    assert values["trn.1.neuroncore_utilization"] == 40.5
    assert values["trn.host_total_memory_usage"] == 6997643264
    assert values["trn.neuron_device_total_memory_usage"] == 12519788544
    for name in ("trn.host_memory_usage", "trn.host_total_memory_usage"):
        assert values[f"{name}.application_memory"] == 6996594688
        assert values[f"{name}.constants"] == 0
        assert values[f"{name}.dma_buffers"] == 1048576
        assert values[f"{name}.tensors"] == 0
    assert {key: values[key] for key in values if key.startswith("trn.1.neuroncore_memory_usage.")} == {
        "trn.1.neuroncore_memory_usage.constants": 193986817,
        "trn.1.neuroncore_memory_usage.model_code": 176285056,
        "trn.1.neuroncore_memory_usage.model_shared_scratchpad": 0,
        "trn.1.neuroncore_memory_usage.runtime_memory": 0,
        "trn.1.neuroncore_memory_usage.tensors": 20971520,
    }
    assert len(values) == 22


def test_one_name_of_the_breakdown():
    """The listed spelling of the host's breakdown can be turned off."""
    values = values_of(lines_of("neuron-monitor-trn1.jsonl")[0], aliases=False)
    assert "trn.host_total_memory_usage.tensors" not in values
    assert "trn.host_memory_usage.tensors" in values


TORCHRUN = "neuron-monitor-trn2-torchrun.jsonl"


@pytest.mark.parametrize(
    ("who", "cores"),
    [
        ({"pids": (5002,), "rank": "1"}, {1}),  # a worker: its own runtime, whatever comes first in the line
        ({"pids": (5001,), "rank": "0"}, {0}),
        ({"pids": (5000, 5001, 5002)}, {0, 1}),  # torchrun itself, with its workers below it
        ({"pids": (4242,)}, set()),  # nobody of ours
        ({"pids": (4242,), "rank": "0", "here": (5001, 5002, 9999)}, set()),  # another user's worker of the same rank
        ({"pids": (4242,), "rank": "1"}, {1}),  # in a container: nobody can be seen, the core decides
        ({"pids": (4242,), "rank": "7"}, set()),
        ({"pids": (4242,), "tag": "rank1", "here": (5001, 5002)}, {1}),  # NEURON_PROCESS_TAG
        ({"pids": (4242,), "tag": "other-job", "rank": "0"}, {0}),
    ],
)
def test_whose_runtime(who, cores):
    """By pid in the tree, by tag, and under torchrun in a container by core; never somebody else's that can be seen."""
    values = values_of(lines_of(TORCHRUN)[0], **who)
    assert cores_in(values) == {f"trn.{core}.neuroncore_utilization" for core in cores}
    if len(cores) == 2:
        assert values["trn.host_total_memory_usage"] == 2 * 6997643264


def test_pid_of_a_container_as_tag():
    """The driver tells the host's pid, the runtime tags itself with the pid that it has in its container."""
    line = json.loads(lines_of(TORCHRUN)[0])
    line["neuron_runtime_data"][1]["neuron_runtime_tag"] = "4242"
    assert cores_in(values_of(line)) == {"trn.1.neuroncore_utilization"}
    assert not values_of(line, here=(5002,))  # that process can be seen and is not ours
    line["neuron_runtime_data"][2]["neuron_runtime_tag"] = "4242"
    assert not values_of(line)  # another container has the same pid


def test_the_tag_is_for_runtimes_without_our_pid():
    """Where our own process is in the line a tag that another user chose, too, takes nothing of theirs."""
    assert cores_in(values_of(lines_of(TORCHRUN)[0], pids=(5001,), tag="rank1")) == {"trn.0.neuroncore_utilization"}


def test_numbers_beyond_any_counter():
    """What no counter can hold is left out, as are numbers that are none."""
    line = json.loads(lines_of("neuron-monitor-trn1.jsonl")[0])
    used = line["neuron_runtime_data"][0]["report"]["memory_used"]["neuron_runtime_used_bytes"]
    for odd in (1 << 63, -(1 << 63), 10**400, 1e300, float("nan"), float("inf"), True, "7"):
        used["host"] = odd
        assert "trn.host_total_memory_usage" not in values_of(line)
    used["host"] = (1 << 63) - 1
    assert values_of(line)["trn.host_total_memory_usage"] == (1 << 63) - 1


def test_core_that_two_runtimes_hold():
    """A core that several runtimes name tells of none of them whose it is."""
    line = json.loads(lines_of(TORCHRUN)[0])
    line["neuron_runtime_data"][2]["report"] = line["neuron_runtime_data"][1]["report"]
    assert not values_of(line, rank="1")


def test_one_core_of_a_shared_runtime():
    """In a container a worker takes its own core only of a runtime that has several."""
    values = values_of(lines_of("neuron-monitor-trn1.jsonl")[0].replace("4242", "77"), pids=(9,), rank="1")
    assert cores_in(values) == {"trn.1.neuroncore_utilization"}
    assert "trn.0.neuroncore_memory_usage.tensors" not in values
    assert "trn.host_total_memory_usage" in values


def test_edge_lines():
    """No runtime, a runtime with an error and no report, no cores: what is there is told, nothing is made up."""
    empty, gone, _, idle = lines_of("neuron-monitor-edge.jsonl")
    assert values_of(empty) == {}
    assert values_of(gone) == {}
    values = values_of(idle)
    assert values["trn.neuron_device_total_memory_usage"] == 12519788544
    assert not cores_in(values)


def test_hardware():
    """Devices and cores, unless the line says that it does not know."""
    empty, gone, _, _ = lines_of("neuron-monitor-edge.jsonl")
    expected = {"neuron_device_count": 1, "neuroncore_per_device_count": 2}
    assert read_hardware(json.loads(empty)) == expected
    assert read_hardware(json.loads(gone)) == {}
    for odd in (0, -1, 1 << 32, 2.5, True):
        assert read_hardware({"neuron_hardware_info": {"neuron_device_count": odd}}) == {}


def test_extended():
    """Executions, their errors and latency, and memory errors of the devices."""
    line = json.loads(lines_of(TORCHRUN)[0])
    first = next(entry for entry in line["neuron_runtime_data"] if entry["pid"] == 5001)["report"]["execution_stats"]
    first["latency_stats"]["total_latency"]["p99"] = 0.5
    first["error_summary"]["hardware"] = 2
    values = {}
    read_executions(our_runtimes(line, Who((5001, 5002), "", "", lambda _: True)), values)
    read_devices(line, values)
    assert values["trn.executions.completed"] == 236
    assert values["trn.execution_errors.hardware"] == 2
    assert {key: values[key] for key in values if "latency" in key} == {
        "trn.execution_latency_p50_seconds": 0.0115,
        "trn.execution_latency_p99_seconds": 0.5,
    }
    assert values["trn.device.0.mem_ecc_corrected"] == 3
    assert values["trn.device.0.sram_ecc_uncorrected"] == 0
    line["system_data"]["neuron_hw_counters"]["neuron_devices"][0]["neuron_device_index"] = True
    read_devices(line, again := {})
    assert not any("True" in key for key in again)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = (
    "neuron_runtime_data",
    "report",
    "neuroncores_in_use",
    "usage_breakdown",
    "neuron_devices",
    "pid",
    "host",
    "p50",
)


@given(st.sampled_from(OBJECTS), JSON)
def test_odd_lines(name, odd):
    """Any JSON in place of any part gives numbers under known keys, and never an error."""

    def put(value):
        if isinstance(value, dict):
            return {key: odd if key == name else put(inner) for key, inner in value.items()}
        return [put(inner) for inner in value] if isinstance(value, list) else value

    line = put(json.loads(lines_of(TORCHRUN)[0]))
    values = {}
    runtimes = our_runtimes(line, Who((5001, 5002), "", "0", lambda _: False))
    read_runtimes(runtimes, values, aliases=True)
    read_executions(runtimes, values)
    read_devices(line, values)
    read_hardware(line)
    for key, value in values.items():
        assert isinstance(value, (int, float))
        assert any(metric.matches(key) for metric in TrainiumProbe.metrics), key


def test_configuration():
    """Whole seconds, at least one; executions only where they are asked for."""
    assert configuration(0.1, extended=False)["period"] == "1s"
    assert configuration(15.0, extended=True) == json.loads((FIXTURES / "neuron-monitor-config.json").read_text())
    assert configuration(1e6, extended=False)["period"] == "3600s"
    plain = configuration(15.0, extended=False)["neuron_runtimes"][0]["metrics"]
    assert plain == configuration(15.0, extended=True)["neuron_runtimes"][0]["metrics"][:-1]


# --- the program


@pytest.fixture
def monitor(machine, sampled, tmp_path_factory):
    """Open the probe on a host with one device and a program of that name; closed at the end."""
    folder = tmp_path_factory.mktemp("bin")
    probes = []
    machine.process(4242)
    machine.write({"/sys/devices/virtual/neuron_device/neuron0/core_count": "2\n"})

    def start(script, *, environ=None, **settings):
        program = folder / "neuron-monitor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        probe = TrainiumProbe({"PATH": str(folder), **(environ or {})})
        probes.append(probe)
        return sampled(probe, machine.context(interval=1.0, **settings))

    yield start
    for probe in probes:
        probe.close()
        probe.close()


def until(probe, condition, *, after=0.0, within=10.0):
    """Sample until `condition` holds of the values; they are the result."""
    deadline = time.monotonic() + within
    while True:
        values = probe.next(after=after)
        if condition(values):
            return values
        assert time.monotonic() < deadline
        time.sleep(0.01)


def silent(probe, *, after):
    """Nothing is told of now but the silence."""
    values = {}
    probe.ctx.begin(probe.ctx.now + after)
    with pytest.raises(RuntimeError, match="neuron-monitor has printed nothing for"):
        probe.probe.sample(probe.ctx, values)
    assert values == {}


def failure(probe, within=20.0):
    """Sample until that fails; the error is the result."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            probe.next(after=0.0)
        except RuntimeError as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("it went on")


def printed(name):
    return f"cat {FIXTURES / name}"


def test_newest_line(monitor):
    """Of two lines the second counts, and goes on to count until the next; the hardware is told by the line."""
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; exec sleep 60")
    values = until(probe, lambda values: values.get("trn.0.neuroncore_utilization") == 97.75)
    assert probe.next() == values
    hardware = {"neuron_device_count": 1, "neuroncore_per_device_count": 2}
    assert probe.probe.metadata() == {"trainium": {"name": "Trainium", "vendor": "AWS", **hardware}}


def test_old_line_says_nothing_about_now(monitor):
    """A program that goes silent, or never prints, loses its keys after three periods, which is told."""
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; exec sleep 60")
    until(probe, bool)
    assert probe.next(after=3.0)
    silent(probe, after=0.1)
    probe = monitor("exec sleep 60")
    assert probe.next() == probe.next(after=3.0) == {}
    silent(probe, after=0.1)


def test_metadata_before_the_first_line(monitor):
    """Devices and cores are known from the driver's files at once."""
    probe = monitor("exec sleep 60")
    hardware = {"neuron_device_count": 1, "neuroncore_per_device_count": 2}
    assert probe.probe.metadata() == {"trainium": {"name": "Trainium", "vendor": "AWS", **hardware}}
    assert probe.next() == {}


def test_private_configuration(monitor, tmp_path):
    """The program gets a file that only its user can read, which is gone after the end."""
    seen = tmp_path / "seen"
    probe = monitor(f'cp -p "$2" {seen}; echo "$1 $2" > {tmp_path}/argv; exec sleep 60', extended=True)
    probe.next()
    while not (tmp_path / "argv").exists() or not (tmp_path / "argv").read_text().endswith("\n"):
        time.sleep(0.01)
    option, path = (tmp_path / "argv").read_text().split()
    assert option == "-c"
    assert json.loads(seen.read_text()) == configuration(1.0, extended=True)
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
    probe.probe.close()
    assert not Path(path).parent.exists()


def test_configuration_that_a_cleaner_took(monitor, tmp_path):
    """Long after the start the program ends, and what it was started with is gone: it gets that anew."""
    starts = tmp_path / "starts"
    probe = monitor(f'[ -e "$2" ] && echo there >> {starts} || echo gone >> {starts}; exit 3')
    failure(probe)
    shutil.rmtree(probe.probe._folder)
    probe.ctx.begin(probe.ctx.now + 6.0)
    failure(probe)
    deadline = time.monotonic() + 10
    while starts.read_text().count("\n") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert starts.read_text() == "there\nthere\n"


def test_period_of_a_probe_that_samples_seldom(monitor):
    """A longer interval of this probe is the program's period too, and how long a line is good follows."""
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; exec sleep 60", probe_intervals={"trainium": 20.0})
    until(probe, bool)
    assert probe.next(after=60.0)
    silent(probe, after=1.0)


def test_a_shorter_period_than_the_samples_interval(monitor, tmp_path):
    """What the program prints in between does not shorten how long its last word holds for us."""
    (tmp_path / "own.json").write_text('{"period": "100ms"}')
    path = str(tmp_path / "own.json")
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; exec sleep 60", neuron_monitor_config_path=path)
    until(probe, bool)
    assert probe.next(after=3.0)
    silent(probe, after=0.1)


def test_configuration_of_the_user(monitor, tmp_path):
    """A file that the settings name is passed on as it is; its period says how long a line is good."""
    given_file = tmp_path / "own.json"
    given_file.write_text('{"period": "1m"}')
    probe = monitor(
        f'echo "$2" > {tmp_path}/argv; {printed("neuron-monitor-trn1.jsonl")}; exec sleep 60',
        neuron_monitor_config_path=str(given_file),
    )
    until(probe, bool)
    assert (tmp_path / "argv").read_text() == f"{given_file}\n"
    assert probe.next(after=170.0)
    silent(probe, after=11.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('{"period": "500ms"}', 0.5),
        ('{"period": "2.5s"}', 2.5),
        ('{"period": "2h"}', 7200.0),
        ('{"period": 5}', 5.0),
        ('{"period": "1 day"}', 5.0),
        ("[]", 5.0),
        ("[" * 100_000, 5.0),
        ("no json", 5.0),
    ],
)
def test_periods_of_the_user(tmp_path, text, seconds):
    """In the units that the program knows; what says nothing leaves the program's own, 5 s."""
    (tmp_path / "own.json").write_text(text)
    assert period_in(str(tmp_path / "own.json")) == seconds
    assert period_in(str(tmp_path / "none.json")) == 5.0


def test_the_program_s_word_after_its_end(monitor):
    """One that prints and ends at once: what it said holds while it is young, then why it ended is told."""
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; echo gone >&2; exit 3")
    until(probe, bool)
    until(probe, lambda _: probe.probe._child.error is not None)
    assert probe.next()
    with pytest.raises(RuntimeError, match="status 3: gone"):
        probe.next(after=3.1)


def test_garbage(monitor):
    """A line that is no JSON is told and skipped: what the last good one said still counts."""
    probe = monitor(f"{printed('neuron-monitor-trn1.jsonl')}; exec sleep 60")
    until(probe, bool)
    probe.probe._child.newest = lambda _: b"not json at all"
    probe.ctx.begin(probe.ctx.now + 1.0)
    values = {}
    with pytest.raises(ValueError, match="no JSON object: b'not json at all'"):
        probe.probe.sample(probe.ctx, values)
    assert values["trn.0.neuroncore_utilization"] == 97.75


@pytest.mark.parametrize("text", [b"[1]", b"null", b"[" * 100_000, b"\xff"])
def test_json_that_is_no_object(monitor, text):
    """So is one that is no object, nests without end, or is no text."""
    probe = monitor("exec sleep 60")
    probe.probe._child.newest = lambda _: text
    with pytest.raises(ValueError, match="no JSON object"):
        probe.next()


def test_half_a_line(monitor, tmp_path):
    """A line counts when its end has come."""
    line, end = FIXTURES / TORCHRUN, tmp_path / "end"
    script = f"head -c 500 {line}; until [ -e {end} ]; do sleep 0.02; done; tail -c +501 {line}; exec sleep 60"
    probe = monitor(script, environ={"NEURON_PROCESS_TAG": "rank1"})
    assert probe.next() == {}
    end.touch()
    assert cores_in(until(probe, bool)) == {"trn.1.neuroncore_utilization"}


def test_program_that_dies(monitor, tmp_path):
    """The end of the program is told with its status and last words; it is started again after five seconds."""
    starts = tmp_path / "starts"
    probe = monitor(f"echo x >> {starts}; echo 'driver not loaded' >&2; exit 3")
    assert failure(probe) == "neuron-monitor ended with status 3: driver not loaded"
    assert starts.read_text() == "x\n"
    probe.ctx.begin(probe.ctx.now + 6.0)
    assert "status 3" in failure(probe)
    deadline = time.monotonic() + 10
    while starts.read_text() != "x\nx\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_endless_line(monitor):
    """A line without end costs no memory without end, and is told."""
    assert "a line of more than" in failure(monitor("exec tr '\\0' 'x' < /dev/zero"))


def test_no_device(machine):
    """The tools alone are no device."""
    assert "no Neuron device" in TrainiumProbe({}).discover(machine.context())
    machine.write({"/dev/neuron0": ""})
    assert TrainiumProbe({}).discover(machine.context()) is None


def test_no_program(machine):
    """A device without the program is worth a warning that says what to install."""
    with pytest.raises(ProbeUnavailableError, match="aws-neuronx-tools") as caught:
        TrainiumProbe({"PATH": "/nowhere"}).open(machine.context())
    assert caught.value.loud


def test_place_of_the_package(machine, sampled, fixture_json):
    """Off PATH the program is found where its package puts it."""
    machine.process(4242)
    line = FIXTURES / "neuron-monitor-trn1.jsonl"
    machine.write({"/opt/aws/neuron/bin/neuron-monitor": f"#!/bin/sh\ncat {line}\nexec sleep 60\n"})
    (machine.root / "opt/aws/neuron/bin/neuron-monitor").chmod(0o755)
    probe = sampled(TrainiumProbe({"PATH": "/nowhere"}), machine.context(interval=1.0))
    assert until(probe, bool)["trn.0.neuroncore_utilization"] == 97.75
    probe.probe.close()


def test_in_a_sampler(machine, monkeypatch, tmp_path):
    """End to end: values join the samples, the program is not counted as ours, and the end is quick and leaves nothing."""
    started, folder = tmp_path / "started", tmp_path / "bin"
    folder.mkdir()
    program = folder / "neuron-monitor"
    script = (
        f"trap '' TERM; echo $$ >> {started}; cat {FIXTURES / 'neuron-monitor-trn1.jsonl'}; while :; do sleep 1; done"
    )
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    machine.process(4242)
    machine.write({"/dev/neuron0": ""})
    samples, warnings, enough = [], [], threading.Event()

    def emit(sample):
        samples.append(sample)
        if "trn.0.neuroncore_utilization" in sample.values:
            enough.set()

    settings = SamplerSettings(interval=0.2, probes=("trainium",), pid=4242)
    sampler = Sampler(settings, emit, root=str(machine.root), warn=warnings.append)
    sampler.start()
    assert enough.wait(20)
    begun = time.monotonic()
    sampler.stop()
    assert time.monotonic() - begun < 2.0
    assert warnings == []
    (pid,) = started.read_text().split()
    assert not Path(f"/proc/{pid}").exists()
    assert not list(tmp_path.glob("runferry-neuron-*"))
