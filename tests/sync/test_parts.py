"""The small parts: keys, side files, locks, YAML, lines."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import decode_history, messages, read_records
from runferry.logformat.nested import row_of
from runferry.sync import UsageError, yamltext
from runferry.sync.body import Body
from runferry.sync.cursor import Cursor, FileMark, Lines, Target, load, matches, prefix_hash
from runferry.sync.lines import MAX_LINE, Console, Rows, console_text, event_line
from runferry.sync.places import Places, default_state_dir
from runferry.sync.settings import SyncSettings, find_base_url
from support import logs

URL = "http://127.0.0.1:8080"
SECRET = "s3cr3t" * 8


# -- settings and places -----------------------------------------------------------------------------------------------


def test_the_base_url_comes_from_the_environment_or_the_users_own_settings(tmp_path: Path) -> None:
    """RUNFERRY_BASE_URL, WANDB_BASE_URL, the user's settings file, the default; a trailing slash goes."""
    (tmp_path / ".config" / "wandb").mkdir(parents=True)
    assert find_base_url({}, tmp_path) == "https://api.wandb.ai"
    (tmp_path / ".config" / "wandb" / "settings").write_text("[default]\nbase_url = http://own:1/\n")
    assert find_base_url({}, tmp_path) == "http://own:1"
    assert find_base_url({"WANDB_BASE_URL": "http://w/"}, tmp_path) == "http://w"
    assert find_base_url({"WANDB_BASE_URL": "http://w/", "RUNFERRY_BASE_URL": "http://r"}, tmp_path) == "http://r"


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://user:pw@host", ""])
def test_a_base_url_that_cannot_be_used_is_a_usage_error(url: str) -> None:
    """Only plain http(s) URLs without credentials are servers."""
    with pytest.raises(UsageError):
        SyncSettings(base_url=url)


def test_side_files_go_to_the_state_directory_when_the_folder_is_read_only(tmp_path: Path) -> None:
    """Cursor and lock move, under a name that tells two folders apart; the peer's marker stays where the peer looks."""
    log = tmp_path / "run" / "run-x.wandb"
    beside = Places(log, tmp_path / "state", writable=lambda _: True)
    elsewhere = Places(log, tmp_path / "state", writable=lambda _: False)
    other = Places(tmp_path / "run2" / "run-x.wandb", tmp_path / "state", writable=lambda _: False)

    assert beside.cursor == tmp_path / "run" / "run-x.wandb.cursor"
    assert elsewhere.cursor.is_relative_to(tmp_path / "state")
    assert elsewhere.cursor != other.cursor
    assert elsewhere.marker == log.with_name("run-x.wandb.synced")
    assert set(beside.cursors) == set(elsewhere.cursors)


def test_the_state_directory_follows_the_usual_variables(tmp_path: Path) -> None:
    """RUNFERRY_STATE_DIR, then XDG_STATE_HOME."""
    assert default_state_dir({"RUNFERRY_STATE_DIR": "/s", "XDG_STATE_HOME": "/x"}) == Path("/s")
    assert default_state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/runferry")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run under numbers that have no name: a usage error, not a traceback, and none where a variable says enough."""

    def nowhere(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", lambda: nowhere(Path()))
    monkeypatch.setattr(Path, "expanduser", lambda path: nowhere(path) if str(path).startswith("~") else path)

    for environ in ({}, {"RUNFERRY_STATE_DIR": "~/state"}, {"XDG_STATE_HOME": "~nobody"}):
        with pytest.raises(UsageError, match="RUNFERRY_STATE_DIR"):
            default_state_dir(environ)
    assert default_state_dir({"RUNFERRY_STATE_DIR": "/s"}) == Path("/s")


# -- cursor ------------------------------------------------------------------------------------------------------------


def make_cursor(log: Path, offset: int) -> Cursor:
    with log.open("rb") as file:
        prefix = prefix_hash(file, offset)
    return Cursor(
        Target(URL, None, "proj", "x"), "me", "proj", "x", "id", Lines(5, 6, 7), 3, offset, Lines(1, 2, 3), prefix,
        "c", "s", {"a.txt": FileMark(1, 2, "h")}, ["step 1: big (12.0 MB)"], None, 99, complete=True,
    )  # fmt: skip


def test_a_cursor_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """Every field survives the file."""
    log = logs.simple_run(tmp_path)
    cursor = make_cursor(log, 200)
    cursor.save(tmp_path / "c")

    assert load([tmp_path / "none", tmp_path / "c"]) == (cursor, "")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["c"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 99}', "null", '{"version": 1, "target": 5}', "[" * 100_000]
)
def test_a_damaged_cursor_counts_as_none_and_is_named(tmp_path: Path, text: str) -> None:
    """Whatever stands in a cursor file never breaks a sync: it is ignored, with a note."""
    (tmp_path / "c").write_text(text)

    cursor, note = load([tmp_path / "c"])

    assert cursor is None
    assert "is not a cursor" in note


def test_negative_and_wrong_typed_counts_are_refused(tmp_path: Path) -> None:
    """A cursor that would send lines to negative numbers is none."""
    log = logs.simple_run(tmp_path)
    make_cursor(log, 200).save(tmp_path / "c")
    document = json.loads((tmp_path / "c").read_text())
    document["base"]["history"] = -1
    (tmp_path / "c").write_text(json.dumps(document))

    assert load([tmp_path / "c"])[0] is None


def test_a_cursor_of_absurd_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as none, and the note says why."""
    (tmp_path / "c").write_text(" " * 100)
    monkeypatch.setattr("runferry.sync.cursor._MAX_SIZE", 50)

    found, note = load([tmp_path / "c"])

    assert found is None
    assert "too large" in note


@pytest.mark.parametrize("at", [0, 65_535, 300_000 - 65_536, 299_999])
def test_a_prefix_is_known_by_both_its_ends(tmp_path: Path, at: int) -> None:
    """One other byte in its first or last 64 KiB makes it another one."""
    data = bytearray(300_000)
    before = prefix_hash(io.BytesIO(data), 300_000)
    data[at] = 1

    assert prefix_hash(io.BytesIO(data), 300_000) != before


def test_a_cursor_belongs_to_its_log_and_target_only(tmp_path: Path) -> None:
    """A replaced, a shortened log and another target are told apart; a log that grew is the same log."""
    log = logs.simple_run(tmp_path)
    size = log.stat().st_size
    cursor = make_cursor(log, size)

    assert matches(cursor, log, cursor.target) == ""
    assert "target" in matches(cursor, log, Target(URL, None, "other", "x"))
    with log.open("ab") as file:
        file.write(b"more")
    assert matches(cursor, log, cursor.target) == ""
    os.truncate(log, size - 1)
    assert "shorter" in matches(cursor, log, cursor.target)
    logs.make_log(log, *logs.simple_records(start=logs.START_S + 1))
    assert "not the one" in matches(cursor, log, cursor.target)


# -- YAML --------------------------------------------------------------------------------------------------------------


def test_yaml_quotes_whatever_a_reader_could_take_for_something_else() -> None:
    """Texts that look like numbers, booleans, dates or syntax are quoted; floats have a dot; NaN has its own name."""
    tree = {
        "a": {"value": "plain"}, "b": "yes", "c": "1.5", "d": "2026-01-01", "e": "x: y", "f": "", "g": "- a", "h": "null",
        "i": 1e-05, "j": float("nan"), "k": float("-inf"), "l": 3, "m": True, "n": None, "o": [], "p": {}, "q": [1, [2], {"z": 0}],
        "no": 1, "1": 2, "tab\t": "new\nline", "u": "\u2028\x7f\ufeff",
    }  # fmt: skip

    assert yamltext.dump(tree).splitlines() == [
        "a:", "    value: plain", 'b: "yes"', 'c: "1.5"', 'd: "2026-01-01"', 'e: "x: y"', 'f: ""', 'g: "- a"',
        'h: "null"', "i: 1.0e-05", "j: .nan", "k: -.inf", "l: 3", "m: true", '"n": null', "o: []", "p: {}", "q:",
        "    - 1", "    -", "        - 2", "    -", "        z: 0", '"no": 1', '"1": 2', '"tab\\t": "new\\nline"',
        'u: "\\u2028\\u007f\\ufeff"',
    ]  # fmt: skip
    assert yamltext.dump({}) == "{}\n"


# -- lines -------------------------------------------------------------------------------------------------------------


def lines_of(rows: Rows, *decoded: tuple[tuple[tuple[str, ...], ...], list[bytes]]) -> list[str]:
    """The lines of decoded records, by `rows`."""
    whole = [rows.add(*items, offset) for offset, items in enumerate(decoded)]
    return [rows.line(row) for row in [*whole, rows.end()] if row is not None]


def lines_in(tmp_path: Path, rows: Rows, *records: object) -> list[str]:
    """The lines of a log of these records."""
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record("x"), *records)
    return lines_of(rows, *(decode_history(item.body) for item in read_records(log) if item.kind == "history"))


def first_row(tmp_path: Path, *records: object, shift: int = 0) -> str:
    return lines_in(tmp_path, Rows(shift), *records)[-1]


def test_a_row_keeps_the_digits_of_the_log(tmp_path: Path) -> None:
    """Numbers are spliced, not parsed and printed again."""
    values = {
        "a": b"1.7960268892115064e+09",
        "b": b"9007199254740993",
        "c": b"-0",
        "d": b"1e-05",
        "e": b"NaN",
        "f": b"-Infinity",
    }

    line = first_row(tmp_path, logs.row(3, values))

    assert line.startswith(
        '{"a":1.7960268892115064e+09,"b":9007199254740993,"c":-0,"d":1e-05,"e":NaN,"f":-Infinity,"_step":3,'
    )


def test_nested_keys_become_objects_and_dots_do_not(tmp_path: Path) -> None:
    """Key paths are rebuilt; a dot, slash or quote inside a key stays in it."""
    values = {("n", "a", "b"): 1, "x.y": 2, ("n", "c"): "s", 'q"\\': 3, "v/w": None, ("n", "a", "d"): [1, {"z": 2}]}

    row = json.loads(first_row(tmp_path, logs.row(0, values)))

    assert row["n"] == {"a": {"b": 1, "d": [1, {"z": 2}]}, "c": "s"}
    assert (row["x.y"], row['q"\\'], row["v/w"]) == (2, 3, None)


def test_of_two_items_with_one_key_the_later_wins(tmp_path: Path) -> None:
    """Also where one is an object and the other is not."""
    item = messages.HistoryItem
    history = messages.HistoryRecord(
        item=[
            item(nested_key=["a"], value_json="1"),
            item(nested_key=["b", "c"], value_json="2"),
            item(nested_key=["a"], value_json="3"),
            item(nested_key=["b"], value_json="4"),
            item(key="_step", value_json="0"),
        ]
    )

    assert json.loads(first_row(tmp_path, messages.Record(history=history))) == {"a": 3, "b": 4, "_step": 0}


@pytest.mark.parametrize("bad", [b"", b"nan", b"{", b"1,2", b'1,"evil":2', b"[" * 100_000])
def test_a_broken_value_goes_alone(tmp_path: Path, bad: bytes) -> None:
    """An item whose text is no JSON is left out; the rest of the row is sent."""
    row = json.loads(first_row(tmp_path, logs.row(5, {"good": 1, "bad": bad, "more": b"NaN"})))

    assert row["good"] == 1
    assert row["_step"] == 5
    assert set(row) == {"good", "more", "_step", "_runtime", "_timestamp"}


def test_a_row_without_step_follows_the_one_before(tmp_path: Path) -> None:
    """Steps are made up only where the log has none."""
    line = first_row(tmp_path, logs.row(41), logs.row(None, {"a": 1}))

    assert json.loads(line) == {"a": 1, "_step": 42}


def test_the_step_shift_of_a_segment_is_added(tmp_path: Path) -> None:
    """Only the step changes."""
    row = json.loads(first_row(tmp_path, logs.row(2), shift=100))

    assert (row["_step"], row["_runtime"]) == (102, 1.0)


def test_only_the_oversized_values_of_a_row_are_left_out(tmp_path: Path) -> None:
    """A row with a 12 MB text keeps its other values and its place, and the report names the key."""
    rows = Rows()

    (line,) = lines_in(tmp_path, rows, logs.row(9, {"huge": "x" * 12_000_000, "loss": 0.5}))

    assert len(line) <= MAX_LINE
    assert json.loads(line)["loss"] == 0.5
    assert rows.dropped == ["step 9: huge (12.0 MB)"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=3)


@given(st.lists(st.tuples(KEYS, JSON), max_size=8))
def test_a_line_is_the_row_that_the_reader_sees(items: list[tuple[list[str], object]]) -> None:
    """For any keys and values, the spliced line parses to the row that the fold gives."""
    from runferry.logformat.record import parse_record

    history = messages.HistoryRecord(
        item=[messages.HistoryItem(nested_key=key, value_json=json.dumps(value)) for key, value in items]
    )
    history.item.add(nested_key=["_step"], value_json="7")
    payload = messages.Record(num=1, history=history).SerializeToString()
    record = parse_record(payload, 0, len(payload))

    paths, values = decode_history(record.body)
    (line,) = lines_of(Rows(), (paths, values))

    expected = row_of(paths, values)
    if expected.get("_step") == 7:
        assert json.loads(line) == expected


def test_a_line_holds_each_key_once() -> None:
    """Two items of one key on the first level are one key at the server, with the later value."""
    items = (("a",), ("_step",), ("a",)), [b"1", b"0", b"2"]

    assert lines_of(Rows(), items) == ['{"_step":0,"a":2}']


def test_a_sample_becomes_an_event_line(tmp_path: Path) -> None:
    """Keys get their prefix, time and runtime come from the record, broken values go alone."""
    log = logs.make_log(
        tmp_path / "x.wandb", logs.run_record("x"), logs.sample(2.25, {"cpu": 1.5, "disk./.usageGB": 3, "bad": b"oops"})
    )
    record = next(item for item in read_records(log) if item.kind == "stats")

    assert event_line(record, round(logs.START_S * 1e9), []) == (
        '{"_wandb":true,"_timestamp":1790000002.75,"_runtime":2.25,"system.cpu":1.5,"system.disk./.usageGB":3}'
    )


def console_of(tmp_path: Path, *records: object, structured: bool = False) -> list[str]:
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record("x"), *records)
    console = Console()
    lines = [line for item in read_records(log) if item.kind in Console.KINDS for line in console.feed(item)]
    return [console_text(line, structured=structured) for line in [*lines, *console.rest()]]


def test_console_lines_carry_the_time_of_the_log(tmp_path: Path) -> None:
    """Fragments are joined, carriage returns overwrite, the time is that of the record in UTC, stderr is marked."""
    records = [
        logs.output("a", 0), logs.output("b\n", 1), logs.output("10%\r", 2), logs.output("99%\n", 3),
        logs.output("bad\n", 4, stderr=True), logs.output("rest", 5), logs.output("y" * 5000 + "\n", 6, stderr=True),
    ]  # fmt: skip

    lines = console_of(tmp_path, *records)

    assert lines[:3] == [
        "2026-09-21T14:13:20.500000 ab",
        "2026-09-21T14:13:22.500000 99%",
        "ERROR 2026-09-21T14:13:24.500000 bad",
    ]
    assert len(lines[3]) == len("ERROR 2026-09-21T14:13:26.500000 ") + 4096
    assert lines[4] == "2026-09-21T14:13:25.500000 rest"


def test_structured_console_lines_are_json(tmp_path: Path) -> None:
    """With the server's feature each line is an object."""
    assert console_of(tmp_path, logs.output('say "ü"\n', 1, stderr=True), structured=True) == [
        '{"level":"error","ts":"2026-09-21T14:13:21.500000","content":"say \\"ü\\""}'
    ]


def test_a_body_is_halved_until_one_line_is_left() -> None:
    """Splitting keeps every line and its number, and ends at bodies of one line."""
    body = Body(10, 20, 30, ["h0", "h1", "h2"], ["e0"], ["c0", "c1"], "s", exit_code=0)
    waiting, parts = [body], []
    while waiting:
        part = waiting.pop(0)
        halves = part.split()
        if halves is None:
            parts.append(part)
        else:
            waiting = [*halves, *waiting]

    lines = {}
    for part in parts:
        for stream, offset, texts in (
            ("h", part.history_offset, part.history),
            ("e", part.events_offset, part.events),
            ("c", part.console_offset, part.console),
        ):
            lines.update({(stream, number): text for number, text in enumerate(texts, offset)})
    assert lines == {
        ("h", 10): "h0", ("h", 11): "h1", ("h", 12): "h2", ("e", 20): "e0", ("c", 30): "c0", ("c", 31): "c1",
    }  # fmt: skip
    assert [part.summary for part in parts if part.summary] == ["s"]
    assert parts[-1].exit_code == 0
