"""Mutate small logs without end, and hold the reader to its promises: a run that ends has found nothing.

fuzz_reader.py [--executions 1000000] [--seed 0]

Same seed, same logs. A finding is printed with the bytes that show it, as is what was executed by then.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from pathlib import Path

from runferry.logformat import BLOCK_SIZE, FILE_HEADER, Batch, Framer, Gap, LogReader, Record, messages

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.damage import line, row, sample

_SIZES = (0, 1, 5, 6, 7, 8, 100)  # bytes left in the block in which a log begins to be interesting


def corpus(rng: random.Random) -> list[tuple[bytes, int, set[bytes]]]:
    """Small logs of all kinds of records: their bytes, where reading them starts, and their records.

    Half of them begin shortly before the edge of a block, so that small records lie across it.
    """
    found = []
    for number in range(40):
        start = len(FILE_HEADER) if number % 2 else BLOCK_SIZE - rng.choice(_SIZES) - rng.randrange(120)
        payloads, out, framer = [], bytearray(), Framer(start)
        for num in range(1, rng.randrange(3, 9)):
            kind = rng.choice([row, sample, line, None])
            if kind is not None:
                payloads.append(kind(num, rng))
            else:
                payloads.append(messages.Record(num=num, exit=messages.RunExitRecord(exit_code=1)).SerializeToString())
            framer.append(payloads[-1], out)
        head = FILE_HEADER if start == len(FILE_HEADER) else b""
        found.append((head + bytes(out), 0 if head else start, set(payloads)))
    return found


class At(io.BytesIO):
    """Bytes that lie at an offset of a file that is otherwise empty, without the memory for it."""

    def __init__(self, data: bytes, begin: int) -> None:
        super().__init__(data)
        self._begin = begin

    def seek(self, offset: int, whence: int = 0) -> int:
        """As that of the file."""
        return super().seek(offset - (0 if whence else self._begin), whence) + self._begin


def mutate(data: bytes, others: list[tuple[bytes, int, set[bytes]]], rng: random.Random) -> bytes:
    """One to three of the things that happen to bytes, and some that only an enemy does."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(found) + 1)
        size = rng.choice([1, 1, 2, 4, 7, 16, 60])
        what = rng.randrange(8)
        if what == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            found[at : at + size] = rng.randbytes(min(size, len(found) - at))
        elif what == 2:
            found[at : at + size] = rng.choice([b"\0", b"\xff", b"\1"]) * min(size, len(found) - at)
        elif what == 3:
            del found[at : at + size]
        elif what == 4:
            found[at:at] = rng.randbytes(size)
        elif what == 5:
            del found[at:]
        elif what == 6:
            other = rng.choice(others)[0]
            begin = rng.randrange(len(other))
            found[at:at] = other[begin : begin + rng.choice([7, 20, 200])]
        else:
            begin = rng.randrange(len(found) + 1)
            found[at : at + size] = found[begin : begin + size]
    return bytes(found)


def check(data: bytes, start: int, known: set[bytes]) -> str:
    """What is wrong with reading these bytes; empty if nothing is."""
    at = start
    try:
        for item in LogReader(At(data, start), start=start).batches():
            for part in item.records() if isinstance(item, Batch) else [item]:
                begins = (
                    0 if isinstance(part, Gap) and part.offset == 0 and start == 0 else max(at, 7 if not start else 0)
                )
                if not begins <= part.offset <= begins + 6:
                    return f"{part} does not begin at {begins}"
                if isinstance(part, Record) and part.payload not in known:
                    return f"{part} is no record that was written"
                at = part.end
    except Exception as error:  # any is a finding
        return f"{type(error).__name__}: {error}"
    end = start + len(data)
    at = max(at, min(7, end)) if not start else at
    return "" if at <= end <= at + 6 else f"what lies from {at} to {end} is not told"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    began, done, findings = time.monotonic(), 0, 0
    while done < options.executions and time.monotonic() - began < options.seconds and findings < 10:
        logs = corpus(rng)
        known = set().union(*(payloads for _, _, payloads in logs))
        for _ in range(10_000):
            log, start, _ = rng.choice(logs)
            data = mutate(log, logs, rng)
            problem = check(data, start, known)
            if problem:
                findings += 1
                print(f"{problem}\n  start {start}, bytes {data.hex()}")
        done += 10_000
    took = time.monotonic() - began
    print(
        f"{done:,} executions from seed {options.seed} in {took:.0f} s ({took / done * 1e6:.0f} us each), {findings} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
