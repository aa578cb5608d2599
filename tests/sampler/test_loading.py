"""What a sampler's threads import, and when: a fork must meet none of it."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading

from runferry.sampler import Sampler, SamplerSettings


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_threads_import_nothing_once_the_modules_are_loaded():
    """Neither samples nor the records of the machine load a module of ours or of the library behind `load_modules`."""
    code = """
import sys, threading
from runferry.sampler import Sampler, SamplerSettings, execution_context, hardware, load_modules
settings = SamplerSettings(interval=0.1)
load_modules()
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
