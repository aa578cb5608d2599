"""How logs are, and what their damage took, one by one and many at once."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from runferry.logformat import FILE_HEADER, load, read_records
from runferry.sync import integrity
from runferry.sync.clock import SystemClock
from runferry.sync.integrity import State, verify_log, verify_logs
from runferry.sync.liveness import Liveness
from runferry.sync.plan import read_head, survey
from support import logs

PAGE = 4096


def judge(log: Path):
    return verify_log(read_head(log), Liveness(SystemClock()))


def whole(tmp_path: Path, **options) -> tuple[Path, bytearray, list]:
    log = logs.simple_run(tmp_path, rows=8, **options)
    return log, bytearray(log.read_bytes()), list(read_records(log))


def test_states(tmp_path: Path) -> None:
    """Whole, healed, torn, damaged and unreadable, each by its own signs."""
    log, data, items = whole(tmp_path)
    assert (judge(log).state, judge(log).is_whole, judge(log).losses) == (State.WHOLE, True, ())

    flipped = bytearray(data)
    flipped[items[6].offset + 20] ^= 2
    log.write_bytes(flipped)
    found = judge(log)
    assert (found.state, found.is_whole, found.healed) == (State.HEALED, True, ((items[6].offset + 20, 1),))
    assert "1 flipped bit healed" in found.reason

    log.write_bytes(data[:-3])
    found = judge(log)
    assert (found.state, found.is_whole) == (State.TORN, False)
    assert (
        found.reason
        == f"torn: bytes {items[-1].offset}-{len(data) - 3} (torn_tail), records from {len(items)} on, steps from 8 on"
    )

    row = next(item for item in items if item.kind == "history")
    data[row.offset + 9 : row.end] = bytes(row.end - row.offset - 9)
    log.write_bytes(data)
    found = judge(log)
    assert (found.state, found.rows) == (State.DAMAGED, 7)
    assert found.losses == (
        {
            "offset": row.offset,
            "length": row.end - row.offset,
            "reason": "bad_crc",
            "records_lost": 1,
            "records": (row.num, row.num),
            "steps": (None, 0),
        },
    )

    for content in (b"<html>", FILE_HEADER):
        log.write_bytes(content)
        logs.set_age(log, 3600)
        assert judge(log).state is State.UNREADABLE
    log.unlink()
    assert (judge(log).state, judge(log).is_whole) == (State.UNREADABLE, False)


def test_a_hole_before_the_last_records_is_damage_and_no_torn_end(tmp_path: Path) -> None:
    """What stands behind it is read and counted, though its block is not complete: the log has ended."""
    log, data, items = whole(tmp_path)
    rows = [item for item in items if item.kind == "history"]
    data[rows[2].offset : rows[2].offset + 9] = bytes(8192)
    log.write_bytes(data)
    logs.set_age(log, 3600)

    found = judge(log)

    assert (found.state, found.rows) == (State.DAMAGED, len(load(log).rows))
    assert 4 < found.rows <= 8


def test_headers(tmp_path: Path) -> None:
    """Another version is read, and said; a bit is healed; and where nothing of a header is left, the records are there."""
    log, data, _ = whole(tmp_path)
    log.write_bytes(data[:6] + b"\x02" + data[7:])
    assert (judge(log).state, "version 2" in judge(log).reason, judge(log).rows) == (State.WHOLE, True, 8)
    log.write_bytes(b";" + data[1:])
    assert (judge(log).state, judge(log).healed) == (State.HEALED, ((0, 0),))
    log.write_bytes(bytes(7) + data[7:])
    assert (judge(log).state, judge(log).rows) == (State.DAMAGED, 8)


def test_the_unfinished_end_of_a_live_log_is_no_damage(tmp_path: Path) -> None:
    """Its writer is at it; once it has fallen silent, the same bytes are a torn tail."""
    log, _, _ = whole(tmp_path, exit_code=None)
    assert judge(log).reason == "no exit record"
    more = logs.make_log(tmp_path / "more.wandb", *logs.simple_records(rows=400, exit_code=None)).read_bytes()
    log.write_bytes(more[: 10 * PAGE])
    found = judge(log)
    assert (found.state, found.reason) == (State.WHOLE, "its last record is being written")
    logs.set_age(log, 3600)
    found = judge(log)
    assert (found.state, found.is_whole) == (State.TORN, False)


def test_a_log_without_its_run_record_is_damaged_if_anything_is_in_it(tmp_path: Path) -> None:
    """Nobody knows whose the rows are; by its name it is salvaged, and damaged all the same."""
    nameless = logs.make_log(tmp_path / "x.wandb", logs.row(0), logs.row(1))
    logs.set_age(nameless, 3600)
    found = judge(nameless)
    assert (found.state, found.is_whole, "no run record" in found.reason) == (State.DAMAGED, False, True)

    log, data, items = whole(tmp_path)
    run = next(item for item in items if item.kind == "run")
    data[run.offset : run.end] = bytes(run.end - run.offset)
    log.write_bytes(data)
    assert judge(log).state is State.DAMAGED


def many(tmp_path: Path) -> list:
    for number in range(12):
        log = logs.simple_run(tmp_path, run_id=f"r{number:02}", rows=number)
        if number % 3 == 1:
            os.truncate(log, log.stat().st_size - 5)
    (tmp_path / "gone.wandb").symlink_to("nowhere")
    (tmp_path / "folder.wandb").mkdir()
    os.mkfifo(tmp_path / "pipe.wandb")
    return survey([tmp_path])


def test_many_logs_by_several_processes_are_told_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as by one, those that cannot be read among them."""
    heads = many(tmp_path)
    one = list(verify_logs(heads, processes=1))
    monkeypatch.setattr(integrity, "_BATCH_LOGS", 4)
    several = list(verify_logs(heads, processes=2))

    assert several == one
    assert [found.log for found in one] == [str(head.path) for head in heads]
    assert [found.state.value for found in one].count("unreadable") == 3
    assert [found.state.value for found in one].count("torn") == 4


def test_where_processes_fail_one_does_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed for their memory, or not to be had: nothing is told twice, and nothing is left out."""
    heads = many(tmp_path)
    one = list(verify_logs(heads, processes=1))
    monkeypatch.setattr(integrity, "_BATCH_LOGS", 4)

    def broken(batches, stale_after, count):
        yield [dataclasses.replace(found) for found in one[: len(batches[0])]]
        raise BrokenProcessPool("killed")

    monkeypatch.setattr(integrity, "_aside", broken)
    assert list(verify_logs(heads, processes=2)) == one


def test_json(tmp_path: Path) -> None:
    """Plain words and numbers."""
    log, data, _ = whole(tmp_path)
    log.write_bytes(data[:-3])
    said = judge(log).as_json()

    assert (said["type"], said["state"], type(said["state"]), said["losses"][0]["reason"]) == (
        "integrity",
        "torn",
        str,
        "torn_tail",
    )


def test_processes_end_with_the_one_that_started_them() -> None:
    """However that ended: killed, it left them waiting for work for ever."""
    code = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from runferry.sync.integrity import _begin_process
pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin_process)
print(pool.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    assert int(done.stdout) > 0  # the end of its output, which they share, is theirs
