"""Building logs byte by byte, for tests that need damage at a known place."""

from __future__ import annotations

import io
from typing import Any

from runferry.logformat import FILE_HEADER, Framer, Gap, LogReader, Record, messages, read_records


def alert(num: int, title: str = "") -> bytes:
    """A small record, numbered."""
    return messages.Record(num=num, alert=messages.AlertRecord(title=title or f"record {num}")).SerializeToString()


def console(num: int, size: int) -> bytes:
    """A record whose payload has exactly `size` bytes."""
    for text in range(max(0, size - 16), size + 1):
        record = messages.Record(num=num, output_logger=messages.OutputLoggerRecord(line="x" * text))
        payload: bytes = record.SerializeToString()
        if len(payload) == size:
            return payload
    raise ValueError(f"no console record of {size} bytes")


def log_of(*payloads: bytes) -> bytes:
    """A log of these records."""
    out = bytearray(FILE_HEADER)
    framer = Framer()
    for payload in payloads:
        framer.append(payload, out)
    return bytes(out)


def read_all(data: bytes) -> list[Record | Gap]:
    """Batch reading."""
    return list(read_records(io.BytesIO(data)))


def read_live(data: bytes, cuts: list[int]) -> list[Record | Gap]:
    """Live reading of a file that grows to each of `cuts` and then to its full size."""
    file = io.BytesIO()
    reader = LogReader(file)
    found: list[Record | Gap] = []
    for cut in [*sorted(cuts), len(data)]:
        file.seek(0, io.SEEK_END)
        file.write(data[file.tell() : cut])
        found.extend(reader.poll())
    found.extend(reader.finish())
    return found


def payloads(found: list[Record | Gap]) -> list[bytes]:
    """The payloads of the records among `found`."""
    return [item.payload for item in found if isinstance(item, Record)]


def gaps(found: list[Record | Gap]) -> list[Any]:
    """The gaps among `found`."""
    return [item for item in found if isinstance(item, Gap)]
