"""What servers say about their limits, and the pacer that listens."""

from __future__ import annotations

import random
import threading

import pytest
from runferry.sync.pacer import BURST, Pacer, Pacers, full_jitter
from runferry.sync.ratelimit import MAX_WAIT_S, Limits, read_limits
from support.clock import FakeClock

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Limits()),
        ({"Retry-After": "3"}, Limits(retry_after=3.0)),
        ({"retry-after": "2.5"}, Limits(retry_after=2.5)),
        ({"Retry-After": "Fri, 15 Jan 2027 08:00:07 GMT"}, Limits(retry_after=7.0)),
        ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, Limits()),
        ({"Retry-After": "soon"}, Limits()),
        ({"Retry-After": "-5"}, Limits()),
        ({"Retry-After": "nan"}, Limits()),
        ({"Retry-After": "86400"}, Limits(retry_after=MAX_WAIT_S, clamped="Retry-After")),
        ({"RateLimit-Reset": "7"}, Limits(reset=7.0)),
        ({"RateLimit-Reset": str(NOW + 30)}, Limits(reset=30.0)),
        ({"RateLimit-Reset": "inf"}, Limits()),
        ({"RateLimit-Reset": "5000"}, Limits(reset=MAX_WAIT_S, clamped="RateLimit-Reset")),
        ({"RateLimit-Remaining": "12.5", "RateLimit-Reset": "4"}, Limits(remaining=12.5, reset=4.0)),
        ({"RateLimit-Remaining": "-1", "RateLimit-Reset": "x"}, Limits()),
        ({"RateLimit": '"default";r=50;t=30'}, Limits(remaining=50.0, reset=30.0)),
        ({"RateLimit": '"a";r=50;t=5, "b";r=2;t=60'}, Limits(remaining=2.0, reset=60.0)),
        (
            {"RateLimit": '"burst";r=7', "RateLimit-Policy": '"burst";q=100;w=60;qu="requests"'},
            Limits(remaining=7.0, reset=60.0),
        ),
        ({"RateLimit": '"broken;r=1;t=2'}, Limits()),
        ({"RateLimit": "limit=10, remaining=4, reset=2"}, Limits()),
    ],
)
def test_headers_of_all_dialects_are_read_and_garbage_is_ignored(headers: dict[str, str], expected: Limits) -> None:
    """Each dialect gives its numbers, and a value that makes no sense says nothing."""
    assert read_limits(headers, NOW) == expected


def make_pacer(clock: FakeClock) -> Pacer:
    return Pacer(clock, random.Random(7))


def test_a_refusal_with_only_a_reset_closes_the_lane_for_all_of_it() -> None:
    """After a 429 with RateLimit-Reset 7 nobody may send before 7 s are over, and soon after that everybody may."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    start = clock.monotonic()

    pacer.refused(read_limits({"RateLimit-Reset": "7"}, NOW))
    pacer.wait()

    assert 7.0 <= clock.monotonic() - start <= 7.8


def test_retry_after_is_believed_before_the_reset() -> None:
    """Where a server sends both, Retry-After says when to come back."""
    clock = FakeClock()
    pacer = make_pacer(clock)

    assert 3.0 <= pacer.refused(Limits(retry_after=3.0, reset=60.0)) <= 3.4


def test_refusals_without_headers_back_off_more_and_more() -> None:
    """A server that gives no time gets growing waits with jitter, never zero and never more than a minute."""
    pacer = make_pacer(FakeClock())

    waits = [pacer.refused(Limits()) for _ in range(12)]

    assert all(0.0 < wait <= 62.0 for wait in waits)
    assert sum(waits[6:]) > sum(waits[:6])


def test_nothing_remaining_closes_the_lane_before_the_first_refusal() -> None:
    """Remaining 0 on a success means: the next request would be refused, so it waits for the reset."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    start = clock.monotonic()

    pacer.accepted(Limits(remaining=0.0, reset=30.0))
    pacer.wait()

    assert clock.monotonic() - start >= 30.0


class Quota:
    """A server with a fixed window, as `RateLimit-Remaining` and `-Reset` describe it; `unit` requests per unit."""

    def __init__(self, clock: FakeClock, size: int, window: float, unit: float = 1.0) -> None:
        self.clock, self.size, self.window, self.unit = clock, size, window, unit
        self.opened, self.used, self.refused = clock.monotonic(), 0, 0

    def ask(self) -> tuple[bool, Limits]:
        now = self.clock.monotonic()
        if now >= self.opened + self.window:
            self.opened, self.used = now, 0
        reset = self.opened + self.window - now
        if self.used >= self.size:
            self.refused += 1
            return False, Limits(remaining=0.0, reset=reset)
        self.used += 1
        return True, Limits(remaining=(self.size - self.used) / self.unit, reset=reset)


def drive(pacer: Pacer, quota: Quota, requests: int) -> float:
    """Send `requests` accepted requests through a pacer, one at a time; seconds that it took."""
    start, done = quota.clock.monotonic(), 0
    while done < requests:
        pacer.wait()
        taken, limits = quota.ask()
        quota.clock.advance(0.01)
        if taken:
            done += 1
            pacer.accepted(limits)
        else:
            pacer.refused(limits)
    return quota.clock.monotonic() - start


def test_a_small_quota_is_used_up_without_a_refusal() -> None:
    """13 requests on 5 per 30 s take two full windows and hardly more, and none is refused."""
    clock = FakeClock()
    quota = Quota(clock, 5, 30.0)

    seconds = drive(make_pacer(clock), quota, 13)

    assert quota.refused == 0
    assert 60.0 <= seconds <= 66.0


@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_a_large_quota_is_spread_over_its_window(unit: float) -> None:
    """3,000 requests per 10 s, counted in the server's own units, are used to 85 % and more with almost no refusals."""
    clock = FakeClock()
    quota = Quota(clock, 3000, 10.0, unit)

    seconds = drive(make_pacer(clock), quota, 6000)

    assert quota.refused <= 6
    assert seconds <= 70.0  # 6,000 requests of 10 ms each take 60 s by themselves


def test_workers_that_wake_together_do_not_overrun_a_small_quota() -> None:
    """Eight threads behind one pacer take no more tokens from a fresh window than the last one is known to have held."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    pacer.accepted(Limits(remaining=4.0, reset=30.0))
    pacer.accepted(Limits(remaining=0.0, reset=30.0))
    clock.advance(33.0)

    taken = []
    while True:
        before = clock.monotonic()
        pacer.wait()
        if clock.monotonic() > before:
            break
        taken.append(before)

    assert len(taken) <= 5


def test_a_burst_is_bounded_where_the_server_says_nothing() -> None:
    """Without headers the first few requests go at once and the rest at the documented rate."""
    clock = FakeClock()
    pacer = make_pacer(clock)

    for _ in range(int(BURST) + 50):
        pacer.wait()

    assert clock.monotonic() - 1_800_000_000.0 == pytest.approx(50 / 500, rel=0.05)


def test_one_project_has_one_pacer_however_many_threads_ask() -> None:
    """All workers of a project share its pacer, and another project or host has its own."""
    pacers = Pacers(lambda: make_pacer(FakeClock()))
    found: list[Pacer] = []
    threads = [threading.Thread(target=lambda: found.append(pacers.of("h", "p"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, found))) == 1
    assert pacers.of("h", "q") is not found[0]
    assert pacers.of("i", "p") is not found[0]


def test_full_jitter_stays_below_its_ceiling_and_above_zero() -> None:
    """No attempt number, however large, waits longer than the cap or not at all."""
    rng = random.Random(1)

    waits = [full_jitter(rng, attempt) for attempt in (0, 1, 5, 50, 5000)]

    assert all(0.0 < wait <= 60.0 for wait in waits)


class Highest(random.Random):
    """Draws the upper end of every range."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def test_back_off_doubles_with_each_refusal_and_begins_anew_with_an_answer() -> None:
    """Refusals that say nothing: at most 1, 2, 4 s and so on (a tenth more as jitter), and 1 s again once one got through."""
    pacer = Pacer(FakeClock(), Highest())

    waits = [pacer.refused(Limits()) for _ in range(4)]
    pacer.accepted(Limits())

    assert waits == [pytest.approx(1.1 * 2**attempt) for attempt in range(4)]
    assert pacer.refused(Limits()) == pytest.approx(1.1)


def test_a_short_wish_does_not_open_a_lane_that_is_closed_for_longer() -> None:
    """Answers of several workers come in any order; the longest wait counts."""
    pacer = make_pacer(FakeClock())
    pacer.refused(Limits(retry_after=100.0))
    pacer.refused(Limits(retry_after=1.0))

    assert pacer.closed_for >= 100.0


def test_no_more_is_sent_at_once_than_remains() -> None:
    """Two requests remain: the third waits, whatever burst would else be allowed."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    pacer.accepted(Limits(remaining=2.0, reset=10.0))
    begun = clock.monotonic()
    pacer.wait()
    pacer.wait()
    assert clock.monotonic() == begun

    pacer.wait()

    assert clock.monotonic() > begun


def test_the_rate_stays_below_what_the_headers_allow() -> None:
    """100 in 50 s are 2 per second; behind the burst a little less than that is spent, for the requests in flight."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    pacer.accepted(Limits(remaining=100.0, reset=50.0))
    for _ in range(10):
        pacer.wait()
    begun = clock.monotonic()
    for _ in range(19):
        pacer.wait()

    assert 10.0 <= clock.monotonic() - begun <= 11.0
