"""Bodies that fit the line: their size, and when they are packed."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from runferry.sync import SyncSettings, Verdict, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.errors import Retryable
from runferry.sync.transport import Answer, Request
from runferry.sync.uplink import FIRST_BODY, LOCAL_BODY, SMALLEST_BODY, Uplink, pack
from support.fakebackend import KEY, URL, FakeBackend
from support.syncrig import Rig

MOST = 8 * 1024 * 1024


def measured(rate: float, size: int = 1_000_000) -> Uplink:
    """A line on which one body went at `rate` bytes/s."""
    uplink = Uplink()
    uplink.sent(size, size / rate, size)
    return uplink


def test_the_first_body_is_small_and_the_next_ones_take_some_seconds() -> None:
    """1 MB at first; then what the line takes in 8 s, between 64 KiB and the most that is asked for."""
    assert Uplink().body_bytes(MOST) == FIRST_BODY
    assert measured(12_500).body_bytes(MOST) == 100_000
    assert measured(1_000).body_bytes(MOST) == SMALLEST_BODY
    assert measured(1e9).body_bytes(MOST) == MOST
    assert measured(1e9).body_bytes(5_000) == 5_000
    assert Uplink(is_local=True).body_bytes(MOST) == LOCAL_BODY < MOST
    assert Uplink(is_local=True).body_bytes(FIRST_BODY) == FIRST_BODY


def test_small_bodies_say_nothing_of_the_line() -> None:
    """They vanish in the buffers of the system, so they would make any line look fast."""
    uplink = Uplink()
    uplink.sent(5_000, 0.00001, 5_000)

    assert uplink.body_bytes(MOST) == FIRST_BODY


def test_a_body_that_was_late_makes_the_next_ones_half_as_large() -> None:
    """Also where no body has ever got through, and on this machine."""
    for uplink in (Uplink(), Uplink(is_local=True), measured(1e6)):
        uplink.late(1_000_000)
        assert uplink.body_bytes(MOST) == 500_000
        uplink.late(500_000)
        assert uplink.body_bytes(MOST) == 250_000
        uplink.late(1_000_000)  # one that was on its way at the same time
        assert uplink.body_bytes(MOST) == 250_000


def test_packing_pays_on_slow_lines_only() -> None:
    """At 10 MB/s and below; not at 50 MB/s, for small bodies, before the line is known, or on this machine."""
    assert measured(10e6).should_pack(MOST)
    assert measured(12_500).should_pack(40_000)
    assert not measured(50e6).should_pack(MOST)
    assert not measured(12_500).should_pack(10_000)
    assert not Uplink().should_pack(MOST)
    local = Uplink(is_local=True)
    local.sent(1_000_000, 100.0, 1_000_000)
    assert not local.should_pack(MOST)


def test_packed_bodies_may_hold_more() -> None:
    """Where a body shrinks to a quarter on the line, one of 8 s holds four times the rows."""
    uplink = measured(100_000)
    for _ in range(10):
        uplink.sent(200_000, 2.0, 800_000)

    assert uplink.body_bytes(MOST) == pytest.approx(3_200_000, rel=0.02)


def test_packed_bytes_are_gzip_and_the_same_each_time() -> None:
    """No time or name stands in them."""
    body = json.dumps([{"loss": index / 7} for index in range(1000)]).encode()

    assert gzip.decompress(pack(body)) == body
    assert pack(body) == pack(body)


class ThinLine:
    """The backend behind a line of `rate` bytes/s, which an attempt of `patience` seconds must not exceed."""

    def __init__(self, rig: Rig, rate: float, patience: float = 180.0) -> None:
        self.rig, self.rate, self.patience = rig, rate, patience
        self.bodies: list[tuple[int, bool]] = []
        self.lates = 0

    def send(self, request: Request) -> Answer:
        took = request.length / self.rate
        if took > self.patience:
            self.rig.clock.advance(self.patience)
            self.lates += 1
            raise Retryable("the attempt took too long for its size", late=True)
        self.rig.clock.advance(took)
        is_packed = request.headers.get("Content-Encoding") == "gzip"
        if request.url.endswith("/file_stream"):
            self.bodies.append((request.length, is_packed))
        if is_packed:
            refusal = self.refuse_packed()
            if refusal is not None:
                return refusal
            assert isinstance(request.body, bytes)
            request = replace(request, body=gzip.decompress(request.body))
        return replace(self.backend.send(request), sent_in=took)

    @property
    def backend(self) -> FakeBackend:
        return self.rig.backend

    def refuse_packed(self) -> Answer | None:
        return None


def sync_over(line: ThinLine, rig: Rig, **options: Any) -> Any:
    return rig.only(
        sync(
            [rig.folder],
            SyncSettings(base_url=URL, state_dir=rig.state, **options),
            key=ApiKey(KEY, base_url=URL, source="test"),
            transport=line,
            clock=rig.clock,
            rng=random.Random(5),
            reporter=rig.events.append,
        )
    )


def test_a_line_of_a_tenth_of_a_megabit_makes_progress(rig: Rig) -> None:
    """Bodies of 8 MB would take 11 minutes: they get smaller until they fit, and every row arrives once."""
    rig.run(rows=14_000)
    line = ThinLine(rig, 12_500.0)

    report = sync_over(line, rig)

    assert report.verdict is Verdict.SYNCED
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 14_000
    assert max(rig.backend.written.values()) == 1
    assert len(line.bodies) > 2
    assert all(size <= 250_000 for size, _ in line.bodies[2:])


def test_bodies_that_are_late_are_halved_until_they_get_through(rig: Rig) -> None:
    """A line that is slower than the smallest guess: the first body fails a few times, and nothing is lost."""
    rig.run(rows=8_000)
    line = ThinLine(rig, 2_000.0)

    report = sync_over(line, rig, retry_for=3600.0)

    assert report.verdict is Verdict.SYNCED
    assert line.lates >= 1
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 8_000
    assert all(size <= 360_000 for size, _ in line.bodies)


def test_bodies_are_packed_where_the_server_takes_that_and_the_line_is_slow(rig: Rig) -> None:
    """The features are asked for when packing would pay, and the same rows arrive."""
    rig.backend.features = ["FILESTREAM_GZIP"]
    rig.run(rows=14_000)
    line = ThinLine(rig, 500_000.0)

    assert sync_over(line, rig).verdict is Verdict.SYNCED

    assert any(is_packed for _, is_packed in line.bodies)
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 14_000


def test_a_server_that_does_not_take_packed_bodies_is_sent_none(rig: Rig) -> None:
    """Without the feature everything goes plain; on a fast line nobody even asks."""
    rig.run(rows=14_000)
    slow, fast = ThinLine(rig, 500_000.0), ThinLine(rig, 500e6)

    assert sync_over(slow, rig).verdict is Verdict.SYNCED
    assert not any(is_packed for _, is_packed in slow.bodies)

    rig.backend.runs.clear()
    rig.backend.forget()
    assert sync_over(fast, rig, include_synced=True).verdict is Verdict.SYNCED
    assert not any(is_packed for _, is_packed in fast.bodies)


@pytest.mark.parametrize("status", [400, 415])
def test_a_packed_body_that_is_refused_goes_plain(rig: Rig, status: int) -> None:
    """A server, or a proxy before it, that promised more than it keeps costs one request and no row."""
    rig.backend.features = ["FILESTREAM_GZIP"]
    rig.run(rows=14_000)
    line = ThinLine(rig, 500_000.0)
    line.refuse_packed = lambda: Answer(status, {}, b"what is this?")  # type: ignore[method-assign]

    assert sync_over(line, rig).verdict is Verdict.SYNCED

    assert sum(is_packed for _, is_packed in line.bodies) == 1
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 14_000
