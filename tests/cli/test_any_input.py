"""Whatever stands in a file, commands that read logs say something of it and end: no traceback, no control characters."""

from __future__ import annotations

import io
import random

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import Record, read_records
from support import logs
from support.damage import records
from support.frames import log_of

COMMANDS = [
    ["show"],
    ["show", "--json"],
    ["show", "--keys"],
    ["show", "--steps", ":", "--json"],
    ["show", "--metric", "*"],
    ["show", "--summary"],
    ["show", "--follow", "--stale-after", "0"],
    ["show", "--tail", "3"],
    ["verify"],
    ["verify", "--json"],
    ["grep", "a"],
    ["grep", ".*", "-C", "2", "--json", "--with", "loss"],
    ["repair", "--all", "--force", "--run-id", "zz", "--json", "-o"],
]


def spoilt(data: bytearray, rng: random.Random) -> bytearray:
    """Bits and bytes of it, parts cut out or put in, and messages that are none under a good checksum."""
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        kind = rng.choice(["bit", "bytes", "zeros", "cut", "insert", "message", "end"])
        if kind == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "bytes":
            data[at : at + 20] = rng.randbytes(20)
        elif kind == "zeros":
            data[at : at + 600] = bytes(600)
        elif kind == "cut":
            del data[at : at + rng.randrange(1, 300)]
        elif kind == "insert":
            data[at:at] = rng.randbytes(9)
        elif kind == "end":
            del data[max(at, 1) :]
        else:
            found = [bytearray(item.payload) for item in read_records(io.BytesIO(data)) if isinstance(item, Record)]
            for payload in rng.sample(found, min(3, len(found))):
                if payload:
                    payload[rng.randrange(len(payload))] = rng.randrange(256)
            data = bytearray(log_of(*map(bytes, found)))
    return data


@pytest.mark.parametrize("seed", range(8))
def test_any_input(tmp_path, monkeypatch, seed):
    """Exit codes are 0, 1 or 2, and nothing that stands in the file reaches the terminal as a command."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    evil = [logs.output("\x1b[2J\x07\n"), logs.row(30, {"\x1b[2J": "\x1b]0;x\x07"})]
    whole = [logs.make_log(tmp_path / "w.wandb", *logs.simple_records(rows=20, exit_code=None), *evil).read_bytes()]
    whole.append(log_of(*records(40_000, 1)))
    log = tmp_path / "run-f.wandb"
    for number in range(3):
        log.write_bytes(spoilt(bytearray(rng.choice(whole)), rng))
        for command in COMMANDS:
            more = [f"out{number}"] if command[-1] == "-o" else []
            done = CliRunner().invoke(group, [*command, *more, str(log)], catch_exceptions=False)

            assert done.exit_code in {0, 1, 2}
            assert "Traceback" not in done.output
            assert "\x1b" not in done.output
            assert "\x07" not in done.output
