"""`run.save`: which files a pattern names, where their copies lie, and when they are made again."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer import savedfiles
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.runfiles import RunFiles
from runferry.writer.savedfiles import SavedFiles, SaveError, Selection, select
from runferry.writer.values import UnloggableError

LONG_AGO = 1_700_000_000


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with some files whose last change is long ago."""
    folder = tmp_path / "work"
    (folder / "d" / "sub").mkdir(parents=True)
    for name in ("a.txt", "d/x.bin", "d/y.bin", "d/sub/z.bin", "odd[1].txt"):
        write(folder / name, name)
    monkeypatch.chdir(folder)
    return folder


def write(path, text, at=LONG_AGO):
    """A file with a given time of its last change, in seconds."""
    path.write_text(text)
    os.utime(path, (at, at))


@pytest.fixture
def files(tmp_path):
    """A run's directory of its own."""
    run = tmp_path / "run"
    (run / "files").mkdir(parents=True)
    return RunFiles(lambda: run, RealFileSystem())


def named(pattern, base=None, *, literal=False, folder=Path("/none"), warn=lambda _text: None):
    """The paths that a pattern stands for."""
    return sorted(select(pattern, base, folder, warn, literal=literal).sources)


def recorded(run):
    """(path, policy) of each file record; the run is finished with this."""
    (log,) = run.finish().paths
    bodies = [record.message() for record in read_records(log) if record.kind == "files"]
    return [(item.path, item.policy) for body in bodies for item in body.files]


# -- which files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "base", "paths"),
    [
        ("a.txt", None, ["a.txt"]),
        (b"a.txt", None, ["a.txt"]),
        (Path("d/x.bin"), None, ["d/x.bin"]),
        ("d/*.bin", None, ["d/x.bin", "d/y.bin"]),
        ("d/*/z.bin", None, ["d/sub/z.bin"]),
        ("d/sub/*", "d", ["sub/z.bin"]),
        ("./d/../a.txt", None, ["a.txt"]),
    ],
)
def test_structure_below_the_base_is_kept(here, pattern, base, paths):
    """A relative pattern counts from the working directory, unless a base says otherwise."""
    assert named(pattern, base) == paths


def test_an_absolute_pattern_keeps_one_folder(here):
    """Unless a base is given."""
    assert named(here / "d" / "*.bin") == ["d/x.bin", "d/y.bin"]
    assert named(here / "d" / "x.bin", here.parent) == ["work/d/x.bin"]


@pytest.mark.parametrize(
    ("pattern", "base"),
    [("../a.txt", None), (".", None), ("*", None), ("d/*", "d"), ("a.txt", "d"), ("work2/x", "work")],
)
def test_patterns_that_lead_out_or_stand_for_everything(here, pattern, base):
    """Refused, as in the peer: a slip of the hand must not copy a home directory."""
    with pytest.raises(SaveError, match="base_path"):
        named(pattern, base)


def test_a_literal_path(here):
    """`glob=False` takes brackets as they are; so does a pattern that finds nothing, if a file has just that name."""
    assert named("odd[1].txt", literal=True) == named("odd[1].txt") == ["odd[1].txt"]
    write(Path("odd1.txt"), "found")
    assert named("odd[1].txt") == ["odd1.txt"]
    warned = []
    assert named("d*", literal=True, warn=warned.append) == []
    assert named("odd[2].txt", warn=warned.append) == []
    assert warned == ["save: nothing is at 'd*'", "save: nothing is at 'odd[2].txt'"]


def test_folders_with_brackets(here, monkeypatch):
    """The working directory and a base are no patterns, as in sweeps that call a folder `lr=[1,2]`."""
    folder = here / "lr=[1,2]"
    folder.mkdir()
    write(folder / "m.pt", "m")
    monkeypatch.chdir(folder)
    assert named("*.pt") == named(folder / "*.pt", folder) == ["m.pt"]
    assert named(folder / "m.pt") == ["lr=[1,2]/m.pt"]


@pytest.mark.parametrize("pattern", ["d/**x*", "d/**", "d/a\0b", "d/[", "x" * 5000])
def test_odd_patterns(begin, here, pattern):
    """Whatever a pattern has, nothing is raised; a circle of links is named."""
    Path("d/one").symlink_to("two")
    Path("d/two").symlink_to("one")
    begin().save(pattern)


def test_a_working_directory_that_is_gone(begin, here):
    """One line says so, and an absolute path is saved all the same."""
    warned = []
    run = begin(warn=warned.append)
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert run.save("a.txt") == []
    assert len(warned) == 1
    assert run.save(here / "a.txt") == [str(Path(run.dir, "work", "a.txt"))]


def test_what_lies_in_a_cloud(here):
    """Named, and nothing else happens."""
    warned = []
    assert named("s3://bucket/x", warn=warned.append) == []
    assert "no network" in warned[0]


def test_names_that_are_no_unicode_are_escaped(here):
    """No record can hold them, so the copy gets the name that the record has."""
    bad = os.fsdecode(b"d/bad\xff")
    Path(bad).write_text("x")
    assert named("d/bad*") == ["d/bad%FF"]


# -- copies ----------------------------------------------------------------------------------------------------------


def test_saved_files_are_in_the_run(begin, here):
    """Copies, not links, with their policies in the records and their places as the result."""
    run = begin()
    assert run.save("a.txt") == [str(Path(run.dir, "a.txt"))]
    run.save("d/*.bin", policy="end")
    run.save("d/sub/z.bin", base_path="d", policy="now")
    folder = Path(run.dir)
    Path("a.txt").unlink()
    assert recorded(run) == [("a.txt", 2), ("d/x.bin", 1), ("d/y.bin", 1), ("sub/z.bin", 0)]
    assert (folder / "a.txt").read_text() == "a.txt"
    assert (folder / "sub" / "z.bin").read_text() == "d/sub/z.bin"
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert not list((folder.parent / "tmp").iterdir())


@pytest.mark.parametrize("policy", ["live", "end", "now"])
def test_the_last_content_counts(begin, here, policy):
    """What changed until the end is copied again at the end, unless it was to be saved as it was."""
    run = begin()
    run.save("a.txt", policy=policy)
    folder = Path(run.dir)
    write(here / "a.txt", "later", LONG_AGO + 1)
    run.finish()
    assert (folder / "a.txt").read_text() == ("a.txt" if policy == "now" else "later")


def test_a_file_that_lies_in_the_run_already(begin, here):
    """It is recorded under its own path, and there is no copy of it."""
    run = begin()
    own = Path(run.dir, "sub", "own.txt")
    own.parent.mkdir()
    own.write_text("own")
    assert run.save(own) == run.save("sub/own.txt") == run.save(own, base_path=run.dir) == [str(own)]
    folder = Path(run.dir)
    assert recorded(run) == [("sub/own.txt", 2)] * 3
    assert [path for path in folder.rglob("*") if path.is_file()] == [own]


def test_the_folder_of_the_run_is_no_file(begin, here):
    """Nor is a folder in it, nor the one above: each is named, and no record is about it."""
    warned = []
    run = begin(warn=warned.append)
    Path(run.dir, "sub").mkdir(parents=True)
    assert run.save(run.dir) == run.save(Path(run.dir, "sub")) == run.save(run.sync_dir) == []
    assert len([line for line in warned if "it is a folder" in line]) == 3
    assert recorded(run) == []


def test_a_link_in_the_run_is_replaced_by_a_copy(begin, here):
    """A symbolic link to the file itself, as the peer makes them, does not travel."""
    run = begin()
    Path(run.dir).mkdir(exist_ok=True)
    Path(run.dir, "a.txt").symlink_to(here / "a.txt")
    run.save("a.txt")
    assert not Path(run.dir, "a.txt").is_symlink()
    assert Path(run.dir, "a.txt").read_text() == "a.txt"


def test_files_that_get_the_same_name(begin, here):
    """The second one replaces the first one, as in the peer, which is said."""
    warned = []
    run = begin(warn=warned.append)
    for folder in ("one", "two"):
        (here / folder / "x").mkdir(parents=True)
        write(here / folder / "x" / "m.pt", folder)
        run.save(here / folder / "x" / "m.pt")
    assert Path(run.dir, "x", "m.pt").read_text() == "two"
    (line,) = warned
    assert line.startswith(f"save: x/m.pt is a copy of {here}/two/x/m.pt from now on")


def test_one_record_job_for_many_files(begin, here):
    """Level `disk` waits once for all of them."""
    waits = []
    run = begin(durability="disk")
    settle = run._pump.settle
    run._pump.settle = lambda **options: waits.append(options) or settle(**options)
    run._note = lambda *_features: None
    run.save("d/*.bin")
    assert len(waits) == 1
    assert recorded(run) == [("d/x.bin", 2), ("d/y.bin", 2)]


def test_a_name_in_the_run_that_is_no_unicode(begin, here):
    """No record can hold it: it is named and left out, whichever way it is found."""
    warned = []
    run = begin(warn=warned.append)
    Path(run.dir).mkdir(exist_ok=True)
    own = Path(run.dir, os.fsdecode(b"bad\xff.txt"))
    own.touch()
    assert run.save(own, base_path=run.dir) == run.save("bad*") == []
    assert "no record can hold its name" in warned[0]
    assert recorded(run) == []


def test_threads_that_save_at_once_share_what_is_watched(begin, here, monkeypatch):
    """The first call of two threads makes what looks after files once, or one of them would be looked after by nobody."""
    both = threading.Barrier(2)
    run = begin()
    for kind in (RunFiles, SavedFiles):
        made = kind.__init__

        def slowly(self, *args, made=made, **options):
            made(self, *args, **options)
            both.wait(10)

        monkeypatch.setattr(kind, "__init__", slowly)
    threads = [threading.Thread(target=run.save, args=(name,)) for name in ("a.txt", "d/x.bin")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(run._saved._saved) == {"a.txt", "d/x.bin"}
    assert run._saved._files is run._files
    assert [thread.name for thread in threading.enumerate()].count("runferry-saver") == 1


def test_a_copy_that_stays_needs_no_thread(begin, here):
    """Nobody looks after files that were saved as they are."""
    run = begin()
    run.save("a.txt", policy="now")
    assert run._saved._thread is None
    run.save("a.txt", policy="end")
    assert run._saved._thread is not None


def test_ignored_files_are_not_saved(begin, here):
    """By patterns of their paths in the run."""
    run = begin(ignore_globs=("*.bin",))
    assert run.save("a.txt")
    assert run.save("d/*.bin") == []
    assert recorded(run) == [("a.txt", 2)]


def test_what_is_no_file_is_named(begin, here):
    """Folders, pipes and broken links; the files beside them are saved."""
    os.mkfifo("d/pipe")
    Path("d/broken").symlink_to("nowhere")
    Path("d/linked").symlink_to("x.bin")
    warned = []
    run = begin(warn=warned.append)
    saved = run.save("d/[!y]*")
    assert [Path(path).name for path in saved] == ["linked", "x.bin"]
    assert not Path(saved[0]).is_symlink()
    (line,) = warned
    assert line.startswith("not saved: ")
    assert line.endswith(" and 2 more")


def test_strict_raises(begin, here):
    """What cannot be saved is an error then."""
    with pytest.raises(UnloggableError, match="it is a folder"):
        begin(strict=True).save("d")


def test_a_wrong_policy(begin):
    """As in the peer."""
    with pytest.raises(ValueError, match="live"):
        begin().save("a.txt", policy="sometimes")


def test_a_finished_or_disabled_run_saves_nothing(begin, here):
    """And raises nothing; the finished one says it once."""
    warned = []
    run = begin(warn=warned.append)
    run.finish()
    warned.clear()
    assert run.save("a.txt") == run.save("a.txt") == begin(mode="disabled").save("a.txt") == []
    assert len(warned) == 1


# -- looking after them ----------------------------------------------------------------------------------------------


class Saving:
    """Saved files without a thread; copies are counted."""

    def __init__(self, files, monkeypatch, **options):
        self.warned = []
        self.recorded = []
        self.saved = SavedFiles(files, self.warned.append, lambda *told: self.recorded.append(told), **options)
        monkeypatch.setattr(self.saved, "_start", lambda: None)
        self.copies = 0
        stage = files.stage

        def counted(source):
            self.copies += 1
            return stage(source)

        monkeypatch.setattr(files, "stage", counted)

    def save(self, path, policy):
        return self.saved.save(Selection({path: Path(path).absolute()}, []), policy)


@pytest.fixture
def saving(files, monkeypatch):
    """See `Saving`."""
    return Saving(files, monkeypatch)


def test_only_what_changed_is_copied_again(here, files, saving):
    """Live files at each look, those for the end at the last one, and the same state never twice."""
    saving.save("a.txt", "live")
    saving.save("a.txt", "live")
    saving.save("d/x.bin", "end")
    saving.saved.refresh()
    assert saving.copies == 2
    write(here / "a.txt", "two", LONG_AGO + 1)
    write(here / "d" / "x.bin", "two", LONG_AGO + 1)
    saving.saved.refresh()
    assert saving.copies == 3
    assert ((files.files / "a.txt").read_text(), (files.files / "d" / "x.bin").read_text()) == ("two", "d/x.bin")
    saving.saved.refresh(final=True)
    assert saving.copies == 4
    assert (files.files / "d" / "x.bin").read_text() == "two"


def test_a_file_of_the_same_size_and_time(here, files, saving, monkeypatch):
    """One that changed just before it was copied may change again within the clock's tick: it is looked at again."""
    now = (here / "a.txt").stat().st_mtime_ns
    monkeypatch.setattr(savedfiles.time, "time_ns", lambda: now + 1000)
    saving.save("a.txt", "live")
    write(here / "a.txt", "A.TXT")
    saving.saved.refresh()
    assert (files.files / "a.txt").read_text() == "A.TXT"


def test_a_file_that_went_away_stays_as_it_was(here, files, saving):
    """Its last state is what the run has; nothing is said."""
    saving.save("a.txt", "live")
    Path("a.txt").unlink()
    saving.saved.refresh(final=True)
    assert (files.files / "a.txt").read_text() == "a.txt"
    assert not saving.warned


def test_a_full_disk_is_named_once(here, files, saving, monkeypatch):
    """All files in one line. The state before stays, whole; with room again the files are copied."""
    saving.save("a.txt", "live")
    saving.save("d/y.bin", "live")
    for name in ("a.txt", "d/y.bin"):
        write(here / name, "two", LONG_AGO + 1)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files._fs, "write", full)
        saving.saved.refresh()
        saving.saved.refresh()
        _, failures = saving.save("d/x.bin", "now")
    assert len(saving.warned) == 1
    assert saving.warned[0].endswith(f"{os.strerror(errno.ENOSPC)} and 1 more; an earlier state stays")
    assert failures == [f"{here / 'd' / 'x.bin'}: {os.strerror(errno.ENOSPC)}"]
    assert [path.name for path in files.directory.rglob("*") if path.is_file()] == ["a.txt", "y.bin"]
    assert (files.files / "a.txt").read_text() == "a.txt"
    saving.saved.refresh()
    assert (files.files / "a.txt").read_text() == "two"


def test_what_failed_at_first_is_tried_again(here, files, saving, monkeypatch):
    """A live file of a disk that was full is copied when there is room, and recorded then; a folder never is."""

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files._fs, "write", full)
        paths, failures = saving.save("a.txt", "live")
        saving.saved.refresh()
    assert (paths, len(failures)) == ([], 1)
    assert saving.save("d", "live")[0] == []
    saving.saved.refresh()
    saving.saved.refresh()
    assert (files.files / "a.txt").read_text() == "a.txt"
    assert saving.recorded == [(["a.txt"], "live")]
    assert not saving.warned


@pytest.mark.parametrize(("first", "second"), [("live", "now"), ("now", "live"), ("end", "live"), ("live", "end")])
def test_a_watched_file_stays_watched(here, files, saving, first, second):
    """As in the peer, a call with another policy takes none back."""
    saving.save("a.txt", first)
    saving.save("a.txt", second)
    write(here / "a.txt", "two", LONG_AGO + 1)
    saving.saved.refresh()
    assert (files.files / "a.txt").read_text() == "two"
    assert not saving.warned


def test_a_time_stamp_of_the_future(here, files, saving, monkeypatch):
    """A clock that was wrong once does not make a large file be copied at each look for ever."""
    write(here / "a.txt", "a.txt", 2**32)
    saving.save("a.txt", "live")
    saving.saved.refresh()
    assert saving.copies == 1


def test_no_thread_at_the_end_of_the_interpreter(begin, here, monkeypatch):
    """It starts none any more: the copy stays as it is, and nothing is raised."""

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    run = begin()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert run.save("a.txt") == [str(Path(run.dir, "a.txt"))]
    run.finish()


def test_a_hard_link_that_the_user_made(here, files, saving):
    """It is the file, and recorded once like any other."""
    files.files.mkdir(exist_ok=True)
    os.link(here / "a.txt", files.files / "a.txt")
    saving.save("a.txt", "live")
    saving.saved.refresh()
    assert (saving.copies, saving.recorded) == (0, [])


def test_a_hard_link_needs_no_copy(here, tmp_path, monkeypatch):
    """It is the file, until somebody puts another one in its place."""
    run = tmp_path / "linked"
    (run / "files").mkdir(parents=True)
    files = RunFiles(lambda: run, RealFileSystem(), transfer="link")
    saving = Saving(files, monkeypatch)
    saving.save("a.txt", "live")
    write(here / "a.txt", "two", LONG_AGO + 1)
    saving.saved.refresh()
    assert saving.copies == 1
    write(here / "new", "three", LONG_AGO + 2)
    Path("new").replace("a.txt")
    saving.saved.refresh()
    assert (files.files / "a.txt").read_text() == "three"


def test_a_run_that_goes_on_in_another_log(here, tmp_path, monkeypatch):
    """After a failed sync a run has another directory: what may change is copied there too, and recorded once."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        (folder / "files").mkdir(parents=True)
    files = RunFiles(lambda: folders[0], RealFileSystem())
    saving = Saving(files, monkeypatch)
    saving.save("a.txt", "live")
    saving.save("d/x.bin", "now")
    saving.saved.refresh()
    assert saving.recorded == []
    del folders[0]
    saving.saved.refresh()
    saving.saved.refresh()
    assert saving.recorded == [(["a.txt"], "live")]
    assert [path.name for path in (tmp_path / "second" / "files").iterdir()] == ["a.txt"]


def test_the_end_waits_for_a_bounded_time(here, files, monkeypatch):
    """A disk that hangs while files are copied a last time costs the end what it may cost, and is named."""
    warned, hang = [], threading.Event()
    saved = SavedFiles(files, warned.append, lambda *_: None)
    saved.save(Selection({"a.txt": here / "a.txt"}, []), "end")
    write(here / "a.txt", "two", LONG_AGO + 1)

    def hanging(_source):
        hang.wait(30)
        raise OSError(errno.EIO, "gone")

    saved.save(Selection({"x.bin": here / "d" / "x.bin"}, []), "end")
    monkeypatch.setattr(files, "stage", hanging)
    saved.stop(0.05)
    hang.set()
    saved._thread.join()
    assert warned[0].endswith("stay as they were: a.txt and 1 more")


def test_a_killed_process_leaves_the_last_state(begin, here, state):
    """The copy and its record are there as soon as they are flushed, without any end."""
    run = begin()
    run.save("a.txt")
    run.flush()
    assert Path(run.dir, "a.txt").read_text() == "a.txt"
    items = list(read_records(run.log_path))
    assert [record.kind for record in items].count("files") == 1
    assert RunState().add_all(items).exit_code is None
