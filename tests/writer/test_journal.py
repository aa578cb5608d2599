"""Records on a disk that fills up, fails, takes half a write, or loses what it said it had synced."""

from __future__ import annotations

import errno
import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import FILE_HEADER, Gap, read_records
from runferry.writer import journal as journal_module
from runferry.writer import records
from runferry.writer.journal import BULK, LAST, ROW, Journal
from runferry.writer.segment import Place
from support.clock import FakeClock
from support.faultfs import FaultFS

PLACE = Place(Path("/data"), "abc")


class Rig:
    """A journal on a faulty disk, with what it told the user."""

    def __init__(self, space=None, **options):
        self.fs = FaultFS(space)
        self.clock = FakeClock()
        self.warnings = []
        self.journal = Journal(self.fs, PLACE, self.clock, self.opening, self.warnings.append, **options)

    def opening(self, resumed):
        info = records.RunInfo("abc", "p", start_ns=int(self.clock.time() * 1e9), resume=resumed)
        return [records.header("1"), records.run(info, ())]

    def row(self, number, size=20):
        self.journal.append(records.output(1, number + 1, "x" * size), ROW)

    def write(self, *numbers, size=20):
        for number in numbers:
            self.row(number, size)
        return self.journal.write()


def read(log):
    """The items of a log; there must be no gap."""
    items = list(read_records(io.BytesIO(log)))
    assert not [item for item in items if isinstance(item, Gap)]
    return items


def numbers(log):
    """Which rows a log holds; record numbers must run from 1 without holes."""
    items = read(log)
    assert [item.num for item in items] == list(range(1, len(items) + 1))
    return [item.message().timestamp.nanos - 1 for item in items if item.kind == "output_raw"]


def test_the_opening_leaves_in_one_write():
    """Header bytes, header record and run record: no moment at which the log would stop another reader."""
    rig = Rig()

    assert rig.journal.open()
    assert rig.fs.calls.count("write") == 1
    assert [item.kind for item in read(rig.fs.logs()[0])] == ["header", "run"]


def test_one_write_takes_all_that_is_queued():
    """However many rows wait, they leave in one call."""
    rig = Rig()
    rig.journal.open()
    rig.fs.calls.clear()

    assert rig.write(*range(500))
    assert rig.fs.calls == ["identity", "write"]
    assert numbers(rig.fs.logs()[0]) == list(range(500))


def test_a_new_log_is_synced_with_the_names_above_it():
    """The file, its directory, the folder of runs, and the parents of what was made."""
    rig = Rig()
    rig.journal.open()
    directory = next(iter(rig.fs.files)).parent

    assert rig.journal.sync()
    assert "sync_file" in rig.fs.calls
    assert rig.fs.synced_directories == [directory, Path("/data/wandb"), Path("/data"), Path("/")]
    rig.write(1)
    rig.fs.calls.clear()
    assert rig.journal.sync()
    assert rig.fs.calls == ["identity", "name_count", "sync_data"]


def test_directories_that_cannot_be_synced_are_no_failure():
    """Some file systems have no fsync for directories."""
    rig = Rig()
    rig.fs.fail["sync_directory"] = errno.EINVAL
    rig.journal.open()

    assert rig.journal.sync()
    assert rig.warnings == []


def test_short_writes_are_finished():
    """A file system may take a few bytes at a time."""
    rig = Rig()
    rig.fs.short = 7

    assert rig.write(*range(10))
    assert numbers(rig.fs.logs()[0]) == list(range(10))


def test_a_full_disk_leaves_whole_records_and_one_line():
    """What fits is there, nothing is torn, and the user is told once; rows go on when space returns."""
    rig = Rig(space=400)
    for number in range(50):
        rig.write(number)
        rig.clock.advance(1)
    kept = numbers(rig.fs.logs()[0])

    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 50
    assert len(rig.warnings) == 1
    assert "errno 28" in rig.warnings[0]
    assert str(next(iter(rig.fs.files))) in rig.warnings[0]
    rig.fs.space = None
    rig.clock.advance(10)
    assert rig.write(50)
    assert numbers(rig.fs.logs()[0]) == list(range(51))
    assert rig.journal.tally.rows_written == 51


def test_after_an_error_it_waits_longer_and_longer():
    """A failing disk is not asked for every row, but at most every five seconds."""
    rig = Rig()
    rig.journal.open()
    rig.fs.fail["write"] = errno.EIO
    attempts = []
    for tick in range(1200):
        before = rig.fs.calls.count("write")
        rig.write(tick)
        if rig.fs.calls.count("write") > before:
            attempts.append(rig.clock.monotonic())
        rig.clock.advance(0.02)
    waits = [round(b - a, 2) for a, b in itertools.pairwise(attempts)]

    assert waits[0] <= 0.12
    assert waits == sorted(waits)
    assert waits[-1] <= 5.02


def test_half_an_opening_is_no_opening():
    """A log with its header but no run record would stop other readers: rather nothing is left, wherever it was cut."""
    whole = Rig()
    whole.journal.open()
    for space in range(len(whole.fs.logs()[0])):
        rig = Rig(space=space)

        assert not rig.journal.open()
        assert (rig.fs.logs(), rig.journal.paths) == ([], [])
        rig.fs.space = None
        assert rig.journal.write(now=True)
        assert rig.fs.logs()[0].startswith(FILE_HEADER)
        assert [item.kind for item in read(rig.fs.logs()[0])] == ["header", "run"]


def test_a_write_that_takes_nothing_is_an_error():
    """It is not tried for ever, and the rows come later."""
    rig = Rig()
    rig.journal.open()
    rig.fs.short = 0

    assert not rig.write(1)
    assert "took no bytes" in rig.warnings[0]
    rig.fs.short = None
    assert rig.journal.write(now=True)
    assert numbers(rig.fs.logs()[0]) == [1]


def test_a_process_killed_at_any_call_leaves_no_log_without_its_run():
    """An empty log, or one with half an opening, would fail the sync of the folder for ever: there is none to see."""

    class Killed(BaseException):
        pass

    whole = 0
    for number in itertools.count():
        rig = Rig()
        calls = itertools.count()

        def kill(_operation, number=number, calls=calls):
            if next(calls) == number:
                raise Killed

        rig.fs.before = kill
        try:
            rig.journal.open()
            rig.write(1, 2)
            break
        except Killed:
            for log in rig.fs.logs():
                assert [item.kind for item in read(log)][:2] == ["header", "run"]
                whole += 1

    assert whole >= 2
    assert set(rig.fs.links) == {PLACE.folder / "latest-run"}


def test_a_log_that_cannot_get_its_name_is_tried_again():
    """A rename that fails costs nothing but the time until the next attempt."""
    rig = Rig()
    rig.fs.fail["name"] = errno.EIO

    assert not rig.write(1, 2)
    assert (rig.fs.logs(), len(rig.warnings)) == ([], 1)
    del rig.fs.fail["name"]
    assert rig.journal.write(now=True)
    assert [numbers(log) for log in rig.fs.logs()] == [[1, 2]]


def test_an_empty_run_that_was_removed_to_make_room_is_begun_anew():
    """On a full disk the log has no record and no name yet, and its owner may remove what looks useless."""
    rig = Rig(space=0)
    assert not rig.write(1)
    rig.fs.space = None
    rig.fs.fail["name"] = errno.ENOENT
    assert not rig.journal.write(now=True)
    del rig.fs.fail["name"]

    assert rig.journal.write(now=True)
    assert rig.fs.calls.count("create") == 2
    assert [numbers(log) for log in rig.fs.logs()] == [[1]]


def test_what_a_full_disk_took_of_the_first_batch_can_be_read():
    """The opening and some rows fit: the log has them, and its name."""
    rig = Rig(space=400)

    assert not rig.write(*range(50))
    (log,) = rig.fs.logs()
    assert 1 < len(numbers(log)) < 50
    assert rig.journal.paths[0].suffix == ".wandb"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE])
def test_a_write_that_fails_half_way_is_cut_off(code):
    """The file ends behind a whole record, whatever the error left, and the rows come later."""
    rig = Rig()
    rig.write(*range(5))
    rig.fs.fail["write"] = code

    assert not rig.write(*range(5, 10))
    assert numbers(rig.fs.logs()[0]) == list(range(5))
    del rig.fs.fail["write"]
    assert rig.journal.write(now=True)
    assert numbers(rig.fs.logs()[0]) == list(range(10))


def test_a_tail_that_cannot_be_cut_ends_the_file():
    """Appending behind a torn record would lose good ones: a new segment begins."""
    rig = Rig()
    rig.write(*range(5))
    rig.journal.sync()
    rig.fs.fail = {"write": errno.EIO, "truncate": errno.EIO}
    rig.write(*range(5, 10))
    rig.fs.fail = {}

    assert rig.journal.write(now=True)
    torn, second = rig.fs.logs()
    assert numbers(second) == list(range(5, 10))
    kept = [item for item in read_records(io.BytesIO(torn)) if not isinstance(item, Gap) and item.kind == "output_raw"]
    assert [item.message().timestamp.nanos - 1 for item in kept][:5] == list(range(5))


def test_a_failed_sync_is_never_trusted_again():
    """What was written since the last good sync goes to a new log of the same run, numbered anew."""
    rig = Rig()
    rig.write(*range(5))
    rig.journal.sync()
    rig.write(*range(5, 10))
    rig.fs.fail["sync_data"] = errno.EIO

    assert not rig.journal.sync()
    rig.fs.fail = {}
    rig.row(10)
    rig.clock.advance(1)
    assert rig.journal.write()
    assert rig.journal.sync()
    first, second = rig.fs.files.values()
    assert numbers(first.durable) == list(range(5))
    assert numbers(second.durable) == list(range(5, 11))
    assert [item.kind for item in read(bytes(second.data))][:2] == ["header", "run"]
    assert read(bytes(second.data))[1].message().resume
    assert rig.journal.tally.rows_written == 11
    assert len(rig.warnings) == 1
    assert rig.fs.open_count == 1


def test_a_device_that_takes_no_sync_gets_few_logs():
    """Each failed sync leaves a log behind, so the next attempt waits longer and longer; one that succeeds ends that."""
    rig = Rig()
    rig.fs.fail["sync_file"] = errno.EIO
    for number in range(3600):
        rig.write(number)
        rig.journal.sync()
        rig.clock.advance(1)

    assert 8 < len(rig.fs.files) < 15
    assert len(rig.warnings) == 1
    rig.fs.fail = {}
    rig.clock.advance(600)
    assert rig.write(3600)
    assert rig.journal.sync()
    assert numbers(list(rig.fs.files.values())[-1].durable)[-1] == 3600
    rig.fs.fail["sync_data"] = errno.EIO
    rig.write(3601)
    rig.journal.sync()
    rig.journal.write(now=True)
    assert rig.journal.dirty
    rig.fs.fail = {}
    assert rig.journal.sync()


def test_a_file_system_without_sync_loses_nothing():
    """Nothing failed where nothing was tried: one log, one line, no memory for what could be written again."""
    rig = Rig()
    rig.fs.fail["sync_file"] = errno.EINVAL
    for number in range(100):
        assert rig.write(number)
        assert not rig.journal.sync()
        rig.clock.advance(5)

    assert [numbers(log) for log in rig.fs.logs()] == [list(range(100))]
    assert rig.fs.calls.count("sync_file") == 1
    assert rig.journal.tally.rows_written == 100
    assert rig.journal.dirty
    assert not rig.journal.failing
    assert len(rig.warnings) == 1
    assert "does not offer" in rig.warnings[0]
    assert len(rig.journal._unsynced) == 0


def test_what_was_let_go_before_a_failed_sync_is_counted():
    """Memory for unsynced records is bounded; what it no longer held may be lost, and is said to be unsure."""
    rig = Rig(keep_unsynced=1000)
    rig.write(*range(40))
    rig.fs.fail["sync_file"] = errno.EIO
    rig.journal.sync()
    rig.fs.fail = {}
    rig.journal.write(now=True)
    rewritten = numbers(rig.fs.logs()[1])

    assert rig.journal.tally.rows_unsure == 40 - len(rewritten) > 0
    assert rig.journal.tally.rows_written == len(rewritten)
    assert rewritten == list(range(40 - len(rewritten), 40))


def test_rows_beyond_the_bound_are_dropped_and_counted(monkeypatch):
    """A disk that stays full costs no memory without end."""
    monkeypatch.setattr(journal_module, "MAX_QUEUED_ROWS", 10)
    rig = Rig()
    rig.fs.fail["write"] = errno.ENOSPC
    rig.write(*range(25))

    assert rig.journal.tally.rows_dropped == 15
    rig.journal.append(records.stats(1, {"cpu": 1.0}), BULK)
    rig.journal.append(records.exit_(0, 1))
    assert rig.journal.tally.others_dropped == 1
    rig.fs.fail = {}
    assert rig.journal.write(now=True)
    assert numbers(rig.fs.logs()[0]) == list(range(10))
    assert read(rig.fs.logs()[0])[-1].kind == "exit"


def test_rare_records_have_a_reserve_and_the_last_one_a_place(monkeypatch):
    """Configs and summaries of a run whose disk stays full fill no memory without end; its end is never left out."""
    monkeypatch.setattr(journal_module, "MAX_QUEUED_BYTES", 1000)
    monkeypatch.setattr(journal_module, "MAX_RESERVED_BYTES", 500)
    rig = Rig()
    rig.fs.fail["write"] = errno.ENOSPC
    for number in range(300):
        rig.journal.append(records.config([((f"k{number}",), b"1")]))
    rig.journal.append(records.exit_(0, 1), LAST)

    assert rig.journal.tally.others_dropped > 0
    assert rig.journal.others_queued + rig.journal.tally.others_dropped == 301
    rig.fs.fail = {}
    assert rig.journal.write()
    assert read(rig.fs.logs()[0])[-1].kind == "exit"


def test_a_log_that_was_deleted_is_begun_anew():
    """Appending to a file without a name succeeds for ever: a sync looks, counts what is gone, and writes the rest."""
    rig = Rig()
    rig.write(*range(5))
    assert rig.journal.sync()
    rig.write(*range(5, 8))
    (gone,) = [path for path in rig.fs.files if path.suffix == ".wandb"]
    del rig.fs.files[gone]

    assert not rig.journal.sync()
    assert rig.write(8)
    assert rig.journal.sync()
    assert numbers(rig.fs.logs()[0]) == [5, 6, 7, 8]
    assert (rig.journal.tally.rows_written, rig.journal.tally.rows_dropped) == (4, 5)
    assert len(rig.warnings) == 1
    assert f"{gone} was deleted, and 5 rows with it" in rig.warnings[0]
    assert rig.journal.paths == [path for path in rig.fs.files if path.suffix == ".wandb"]
    assert read(rig.fs.logs()[0])[1].message().resume


def test_a_descriptor_that_became_another_files_is_let_alone():
    """A program closes every descriptor and opens a file of its own: not a byte of ours goes there."""
    rig = Rig()
    rig.write(*range(3))
    other = rig.fs.create(Path("/data/checkpoint"))
    ours, rig.fs._open[rig.journal._segment._fd] = rig.fs._open[rig.journal._segment._fd], rig.fs._open[other]

    assert not rig.write(3)
    assert "is another file's now" in rig.warnings[0]
    assert rig.journal.write(now=True)
    assert numbers(rig.fs.logs()[1]) == [0, 1, 2, 3]
    assert rig.fs.files[Path("/data/checkpoint")].data == b""
    assert "close" not in rig.fs.calls
    assert numbers(bytes(ours.data)) == [0, 1, 2]


def test_an_error_is_named_again_after_a_long_time():
    """A disk that fills up once more the next day is news; one that fills up every minute is not."""
    rig = Rig()
    for pause in (60, 60, 60, 86_400, 60):
        rig.fs.fail["write"] = errno.ENOSPC
        rig.write(1)
        rig.fs.fail = {}
        rig.clock.advance(10)
        assert rig.write(2)
        rig.clock.advance(pause)

    assert len(rig.warnings) == 2


def test_a_path_that_the_system_has_no_bytes_for_is_no_exception(monkeypatch):
    """Whatever a file system answers to, `log` and the thread never hear of it as an error of another kind."""
    rig = Rig()

    def refuse(_path):
        raise UnicodeEncodeError("latin-1", "\u65e5", 0, 1, "no such character")

    monkeypatch.setattr(rig.fs, "make_directory", refuse)

    assert not rig.write(1)
    assert "no such character" in rig.warnings[0]


def test_a_folder_that_cannot_be_made_is_tried_again():
    """Rows wait for it, the user is told once with the path, and no empty directories pile up."""
    rig = Rig()
    rig.fs.fail["create"] = errno.EACCES
    for number in range(20):
        rig.write(number)
        rig.clock.advance(6)

    assert len(rig.warnings) == 1
    assert "/data/wandb" in rig.warnings[0]
    assert not [path for path in rig.fs.directories if path.name.startswith("run-")]
    rig.fs.fail = {}
    rig.clock.advance(6)
    assert rig.journal.write()
    assert numbers(rig.fs.logs()[0]) == list(range(20))


def test_a_name_that_is_taken_gets_a_number():
    """Two runs of one id in one second: no log is ever opened by two writers."""
    rigs = [Rig() for _ in range(3)]
    for rig in rigs[1:]:
        rig.fs, rig.journal._fs = rigs[0].fs, rigs[0].fs
    for rig in rigs:
        assert rig.journal.open()
    names = [path.parent.name for path in rigs[0].fs.files]

    assert names == [names[0], f"{names[0]}-1", f"{names[0]}-2"]
    assert {path.name for path in rigs[0].fs.files} == {"run-abc.wandb"}
    assert rigs[0].fs.links == {Path("/data/wandb/latest-run"): names[2]}


def test_records_of_every_size_meet_every_block_edge():
    """Rows from nothing to more than two blocks, one after another, come back."""
    rig = Rig()
    sizes = [0, 1, 100, 32_720, 32_730, 32_740, 32_750, 32_760, 32_770, 70_000, 5, 32_761]
    for number, size in enumerate(sizes):
        rig.write(number, size=size)

    assert numbers(rig.fs.logs()[0]) == list(range(len(sizes)))


FAULTS = st.dictionaries(
    st.integers(0, 60), st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ESTALE]), max_size=12
)
STEPS = st.lists(st.one_of(st.integers(1, 8), st.just("sync")), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(faults=FAULTS, steps=STEPS, short=st.one_of(st.none(), st.integers(1, 60)))
def test_whatever_calls_fail_no_row_is_lost_or_torn(faults, steps, short):
    """Any calls fail once, in any order: nothing is raised, every log is whole, all rows are on the device at the end."""
    rig = Rig()
    rig.fs.fail_at, rig.fs.short = dict(faults), short
    count = 0
    for step in steps:
        if step == "sync":
            rig.journal.sync()
        else:
            rig.write(*range(count, count + step))
            count += step
        rig.clock.advance(6)
    for _ in range(len(faults) + 2):
        rig.clock.advance(6)
        if rig.journal.write(now=True) and rig.journal.sync():
            break
    held = set()
    for file in rig.fs.files.values():
        items = [item for item in read_records(io.BytesIO(file.durable)) if not isinstance(item, Gap)]
        held |= {item.message().timestamp.nanos - 1 for item in items if item.kind == "output_raw"}

    assert held == set(range(count))
    assert rig.journal.tally.rows_dropped == 0
