"""A run from `init` to `finish`, through the thread, as the reader finds it."""

from __future__ import annotations

import errno
import math
import os
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runferry.logformat import read_records
from runferry.logformat.wire import set_flags
from runferry.writer import UnloggableError, pump, records
from runferry.writer.api import AlertLevel
from runferry.writer.media.table import Table
from runferry.writer.ranks import Role
from support.faultfs import FaultFS


def logged(state):
    """The rows without our own keys."""
    return [{key: value for key, value in row.items() if key[0] != "_"} for row in state.rows]


def kinds(path):
    return [record.kind for record in read_records(path)]


def test_a_run_from_start_to_end(begin, state):
    """Everything that was said is in the log: identity, config, rows, summary, exit."""
    run = begin({"lr": 0.1}, project="p", name="n", notes="o", tags=("a", "b"), group="g", job_type="j", entity="e")
    run.log({"loss": 0.5, "val": {"acc": 0.9}})
    run.log({"loss": 0.25})
    run.config["lr"] = 0.2
    run.config.model = {"layers": 3}
    run.summary["best"] = 0.25
    report = run.finish(3)
    found = state(*report.paths)

    assert report.complete
    assert (report.rows_written, report.rows_dropped, report.rows_late) == (2, 0, 0)
    info = found.info
    assert (info.run_id, info.project, info.display_name, info.notes) == (run.id, "p", "n", "o")
    assert (info.tags, info.group, info.job_type, info.entity) == (["a", "b"], "g", "j", "e")
    assert {"lr": 0.2, "model": {"layers": 3}}.items() <= found.config.items()
    assert logged(found) == [{"loss": 0.5, "val": {"acc": 0.9}}, {"loss": 0.25}]
    assert {"loss": 0.25, "val": {"acc": 0.9}, "best": 0.25}.items() <= found.summary.items()
    assert found.exit_code == 3
    assert kinds(report.paths[0])[:2] == ["header", "run"]
    assert kinds(report.paths[0])[-1] == "exit"


def test_the_directory(begin, tmp_path):
    """`wandb/run-<time>-<id>/run-<id>.wandb`, its sign of life, `files/`, `latest-run`, and nothing else anywhere."""
    run = begin(run_id="abc")
    directory = run.log_path.parent

    assert directory.name.startswith("run-")
    assert directory.name.endswith("-abc")
    assert (tmp_path / "wandb" / "latest-run").readlink().name == directory.name
    assert {path.name for path in directory.rglob("*")} == {"run-abc.wandb", "run-abc.wandb.alive", "files"}
    assert {path.name for path in tmp_path.rglob("*")} == {
        "wandb",
        directory.name,
        "latest-run",
        "run-abc.wandb",
        "run-abc.wandb.alive",
        "files",
    }
    assert run.dir == str(directory / "files")


def test_the_peers_directory_name(begin):
    """`dir_prefix` gives the name that the peer's own sync looks for."""
    assert begin(dir_prefix="offline-run").log_path.parent.name.startswith("offline-run-")


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=30)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda name: not name.startswith("_"))
ROWS = st.lists(
    st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)), max_size=6),
    min_size=1,
    max_size=6,
)


def nan_free(value):
    """Comparable: NaN becomes a word."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN!"
    if isinstance(value, list):
        return [nan_free(item) for item in value]
    if isinstance(value, dict):
        return {key: nan_free(item) for key, item in value.items()}
    return value


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_any_rows_come_back(begin, state, rows):
    """What is logged is what is read, in order, in type and value."""
    run = begin()
    for row in rows:
        run.log(row)
    found = state(*run.finish().paths)

    assert nan_free(logged(found)) == nan_free(rows)
    assert [row["_step"] for row in found.rows] == list(range(len(rows)))


def test_a_row_is_a_copy(begin, state):
    """What the caller does to the dict after `log` does not show."""
    run = begin()
    row = {"a": 1, "l": [1]}
    run.log(row)
    row["a"] = 2
    row["l"].append(2)

    assert logged(state(*run.finish().paths)) == [{"a": 1, "l": [1]}]


@pytest.mark.parametrize("level", ["relaxed", "normal", "record", "disk"])
def test_flush_brings_everything_to_the_device(begin, level):
    """At every level: open rows and the summary included, and the file synced."""
    fs = FaultFS()
    run = begin(fs=fs, durability=level)
    run.log({"a": 1}, step=4)
    run.summary["best"] = 1

    assert run.flush()
    (file,) = fs.files.values()
    assert file.durable == bytes(file.data)
    assert b'"a"' in file.durable or b"a\x82\x01" in file.durable
    assert b"best" in file.durable


def test_log_at_level_record_returns_when_it_is_written(begin):
    """The bytes are in the file when `log` returns."""
    fs = FaultFS()
    run = begin(fs=fs, durability="record")
    for number in range(20):
        run.log({"key": 1000 + number}, step=number if number % 2 else None)

        assert str(1000 + number).encode() in fs.logs()[0]


def test_log_at_level_disk_returns_when_it_is_synced(begin):
    """The bytes are on the device when `log` returns, and one sync serves all who wait."""
    fs = FaultFS()
    run = begin(fs=fs, durability="disk")
    run.log({"key": 999})
    syncs = fs.calls.count("sync_data")
    gate = threading.Barrier(8)
    missing = []

    def work(number):
        gate.wait()
        run.log({"key": 1000 + number})
        (file,) = fs.files.values()
        if str(1000 + number).encode() not in file.durable:
            missing.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert missing == []
    assert 1 <= fs.calls.count("sync_data") - syncs <= 8


class WatchedLock:
    """A lock that notes which thread uses it."""

    def __init__(self, users):
        self._lock, self._users = threading.Lock(), users
        self._lock.acquire()

    def acquire(self, *args, **kwargs):
        self._users.add(threading.current_thread())
        return self._lock.acquire(*args, **kwargs)

    def release(self):
        self._users.add(threading.current_thread())
        self._lock.release()

    def locked(self):
        return self._lock.locked()


def test_log_touches_neither_disk_nor_lock(begin):
    """At `normal` the calling thread hands off and returns: files and locks are the writer's thread's."""
    fs, users = FaultFS(), set()
    run = begin(fs=fs)
    fs.before = lambda operation: users.add(threading.current_thread())
    old, run._pump._wake = run._pump._wake, WatchedLock(users)
    old.release()  # so that the thread goes on to the new one
    for number in range(200):
        run.log({"a": 1.0, "b": [number]}, step=number)
    seen = {thread.name for thread in users}
    run.flush()

    assert "MainThread" not in seen
    assert "MainThread" in {thread.name for thread in users}


WAYS = {
    "row": lambda run: run.log({"a": 1}),
    "open row": lambda run: run.log({"a": 1}, step=7),
    "medium": lambda run: run.log({"t": Table(columns=["a"], data=[[1]])}),
    "summary": lambda run: run.summary.update({"best": 1}),
    "config": lambda run: run.config.update({"lr": 1}),
    "definition": lambda run: run.define_metric("a", summary="max"),
    "alert": lambda run: run.alert("t", "x"),
    "preempting": lambda run: run.mark_preempting(),
    "console": lambda run: run.console("stdout", "x\n"),
    "line": lambda run: run.write_logs("x"),
    "tags": lambda run: setattr(run, "tags", ("t",)),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_handed_off_wakes_a_sleeping_thread(begin, way):
    """An idle run's thread does not wake by itself: each way to it wakes it, once it has said that it sleeps."""
    run = begin()
    held, go_on = threading.Event(), threading.Event()
    run._pump.submit(lambda _recorder: (held.set(), go_on.wait(20)))
    assert held.wait(20)  # the thread is busy, so that what it says of itself stands
    try:
        run._pump._wake.acquire(blocking=False)
        run._pump.asleep = True
        WAYS[way](run)
        assert not run._pump._wake.locked()
    finally:
        go_on.set()


def test_threads_share_a_run(begin, state):
    """Rows from many threads are all there, each whole, with steps of their own."""
    run = begin()

    def work(number):
        for count in range(200):
            run.log({"thread": number, "count": count, "same": number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = state(*run.finish().paths)

    assert sorted((row["thread"], row["count"]) for row in found.rows) == [(t, c) for t in range(6) for c in range(200)]
    assert [row["_step"] for row in found.rows] == list(range(1200))
    assert all(row["thread"] == row["same"] for row in found.rows)
    for number in range(6):
        assert [row["count"] for row in found.rows if row["thread"] == number] == list(range(200))


def test_bad_data_never_raises(begin, state):
    """What cannot be logged is named once; the rest of the row, and the next rows, are there."""
    warnings = []
    run = begin(warn=warnings.append)
    for _ in range(3):
        run.log({"good": 1, "bad": object()})
    run.log([1, 2])
    run.log({"x": 1}, step="five")
    run.log({"y": 10**5000})
    run.log({"ok": 1}, step=7.0)
    found = state(*run.finish().paths)

    assert logged(found)[:3] == [{"good": 1}] * 3
    assert found.rows[-1]["_step"] == 7
    assert [sum(word in warning for warning in warnings) for word in ("bad", "dict", "five", "y ")] == [1, 1, 1, 1]


def test_names_that_are_no_text(begin, state):
    """They stand as their text, whatever the values beside them are."""
    run = begin()
    run.log({5: 1, ("a", "b"): 2, None: 3, True: 4, b"x": 5})
    run.log({5: [1], ("a", "b"): 2})
    found = state(*run.finish().paths)

    assert logged(found) == [{"5": 1, "a,b": 2, "None": 3, "True": 4, "x": 5}, {"5": [1], "a,b": 2}]


def test_steps_that_raise_or_have_no_end(begin, state):
    """The row is there, at the next step."""

    class Step:
        def __index__(self):
            raise RuntimeError("no step")

        __int__ = __repr__ = __index__

    run = begin(warn=lambda text: None)
    for step in (Step(), 10**5000, math.nan, math.inf, "x"):
        run.log({"a": 1}, step=step)
    found = state(*run.finish().paths)

    assert [row["_step"] for row in found.rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("given", "recorded"), [(None, 0), (3, 3), ("abc", 1), (10**30, 1), (-9, -9), (True, 1)])
def test_any_exit_code_is_recorded(begin, state, given, recorded):
    """A run that has ended says so, whatever code it was given."""
    run = begin()

    assert state(*run.finish(given).paths).exit_code == recorded


def test_a_config_that_holds_itself(begin, state, monkeypatch):
    """It costs its own key only; so does one that is too large for the record of the run."""
    monkeypatch.setattr("runferry.writer.identity._MAX_CONFIG_VALUE_BYTES", 2**20)
    config = {"lr": 0.1}
    config["again"] = config
    warnings = []
    run = begin(config, warn=warnings.append)
    run.config["big"] = "x " * 2**20
    run.config["after"] = 1
    found = state(*run.finish().paths)

    assert (found.config["lr"], found.config["after"], found.config["big"]) == (0.1, 1, None)
    assert "config big is left out: 2 MiB of JSON" in warnings[0]


def test_an_alert_for_ever(begin, state):
    """A silence without end is a large number; text is made of whatever it is told."""
    run = begin()
    run.alert(None, 5, wait_duration=math.inf)
    (alert,) = state(*run.finish().paths).alerts

    assert (alert.title, alert.text) == ("None", "5")


def test_rows_that_no_record_can_be_made_of_are_counted(begin, monkeypatch):
    """Nothing is lost without a word."""
    monkeypatch.setattr("runferry.writer.history.HistoryEncoder.encode", lambda *_: 1 / 0)
    warnings = []
    run = begin(warn=warnings.append)
    run.log({"a": 1})
    run.log({"a": 2})
    report = run.finish()

    assert (report.rows_written, report.rows_dropped, report.complete) == (0, 2, False)
    assert "ZeroDivisionError" in warnings[0]


def test_console_output_that_comes_faster_than_it_is_written(begin, monkeypatch):
    """While the disk hangs it waits for room once, then is dropped and counted: the memory is bounded."""
    hold = threading.Event()
    fs = FaultFS()
    run = begin(fs=fs, warn=lambda text: None)
    fs.before = lambda operation: operation == "write" and hold.wait(30)
    monkeypatch.setattr("runferry.writer.console.MAX_WAITING_PIECES", 20)
    for _ in range(200):
        run.console("stdout", "x\n")
    hold.set()
    report = run.finish()

    assert report.others_dropped >= 150
    assert report.complete


def test_much_console_output_leaves_in_batches(begin, state):
    """What waits in memory is a batch, not all that a drain found, or a quick command would fill the queue's bound."""
    fs = FaultFS()
    run = begin(fs=fs)
    before = fs.calls.count("write")
    run._pump.submit(lambda recorder: [recorder.record(b"\x6a\x00" * 50_000, bulk=True) for _ in range(100)])
    run.flush()

    assert fs.calls.count("write") - before >= 8


def test_questions_during_the_last_drain_are_answered(begin):
    """Who asks or waits while a run ends on a slow disk does not wait for what never comes."""
    fs = FaultFS()
    run = begin(fs=fs)
    run.log({"a": 1})
    answers = []

    def ask():
        answers.append(run.summary.get("a"))
        answers.append(run._pump.barrier(sync=True))

    thread = threading.Thread(target=ask)

    def closing(operation):
        if operation == "close" and not answers and not thread.is_alive():
            thread.start()
            while not run._queue:
                pass

    fs.before = closing
    run.finish()
    thread.join(5)

    assert answers == [1, False]


def test_a_step_that_no_log_can_hold(begin, state):
    """A step beyond 64 bits, or none at all, is named once, and the row gets the next one."""
    warnings = []
    run = begin(warn=warnings.append)
    for step in (2**63, -(2**63) - 1, 1.5, "7", float("nan"), [1]):
        run.log({"a": 1}, step)
    run.log({"a": 2}, 7.0)
    run.log({"a": 3}, 2**63 - 1)

    found = state(*run.finish().paths)
    assert [(row["_step"], row["a"]) for row in found.rows] == [
        (0, 1),
        *((n, 1) for n in range(1, 6)),
        (7, 2),
        (2**63 - 1, 3),
    ]
    assert warnings == ["a step of type int is not a 64-bit integer; the row gets the next step"]


def test_strict_raises_for_data(begin):
    """On request a bad value is an error at its call."""
    run = begin(strict=True)
    with pytest.raises(UnloggableError, match="bad"):
        run.log({"bad": object()})
    with pytest.raises(UnloggableError):
        run.log(5)


class Nameless:
    """A key without a text."""

    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("data", "step"),
    [
        ({Nameless(): 1}, None),
        ({"a": {Nameless(): 1}}, None),
        ({"a": 10**5000}, None),
        ({"a": [10**5000]}, None),
        ({"a": "x" * (129 << 20)}, None),
        ({"a": 1}, 2**63),
        ({"a": 1}, 1.5),
        ({"a": 1}, "1"),
    ],
    ids=["name", "nested name", "digits", "digits in a list", "size", "large step", "half a step", "step"],
)
def test_strict_raises_for_all_that_would_be_left_out(begin, data, step):
    """Also for what is found out on the writer's thread otherwise; what can be logged is."""
    run = begin(strict=True)
    with pytest.raises(UnloggableError):
        run.log(data, step)
    run.log({1: float("nan"), "b": {"c": [None, "\ud800"]}}, 2**63 - 1)
    report = run.finish()
    assert (report.rows_written, report.rows_dropped) == (1, 0)


def test_config_is_redacted_in_the_log_only(begin, state):
    """A secret never reaches the file, by its name or by its shape; the program still reads it."""
    token = "hf_" + "a1B2" * 8
    run = begin({"api_key": "abc123", "nested": {"url": "https://u:pa55word@host/x"}, "lr": 0.1})
    run.config["hub"] = token
    run.name = "renamed"
    report = run.finish()
    content = report.paths[0].read_bytes()

    assert not [secret for secret in (b"abc123", b"pa55word", token.encode()) if secret in content]
    assert (run.config.api_key, run.config.hub) == ("abc123", token)
    assert state(*report.paths).config["lr"] == 0.1


def test_config_removals_and_replacements(begin, state):
    """A reader merges dicts: what a new dict no longer has must be gone all the same."""
    run = begin({"a": {"x": 1, "y": 2}, "b": 1})
    run.config["a"] = {"x": 3}
    del run.config["b"]
    config = state(*run.finish().paths).config

    assert {key: value for key, value in config.items() if key != "_wandb"} == {"a": {"x": 3}}


def test_reading_the_summary_counts_in_what_was_logged(begin):
    """`run.summary` and `run.step` include the row of the line before."""
    run = begin()
    for number in range(50):
        run.log({"loss": number, "n": {"m": number}})

        assert run.summary["loss"] == number
        assert run.summary["n"]["m"] == number
        assert run.step == number + 1
    run.summary["n"]["m"] = "mine"
    assert run.summary["n"] == {"m": "mine"}


def test_identity_changes_are_records(begin, state):
    """Name, notes and tags may change while the run goes on."""
    run = begin()
    run.name, run.notes, run.tags = "n2", "o2", ["x"]
    info = state(*run.finish().paths).info

    assert (info.display_name, info.notes, info.tags) == ("n2", "o2", ["x"])
    assert (run.name, run.notes, run.tags) == ("n2", "o2", ("x",))


def test_alerts_and_console(begin, state):
    """Their records, in the caller's order."""
    run = begin()
    run.alert("hot", "90 degrees", level="WARN", wait_duration=60)
    run.console("stdout", "a line\nhalf")
    run.console("stderr", "oops\n")
    found = state(*run.finish().paths)

    assert [(alert.title, alert.text, alert.level, alert.wait_seconds) for alert in found.alerts] == [
        ("hot", "90 degrees", "WARN", 60)
    ]
    assert [(line.stream, line.text) for line in found.console] == [("stdout", "a line"), ("stderr", "oops")]


def test_wrapped_streams_are_logged_and_still_written(begin, state, capsys):
    """`console="wrap"`: prints reach both places; afterwards the streams are as before."""
    run = begin(console="wrap")
    sys.stdout.write("to both\n")
    report = run.finish()
    sys.stdout.write("after\n")
    found = state(*report.paths)

    assert "to both" in [line.text for line in found.console]
    assert "after" not in [line.text for line in found.console]
    assert capsys.readouterr().out == "to both\nafter\n"


def test_telemetry_says_what_is_used(begin, state):
    """Cumulative switches, the Python version, and the SDK version whose format this is."""
    run = begin({"a": 1}, run_id="x1")
    run.define_metric("loss", summary="min")
    run.config["b"] = 2
    telemetry = state(*run.finish().paths).telemetry
    from runferry.logformat.wire import set_flags

    assert set(set_flags(telemetry.feature)) == {
        records.FEATURE_OFFLINE,
        records.FEATURE_INIT_ID,
        records.FEATURE_INIT_CONFIG,
        records.FEATURE_METRIC,
        records.FEATURE_METRIC_SUMMARY,
        records.FEATURE_CONFIG_ITEM,
        records.FEATURE_FINISH,
    }
    assert telemetry.cli_version == "0.31.0"


def test_a_run_as_context(begin, state):
    """The block's end is the run's; an exception gives its exit code and goes on."""
    with begin() as run:
        run.log({"a": 1})
    assert state(*run.finish().paths).exit_code == 0
    for error, code in ((ValueError("x"), 1), (KeyboardInterrupt(), 255), (SystemExit(7), 7), (SystemExit("no"), 1)):
        with pytest.raises(type(error)), begin() as run:
            raise error
        assert state(*run.finish().paths).exit_code == code


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.config.update(a=1),
        lambda run: run.summary.update(a=1),
        lambda run: setattr(run, "name", "late"),
        lambda run: run.alert("late", "x"),
        lambda run: run.define_metric("a"),
    ],
    ids=["config", "summary", "name", "alert", "metric"],
)
def test_what_is_told_to_a_finished_run_is_named(begin, change):
    """It goes nowhere, and one line says so; a disabled run is told what one likes."""
    warnings = []
    run, disabled = begin(warn=warnings.append), begin(mode="disabled", warn=warnings.append)
    for one in (run, disabled):
        one.finish()
        change(one)
        change(one)

    assert warnings == [f"run {run.id} is finished: what is logged now goes nowhere"]


def test_names_and_levels_as_scripts_give_them(begin, state):
    """None is no name; levels in any case, and an unknown one is named."""
    warnings = []
    run = begin(name="n", notes="n", warn=warnings.append)
    run.name = run.notes = run.tags = None
    for level in (None, "warn", AlertLevel.ERROR, "critical"):
        run.alert("title", "text", level)
    found = state(*run.finish().paths)

    assert (run.name, run.notes, run.tags) == ("", "", ())
    assert [alert.level for alert in found.alerts] == ["INFO", "WARN", "ERROR", "INFO"]
    assert warnings == ["alert: level 'critical' is not one of INFO, WARN, ERROR"]


def test_finish_twice_and_log_afterwards(begin, state):
    """The second `finish` gives the first one's report; late rows are named once and go nowhere."""
    warnings = []
    run = begin(warn=warnings.append)
    first = run.finish(1)
    run.log({"a": 1})
    run.log({"a": 1})
    run.config["x"] = 1
    run.summary["x"] = 1

    assert run.finish(2) is first
    assert state(*first.paths).exit_code == 1
    assert len(warnings) == 1


def test_a_disabled_run_does_nothing(begin, tmp_path):
    """No file and no thread, and every call works."""
    before = threading.active_count()
    for run in (begin(mode="disabled"), begin(role=Role.NONE)):
        run.log({"a": 1})
        run.config["b"] = 2
        run.summary["c"] = 3
        run.define_metric("a")
        run.alert("t", "x")
        run.console("stdout", "x")
        run.name = "n"

        assert (run.config["b"], run.summary["c"], run.step) == (2, 3, 0)
        assert threading.active_count() == before
        assert run.finish().paths == ()
    assert list(tmp_path.iterdir()) == []


def test_a_nodes_sampler_logs_no_rows(begin, state):
    """Local rank 0 of another node samples; metrics come from rank 0 alone, which also ends a shared run."""
    run = begin(role=Role.SAMPLER)
    run.log({"a": 1})
    found = state(*run.finish().paths)
    assert (found.row_count, found.exit_code) == (0, 0)
    shared = begin(role=Role.SAMPLER, run_id="shared", disable_stats=False)
    found = state(*shared.finish().paths)

    assert found.exit_code is None
    assert all(key.endswith(f"/l:{os.uname().nodename}") for sample in found.samples for key in sample.values)
    assert found.sample_count


def test_samples_and_the_machine_are_recorded(begin, state):
    """A short run has its first and last sample, and both environment records under one writer id."""
    run = begin(disable_stats=False, disable_meta=False, sample_interval=0.2)
    time.sleep(0.1)
    report = run.finish()
    found = state(*report.paths)

    assert found.sample_count >= 2
    assert "proc.memory.rssMB" in found.samples[0].values
    assert found.counts["environment"] == 2
    assert found.environment.cpu_count_logical >= 1
    assert found.environment.writer_id


# -- disks -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_never_reaches_the_training(begin):
    """Rows come when space returns; the user is told once, and `finish` counts what is missing: nothing."""
    fs, warnings = FaultFS(space=700), []
    run = begin(fs=fs, warn=warnings.append, durability="record")
    for number in range(100):
        run.log({"a": number})
    assert len(warnings) == 1
    fs.space = None
    report = run.finish()

    assert (report.rows_written, report.rows_dropped, report.complete) == (100, 0, True)
    assert len(warnings) == 1


def test_a_disk_that_stays_full_is_reported(begin, monkeypatch):
    """`finish` gives up after some seconds and says how many rows did not make it."""
    monkeypatch.setattr(pump, "FINISH_RETRY_S", 0.2)
    fs, warnings = FaultFS(space=700), []
    run = begin(fs=fs, warn=warnings.append)
    for number in range(100):
        run.log({"a": number})
        run.console("stdout", "x\n")
    report = run.finish()

    assert report.rows_written + report.rows_dropped == 100
    assert report.rows_dropped > 50
    assert 0 < report.others_dropped <= 104  # the lines in as few records as they came, telemetry, summary and exit
    assert not report.complete
    assert f"{report.rows_dropped} rows did not make it" in warnings[-1]


def test_a_failed_sync_moves_to_a_new_log(begin, state, tmp_path):
    """Both logs are of one run; together they hold every row, and the second tells config and metrics anew."""
    from runferry.writer.filesystem import RealFileSystem

    class Failing(RealFileSystem):
        broken = False

        def sync_data(self, fd):
            if self.broken:
                raise OSError(errno.EIO, "the disk is gone")
            super().sync_data(fd)

    fs = Failing()
    run = begin({"lr": 1}, fs=fs, warn=lambda text: None)
    run.define_metric("loss", summary="min")
    run.log({"loss": 1})
    assert run.flush()
    run.log({"loss": 2})
    fs.broken = True
    assert run.flush()  # by way of the new log
    fs.broken = False
    run.config["lr"] = 2
    run.log({"loss": 3})
    report = run.finish()
    first, second = report.paths

    assert report.complete
    assert state(first).rows[0]["loss"] == 1
    alone = state(second)
    assert [row["loss"] for row in alone.rows] == [2, 3]
    assert alone.info.run_id == run.id
    assert alone.info.resume
    assert alone.config["lr"] == 2
    assert alone.metrics[0].name == "loss"
    assert state(first, second).exit_code == 0


def test_a_process_that_may_start_no_thread(begin, monkeypatch):
    """Training goes on, and the end says that nothing was kept."""
    monkeypatch.setattr(
        "threading.Thread.start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
    )
    warnings = []
    run = begin(warn=warnings.append, disable_stats=False, disable_meta=False)
    for number in range(5):
        run.log({"n": number})
    report = run.finish()

    assert (report.rows_written, report.rows_dropped, report.paths) == (0, 5, ())
    assert len(warnings) == 3


def test_a_hanging_disk_holds_up_nothing(begin, monkeypatch):
    """While a write hangs `log` returns at once, the queue is bounded, drops are counted, and `finish` ends."""
    monkeypatch.setattr(pump, "MAX_HANDED_OFF", 50)
    monkeypatch.setattr(pump, "EASE_ROWS", 40)
    fs, release, warnings = FaultFS(), threading.Event(), []
    run = begin(fs=fs, warn=warnings.append)
    assert run.flush()
    fs.before = lambda operation: release.wait(20) if operation == "write" else None
    run.log({"a": 0})
    started = time.monotonic()
    for number in range(300):
        run.log({"a": number})
    assert time.monotonic() - started < 2
    report = run._end(0, timeout_s=0.2)

    assert not report.complete
    assert report.rows_dropped >= 200
    assert any("holds up" in warning for warning in warnings)
    release.set()
    run._pump.stop(5)


def test_a_place_where_no_log_can_be_made(begin, tmp_path, monkeypatch):
    """A file in the way: training goes on, the user is told where and why, and nothing is put elsewhere."""
    monkeypatch.setattr(pump, "FINISH_RETRY_S", 0.1)
    (tmp_path / "wandb").write_text("in the way")
    warnings = []
    run = begin(warn=warnings.append)
    run.log({"a": 1})
    report = run.finish()

    assert (report.rows_written, report.rows_dropped) == (0, 1)
    assert str(tmp_path / "wandb") in warnings[0]
    assert [path.name for path in tmp_path.iterdir()] == ["wandb"]


def test_the_last_telemetry_names_every_feature(begin, state):
    """Also one that the writer's thread meets while another was noted behind it."""
    run, gate = begin(), threading.Event()
    run._submit(lambda _: gate.wait(10), wait=False)
    run.log({"t": Table(columns=["a"], data=[[1]])})
    run._note(records.FEATURE_FINISH)
    gate.set()
    telemetry = state(*run.finish().paths).telemetry

    assert {records.FEATURE_FINISH, 78} <= set(set_flags(telemetry.feature))
