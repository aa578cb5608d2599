"""A log of a million rows: what an export takes in memory does not grow with the file that it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from runferry.logformat import FILE_HEADER, Framer
from support import logs

ROWS, KEYS = 1_000_000, 5
FIRST_STEP = 1_000_000  # all have as many digits
MOST_MB = 450
"""What the columns take (64 MB), the interpreter with pyarrow (100 MB), and pieces of the table in every form."""

EXPORT = """
import re, sys
from runferry.export import Options, export
log, to, out = sys.argv[1:]
problems = any(outcome.problems for outcome in export([log], out, Options(to)))
print(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1])
sys.exit(problems)
"""


def write_log(path):
    """Rows of one template: step and values are put into its bytes."""
    values = {f"m{key}": 0.1234567890123456 for key in range(KEYS)}
    template = logs.row(FIRST_STEP, values).SerializeToString()
    first = b"%d" % FIRST_STEP
    framer, out = Framer(len(FILE_HEADER)), bytearray(FILE_HEADER)
    with path.open("wb") as file:
        framer.append(logs.run_record("million").SerializeToString(), out)
        for row in range(ROWS):
            payload = template.replace(first, b"%d" % (FIRST_STEP + row), 1)
            framer.append(payload.replace(b"0.1234567890123456", b"0.%016d" % (10**15 + row)), out)
            if len(out) > 1 << 20:
                file.write(out)
                out.clear()
        file.write(out)


def export(log, to, out):
    """Export in a process of its own; gives the most that it held in memory, in MB.

    It reads that itself: what the system counts for a child begins with what its parent held when it started it.
    """
    done = subprocess.run([sys.executable, "-c", EXPORT, log, to, out], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read there")
def test_a_million_rows(tmp_path):
    """All of them are in the file, in parts, and the process held no more than columns and a piece of the table."""
    log = tmp_path / "run-million.wandb"
    write_log(log)

    for to in ("parquet", "csv", "jsonl"):
        out = tmp_path / f"rows.{to}"
        assert export(log, to, out) < MOST_MB
        count, steps, sums = duckdb.sql(f"SELECT count(*), count(DISTINCT _step), sum(m3) FROM '{out}'").fetchall()[0]
        assert (count, steps) == (ROWS, ROWS)
        assert sums == pytest.approx(sum(10**15 + row for row in range(ROWS)) / 10**16)
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups > 10
