"""What any damage costs, held against a model: no exception, no wrong record, no needless loss, every byte accounted for."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from runferry.logformat import BLOCK_SIZE, GapReason, Record
from support.damage import SECTORS, Damage, alike, heals, islands, patches, records
from support.frames import gaps, log_of, payloads, read_all

THREE = Damage(records(3 * BLOCK_SIZE))
ROWS = Damage(records(3 * BLOCK_SIZE, seed=1, large=0))


def check_patches(damage: Damage, seed: int, count: int, alike_every: int = 20) -> None:
    """Random patches of all kinds, each with what it may cost."""
    rng = random.Random(seed)
    for number, (kind, data) in enumerate(islice(patches(rng, damage.log), count)):
        lost = damage.touched(data)
        if kind == "flip":
            at = next(at for at, byte in enumerate(data) if byte != damage.log[at])
            lost = [hit and not heals(item, at) for hit, item in zip(lost, damage.items, strict=True)]
        elif kind not in {"burst", "sector"}:
            lost = islands(lost)
        damage.check(data, lost=lost)
        if number % alike_every == 0:
            alike(data, rng)


def check_flip(damage: Damage, bit: int) -> None:
    """One bit: what its chunk proves is healed, anything else costs the record that it is in."""
    at = bit // 8
    data = bytearray(damage.log)
    data[at] ^= 1 << bit % 8
    lost = [item.offset <= at < item.end and not heals(item, at) for item in damage.items]
    found = damage.check(bytes(data), lost=lost)
    healed = [item for item in found if isinstance(item, Record) and item.healed]

    assert len(gaps(found)) == sum(lost)
    assert [item.offset <= at < item.end for item in healed] == [True] * len(healed)
    assert all(item.healed == 1 for item in healed)


def check_cut(damage: Damage, cut: int) -> None:
    """The records before the cut, and one gap to the end if the cut is none of their ends."""
    found = read_all(damage.log[:cut])
    there = payloads(found)

    assert there == damage.payloads[: sum(item.end <= cut for item in damage.items)]
    assert len(gaps(found)) <= 1
    assert all(gap.end == cut and gap.reason is GapReason.TORN_TAIL for gap in gaps(found))
    damage.tiles(damage.log[:cut], found)


def sector_damages(damage: Damage, sector: int):
    """Each sector zeroed, made 0xFF, written over another one, and swapped with another one."""
    log = damage.log
    count = -(-len(log) // sector)
    rng = random.Random(sector)
    for number in range(count):
        begin, end = number * sector, min(len(log), (number + 1) * sector)
        for fill in (b"\0", b"\xff"):
            yield "filled", log[:begin] + fill * (end - begin) + log[end:]
        for other in {(number + 1) % count, (number + BLOCK_SIZE // sector) % count, rng.randrange(count)} - {number}:
            there = log[other * sector : (other + 1) * sector]
            here = log[begin:end]
            data = bytearray(log)
            data[begin:end] = there.ljust(len(here), b"\0")[: len(here)]
            yield "doubled", bytes(data)
            if len(there) == len(here):
                data[other * sector : (other + 1) * sector] = here
                yield "swapped", bytes(data)


def check_sectors(damage: Damage, sector: int, every: int = 1) -> None:
    for number, (kind, data) in enumerate(sector_damages(damage, sector)):
        if number % every == 0:
            check_moved(damage, data, ordered=kind == "filled", lost=damage.touched(data))


def check_moved(damage: Damage, data: bytes, *, lost: list[bool], ordered: bool = False) -> None:
    """Damage that leaves good chunks in wrong places: each record at most once, wherever it is found."""
    damage.check(data, lost=islands(lost), ordered=ordered)


def check_shifts(damage: Damage, seed: int, count: int) -> None:
    """Bytes inserted, cut out, or parts moved: what lies behind them is read at its new place."""
    rng = random.Random(seed)
    log = damage.log
    for number in range(count):
        at = rng.randrange(7, len(log))
        size = rng.choice([1, 2, 3, 6, 7, 8, 100, 512, 4096, 40_000])
        if number % 2:
            data, begin, end = log[:at] + rng.choice([bytes(size), rng.randbytes(size)]) + log[at:], at, at
        else:
            end = min(len(log), at + size)
            data, begin = log[:at] + log[end:], at
        lost = [(item.offset < end and begin < item.end) or item.offset < begin < item.end for item in damage.items]
        # Where blocks are counted from shows in the next records; until then a part of one may be lost with its neighbour.
        damage.check(data, lost=islands(lost), ordered=True)
        if number % 20 == 0:
            alike(data, rng)


def check_glued(seed: int, count: int) -> None:
    """A log appended to another one, whole or torn: both are read, and what is between them is one gap."""
    rng = random.Random(seed)
    for _ in range(count):
        first = Damage(records(rng.randrange(1, 2 * BLOCK_SIZE), seed=rng.random(), large=rng.choice([0, 40_000])))
        second = Damage(records(rng.randrange(1, 2 * BLOCK_SIZE), seed=rng.random(), large=rng.choice([0, 40_000])))
        cut = rng.choice([len(first.log), rng.randrange(7, len(first.log) + 1)])
        data = first.log[:cut] + second.log
        found = read_all(data)

        assert payloads(found) == first.payloads[: sum(item.end <= cut for item in first.items)] + second.payloads
        assert len(gaps(found)) == 1
        Damage.tiles(data, found)


def test_patches_of_every_kind():
    """A sample of flips, bursts and sectors, one and several."""
    check_patches(THREE, seed=1, count=300)
    check_patches(ROWS, seed=2, count=200)


def test_flips_of_single_bits():
    """A sample of them: everywhere, and each bit of one chunk header and its neighbourhood."""
    rng = random.Random(3)
    item = THREE.items[20]
    for bit in [*rng.sample(range(7 * 8, len(THREE.log) * 8), 250), *range(item.offset * 8, item.offset * 8 + 80)]:
        check_flip(THREE, bit)


def test_truncation():
    """A sample of cuts: the first ones, all around the edges of blocks, and anywhere."""
    edges = [BLOCK_SIZE * block + near for block in (1, 2) for near in range(-16, 17)]
    for cut in [*range(64), *edges, *random.Random(4).sample(range(len(THREE.log)), 100)]:
        check_cut(THREE, cut)


def test_sectors():
    """A sample of sectors of both sizes."""
    for sector in SECTORS:
        check_sectors(ROWS, sector, every=12 if sector == 512 else 3)


def test_shifts_and_glue():
    """A sample of both."""
    check_shifts(THREE, seed=5, count=120)
    check_shifts(ROWS, seed=6, count=120)
    check_glued(seed=7, count=25)


def test_glue_at_the_edge_of_a_block():
    """The second file header before it, at it, across it, and behind it; what was torn claims more than there is."""
    second = log_of(*records(40_000, seed=2, large=0))
    for edge in (BLOCK_SIZE, 2 * BLOCK_SIZE):
        for cut in range(edge - 20, edge + 12):
            before = [item.payload for item in ROWS.items if item.end <= cut]
            assert payloads(read_all(ROWS.log[:cut] + second)) == before + payloads(read_all(second))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_truncation_offset_of_three_blocks():
    """All 98,305 cuts."""
    damage = Damage(records(3 * BLOCK_SIZE + 100, seed=8))
    for cut in range(3 * BLOCK_SIZE + 2):
        check_cut(damage, cut)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_bit_flip_of_one_block():
    """All 262,144 bits of the first block: the file header, and a record that lies across its edge."""
    damage = Damage(records(BLOCK_SIZE + 1_000, seed=9, large=0))
    for bit in range(BLOCK_SIZE * 8):
        check_flip(damage, bit)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_damages(seed):
    """25,000 each: flips, bursts and sectors, one and several."""
    check_patches(Damage(records(2 * BLOCK_SIZE + 5_000, seed=seed, large=30_000 * (seed % 2))), seed, 25_000, 100)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_sector():
    """Each of 512 bytes and of 4 KiB, with every kind of neighbour."""
    for seed in range(6):
        for sector in SECTORS:
            check_sectors(Damage(records(4 * BLOCK_SIZE, seed=seed, large=40_000 * (seed % 2))), sector)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_shifts_and_glued_logs():
    """Bytes inserted and cut out, and logs appended to others."""
    check_shifts(THREE, seed=10, count=4_000)
    check_shifts(ROWS, seed=11, count=4_000)
    check_glued(seed=12, count=2_000)
