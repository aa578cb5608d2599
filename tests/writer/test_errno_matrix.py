"""Each of the first 200 calls of the file system refused, or cut short, in a run that lives through much."""

from __future__ import annotations

import errno
import io

import pytest
from runferry.logformat import Gap, GapReason, read_records
from runferry.writer.pump import DRAIN_S, Pump
from runferry.writer.run import Run
from runferry.writer.settings import Settings, resolve
from support import peer
from support.clock import FakeClock
from support.faultfs import FaultFS

CALLS = 200
FAULTS = ("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EINTR", "short by all but 1", "short by 1")
ROWS = 160


class Driven:
    """A run on a faulty disk and a clock of its own, whose writer's thread is the test."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(Pump, "start", lambda pump: pump._journal.open())
        monkeypatch.setattr(Pump, "stop", self._stop)
        self.fs, self.clock, self.warnings = FaultFS(), FakeClock(), []

    def begin(self):
        given = Settings(dir="/data", run_id="abc", silent=True, disable_stats=True, disable_meta=True)
        self.run = Run(resolve(given, None, {}), {"a": 1}, fs=self.fs, clock=self.clock, warn=self.warnings.append)

    def live(self):
        """Rows of many sizes, changes of the config, alerts, flushes, and two full disks of one drain each."""
        self.begin()
        for number in range(ROWS):
            size = 40_000 if number % 25 == 24 else number * 37 % 900
            self.run.log({"n": number, "text": "x" * size})
            if number % 20 == 10:
                self.run.config["lr"] = number
            if number % 30 == 5:
                self.run.alert("title", "text")
            if number in {40, 90}:
                self.fs.fail["write"] = errno.ENOSPC
            self.clock.advance(DRAIN_S if number % 3 else 1.0)
            self.run._pump._drain()
            self.fs.fail.clear()
        return self.run.finish(3)

    @staticmethod
    def _stop(pump, _timeout_s):
        pump._stopping = True
        pump._drain_last()
        pump.ended = True
        return True


def rows_of(log):
    """The rows of a log; only its end may be torn."""
    items = list(read_records(io.BytesIO(log)))
    assert [item.kind for item in items[:2]] == ["header", "run"]
    assert all(not isinstance(item, Gap) or item.reason is GapReason.TORN_TAIL for item in items)
    records = [item for item in items if not isinstance(item, Gap)]
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    values = [item for record in records if record.kind == "history" for item in record.message().item]
    numbers = {int(item.value_json) for item in values if item.key == "n" or list(item.nested_key) == ["n"]}
    return numbers, [record.kind for record in records]


def inject(fs, fault, number):
    if fault.startswith("short"):
        fs.short_at[number] = 1 if fault == "short by all but 1" else -1
    else:
        fs.fail_at[number] = getattr(errno, fault)


def suffer(monkeypatch, fault, number, folder=None):
    """One call goes wrong: training hears nothing, every row is on the device, and the counts say so."""
    driven = Driven(monkeypatch)
    inject(driven.fs, fault, number)
    report = driven.live()
    case = fault, number, driven.fs.calls[number : number + 1]

    assert report.rows_written + report.rows_dropped + report.rows_unsure == ROWS, case
    assert (report.rows_written, report.complete) == (ROWS, True), (case, report)
    assert len(driven.warnings) <= 3, (case, driven.warnings)
    held, ends = set(), 0
    for file in driven.fs.files.values():
        if file.durable:  # else a new log has all that it held
            numbers, kinds = rows_of(file.durable)
            held |= numbers
            ends += kinds.count("exit")
    assert (held, ends) == (set(range(ROWS)), 1), case
    for log in driven.fs.logs():
        kinds = rows_of(log)[1]
        if folder is not None:
            (folder / "run-abc.wandb").write_bytes(log)
            read = peer.inspect(folder / "run-abc.wandb")
            assert [entry["type"] for entry in read if "type" in entry] == kinds, case
    assert driven.fs.open_count == 0, case


def test_a_run_makes_many_calls(monkeypatch):
    """The run that the matrix is about makes more calls than are refused, and every kind that matters."""
    driven = Driven(monkeypatch)
    driven.live()

    assert len(driven.fs.calls) > CALLS
    assert set(driven.fs.calls[:CALLS]) >= {"make_directories", "create", "write", "name", "truncate", "sync_data"}


@pytest.mark.parametrize("fault", FAULTS)
def test_some_calls_fail(monkeypatch, fault, tmp_path):
    """A fixed part of the matrix; the peer reads the logs of one case to their last record."""
    for number in [*range(14), *range(14, CALLS, 17)]:
        suffer(monkeypatch, fault, number, tmp_path if number == 65 and not peer.missing() else None)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_call_fails(monkeypatch, fault, tmp_path):
    """All of it; the peer reads the logs of every tenth case."""
    for number in range(CALLS):
        suffer(monkeypatch, fault, number, tmp_path if number % 10 == 5 and not peer.missing() else None)


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "ESTALE"])
def test_what_never_got_to_a_disk_is_counted(monkeypatch, fault):
    """From some call on everything fails to the end: what the logs hold and what is reported lost is what was logged."""
    for number in range(0, CALLS, 10):
        driven = Driven(monkeypatch)
        operations = {"write", "create", "sync_data", "sync_file"}

        def refuse(operation, driven=driven, number=number, operations=operations):
            if len(driven.fs.calls) >= number and operation in operations:
                raise OSError(getattr(errno, fault), "no")

        driven.fs.before = refuse
        report = driven.live()
        held = set().union(*(rows_of(bytes(log))[0] for log in driven.fs.logs()))

        assert report.rows_written + report.rows_dropped + report.rows_unsure == ROWS
        assert not report.complete
        assert held == set(range(len(held)))
        assert report.rows_written == len(held) or report.rows_written + report.rows_dropped == ROWS
        assert report.rows_dropped >= ROWS - len(held)
