"""`runferry sample`, as a user calls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.sampler import Sample


def test_one_sample_is_one_object():
    """Timestamp in UTC and values by key, rates included; only the probes asked for."""
    result = CliRunner().invoke(
        group, ["sample", "--interval", "0.1", "--probe", "cpu", "--probe", "memory", "--label", "n1"]
    )
    assert result.exit_code == 0, result.output
    sample = json.loads(result.output)
    assert sample["timestamp"].endswith("Z")
    assert {"cpu/l:n1", "memory_percent/l:n1", "proc.memory.rssMB/l:n1"} <= set(sample["values"])
    assert not any(key.startswith("disk") for key in sample["values"])


def test_interval_below_the_least_is_a_usage_error():
    """A wrong option is exit code 2 and says what is allowed."""
    result = CliRunner().invoke(group, ["sample", "--watch", "--interval", "0.01"])
    assert result.exit_code == 2
    assert "0.1" in result.output.partition("range")[2]


def test_watch_prints_lines_until_interrupted():
    """One object per line at once, and a quiet end with 130 on Ctrl-C."""
    arguments = [sys.executable, "-m", "runferry.cli", "sample", "--watch", "--interval", "0.1", "--probe", "memory"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == ""
    assert lines[0]["timestamp"] < lines[1]["timestamp"]


def test_keys_are_sorted():
    """Two samples of one machine can be compared as text."""
    result = CliRunner().invoke(group, ["sample", "--interval", "0.1", "--skip-probe", "nvidia"])
    keys = list(json.loads(result.output)["values"])

    assert keys == sorted(keys)
    assert {"disk./.usagePercent", "memory_percent"} <= set(keys)


def test_a_reader_that_has_had_enough_ends_a_watch():
    """`sample --watch | head -1` is no error, and nothing stays behind."""
    arguments = [sys.executable, "-m", "runferry.cli", "sample", "--watch", "--interval", "0.1", "--probe", "memory"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "memory_percent" in json.loads(process.stdout.readline())["values"]
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(20), errors) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--probe", "nope"], "there is no probe 'nope'; there are "),
        (["--skip-probe", "nope"], "there is no probe 'nope'"),
        (["--disk", "/no/such/folder"], "there is no /no/such/folder"),
        (["--pid", "99999999"], "there is no process 99999999"),
    ],
)
def test_what_is_not_there_is_a_usage_error(arguments, words):
    """A typing error is no empty sample."""
    result = CliRunner().invoke(group, ["sample", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_nothing_to_tell_is_1():
    """A script sees that the devices it asked for are not here."""
    result = CliRunner().invoke(group, ["sample", "--interval", "0.1", "--probe", "portable"])
    assert result.exit_code == 1
    assert "nothing could be read" in result.output


def watch(*arguments):
    """Runs `sample --watch` to its end: exit code, lines, standard error."""
    command = [sys.executable, "-m", "runferry.cli", "sample", "--watch", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("probe", "why"), [("load", "only with the setting extended"), ("portable", "is not on this machine")]
)
def test_a_watch_with_nothing_to_read_ends(probe, why):
    """1, at once, and why."""
    code, lines, errors = watch("--probe", probe)
    assert (code, lines) == (1, [])
    assert why in errors
    assert "nothing could be read" in errors


def test_a_watch_ends_with_its_process():
    """Nobody has waited for it yet: it has ended all the same."""
    with subprocess.Popen(["sleep", "1"]) as process:
        code, lines, errors = watch("--pid", str(process.pid), "--interval", "0.2", "--probe", "cpu")
    assert code == 0
    assert lines
    assert f"process {process.pid} has ended" in errors


def test_the_settings_of_runs_hold_and_options_go_before_them(monkeypatch):
    """Variables choose; what is wrong among them is told; costs of probes come on request only."""
    monkeypatch.setenv("RUNFERRY_PROBES", "memory")
    monkeypatch.setenv("RUNFERRY_LABEL", "variable")
    monkeypatch.setenv("RUNFERRY_PROBE_INTERVALS", "cpu=-1")
    result = CliRunner().invoke(group, ["sample", "--interval", "0.1"])
    assert set(json.loads(result.stdout)["values"]) >= {"memory_percent/l:variable"}
    assert all(key.endswith("/l:variable") and "cpu" not in key for key in json.loads(result.stdout)["values"])
    assert "-1 s for 'cpu'" in result.stderr

    result = CliRunner().invoke(group, ["sample", "--interval", "0.1", "--probe", "cpu", "--label", "option"])
    values = json.loads(result.stdout)["values"]
    assert "cpu/l:option" in values
    assert not any("memory" in key or key.startswith("sampler.") for key in values)


def test_names_that_a_terminal_would_obey(monkeypatch):
    """Controls in the name of a mount, and bytes of it that are no UTF-8, are escaped; other letters stay."""
    name = "nfs./d\u00e9\x9b31m\udcff.retrans"
    monkeypatch.setattr("runferry.cli.sample.sample_once", lambda settings, **given: Sample(10**9, {name: 1}))
    result = CliRunner().invoke(group, ["sample"])
    assert json.loads(result.stdout) == {"timestamp": "1970-01-01T00:00:01.000000Z", "values": {name: 1}}
    assert "nfs./d\u00e9\\u009b31m\\udcff.retrans" in result.stdout
