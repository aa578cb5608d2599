"""`runferry doctor`, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.sampler import checkup
from runferry.sampler.checkup import Checkup, Finding


def doctor(*arguments):
    result = CliRunner().invoke(group, ["doctor", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def told(monkeypatch):
    """Have `check` find this, and keep what it was asked."""
    asked = []

    def tell(*findings, limits=None, warnings=()):
        def check(settings, **given):
            asked.append((settings, given))
            return Checkup(list(findings), limits or {"cpus": 2, "host_cpus": 64}, list(warnings))

        monkeypatch.setattr(checkup, "check", check)
        return asked

    return tell


def test_the_probes_of_this_machine(tmp_path):
    """What is found, with keys and costs, for programs: one object a line, a sum at the end."""
    code, out = doctor("--json", "--probe", "memory", "--probe", "nvidia", "--dir", str(tmp_path))
    lines = {line.get("probe", line["type"]): line for line in map(json.loads, out.splitlines())}

    assert code == 0
    assert lines["memory"]["state"] == "ok"
    assert "memory_percent" in lines["memory"]["keys"]
    assert lines["memory"]["sample_ms"] < 1000
    assert lines["nvidia"]["state"] == "absent"
    assert lines["limits"]["cpus"] > 0
    assert (lines["done"]["ok"], lines["done"]["absent"], lines["done"]["warnings"]) == (1, 1, 0)


def test_a_table_for_people(told):
    """Ill ones first, what runs on request apart, limits and warnings in words."""
    told(
        Finding("cpu", "inline", "ok", "", ("cpu",), 0.123, 12.3),
        Finding("amd", "helper", "absent", "no driver"),
        Finding("psi", "inline", "off", "only with the setting extended"),
        Finding("nvidia", "helper", "hangs", "no answer within 10 s\x1b[2J"),
        limits={
            "cpus": 1.5,
            "host_cpus": 64,
            "host_memory": 64 << 30,
            "cpu_quota": {"cpus": 1.5, "group": "/a"},
            "memory": {"bytes": 8 << 30, "group": "/b", "version": 2},
        },
        warnings=["/dev/shm is small"],
    )
    code, out = doctor()
    lines = out.splitlines()

    assert code == 1
    assert [line.split()[0] for line in lines[1:4]] == ["nvidia", "cpu", "amd"]
    assert lines[2].split() == ["cpu", "ok", "1", "0.12", "12"]
    assert "\x1b" not in out
    assert "only with the setting extended: psi" in out
    assert "limits: 1.5 of 64 CPUs (a quota of /a), 8.0 of 64.0 GiB memory (of /b)" in out
    assert "warning: /dev/shm is small" in out


@pytest.mark.parametrize(
    ("state", "warnings", "code"),
    [("ok", (), 0), ("absent", (), 0), ("off", (), 0), ("failed", (), 1), ("hangs", (), 1), ("ok", ("x",), 1)],
)
def test_exit_codes(told, state, warnings, code):
    """0 where nothing needs a look."""
    told(Finding("cpu", "inline", state, ""), warnings=warnings)
    assert doctor()[0] == code
    assert doctor("--json")[0] == code


def test_what_a_run_would_sample_is_tried(told, monkeypatch):
    """The settings of runs hold here too, and options go before them."""
    asked = told(Finding("cpu", "inline", "ok", ""))
    monkeypatch.setenv("RUNFERRY_DISK_PATHS", "/,/tmp")
    monkeypatch.setenv("RUNFERRY_EXTENDED", "true")
    doctor("--probe", "cpu", "--within", "3", "--dir", "/x")
    settings, given = asked[0]

    assert (settings.disk_paths, settings.extended, settings.probes) == (("/", "/tmp"), True, ("cpu",))
    assert (given["within"], given["folder"]) == (3, "/x")


def test_the_folder_is_that_of_a_run(told, monkeypatch):
    """By the settings, unless an option says so: a run would fail there, not here."""
    asked = told(Finding("cpu", "inline", "ok", ""))
    doctor()
    monkeypatch.setenv("WANDB_DIR", "/logs")
    doctor()
    doctor("--dir", "/x")
    assert [given["folder"] for _, given in asked] == [str(Path.cwd()), "/logs", "/x"]


@pytest.mark.parametrize("arguments", [["--probe", "nope"], ["--skip-probe", "nope"], ["--within", "0"]])
def test_wrong_usage(arguments):
    """2, and what there is."""
    code, out = doctor(*arguments)
    assert code == 2
    assert "memory" in out or "range" in out


def test_what_a_run_would_be_told_of_its_settings(told, monkeypatch):
    """Wrong values and names of variables, and that nothing is sampled at all."""
    told(Finding("cpu", "inline", "ok", ""))
    assert doctor()[0] == 0
    monkeypatch.setenv("RUNFERRY_KEY_CAP", "many")
    monkeypatch.setenv("RUNFERRY_KEY_CUP", "1")
    monkeypatch.setenv("RUNFERRY_DISABLE_STATS", "true")
    code, out = doctor()
    assert code == 1
    assert "RUNFERRY_KEY_CAP='many': key_cap takes" in out
    assert "RUNFERRY_KEY_CUP (did you mean RUNFERRY_KEY_CAP?)" in out
    assert "has no system metrics: the setting disable_stats" in out
    monkeypatch.setenv("RUNFERRY_MODE", "disabled")
    assert "writes nothing: the setting mode is disabled" in doctor()[1]


HUNG = """
import sys, threading
from runferry.sampler import Probe
from runferry.sampler import registry
class Hung(Probe):
    name = "hung"
    def sample(self, ctx, out):
        threading.Event().wait()
class Child(Probe):
    name = "child"
    def sample(self, ctx, out):
        from runferry.sampler.command import run
        run(ctx, ["sleep", "987"], timeout=900)
sys.modules["hung"] = sys.modules[__name__]
registry.BUILT_IN = {"hung": "__main__:Hung", "child": "__main__:Child", "memory": registry.BUILT_IN["memory"]}
sys.argv = ["runferry", "doctor", "--within", "1", "--json"]
from runferry.cli import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")
def test_it_ends_whatever_hangs():
    """A probe that never returns and a command that never ends: both named, and no process stays behind."""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=50, check=False)
    lines = {line.get("probe", line["type"]): line for line in map(json.loads, done.stdout.splitlines())}

    assert time.monotonic() - begun < 20
    assert done.returncode == 1, done.stderr
    assert lines["hung"]["state"] == lines["child"]["state"] == "hangs"
    assert lines["memory"]["state"] == "ok"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        assert b"sleep\x00987" not in line
