"""Vendor libraries in a helper process: what hangs or crashes costs its own keys only, and nothing is left behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from runferry.sampler import Sampler, SamplerSettings, hardware, once, registry, sample_once
from runferry.sampler.checkup import check
from runferry.sampler.context import Context
from runferry.sampler.supervisor import FIRST_BACKOFF, KILL_AFTER, HelperRunner, spawn_helper

FAKES = Path(__file__).parent / "fake"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


@pytest.fixture(autouse=True)
def _fakes_on_the_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.syspath_prepend(str(FAKES))


@pytest.fixture
def run_in_helper():
    """A runner for a probe of helper_probes, closed at the end."""
    runners = []

    def start(name):
        import helper_probes

        ready = threading.Condition()
        ctx = Context(SamplerSettings(interval=1.0))
        runner = HelperRunner(getattr(helper_probes, name)(), ctx, ready)
        runner.ready, runner.ctx = ready, ctx
        runners.append(runner)
        return runner

    yield start
    for runner in runners:
        runner.close(2.0)
        assert not children()


def children():
    """Pids of this process's children, zombies included."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            found += (thread / "children").read_text().split()
    return found


def answer(runner, now):
    """Ask at `now` and wait for what comes: values, or the end of opening."""
    runner.request(now)
    with runner.ready:
        assert runner.ready.wait_for(lambda: not (runner.waiting or runner.opening), 20)
    return runner.take(now)


def opened(runner, now=0.0):
    answer(runner, now)
    return runner


def gone(pid):
    """Wait until a child has ended (the supervisor reaps it at the next tick)."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_values_come_from_another_process(run_in_helper):
    """The first request starts the helper; its pid is left out of the process tree; metadata comes with opening."""
    runner = opened(run_in_helper("Steady"))
    values = answer(runner, 1.0)
    assert values["steady.count"] == 1
    assert values["steady.pid"] in runner.ctx.own_pids
    assert values["steady.pid"] != os.getpid()
    assert runner.metadata() == {"gpu_type": "steady"}
    assert answer(runner, 2.0)["steady.count"] == 2


def test_only_the_sampler_decides_when_a_helper_samples(run_in_helper):
    """The least interval is counted here alone: a helper that is asked answers, whatever its own clock says."""
    runner = opened(run_in_helper("Rare"))
    assert answer(runner, 1.0)["steady.count"] == 1
    assert not runner.request(3000.0)
    assert answer(runner, 3601.0)["steady.count"] == 2


def test_output_of_the_library_does_not_mix_with_answers(run_in_helper):
    """What a vendor library prints goes nowhere."""
    runner = opened(run_in_helper("Chatty"))
    assert answer(runner, 1.0)["steady.count"] == 1
    assert runner.stats.errors == 0


def test_failing_sample_keeps_what_it_wrote(run_in_helper):
    """An exception in the probe is counted and told; values written before it count."""
    runner = opened(run_in_helper("Failing"))
    assert answer(runner, 1.0) == {"failing.before": 1}
    assert (runner.stats.errors, runner.stats.last_error) == (1, "RuntimeError: no luck")


def test_unavailable_probe_is_not_asked_again(run_in_helper):
    """A device that is not there ends the matter, with its reason."""
    runner = opened(run_in_helper("Missing"))
    assert (runner.reason, runner.loud) == ("no such device", True)
    (pid,) = runner.ctx.own_pids
    assert not runner.request(1000.0)
    gone(pid)
    assert not runner.request(1015.0)
    assert not children()  # and holds no memory


def test_failed_opening_is_tried_again_with_backoff(run_in_helper):
    """An opening that fails for no known reason is repeated after 5 s, 10 s ... in a new process."""
    runner = opened(run_in_helper("Stubborn"))
    assert runner.reason is None
    assert "busy" in runner.stats.last_error
    (first,) = runner.ctx.own_pids
    gone(first)
    runner.request(1.0)
    assert not runner.ctx.own_pids
    runner.request(1.0 + FIRST_BACKOFF - 0.1)
    assert not runner.ctx.own_pids
    answer(runner, 1.0 + FIRST_BACKOFF)
    assert runner.stats.errors == 2


def test_crashed_helper_is_replaced(run_in_helper):
    """A crash is noticed at the next tick; the next helper starts after the backoff, which then doubles."""
    runner = opened(run_in_helper("Crashing"))
    now = 1.0
    for backoff in (FIRST_BACKOFF, 2 * FIRST_BACKOFF):
        (pid,) = runner.ctx.own_pids
        runner.request(now)
        gone(pid)
        runner.request(now)
        assert not runner.ctx.own_pids
        assert "status 7" in runner.stats.last_error
        runner.request(now + backoff - 0.1)
        assert not runner.ctx.own_pids
        now += backoff
        answer(runner, now)
        assert runner.ctx.own_pids


def test_stuck_helper_is_marked_then_killed_then_replaced(run_in_helper):
    """A call that hangs is stalled after the deadline, killed after 30 s, and replaced after the backoff."""
    runner = opened(run_in_helper("Stuck"))
    assert answer(runner, 1.0)["steady.count"] == 1
    (pid,) = runner.ctx.own_pids
    assert runner.request(2.0)
    assert not runner.request(2.5)
    assert not runner.stats.stalled
    runner.request(3.0)
    assert runner.stats.stalled
    runner.request(2.0 + KILL_AFTER)
    gone(pid)
    runner.request(2.0 + KILL_AFTER)
    assert not runner.ctx.own_pids
    answer(runner, 2.0 + KILL_AFTER + FIRST_BACKOFF)
    assert answer(runner, 40.0)["steady.count"] == 1


class Unkillable:
    """A child in an uninterruptible call: it takes the signal and stays."""

    def __init__(self):
        self.pid, self.returncode, self.killed = 999_999_999, None, 0
        self.stdin = open(os.devnull, "wb")  # noqa: PTH123, SIM115 - closed by the runner
        end, self.to_runner = os.pipe()
        self.stdout = os.fdopen(end, "rb", buffering=0)

    def poll(self):
        return self.returncode

    def kill(self):
        self.killed += 1

    def wait(self, timeout=None):
        raise subprocess.TimeoutExpired("helper", timeout)


def test_unkillable_helper_is_never_joined_by_a_second(monkeypatch):
    """A process that cannot be killed is waited for, and no other is started meanwhile."""
    import helper_probes

    spawned = []

    def spawn():
        spawned.append(Unkillable())
        return spawned[-1]

    ready = threading.Condition()
    runner = HelperRunner(helper_probes.Steady(), Context(SamplerSettings()), ready, spawn=spawn)
    for now in range(0, 3000, 100):
        runner.request(float(now))
    assert len(spawned) == 1
    assert spawned[0].killed == 1
    spawned[0].returncode = -9
    runner.request(3000.0)
    runner.request(3000.0 + FIRST_BACKOFF)
    assert len(spawned) == 2
    runner.close(0.1)
    for child in spawned:
        os.close(child.to_runner)
        child.stdout.close()


@pytest.mark.parametrize("resumed", [True, False])
def test_a_helper_that_is_stopped_while_it_starts(resumed):
    """A request longer than the pipe holds, to a child that reads nothing: no tick waits, nor does the end."""
    import helper_probes

    def spawn():
        child = spawn_helper()
        os.kill(child.pid, signal.SIGSTOP)
        return child

    ctx = Context(SamplerSettings(disk_paths=["/" + "x" * 100] * 5000), own_pids=set())  # half a megabyte
    runner = HelperRunner(helper_probes.Steady(), ctx, threading.Condition(), spawn=spawn)
    runner.ready = runner._ready
    started = time.monotonic()
    try:
        assert not runner.request(0.0)
        assert not runner.request(1.0)
        assert runner.opening
        if resumed:
            (pid,) = ctx.own_pids
            os.kill(pid, signal.SIGCONT)
            answer(runner, 1.0)
            assert answer(runner, 2.0)["steady.count"] == 1
            assert runner._opening_pipe.closed
    finally:
        runner.close(1.0)
    assert time.monotonic() - started < 15
    assert not children()


def test_a_helper_imports_nothing_from_where_it_runs(run_in_helper):
    """A `json.py` of a user in the working folder, which Python puts first on its path, must not become the helper's."""
    runner = run_in_helper("Paths")
    runner.request(0.0)
    answer(runner, 1.0)
    assert answer(runner, 2.0)["paths.of_the_folder"] == 0


@pytest.mark.parametrize("given", [None, "1"])
def test_programs_that_a_helper_runs_look_for_modules_as_ever(monkeypatch, run_in_helper, given):
    """Such as `rocm-smi`, a Python program with modules beside it: no switch of ours reaches it, only the user's."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if given:
        monkeypatch.setenv("PYTHONSAFEPATH", given)
    runner = opened(run_in_helper("Paths"))
    assert answer(runner, 1.0)["paths.safe"] == bool(given)


def test_no_interpreter_no_helper(monkeypatch):
    """Where no process can be started, that is an error to tell, tried again later."""
    import helper_probes

    monkeypatch.setattr(sys, "executable", "")
    runner = HelperRunner(helper_probes.Steady(), Context(SamplerSettings()), threading.Condition())
    assert not runner.request(0.0)
    assert "cannot be started" in runner.stats.last_error


def test_helper_ends_with_its_parent():
    """A helper leaves when its parent is killed, even in the middle of a call that hangs."""
    script = (
        "import threading, time, sys; from runferry.sampler.supervisor import HelperRunner;"
        "from runferry.sampler.context import Context; from runferry.sampler import SamplerSettings;"
        "import helper_probes; ready = threading.Condition();"
        "r = HelperRunner(helper_probes.Stuck(), Context(SamplerSettings()), ready); r.request(0)\n"
        "for t in (1, 2):\n"
        "  with ready: ready.wait_for(lambda: not (r.waiting or r.opening), 20)\n"
        "  r.request(t)\n"
        "print(*r._ctx.own_pids, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        helper = int(parent.stdout.readline())
        assert Path(f"/proc/{helper}").exists()
        watch = os.pidfd_open(helper)
        parent.send_signal(signal.SIGKILL)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    assert poll.poll(5000), "the helper lives on"
    os.close(watch)


def test_a_helper_has_a_session_of_its_own(run_in_helper):
    """Ctrl-C in the terminal is for the training."""
    runner = run_in_helper("Steady")
    runner.request(0.0)
    pid = runner._child.pid
    assert os.getsid(pid) == pid != os.getsid(0)


def test_a_helper_leaves_in_the_middle_of_a_call(run_in_helper):
    """The end of its input is enough: it need not be killed."""
    runner = run_in_helper("Slow25")
    runner.request(0.0)
    with runner.ready:
        assert runner.ready.wait_for(lambda: not runner.opening, 20)
    assert runner.request(1.0)
    runner.dismiss()
    assert runner._child.wait(5) == 0


def test_helper_stops_when_asked_to(run_in_helper):
    """Closing takes no time even while a call hangs, and leaves no child."""
    runner = opened(run_in_helper("Stuck"))
    answer(runner, 1.0)
    runner.request(2.0)
    started = time.monotonic()
    runner.close(2.0)
    assert time.monotonic() - started < 1.0
    assert not children()


def test_forked_child_lets_go_of_the_helper(run_in_helper):
    """A forked child that forgets the helper holds no end of its pipe: the helper still ends when the parent says so."""
    runner = opened(run_in_helper("Steady"))
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking with threads
        child = os.fork()
    if child == 0:
        runner.forget()
        os.close(write_end)
        os.read(read_end, 1)  # until the parent has closed
        os._exit(0)
    os.close(read_end)
    started = time.monotonic()
    helper = runner._child
    runner.close(10.0)
    assert time.monotonic() - started < 5.0  # half of the time would have passed before it is killed
    assert helper.returncode == 0
    os.close(write_end)
    os.waitpid(child, 0)


def test_garbage_is_no_request():
    """A helper that is asked for something unknown ends with an error instead of hanging."""
    child = spawn_helper()
    child.stdin.write(json.dumps({"id": 1, "op": "dance", "parent": os.getpid()}).encode() + b"\n")
    assert child.stdout.read() == b""
    assert child.wait(10) == 1
    child.stdin.close()
    child.stdout.close()


def test_nvml_that_hangs_costs_its_own_keys_only(monkeypatch, machine):
    """End to end with the fake library: GPU keys join, one call hangs for good, the other keys tick on, stop is quick."""
    monkeypatch.setenv("FAKE_NVML", str(FIXTURES / "nvml-h100x2.json"))
    hang = {"fn": "nvmlDeviceGetTemperature", "device": 1, "call": 3, "sleep": 3600}
    monkeypatch.setenv("FAKE_NVML_SCRIPT", json.dumps([hang]))
    machine.write({"/dev/nvidiactl": "", "/proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"})
    samples, warnings, enough = [], [], threading.Event()

    def emit(sample):
        samples.append(sample)
        if len(samples) > 14:
            enough.set()

    settings = SamplerSettings(interval=0.2, probes=("nvidia", "memory"), pid=4242)
    sampler = Sampler(settings, emit, root=str(machine.root), warn=warnings.append)
    sampler.start()
    assert enough.wait(20)
    started = time.monotonic()
    sampler.stop()
    assert time.monotonic() - started < 2.0
    assert not children()
    assert all("memory_percent" in sample.values for sample in samples)
    with_gpu = [sample for sample in samples if "gpu.0.gpu" in sample.values]
    assert len(with_gpu) == 2
    assert "gpu.1.temp" in with_gpu[0].values
    assert warnings == ["probe nvidia hangs; its metrics are missing until it answers"]
    times = [sample.timestamp_ns / 1e9 for sample in samples[-12:-1]]
    assert max(abs(after - before - 0.2) for before, after in itertools.pairwise(times)) < 0.1


def test_hardware_asks_the_driver(monkeypatch, machine):
    """The hardware record has the GPUs, asked in a helper that is gone afterwards."""
    monkeypatch.setenv("FAKE_NVML", str(FIXTURES / "nvml-rtx4090.json"))
    machine.write({"/dev/nvidiactl": ""})
    record = hardware(SamplerSettings(gpu_count=8), root=str(machine.root), devices_within=20.0)
    assert record["gpu_type"] == "NVIDIA GeForce RTX 4090"
    assert record["gpu_count"] == 8  # the setting overrides what was counted
    assert record["gpu_nvidia"][0]["architecture"] == "Ada"
    assert record["cuda_version"] == "12.6"
    assert not children()


def test_sample_once_has_rates_of_a_library(machine, monkeypatch):
    """They take two readings, and the first tick only starts the helper."""
    import helper_probes

    monkeypatch.setattr(registry, "built_in", lambda *args, **kwargs: [helper_probes.Steady()])
    monkeypatch.setattr(once, "DEVICES_WITHIN", 20.0)
    sample = sample_once(SamplerSettings(), pause=0.0, root=str(machine.root), warn=pytest.fail)
    assert sample.values["steady.count"] == 2


@pytest.mark.parametrize("name", ["", "rate"])
def test_a_checkup_has_rates_of_a_library(machine, name):
    """Two readings, however seldom a probe would be asked otherwise, by itself or by the settings."""
    import helper_probes

    settings = SamplerSettings(probe_intervals={name: 60.0} if name else {})
    found = check(settings, root=str(machine.root), probes=[helper_probes.Rate()], within=20.0)
    assert [(finding.state, finding.keys) for finding in found.findings] == [("ok", ("rate.value",))]


def test_odd_values_cost_no_other(run_in_helper):
    """As where a probe runs in this process: they are left out, and the helper lives on."""
    runner = opened(run_in_helper("Odd"))
    values = answer(runner, 1.0)
    assert {key: values[key] for key in values if key != "steady.pid"} == {"steady.count": 1, "odd.good": 1.5}
    assert (runner.stats.errors, runner.metadata()) == (0, {"gpu_type": "b'bytes'"})


def test_a_helper_finds_modules_where_this_process_does(monkeypatch, tmp_path, run_in_helper):
    """A path that a program or a launcher has set is no part of the environment; it is looked at last."""
    (tmp_path / "json.py").write_text("raise ImportError('not this one')")
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert answer(opened(run_in_helper("Steady")), 1.0)["steady.count"] == 1


def test_a_probe_that_its_helper_cannot_load_says_so(run_in_helper):
    """By name and cause, not by an exit status."""
    import helper_probes

    runner = run_in_helper("Steady")
    runner.probe = type("Nowhere", (helper_probes.Steady,), {"__module__": "no_such_module"})()
    opened(runner)
    assert runner.stats.last_error.startswith("no_such_module:Nowhere cannot be loaded: ModuleNotFoundError")
