"""Bundles that are damaged: what is whole is unpacked, the rest named, and nothing is ever what it was not."""

from __future__ import annotations

import random
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from runferry.bundle import Bundle, BundleError, Fate, pack, unpack, verify
from runferry.bundle.blocks import BLOCK_SIZE
from runferry.bundle.reading import bundle_in
from runferry.logformat import Gap, Record, read_records
from support import bundlefuzz
from support.bundles import everything_below, in_blocks, member, put
from support.logs import make_log, row, simple_run


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A bundle of a few files, its bytes and what is in it."""
    folder = tmp_path_factory.mktemp("small")
    log = simple_run(folder / "wandb", rows=4)
    (log.parent / "files" / "a.txt").write_bytes(b"first")
    (log.parent / "files" / ("long-" * 30)).write_bytes(b"pax" * 100)
    pack(log, folder / "b.tar.zst")
    return (folder / "b.tar.zst").read_bytes(), everything_below(folder / "wandb")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One of several blocks: a log of 1.5 MB, noise before it, a file behind it."""
    folder = tmp_path_factory.mktemp("large")
    log = simple_run(folder / "wandb", rows=4, exit_code=None)
    chance = random.Random(3)
    records = [row(step, {"text": chance.randbytes(2000).hex()}, num=50 + step) for step in range(4, 400)]
    make_log(log, *records, append=True)
    (log.parent / "files" / "noise").write_bytes(chance.randbytes(BLOCK_SIZE + 5000))
    (log.parent / "files" / "small").write_bytes(b"small")
    (log.parent / "zz-behind").write_bytes(b"behind")
    pack(log, folder / "b.tar.zst")
    return (folder / "b.tar.zst").read_bytes(), everything_below(folder / "wandb")


def third_block(data):
    """An offset in the middle of the third block: the log begins before it."""
    label = bundle_in(data).blocks[2]
    return label.at + label.label.frame // 2


def judged(data, held):
    """Names that count as whole; each has the bytes that were packed, or the bundle is refused."""
    try:
        found = bundle_in(data)
    except BundleError:
        return None
    done = verify(found)
    whole = {file.name for file in done.files if file.fate is Fate.KEPT}
    assert whole <= held.keys()
    for held_one in found.members():
        if held_one.name in whole:
            assert b"".join(piece for _, piece in found.pieces(held_one.at, held_one.size)) == held[held_one.name]
    return done


def test_every_truncation_is_told(small):
    """Whatever is left: no other error, no file with other bytes, never a verdict that all is there."""
    data, held = small
    for size in range(len(data)):
        done = judged(data[:size], held)
        assert done is None or done.exit_code == 1


def test_every_bit_that_flips_is_told(small):
    """The same for each bit of it."""
    data, held = small
    for at in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[at] ^= 1 << bit
            done = judged(bytes(wrong), held)
            assert done is None or done.exit_code == 1


def test_a_damaged_block_costs_what_is_in_it(large, tmp_path):
    """Files before and behind it are unpacked; a log has its other records, and a gap where the block was."""
    data, held = large
    with Bundle.open(put(tmp_path, data)) as found:
        blocks = found.blocks
    assert len(blocks) >= 4
    for index, block in enumerate(blocks):
        wrong = bytearray(data)
        wrong[block.at + block.label.frame // 2] ^= 0xFF
        put(tmp_path, bytes(wrong))
        done = unpack(tmp_path / "b.tar.zst", tmp_path / str(index))
        there = everything_below(tmp_path / str(index))
        log = next(name for name in held if name.endswith(".wandb"))

        assert done.exit_code == 1
        assert [problem for problem in done.problems if f"bytes {block.at}-" in problem]
        assert {name: data for name, data in there.items() if name != log}.items() <= held.items()
        # What begins and ends in other blocks is there: all but what this one has a part of.
        at, spans = 0, {}
        with Bundle.open(put(tmp_path, data)) as whole:
            spans = {member.name: (member.at, member.at + member.size) for member in whole.members()}
        for name, (at, end) in spans.items():
            if end < block.label.offset or at - 1024 >= block.label.end:
                assert there[name] == held[name], (index, name)
        if log in there and there[log] != held[log]:
            assert len(there[log]) <= len(held[log])
            path = tmp_path / str(index) / log
            kept = [item.payload for item in read_records(path) if isinstance(item, Record)]
            (tmp_path / "log").write_bytes(held[log])
            true = [item.payload for item in read_records(tmp_path / "log") if isinstance(item, Record)]
            assert any(isinstance(item, Gap) for item in read_records(path)) or len(there[log]) < len(held[log])
            assert 0 < len(kept) < len(true)
            assert set(kept) <= set(true)
            assert next(file for file in done.files if file.name == log).fate is Fate.DAMAGED


def test_a_lost_label_costs_its_block(large, tmp_path):
    """The next one is found by searching."""
    data, held = large
    with Bundle.open(put(tmp_path, data)) as found:
        second = found.blocks[1]
    wrong = bytearray(data)
    wrong[second.at - 20 : second.at] = bytes(20)
    put(tmp_path, bytes(wrong))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    there = everything_below(tmp_path / "out")

    assert done.exit_code == 1
    assert there[next(name for name in held if name.endswith("zz-behind"))] == b"behind"


def test_a_transfer_that_was_cut_gives_what_had_come(large, tmp_path):
    """Without the manifest, by what stands before each file: whole files, and the log up to where it was cut."""
    data, held = large
    put(tmp_path, data[: third_block(data)])
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    there = everything_below(tmp_path / "out")
    log = next(name for name in held if name.endswith(".wandb"))

    assert done.exit_code == 1
    assert any("manifest is lost" in problem for problem in done.problems)
    assert any("ends before the end" in problem for problem in done.problems)
    assert set(there) == {name for name in held if "zz-" not in name}
    assert all(there[name] == held[name] for name in there if name != log)
    assert held[log].startswith(there[log])
    assert len(there[log]) > 100_000


def test_a_whole_bundle_mends_what_a_damaged_one_left(large, tmp_path):
    """A log that was cut is its beginning, so it is replaced; one with a hole when that is asked for."""
    data, held = large
    put(tmp_path, data[: third_block(data)])
    unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    put(tmp_path, data)

    assert unpack(tmp_path / "b.tar.zst", tmp_path / "out").exit_code == 0
    assert everything_below(tmp_path / "out") == held


def test_a_damaged_bundle_is_unpacked_twice_to_the_same(large, tmp_path):
    """What is there is as damaged as before, and that is said again."""
    data, _ = large
    wrong = bytearray(data)
    wrong[third_block(data)] ^= 1
    put(tmp_path, bytes(wrong))
    first = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    before = everything_below(tmp_path / "out")
    second = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert [file.fate for file in second.bad] == [file.fate for file in first.bad] == [Fate.DAMAGED, Fate.LOST]
    assert everything_below(tmp_path / "out") == before


@pytest.fixture
def volumes(tmp_path):
    """A run in at least five volumes."""
    log = simple_run(tmp_path / "wandb", rows=4)
    for number in range(6):
        (log.parent / "files" / f"{number}.bin").write_bytes(random.Random(number).randbytes(45_000))
    pack(log, tmp_path / "b.tar.zst", split=64 * 1024)
    return sorted(tmp_path.glob("b.tar.zst.0*"))


@pytest.mark.parametrize("cut", ["behind the log", "in the log"])
def test_a_log_that_has_grown_stays_whatever_came_of_an_older_one(tmp_path, cut):
    """A transfer that was cut has no manifest to ask: with --overwrite, too, no log is replaced by the beginning of it."""
    name = "run-a/run-a.wandb"
    data = random.Random(5).randbytes(300_000)
    archive = member(name, data)
    blocks = in_blocks(archive, 100_000, [0])
    put(tmp_path, blocks if cut == "behind the log" else blocks[:250_000])
    log = tmp_path / "out" / name
    log.parent.mkdir(parents=True)
    log.write_bytes(data + b"grown")
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True)

    assert [file.fate for file in done.files] == [Fate.LONGER]
    assert log.read_bytes() == data + b"grown"


def test_a_log_with_a_hole_replaces_none_that_is_as_long(tmp_path):
    """With --overwrite, too: what is here has more."""
    name = "run-a/run-a.wandb"
    data = random.Random(5).randbytes(300_000)
    packed = bytearray(in_blocks(member(name, data), 100_000, [0]))
    packed[150_000] ^= 1
    put(tmp_path, bytes(packed))
    log = tmp_path / "out" / name
    log.parent.mkdir(parents=True)
    log.write_bytes(data)
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True)

    assert [file.fate for file in done.files] == [Fate.DIFFERS]
    assert log.read_bytes() == data


@pytest.mark.parametrize("name", ["two\nlines", "back\\slash", "line\u2028separator", "odd\udcff"])
def test_volumes_of_any_name_are_listed(tmp_path, name):
    """`sha256sum` reads the list, and a volume that is missing is told by it."""
    log = simple_run(tmp_path / "wandb", rows=4)
    (log.parent / "files" / "noise").write_bytes(random.Random(1).randbytes(150_000))
    packed = pack(log, tmp_path / f"{name}.tar.zst", split=64 * 1024)
    checked = subprocess.run(["sha256sum", "--check", "--quiet", packed.files[-1]], cwd=tmp_path, check=False)
    Path(packed.files[-2]).unlink()
    with Bundle.open(packed.files[0]) as left:
        problems = left.problems

    assert checked.returncode == 0
    assert f"{Path(packed.files[-2]).name}: missing" in problems


@pytest.mark.parametrize("which", range(5))
def test_a_missing_volume_is_named(volumes, tmp_path, which):
    """The last one too, as long as the list of digests is there; what does not lie in it is unpacked."""
    volumes[which].unlink()
    done = unpack(tmp_path / "b.tar.zst.sha256", tmp_path / "out")

    assert done.exit_code == 1
    assert f"{volumes[which].name}: missing" in done.problems
    assert len(list((tmp_path / "out").rglob("*.bin"))) >= 3


@pytest.mark.parametrize("which", range(5))
def test_a_damaged_volume_is_named(volumes, tmp_path, which):
    """With the bytes that are damaged."""
    data = bytearray(volumes[which].read_bytes())
    data[500] ^= 1
    volumes[which].write_bytes(data)
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert {problem.partition(":")[0] for problem in done.problems if "damaged: " in problem} == {volumes[which].name}
    assert done.exit_code == 1


def test_a_bundle_is_found_by_any_of_its_files(volumes, tmp_path):
    """A volume, the list, the name without a number, or the folder that holds them alone."""
    there = tmp_path / "usb"
    there.mkdir()
    for path in (*volumes, tmp_path / "b.tar.zst.sha256"):
        path.rename(there / path.name)
    for number, name in enumerate(["b.tar.zst.003", "b.tar.zst.sha256", "b.tar.zst", "."]):
        assert unpack(there / name, tmp_path / f"out{number}").exit_code == 0
    pack(tmp_path / "wandb", there / "second.tar.zst")
    with pytest.raises(BundleError, match="2 bundles"):
        unpack(there, tmp_path / "no")
    with pytest.raises(BundleError, match="no bundle"):
        unpack(tmp_path / "wandb", tmp_path / "no")
    with pytest.raises(BundleError, match="no such file"):
        unpack(tmp_path / "nothing.tar.zst", tmp_path / "no")


def test_a_volume_of_another_bundle_is_none_of_this_one(volumes, tmp_path):
    """It is told as bytes that are no part of it."""
    simple_run(tmp_path / "other", run_id="other", rows=600)
    (tmp_path / "two").mkdir()
    pack(tmp_path / "other", tmp_path / "two" / "b.tar.zst", split=64 * 1024)
    volumes[1].write_bytes((tmp_path / "two" / "b.tar.zst.001").read_bytes())
    done = unpack(volumes[0], tmp_path / "out")

    assert any(problem.startswith(volumes[1].name) and "no part" in problem for problem in done.problems)
    assert not (tmp_path / "out" / "run-20260921_141320-other").exists()


def test_one_that_was_not_finished_says_so(tmp_path):
    """There is only a `.part`: pack again."""
    (tmp_path / "b.tar.zst.part").write_bytes(b"x")

    with pytest.raises(BundleError, match="not finished"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out")


def test_random_damage_is_survived():
    """A sample of what the driver does, with and without checksums that are forged."""
    counts = bundlefuzz.fuzz(4000, seed=10_000_000) + bundlefuzz.fuzz_bytes(2000, seed=20_000_000)

    assert min(counts["refused"], counts["damaged"], counts["kept"], counts["lost"]) > 500


@pytest.mark.slow
def test_much_random_damage_is_survived():
    """300,000 executions of the driver; the rest of the million is run by hand."""
    assert bundlefuzz.fuzz(200_000, seed=1) + bundlefuzz.fuzz_bytes(100_000, seed=1)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path):
    """300 MB of a log are packed, verified and unpacked in less than 40 MB."""
    log = simple_run(tmp_path / "wandb", rows=4, exit_code=None)
    chance = random.Random(3)
    records = [row(step, {"text": chance.randbytes(20_000).hex()}, num=50 + step) for step in range(4, 400)]
    make_log(log, *records, append=True)
    body = log.read_bytes()[32_768:]
    body = body[: len(body) // 32_768 * 32_768]  # whole blocks: what is torn between two copies of them is a gap
    with log.open("ab") as file:
        file.truncate(file.tell() // 32_768 * 32_768)
        while file.tell() < 300_000_000:
            file.write(body)
    tracemalloc.start()
    pack(log, tmp_path / "b.tar.zst", level=1)
    with Bundle.open(tmp_path / "b.tar.zst") as found:
        assert verify(found).exit_code == 0
    assert unpack(tmp_path / "b.tar.zst", tmp_path / "out").exit_code == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 40_000_000
