"""What a terminal shows of the output that a log holds."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import RunState, messages, read_records
from runferry.logformat.console import LineAssembler
from runferry.logformat.terminal import SCREEN_ROWS, Terminal, plain
from support.frames import log_of

RED, GREEN, OFF = "\x1b[31m", "\x1b[1;32m", "\x1b[0m"


def shown(*fragments):
    """The lines of a stream."""
    lines = []
    terminal = Terminal("stdout", lines)
    for at, fragment in enumerate(fragments):
        terminal.feed(at, fragment)
    return [line.text for line in [*lines, *terminal.rest()]]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("a\nb", ["a", "b"]),
        ("abc\rX\n", ["Xbc"]),
        ("a\r\nb\r\r\n", ["a", "b"]),
        ("abc\b\bX\n", ["aXc"]),
        ("a\b\b\bZ\n", ["Z"]),
        ("1\n2\n3\n\x1b[2AX\nY\n", ["1", "X", "Y"]),
        ("1\n2\n3\x1b[A\x1b[AQ\n\n\n\nend\n", ["1Q", "2", "3", "", "end"]),
        ("1\n\x1b[99AX\n", ["X"]),
        ("a\nb\x1b[1FX\nY", ["X", "Y"]),
        ("ab\x1b[2BX\n", ["abX"]),
        ("a\nb\x1b[A\x1b[1EX\n", ["a", "X"]),
        ("ab\x1b[3CX\n", ["ab   X"]),
        ("abcd\x1b[2DX\n", ["abXd"]),
        ("abcdef\x1b[3GX\n", ["abXdef"]),
        ("abcdef\x1b[3D\x1b[Kx\n", ["abcx"]),
        ("abcdef\x1b[3D\x1b[1Kx\n", ["   xef"]),
        ("abcdef\r\x1b[2Kx\n", ["x"]),
        ("a\nbb\ncc\n\x1b[2A\x1b[0Jd\n", ["a", "d", ""]),
        ("a\nb\n\x1b[H\x1b[2Jc\n", ["a", "b", "c"]),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["alink"]),
        ("\x1b[?25la\x1b(Bb\x1b7c\x1b8\x1b[?25h\n", ["abc"]),
        ("\x1b[\na\x1b\n", ["[", "a"]),
        ("\x1b]" + "t" * 5000 + "\n", ["]" + "t" * 5000]),
        ("a\tb\x07\x0c\n", ["a\tb\x07\x0c"]),
        (f"{RED}red{OFF} {GREEN}ok{OFF}\n", [f"{RED}red{OFF} {GREEN}ok{OFF}"]),
        (f"{RED}red{OFF}\r{GREEN}b\n", [f"{OFF}{GREEN}bed"]),
    ],
)
def test_a_sequence_does_what_a_terminal_does(written, lines):
    """All at once, and character by character, as it may come."""
    assert shown(written) == lines
    assert shown(*written) == lines


def test_colours_are_no_columns_and_can_be_left_out():
    """A bar in colours is overwritten where it stands; `plain` gives the text alone."""
    (line,) = shown(f"{RED}0123{OFF}456789\x1b[4G{GREEN}X{OFF}\n")

    assert plain(line) == "012X456789"
    assert plain("no colour") == "no colour"


def test_nested_bars_stay_two_lines():
    """Bars below each other go down by a newline and up again, many times, in pieces."""
    outer = [f"\router: {at:3}%" for at in range(0, 101, 50)]
    inner = [f"\n\rinner: {at:3}%\x1b[A" for at in range(0, 101, 10)]
    written = [piece for bar in outer for piece in (bar, *inner)] + ["\n\n", "done\n"]

    assert shown(*written) == ["outer: 100%", "inner: 100%", "done"]


def test_the_progress_display_of_rich_ends_as_it_is_seen():
    """Several bars that are drawn anew by going up, with lines printed above them."""
    console_module, progress_module = pytest.importorskip("rich.console"), pytest.importorskip("rich.progress")
    out = io.StringIO()
    console = console_module.Console(file=out, force_terminal=True, width=60, color_system="standard", _environ={})
    bars = [progress_module.TextColumn("{task.description}"), progress_module.BarColumn(10)]
    with progress_module.Progress(
        *bars, progress_module.TaskProgressColumn(), console=console, auto_refresh=False
    ) as progress:
        tasks = [progress.add_task(f"bar {at}", total=4) for at in range(3)]
        for step in range(4):
            for task in tasks:
                progress.advance(task)
                progress.refresh()
            progress.console.print(f"epoch {step}")
    text = out.getvalue()

    lines = [plain(line).rstrip() for line in shown(*(text[at : at + 7] for at in range(0, len(text), 7)))]

    assert text.count("\x1b[1A") > 10
    assert [line for line in lines if line.startswith("epoch")] == [f"epoch {step}" for step in range(4)]
    assert [line.split()[:2] + line.split()[-1:] for line in lines if line.startswith("bar")] == [
        ["bar", str(at), "100%"] for at in range(3)
    ]


def test_only_rows_of_the_screen_can_change():
    """So that memory is bounded; the cursor stops at the top."""
    lines = shown("".join(f"line {at}\n" for at in range(300)) + f"\x1b[{10**9}AX\n")

    assert [at for at, line in enumerate(lines) if line.startswith("X")] == [300 - SCREEN_ROWS + 1]


@pytest.mark.parametrize(
    "written", ["\x1b[16384C", "\x1b[600C\x1b[600C", "\x1b[9999999G", "x" * 4000 + "\n\x1b[A\x1b[4000C\x1b[B"]
)
def test_the_cursor_stays_on_a_wide_screen(written):
    """A few bytes make no row of thousands of blanks."""
    line = shown(f"{written}y\n")[-1]

    assert line == " " * 512 + "y"


def test_the_cursor_reaches_every_place_of_a_long_row():
    """Also behind the screen's width."""
    assert shown("x" * 1000 + "\r\x1b[900Cy\x1b[950Gz\x1b[2Dab\n") == ["x" * 900 + "y" + "x" * 47 + "ab" + "x" * 50]


def test_a_row_of_many_screens_is_not_written_over():
    """It would have wrapped: what comes behind a return stands on a line of its own."""
    assert [len(line) for line in shown("x" * 100_000 + "\rab\n")] == [100_000, 2]
    assert [len(line) for line in shown("x" * 100_000 + "\r\n", "ab\n")] == [100_000, 2]
    assert shown("above\n" + "x" * 100_000 + "\n\x1b[2Ab\n")[::2] == ["above", "b"]  # what stands above it is far away


@given(st.lists(st.sampled_from(["a", "bc", "\n", "\r", "\u4e2d", " ", "\r\n", "x\ry"]), max_size=30))
def test_output_without_sequences_gives_the_lines_that_a_sync_sends(pieces):
    """Returns and newlines mean the same to both."""
    assembler = LineAssembler("stdout")
    expected = [line for at, piece in enumerate(pieces) for line in assembler.feed(at, piece)] + assembler.rest()
    lines = []
    terminal = Terminal("stdout", lines)
    for at, piece in enumerate(pieces):
        terminal.feed(at, piece)

    assert [*lines, *terminal.rest()] == expected


@given(st.text(st.sampled_from("ab\n\r\b\x1b[]0123;ABCDEFGHJKm?\x07\\"), max_size=60), st.lists(st.integers(1, 9)))
def test_where_fragments_end_makes_no_difference(written, sizes):
    """A sequence may be cut anywhere; nothing raises, and no escape but colours is left."""
    pieces, at = [], 0
    for size in [*sizes, len(written)]:
        pieces.append(written[at : at + size])
        at += size

    assert shown(*pieces) == shown(written)
    assert not any("\x1b" in plain(line) for line in shown(written))


def test_a_state_changes_lines_where_they_stand():
    """Lines of two streams stand in the order of their newlines; a bar that is drawn again changes its own."""
    fragments = [("bar 0\n", 1), ("warning\n", 0), ("\x1b[Abar 1\n", 1), ("end\n", 1)]
    payloads = [
        messages.Record(output_raw=messages.OutputRecord(output_type=kind, line=line)).SerializeToString()
        for line, kind in fragments
    ]
    log = log_of(*payloads)
    state = RunState().add_all(read_records(io.BytesIO(log)))

    assert [(line.stream, line.text) for line in state.console] == [
        ("stdout", "bar 1"),
        ("stderr", "warning"),
        ("stdout", "end"),
    ]
    counted = RunState(keep_rows=False).add_all(read_records(io.BytesIO(log)))
    assert (counted.console_count, counted.console) == (3, [])
