"""The logs of one run, read as one."""

from __future__ import annotations

import gzip
import io

import pytest
from runferry.logformat import in_order, load, messages, siblings
from runferry.logformat.steps import Steps
from runferry.logformat.stitch import Opening, StepStitch
from support.frames import log_of
from support.logs import exit_record, make_log


def segment(folder, name, start, losses, *, run_id="r1", project="p", exit_code=None, step=0):
    """A log that began at `start` seconds; with `run_id=None` one without a run record."""
    records = []
    if run_id is not None:
        begun = messages.Timestamp(seconds=start)
        records.append(messages.Record(run=messages.RunRecord(run_id=run_id, project=project, start_time=begun)))
    metric = messages.MetricRecord(name="loss", summary=messages.MetricSummary(min=True, mean=True))
    records.append(messages.Record(metric=metric))
    for at, loss in enumerate(losses, step):
        row = messages.HistoryRecord()
        row.item.add(nested_key=["loss"], value_json=str(loss))
        row.item.add(nested_key=["_step"], value_json=str(at))
        records.append(messages.Record(history=row))
    if exit_code is not None:
        records.append(messages.Record(exit=messages.RunExitRecord(exit_code=exit_code)))
    for num, record in enumerate(records, 1):
        record.num = num
    log = folder / name / f"run-{run_id or 'r1'}.wandb"
    log.parent.mkdir(parents=True)
    log.write_bytes(log_of(*(record.SerializeToString() for record in records)))
    return log


@pytest.fixture
def run(tmp_path):
    """Three logs of one run; the names of the first two say the same second, and the wrong order."""
    first = segment(tmp_path, "run-20261130_142500-r1-1", 100, [3, 1], exit_code=1)
    second = segment(tmp_path, "run-20261130_142500-r1", 101, [2], step=2, exit_code=0)
    return first, second, segment(tmp_path, "run-20261130_142600-r1", 160, [6], step=3)


def test_logs_of_one_run_count_in_the_order_of_their_start(run):
    """However they are given; the summary is that of all rows, and the last log says how the run ends."""
    first, second, third = run
    state = load(third, second, first)

    assert [row["_step"] for row in state.rows] == [0, 1, 2, 3]
    assert state.summary["loss"] == {"min": 1, "mean": 3}
    assert state.exit_code is None
    assert load(second, first).exit_code == 0
    assert load(second, first, second).row_count == 3


def test_packed_logs_pipes_and_open_files_are_sources(run, tmp_path, monkeypatch):
    """They are stitched as plain logs are, wherever their bytes can be read twice."""
    whole = load(*run)
    packed = [tmp_path / f"run-{at}.wandb.gz" for at in range(3)]
    for log, path in zip(run, packed, strict=True):
        path.write_bytes(gzip.compress(log.read_bytes()))
    assert load(*packed).rows == whole.rows
    with packed[0].open("rb") as first, run[1].open("rb") as second, packed[2].open("rb") as third:
        assert load(first, second, third).rows == whole.rows

    with open(packed[0], "rb") as given:  # noqa: PTH123 - what a shell does for `<`
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given))
        assert load("-").rows == load(run[0]).rows


def test_a_directory_stands_for_its_logs(run, tmp_path):
    """That of a run for its log, one of several for all of them, in text or as a path."""
    assert load(run[0].parent).rows == load(str(run[0])).rows
    assert load(tmp_path).row_count == 4


def test_open_files_are_read_as_given(run):
    """Each a log of its own."""
    files = [io.BytesIO(log.read_bytes()) for log in run]

    assert [row["_step"] for row in load(*files).rows] == [0, 1, 2, 3]


def test_a_log_that_does_not_say_whose_it_is_counts_as_the_runs(run, tmp_path):
    """Its start was lost; it was named all the same."""
    bare = segment(tmp_path, "run-20261130_142700-r1", 0, [0], run_id=None)

    assert load(run[0], bare).summary["loss"]["min"] == 0
    assert in_order([run[0], bare]) == [bare, run[0]]


def test_errors_name_the_path(run, tmp_path):
    """Nothing there, no log in there, logs of different runs."""
    other = segment(tmp_path / "other", "run-20261130_142500-r2", 100, [1], run_id="r2")
    (tmp_path / "empty").mkdir()

    with pytest.raises(FileNotFoundError, match="nope"):
        load(run[0], tmp_path / "nope")
    with pytest.raises(FileNotFoundError, match=r"no log .*empty"):
        load(tmp_path / "empty")
    with pytest.raises(ValueError, match="different runs") as raised:
        load(run[0], other)
    assert str(run[0]) in str(raised.value)
    assert str(other) in str(raised.value)


def test_siblings_are_the_logs_of_the_same_run_beside_it(run, tmp_path, monkeypatch):
    """In the same folder, whatever a path is relative to; the same id in another project is another run."""
    segment(tmp_path, "run-20261130_142800-r1", 300, [1], project="q")
    broken = tmp_path / "run-20261130_142900-r1" / "run-r1.wandb"
    broken.parent.mkdir()
    broken.symlink_to("gone")

    assert siblings(run[2]) == list(run)
    monkeypatch.chdir(run[1].parent)
    assert [log.resolve() for log in siblings(run[1].relative_to(run[1].parent))] == list(run)


def test_a_log_without_a_run_record_has_no_siblings(run, tmp_path):
    """Nobody can tell whose it is."""
    bare = segment(tmp_path, "run-20261130_142700-r1", 0, [0], run_id=None)

    assert siblings(bare) == [bare]
    assert siblings(run[0]) == list(run)


def history(log):
    return [(row["_step"], row["loss"]) for row in log.rows]


@pytest.mark.parametrize(
    ("overlap", "rows", "least", "cut"),
    [
        ("last", [(0, 5), (1, 4), (2, 9), (3, 8)], 4, 2),
        ("first", [(0, 5), (1, 4), (2, 1), (3, 2)], 1, 2),
        ("both", [(0, 5), (1, 4), (2, 1), (3, 2), (2, 9), (3, 8)], 1, 0),
    ],
)
def test_steps_that_two_logs_have_count_once(tmp_path, overlap, rows, least, cut):
    """By the policy, as a sync has it; the minimum and the count are those of the rows that count."""
    first = segment(tmp_path, "run-20261130_142500-r1-1", 100, [5, 4, 1, 2])
    second = segment(tmp_path, "run-20261130_142600-r1", 160, [9, 8], step=2)

    state = load(second, first, overlap=overlap)

    assert history(state) == rows
    assert (state.summary["loss"]["min"], state.row_count, state.cut_count) == (least, len(rows), cut)
    assert (state.last_step, state.highest_step) == (3, 3)
    files = [io.BytesIO(log.read_bytes()) for log in (first, second)]
    assert history(load(*files, overlap=overlap)) == rows


def test_the_earliest_of_all_later_logs_ends_a_log(tmp_path):
    """A run that went on from its latest checkpoint, and then from an earlier one."""
    starts = [(0, [0] * 10), (8, [1] * 4), (3, [2] * 2)]
    logs = [segment(tmp_path, f"run-{at}-r1", at, losses, step=step) for at, (step, losses) in enumerate(starts, 1)]

    assert history(load(*logs)) == [(0, 0), (1, 0), (2, 0), (3, 2), (4, 2)]


def test_a_log_that_counts_from_0_again_goes_behind(tmp_path):
    """As resumed ones of the peer do; its summary has the step that the run has."""
    first = segment(tmp_path, "run-20261130_142500-r1-1", 100, [5, 4])
    second = segment(tmp_path, "run-20261130_142600-r1", 160, [9, 8])

    state = load(first, second)

    assert history(state) == [(0, 5), (1, 4), (2, 9), (3, 8)]
    assert (state.last_step, state.highest_step, state.summary["_step"]) == (3, 3, 3)


def test_an_open_file_that_cannot_be_read_twice_is_read_as_it_is(tmp_path):
    """A pipe has no second look: all of its rows count, as logged."""

    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    logs = [segment(tmp_path, f"run-20261130_14250{n}-r1", 100 + n, [n]) for n in (1, 2)]

    assert history(load(*(Pipe(log.read_bytes()) for log in logs))) == [(0, 1), (0, 2)]


def test_an_unknown_policy(run):
    """Named with those that there are."""
    with pytest.raises(ValueError, match="one of last, first, both, not 'best'"):
        load(*run, overlap="best")


def test_a_log_without_a_run_record_gives_and_takes_no_steps(run, tmp_path):
    """When it began nobody knows: all of its rows count, and those of the others."""
    bare = segment(tmp_path, "run-20261130_142700-r1", 0, [7, 7, 7], step=1, run_id=None)

    assert load(*run, bare).row_count == 7


def test_behind_a_rewind_the_first_log_has_no_more_steps_than_it_kept():
    """With the policy `first`, too: what lies behind the rewind is the rewinding log's."""
    openings = [Opening(0), Opening(5, rewinds=4), Opening(6)]
    stitching = StepStitch(openings, "first")

    assert stitching.begin(0) == (Steps(below=5), 0)
    stitching.end(0, 9)
    assert stitching.begin(1) == (Steps(), 0)
    stitching.end(1, 7)
    assert stitching.begin(2) == (Steps(above=7), 0)


def test_a_bound_is_told_in_the_steps_of_the_log_that_it_cuts(tmp_path):
    """The second log counts from 0 behind the first; the third goes back to the run's step 3, which is the second's 1."""
    first = segment(tmp_path, "run-20261130_142500-r1", 100, [1, 1])
    second = segment(tmp_path, "run-20261130_142501-r1", 101, [2, 2, 2])
    third = segment(tmp_path, "run-20261130_142502-r1", 102, [3, 3], step=3)
    fourth = segment(tmp_path, "run-20261130_142503-r1", 103, [4])

    rows = [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4)]
    assert history(load(first, second, third, fourth)) == rows


def test_steps_of_a_log_that_nobody_can_place_move_no_others(tmp_path):
    """It lost its run record, and counts far; the logs behind it go behind each other and not behind that."""
    segment(tmp_path, "run-20261130_142400-r1", 0, [9, 9], step=50, run_id=None)
    for number in (1, 2):
        segment(tmp_path, f"run-20261130_14250{number}-r1", 100 + number, [number, number])

    assert history(load(tmp_path)) == [(50, 9), (51, 9), (0, 1), (1, 1), (2, 2), (3, 2)]


@pytest.mark.parametrize(("overlap", "shift"), [("last", 60), ("first", 100), ("both", 100)])
def test_steps_behind_a_log_that_is_gone_are_those_that_they_would_be_behind_it(overlap, shift):
    """Of a run that had the steps 0 to 99 a log went on at 50, up to 59: with `last` the next one begins at 60, as if all were here."""
    gone, back, fresh = Opening(0), Opening(50, goes_on=True), Opening(0)
    whole, rest = StepStitch([gone, back, fresh], overlap), StepStitch([back, fresh], overlap, highest=99)
    for index, stitching in ((1, whole), (0, rest)):
        if stitching is whole:
            steps, _ = whole.begin(0)
            whole.end(0, 99 if steps.keep(99) else 49)
        steps, _ = stitching.begin(index)
        stitching.end(index, 59 if steps.keep(59) else None)

        assert stitching.begin(index + 1) == (Steps(), shift)


def test_how_a_run_ends_is_the_word_of_its_last_log(tmp_path):
    """The first was preempted and failed; of the second, which goes on, nothing of that holds."""
    first = segment(tmp_path, "run-20261130_142500-r1", 100, [1])
    soon = messages.Record()
    soon.preempting.SetInParent()
    make_log(first, soon, exit_record(143, runtime=50), append=True)
    ended = load(first)
    assert (ended.exit_code, ended.exit_runtime, ended.preempting) == (143, 50, True)

    goes_on = load(first, segment(tmp_path, "run-20261130_142501-r1", 101, [2], step=1))

    assert (goes_on.exit_code, goes_on.exit_runtime, goes_on.preempting) == (None, 0, False)
