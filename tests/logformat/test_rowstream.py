"""Rows one by one are those that a whole fold has; what is known of each key is what its column holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from runferry.logformat import Gap, load, messages
from runferry.logformat.keystats import AllKeys
from runferry.logformat.nested import row_of
from runferry.logformat.rowstream import Row, stream_rows
from support import logs
from support.frames import log_of


def rows_of(*paths: Path, overlap: str = "last") -> list[Row]:
    return list(stream_rows(paths, lambda log, gap: pytest.fail(f"{log}: {gap}"), overlap=overlap))


def nested(rows):
    return [row_of(tuple(row.values), list(row.values.values())) for row in rows]


def test_rows_of_one_log(tmp_path: Path) -> None:
    """Parts are joined, and a row without a step has the one behind the row before it."""
    records = [
        logs.run_record("a"),
        logs.row(0),
        logs.row(None, {"x": 1}),
        logs.row(5, {"x": 2}),
        logs.row(5, {"y": 3, "x": 4}),
    ]
    log = logs.make_log(tmp_path / "x.wandb", *records, logs.row(None), logs.row(2))
    found = rows_of(log)

    assert [row.step for row in found] == [0, 1, 5, 6, 2]
    assert nested(found) == list(load(log).rows)


@pytest.mark.parametrize("overlap", ["last", "first", "both"])
@pytest.mark.parametrize("second", [0, 3, 10])
def test_rows_of_several_logs_are_stitched(tmp_path: Path, overlap: str, second: int) -> None:
    """As a whole fold stitches them."""
    one = logs.make_log(tmp_path / "1.wandb", logs.run_record("a"), *map(logs.row, range(6)))
    later = logs.run_record("a", start=logs.START_S + 100)
    two = logs.make_log(tmp_path / "2.wandb", later, *map(logs.row, range(second, second + 4)))

    whole = load(one, two, overlap=overlap)
    steps = [row["_step"] for row in whole.rows]
    assert [row.step for row in rows_of(one, two, overlap=overlap)] == steps


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Gaps, and history records that are none, by the log that they are in."""
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record("a"), logs.row(0), logs.row(1))
    body = messages.Record(history=messages.HistoryRecord()).SerializeToString()[:1] + b"\x03\x0a\x01\xff"
    log.write_bytes(log.read_bytes()[:-2])
    told: list[tuple[Path, Gap]] = []

    assert [row.step for row in stream_rows([log], lambda log, gap: told.append((log, gap)))] == [0]
    assert [(path, gap.reason.value) for path, gap in told] == [(log, "torn_tail")]
    log.write_bytes(log_of(b"\x08\x01" + body))
    assert list(stream_rows([log], lambda log, gap: told.append((log, gap)))) == []
    assert told[-1][1].reason.value == "bad_proto"


def test_what_is_known_of_each_key() -> None:
    """Kind, count, steps, last value, range, NaNs and broken values."""
    keys = AllKeys()
    values = {
        "whole": [b"3", b"1", b"2"],
        "mixed": [b"1", b"0.5", b"NaN"],
        "nan": [b"NaN", b"NaN", b"Infinity"],
        "text": [b'"a"', b'"b"', b'""'],
        "any": [b'"a"', b"1", b"[1]"],
        "flag": [b"true", b"false", b"null"],
        "late": [None, b"null", b"{oops"],
    }
    for step in range(3):
        given = {(key,): texts[step] for key, texts in values.items() if texts[step] is not None}
        keys.add(Row(step * 10, {("_step",): b"%d" % (step * 10), **given}, 0))
    found = {path[0]: stats.as_json() for path, stats in keys.stats.items()}

    assert ("_step",) not in keys.stats
    assert found["whole"] == {
        "kind": "int", "count": 3, "first_step": 0, "last_step": 20, "last": 2, "min": 1, "max": 3, "nan": 0, "broken": 0,
    }  # fmt: skip
    assert (found["mixed"]["kind"], found["mixed"]["min"], found["mixed"]["nan"]) == ("number", 0.5, 1)
    assert math.isnan(found["mixed"]["last"])
    assert (found["nan"]["min"], found["nan"]["max"], found["nan"]["nan"]) == (math.inf, math.inf, 2)
    assert [found[key]["kind"] for key in ("text", "any", "flag", "late")] == ["text", "json", "bool", "null"]
    assert (found["flag"]["count"], found["flag"]["last"], found["flag"]["min"]) == (3, None, None)
    assert (found["late"]["count"], found["late"]["broken"], found["late"]["first_step"]) == (1, 1, 10)
