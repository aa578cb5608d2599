"""The metrics file of a sync: OpenMetrics text that a scraper may read at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from runferry.sync.counters import Counted, Counters
from runferry.sync.errors import Interrupted, Retryable
from runferry.sync.metricsfile import Family, MetricsFile, exposition
from runferry.sync.report import Finished, Paused, Planned, Progress, Retrying, RunReport, Started, Verdict
from runferry.sync.transport import Answer, Request
from support.clock import FakeClock
from support.openmetrics import parse


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def open_file(path: Path, clock: FakeClock, counters: Counters | None = None) -> MetricsFile:
    return MetricsFile(path, counters or Counters(), now=clock.time, monotonic=clock.monotonic, version='1.0"\\x')


def test_every_metric_has_type_unit_and_help(tmp_path: Path, clock: FakeClock) -> None:
    """The file is valid from the first moment, with every metric at its start value."""
    open_file(tmp_path / "m.prom", clock)
    found = parse((tmp_path / "m.prom").read_text())

    assert found["runferry_sync_requests_total"][(("code", "429"),)] == 0
    assert found["runferry_sync_verdicts"][(("verdict", "synced"),)] == 0
    assert found["runferry_sync_start_time_seconds"] == {(): clock.time()}
    assert "runferry_sync_exit_code" not in found


def test_what_happened_is_counted(tmp_path: Path, clock: FakeClock) -> None:
    """Requests by class, bytes, rows, files, retries, waits and verdicts, as they stand at the last tick."""
    counters = Counters()
    answers = iter([Answer(200, {}, b"abc"), Answer(429, {}, b""), Answer(503, {}, b"no"), Retryable("reset")])

    class Script:
        def send(self, request: Request) -> Answer:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    transport = Counted(Script(), counters)
    for _ in range(3):
        transport.send(Request("POST", "http://x", {}, b"12345"))
    with pytest.raises(Retryable):
        transport.send(Request("POST", "http://x", {}, b"12345"))
    file = open_file(tmp_path / "m.prom", clock, counters)
    tell = counters.watching(file)
    tell(Planned(1, 2))
    tell(Started("a", "r", "t", 10, 10))
    tell(Progress("a", 4, 10))
    tell(Retrying("rows of r", "HTTP 503", 2.5, 0.0, 1))
    tell(Paused("rows of r", "429", 30.0))
    clock.advance(12)
    file.tick()
    found = parse((tmp_path / "m.prom").read_text())

    requests = {labels[0][1]: value for labels, value in found["runferry_sync_requests_total"].items()}
    assert requests == {"2xx": 1, "3xx": 0, "4xx": 0, "429": 1, "5xx": 1, "none": 1}
    assert found["runferry_sync_sent_bytes_total"][()] == 15
    assert found["runferry_sync_received_bytes_total"][()] == 5
    assert found["runferry_sync_rows_total"][()] == 4
    assert found["runferry_sync_active_logs"][()] == 1
    assert found["runferry_sync_retries_total"][()] == 1
    assert found["runferry_sync_wait_seconds_total"] == {(("cause", "retry"),): 2.5, (("cause", "limit"),): 30.0}
    assert found["runferry_sync_duration_seconds"][()] == 12
    tell(RunReport("a", "r", Verdict.PARTIAL, "gap", rows=10, rows_sent=10, files_sent=3))
    tell(Finished(1, {"partial": 1}))
    file.close()
    found = parse((tmp_path / "m.prom").read_text())
    assert found["runferry_sync_verdicts"][(("verdict", "partial"),)] == 1
    assert (found["runferry_sync_rows_total"][()], found["runferry_sync_files_total"][()]) == (10, 3)
    assert found["runferry_sync_exit_code"][()] == 1


def test_an_interrupt_is_no_answer() -> None:
    """A request that the user stopped is not counted as one that failed."""
    counters = Counters()

    class Stopped:
        def send(self, _: Request) -> Answer:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        Counted(Stopped(), counters).send(Request("GET", "http://x"))
    assert sum(counters.read().answers.values()) == 0


def test_the_last_success_outlives_a_failure(tmp_path: Path, clock: FakeClock) -> None:
    """An alert asks how long ago everything was brought over, so a sync that fails keeps what the one before said."""
    path = tmp_path / "m.prom"
    first = open_file(path, clock)
    first(RunReport("a", "r", Verdict.SYNCED, ""))
    first(Finished(0))
    first.close()
    success = clock.time()
    clock.advance(3600)
    second = open_file(path, clock)
    second(RunReport("a", "r", Verdict.FAILED, "HTTP 500"))
    second(Finished(1))
    second.close()
    found = parse(path.read_text())

    assert found["runferry_sync_last_success_timestamp_seconds"] == {(): success}


def test_a_sync_halfway_is_no_success_yet(tmp_path: Path, clock: FakeClock) -> None:
    """The first logs may be synced and a later one fail: the file says nothing of success before all have a verdict."""
    path = tmp_path / "m.prom"
    file = open_file(path, clock)
    file(Planned(2, 2))
    file(RunReport("a", "r", Verdict.SYNCED, ""))
    file.tick()
    assert "runferry_sync_last_success_timestamp_seconds" not in parse(path.read_text())
    file(RunReport("b", "s", Verdict.SYNCED, ""))
    file.tick()

    assert "runferry_sync_last_success_timestamp_seconds" in parse(path.read_text())


def test_types_are_those_that_every_parser_knows(tmp_path: Path, clock: FakeClock) -> None:
    """The parser of node_exporter's textfile collector refuses a whole file for one type that it does not know, such as `info`."""
    open_file(tmp_path / "m.prom", clock)
    text = (tmp_path / "m.prom").read_text()

    assert {line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")} == {"counter", "gauge"}
    assert parse(text)["runferry_sync_build_info"] == {(("version", r"1.0\"\\x"),): 1}


def test_a_watch_with_nothing_undone_is_a_success(tmp_path: Path, clock: FakeClock) -> None:
    """A watch has no exit code for weeks: it succeeds as long as no log has trouble."""
    path = tmp_path / "m.prom"
    file = open_file(path, clock)
    file(RunReport("a", "r", Verdict.LIVE, ""))
    clock.advance(100)
    file.tick()
    good = clock.time()
    file(RunReport("b", "s", Verdict.FAILED, ""))
    clock.advance(100)
    file.tick()

    assert parse(path.read_text())["runferry_sync_last_success_timestamp_seconds"] == {(): good}


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path, clock: FakeClock) -> None:
    """A wrong path is an error before anything is sent; a directory that goes later stops nothing."""
    with pytest.raises(OSError, match="No such file"):
        open_file(tmp_path / "none" / "m.prom", clock)
    (tmp_path / "there").mkdir()
    file = open_file(tmp_path / "there" / "m.prom", clock)
    (tmp_path / "there" / "m.prom").unlink()
    (tmp_path / "there").rmdir()

    file.close()


def test_labels_are_escaped() -> None:
    """Quotes, backslashes and newlines in a label or help keep the file valid."""
    family = Family("x", "gauge", 'a\n"b"\\', {(("name", 'q"\\\n'),): 1})

    assert exposition([family]) == (
        "# TYPE runferry_sync_x gauge\n"
        '# HELP runferry_sync_x a\\n"b"\\\\\n'
        'runferry_sync_x{name="q\\"\\\\\\n"} 1\n'
        "# EOF\n"
    )
