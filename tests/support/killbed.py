"""A process that forks processes that are killed: everything is imported once, so that a child costs milliseconds.

    killbed.py random FOLDER LEVEL FIRST_SEED COUNT PARALLEL
    killbed.py points FOLDER             with cases on stdin, one JSON object a line

Prints one JSON object per killed child. Each child logs to a folder of its own, and notes in shared memory which calls
of `log` had returned, and when.
"""

from __future__ import annotations

import heapq
import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path

import runferry
from runferry.logformat import Gap, GapReason, RunState, read_records
from runferry.writer import recorder  # noqa: F401 - so that no child has to import it
from support.killpoints import KillingFS, play

QUIET = {"silent": True, "disable_stats": True, "disable_meta": True, "log_guides": False}
MOST_ACKS = 65_536
WAYS = [(10, 0.02, ""), (1, 0.001, ""), (2, 0.004, "x" * 9000), (1, 0.002, ""), (1, 0.3, "")]
"""Rows at a time, seconds between them, a value: bursts, one by one, long ones that meet the edges of blocks, with steps
given, and so rarely that the writer's thread sleeps meanwhile."""
STEPS, RARELY = 3, 4
KEEP_EVERY = 50
"""The log of every so many children is kept for the peer's reader."""


class Acks:
    """Shared with one child: when each call of `log` had returned, in monotonic seconds."""

    def __init__(self):
        self._map = mmap.mmap(-1, 8 * MOST_ACKS)
        self.count = 0

    def clear(self):
        self._map[:] = bytes(8 * MOST_ACKS)

    def add(self):
        """In the child: one more."""
        struct.pack_into("d", self._map, 8 * self.count, time.monotonic())
        self.count += 1

    def read(self):
        """In the parent, once the child is dead."""
        times = memoryview(self._map).cast("d")
        found = []
        for at in times:
            if not at:
                break
            found.append(at)
        return found


def spawn(work):
    """Fork a child that does `work` and never comes back."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(97)


def tell(result):
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def begin(folder, level, **more):
    return runferry.init(dir=folder, id="k", durability=level, settings=QUIET, **more)


# -- random moments --------------------------------------------------------------------------------------------------


def log_for_ever(folder, level, acks, seed):
    """Rows in one of five ways."""
    way = seed % len(WAYS)
    rows, pause, text = WAYS[way]
    run = begin(folder, level)
    number = 0
    while number < MOST_ACKS - 16:
        for _ in range(rows):
            step = 2 * number if way == STEPS else None
            run.log({"n": number, "loss": 1.0 / (number + 1), "text": text}, step=step)
            acks.add()
            number += 1
        time.sleep(pause)
    time.sleep(60)


def read(folder):
    """(rows' numbers, log) of the one log in a folder; none if there is none. Only its end may be torn."""
    logs = list(Path(folder).glob("wandb/run-*/run-k.wandb"))
    if not logs:
        return [], None
    (log,) = logs
    items = list(read_records(log))
    assert all(not isinstance(item, Gap) or item.reason is GapReason.TORN_TAIL for item in items), log
    state = RunState().add_all(item for item in items if not isinstance(item, Gap))
    assert state.has_run, log
    return [row["n"] for row in state.rows], log


def random_kills(folder, level, first, count, parallel):
    free = [Acks() for _ in range(parallel)]
    running, seeds = [], iter(range(first, first + count))
    while True:
        while free and (seed := next(seeds, None)) is not None:
            case = folder / str(seed)
            case.mkdir()
            acks = free.pop()
            acks.clear()
            pid = spawn(lambda case=case, acks=acks, seed=seed: log_for_ever(case, level, acks, seed))
            soonest, latest = (0.3, 0.75) if seed % len(WAYS) == RARELY else (0.02, 0.4)
            due = time.monotonic() + random.Random(seed).uniform(soonest, latest)
            heapq.heappush(running, (due, seed, pid, case, acks))
        if not running:
            return
        due, seed, pid, case, acks = heapq.heappop(running)
        time.sleep(max(due - time.monotonic(), 0))
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        done = acks.read()
        rows, log = read(case)
        assert rows == list(range(len(rows))), log
        lost = done[len(rows) :]
        age = killed - lost[0] if lost else 0.0
        kept = log is not None and seed % KEEP_EVERY == 0
        result = {"seed": seed, "acknowledged": len(done), "lost": len(lost), "age": age}
        tell(result | ({"log": str(log)} if kept else {}))
        if not kept:
            shutil.rmtree(case)
        free.append(acks)


# -- named points ----------------------------------------------------------------------------------------------------


def killed_at(folder, case, acks):
    """One child killed at a named point, and one that begins the run anew in the same folder."""
    acks.clear()
    pid = spawn(lambda: play(begin, folder, case, acks, KillingFS(case)))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    before = {str(log): log.stat().st_size for log in Path(folder).glob("wandb/run-*/run-k.wandb")}

    def again():
        run = begin(folder, "record", resume="allow")
        run.log({"again": 1})
        report = run.finish()
        os._exit(0 if report.complete and report.rows_written == 1 else 98)

    pid = spawn(again)
    again_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    grown = [log for log, size in before.items() if Path(log).stat().st_size != size]
    return {"name": case["name"], "seed": case["seed"], "code": code, "acknowledged": len(acks.read())} | {
        "logs": sorted(before),
        "again": again_code,
        "grown": grown,
        "after": sorted(map(str, Path(folder).glob("wandb/run-*/run-k.wandb"))),
    }


def points(folder):
    acks = Acks()
    for number, line in enumerate(sys.stdin):
        case = folder / str(number)
        case.mkdir()
        tell(killed_at(case, json.loads(line), acks))


# -- from a test -----------------------------------------------------------------------------------------------------


def bed(*arguments, stdin="", timeout_s=280):
    """What a killbed prints, as dicts; its failure is the test's."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        env=environ,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[done.stderr.index("Traceback") :][:4000]
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    mode, where, *rest = sys.argv[1:]
    if mode == "random":
        random_kills(Path(where), rest[0], *map(int, rest[1:]))
    else:
        points(Path(where))
