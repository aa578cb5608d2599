"""The console's way into the log: pieces joined to records, bounds, and the streams that are taken."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from runferry.logformat import messages
from runferry.writer import console
from runferry.writer.console import ConsoleLog, Fan, capture
from runferry.writer.descriptors import identity
from runferry.writer.tee import StreamTees

MS = 1_000_000


class Recorder:
    """Keeps the records of the console, as (stream, milliseconds, text)."""

    def __init__(self):
        self.records = []

    def record(self, body, *, bulk):
        assert bulk
        found = messages.Record.FromString(body).output_raw
        time_ns = found.timestamp.seconds * 10**9 + found.timestamp.nanos
        self.records.append(("stdout" if found.output_type else "stderr", time_ns / MS, found.line))


class Bench:
    """A console log whose writer's thread runs when it is told, at a time that is told."""

    def __init__(self):
        self.now_ms, self.jobs, self.warnings, self.slept = 0, [], [], 0.0
        self.recorder = Recorder()
        self.log = ConsoleLog(
            self.jobs.append,
            self.warnings.append,
            now_ns=lambda: int(self.now_ms * MS),
            monotonic=lambda: self.slept,
            sleep=self.sleep,
        )

    def sleep(self, seconds):
        self.slept += seconds

    def add(self, *pieces):
        """Each piece is (milliseconds, stream, data)."""
        for self.now_ms, stream, data in pieces:
            self.log.add(stream, data)

    def drain(self):
        while self.jobs:
            self.jobs.pop(0)(self.recorder)
        return self.recorder.records


@pytest.fixture
def bench():
    return Bench()


def test_pieces_of_one_moment_are_one_record(bench):
    """Within 20 ms of the first piece they are joined under its time; what comes later begins a record."""
    bench.add((0, "stdout", "a"), (1, "stdout", "\n"), (20, "stdout", "b"), (21, "stdout", "c"), (60, "stdout", "d"))

    assert bench.drain() == [("stdout", 0, "a\nb"), ("stdout", 21, "c"), ("stdout", 60, "d")]


def test_streams_keep_their_order(bench):
    """What is between two pieces of a stream stays between them."""
    bench.add((0, "stdout", "a"), (0, "stderr", "b"), (0, "stdout", "c"), (0, "stdout", "d"))

    assert bench.drain() == [("stdout", 0, "a"), ("stderr", 0, "b"), ("stdout", 0, "cd")]


def test_a_clock_that_goes_back_begins_a_record(bench):
    """No piece gets a time that is later than its own."""
    bench.add((100, "stdout", "a"), (50, "stdout", "b"))

    assert bench.drain() == [("stdout", 100, "a"), ("stdout", 50, "b")]


def test_records_have_a_largest_size(bench):
    """A huge write becomes several records, and small ones are joined up to that size only."""
    bench.add((0, "stdout", "x" * 150_000), *[(1, "stdout", "y" * 30_000)] * 3)
    found = bench.drain()

    assert [len(text) for _, _, text in found] == [65_536, 65_536, 18_928, 60_000, 30_000]
    assert "".join(text for _, _, text in found) == "x" * 150_000 + "y" * 90_000


def test_characters_cut_between_two_writes_are_whole(bench):
    """Bytes are UTF-8 across pieces and across drains; each stream has its own rest."""
    bench.add((0, "stdout", b"\xc3"), (0, "stderr", b"\xe2\x82"), (0, "stdout", b"\xa9"))
    bench.drain()
    bench.add((0, "stderr", b"\xac"), (0, "stdout", b"\xff."))

    assert bench.drain() == [("stdout", 0, "é"), ("stderr", 0, "€"), ("stdout", 0, "\ufffd.")]


def test_half_a_character_at_the_end_is_shown(bench):
    """Nothing that was written is without a trace."""
    bench.add((0, "stdout", b"a\xc3"))
    bench.log.close()

    assert bench.drain() == [("stdout", 0, "a"), ("stdout", 0, "\ufffd")]


def test_text_that_is_no_unicode_is_logged(bench):
    """Lone surrogates (file names on a wrong locale) and NUL do not cost the rest."""
    bench.add((0, "stdout", "a\udcffb\0c"))

    assert bench.drain() == [("stdout", 0, "a\ufffdb\0c")]


def test_one_job_serves_all_that_waits(bench):
    """Writing costs an append: the thread is asked once, however much is written."""
    bench.add(*[(0, "stdout", "x")] * 1000)

    assert len(bench.jobs) == 1
    assert bench.drain() == [("stdout", 0, "x" * 1000)]
    bench.add((0, "stdout", "y"))
    assert len(bench.jobs) == 1


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_writer_that_is_held_up_costs_a_tenth_of_a_second_once(bench, monkeypatch, size):
    """What waits is bounded by pieces and by characters; what finds no room is counted, and named once."""
    monkeypatch.setattr(console, "MAX_WAITING_PIECES", 100)
    bench.add(*[(0, "stdout", "x" * size)] * 300)

    assert 0.1 <= bench.slept < 0.2
    assert bench.log.dropped == 300  # those that still wait too: should the run end now, nobody takes them
    assert len(bench.warnings) == 1
    kept = sum(len(text) for _, _, text in bench.drain()) // size
    assert kept == (100 if size == 1 else 34)
    assert bench.log.dropped == 300 - kept

    bench.add((0, "stdout", "again"))
    assert bench.drain()[-1] == ("stdout", 0, "again")

    bench.add(*[(0, "stdout", "x" * size)] * 300)
    assert bench.slept >= 0.2  # it was held up anew


def test_a_count_that_is_off_does_no_harm(bench):
    """Threads that count at once may get the size of what waits wrong: until nothing waits, no longer."""
    bench.add((0, "stdout", "a"))
    bench.log._characters += console.MAX_WAITING_CHARACTERS
    bench.drain()
    bench.add((0, "stdout", "b"))

    assert bench.drain() == [("stdout", 0, "a"), ("stdout", 0, "b")]
    assert bench.slept == 0


def test_nothing_is_taken_after_the_end(bench):
    """Threads that go on printing are no error."""
    bench.log.close()
    bench.add((0, "stdout", "late"))
    bench.log.close()

    assert bench.drain() == []


def test_many_threads_lose_nothing(bench):
    """Adding takes no lock, and a piece that comes during a drain is in that one or in the next."""
    ended = threading.Event()

    def work(number):
        for count in range(500):
            bench.log.add("stdout", f"{number}.{count}\n")

    def drain():
        while not ended.is_set():
            bench.drain()

    drainer = threading.Thread(target=drain)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in [drainer, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    drainer.join()
    lines = "".join(text for _, _, text in bench.drain()).splitlines()

    assert sorted(lines) == sorted(f"{number}.{count}" for number in range(20) for count in range(500))


# -- streams -----------------------------------------------------------------------------------------------------------


class Told:
    """A sink that keeps what it is told."""

    def __init__(self):
        self.pieces = []

    def add(self, stream, data):
        self.pieces.append((stream, data))

    @property
    def joined(self):
        return "".join(data if isinstance(data, str) else data.decode("utf-8", "replace") for _, data in self.pieces)


class Written(io.BytesIO):
    """A file that can be looked at after its text stream was closed."""

    def close(self):
        self.flush()


@contextlib.contextmanager
def own_streams():
    """Both streams as text over bytes that can be looked at (`bytes_of`). In the test: pytest sets its own before it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdout", "stderr"):
            written = Written()
            stream = io.TextIOWrapper(io.BufferedWriter(written), encoding="utf-8")
            stream.written = written
            patch.setattr(sys, name, stream)
        yield


@contextlib.contextmanager
def taken():
    """Both streams of our own, and taken."""
    with own_streams():
        sink = Told()
        tees = StreamTees(sink)
        tees.start()
        try:
            yield sink
        finally:
            tees.stop()


def bytes_of(stream):
    stream.flush()
    return stream.written.getvalue()


def test_every_way_to_write_text_is_told_once():
    """`print`, its parts, `writelines`, flushes and carriage returns, each at the moment of the call."""
    with taken() as told:
        print("a", "b", flush=True)  # noqa: T201 - what is tested
        sys.stdout.writelines(["c\n", "d"])
        sys.stdout.write("\r 50%")
        sys.stderr.write("e")

        assert told.joined == "a b\nc\nd\r 50%e"
        assert ("stderr", "e") in told.pieces
        assert bytes_of(sys.stdout) == b"a b\nc\nd\r 50%"


def test_bytes_are_told():
    """What goes to the buffer is no text that was written before and is flushed now."""
    with taken() as told:
        sys.stdout.write("text ")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\xff\xc3\xa9 ")
        sys.stdout.buffer.write(memoryview(bytearray(b"view ")))
        sys.stdout.buffer.writelines([b"lines"])
        sys.stdout.write("!" * 20_000)  # more than the text layer holds
        with contextlib.suppress(OSError):
            sys.stdout.tell()

        assert told.joined == "text \ufffdé view lines" + "!" * 20_000
        assert bytes_of(sys.stdout) == b"text \xff\xc3\xa9 view lines" + b"!" * 20_000


def test_bytes_that_change_later_are_told_as_they_were():
    """The log has a copy."""
    with taken() as told:
        data = bytearray(b"one")
        sys.stdout.buffer.write(data)
        data[:] = b"two"

        assert told.pieces == [("stdout", b"one")]


def test_a_raw_stream_takes_what_it_takes():
    """Unbuffered output (`python -u`) may take a part, or nothing; only that is told."""
    with own_streams():
        counts = [2, None]
        raw = SimpleNamespace(write=lambda data: counts.pop(0))
        sys.stdout = SimpleNamespace(write=len, flush=lambda: None, tell=lambda: 0, buffer=raw)
        sink = Told()
        tees = StreamTees(sink)
        tees.start()
        results = [raw.write(b"abc"), raw.write(b"def")]
        tees.stop()

        assert results == [2, None]
        assert sink.joined == "ab"


def test_streams_made_around_the_buffer_are_told():
    """The idiom for another encoding of the output."""
    with taken() as told:
        sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", line_buffering=True)
        sys.stdout.write("anew\n")

        assert told.joined == "anew\n"


def test_logging_handlers_are_told():
    """They hold the stream that there was when they were made."""
    with taken() as told:
        handler = logging.StreamHandler(sys.stderr)
        handler.emit(logging.LogRecord("n", logging.INFO, "", 0, "message", (), None))

        assert told.joined == "message\n"


def test_output_that_the_program_sends_elsewhere_is_not_told():
    """What does not reach the console is not the console's."""
    with taken() as told:
        with contextlib.redirect_stdout(io.StringIO()) as elsewhere:
            sys.stdout.write("x")

        assert (told.joined, elsewhere.getvalue()) == ("", "x")


@pytest.mark.parametrize(
    "error", [BrokenPipeError("gone"), OSError(28, "full"), KeyboardInterrupt(), ValueError("odd")]
)
def test_the_streams_own_error_reaches_the_caller(error):
    """As without us, and nothing is told that was not written."""
    with own_streams():

        def refuse(text):
            raise error

        sys.stdout.write = refuse
        sink = Told()
        tees = StreamTees(sink)
        tees.start()
        with pytest.raises(type(error)) as caught:
            sys.stdout.write("x")
        tees.stop()

        assert caught.value is error
        assert sink.pieces == []
        assert sys.stdout.write is refuse


def test_closed_and_missing_streams(monkeypatch):
    """A closed stream raises what it always raised; a process may have none."""
    with own_streams():
        monkeypatch.setattr(sys, "stderr", None)
        sys.stdout = io.TextIOWrapper(io.BytesIO())
        sys.stdout.close()
        tees = StreamTees(Told())
        tees.start()
        with pytest.raises(ValueError, match="closed"):
            sys.stdout.write("x")
        tees.stop()
        with pytest.raises(ValueError, match="closed"):
            sys.stdout.write("x")


def test_wrong_arguments_raise_what_they_always_raised():
    """The replacement stands in for nothing but the method."""
    with taken() as told:
        with pytest.raises(TypeError):
            sys.stdout.write(b"x")
        with pytest.raises(TypeError):
            sys.stdout.buffer.write("x")

        assert told.pieces == []


def test_a_stream_whose_write_cannot_be_replaced_is_stood_in_for():
    """The stream is left alone, all of it can be reached, and it is put back."""
    with own_streams():

        class Fixed:
            __slots__ = ("parts",)
            encoding = "odd"

            def __init__(self):
                self.parts = []

            def write(self, text):
                self.parts.append(text)

            def writelines(self, lines):
                raise AssertionError

        fixed = sys.stdout = Fixed()
        sink = Told()
        tees = StreamTees(sink)
        tees.start()
        print("a")  # noqa: T201 - what is tested
        sys.stdout.writelines(["b", "c"])

        assert sys.stdout.encoding == "odd"
        assert sink.joined == "".join(fixed.parts) == "a\nbc"
        tees.stop()
        assert sys.stdout is fixed


def test_a_sink_that_prints_or_fails_is_no_loop():
    """Our own warnings reach the stream, and are not told in turn; a fault of ours is nobody else's."""
    with own_streams():

        class Loud(Told):
            def add(self, stream, data):
                super().add(stream, data)
                sys.stderr.write("warning\n")
                raise RuntimeError

        sink = Loud()
        tees = StreamTees(sink)
        tees.start()
        sys.stdout.write("x")
        sys.stderr.write("y")
        tees.stop()

        assert sink.pieces == [("stdout", "x"), ("stderr", "y")]
        assert bytes_of(sys.stderr) == b"warning\nywarning\n"


def test_afterwards_the_streams_are_as_they_were_found():
    """Their own methods, or what another library had put there before."""
    with own_streams():
        methods = [(stream, name) for stream in (sys.stdout, sys.stderr) for name in ("write", "flush", "tell")]

        def theirs(text):
            return len(text)

        sys.stderr.write = theirs
        tees = StreamTees(Told())
        tees.start()
        tees.stop()

        assert sys.stderr.write is theirs
        assert [name for stream, name in methods if name in vars(stream)] == ["write"]
        assert "write" not in vars(sys.stdout.buffer)


def test_a_wrapper_on_top_of_ours_is_left_alone():
    """It goes on writing through us, unlogged; the next run tells each piece once."""
    with own_streams():
        first, second = Told(), Told()
        tees = StreamTees(first)
        tees.start()
        ours = sys.stdout.write

        def theirs(text):
            return ours(text.upper())

        sys.stdout.write = theirs
        sys.stdout.write("a")
        tees.stop()
        sys.stdout.write("b")
        again = StreamTees(second)
        again.start()
        sys.stdout.write("c")
        again.stop()

        assert sys.stdout.write is theirs
        assert bytes_of(sys.stdout) == b"ABC"
        assert (first.joined, second.joined) == ("A", "c")


def test_runs_share_one_capture():
    """Wrappers do not stack up, whatever the order in which overlapping runs begin and end."""
    with own_streams():
        before = sys.stdout.write
        benches = [Bench() for _ in range(20)]
        shares = []
        for bench in benches:
            shares.append(capture("wrap", bench.log, bench.warnings.append))
            if len(shares) > 1:
                shares.pop(0).stop()
            taken = sys.stdout.write
            sys.stdout.write("x")
            assert sys.stdout.write is taken
        shares[0].stop()
        shares[0].stop()

        assert sys.stdout.write == before
        assert ["".join(text for _, _, text in bench.drain()) for bench in benches] == ["x"] * 20
        assert bytes_of(sys.stdout) == b"x" * 20


def test_a_run_that_joins_is_told_what_comes_after(monkeypatch):
    """What was on its way when it began is the earlier run's; what is on its way when one ends is still told to it."""
    with own_streams():
        monkeypatch.setattr(StreamTees, "sync", lambda _: sys.stdout.write("."))
        benches = [Bench(), Bench()]
        shares = [capture("wrap", bench.log, bench.warnings.append) for bench in benches]
        shares[0].stop()
        shares[1].stop()

        assert ["".join(text for _, _, text in bench.drain()) for bench in benches] == ["..", "."]


def test_two_captures_at_a_time_are_both_told():
    """One run may wrap the streams while another redirects: each hears all, once, and in the order of the calls."""
    with own_streams():
        sinks = [Told(), Told()]
        tees = [StreamTees(sink) for sink in sinks]
        for tee in tees:
            tee.start()
        sys.stdout.write("a")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"b")
        tees[0].stop()
        sys.stdout.write("c")
        tees[1].stop()

        assert [sink.joined for sink in sinks] == ["ab", "abc"]


def test_many_threads_print():
    """Each line is written, and told, once."""
    with taken() as told:

        def work(number):
            for count in range(100):
                sys.stdout.write(f"{number}.{count}\n")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(told.joined.splitlines()) == sorted(bytes_of(sys.stdout).decode().splitlines())
        assert len(told.pieces) == 5000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_writes_and_logs_nothing():
    """Its streams are as before the run; what it prints is not put where nobody would take it."""
    with own_streams():
        bench = Bench()
        share = capture("wrap", bench.log, bench.warnings.append)
        sys.stdout.write("parent ")
        with console._lock:
            if not (child := os.fork()):
                sys.stdout.write("child")
                fine = (
                    bench.log.dropped == 1
                    and bytes_of(sys.stdout) == b"parent child"
                    and "write" not in vars(sys.stdout)
                )
                with console._lock:
                    os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        share.stop()

        assert bench.drain() == [("stdout", 0, "parent ")]


@pytest.mark.parametrize(
    ("place", "error"),
    [("os.pipe", OSError(24, "Too many open files")), ("threading.Thread.start", RuntimeError("no new thread"))],
)
def test_a_redirect_that_cannot_be_falls_back(monkeypatch, place, error):
    """One warning says what is logged; Python's own streams are, and the descriptors are as before."""
    with own_streams():
        before = [identity(fd) for fd in (1, 2)]

        def refuse(*_):
            raise error

        monkeypatch.setattr(f"runferry.writer.redirect.{place}", refuse)
        bench = Bench()
        share = capture("redirect", bench.log, bench.warnings.append)
        sys.stdout.write("x")
        share.stop()

        assert [identity(fd) for fd in (1, 2)] == before
        assert len(bench.warnings) == 1
        assert str(error) in bench.warnings[0]
        assert bench.drain() == [("stdout", 0, "x")]


def test_a_fan_tells_everybody():
    """One log that fails does not keep the others from hearing."""
    bench = Bench()
    fan = Fan()
    fan.logs = (SimpleNamespace(), bench.log)
    fan.add("stdout", "x")

    assert bench.drain() == [("stdout", 0, "x")]
