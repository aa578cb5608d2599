"""The records of the machine, where some of it is slow to find, cannot be said, or is not wanted."""

from __future__ import annotations

import getpass
import json
import threading
import time
from pathlib import Path

import pytest
from runferry.logformat import messages
from runferry.sampler import Probe, Tier, registry
from runferry.writer import records
from runferry.writer.ranks import Role


@pytest.fixture
def hold():
    """An event that a hanging call waits for; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def slow_user(monkeypatch, hold):
    """A directory service that does not answer before `hold` is set."""

    def getuser():
        hold.wait(20)
        return "ada"

    monkeypatch.setattr(getpass, "getuser", getuser)
    return hold


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr("runferry.sampler.environment.FIRST_WITHIN", 0.3)


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def side_file(run, name="runferry-machine.json"):
    (log,) = run.finish().paths
    return Path(log).parent / "files" / name


def test_what_is_slow_to_find_is_a_third_record(begin, state, slow_user):
    """The first two come without it, in time; the third has it alone, under the same writer."""
    run = begin(disable_meta=False)
    until(run._attendant._told.is_set)
    slow_user.set()
    until(lambda: not run._attendant._thread.is_alive())
    found = state(*run.finish().paths)

    assert found.counts["environment"] == 3
    assert len(found.environments) == 1
    assert (found.environment.username, found.environment.python.split()[0]) == ("ada", "CPython")


def test_the_end_waits_for_nothing_that_hangs(begin, state, slow_user):
    """Whatever does not answer, a run's end is as quick as ever, and all else is in the log."""
    run = begin(disable_meta=False)
    until(run._attendant._told.is_set)
    begun = time.monotonic()
    report = run.finish()

    assert time.monotonic() - begun < 1.5
    found = state(*report.paths)
    assert (found.counts["environment"], found.environment.username) == (2, "")
    assert found.environment.cpu_count_logical > 0


class Devices(Probe):
    """Knows what the record cannot say, and what it has no field for."""

    name = "devices"
    tier = Tier.THREAD
    opened = 0

    def open(self, ctx):
        Devices.opened += 1

    def sample(self, ctx, out):
        out["devices.x"] = 1

    def metadata(self):
        return {"gpu_count": 3, "gpu_type": "T", "memory": {"total": "much"}, "driver_version": "9.1"}


@pytest.mark.parametrize("disable_stats", [False, True])
def test_devices_are_told_by_probes_that_are_opened_once(begin, state, monkeypatch, disable_stats):
    """By the sampler's, where it runs. A field that cannot hold its value is named; what has none is in the run's file."""
    monkeypatch.setattr(registry, "built_in", lambda settings, warn, root="/": [Devices()])
    monkeypatch.setattr(Devices, "opened", 0)
    warnings = []
    run = begin(disable_meta=False, disable_stats=disable_stats, warn=warnings.append)
    until(lambda: not run._attendant._thread.is_alive())
    kept = json.loads(side_file(run).read_text())
    found = state(*run.finish().paths)

    assert Devices.opened == 1
    assert (found.environment.gpu_count, found.environment.gpu_type) == (3, "T")
    assert kept["driver_version"] == "9.1"
    assert [text for text in warnings if "memory" in text]
    assert found.environment.cpu_count_logical > 0


def test_the_side_record_is_a_file_of_the_run(begin, state):
    """With limits and file systems; the log names it, so that a sync takes it."""
    run = begin(disable_meta=False)
    until(lambda: not run._attendant._thread.is_alive())
    kept = json.loads(side_file(run).read_text())

    assert kept["limits"]["cpus"] > 0
    assert kept["kernel"]["release"]
    assert "runferry-machine.json" in state(*run.finish().paths).files


def test_each_node_has_a_side_record_of_its_own(begin):
    """Under its label, whatever that has in it, so that none takes another's place at the server."""
    run = begin(disable_meta=False, label="../n 1", role=Role.SAMPLER)
    until(lambda: not run._attendant._thread.is_alive())

    assert side_file(run, "runferry-machine_.._n_1.json").exists()


class Numbered(Probe):
    """Its keys are numbers of labels."""

    name = "numbered"

    def sample(self, ctx, out):
        out["m.0"] = 1
        out["m.1"] = 2

    def legend(self):
        return {"m.0": {"pool": "a"}, "m.1": {"pool": "b"}}


def test_what_numbered_keys_stand_for_is_a_file_of_the_run(begin, state, monkeypatch):
    """With the keys as they stand in the log, under the node's label; without such keys there is no file."""
    monkeypatch.setattr(registry, "built_in", lambda settings, warn, root="/": [Numbered()])
    run = begin(disable_stats=False, label="n1")
    name = "runferry-metric-labels_n1.json"

    assert json.loads(side_file(run, name).read_text()) == {"m.0/l:n1": {"pool": "a"}, "m.1/l:n1": {"pool": "b"}}
    assert name in state(*run.finish().paths).files
    monkeypatch.setattr(Numbered, "legend", lambda self: {})
    assert not side_file(begin(disable_stats=False, label="n1"), name).exists()


def test_no_record_of_the_machine_where_none_is_wanted(begin, state):
    """`disable_meta`: neither records nor the file."""
    run = begin(disable_stats=False)
    until(lambda: not run._attendant._thread.is_alive())

    assert not side_file(run).exists()
    assert state(*run.finish().paths).environment is None


def test_a_value_that_cannot_be_said_costs_its_field_alone():
    """Numbers out of range and text that is none; names in another encoding are shown as far as they can be read."""
    told = []
    facts = {"args": ["a\udcff", "b"], "cpu_count": -1, "memory": {"total": "x"}, "host": "h", "nonsense": 1}
    body = records.environment(facts, "w", told.append)
    record = messages.Record.FromString(body).environment

    assert (list(record.args), record.host, record.writer_id) == (["a\ufffd", "b"], "h", "w")
    assert not record.HasField("memory")
    assert [text.split(":")[0] for text in told] == [
        "the record of the machine lacks cpu_count",
        "the record of the machine lacks memory",
    ]
