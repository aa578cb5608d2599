"""From logs to states: whole, by parts, in another process, from the cache, and as a log grows."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, load
from runferry.viewer import cache as caching
from runferry.viewer.cache import Cache, dump, folder_for, undump
from runferry.viewer.exact import Exact, work
from runferry.viewer.live import LEAST_S, MOST_S, Live, News
from runferry.viewer.preview import places, preview
from runferry.viewer.reading import ReplacedError, read
from support import logs
from support.clock import FakeClock

FIELDS = ("config", "summary", "rows", "samples", "console", "exit_code", "row_count", "last_step", "runtime", "counts",
          "files", "alerts", "bad_records", "cut_count", "gap_rows")  # fmt: skip


def facts(state):
    """What a state says, to compare."""
    found = {name: getattr(state, name) for name in FIELDS}
    found["rows"], found["samples"] = list(state.rows), list(state.samples)
    found["metrics"] = [metric.SerializeToString() for metric in state.metrics]
    found["environments"] = {writer: one.SerializeToString() for writer, one in state.environments.items()}
    found["run"] = state.info.run_id
    return found


def whole(*paths):
    """What `load` makes of logs."""
    return facts(load(*paths))


def huge(path, *, seed=0, rows=6000, parts=1, without_step=0.0):
    """A log of some forty blocks; `without_step` is the share of rows that do not say their step."""
    rng = random.Random(seed)
    records = [logs.header_record(), logs.run_record("huge", config={"lr": 0.1})]
    for step in range(rows):
        values = {"loss": rng.random(), "pad": "x" * rng.randrange(120)}
        if rng.random() < 0.3:
            values["val/loss"] = rng.random()
        records.append(logs.row(None if rng.random() < without_step else step, values))
        records += [logs.row(step, {"loss": rng.random(), f"part{part}": part}) for part in range(1, parts)]
        if step % 50 == 0:
            records += [logs.sample(step * 0.5), logs.output(f"step {step}\n", step * 0.5)]
    return logs.make_log(path, *records, logs.summary_record({"best": 0.25}), logs.exit_record(3))


def points(state):
    """Every value of every row that says its step."""
    return {
        (row["_step"], key, value)
        for row in state.rows
        if "_step" in row
        for key, value in row.items()
        if key != "_step"
    }


@pytest.fixture
def run(tmp_path):
    return logs.simple_run(tmp_path / "wandb", rows=20)


# -- whole -----------------------------------------------------------------------------------------------------------


def test_a_reading_is_what_load_makes(run):
    """Rows, samples, console, config, summary and all else are those of the state of everybody else."""
    reading = read([run])
    assert facts(reading.state) == whole(run)
    assert not reading.is_preview


def test_logs_of_a_resumed_run_are_stitched(tmp_path):
    """The rows of several logs are those of `load`, and where each begins is told."""
    first = logs.simple_run(tmp_path / "wandb", rows=6, exit_code=None)
    second = tmp_path / "wandb" / "run-20260922_100000-a1b2c3d4" / first.name
    logs.make_log(second, *logs.simple_records(rows=4, start=logs.START_S + 5000))
    reading = read([first, second])
    assert facts(reading.state) == whole(first, second)
    assert reading.joins == [6]


def test_progress_ends_with_all_bytes(run):
    """What is told of progress never falls, and ends at the size of the logs."""
    told = []
    read([run], lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (run.stat().st_size, run.stat().st_size)


def test_a_packed_log_is_read_but_does_not_grow(run, tmp_path):
    """A log packed with gzip has the same state, and nothing to go on with."""
    packed = tmp_path / run.name
    packed.write_bytes(gzip.compress(run.read_bytes()))
    reading = read([packed])
    assert facts(reading.state) == whole(run)
    assert reading.reader is None
    reading.go_on()


@given(st.lists(st.integers(0, 5000), max_size=8), st.integers(0, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_log_in_random_pieces_is_the_log(tmp_path, cuts, parts):
    """Whatever pieces a log comes in, the state is the one of the whole log at its end."""
    log = tmp_path / "run-a1b2c3d4.wandb"
    data = logs.make_log(log, *logs.simple_records(rows=15, parts=parts + 1)).read_bytes()
    cuts = sorted({min(cut, len(data)) for cut in cuts})
    log.write_bytes(data[: cuts[0] if cuts else len(data)])
    reading = read([log])
    for cut in [*cuts[1:], len(data)]:
        log.write_bytes(data[:cut])
        reading.go_on()
    assert facts(reading.state) == whole(log)


def test_a_log_that_shrank_or_changed_is_not_read_on(run):
    """What was cut off, and what has other bytes before the place that was read up to, is another log."""
    data = run.read_bytes()
    reading = read([run])
    run.write_bytes(data[:-10])
    with pytest.raises(ReplacedError, match="shrank"):
        reading.go_on()
    run.write_bytes(data[:-10] + bytes(200))
    with pytest.raises(ReplacedError, match="another log"):
        reading.go_on()


# -- by parts --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(1, 3), st.sampled_from([0.0, 0.2]), st.integers(1, 12))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_preview_shows_is_in_the_log(tmp_path, seed, parts, without_step, blocks):
    """Every point, sample and console line of a preview is one of the exact reading, whatever the rows look like."""
    log = huge(tmp_path / "run-huge.wandb", seed=seed, rows=3000, parts=parts, without_step=without_step)
    exact, shown = read([log]).state, preview([log], blocks=blocks, small=0)
    assert shown.is_preview
    assert points(shown.state) <= points(exact)
    assert {repr(sample) for sample in shown.state.samples} <= {repr(sample) for sample in exact.samples}
    assert shown.state.gaps == []


def test_a_preview_has_beginning_end_and_what_lies_between(tmp_path):
    """Config, the newest values, the exit, the whole range of steps, no large hole, and the share that was read."""
    log = huge(tmp_path / "run-huge.wandb", rows=9000)
    exact, shown = read([log]).state, preview([log], blocks=12, small=0)
    state = shown.state
    assert (state.config, state.exit_code, state.summary) == ({"lr": 0.1}, 3, exact.summary)
    assert (state.last_step, state.info.run_id) == (8999, "huge")
    steps = [row["_step"] for row in state.rows]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 8999)
    blocks = log.stat().st_size / BLOCK_SIZE
    assert max(b - a for a, b in itertools.pairwise(steps)) < 2.5 * 9000 / 12
    assert shown.sampled == pytest.approx((2 + 12 + 8) / blocks, rel=0.05)


def test_a_preview_of_rows_wider_than_blocks_has_rows(tmp_path):
    """Rows of 60 KB, which no block holds, are looked at in several blocks together."""
    rng = random.Random(3)
    rows = [logs.row(step, {"loss": rng.random(), "pad": "x" * 60_000}) for step in range(150)]
    log = logs.make_log(tmp_path / "run-w.wandb", logs.run_record("w"), *rows, logs.exit_record())
    shown = preview([log], blocks=40, small=0)
    steps = [row["_step"] for row in shown.state.rows]
    assert shown.sampled < 0.5
    assert len(steps) >= 10
    assert steps[0] == 0
    assert max(after - before for before, after in itertools.pairwise(steps)) < 40
    assert points(shown.state) < points(read([log]).state)


def test_a_preview_of_several_logs_is_stitched(tmp_path):
    """Of a run that was resumed, the points of all its logs are among those of the exact reading."""
    first = huge(tmp_path / "run-1-huge" / "run-huge.wandb", rows=4000)
    second = tmp_path / "run-2-huge" / "run-huge.wandb"
    pad = "y" * 100
    rows = [logs.row(step, {"loss": step / 7, "pad": pad}, start=logs.START_S + 1e4) for step in range(3000)]
    logs.make_log(second, logs.run_record("huge", start=logs.START_S + 1e4), *rows)
    shown, exact = preview([first, second], blocks=8, small=0), read([first, second])
    assert points(shown.state) < points(exact.state)
    assert shown.state.last_step == exact.state.last_step == 6999
    assert shown.state.rows[shown.joins[0]]["_step"] == 4000


def test_a_small_log_is_read_whole(run):
    """A log that is read as fast as its parts has no preview."""
    assert facts(preview([run]).state) == whole(run)


@pytest.mark.parametrize("size", [1, BLOCK_SIZE, 22 * BLOCK_SIZE, 22 * BLOCK_SIZE + 1, 1000 * BLOCK_SIZE - 5])
def test_parts_lie_apart_on_edges_of_blocks(size):
    """Ranges ascend without overlap from the first byte to the last, and each begins at the edge of a block."""
    found = places(size, 12)
    assert (found[0][0], found[-1][1]) == (0, size)
    assert all(offset % BLOCK_SIZE == 0 for offset, _ in found)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(found))


# -- in another process ----------------------------------------------------------------------------------------------


def test_another_process_reads_the_same(run, tmp_path):
    """What comes back is the state, with its progress, and it goes on with what the log gets later."""
    cache = Cache(tmp_path / "cache", small=0)
    data = run.read_bytes()
    run.write_bytes(data[:-50])
    exact = Exact([run], cache)
    exact.join(60)
    reading = exact.poll()
    assert exact.problem == ""
    assert (exact.done, exact.total) == (len(data) - 50,) * 2
    assert exact.seconds_left() == 0
    run.write_bytes(data)
    reading.go_on()
    assert facts(reading.state) == whole(run)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_what_cannot_be_read_is_told(tmp_path):
    """A log that is not there gives no result, but a reason, and no file is left."""
    cache = Cache(tmp_path / "cache", small=0)
    exact = Exact([tmp_path / "run-x.wandb"], cache)
    exact.join(60)
    assert exact.poll() is None
    assert "run-x.wandb" in exact.problem


def test_a_cancelled_reading_leaves_nothing(run, tmp_path):
    """After cancelling, the process is gone, no file is left, and there is neither a result nor a problem."""
    (tmp_path / "cache").mkdir()
    exact = Exact([run], Cache(tmp_path / "cache", small=0))
    exact.cancel()
    assert not exact.is_running
    assert exact.problem == ""
    assert list((tmp_path / "cache").glob("*.part")) == []


def test_a_process_that_nobody_listens_to_ends(run, tmp_path):
    """Where the one who asked is gone, the file goes, too."""

    class Shut(io.RawIOBase):
        def write(self, _data):
            raise BrokenPipeError

    target = tmp_path / "x.part"
    target.touch()
    stdout = sys.stdout
    try:
        work({"logs": [str(run)], "to": str(target)}, Shut())
    finally:
        sys.stdout = stdout
    assert not target.exists()


# -- from the cache --------------------------------------------------------------------------------------------------


def kept(cache, log):
    """Put the reading of a log into a cache; the file."""
    scratch = cache.scratch([log])
    with scratch.open("wb") as file:
        dump(read([log]), file)
    cache.keep(scratch, [log])
    return max(scratch.parent.glob("*.reading"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache" / "view", small=0)


def test_a_kept_reading_is_the_reading(cache, run):
    """The second opening has the state of the first one, and private files."""
    path = kept(cache, run)
    assert facts(cache.get([run]).state) == whole(run)
    assert path.stat().st_mode & 0o077 == 0


def test_messages_come_back(cache, tmp_path):
    """Definitions of metrics, artifacts and environments, which are messages, are those of the log."""
    log = tmp_path / "run-m.wandb"
    metric = logs.messages.MetricRecord(name="loss", step_metric="epoch")
    artifact = logs.messages.ArtifactRecord(name="model", type="model")
    records = [logs.messages.Record(metric=metric), logs.messages.Record(artifact=artifact)]
    logs.make_log(log, *logs.simple_records("m", exit_code=None), *records, logs.output("no newline"))
    kept(cache, log)
    found = cache.get([log]).state
    assert facts(found) == whole(log)
    assert found.artifacts[0].name == "model"
    assert found.console_rest == load(log).console_rest


def test_a_log_that_has_grown_is_read_on(cache, run):
    """Behind what was kept, only the new part is read, to the same state."""
    data = run.read_bytes()
    run.write_bytes(data[: len(data) // 2])
    kept(cache, run)
    run.write_bytes(data)
    assert facts(cache.get([run]).state) == whole(run)


@pytest.mark.parametrize("change", ["touched", "shorter", "another", "new file"])
def test_another_log_is_not_taken_for_the_kept_one(cache, run, change):
    """A log whose time, size, bytes or inode changed in any other way than by growing has nothing in the cache."""
    data = run.read_bytes()
    kept(cache, run)
    if change == "touched":
        os.utime(run, (1, 1))
    elif change == "shorter":
        run.write_bytes(data[:-20])
    elif change == "another":
        run.write_bytes(data[:-64] + bytes(200))
    else:
        run.rename(run.with_suffix(".old"))
        run.write_bytes(data)
    assert cache.get([run]) is None


@given(st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_ignored(cache, run, data):
    """A flipped byte, or an end cut off, anywhere: as if nothing had been kept."""
    path = kept(cache, run)
    bytes_ = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(bytes_) - 1))
    if data.draw(st.booleans()):
        del bytes_[place:]
    else:
        bytes_[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes_)
    assert cache.get([run]) is None


def test_nothing_but_a_reading_is_unpickled(tmp_path):
    """A pickle that would call something else is refused, even with a right checksum."""
    for evil in (
        b"cos\nsystem\n(S'touch evil'\ntR.",
        b"cbuiltins\ngetattr\n(cbuiltins\nset\nS'mro'\ntR.",
        b"crunferry.logformat.sources\nopen_log\n.",
    ):
        file = io.BytesIO(json.dumps({"logs": []}).encode() + b"\n" + evil)
        with pytest.raises(ValueError, match="no part of a reading"):
            undump(file)


def test_a_full_cache_forgets_what_was_not_used_for_longest(tmp_path):
    """Beyond its capacity the oldest files go; what was used again counts as new."""
    runs = [logs.simple_run(tmp_path / str(number), rows=20) for number in range(3)]
    roomy = Cache(tmp_path / "view", small=0)
    paths = []
    for number, log in enumerate(runs[:2]):
        paths.append(kept(roomy, log))
        os.utime(paths[-1], (1000 + number,) * 2)
    assert roomy.get([runs[0]]) is not None
    tight = Cache(tmp_path / "view", small=0, capacity=int(paths[0].stat().st_size * 2.5))
    kept(tight, runs[2])
    assert [tight.get([log]) is not None for log in runs] == [True, False, True]


def test_nothing_is_kept_beside_the_data(run, tmp_path):
    """A cache that would lie in a run's directory, or among those of other runs, is not used; small logs are not kept."""
    for folder in (run.parent, run.parent.parent / "cache"):
        assert Cache(folder, small=0).scratch([run]) is None
    assert Cache(tmp_path / "elsewhere").scratch([run]) is None
    assert not (tmp_path / "elsewhere").exists()


def test_a_cache_that_cannot_be_written_is_missed_by_nobody(run, tmp_path):
    """Where the folder is a file, nothing is kept, nothing is found, and nothing raises; an exact reading comes all the same."""
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "view", small=0)
    assert (cache.scratch([run]), cache.get([run])) == (None, None)
    exact = Exact([run], cache)
    exact.join(60)
    assert facts(exact.poll().state) == whole(run)


def test_the_folder_follows_the_environment():
    """`XDG_CACHE_HOME` counts if it is absolute; else it is the cache of the home."""
    assert folder_for({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/runferry/view")
    assert folder_for({"XDG_CACHE_HOME": "x", "HOME": "/h"}) == Path("/h/.cache/runferry/view")


def test_another_version_of_the_sources_has_its_own_files(cache, run, monkeypatch):
    """What other sources have written is not looked at."""
    kept(cache, run)
    monkeypatch.setattr(caching, "_version", lambda: "another")
    assert cache.get([run]) is None


# -- live ------------------------------------------------------------------------------------------------------------


def test_quiet_logs_are_looked_at_less_often(run):
    """The time between two looks grows from a quarter of a second to five, and is short again once something came."""
    clock, looks = FakeClock(), []

    def stat(path):
        looks.append(clock.monotonic())
        return path.stat()

    data = run.read_bytes()
    run.write_bytes(data[:500])
    live = Live(clock=clock.monotonic, stat=stat)
    reading = read([run])
    live.show([reading])
    for _ in range(14):
        assert live.poll() == []
        clock.advance(live.seconds_to_next())
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert gaps[0] == pytest.approx(1.5 * LEAST_S)
    assert gaps[-1] == pytest.approx(MOST_S)
    run.write_bytes(data)
    assert [(event.reading is reading, event.news) for event in live.poll()] == [(True, News.GROWN)]
    assert live.seconds_to_next() == pytest.approx(LEAST_S)
    assert facts(reading.state) == whole(run)
    assert live.poll() == []


def test_replaced_and_missing_logs_are_told_once(run):
    """A log that is gone is told once and may come back; one that was replaced is told, and then looked after no more."""
    clock = FakeClock()
    live = Live(clock=clock.monotonic)
    data = run.read_bytes()
    live.show([read([run])])
    run.rename(run.with_suffix(".away"))
    assert [event.news for event in live.poll()] == [News.GONE]
    clock.advance(MOST_S)
    assert live.poll() == []
    run.write_bytes(data[:100])
    clock.advance(MOST_S)
    (event,) = live.poll()
    assert event.news is News.REPLACED
    assert "shrank" in event.words
    assert live.seconds_to_next() is None


def test_only_what_is_shown_is_looked_after(run, tmp_path):
    """Runs that leave the screen cost nothing, those that stay keep their pace."""
    clock = FakeClock()
    other = logs.simple_run(tmp_path / "other", run_id="other")
    one, two = read([run]), read([other])
    live = Live(clock=clock.monotonic)
    live.show([one])
    live.poll()
    live.show([one, two])
    assert live.seconds_to_next() == 0
    live.show([one])
    assert live.seconds_to_next() > LEAST_S
    live.show([])
    assert live.seconds_to_next() is None


def test_reading_writes_nothing_beside_the_data(run, tmp_path):
    """A data directory that nobody may write to is read by all of it, and is what it was before."""
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from runferry.viewer.preview import preview\nfrom runferry.viewer.cache import Cache\n"
        "from runferry.viewer.exact import Exact\n"
        "def audit(event, args):\n"
        "    if event == 'open' and str(args[0]).startswith(sys.argv[2]) and args[2] & 3: raise SystemExit(f'writes {args}')\n"
        "    if event in ('socket.connect', 'socket.__new__'): raise SystemExit(event)\n"
        "sys.addaudithook(audit)\n"
        "log = Path(sys.argv[1]); cache = Cache(Path(sys.argv[3]), small=0)\n"
        "preview([log]); exact = Exact([log], cache); exact.join(60); assert exact.poll(); assert cache.get([log])\n"
    )
    before = sorted((path, path.stat().st_mtime_ns) for path in run.parent.parent.rglob("*"))
    arguments = [str(run), str(run.parent.parent), str(tmp_path / "cache")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted((path, path.stat().st_mtime_ns) for path in run.parent.parent.rglob("*")) == before
