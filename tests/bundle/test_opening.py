"""Bundles, packed logs, pipes and URLs as plain paths, and what stays of them."""

from __future__ import annotations

import gzip
import io
import os
import stat
import threading
from pathlib import Path

import fsspec
import pytest
import zstandard
from runferry.bundle import BundleError, opened, pack, unpack
from runferry.bundle.names import PART_PREFIX
from runferry.bundle.remote import shown
from runferry.logformat import load
from support.bundles import everything_below
from support.logs import make_log, row, set_age, simple_run


@pytest.fixture
def log(tmp_path):
    """A log that is half an hour old."""
    made = simple_run(tmp_path / "wandb", rows=5)
    set_age(made, 1800)
    return made


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    yield tmp_path / "scratch"
    assert list((tmp_path / "scratch").iterdir()) == []


PACKINGS = {
    "bundle": lambda log, out: Path(pack(log, out / "b.tar.zst").files[0]),
    "volume": lambda log, out: Path(pack(log, out / "b.tar.zst", split=64 * 1024).files[0]),
    "list of digests": lambda log, out: Path(pack(log, out / "b.tar.zst", split=64 * 1024).files[-1]),
    "name of volumes": lambda log, out: Path(
        pack(log, out / "b.tar.zst", split=64 * 1024).files[-1].removesuffix(".sha256")
    ),
    "gzip": lambda log, out: written(out / f"{log.name}.gz", gzip.compress(log.read_bytes()), log),
    "zstd": lambda log, out: written(out / f"{log.name}.zst", zstandard.compress(log.read_bytes()), log),
    "zstd of no name": lambda log, out: written(out / "download", zstandard.compress(log.read_bytes()), log),
}


def written(path, data, like):
    path.write_bytes(data)
    os.utime(path, (like.stat().st_mtime, like.stat().st_mtime))
    return path


STREAMS = sorted(PACKINGS.keys() - {"list of digests", "name of volumes"})


@pytest.mark.parametrize(
    ("kind", "piped"), [*((kind, False) for kind in sorted(PACKINGS)), *((kind, True) for kind in STREAMS)]
)
def test_what_is_packed_is_a_folder_or_a_log_for_as_long_as_it_is_used(log, tmp_path, kind, piped):
    """Private, with the log's bytes, name and time; gone in the end. Through a pipe, too, where only the time is another."""
    packed = PACKINGS[kind](log, tmp_path)
    stdin = io.BytesIO(packed.read_bytes() if piped else b"")
    with opened(["-"] if piped else [packed], stdin=stdin) as found:
        (path,) = found.paths
        (copy,) = [path] if path.is_file() else path.rglob("*.wandb")
        root = tmp_path / "scratch"
        for folder in root.iterdir():
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert copy.name == log.name
        assert copy.read_bytes() == log.read_bytes()
        assert piped or int(copy.stat().st_mtime) == int(log.stat().st_mtime)
        assert load(path).info.run_id == "a1b2c3d4"
        name = "standard input" if piped else str(packed)
        assert found.shown(copy) == (name if path.is_file() else f"{name}:{log.parent.name}/{log.name}")
        assert found.problems == []


def test_a_log_from_a_pipe_gets_the_name_of_its_run(log):
    """It need not be packed."""
    with opened("-", stdin=io.BytesIO(log.read_bytes())) as found:
        (path,) = found.paths
        assert (path.name, path.read_bytes()) == (log.name, log.read_bytes())


@pytest.mark.parametrize("kind", STREAMS)
def test_a_named_pipe_is_read_as_standard_input(log, tmp_path, kind):
    """As `<(zstdcat old.zst)` gives one, and under the name that it was given by."""
    packed = PACKINGS[kind](log, tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(packed.read_bytes()))
    writer.start()
    with opened(pipe) as found:
        assert load(found.paths[0]).row_count == 5
        assert found.shown(found.paths[0]) == str(pipe)
    writer.join()


@pytest.mark.parametrize("kind", ["bundle", "name of volumes"])
def test_a_place_in_a_bundle_is_named_behind_a_colon(log, tmp_path, kind):
    """A log, or a folder; nothing outside, and no file that has such a name is hidden by it."""
    packed = PACKINGS[kind](log, tmp_path)
    for place in (log.parent.name, f"{log.parent.name}/{log.name}"):
        with opened(f"{packed}:{place}") as found:
            assert load(found.paths[0]).row_count == 5
            assert found.shown(found.paths[0]) == f"{packed}:{place}"
            assert found.in_words(f"{found.paths[0]}: bad") == f"{packed}:{place}: bad"
    for place in ("nothing", "..", f"../{tmp_path.name}", "/etc"):
        with pytest.raises(BundleError, match="nothing of that name in the bundle"), opened(f"{packed}:{place}"):
            pass
    plain = tmp_path / f"{packed.name}:{log.parent.name}"
    plain.mkdir()
    with opened(plain) as found:
        assert found.paths == [plain]


def test_plain_paths_stay_what_they_are(log, tmp_path):
    """Logs, folders, what is not there, and files that are something else: the command itself says what is wrong."""
    (tmp_path / "text").write_text("no log")
    paths = [log, log.parent, tmp_path / "nothing", tmp_path / "text"]
    with opened(paths) as found:
        assert found.paths == paths
        assert found.sources == {}
        assert found.shown(log) == str(log)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (zstandard.compress(b"text, and nothing of a log" * 9), "text"),
        (gzip.compress(b"\x89PNG and so on"), "image"),
        (zstandard.compress(bytes(257) + b"ustar" + bytes(300)), "tar archive"),
    ],
)
def test_packed_things_that_are_no_logs_are_told(tmp_path, data, word):
    """Here, since nobody else sees what was in them."""
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BundleError, match=word), opened(tmp_path / "x"):
        pass


def test_a_log_that_grows_without_end_is_not_unpacked(log, tmp_path, monkeypatch):
    """A kilobyte of zstd may be a terabyte of zeros."""
    monkeypatch.setattr("runferry.bundle.opening.SMALL", 1 << 20)
    (tmp_path / "bomb.zst").write_bytes(zstandard.compress(log.read_bytes() + bytes(1 << 26)))
    with pytest.raises(BundleError, match="refused: unpacked it takes more than"), opened(tmp_path / "bomb.zst"):
        pass


def test_a_packed_log_that_breaks_off_gives_what_came(log, tmp_path):
    """And says so."""
    data = gzip.compress(log.read_bytes())
    (tmp_path / "cut.gz").write_bytes(data[: len(data) * 3 // 4])
    with opened(tmp_path / "cut.gz") as found:
        assert log.read_bytes().startswith(found.paths[0].read_bytes())
        assert len(found.problems) == 1


def test_a_damaged_bundle_gives_what_is_whole(log, tmp_path):
    """With its problems, each beginning with the name of the bundle."""
    (log.parent / "files" / "noise").write_bytes(os.urandom(2_000_000))
    packed = Path(pack(log, tmp_path / "b.tar.zst").files[0])
    data = bytearray(packed.read_bytes())
    data[600_000] ^= 1
    packed.write_bytes(data)
    with opened(packed) as found:
        assert [path.name for path in found.paths[0].rglob("*.wandb")] == [log.name]
        assert all(problem.startswith(f"{packed}: ") for problem in found.problems)
        assert any("damaged" in problem for problem in found.problems)


def test_half_a_bundle_stops_no_other(log, tmp_path):
    """A folder to which bundles are still copied: what cannot be read is a problem, named once, and the rest is there."""
    good = pack(log, tmp_path / "good.tar.zst").files[0]
    half = written(tmp_path / "half.tar.zst", Path(good).read_bytes()[:40], log)
    page = written(tmp_path / "page.gz", gzip.compress(b"<!DOCTYPE html><title>Login</title>"), log)
    with opened([half, good, page, log]) as found:
        assert [load(path).row_count for path in found.paths] == [5, 5]
        first, second = found.problems
        assert first == f"{half}: not a bundle, or nothing of it can be read"
        assert second.startswith(f"{page}: a web page")
    with pytest.raises(BundleError) as refused, opened([half, page]):
        pass
    assert str(half) in str(refused.value)
    assert str(page) in str(refused.value)


# -- what lasts ------------------------------------------------------------------------------------------------------


def test_side_files_last_and_data_do_not(log, tmp_path):
    """What a sync leaves beside the log is there the next time, for a copy of the bundle of whatever name, too."""
    packed = Path(pack(log, tmp_path / "b.tar.zst").files[0])
    state = tmp_path / "state"
    with opened(packed, lasting=state) as found:
        (copy,) = found.paths[0].rglob("*.wandb")
        copy.with_name(copy.name + ".cursor").write_bytes(b"cursor")
    left = everything_below(state)
    packed = packed.rename(tmp_path / "copy.tar.zst")
    with opened(packed, lasting=state) as found:
        (again,) = found.paths[0].rglob("*.wandb")
        assert again == copy
        assert again.with_name(again.name + ".cursor").read_bytes() == b"cursor"
        assert int(again.stat().st_mtime) == int(log.stat().st_mtime)

    assert [Path(name).name for name in sorted(left)] == [".lock", log.name + ".cursor"]
    assert everything_below(state) == left


@pytest.mark.parametrize("kind", sorted(PACKINGS))
def test_nothing_lasts_where_nothing_was_left(log, tmp_path, kind):
    """No folder stays of what was only looked at."""
    with opened(PACKINGS[kind](log, tmp_path), lasting=tmp_path / "state") as found:
        assert load(found.paths[0]).row_count == 5

    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize("kind", ["bundle", "gzip"])
def test_what_was_left_by_a_kill_is_used_and_swept(log, tmp_path, kind):
    """Half a file of it too."""
    packed, state = PACKINGS[kind](log, tmp_path), tmp_path / "state"
    with opened(packed, lasting=state) as found:
        (copy,) = [found.paths[0]] if found.paths[0].is_file() else found.paths[0].rglob("*.wandb")
        half = copy.read_bytes()[:100]
    copy.parent.mkdir(parents=True)
    copy.write_bytes(half)
    copy.with_name(f"{PART_PREFIX}0123").write_bytes(half)
    with opened(packed, lasting=state):
        assert copy.read_bytes() == log.read_bytes()

    assert list(state.iterdir()) == []


def test_two_that_use_one_bundle_share_its_folder(log, tmp_path):
    """Who ends first takes nothing from the other."""
    packed, state = Path(pack(log, tmp_path / "b.tar.zst").files[0]), tmp_path / "state"
    with opened(packed, lasting=state) as first:
        (copy,) = first.paths[0].rglob("*.wandb")
        with opened(packed, lasting=state) as second:
            assert second.paths == first.paths
        assert copy.read_bytes() == log.read_bytes()

    assert list(state.iterdir()) == []


def test_many_that_come_and_go_never_miss_anything(log, tmp_path):
    """Eight threads open the same bundle again and again."""
    packed, state = Path(pack(log, tmp_path / "b.tar.zst").files[0]), tmp_path / "state"
    wrong = []

    def use():
        for _ in range(15):
            with opened(packed, lasting=state) as found:
                copies = list(found.paths[0].rglob("*.wandb"))
                if len(copies) != 1 or copies[0].read_bytes() != log.read_bytes():
                    wrong.append(copies)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_without_a_place_for_state_it_is_opened_all_the_same(log, tmp_path):
    """Only that nothing is remembered."""
    packed = pack(log, tmp_path / "b.tar.zst").files[0]
    (tmp_path / "file").write_bytes(b"")
    with opened(packed, lasting=tmp_path / "file" / "state") as found:
        assert load(found.paths[0]).row_count == 5


# -- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    """An empty place at memory://."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.mark.parametrize("split", [0, 64 * 1024])
def test_a_bundle_is_packed_to_a_url_and_opened_there(log, tmp_path, memory, split):
    """The bytes are those of one packed here; volumes with their list of digests."""
    (log.parent / "files" / "noise").write_bytes(os.urandom(150_000))
    made = pack(log, "memory://bucket/run.tar.zst", split=split)
    (tmp_path / "here").mkdir()
    pack(log, tmp_path / "here" / "run.tar.zst", split=split)
    here = everything_below(tmp_path / "here")
    first = made.files[0]
    with opened(first) as found:
        assert load(found.paths[0]).row_count == 5
        (copy,) = found.paths[0].rglob("*.wandb")
        assert found.shown(copy) == f"{first}:{log.parent.name}/{log.name}"
        assert found.problems == []
    with pytest.raises(BundleError, match="there already"):
        pack(log, "memory://bucket/run.tar.zst", split=split)
    pack(log, "memory://bucket/run.tar.zst", split=split, overwrite=True)

    assert {path.rpartition("/")[2]: memory.cat_file(path) for path in memory.find("/bucket")} == here
    assert len(made.files) == (4 if split else 1)


def test_a_log_or_a_folder_of_runs_is_read_from_a_url(log, memory):
    """A log as it is or packed, and a tree with all its files."""
    memory.pipe_file("/b/wandb/run-x/run-x.wandb", log.read_bytes())
    memory.pipe_file("/b/wandb/run-x/files/f", b"f")
    memory.pipe_file("/b/log.gz", gzip.compress(log.read_bytes()))
    for url in ("memory://b/wandb/run-x/run-x.wandb", "memory://b/wandb", "memory://b/log.gz"):
        with opened(url) as found:
            assert load(found.paths[0]).row_count == 5
    with opened("memory://b/wandb") as found:
        assert everything_below(found.paths[0])["run-x/files/f"] == b"f"


@pytest.mark.parametrize("name", ["/b/wandb/../../owned", "/b/wandb/x/../../../owned"])
def test_names_at_a_url_lead_nowhere_else(memory, name):
    """They are keys that anybody may have chosen."""
    memory.store[name] = memory.open("/tmp-x", "wb")
    memory.store["/b/wandb/run-x.wandb"] = memory.store[name]
    with pytest.raises(BundleError), opened("memory://b/wandb"):
        pass


def test_what_cannot_be_reached_is_a_word(memory):
    """Nothing there, an unknown scheme; secrets in the URL are not repeated."""
    for url, word in (("memory://b/nothing", "nothing is there"), ("nosuch://x/y", "nosuch")):
        with pytest.raises(BundleError, match=word), opened(url):
            pass
    with pytest.raises(BundleError) as caught, opened("nosuch://me:secret@host/y?token=secret"):
        pass

    assert "secret" not in str(caught.value)
    assert shown("s3://key:secret@bucket/path?sig=secret") == "s3://bucket/path"


@pytest.mark.parametrize("error", [ConnectionRefusedError("me:secret@host"), ValueError("no port: 'secret'")])
def test_a_host_that_does_not_answer_is_named(monkeypatch, error):
    """With the kind of the error alone: its text may repeat what is secret."""

    def failing(_):
        raise error

    monkeypatch.setattr("fsspec.core.url_to_fs", failing)
    with pytest.raises(BundleError) as caught, opened("ftp://me:secret@host/y"):
        pass

    assert str(caught.value).startswith("ftp://host/y: ")
    assert "secret" not in str(caught.value)


def test_without_fsspec_a_url_says_what_to_install(log, monkeypatch):
    """And nothing else asks for it."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(BundleError, match="remote"), opened("s3://bucket/x"):
        pass
    with opened(log) as found:
        assert found.paths == [log]


def test_a_grown_run_is_another_bundle(log, tmp_path):
    """Each content has a folder of its own, and unpacking the later one over the earlier works."""
    state = tmp_path / "state"
    folders = []
    for name in ("one", "two"):
        packed = pack(log, tmp_path / f"{name}.tar.zst").files[0]
        with opened(packed, lasting=state) as found:
            folders.append(found.paths[0])
        assert unpack(packed, tmp_path / "out").exit_code == 0
        make_log(log, row(9, num=90), append=True)

    assert folders[0] != folders[1]
