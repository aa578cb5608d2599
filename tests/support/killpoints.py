"""The points at which a process is killed: before, in the middle of and after each thing that the writer does to a disk."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import time
from typing import NamedTuple

import runferry
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.run import Run

BEFORE, PARTLY, AFTER = "before", "partly", "after"


class Point(NamedTuple):
    """The `nth` call (from 1) of one operation of the file system in one phase of the run's life."""

    phase: str
    operation: str
    nth: int
    moment: str

    @property
    def name(self) -> str:
        return f"{self.phase}: {self.moment} {self.operation} {self.nth}"


def _each(phase, *operations):
    """Points around operations; a write also in its middle. `operation*3`: its first three calls."""
    found = []
    for operation in operations:
        name, _, times = operation.partition("*")
        moments = (BEFORE, PARTLY, AFTER) if name == "write" else (BEFORE, AFTER)
        found += [Point(phase, name, nth + 1, moment) for nth in range(int(times or 1)) for moment in moments]
    return found


POINTS = [
    # The first log of a folder: directories, the log under its first name, its opening, its name, the link, the sync.
    *_each("opening", "make_directories", "make_directory*2", "create", "write", "name", "replace_link"),
    *_each("opening", "put", "sync_file", "sync_directory*3"),
    *_each("rows", "identity", "write*2"),
    *_each("long rows", "write*2"),  # of several blocks
    *_each("config", "write", "sync_data"),
    *_each("flush", "write", "sync_data"),
    # A media file: copied under another name, moved to its own, and synced before the row that names it.
    *_each("media", "make_directories*2", "create", "write*2", "close", "sync_file", "sync_directory", "sync_data"),
    *_each("full disk", "truncate", "write*2"),  # the first write is refused half way
    # A failed sync: the file is let go, and a new log begins.
    *_each("failed sync", "close", "make_directory", "create", "write*2", "name", "replace_link", "sync_file"),
    # A torn record that cannot be cut off: the same.
    *_each("torn", "truncate", "close", "create", "write*2", "name"),
    *_each("deleted", "name_count", "close", "create", "write*2", "name"),
    *_each("finish", "write", "sync_data", "close", "remove"),
    *_each("exit", "write", "sync_data", "close"),
    *_each("signal", "write*2", "sync_data", "close"),
]
ENDS = {"finish", "exit", "signal"}
LEVELS = ("record", "disk", "normal", "relaxed")


def case_of(point, seed):
    """As JSON, for a killbed."""
    return point._asdict() | {"name": point.name, "seed": seed, "level": LEVELS[seed % len(LEVELS)]}


class KillingFS:
    """The real file system of a process that kills itself at a point. `faults` are refused: (operation, error)."""

    def __init__(self, case):
        self._real = RealFileSystem()
        self._target = case["phase"], case["operation"], case["nth"]
        self._moment = case["moment"]
        self._counts = {}
        self._phase = "opening"
        self.faults = []
        self.sound = True

    def enter(self, phase, *faults):
        self._phase, self.faults, self.sound = phase, list(faults), not faults

    def __getattr__(self, operation):
        def call(*arguments):
            key = self._phase, operation
            self._counts[key] = self._counts.get(key, 0) + 1
            hit = (*key, self._counts[key]) == self._target
            if hit and self._moment == BEFORE:
                die()
            if hit and self._moment == PARTLY:
                self._half(*arguments)
                die()
            try:
                return self._do(operation, arguments)
            finally:
                if hit:
                    die()

        return call

    def _do(self, operation, arguments):
        fault = next((fault for fault in self.faults if fault[0] == operation), None)
        if fault is None:
            return getattr(self._real, operation)(*arguments)
        self.faults.remove(fault)
        if operation == "write":
            self._half(*arguments)
        raise OSError(fault[1], os.strerror(fault[1]))

    def _half(self, fd, data):
        self._real.write(fd, data[: len(data) // 2])


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def play(begin, folder, case, acks, fs):
    """A run's life, phase by phase, as far as the point; `acks` counts the rows that its level holds."""
    make_run(fs)
    rng = random.Random(case["seed"])
    run = begin(folder, case["level"])
    logged = itertools.count()

    def rows(size=0):
        """Log some; on a sound disk two levels hold each at once, and whatever happened `flush` says whether all are."""
        for _ in range(rng.randint(2, 4)):
            number = next(logged)
            run.log({"n": number, "text": "x" * (size and rng.randint(size // 2, size))})
            if (fs.sound and case["level"] in {"record", "disk"}) or run.flush():
                while acks.count <= number:
                    acks.add()

    assert run.flush()
    phases = {
        "rows": rows,
        "long rows": lambda: rows(100_000),
        "config": lambda: (run.config.update({"a": rng.random()}), time.sleep(0.05)),
        "flush": lambda: (run.summary.update({"best": rng.random()}), run.flush()),
        "media": lambda: (run.log({"page": runferry.Html("<p>" + "x" * 5000)}), run.flush()),
        "full disk": lambda: (rows(500), time.sleep(0.15), rows(), run.flush()),
        "failed sync": lambda: (rows(), run.flush(), rows(), run.flush()),
        "torn": lambda: (rows(), time.sleep(0.15), rows(), run.flush()),
        "deleted": lambda: (run.log_path.unlink(), rows(), run.flush(), rows(), run.flush()),
        "finish": run.finish,
        "exit": lambda: leave(run),
        "signal": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }
    faults = {
        "full disk": [("write", errno.ENOSPC)],
        "failed sync": [("sync_data", errno.EIO)],
        "torn": [("write", errno.EIO), ("truncate", errno.EIO)],
    }
    rows()  # some are there whatever comes
    for phase, act in phases.items():
        if phase == case["phase"] or (phase in {"rows", "full disk"} and case["seed"] % 2):
            fs.enter(phase, *faults.get(phase, ()))
            act()
    raise AssertionError(f"{case['name']} was not met")


def leave(run):
    import atexit

    atexit._run_exitfuncs()


def make_run(fs):
    """Every run of this process is on `fs`."""
    real = Run.__init__

    def init(self, *arguments, **options):
        real(self, *arguments, fs=fs, **options)

    Run.__init__ = init
