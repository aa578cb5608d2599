"""The `.wandb` transaction log: framing, schema, reading, run directories, and the fold into a run's state.

A log is seven bytes of header and then records, each a serialized message, cut into chunks so that no chunk crosses
the edge of a 32,768-byte block. Damage thus ends at the next block at the latest.

    file   = header block*
    header = 3a 57 26 42  e1 be  00                 `:W&B`, magic 0xBEE1, version 0; lies inside block 0
    block  = chunk* trailer                         32,768 bytes counted from the start of the file
    chunk  = crc32 u32 | length u16 | type u8 | payload[length]             little-endian
    type   = 1 FULL, 2 FIRST, 3 MIDDLE, 4 LAST
    record = FULL | FIRST MIDDLE* LAST              payloads joined are one `Record` message

The checksum is CRC-32 (ISO-HDLC, zlib's, not Castagnoli, not masked) over the type byte followed by the payload. When
fewer than 7 bytes are left in a block they are zero (the trailer, which no reader inspects). With exactly 7 left, a
FIRST chunk of length 0 fills them.

A worked example, one record `alert{title: "hi"}`:

    00  3a 57 26 42 e1 be 00                        header
    07  af d7 ae 7a  06 00  01                      crc, length 6, FULL
    0e  52 04 0a 02 68 69                           field 10 (alert), 4 bytes: field 1 "hi"

A record that is one byte too long for block 0 (payload 32,755 bytes):

    00007  36 b4 39 5c  f2 7f  02  ...              FIRST, 32,754 bytes: to the edge of the block
    08000  f5 2e 6b 7b  01 00  04  78               LAST, 1 byte

The same in prose, with what each reader does about damage: docs/format.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER, MAX_RECORD_SIZE, ChunkType
from .framing import Framer, framed_size

if TYPE_CHECKING:
    from .chunks import Chunk, walk_chunks
    from .columns import Column, Rows
    from .heal import Healed
    from .history import decode_history
    from .reader import LogReader, open_reader, read_records
    from .reader import read_records as read
    from .record import Batch, Gap, GapReason, Record
    from .rundir import RunDirName, find_logs, latest_run, log_name, run_id_of, valid_run_id
    from .runstate import RunState
    from .samples import Sample, Samples
    from .segments import head_of, in_order, load, siblings
    from .sources import open_log
    from .values import loads, loads_all
    from .wire import WireError

# A writer frames and never reads: what reading needs is loaded by the first who asks for it.
_WHERE = {
    "Batch": "record",
    "Column": "columns",
    "Chunk": "chunks",
    "Gap": "record",
    "GapReason": "record",
    "Healed": "heal",
    "LogReader": "reader",
    "Record": "record",
    "RunDirName": "rundir",
    "Rows": "columns",
    "RunState": "runstate",
    "Sample": "samples",
    "Samples": "samples",
    "WireError": "wire",
    "decode_history": "history",
    "find_logs": "rundir",
    "latest_run": "rundir",
    "head_of": "segments",
    "in_order": "segments",
    "load": "segments",
    "loads": "values",
    "loads_all": "values",
    "log_name": "rundir",
    "open_log": "sources",
    "open_reader": "reader",
    "read": "reader",
    "read_records": "reader",
    "run_id_of": "rundir",
    "siblings": "segments",
    "valid_run_id": "rundir",
    "walk_chunks": "chunks",
}

__all__ = [
    "BLOCK_SIZE",
    "CHUNK_HEADER_SIZE",
    "FILE_HEADER",
    "MAX_RECORD_SIZE",
    "Batch",
    "Chunk",
    "ChunkType",
    "Column",
    "Framer",
    "Gap",
    "GapReason",
    "Healed",
    "LogReader",
    "Record",
    "Rows",
    "RunDirName",
    "RunState",
    "Sample",
    "Samples",
    "WireError",
    "decode_history",
    "find_logs",
    "framed_size",
    "head_of",
    "in_order",
    "latest_run",
    "load",
    "loads",
    "loads_all",
    "log_name",
    "open_log",
    "open_reader",
    "read",
    "read_records",
    "run_id_of",
    "siblings",
    "valid_run_id",
    "walk_chunks",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
