"""What is kept of a log, what is left out, and in which order; what gaps took."""

from __future__ import annotations

import io
import json
import random

import pytest
from runferry.logformat import FILE_HEADER, Framer, Gap, messages, read_records
from runferry.logformat.losses import losses
from runferry.logformat.misplaced import Misplaced
from runferry.logformat.repair import examine, rewrite
from runferry.logformat.repaired import REPORT, RepairError, Wishes, repair_to_file, repair_to_folder
from support import logs
from support.damage import records
from support.frames import log_of, payloads, read_all


def repaired(data, **options):
    """The findings, and the records of the new log."""
    found, out = examine(io.BytesIO(data)), io.BytesIO()
    count = rewrite(io.BytesIO(data), out, found, **options)
    items = read_all(out.getvalue())
    assert not any(isinstance(item, Gap) for item in items)
    assert [item.num for item in items] == list(range(1, count + 1))
    return found, items


def made(*given):
    """The bytes of a log of these records, numbered."""
    for num, record in enumerate(given, 1):
        record.num = num
    return log_of(*(record.SerializeToString() for record in given))


def bodies(items):
    return [(item.kind, item.body) for item in items]


def test_a_sound_log_is_found_to_be_one_and_comes_out_as_it_is():
    """To the byte."""
    data = made(*logs.simple_records())
    found, out = examine(io.BytesIO(data)), io.BytesIO()
    rewrite(io.BytesIO(data), out, found)

    assert (found.is_sound, found.rows, found.run_id, found.exit_code) == (True, 5, "a1b2c3d4", 0)
    assert out.getvalue() == data


def test_what_crashes_the_peer_is_left_out_and_counted():
    """Whatever holds nothing, is of no known type, has no time, or is no message; the rest is as it was."""
    good = logs.simple_records(exit_code=None)
    bad = [messages.Record(), messages.Record(request=b"x"), messages.Record(noop_link_artifact=messages.Empty())]
    never = messages.Timestamp(seconds=1, nanos=-5)
    bad += [messages.Record(output_raw=messages.OutputRecord(line="x", timestamp=never))]
    bad += [messages.Record(telemetry=messages.TelemetryRecord(feature=b"\x06"))]
    bad += [messages.Record(stats=messages.StatsRecord()), messages.Record(tbrecord=messages.TBRecord(log_dir="d"))]
    raw = [record.SerializeToString() for record in [*good, *bad]] + [b"\x82\x38\x00", b"\x8a\x01\x01\xff"]
    found, items = repaired(log_of(*raw))

    assert not found.is_sound
    assert dict(found.left_out) == {
        "empty": 1,
        "request": 1,
        "noop_link_artifact": 1,
        "samples or output without a time": 2,
        "tbrecord": 1,
        "unknown": 1,
        "no message of its type": 2,
    }
    assert bodies(items) == bodies(read_all(made(*good)))


def test_records_behind_an_exit_come_before_it_and_the_last_exit_counts():
    """Readers drop what stands behind one, and refuse two."""
    start = [logs.header_record(), logs.run_record("a"), logs.row(0)]
    found, items = repaired(made(*start, logs.exit_record(0), logs.row(1), logs.exit_record(255), logs.sample(1)))

    assert [item.kind for item in items] == ["header", "run", "history", "history", "stats", "exit"]
    assert (found.is_sound, found.exits, items[-1].message().exit_code) == (False, 2, 255)
    found, items = repaired(made(*start, logs.exit_record(3), logs.sample(1)), exit_code=0)
    assert (found.is_sound, items[-1].kind, items[-1].message().exit_code) == (False, "exit", 3)


def test_what_is_asked_for_is_added_to_a_log_that_lacks_it():
    """A run record behind the header or in front of all, and an exit at the end; no run record, no log that is sound."""
    found, items = repaired(made(logs.row(0), logs.row(1)), run=messages.RunRecord(run_id="x"), exit_code=1)
    assert [item.kind for item in items] == ["run", "history", "history", "exit"]
    assert (found.is_sound, found.start_ns) == (False, int(logs.START_S * 1e9))
    _, items = repaired(made(logs.header_record(), logs.row(0)), run=messages.RunRecord(run_id="x"))
    assert [item.kind for item in items] == ["header", "run", "history"]
    _, items = repaired(made(logs.header_record()), run=messages.RunRecord(run_id="x"))
    assert [item.kind for item in items] == ["header", "run"]


def test_blocks_that_were_counted_from_elsewhere_are_counted_anew():
    """As by cores up to 0.17.5, from behind the file header: their logs are whole, and others read no further than the first edge."""
    given = [logs.run_record("a"), *(logs.output("x" * 900) for _ in range(80)), logs.exit_record(0)]
    for num, record in enumerate(given, 1):
        record.num = num
    raw = [record.SerializeToString() for record in given]
    out, framer = bytearray(FILE_HEADER), Framer(0)
    for payload in raw:
        framer.append(payload, out)
    found, items = repaired(bytes(out))

    assert (found.losses, found.is_odd, found.is_sound, payloads(items)) == ([], True, False, raw)
    assert not examine(io.BytesIO(log_of(*raw))).is_odd


def test_healed_records_are_written_as_they_were():
    """A flipped bit is proven by the checksum: the new log has it right, and the old one is as it was found."""
    whole = made(*logs.simple_records(rows=20))
    data = bytearray(whole)
    data[900] ^= 8
    found, items = repaired(bytes(data))

    assert [(bit.offset, bit.bit) for bit in found.healed] == [(900, 3)]
    assert (found.is_sound, payloads(items)) == (False, payloads(read_all(whole)))


def test_records_in_the_wrong_place_are_put_where_they_belong():
    """Sectors that were swapped: what was read of them stands in the order of its numbers again."""
    given = [logs.run_record("a"), *(logs.row(step) for step in range(30))]
    for num, record in enumerate(given, 1):
        record.num = num
    raw = [record.SerializeToString() for record in given]
    raw[4], raw[25] = raw[25], raw[4]
    found, items = repaired(log_of(*raw))

    assert (found.misplaced, found.is_sound) == ([(5, 5), (26, 26)], False)
    assert payloads(items) == [record.SerializeToString() for record in given]


@pytest.mark.parametrize(
    ("numbers", "spans"),
    [
        ([], []),
        ([1, 2, 3, 7, 8], []),
        ([1, 2, 9, 3, 4, 5], [(9, 9)]),
        ([1, 5, 6, 2, 3, 4, 7], [(5, 6)]),
        ([4, 5, 1, 2, 3], [(4, 5)]),
        ([1, 2, 3, 1, 2, 3], []),
        ([0, 0, 0], []),
        ([5, 4, 0, 3], []),
    ],
)
def test_the_fewest_records_are_moved(numbers, spans):
    """And none where numbers come twice, or there are none."""
    order = Misplaced()
    for num in numbers:
        order.add(num)

    assert order.spans() == spans


def test_any_damage_leaves_a_sound_log():
    """Whatever happens to a log, the new one is read without a gap, and holds what was read of the old one."""
    whole = log_of(*records(70_000, 5))
    rng = random.Random(3)
    for _ in range(60):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        data[at : at + 300] = rng.choice([b"", bytes(300), rng.randbytes(300), data[at : at + 300] * 2])
        _, items = repaired(bytes(data))
        kinds = [(item.kind, item.body) for item in read_all(bytes(data)) if not isinstance(item, Gap)]
        kept = [pair for pair in kinds if pair[0] != "stats"]
        assert sorted(pair for pair in bodies(items) if pair[0] != "stats") == sorted(kept)


def test_losses_name_records_and_steps():
    """Numbers and steps on both sides tell what a gap took; at the end, from where on."""
    given = [logs.run_record("a"), *(logs.row(step * 10) for step in range(6)), logs.output("x\n")]
    data = bytearray(made(*given))
    items = read_all(bytes(data))
    for lost in (items[3], items[-1]):
        data[lost.offset + 7 : lost.end] = bytes(lost.end - lost.offset - 7)
    first, last = losses(read_all(bytes(data)))

    assert (first.records, first.steps, first.gap.records_lost) == ((4, 4), (11, 29), 1)
    assert (last.records, last.steps) == ((8, None), (51, None))
    assert str(first).endswith("(bad_crc), record 4, steps 11-29")
    assert str(last).endswith("records from 8 on, steps from 51 on")
    assert first.as_json()["steps"] == (11, 29)
    data[: items[2].end] = bytes(items[2].end)
    before = next(losses(read_all(bytes(data))))
    assert (before.records, before.steps) == ((1, 4), (None, 29))


def test_losses_that_have_no_room_for_rows_or_no_numbers_name_none():
    """Between two steps that follow each other no row is lost; where records have no numbers nobody can tell which."""
    given = [logs.run_record("a"), logs.row(0), logs.output("x\n"), logs.row(1)]
    for numbered in (True, False):
        for num, record in enumerate(given, 1):
            record.num = num if numbered else 0
        data = bytearray(log_of(*(record.SerializeToString() for record in given)))
        gap = read_all(bytes(data))[2]
        data[gap.offset + 7 : gap.end] = bytes(gap.end - gap.offset - 7)
        (loss,) = losses(read_all(bytes(data)))
        assert (loss.records, loss.steps) == ((3, 3) if numbered else None, None)


def test_another_version_in_the_header_is_nothing_that_others_read():
    """The new log names version 0."""
    data = bytearray(made(*logs.simple_records()))
    data[6] = 3
    found, items = repaired(bytes(data))
    assert (found.is_sound, found.header_version, len(items)) == (False, 3, found.records)


class TestFiles:
    """New run directories and files."""

    def damaged(self, folder):
        log = logs.simple_run(folder / "wandb")
        (log.parent / "files" / "config.yaml").write_text("lr: 1")
        (log.parent / "files" / "saved").symlink_to("/nowhere")
        data = bytearray(log.read_bytes())
        data[-20:-10] = bytes(10)
        log.write_bytes(data)
        return log

    def test_a_run_directory_with_files_and_a_report(self, tmp_path):
        """By a name that the peer's sync takes; files are copies, links stay links; the old place is as it was."""
        log = self.damaged(tmp_path)
        before = {path: path.lstat().st_mtime_ns for path in log.parent.rglob("*")}
        data = log.read_bytes()
        done = repair_to_folder(log, tmp_path / "new", examine(log), Wishes(exit_code=1))
        made = tmp_path / "new" / "offline-run-20260921_141320-a1b2c3d4"

        assert done.output == made
        assert sorted(path.name for path in made.iterdir()) == ["files", "repair.json", "run-a1b2c3d4.wandb"]
        assert (made / "files" / "config.yaml").read_text() == "lr: 1"
        assert (made / "files" / "saved").is_symlink()
        report = json.loads((made / REPORT).read_text())
        assert (report["exit_code"], len(report["gaps"]), report["rows"]) == (1, 1, 5)
        assert not any(isinstance(item, Gap) for item in read_records(made / "run-a1b2c3d4.wandb"))
        assert (log.read_bytes(), {path: path.lstat().st_mtime_ns for path in log.parent.rglob("*")}) == (data, before)
        with pytest.raises(RepairError, match="there already"):
            repair_to_folder(log, tmp_path / "new", examine(log), Wishes())
        assert len(list((tmp_path / "new").iterdir())) == 1

    def test_a_file_by_name(self, tmp_path):
        """With its report beside it; nothing is replaced."""
        log = self.damaged(tmp_path)
        target = tmp_path / "new.wandb"
        repair_to_file(log, target, examine(log), Wishes())

        assert sorted(path.name for path in tmp_path.iterdir()) == ["new.wandb", "new.wandb.repair.json", "wandb"]
        with pytest.raises(RepairError, match="there already"):
            repair_to_file(log, target, examine(log), Wishes())

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "no record"),
            (b"<!doctype html>", "web page"),
            (FILE_HEADER, "no record"),
            (made(logs.row(0)), "--run-id"),
            (made(logs.run_record("../x"), logs.row(0)), "cannot be a name"),
        ],
    )
    def test_what_cannot_be_repaired_is_said(self, tmp_path, data, reason):
        """And nothing is made."""
        log = tmp_path / "run-x.wandb"
        log.write_bytes(data)
        with pytest.raises(RepairError, match=reason):
            repair_to_folder(log, tmp_path / "new", examine(log), Wishes())
        found = examine(io.BytesIO(made(logs.run_record("r"))))
        with pytest.raises(RepairError, match="is the log of run 'r'"):
            repair_to_folder(log, tmp_path / "new", found, Wishes(run_id="x"))
        assert not (tmp_path / "new").exists()

    def test_a_repair_that_is_stopped_leaves_nothing(self, tmp_path, monkeypatch):
        """No half of a directory is ever seen."""
        log = self.damaged(tmp_path)

        def stopped(*unused, **unused_too):
            raise KeyboardInterrupt

        monkeypatch.setattr("shutil.copytree", stopped)
        with pytest.raises(KeyboardInterrupt):
            repair_to_folder(log, tmp_path / "new", examine(log), Wishes())
        assert list((tmp_path / "new").iterdir()) == []


def test_what_a_log_grew_by_between_the_readings_is_left_for_another_repair():
    """Findings and new log speak of the same records, also where what was torn is whole by now."""
    whole = made(*logs.simple_records(rows=3))
    items = read_all(whole)
    for place in (-1, -2):  # the exit record comes; so does the one that was torn
        found, out = examine(io.BytesIO(whole[: items[place].offset + 9])), io.BytesIO()
        count = rewrite(io.BytesIO(whole), out, found)
        assert (count, found.records, found.exits) == (len(items) + place, len(items) + place, 0)
        assert bodies(read_all(out.getvalue())) == bodies(items[:place])
