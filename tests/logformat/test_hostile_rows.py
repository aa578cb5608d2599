"""Rows and output that are made to cost much cost what they hold."""

from __future__ import annotations

import gc
import io
import time
import tracemalloc

import pytest
from runferry.logformat import LogReader, RunState, messages
from support.frames import log_of

COUNT = 6_000
QUADRATIC_S = 8.0
"""Seconds that these take a tenth of, and an algorithm of higher order takes many times over."""
FACTOR = 40
"""Bytes of memory for a byte of a log, at most: a key costs a column."""


def row(step, *items):
    """A history record."""
    history = messages.HistoryRecord(step=messages.HistoryStep(num=step))
    for path, text in (*items, (("_step",), str(step))):
        history.item.add(nested_key=path, value_json=text)
    return messages.Record(num=1, history=history).SerializeToString()


def output(text):
    return messages.Record(num=1, output_raw=messages.OutputRecord(output_type=1, line=text)).SerializeToString()


def folded(payloads):
    return RunState().add_batches(LogReader(io.BytesIO(log_of(*payloads))).batches())


def times(make):
    return [make(at) for at in range(COUNT)]


LOGS = {
    "a key per row": times(lambda at: row(at, ((f"k{at}",), "1"))),
    "a key per row, in levels": times(lambda at: row(at, (("a", f"k{at}", "b"), "1"))),
    "a key in two rows far apart": times(lambda at: row(at, ((f"k{at % (COUNT // 2)}",), "1"))),
    "a key per part": times(lambda at: row(0, ((f"k{at}",), "1"))),
    "parts below and above each other": times(lambda at: row(0, (("n", f"x{at}")[: 1 + at % 2], "1"))),
    "parts inside of an object": [row(0, (("n",), "{}")), *times(lambda at: row(0, (("n", f"x{at}"), "1")))],
    "parts of media": times(lambda at: row(0, (("n", f"x{at}", "_type"), '"histogram"'), (("n", "_type"), '"x-file"'))),
    "kinds in turn": times(lambda at: row(at, (("k",), ["1", "0.5", '"a"', "null", "[1]", "true"][at % 6]))),
    "names alike": times(lambda at: row(at, (("a.b",) * (at % 50 + 1), "1"), (("a", "b") * (at % 50 + 1), "1"))),
    "up and down": [output("".join(f"{at}\n" for at in range(100))), *times(lambda at: output("\x1b[50A\x1b[Jx\n"))],
    "a wide line again and again": [output("x" * 16_000), *times(lambda at: output("\ry\n\x1b[A"))],
    "an empty screen erased": [output("x\n" * 99 + "\x1b[99A"), *times(lambda at: output("\x1b[J" * 30))],
    "beginnings of sequences": times(lambda at: output("\x1b]" + "x" * 90)),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_time_grows_with_the_log(name):
    """To fold, to walk over all rows, to name all columns."""
    begun = time.monotonic()
    state = folded(LOGS[name])
    rows = list(state.rows)
    names = [column.name for column in state.rows.columns]

    assert time.monotonic() - begun < QUADRATIC_S
    assert len(set(names)) == len(names)
    assert len(rows) == state.row_count


@pytest.mark.parametrize("name", ["a key per row", "a key per part", "parts inside of an object"])
def test_the_memory_grows_with_the_log(name):
    """By a factor that the price of a column gives."""
    payloads = LOGS[name][:2_000]
    folded(payloads[:10])
    gc.collect()
    tracemalloc.start()
    try:
        state = folded(payloads)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert state.row_count
    assert held < FACTOR * sum(map(len, payloads))


@pytest.mark.parametrize("text", ['"%s"' % ("x" * 1_000_000), "[%s1]" % ("[]," * 300_000)])
def test_a_large_value_costs_its_text(text):
    """Not what a list of lists takes in memory."""
    payloads = [row(at, (("big",), text)) for at in range(3)]
    gc.collect()
    tracemalloc.start()
    try:
        state = folded(payloads)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(state.rows) == 3
    assert held < 2 * sum(map(len, payloads))
