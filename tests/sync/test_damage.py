"""Damaged logs: all that can be read arrives, and the verdict names the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runferry.logformat import Record, load, read_records
from runferry.sync import UsageError, Verdict
from support import logs
from support.syncrig import Rig, marker


def flip(data: bytearray) -> None:
    data[40_000] ^= 0xFF


def zero_block(data: bytearray) -> None:
    data[32_768:65_536] = bytes(32_768)


def cut_tail(data: bytearray) -> None:
    del data[-33:]


@pytest.mark.parametrize("damage", [flip, zero_block, cut_tail])
def test_damage_costs_what_it_touched_and_is_reported(rig: Rig, damage: Callable[[bytearray], None]) -> None:
    """All rows outside the damage arrive, the verdict names the bytes, the exit code is 1, nothing is marked; again too."""
    log = rig.run(rows=900)
    whole = load(log).rows
    data = bytearray(log.read_bytes())
    damage(data)
    log.write_bytes(data)
    rig.settle(log)

    report = rig.sync()

    rows = rig.backend.runs["a1b2c3d4"].rows
    assert rows == load(log).rows
    assert len(whole) > len(rows) >= len(whole) - 360 or damage is cut_tail
    assert all(row in whole for row in rows[:: max(1, len(rows) // 50)])
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert "bytes" in rig.only(report).reason
    assert not marker(log).exists()
    rig.backend.forget()
    again = rig.sync()
    assert (rig.only(again).verdict, again.exit_code) == (Verdict.PARTIAL, 1)
    assert rig.backend.requests == []


def test_a_run_record_that_was_lost_is_replaced_by_the_file_name(rig: Rig) -> None:
    """The rows behind it still arrive, under the run id of the file, and the verdict says what is missing."""
    log = rig.run(rows=20)
    data = bytearray(log.read_bytes())
    data[data.index(b"a1b2c3d4")] ^= 0xFF
    log.write_bytes(data)
    rig.settle(log)

    report = rig.sync(project="rescued")

    assert rig.backend.runs["a1b2c3d4"].variables["project"] == "rescued"
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 20
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)


def test_a_log_that_was_healed_is_synced_and_the_verdict_says_so(rig: Rig) -> None:
    """All rows arrive as they were logged; the reason names the bit that the file has wrong."""
    log = rig.run(rows=20)
    rows = load(log).rows
    data = bytearray(log.read_bytes())
    data[900] ^= 4
    log.write_bytes(data)
    rig.settle(log)

    report = rig.sync()

    assert rig.backend.runs["a1b2c3d4"].rows == rows
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.SYNCED, 0)
    assert "1 flipped bit healed in memory: bit 2 of byte 900" in rig.only(report).reason


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        (b":W&C\xe1\xbe\x00", Verdict.SYNCED),  # one flipped bit: what it was is known
        (b":W&B\xe1\xbe\x01", Verdict.SYNCED),  # another version
        (b"\0\xff\0\xff\0\xff\0", Verdict.PARTIAL),
    ],
)
def test_a_log_whose_header_is_damaged_is_sent(rig: Rig, header: bytes, verdict: Verdict) -> None:
    """All that chains behind it arrives; seven bytes that nobody needs cost no run."""
    log = rig.run(rows=20)
    log.write_bytes(header + log.read_bytes()[len(header) :])
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is verdict
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 20


def test_one_bad_log_never_stops_the_others(rig: Rig) -> None:
    """Empty, header-only, foreign, linked into nowhere, a folder: each is named, the good ones are synced, exit code 1."""
    for name in ("one", "two", "three"):
        rig.run(run_id=name)
    contents = {
        "empty": b"",
        "head": b":W&B\xe1\xbe\x00",
        "lfs": b"version https://git-lfs.github.com/spec/v1\n",
        "html": b"<html>",
    }
    for name, content in contents.items():
        (rig.folder / f"run-{name}.wandb").write_bytes(content)
    (rig.folder / "run-gone.wandb").symlink_to("nowhere")
    (rig.folder / "run-folder.wandb").mkdir()
    logs.make_log(rig.folder / "run-norun.wandb", logs.header_record(), logs.row(0))

    report = rig.sync()

    verdicts = {Path(run.log).name: (run.verdict.value, run.reason) for run in report.runs}
    assert {name: verdict for name, (verdict, _) in verdicts.items() if verdict == "synced"}.keys() == {
        "run-one.wandb", "run-two.wandb", "run-three.wandb",
    }  # fmt: skip
    for name, word in {
        "empty": "0 bytes", "head": "header", "lfs": "git lfs pull", "html": "web page", "gone": "cannot be read",
        "folder": "not a file", "norun": "no run record",
    }.items():  # fmt: skip
        verdict, reason = verdicts[f"run-{name}.wandb"]
        assert verdict == "failed"
        assert word in reason
    assert report.exit_code == 1


def test_a_path_that_is_not_there_is_a_usage_error(rig: Rig) -> None:
    """A mistyped path is told before anything is sent."""
    with pytest.raises(UsageError, match="nowhere"):
        rig.sync(rig.folder / "nowhere")


@pytest.mark.parametrize("grown", [False, True], ids=["same size", "grown"])
def test_a_good_copy_over_a_damaged_one_brings_the_lost_rows(rig: Rig, grown: bool) -> None:
    """What a damaged copy could not give arrives with a better one, at its own place among the rows."""
    log = rig.run(rows=2000)
    good = log.read_bytes()
    bad = bytearray(good)
    bad[120_000] ^= 0xFF
    log.write_bytes(bad)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL

    log.write_bytes(good)
    if grown:
        logs.make_log(log, logs.row(2000), append=True)
    rig.settle(log)
    report = rig.only(rig.sync())

    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows
    assert (report.verdict, len(load(log).rows)) == (Verdict.SYNCED, 2000 + grown)
    assert marker(log).exists()


def test_a_torn_end_that_was_taken_for_unfinished_is_damage_once_the_run_is_dead(rig: Rig) -> None:
    """A killed writer's last block is not complete because a sync saw it while the writer lived."""
    log = rig.run(rows=200, exit_code=None)
    log.write_bytes(log.read_bytes()[:4096])
    rig.settle(log, age=1)
    assert rig.only(rig.sync()).verdict is Verdict.LIVE

    rig.settle(log, age=5000)
    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert not marker(log).exists()


def hole_before(data: bytearray, at: int) -> None:
    """Zeros where a record began, so that all behind it lie in the last, incomplete block."""
    data[at : at + 5] = bytes(4096)


def lost_length_and_checksum(data: bytearray, at: int) -> None:
    data[at + 2 : at + 6] = b"\x5a\xa5\xff\x7f"


def lost_header(data: bytearray, at: int) -> None:
    data[at : at + 7] = b"\xa5\x5a" * 3 + b"\x01"


@pytest.mark.parametrize("exit_code", [0, None], ids=["ended", "killed"])
@pytest.mark.parametrize("damage", [hole_before, lost_length_and_checksum, lost_header])
def test_rows_behind_damage_in_the_last_block_are_sent_once_nobody_writes(
    rig: Rig, damage: Callable[[bytearray, int], None], exit_code: int | None
) -> None:
    """All that a reader finds there arrives, also of a killed run; the verdict names bytes within the log; nothing twice."""
    log = rig.run(rows=40, exit_code=exit_code)
    records = [item for item in read_records(log) if isinstance(item, Record)]
    rows = [item for item in records if item.kind == "history"]
    data = bytearray(log.read_bytes())
    damage(data, rows[10].offset)
    log.write_bytes(data)
    rig.settle(log, age=5000)
    readable = load(log).rows
    assert 20 < len(readable) < 40

    report = rig.sync()

    assert rig.backend.runs["a1b2c3d4"].rows == readable
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert f"bytes {rows[10].offset}-" in rig.only(report).reason
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.requests == []


def test_rows_behind_damage_in_the_last_block_of_a_live_log_wait(rig: Rig) -> None:
    """While its writer lives, more bytes may tell what stands there; once it is dead they are sent."""
    log = rig.run(rows=40, exit_code=None)
    rows = [item for item in read_records(log) if isinstance(item, Record) and item.kind == "history"]
    data = bytearray(log.read_bytes())
    hole_before(data, rows[10].offset)
    log.write_bytes(data)
    rig.settle(log, age=1)
    rig.sync()
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 10

    rig.settle(log, age=5000)
    report = rig.sync()

    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows
    assert rig.only(report).verdict is Verdict.PARTIAL
