"""A log that is followed: what comes, in whatever pieces, and what happens to the file."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from runferry.logformat import Gap, LogReader, Record, read_records
from runferry.logformat.anatomy import AnatomyReader, shape_of
from runferry.logformat.follow import Follower, PackedError, PipeFollower
from support import logs
from support.frames import console, log_of


class Scene:
    """A file that changes whenever its follower sleeps."""

    def __init__(self, path: Path, *steps: Callable[[], object]) -> None:
        self.path = path
        self._steps = list(steps)
        self.follower = Follower(path, lives=lambda: bool(self._steps), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._steps.pop(0)()

    def watch(self) -> list[Record | Gap | str]:
        return list(self.follower.items())


def appends(path: Path, data: bytes) -> Callable[[], object]:
    def append() -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


def whole(folder: Path, **options) -> bytes:
    return logs.make_log(folder / "whole.wandb", *logs.simple_records(rows=30, **options)).read_bytes()


@pytest.mark.parametrize("size", [1000, 37, 4096])
def test_a_growing_log_gives_each_record_once(tmp_path: Path, size: int) -> None:
    """In whatever pieces it is written; the exit record is the end."""
    data = whole(tmp_path)
    log = tmp_path / "run.wandb"
    log.write_bytes(data[:3])
    pieces = [data[at : at + size] for at in range(3, len(data), size)]
    scene = Scene(
        log, *(appends(log, piece) for piece in pieces), lambda: pytest.fail("it was followed beyond its end")
    )

    assert scene.watch() == list(read_records(tmp_path / "whole.wandb"))


def test_a_log_that_falls_silent_ends_with_what_is_left(tmp_path: Path) -> None:
    """A torn tail is a gap, and what came just before the writer went is there."""
    data = whole(tmp_path, exit_code=None)
    log = tmp_path / "run.wandb"
    log.write_bytes(data[:500])
    found = Scene(log, appends(log, data[500:-5])).watch()

    assert found == list(read_records(log))
    assert isinstance(found[-1], Gap)


def test_a_file_that_shrinks_is_read_again_and_said(tmp_path: Path) -> None:
    """Below what was read; where only the beginning of a record was cut off, reading goes on behind it."""
    data = whole(tmp_path)
    log = tmp_path / "run.wandb"
    log.write_bytes(data[:900])
    first = [item for item in Scene(log).watch() if isinstance(item, Record)]
    log.write_bytes(data[:900])
    found = Scene(log, lambda: log.write_bytes(data[:300]), appends(log, data[300:])).watch()
    words = [item for item in found if isinstance(item, str)]

    assert words == [f"{log} shrank to 300 bytes, and {first[-1].end} were read: it is read again from its beginning"]
    assert [item for item in found if not isinstance(item, str)] == [*first, *read_records(tmp_path / "whole.wandb")]

    log.write_bytes(data[:900])
    found = Scene(log, lambda: log.write_bytes(data[: first[-1].end]), appends(log, data[first[-1].end :])).watch()
    assert found == list(read_records(tmp_path / "whole.wandb"))

    log.write_bytes(data[:900])
    assert Scene(log, lambda: log.write_bytes(data[: first[-1].end])).watch() == first  # of bytes that are gone no gap


def test_a_file_that_is_replaced_is_known_again_by_its_bytes(tmp_path: Path) -> None:
    """As rsync replaces it by a longer copy of itself; another log in its place is read from its beginning."""
    data = whole(tmp_path)
    log, new = tmp_path / "run.wandb", tmp_path / "new"

    def replaces(content: bytes) -> Callable[[], object]:
        def replace() -> None:
            new.write_bytes(content)
            new.replace(log)

        return replace

    log.write_bytes(data[:700])
    assert Scene(log, replaces(data[:1500]), replaces(data)).watch() == list(read_records(tmp_path / "whole.wandb"))
    other = log_of(*(console(num, 300) for num in range(1, 20)))
    log.write_bytes(data[:700])
    found = Scene(log, replaces(other)).watch()
    assert any("is another log now" in item for item in found if isinstance(item, str))
    assert [item.kind for item in found[-19:]] == ["output_logger"] * 19

    log.write_bytes(data[:700])
    found = Scene(log, log.unlink).watch()
    assert any("is gone" in item for item in found if isinstance(item, str))

    log.write_bytes(data[:700])
    follower = Follower(log, lives=lambda: True, sleep=lambda _: log.unlink())  # its writer has it open still
    assert [item for item in follower.items() if isinstance(item, str)] == [
        f"{log} is gone: there is nothing more to follow"
    ]


def test_packed_logs_do_not_grow(tmp_path: Path) -> None:
    """They are refused, from a file or through a pipe, however the pipe gives its first bytes."""
    log = tmp_path / "x.gz"
    log.write_bytes(gzip.compress(whole(tmp_path)))
    with pytest.raises(PackedError):
        Scene(log).watch()
    pieces = iter([b"\x1f", b"\x8b", b"\x08\0\0\0", b""])
    with pytest.raises(PackedError):
        list(PipeFollower(lambda _: next(pieces)).items())


@pytest.mark.parametrize("size", [1, 100, 40_000])
def test_a_pipe_gives_each_record_as_soon_as_it_is_there(tmp_path: Path, size: int) -> None:
    """And holds nothing of what was read; it ends with the pipe."""
    data = whole(tmp_path)
    given = iter([data[at : at + size] for at in range(0, len(data), size)])
    seen = itertools.count()
    follower = PipeFollower(lambda _: next(given, b"") if next(seen) >= 0 else b"")
    found = []
    for item in follower.items():
        found.append(item)
        if size < 1000:
            assert len(follower._held._data) < 400 + size
    assert found == list(read_records(tmp_path / "whole.wandb"))
    cut = iter([data[:-3]])
    assert isinstance(list(PipeFollower(lambda _: next(cut, b"")).items())[-1], Gap)


def test_damage_in_a_pipe_does_not_pile_up() -> None:
    """A megabyte of nothing but damage is not kept until a record comes."""
    given = iter([log_of(console(1, 50)), *([b"\x07" * 65_536] * 40)])
    follower = PipeFollower(lambda _: next(given, b""))
    most = 0

    class Watching(LogReader):
        def poll(self):
            nonlocal most
            yield from super().poll()
            most = max(most, len(follower._held._data))

    follower.reader.__class__ = Watching
    assert sum(isinstance(item, Gap) for item in follower.items()) >= 1
    assert most < 400_000


def test_the_shape_of_records(tmp_path: Path) -> None:
    """Whole records, those of several chunks, and those whose bits were mended."""
    data = bytearray(log_of(console(1, 100), console(2, 32_768 - 7 - 107 - 7 - 7), console(3, 50), console(4, 140_000)))
    data[60] ^= 1
    log = tmp_path / "x.wandb"
    log.write_bytes(data)
    with log.open("rb") as file:
        reader = AnatomyReader(file)
        found = [(shape_of(reader.parts_of(item)), item.healed) for item in reader.finish()]
        assert reader._noted == {}

    assert found == [("FULL", 1), ("FULL", 0), ("FIRST+LAST", 0), ("FIRST+MIDDLE*3+LAST", 0)]
