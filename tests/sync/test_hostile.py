"""Servers, logs and side files that were made to hang, crash, fill or mislead a sync."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import SyncSettings, UsageError, Verdict
from runferry.sync.cursor import load
from runferry.sync.errors import Interrupted, Permanent, Retryable
from runferry.sync.lock import STALE_AFTER_S, Lock, LockedError
from runferry.sync.places import write_durably
from runferry.sync.ratelimit import Limits, read_limits
from runferry.sync.transport import Answer, HttpTransport, Request
from support import logs
from support.clock import FakeClock
from support.fakebackend import KEY
from support.rawserver import RawServer
from support.syncrig import Rig, cursor, marker, on

# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [";a= " * 60 + '"', ';a="" ' * 200, "a," * 500, '"' * 1023, ";" * 1023, "x" * 10**6])
def test_a_limit_made_to_hang_its_reader_is_ignored_at_once(item: str) -> None:
    """Nothing that a header holds takes time to speak of."""
    begun = time.perf_counter()

    assert read_limits({"RateLimit": f'"d"{item}', "RateLimit-Policy": item}, 0.0) == Limits()

    assert time.perf_counter() - begun < 2.0


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://[::1/x", {}),
        ("gopher://storage.test/x", {}),
        ("http://127.0.0.1:{port}/x", {"X-Bad": "line\nbreak"}),
        ("http://127.0.0.1:{port}/x", {"X-Bad": "\u00e9\ud800"}),
    ],
)
def test_what_cannot_be_sent_is_a_last_word(url: str, headers: dict[str, str]) -> None:
    """A URL or header that no client can send is not tried again, and is no crash."""
    transport = HttpTransport()
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(Permanent):
        transport.send(Request("PUT", url.format(port=listener.getsockname()[1]), headers, b"x"))
    transport.close()


@pytest.mark.parametrize("url", ["http://[::1/x", "http://storage.test:99999/x", "file:///etc/passwd"])
def test_an_upload_url_that_is_none_costs_its_file_only(rig: Rig, url: str) -> None:
    """The rows and the end of the run arrive; the file is named."""
    rig.run()
    document = {"data": {"createRunFiles": {"files": [{"name": "config.yaml", "uploadUrl": url}], "uploadHeaders": 5}}}
    rig.backend.before = on("CreateRunFiles", Answer(200, {}, json.dumps(document).encode()))

    report = rig.only(rig.sync(retry_for=0.0))

    assert report.verdict is Verdict.PARTIAL
    assert "internal" not in report.reason
    assert any(item.startswith("config.yaml") for item in report.missing)
    assert rig.backend.runs["a1b2c3d4"].complete


def test_a_key_that_a_server_repeats_is_shown_to_nobody(rig: Rig) -> None:
    """Not in reasons, events or reports, in whichever form it was sent."""
    rig.run()
    header = base64.b64encode(f"api:{KEY}".encode())
    rig.backend.before = on("stream", Answer(400, {}, b"you sent Basic " + header + b" that is api:" + KEY.encode()))

    report = rig.sync()

    told = repr(report) + repr(rig.events) + json.dumps([event.as_json() for event in rig.events])
    assert "you sent Basic ***" in told
    assert KEY not in told
    assert header.decode() not in told


@pytest.mark.parametrize("error", [Retryable, partial(Permanent, status=0)])
def test_an_answer_that_is_none_shows_the_key_to_nobody(rig: Rig, error: Callable[[str], Exception]) -> None:
    """The HTTP library quotes what it cannot read, and its words reach reasons and events."""
    rig.run()
    header = base64.b64encode(f"api:{KEY}".encode()).decode()
    rig.backend.before = on("stream", error(f"illegal status line: b'HTTP/1.1 {header} {KEY}'"))

    report = rig.sync(retry_for=0.0)

    told = repr(report) + repr(rig.events)
    assert "HTTP/1.1 *** ***" in told
    assert KEY not in told
    assert header not in told


def test_endless_words_of_a_server_are_cut(rig: Rig) -> None:
    """A reason stays a line that can be read."""
    rig.run()
    rig.backend.before = on("UpsertBucket", Answer(200, {}, json.dumps({"errors": ["no" * 10**6]}).encode()))

    assert len(rig.only(rig.sync()).reason) < 700


def test_a_count_of_thousands_of_digits_is_an_ordinary_refusal(rig: Rig) -> None:
    """JSON has numbers that neither a cursor nor a line of text can hold."""
    rig.run()
    bucket = '{"name": "r", "historyLineCount": ' + "9" * 4000 + "}"
    rig.backend.before = on(
        "RunResumeStatus", Answer(200, {}, f'{{"data": {{"model": {{"bucket": {bucket}}}}}}}'.encode())
    )

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "internal" not in report.reason
    assert len(report.reason) < 700


@pytest.mark.parametrize("name", ["..", "."])
def test_names_of_a_server_never_change_the_path_of_a_request(rig: Rig, name: str) -> None:
    """A client resolves dots in a path, so an entity or project of dots would be another address."""
    rig.run()
    bucket = {"id": "i", "name": "a1b2c3d4", "project": {"name": name, "entity": {"name": "me"}}}
    data = {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
    rig.backend.before = on("UpsertBucket", Answer(200, {}, json.dumps(data).encode()))

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "stream" not in rig.backend.operations()


@pytest.mark.parametrize(
    "settings",
    [{"run_id": "../x"}, {"run_id": ".."}, {"project": ".."}, {"entity": "."}, {"retry_for": float("nan")}],
)
def test_settings_that_no_server_could_follow_are_usage_errors(settings: dict[str, Any]) -> None:
    """They are told before anything is sent."""
    with pytest.raises(UsageError):
        SyncSettings(**settings)


def test_a_file_that_shrinks_while_it_is_sent_is_missing(rig: Rig) -> None:
    """It is named with the cause, the rows and the end arrive, and the next sync brings it."""
    log = rig.run()
    logs.make_log(log, logs.files_record("model.bin"), append=True)
    rig.settle(log)
    file = log.parent / "files" / "model.bin"
    file.write_bytes(b"x" * 3000)
    transport = HttpTransport()

    def before(_: int, operation: str, request: Request) -> Any:
        if operation == "put" and request.url.endswith("model.bin"):
            file.write_bytes(b"x" * 10)
            return transport.send(replace(request, url=server.url))
        return None

    rig.backend.before = before
    with RawServer(b"") as server:
        report = rig.only(rig.sync())
    transport.close()

    assert report.verdict is Verdict.PARTIAL
    assert report.missing == ("model.bin: the file became shorter while it was sent",)
    assert rig.backend.runs["a1b2c3d4"].complete
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert marker(log).exists()


def test_a_stop_ends_a_request_to_a_server_that_says_nothing() -> None:
    """The user is not kept waiting for a minute by a server that took the request and fell silent."""
    stop = threading.Event()
    transport = HttpTransport(stop=stop)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        request = Request("POST", f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, b"hello")
        sent = pool.submit(transport.send, request)
        connection, _ = listener.accept()
        while b"hello" not in connection.recv(4096):
            pass
        stop.set()

        transport.abort()

        with pytest.raises(Interrupted):
            sent.result(timeout=20)
        connection.close()
    with pytest.raises(Interrupted):
        transport.send(request)
    transport.close()


def test_rows_are_not_sent_to_a_server_that_does_not_say_what_it_holds(rig: Rig) -> None:
    """It refuses the question, but its run holds rows: they may be anybody's."""
    rig.run(rows=3)
    rig.sync()
    for path in rig.folder.rglob("*.cursor"):
        path.unlink()
    for path in rig.folder.rglob("*.synced"):
        path.unlink()
    rig.backend.forget()
    rig.backend.before = on("RunResumeStatus", Answer(400, {}, b"what?"))

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "does not say which" in report.reason
    assert not rig.backend.written


# -- side files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [STALE_AFTER_S + 1, 10.0**9, float("inf"), float("nan"), 10**400, "soon"])
def test_a_lock_from_the_future_keeps_nobody_out(tmp_path: Path, far: Any) -> None:
    """A holder whose clock is years ahead would else lock the log for years."""
    clock = FakeClock()
    heartbeat = clock.time() + far if isinstance(far, float) else far
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 7, "heartbeat": heartbeat, "token": "t"}))
    os.utime(path, (0, 0))

    Lock(path, clock).acquire()


@pytest.mark.parametrize("text", ["[" * 4000, "{", "", '{"heartbeat": {}, "pid": []}', "\0" * 5000])
def test_a_lock_of_garbage_is_judged_by_its_age(tmp_path: Path, text: str) -> None:
    """Fresh it may be one that is being written; old it is nobody's."""
    clock = FakeClock()
    path = tmp_path / "lock"
    path.write_text(text)
    os.utime(path, (clock.time(), clock.time()))
    with pytest.raises(LockedError):
        Lock(path, clock).acquire()
    clock.advance(STALE_AFTER_S + 1)

    Lock(path, clock).acquire()


def test_a_process_number_that_no_process_has_is_a_dead_one(tmp_path: Path) -> None:
    """On this host such a lock is taken over at once."""
    clock = FakeClock()
    path = tmp_path / "lock"
    Lock(path, clock).acquire()
    holder = json.loads(path.read_text())
    path.write_text(json.dumps({**holder, "pid": 10**30}))

    Lock(path, clock).acquire()


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", 1 << 63), ("step_shift", 10**300), ("exit_code", 1.5), ("exit_code", "0"), ("exit_code", 1 << 64),
     ("sent", {"history": 1 << 70, "events": 0, "console": 0}), ("version", 3), ("dropped", "abc"), ("files", [])],
)  # fmt: skip
def test_a_cursor_of_absurd_values_is_none(rig: Rig, key: str, value: Any) -> None:
    """It is ignored, all lines go to the same places again, and a good cursor takes its place."""
    log = rig.run()
    rig.sync()
    document = json.loads(cursor(log).read_text())
    cursor(log).write_text(json.dumps({**document, key: value}))

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED, report.reason
    assert load([cursor(log)])[0] is not None
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 5


def test_a_cursor_does_not_say_where_rows_go(rig: Rig) -> None:
    """Whoever may write beside the log could else send its rows into another run: the server's word counts."""
    log = rig.run(exit_code=None)
    rig.sync()
    rig.run(run_id="other")
    rig.sync()
    document = json.loads(cursor(log).read_text())
    cursor(log).write_text(json.dumps({**document, "run_id": "other"}))
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log)
    rig.backend.forget()

    rig.sync()

    assert {run_id for run_id, _, _ in rig.backend.written} == {"a1b2c3d4"}
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 6


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others may write to, it could lead to any file of ours."""
    target = tmp_path / "mine"
    target.write_text("precious")
    (tmp_path / f"cursor.{os.getpid()}.tmp").symlink_to(target)

    write_durably(tmp_path / "cursor", b"new")

    assert target.read_text() == "precious"
    assert (tmp_path / "cursor").read_bytes() == b"new"
    assert not (tmp_path / "cursor").is_symlink()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not say of which file it speaks; the temporary one is nobody's business, and goes."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_durably(tmp_path / "cursor", b"new")

    assert caught.value.filename == str(tmp_path / "cursor")
    assert list(tmp_path.iterdir()) == []


# -- logs --------------------------------------------------------------------------------------------------------------


def small_server(most: int) -> Any:
    """A server that takes no line above `most` characters."""

    def before(_: int, operation: str, request: Request) -> Answer | None:
        if operation != "stream":
            return None
        files = json.loads(request.body).get("files", {}).values()
        lines = [line for part in files for line in part["content"]]
        return Answer(413, {}, b"too large") if sum(map(len, lines)) > most else None

    return before


def test_a_line_that_a_server_does_not_take_loses_its_largest_values_only(rig: Rig) -> None:
    """Row, sample and summary keep their places and their other keys; the verdict names what is missing, now and later."""
    log = logs.make_log(
        rig.folder / "run-h.wandb",
        logs.run_record("h"),
        logs.row(0, {"a": 1}),
        logs.row(1, {"a": 2, "text": "x" * 5000, "list": [1.25] * 700}),
        logs.sample(1, {"cpu": 1.5, "text": "y" * 6000}),
        logs.row(2, {"a": 3}),
        logs.exit_record(),
    )
    rig.settle(log)
    rig.backend.before = small_server(2000)

    report = rig.only(rig.sync())

    run = rig.backend.runs["h"]
    assert [row["a"] for row in run.rows] == [1, 2, 3]
    assert run.rows[1].keys() == {"a", "_step", "_timestamp", "_runtime"}
    assert json.loads(run.stream("events")[0])["system.cpu"] == 1.5
    assert run.summary["a"] == 3
    assert run.complete
    assert report.verdict is Verdict.PARTIAL
    assert {item.partition(" (")[0] for item in report.missing} == {
        "step 1: text", "step 1: list", "a sample: system.text", "summary: text", "summary: list",
    }  # fmt: skip
    rig.backend.forget()
    again = rig.only(rig.sync())
    assert (again.verdict, sorted(again.missing)) == (Verdict.PARTIAL, sorted(report.missing))
    assert rig.backend.bodies() == []


def test_a_server_that_takes_nothing_at_all_fails_the_run(rig: Rig) -> None:
    """With 413 for the shortest of lines there is no end of leaving out but this one."""
    rig.run()
    rig.backend.before = small_server(5)

    assert rig.only(rig.sync()).verdict is Verdict.FAILED


def test_a_line_of_very_many_values_is_cut_in_no_time_to_speak_of(rig: Rig) -> None:
    """Thousands of values have to go from row and summary, and the line is not built anew for each."""
    values = {f"k{at:05}": "v" * 600 for at in range(25_000)}
    log = logs.make_log(rig.folder / "run-w.wandb", logs.run_record("w"), logs.row(0, values), logs.exit_record())
    rig.settle(log)
    begun = time.perf_counter()

    report = rig.only(rig.sync())

    assert time.perf_counter() - begun < 20.0
    assert report.verdict is Verdict.PARTIAL
    assert 15_000 < len(rig.backend.runs["w"].rows[0]) < 25_000


def test_one_record_of_very_many_console_lines_goes_in_several_bodies(rig: Rig) -> None:
    """A body is cut between any two lines, and a sync that ended between them goes on there."""
    log = logs.make_log(
        rig.folder / "run-c.wandb",
        logs.run_record("c"),
        logs.output("".join(f"line {at}\n" for at in range(2000))),
        logs.exit_record(),
    )
    rig.settle(log)
    rig.backend.before = lambda number, operation, _: (
        Answer(500, {}, b"") if operation == "stream" and number >= 6 else None
    )
    assert rig.sync(body_bytes=10_000, retry_for=0.0).exit_code == 75
    rig.backend.before = lambda *_: None
    rig.sync(body_bytes=10_000)

    lines = rig.backend.runs["c"].stream("console")
    assert [line.partition(" ")[2] for line in lines] == [f"line {at}" for at in range(2000)]
    assert set(rig.backend.written.values()) == {1}
    assert all(len(request.body) < 30_000 for name, request in rig.backend.requests if name == "stream")


def test_links_in_circles_end(rig: Rig) -> None:
    """A pattern with `**` does not follow links to folders; two that lead round would be followed for ever."""
    log = rig.run()
    logs.make_log(log, logs.files_record("**/*.txt", "**/**/a/**/b*.md"), append=True)
    rig.settle(log)
    files = log.parent / "files"
    (files / "x" / "a" / "y").mkdir(parents=True)
    (files / "one").symlink_to(files)
    (files / "two").symlink_to(files)
    for name in ("top.txt", "x/deep.txt", "x/a/b1.md", "x/a/y/b2.md", "x/b3.md"):
        (files / name).write_text(name)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED
    found = {name for name in rig.backend.runs["a1b2c3d4"].files if name.endswith((".txt", ".md"))}
    assert found == {"top.txt", "x/deep.txt", "x/a/b1.md", "x/a/y/b2.md"}


@pytest.mark.parametrize("step", ["--5", "9" * 5000, "5.0", "1e3", '"7"', "-"])
@pytest.mark.parametrize("first", [True, False], ids=["first row", "later row"])
def test_a_step_that_is_no_integer_is_the_one_behind_the_row_before(rig: Rig, step: str, *, first: bool) -> None:
    """Reader, line and resumed sync agree on what a step is; a row whose step is none follows the one before it."""
    log = rig.folder / "run-20260921_141320-s" / "run-s.wandb"
    odd = logs.row(None, {"loss": 1.0, "_step": step.encode()})
    rows = [odd, logs.row(7)] if first else [logs.row(3), odd, logs.row(7)]
    logs.make_log(log, logs.run_record("s"), *rows)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.LIVE

    logs.make_log(log, logs.row(8), logs.row(None, {"loss": 2.0}), append=True)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.LIVE

    steps = [row["_step"] for row in rig.backend.runs["s"].rows]
    assert steps == ([0, 7, 8, 9] if first else [3, 4, 7, 8, 9])
