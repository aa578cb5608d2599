"""A run as the viewer shows it."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import RunState, load, messages
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text
from runferry.logformat.record import parse_record
from runferry.viewer.anomalies import anomalies, idle_times, jumps, stalls
from runferry.viewer.axes import RELATIVE, STEP, WALL, Axis, RowAxes
from runferry.viewer.curves import Curve
from runferry.viewer.preview import preview
from runferry.viewer.reading import Reading, read
from runferry.viewer.store import RunView, runs_of, tree
from support import logs

START = logs.START_S


def view_of(tmp_path, *records, name="r1"):
    """A view of a log with these records behind a run record."""
    log = logs.make_log(tmp_path / f"run-{name}.wandb", logs.header_record(), logs.run_record(name), *records)
    return RunView(read([log]))


def pairs(curve):
    return list(zip(curve.x, curve.y, strict=True))


# -- curves ----------------------------------------------------------------------------------------------------------


def test_a_curve_has_the_numbers_of_its_key_on_each_axis(tmp_path):
    """By step, by the run's time, by the clock and by another metric; rows without it, and texts, are left out."""
    rows = [
        {"loss": 3.0, "epoch": 0},
        {"other": 1},
        {"loss": 1.0, "epoch": 1},
        {"loss": "n/a"},
        {"loss": None},
        {"loss": 2},
    ]
    view = view_of(tmp_path, *(logs.row(step, values) for step, values in enumerate(rows)))
    assert pairs(view.curve("loss")) == [(0, 3.0), (2, 1.0), (5, 2.0)]
    assert pairs(view.curve("loss", RELATIVE)) == [(0, 3.0), (1, 1.0), (2.5, 2.0)]
    assert pairs(view.curve("loss", WALL)) == [(START, 3.0), (START + 1, 1.0), (START + 2.5, 2.0)]
    by_epoch = view.curve("loss", Axis("metric", "epoch"))
    assert (pairs(by_epoch), by_epoch.unplaced) == ([(0, 3.0), (1, 1.0)], 1)
    with pytest.raises(KeyError):
        view.curve("missing")


def test_rows_without_a_step_follow_the_one_before(tmp_path):
    """They count on, from 0 at the beginning, as the state itself counts."""
    view = view_of(tmp_path, *(logs.row(step, {"a": 1.0}) for step in (None, None, 7, None, 9)))
    assert list(view.axes.of(STEP)) == [0, 1, 7, 8, 9]
    assert view.state.last_step == 9


VALUE = st.one_of(
    st.integers(-5, 5), st.floats(-5, 5), st.sampled_from([math.nan, math.inf, None, "x", True, 10**400, {"b": 1}, [1]])
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 1, 1, 3, None]), st.dictionaries(st.sampled_from("abc"), VALUE, max_size=3)
        ),
        max_size=15,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_curve_that_grows_is_the_one_made_at_the_end(rows):
    """After every record, parts of rows among them, curves on all axes are those that a new view would make."""
    step, state = 0, RunState()
    log_records = [logs.run_record("r")]
    for by, values in rows:
        step += by or 0
        log_records.append(logs.row(None if by is None else step, values))
    view = RunView(Reading([], state, []))
    axes = [STEP, WALL, Axis("metric", "a")]
    for number, record in enumerate(log_records):
        state.add(parse_record(record.SerializeToString(), number, number + 1))
        fresh = RunView(Reading([], state, []))
        for path in state.rows.paths:
            for axis in axes:
                grown, made = view.curve(path, axis), fresh.curve(path, axis)
                assert (grown.x, grown.y, grown.odd, grown.unplaced) == (made.x, made.y, made.odd, made.unplaced)


def test_a_growing_curve_stays_the_same_object(tmp_path):
    """New rows are appended to it; only a changed last point makes another one."""
    view = view_of(tmp_path, logs.row(0), logs.row(1))
    curve = view.curve("loss")
    log = view.reading.logs[0]
    logs.make_log(log, logs.row(2), append=True)
    view.reading.go_on()
    assert view.curve("loss") is curve
    assert len(curve) == 3
    logs.make_log(log, logs.row(2, {"loss": 9.0}), append=True)
    view.reading.go_on()
    assert view.curve("loss") is not curve
    assert pairs(view.curve("loss"))[-1] == (2, 9.0)


def test_a_preview_is_replaced_by_the_exact_reading(tmp_path):
    """The view says what share was read, keeps to points of the log, and shows all of them once the exact reading is there."""
    pad = "x" * 500
    log = logs.make_log(
        tmp_path / "run-p.wandb", logs.run_record("p"), *(logs.row(i, {"loss": i / 7, "pad": pad}) for i in range(4000))
    )
    view = RunView(preview([log], blocks=4, small=0))
    shown = pairs(view.curve("loss"))
    assert 0 < view.sampled < 1
    view.replace(read([log]))
    assert view.sampled == 1
    assert set(shown) < set(pairs(view.curve("loss")))


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_are_those_with_numbers_in_natural_order(tmp_path):
    """Internal, hidden and textual keys are left out; a definition says by what a metric is shown, if that was logged."""
    define = [
        messages.MetricRecord(name="val/*", step_metric="epoch"),
        messages.MetricRecord(name="val/loss", step_metric="epoch"),
        messages.MetricRecord(name="val/x", step_metric="never"),
        messages.MetricRecord(name="secret", options=messages.MetricOptions(hidden=True)),
    ]
    values = {
        "val/loss": 1.5,
        "val/x": 2,
        "epoch": 1,
        "layer10": 1,
        "layer9": 1,
        "secret": 1,
        "text": "t",
        ("a", "b"): 4,
    }
    view = view_of(tmp_path, *(messages.Record(metric=metric) for metric in define), logs.row(0, values))
    found = {metric.name: metric for metric in view.metrics()}
    assert list(found) == ["epoch", "layer9", "layer10", "a.b", "val/loss", "val/x"]
    assert found["val/loss"].axis == Axis("metric", "epoch")
    assert (found["val/x"].axis, found["epoch"].axis) == (STEP, STEP)
    assert (found["val/loss"].last, found["a.b"].group) == (1.5, "a")


def test_metrics_hang_on_their_prefixes(tmp_path):
    """Slashes and nesting make levels; a name may be a metric and have others below."""
    view = view_of(tmp_path, logs.row(0, {"train": 1, "train/loss": 2, "train/acc/top1": 3, "lr": 4}))
    walked = [(depth, branch.name, branch.metric is not None) for depth, branch in tree(view.metrics()).walk()]
    assert walked == [
        (0, "lr", True), (0, "train", True), (1, "acc", False), (2, "top1", True), (1, "loss", True),
    ]  # fmt: skip


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_stand_where_the_rows_of_their_time_do(tmp_path):
    """By the clock as sampled; by the run's time between its rows; by steps at the row before."""
    rows = [logs.row(step) for step in range(4)]  # half a second apart
    samples = [logs.sample(at, {"cpu": at}) for at in (-0.25, 0.75, 9)]
    view = view_of(tmp_path, *rows, *samples)
    assert pairs(view.sample_curve("cpu")) == [(START - 0.25, -0.25), (START + 0.75, 0.75), (START + 9, 9)]
    assert list(view.sample_curve("cpu", STEP).x) == [0, 1, 3]
    assert list(view.sample_curve("cpu", RELATIVE).x) == pytest.approx([-0.25, 0.75, 9])
    logs.make_log(view.reading.logs[0], logs.sample(10, {"cpu": 5}), append=True)
    view.reading.go_on()
    assert pairs(view.sample_curve("cpu"))[-1] == (START + 10, 5)


def test_samples_without_rows_count_from_the_start(tmp_path):
    """A run that logs no rows has its samples by the time since it began, and none by steps."""
    view = view_of(tmp_path, logs.sample(3, {"cpu": 1}))
    assert list(view.sample_curve("cpu", RELATIVE).x) == [3]
    assert len(view.sample_curve("cpu", STEP)) == 0


def test_samples_are_grouped_by_device(tmp_path):
    """Metrics that differ in the number of a device are one chart, and copies of them by process are left out."""
    values = {"gpu.0.gpu": 1, "gpu.1.gpu": 2, "gpu.process.0.gpu": 1, "cpu": 3}
    view = view_of(tmp_path, logs.sample(0, values))
    assert [(group.title, len(group.columns)) for group in view.sample_groups()] == [("gpu.*.gpu", 2), ("cpu", 1)]


def test_old_names_of_samples_are_today_s(tmp_path):
    """What writers before 0.13 called `memory` is `memory_percent`."""
    view = view_of(tmp_path, logs.sample(0, {"memory": 5}))
    assert pairs(view.sample_curve("memory_percent")) == [(START, 5)]


# -- console ---------------------------------------------------------------------------------------------------------


def test_console_lines_and_steps_lead_to_each_other(tmp_path):
    """A line stands at the row before it; a step has the first line that was written at its row or later."""
    records = [item for step in range(3) for item in (logs.row(step), logs.output(f"line {step}\n", step * 0.5 + 0.1))]
    view = view_of(tmp_path, *records, logs.output("rest", 3))
    assert [line.text for line in view.console] == ["line 0", "line 1", "line 2", "rest"]
    assert [view.place_of_line(line) for line in view.console] == [0, 1, 2, 2]
    assert [view.line_at(step) for step in (0, 1, 2, 3)] == [0, 1, 2, None]


# -- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exit_code", "age", "word"),
    [(0, 9e9, "finished"), (1, 0, "failed"), (None, 30, "running"), (None, 700, "crashed")],
)
def test_the_state_is_that_of_ls(tmp_path, exit_code, age, word):
    """An exit record says how it ended; without one and without heartbeat, the age of the log does."""
    log = logs.simple_run(tmp_path, exit_code=exit_code)
    view = RunView(read([log]))
    assert view.status(view.written + age) == word


def test_a_heartbeat_outweighs_the_age(tmp_path):
    """A process of here that lives keeps its run running, one that is gone ends it; one of elsewhere has three minutes."""
    log = logs.simple_run(tmp_path, exit_code=None)
    view = RunView(read([log]))
    beat = heartbeat_path(log)
    here = Process.current()
    beat.write_bytes(heartbeat_text(here, 0))
    assert view.status(view.written + 1e6) == "running"
    beat.write_bytes(heartbeat_text(here._replace(start="1"), 0))
    assert view.status(view.written) == "crashed"
    beat.write_bytes(heartbeat_text(here._replace(host="elsewhere"), 0))
    touched = beat.stat().st_mtime
    assert [view.status(touched + age) for age in (100, 200)] == ["running", "crashed"]


def test_a_log_that_only_begins_is_running_while_it_is_young(tmp_path):
    """The peer's writer leaves nothing but a file header for a while."""
    log = tmp_path / "run-x.wandb"
    logs.make_log(log)
    view = RunView(read([log]))
    assert (view.status(view.written), view.status(view.written + 1e4)) == ("running", "unknown")
    assert view.name == "x"


def test_damage_is_told_in_steps(tmp_path):
    """A flipped byte breaks the curves there, and is told with what it took and between which steps."""
    pad = "x" * 200
    log = logs.make_log(
        tmp_path / "run-d.wandb", logs.run_record("d"), *(logs.row(i, {"loss": 1.0, "pad": pad}) for i in range(1000)),
        logs.exit_record(),
    )  # fmt: skip
    data = bytearray(log.read_bytes())
    data[100_000:100_400] = bytes(400)
    log.write_bytes(data)
    view = RunView(read([log]))
    (damage,) = view.damage()
    curve = view.curve("loss")
    assert curve.breaks == [(damage.before, damage.after)]
    assert damage.gap.records_lost == damage.after - damage.before - 1 == 1000 - len(curve)
    assert f"{damage.gap.records_lost} records lost" in str(damage)
    assert f"between steps {damage.before:.0f} and {damage.after:.0f}" in str(damage)


def test_a_torn_end_is_damage_once_nobody_writes(tmp_path):
    """The beginning of a record at the end of a log is on its way while the run goes on, and lost afterwards."""
    log = logs.simple_run(tmp_path, exit_code=None)
    log.write_bytes(log.read_bytes()[:-3])
    view = RunView(read([log]))
    assert view.damage(view.written) == []
    (damage,) = view.damage(view.written + 1e5)
    assert (damage.gap.reason.value, damage.before, damage.after) == ("torn_tail", 4, None)


def test_sessions_are_joined_with_a_break(tmp_path):
    """By the clock nothing was logged between two logs of a run; by steps one goes on where the other ended."""
    first = logs.simple_run(tmp_path, rows=3, exit_code=None)
    second = tmp_path / "run-20260922_100000-a1b2c3d4" / first.name
    logs.make_log(second, *logs.simple_records(rows=3, start=START + 5000))
    view = RunView(read([first, second]))
    assert list(view.curve("loss").x) == [0, 1, 2, 3, 4, 5]
    assert view.breaks(STEP) == []
    assert view.breaks(WALL) == [(START + 1, START + 5000)]


def test_logs_are_grouped_by_run(tmp_path):
    """Segments of one run are together in their order, a log that says nothing is alone, one that is not there is told."""
    first = logs.simple_run(tmp_path / "wandb", exit_code=None)
    second = tmp_path / "wandb" / "run-20260922_100000-a1b2c3d4" / first.name
    logs.make_log(second, *logs.simple_records(start=START + 5000))
    other = logs.simple_run(tmp_path / "wandb", run_id="other")
    mute = logs.make_log(tmp_path / "run-mute.wandb")
    told = []
    found = runs_of([second, other, first, mute, tmp_path / "no"], lambda log, words: told.append((log.name, words)))
    assert found == [[first, second], [other], [mute]]
    assert [name for name, _ in told] == ["no"]


# -- anomalies -------------------------------------------------------------------------------------------------------


def test_the_first_nan_is_told(tmp_path):
    """Kind, step and number of the values that are none."""
    values = [1.0, math.nan, 2.0, math.inf]
    view = view_of(tmp_path, *(logs.row(i, {"acc": value}) for i, value in enumerate(values)), logs.exit_record())
    (found,) = anomalies(view)
    assert (found.kind, found.key, found.begin) == ("nan", "acc", 1)
    assert "first NaN, and 1 more" in found.words


def test_a_jump_of_a_loss_is_found_and_noise_is_none():
    """A rise far beyond the usual changes is one; normal noise, a falling curve and a flat one have none."""
    rng = random.Random(1)
    noise = [5 / (1 + i / 100) + rng.gauss(0, 0.1) for i in range(20_000)]
    assert jumps("loss", Curve(range(20_000), noise)) == []
    noise[7_000] += 4.0
    assert [(found.begin, found.kind) for found in jumps("loss", Curve(range(20_000), noise))] == [(7_000, "jump")]
    assert jumps("loss", Curve(range(100), [1.0] * 100)) == []
    flat = [1.0] * 60 + [2.0] * 40
    assert [found.begin for found in jumps("loss", Curve(range(100), flat))] == [60]


def test_a_stall_lasts_far_longer_than_usual():
    """Twenty times the usual distance of rows, and a minute at least; up to now, where the run goes on."""
    times = [float(i) for i in range(100)] + [200.0 + i for i in range(10)]
    assert list(stalls(times)) == [(99, 200)]
    assert list(stalls(times, now=230)) == [(99, 200)]
    assert list(stalls(times, now=300)) == [(99, 200), (209, 300)]
    assert list(stalls([i * 30.0 for i in range(9)], now=9 * 30 + 500)) == []
    assert list(stalls([1, 2])) == []


def test_a_gpu_idles_if_all_its_samples_say_so():
    """Below five percent for five minutes on end; a single busy sample ends it."""
    times = range(0, 1500, 15)
    loads = [0.0 if 300 <= at <= 900 and at != 450 else 80.0 for at in times]
    assert list(idle_times(Curve(times, loads))) == [(465, 900)]
    assert list(idle_times(Curve(times, [0.0] * len(times)))) == [(0, 1485)]


def test_stalls_and_idle_gpus_of_a_run_lie_on_its_axis(tmp_path):
    """Both are told by steps, a stall that goes on up to the last row, and in words how long they lasted."""
    rows = [logs.row(step) for step in range(40)]
    samples = [logs.sample(at, {"gpu.1.gpu": 0.0 if at > 15 else 90.0}) for at in range(0, 400, 10)]
    view = view_of(tmp_path, *rows, *samples)
    last = START + 39 * 0.5
    log = view.reading.logs[0]
    log.with_name(log.name + ".alive").write_bytes(heartbeat_text(Process.current(), 0))
    stall, idle = sorted(anomalies(view, now=last + 125), key=lambda found: found.kind, reverse=True)
    assert (stall.kind, stall.begin, stall.end, stall.words) == ("stall", 39, 39, "no row for 2 min 5 s, up to now")
    assert (idle.kind, idle.key, idle.end, idle.words) == ("idle", "gpu.1.gpu", 39, "GPU 1 was idle for 6 min 10 s")


def test_axes_are_asked_for_by_name(tmp_path):
    """An axis of a metric that nobody logged has no places, and says so."""
    state = load(logs.simple_run(tmp_path))
    axes = RowAxes(state)
    assert (axes.has(STEP), axes.has(WALL), axes.has(Axis("metric", "no"))) == (True, True, False)
    assert all(map(math.isnan, axes.of(Axis("metric", "no"))))
    assert json.dumps(list(axes.of(STEP))) == "[0.0, 1.0, 2.0, 3.0, 4.0]"
