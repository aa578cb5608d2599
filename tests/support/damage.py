"""What damage may cost: logs of every kind of record, damaged at random, and a model of what has to be left of them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

from runferry.logformat import BLOCK_SIZE, Batch, Gap, LogReader, Record, messages
from runferry.logformat.heal import MAX_MENDED
from support.frames import console, log_of, read_all, read_live

SECTORS = (512, 4096)
"""Bytes that disks write or lose at once."""


def row(num: int, rng: random.Random) -> bytes:
    """A history record as the peer writes it."""
    history = messages.HistoryRecord()
    values = {"_step": str(num), "_timestamp": f"{1.7e9 + num}", "loss": repr(rng.random()), "lr": "1e-05"}
    for at in range(rng.randrange(9)):
        values[f"metric/{at}"] = repr(rng.gauss(0, 1))
    for key, text in values.items():
        history.item.add(nested_key=key.split("/"), value_json=text)
    return messages.Record(num=num, history=history).SerializeToString()


def sample(num: int, rng: random.Random) -> bytes:
    stats = messages.StatsRecord(stats_type=0)
    for at in range(rng.randrange(1, 12)):
        stats.item.add(key=f"gpu.{at}.memory", value_json=f"{rng.random() * 100:.2f}")
    return messages.Record(num=num, stats=stats).SerializeToString()


def line(num: int, rng: random.Random) -> bytes:
    text = "".join(rng.choice("abcdefgh \n") for _ in range(rng.randrange(200)))
    return messages.Record(num=num, output_raw=messages.OutputRecord(output_type=1, line=text)).SerializeToString()


def records(size: int, seed: int = 0, *, large: int = 40_000, first: int = 1) -> list[bytes]:
    """Records of many kinds, of at least `size` bytes in all; one of `large` bytes lies across a block."""
    rng = random.Random(seed)
    found: list[bytes] = []
    total = 0
    while total < size:
        num = first + len(found)
        if large and total > size // 4:
            found.append(console(num, large))
            large = 0
        else:
            found.append(rng.choice([row, row, row, sample, line])(num, rng))
        total += len(found[-1]) + 7
    return found


class Damage:
    """A log, and what must be true of it however it was damaged."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads
        self.log = log_of(*payloads)
        self.items: list[Any] = read_all(self.log)
        assert [item.payload for item in self.items] == payloads
        self.index = {payload: at for at, payload in enumerate(payloads)}

    def touched(self, damaged: bytes) -> list[bool]:
        """Of each record, whether one of its bytes differs; for damage that leaves everything in its place."""
        log = self.log
        if len(damaged) < len(log):
            damaged = damaged + bytes(byte ^ 0xFF for byte in log[len(damaged) :])
        return [log[item.offset : item.end] != damaged[item.offset : item.end] for item in self.items]

    def check(self, damaged: bytes, *, lost: list[bool] | None, ordered: bool = True) -> list[Record | Gap]:
        """Read it, and hold the reader to its promises.

        `lost` says of each record whether it may be; None leaves that open. Not `ordered`: parts lie in other places.
        """
        found = read_all(damaged)
        self.tiles(damaged, found)
        there = [self.index.get(item.payload, -1) for item in found if isinstance(item, Record)]
        assert -1 not in there, "a wrong record"
        assert len(set(there)) == len(there), "a record twice"
        if ordered:
            assert there == sorted(there), "records out of order"
        if lost is not None:
            missing = {*range(len(self.payloads))} - {*there}
            assert all(lost[at] for at in missing), f"needlessly lost: {[at for at in missing if not lost[at]]}"
        before = 0
        counted = 0
        for item in found:
            if isinstance(item, Record):
                at = self.index[item.payload]
                if ordered and counted is not None:
                    assert counted == at - before, "a wrong count"
                before, counted = at + 1, 0
            else:
                counted = item.records_lost
        return found

    @staticmethod
    def tiles(damaged: bytes, found: list[Record | Gap]) -> None:
        """Records, gaps, the header and trailers cover the file, each byte once."""
        at = 0 if found and isinstance(found[0], Gap) and found[0].offset == 0 else min(7, len(damaged))
        for item in found:
            assert at <= item.offset <= at + 6, "a hole, or bytes given twice"
            assert item.end > item.offset
            at = item.end
        assert at <= len(damaged) <= at + 6, "bytes at the end that nobody tells of"


def islands(lost: list[bool]) -> list[bool]:
    """As `lost`, and records between two such: with damage on both sides nothing but their numbers speaks for them."""
    return [here or (at > 0 and lost[at - 1] and at + 1 < len(lost) and lost[at + 1]) for at, here in enumerate(lost)]


def live_cuts(rng: random.Random, size: int) -> list[int]:
    return [rng.randrange(size + 1) for _ in range(rng.randrange(1, 6))]


def alike(damaged: bytes, rng: random.Random) -> None:
    """Batches, and live reading in any steps, give what reading whole gives."""
    whole = read_all(damaged)
    batched: list[Any] = []
    for item in LogReader(io.BytesIO(damaged)).batches():
        batched += item.records() if isinstance(item, Batch) else [item]
    assert batched == whole
    assert read_live(damaged, live_cuts(rng, len(damaged))) == whole


def patches(rng: random.Random, log: bytes) -> Iterator[tuple[str, bytes]]:
    """Damages without end, each a name and the damaged log."""
    size = len(log)
    while True:
        data = bytearray(log)
        at = rng.randrange(7, size)
        kind = rng.choice(["flip", "burst", "sector", "sectors", "flips", "bursts"])
        if kind == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "flips":
            for _ in range(rng.randrange(2, 6)):
                data[rng.randrange(7, size)] ^= 1 << rng.randrange(8)
        elif kind in {"burst", "bursts"}:
            for _ in range(1 if kind == "burst" else rng.randrange(2, 5)):
                at = rng.randrange(7, size)
                length = min(rng.choice([1, 2, 3, 4, 8, 40, 600]), size - at)
                data[at : at + length] = rng.randbytes(length)
        else:
            for _ in range(1 if kind == "sector" else rng.randrange(2, 4)):
                sector = rng.choice(SECTORS)
                at = max(7, rng.randrange(size) // sector * sector)
                length = min(sector - at % sector, size - at)
                data[at : at + length] = rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)])
        yield kind, bytes(data)


def heals(item: Record, at: int) -> bool:
    """Whether a bit that flips at `at`, in this record, is one that the checksum of its chunk tells and proves."""
    begin = item.offset
    while True:  # its chunks
        room = BLOCK_SIZE - begin % BLOCK_SIZE
        if room < 7:
            begin += room
            room = BLOCK_SIZE
        end = min(item.end, begin + room)
        if at < end:
            return end - begin - 7 <= MAX_MENDED or at - begin < 6
        begin = end
