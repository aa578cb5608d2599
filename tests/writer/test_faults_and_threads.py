"""Threads that log to a disk that fails now and then: whatever happens, every row is counted once."""

from __future__ import annotations

import errno
import io
import json
import random
import threading
import time

import pytest
from runferry.logformat import Gap, GapReason, read_records
from runferry.writer import journal, pump
from support.faultfs import FaultFS

THREADS = 4
LEVELS = ("relaxed", "normal", "record", "disk")


def rows_of(log):
    """(thread, number) of each row; only the end may be torn."""
    found = []
    for item in read_records(io.BytesIO(log)):
        if isinstance(item, Gap):
            assert item.reason is GapReason.TORN_TAIL
        elif item.kind == "history":
            values = {"".join(value.nested_key) or value.key: value.value_json for value in item.message().item}
            found.append((json.loads(values["thread"]), json.loads(values["n"])))
    return found


def suffer(begin, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(journal, "MAX_QUEUED_BYTES", rng.choice([2000, 2**26, 2**26]))
    fs, failing = FaultFS(), threading.Event()

    def fail_sometimes(_operation):
        if failing.is_set() and rng.random() < 0.5:
            raise OSError(rng.choice([errno.EIO, errno.ENOSPC, errno.ESTALE]), "now and then")

    fs.before = fail_sometimes
    fs.short = rng.choice([None, None, rng.randint(1, 5000)])
    if rng.random() < 0.3:
        failing.set()
    run = begin(fs=fs, warn=lambda _: None, durability=LEVELS[seed % 4], run_id=f"s{seed}", log_guides=False)
    each = rng.randint(5, 40)

    def work(which):
        own = random.Random(seed * 100 + which)
        for number in range(each):
            run.log({"thread": which, "n": number, "text": "x" * own.choice([1, 10, 1000, 40_000])})
            if own.random() < 0.1:
                run.config[f"k{which}"] = number
            time.sleep(own.random() * 0.002)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(rng.random() * 0.02)
        failing.set() if rng.random() < 0.5 else failing.clear()
    fails_to_the_end = rng.random() < 0.3
    failing.set() if fails_to_the_end else failing.clear()
    report = run.finish()

    held = {row for file in fs.files.values() for row in rows_of(file.durable)}
    seen = {row for log in fs.logs() for row in rows_of(log)}
    case = seed, report
    assert report.rows_written + report.rows_dropped + report.rows_unsure == THREADS * each, case
    assert len(seen) >= report.rows_written, case
    assert not report.complete or held == {(which, n) for which in range(THREADS) for n in range(each)}, case
    assert report.complete or fails_to_the_end or journal.MAX_QUEUED_BYTES == 2000, case


@pytest.fixture
def hurry(monkeypatch):
    """A disk that answers with errors is tried again at once, and not for long at the end."""
    monkeypatch.setattr(pump, "FINISH_RETRY_S", 0.3)
    monkeypatch.setattr(journal, "FIRST_RETRY_S", 0.005)
    monkeypatch.setattr(journal, "LAST_RETRY_S", 0.05)


def test_every_row_is_counted_once(begin, monkeypatch, hurry):
    """Written, dropped and unsure rows are all that were logged, and what is reported complete is on the device."""
    for seed in range(12):
        suffer(begin, monkeypatch, seed)


@pytest.mark.slow
def test_every_row_is_counted_once_many_times(begin, monkeypatch, hurry):
    """The same with other faults and paces."""
    for seed in range(100, 400):
        suffer(begin, monkeypatch, seed)
