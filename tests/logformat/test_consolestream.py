"""Console lines one by one are those of a whole fold, each with what had been logged by then."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from runferry.logformat import Gap, load, messages, read_records
from runferry.logformat.console import ConsoleLine
from runferry.logformat.consolestream import MOST_HELD, ConsoleStream, Said, search
from support import logs


def lines_of(log: Path, *watched: str) -> list[Said]:
    return list(ConsoleStream(watched).lines(read_records(log), lambda gap: pytest.fail(str(gap))))


def test_lines_are_those_of_a_whole_fold(tmp_path: Path) -> None:
    """Whatever bars are drawn again above the cursor, in both streams, and what stands behind the last newline."""
    rng = random.Random(7)
    pieces = [
        "\n",
        "\r",
        "bar 1",
        "\x1b[A",
        "\x1b[3A",
        "\x1b[B",
        "\x1b[K",
        "x" * 9,
        "\x1b[31mred\x1b[0m",
        "line\n",
        "\b",
    ]
    records = [logs.run_record("a")]
    records += [
        logs.output("".join(rng.choices([*pieces, *["line\n"] * 6], k=4)), at, stderr=rng.random() < 0.3)
        for at in range(900)
    ]
    log = logs.make_log(tmp_path / "x.wandb", *records)
    state = load(log)
    found = lines_of(log)

    assert [said.line for said in found] == [*state.console, *state.console_rest]
    assert len(found) > 300


def test_each_line_has_the_step_and_the_values_of_its_time(tmp_path: Path) -> None:
    """Of the last row before it; values stay until there are others, and what is not watched is not kept."""
    log = logs.make_log(
        tmp_path / "x.wandb",
        logs.run_record("a"),
        logs.output("first\n"),
        logs.row(7, {"loss": 0.5, ("a", "b"): 1}),
        logs.output("second\n", stderr=True),
        logs.row(None, {"loss": 0.25}),
        messages.Record(output_logger=messages.OutputLoggerRecord(line="third\n")),
    )
    found = [(said.line.text, said.line.stream, said.step, said.values) for said in lines_of(log, "loss", "a.b", "no")]

    assert found == [
        ("first", "stdout", None, {}),
        ("second", "stderr", 7, {"loss": b"0.5", "a.b": b"1"}),
        ("third", "stdout", 8, {"loss": b"0.25", "a.b": b"1"}),
    ]


def test_memory_is_bounded_where_one_stream_is_silent(tmp_path: Path) -> None:
    """A line of a stream that prints no more does not hold up the others for ever."""
    text = "line\n" * 2000
    records = [logs.run_record("a"), logs.output("alone\n", stderr=True), *[logs.output(text, at) for at in range(9)]]
    stream = ConsoleStream()
    most = count = 0
    for _ in stream.lines(read_records(logs.make_log(tmp_path / "x.wandb", *records)), print):
        count += 1
        most = max(most, len(stream._latest._held))

    assert count == 18_001
    assert most <= MOST_HELD + 2000


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Gaps, and records that are no messages."""
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record("a"), logs.output("one\n"), logs.output("two\n"))
    log.write_bytes(log.read_bytes()[:-2])
    gaps: list[Gap] = []

    assert [said.line.text for said in ConsoleStream().lines(read_records(log), gaps.append)] == ["one"]
    assert [gap.reason.value for gap in gaps] == ["torn_tail"]


@pytest.mark.parametrize(
    ("pattern", "context", "most", "found"),
    [
        ("x", 0, None, "x2 x3 x8"),
        ("x", 1, None, "-1 x2 x3 -4 / -7 x8 -9"),
        ("x", 2, None, "-0 -1 x2 x3 -4 -5 -6 -7 x8 -9"),
        ("x", 1, 1, "-1 x2 -3"),
        ("x", 0, 2, "x2 x3"),
        ("nope", 3, None, ""),
    ],
)
def test_lines_around_hits(pattern: str, context: int, most: int | None, found: str) -> None:
    """Each line once, and a new group is told from one that goes on."""
    texts = ["a", "a", "x", "x", "a", "a", "a", "a", "x", "a"]
    lines = [Said(ConsoleLine(0, "stdout", f"\x1b[1m{text}{at}"), None, {}) for at, text in enumerate(texts)]
    said = []
    for hit in search(lines, lambda text: text.startswith(pattern), context=context, most=most):
        if context and said and not hit.follows:
            said.append("/")
        said.append(f"{'x' if hit.matches else '-'}{hit.said.line.text[-1]}")

    assert " ".join(said) == found
