"""SIGKILL at random moments: what each level loses is what it says. Real processes, forked from one that is warm."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from runferry.logformat import Gap, read_records
from support import peer
from support.killbed import bed

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")

PROMISES_S = {"relaxed": 1.0, "normal": 0.02, "record": 0.0, "disk": 0.0}
"""Level -> how old a row may be that is lost."""
SCHEDULING_S = 0.25
"""`normal` and `relaxed` promise for a process that gets its share of a core. Here many share two with each other and
with whatever else runs: a thread that is due may wait for several time slices of all of them. What exceeds the bare
promise is counted and printed, and may be one kill in ten (and three more); nothing may exceed it by more than this."""
PARALLEL = 8


def kills(folder, level, first, count):
    results = bed("random", folder, level, first, count, PARALLEL)
    promise = PROMISES_S[level]
    late = [result["age"] for result in results if result["age"] > promise]
    sys.stdout.write(
        f"{level}, seeds {first} to {first + count - 1}: {sum(result['acknowledged'] for result in results)} rows"
        f" acknowledged, {sum(result['lost'] for result in results)} lost, the oldest"
        f" {max(result['age'] for result in results) * 1000:.1f} ms old; {len(late)} kills beyond the bare promise\n"
    )

    assert len(results) == count
    assert sum(result["acknowledged"] > 0 for result in results) > 0.4 * count  # on a loaded machine many begin late
    assert max(late, default=0.0) <= promise + (SCHEDULING_S if promise else 0.0)
    assert len(late) <= 0.1 * count + 3
    for result in results:
        if "log" in result and not peer.missing():
            ours = [record.kind for record in read_records(result["log"]) if not isinstance(record, Gap)]
            assert [entry["type"] for entry in peer.inspect(Path(result["log"])) if "type" in entry] == ours


@pytest.mark.parametrize("level", PROMISES_S)
def test_sigkill_loses_what_the_level_says(tmp_path, level):
    """Every row older than the level's bound is there, in order and whole; the peer reads the log to its last record."""
    kills(tmp_path, level, 0, 25)


@pytest.mark.slow
@pytest.mark.parametrize("level", PROMISES_S)
def test_sigkill_a_thousand_times(tmp_path, level):
    """The same, a thousand times per level."""
    kills(tmp_path, level, 1000, 1000)
