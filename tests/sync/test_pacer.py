"""The pacer: one quota spent by one hand, however the server speaks of it and however many threads and processes send."""

from __future__ import annotations

import json
import os
import random
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.sync.lane import BURST, Cost, Lane, full_jitter
from runferry.sync.pacer import STREAM_BURST, Pacer, Pacers, StreamLane, StreamLanes
from runferry.sync.quota import Quota
from runferry.sync.ratelimit import MAX_WAIT_S, Limits, read_limits
from runferry.sync.sharedfile import SharedFile
from support.clock import FakeClock
from support.quotaserver import SPEECHES, QuotaServer, send_all
from support.simulation import Simulation


def make_pacer(clock: FakeClock | Simulation, seed: int = 7) -> Pacer:
    return Pacer(clock, random.Random(seed))


def sharing(clock: FakeClock | Simulation, folder: Path, processes: int) -> list[Pacer]:
    """The pacers that so many processes with one state directory have for one project."""
    return [Pacers(clock, random.Random(seed), folder).of("host", "project") for seed in range(processes)]


# -- quotas, simulated -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("speech", [name for name in SPEECHES if name != "nothing"])
def test_a_small_quota_is_used_to_the_full_without_refusals(speech: str, threads: int, aligned: bool) -> None:
    """5 requests per 30 s: no 429 once the first window has shown what it holds, and the end within 10 % of the optimum."""
    clock = Simulation()
    server = QuotaServer(clock, 5, 30.0, SPEECHES[speech], aligned)

    seconds = send_all(clock, server, [make_pacer(clock)], 41, threads=threads)

    assert seconds <= 1.1 * 8 * 30.0
    # A window that was met in its middle tells its length a window later, by one refused request.
    late = [at for at in server.refused if at > 2.0]
    assert len(late) <= (1 if aligned else 0)
    assert all(at < 60.0 for at in late)
    assert len(server.refused) - len(late) < threads + 1


def test_a_quota_of_which_the_server_says_nothing_is_found_by_trying() -> None:
    """Without any header the rate settles below what gets through: some refusals, but no storm and no standstill."""
    clock = Simulation()
    server = QuotaServer(clock, 5, 30.0, SPEECHES["nothing"])

    seconds = send_all(clock, server, [make_pacer(clock)], 41, threads=8)

    assert seconds <= 1.6 * 8 * 30.0
    assert len([at for at in server.refused if at > 2.0]) <= 8


def test_a_hidden_rate_is_kept_below_after_a_few_refusals() -> None:
    """300 requests/s of which nothing is said: found within seconds, then 65 % and more of it used, and 429s stay rare."""
    clock = Simulation()
    server = QuotaServer(clock, 300, 1.0, SPEECHES["nothing"])

    seconds = send_all(clock, server, [make_pacer(clock)], 6000, threads=8)

    assert seconds <= 20.0 / 0.65
    assert len(server.refused) <= 16


@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_a_large_quota_is_spread_over_its_window(unit: float) -> None:
    """1,000 requests per 10 s, in the server's own units, are used to 95 % and more without a refusal."""
    clock = Simulation()
    server = QuotaServer(clock, 1000, 10.0, SPEECHES["remaining and reset"], unit=unit)

    seconds = send_all(clock, server, [make_pacer(clock)], 3000, threads=8)

    assert server.refused == []
    assert seconds <= 30.0 / 0.95


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("speech", ["remaining and reset", "reset on a 429"])
def test_four_processes_share_a_quota(tmp_path: Path, speech: str, shared: bool) -> None:
    """Four processes on one quota, with the file and without: at least 85 % of it used, no 429 after the first window."""
    clock = Simulation()
    server = QuotaServer(clock, 300, 10.0, SPEECHES[speech], unit=3.0)
    pacers = sharing(clock, tmp_path, 4) if shared else [make_pacer(clock, seed) for seed in range(4)]

    seconds = send_all(clock, server, pacers, 1200, threads=3)

    assert seconds <= 40.0 / 0.85
    assert [at for at in server.refused if at > 10.0] == []
    assert server.refused == [] or speech == "reset on a 429"


def test_four_processes_spend_a_small_quota_as_one(tmp_path: Path) -> None:
    """What one process has heard holds for all: 5 per 30 s is used up by four of them without a refusal."""
    clock = Simulation()
    server = QuotaServer(clock, 5, 30.0, SPEECHES["remaining and reset"])

    seconds = send_all(clock, server, sharing(clock, tmp_path, 4), 31, threads=2)

    assert [at for at in server.refused if at > 2.0] == []
    assert seconds <= 1.1 * 6 * 30.0


def test_a_server_that_stops_telling_what_remains_is_counted() -> None:
    """Headers may vanish at any time: one refused request shows it, and then its windows are counted."""
    clock = Simulation()
    server = QuotaServer(clock, 8, 20.0, SPEECHES["remaining and reset"])
    pacer = make_pacer(clock)
    send_all(clock, server, [pacer], 20, threads=1)
    server.speech = SPEECHES["reset on a 429"]
    begun = clock.monotonic()

    send_all(clock, server, [pacer], 64, threads=1)

    assert len(server.refused) <= 2
    assert clock.monotonic() - begun <= 1.25 * 8 * 20.0


@pytest.mark.parametrize("speech", ["remaining and reset", "reset on every answer"])
def test_a_quota_per_hour_is_spread_over_the_hour(speech: str) -> None:
    """A window that is longer than any wait that we let a server ask for: its rate is kept, and refusals stay rare."""
    clock = Simulation()
    server = QuotaServer(clock, 600, 3600.0, SPEECHES[speech])

    seconds = send_all(clock, server, [make_pacer(clock)], 1200, threads=2)

    assert seconds <= 1.1 * 7200.0
    assert len(server.refused) <= (0 if speech == "remaining and reset" else 8)


def test_a_quota_that_grew_is_noticed() -> None:
    """A counted quota is tried for more after ten full windows, at the price of one refused request if it has not grown."""
    clock = Simulation()
    server = QuotaServer(clock, 5, 10.0, SPEECHES["retry-after"])
    pacer = make_pacer(clock)
    send_all(clock, server, [pacer], 10, threads=1)
    server.size, before = 50, len(server.refused)

    send_all(clock, server, [pacer], 80, threads=1)

    assert len(server.refused) == before
    per_window = [sum(1 for at in server.taken if begin <= at < begin + 10) for begin in range(30, 140, 10)]
    assert max(per_window) > 5


# -- one answer at a time ----------------------------------------------------------------------------------------------


def test_a_bucket_that_others_fill_tomorrow_is_filled_from_now_on() -> None:
    """Shared numbers may say when a bucket was filled last, but not that it gets nothing until then."""
    written = Lane.new(1000.0)
    written.requests.refill(0.0, 1000.0 + 50_000.0)
    lane, rng = Lane.new(1000.0), random.Random(1)

    assert lane.load(written.numbers(0.0), 0.0, 1000.0)

    assert lane.enter(1001.0, Cost(), rng) == 0.0


def test_a_counted_window_that_is_to_last_for_hours_is_asked_again() -> None:
    """5 per window, and then a Reset of 5,000 s: the lane is closed for a quarter of an hour, not for one after the other."""
    lane, rng, now = Lane.new(0.0), random.Random(1), [0.0]

    def send(reset: float) -> float:
        while (delay := lane.enter(now[0], Cost(), rng)) > 0.0:
            now[0] += delay
        lane.accepted(Limits(reset=reset), lane.sent - 1, now[0], rng)
        return now[0]

    for _ in range(5):
        send(10.0 - now[0])
    lane.refused(Limits(reset=10.0 - now[0]), now[0], rng)
    opened = send(5000.0)
    for _ in range(4):
        send(5000.0 - (now[0] - opened))

    assert 800.0 < send(5000.0) - opened < 1100.0


def test_a_quota_that_does_not_grow_is_tried_ever_less_often() -> None:
    """Sixty full windows: it is tried for more after 10 of them, then after 20 more, and not every tenth time."""
    clock = Simulation()
    server = QuotaServer(clock, 5, 30.0, SPEECHES["reset on a 429"])

    send_all(clock, server, [make_pacer(clock)], 300, threads=1)

    assert 1 <= len([at for at in server.refused if at > 60.0]) <= 3


def test_an_absurd_wait_is_no_length_of_a_window() -> None:
    """A refusal for more than a quarter of an hour from the window's first answer teaches nothing of windows."""
    quota = Quota()
    quota.answered(0.0, None, None, 0.0, 0.0)

    quota.refused(600.0, 600.0)

    assert (quota.size, quota.period) == (None, None)


def test_a_refusal_with_only_a_reset_closes_the_lane_for_all_of_it() -> None:
    """After a 429 with RateLimit-Reset 7 nobody may send before 7 s are over, and soon after that everybody may."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    start = clock.monotonic()

    pacer.refused(read_limits({"RateLimit-Reset": "7"}, clock.time()))
    pacer.wait()

    assert 7.0 <= clock.monotonic() - start <= 7.8


def test_retry_after_is_believed_before_the_reset() -> None:
    """Where a server sends both, Retry-After says when to come back."""
    assert 3.0 <= make_pacer(FakeClock()).refused(Limits(retry_after=3.0, reset=60.0)) <= 3.4


def test_refusals_without_headers_back_off_more_and_more() -> None:
    """A server that gives no time gets growing waits with jitter, never zero and never much more than a minute."""
    clock = FakeClock()
    pacer = make_pacer(clock)

    waits = []
    for _ in range(12):
        pacer.wait()
        waits.append(pacer.refused(Limits()))

    assert all(0.0 < wait <= 61.0 for wait in waits)
    assert sum(waits[6:]) > sum(waits[:6])


def seconds_for(pacer: Pacer, clock: FakeClock, requests: int) -> float:
    """How long it takes until so many have got through, each answered at once and without a word on limits."""
    begun = clock.monotonic()
    for _ in range(requests):
        pacer.accepted(Limits(), pacer.wait())
    return clock.monotonic() - begun


def test_refusals_before_anything_got_through_say_nothing_of_the_rate() -> None:
    """A server that was busy when the sync began is asked once a second afterwards, and not for ever every ten seconds."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    for _ in range(2):
        pacer.wait()
        pacer.refused(Limits())

    assert seconds_for(pacer, clock, 20) < 30.0


@pytest.mark.parametrize("every", [5.0, 60.0])
def test_a_rate_that_nobody_asked_for_is_no_limit(every: float) -> None:
    """Who sends now and then, as a watch does, and is refused once, may send as fast as one who had much to send."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    for _ in range(100):
        pacer.accepted(Limits(), pacer.wait())
        clock.sleep(every)
    pacer.wait()
    pacer.refused(Limits())

    assert seconds_for(pacer, clock, 10) < 15.0


def test_siblings_that_are_refused_with_one_another_back_off_once() -> None:
    """Eight requests that were under way when the lane closed are one refusal, not eight doublings."""
    pacer = make_pacer(FakeClock())

    waits = [pacer.refused(Limits()) for _ in range(8)]

    assert max(waits) <= 1.1


def test_a_retry_after_of_zero_never_becomes_a_busy_loop() -> None:
    """A wish to come back now is answered with a growing wait of our own."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    begun = clock.monotonic()

    for _ in range(10):
        pacer.wait()
        pacer.refused(Limits(retry_after=0.0))

    assert clock.monotonic() - begun > 10.0


def test_nothing_remaining_closes_the_lane_before_the_first_refusal() -> None:
    """Remaining 0 on a success means: the next request would be refused, so it waits for the reset."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    start = clock.monotonic()

    pacer.accepted(Limits(remaining=0.0, reset=30.0), pacer.wait())
    pacer.wait()

    assert clock.monotonic() - start >= 30.0


def test_no_more_is_sent_at_once_than_remains() -> None:
    """Two requests remain: the third waits, whatever burst would else be allowed."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    pacer.accepted(Limits(remaining=2.0, reset=10.0), pacer.wait())
    begun = clock.monotonic()
    pacer.wait()
    pacer.wait()
    assert clock.monotonic() == begun

    pacer.wait()

    assert clock.monotonic() > begun


def test_what_is_under_way_counts_against_what_remains() -> None:
    """Four remain by the answer to the first of five requests, and the four others are on their way: the sixth waits."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    first, *_ = [pacer.wait() for _ in range(5)]
    begun = clock.monotonic()

    pacer.accepted(Limits(remaining=4.0, reset=30.0), first)
    pacer.wait()

    assert clock.monotonic() > begun + 1.0


def test_a_short_wish_does_not_open_a_lane_that_is_closed_for_longer() -> None:
    """Answers of several workers come in any order; the longest wait counts."""
    pacer = make_pacer(FakeClock())
    pacer.refused(Limits(retry_after=100.0))
    pacer.refused(Limits(retry_after=1.0))

    assert pacer.closed_for >= 100.0


NUMBERS = st.none() | st.sampled_from([0.0, 0.5, 1.0, 3.0, 30.0, 900.0, 1e6]) | st.floats(0.0, 2000.0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["accepted", "refused", "late", "nothing"]), NUMBERS, NUMBERS, NUMBERS), max_size=30
    )
)
def test_no_sequence_of_answers_stops_a_lane_for_good(answers: list[tuple[str, Any, Any, Any]]) -> None:
    """Whatever a server says, in whatever order: the next request goes within the longest wait, and numbers stay numbers."""
    clock = FakeClock()
    pacer = make_pacer(clock)
    numbers = [pacer.wait()]
    for what, remaining, reset, retry_after in answers:
        limits = read_limits(
            {
                name: str(value)
                for name, value in zip(
                    ("RateLimit-Remaining", "RateLimit-Reset", "Retry-After"),
                    (remaining, reset, retry_after),
                    strict=True,
                )
                if value is not None
            },
            clock.time(),
        )
        if what == "accepted":
            pacer.accepted(limits, numbers[-1])
        elif what == "late":
            pacer.accepted(limits, numbers[0])
        elif what == "refused":
            pacer.refused(limits)
        begun = clock.monotonic()
        numbers.append(pacer.wait())
        assert clock.monotonic() - begun <= 1.05 * MAX_WAIT_S
    shared = pacer._lane.numbers(0.0)
    assert Lane.new(clock.monotonic()).load(shared, 0.0, clock.monotonic())


# -- documented limits -------------------------------------------------------------------------------------------------


def per_second(clock: FakeClock, pacer: Pacer, cost: Cost, requests: int) -> float:
    begun = clock.monotonic()
    for _ in range(requests):
        pacer.wait(cost)
    return clock.monotonic() - begun


def test_requests_stay_below_500_per_second() -> None:
    """Where the server says nothing a few requests go at once and the rest at 95 % of the documented rate."""
    clock = FakeClock()

    seconds = per_second(clock, make_pacer(clock), Cost(), int(BURST) + 950)

    assert seconds == pytest.approx(2.0, rel=0.01)


def test_run_creations_stay_below_80_per_second() -> None:
    """Runs are created at 76 per second, and what creates none is not slowed by that."""
    clock = FakeClock()

    assert per_second(clock, make_pacer(clock), Cost(creates_run=True), 764) == pytest.approx(10.0, rel=0.01)


def test_bodies_stay_below_120_megabytes_per_second() -> None:
    """Bodies of 8 MB: three at once, then twelve a second; so any second has 120 MB at most."""
    clock = FakeClock()

    assert per_second(clock, make_pacer(clock), Cost(body_bytes=8_000_000), 123) == pytest.approx(10.0, rel=0.01)


def test_a_body_larger_than_a_burst_goes_and_is_paid_for_afterwards() -> None:
    """No body is too large to be sent: the next one waits for it."""
    clock = FakeClock()
    pacer = make_pacer(clock)

    assert per_second(clock, pacer, Cost(body_bytes=120_000_000), 1) == 0.0
    assert per_second(clock, pacer, Cost(body_bytes=1000), 1) == pytest.approx(1.0, rel=0.01)


def test_bodies_of_a_run_go_at_two_per_second_behind_a_burst() -> None:
    """A run of 15 bodies is not slowed; a longer one takes half a second for each further body."""
    clock = FakeClock()
    lane = StreamLane(clock)
    begun = clock.monotonic()
    for _ in range(int(STREAM_BURST)):
        lane.wait()
    assert clock.monotonic() == begun

    for _ in range(10):
        lane.wait()

    assert clock.monotonic() - begun == pytest.approx(5.0)


def test_a_burst_of_a_run_that_is_refused_is_the_last_one() -> None:
    """A 429 behind a burst is the run's own: from then on every second has two bodies at most, and the project learns nothing."""
    clock = FakeClock()
    lane = StreamLane(clock)
    for _ in range(5):
        lane.wait()

    assert lane.refused()
    assert not lane.refused()
    clock.advance(100.0)
    begun = clock.monotonic()
    for _ in range(6):
        lane.wait()
    assert clock.monotonic() - begun == pytest.approx(2.0)


def test_a_server_on_this_machine_has_no_limit_per_run_until_it_refuses() -> None:
    """The documented limit is none of its own; once it has refused a burst, it is kept there too."""
    clock = FakeClock()
    lane = StreamLanes(clock, is_local=True).of("run")
    begun = clock.monotonic()
    for _ in range(500):
        lane.wait()
    assert clock.monotonic() == begun

    assert lane.refused()
    for _ in range(4):
        lane.wait()
    assert clock.monotonic() - begun == pytest.approx(2.0)


def test_lanes_of_runs_are_kept_for_as_long_as_they_are_used() -> None:
    """Ten thousand runs leave no ten thousand lanes, and a run that goes on sending keeps its own."""
    lanes = StreamLanes(FakeClock())
    first = lanes.of("first")

    for number in range(10_000):
        lanes.of(number)
        assert lanes.of("first") is first

    assert len(lanes._lanes) <= 256


def test_a_told_rate_overrides_the_documented_one() -> None:
    """100 in 50 s are 2 per second, and a measured 20,000 in 10 s are more than 500."""
    clock = FakeClock()
    slow, fast = make_pacer(clock), make_pacer(clock)
    slow.accepted(Limits(remaining=100.0, reset=50.0), slow.wait())
    per_second(clock, slow, Cost(), 10)
    assert 10.0 <= per_second(clock, slow, Cost(), 19) <= 11.0

    for remaining in range(20_000, 19_000, -1):
        fast.accepted(Limits(remaining=float(remaining), reset=10.0), fast.wait())
    assert per_second(clock, fast, Cost(), 1000) < 0.6


# -- shared by processes -----------------------------------------------------------------------------------------------


def test_a_lane_that_one_process_closes_is_closed_for_all(tmp_path: Path) -> None:
    """A 429 of one process is heard by the others before they send."""
    clock = FakeClock()
    first, second = sharing(clock, tmp_path, 2)
    first.wait()
    first.refused(Limits(retry_after=20.0))
    told: list[float] = []
    begun = clock.monotonic()

    second.wait(on_closed=told.append)

    assert clock.monotonic() - begun >= 20.0
    assert len(told) == 1


def test_what_was_learnt_long_ago_is_not_taken_over(tmp_path: Path) -> None:
    """Numbers that nobody has touched for longer than any wait are of another day's limits."""
    now = [1_800_000_000.0]
    ours, others = (SharedFile(tmp_path / "x.lane", now=lambda: now[0]) for _ in range(2))
    with others.held() as held:
        assert held is not None
        held.put = Lane.new(0.0).numbers(now[0])
    now[0] += 900.0
    with ours.held() as held:
        assert held is not None
        assert held.numbers is not None
    now[0] += 200.0
    with ours.held() as held:
        assert held is not None
        assert held.numbers is None
    ours.close()
    others.close()


def test_the_shared_file_is_private_and_holds_numbers_only(tmp_path: Path) -> None:
    """Only its owner may read file and folder, and neither host nor project stand in it, nor anything but numbers."""
    folder = tmp_path / "state" / "pacer"
    pacer = Pacers(FakeClock(), random.Random(1), folder).of("secret.host", "secret-project")
    pacer.accepted(Limits(), pacer.wait())

    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    text = path.read_text()
    assert "secret" not in path.name + text
    assert all(isinstance(value, (int, float, type(None))) for value in json.loads(text.partition(" ")[2]).values())


def garbage(path: Path) -> dict[str, bytes]:
    """Contents that must not be believed."""
    good = path.read_bytes()
    return {
        "empty": b"",
        "torn": good[:700] + b"\0" * 300,
        "flipped": good.replace(b"sent", b"sens"),
        "no JSON": b"00000000 {",
        "long": b"x" * 1_000_000,
    }


@pytest.mark.parametrize("kind", ["empty", "torn", "flipped", "no JSON", "long"])
def test_what_is_torn_is_as_good_as_no_file(tmp_path: Path, kind: str) -> None:
    """A file with other bytes than we wrote is ignored, and written anew."""
    clock = FakeClock()
    first, second = sharing(clock, tmp_path, 2)
    first.wait()
    first.refused(Limits(retry_after=500.0))
    (path,) = tmp_path.iterdir()
    path.write_bytes(garbage(path)[kind])
    begun = clock.monotonic()

    second.wait()

    assert clock.monotonic() == begun
    third = sharing(clock, tmp_path, 1)[0]
    third.wait()
    assert third._lane.sent == 2


@pytest.mark.parametrize("jump", [2000.0, -2000.0])
def test_a_clock_that_jumps_makes_nobody_wait(tmp_path: Path, jump: float) -> None:
    """Numbers that are old, or from the future, say nothing."""
    clock = FakeClock()
    first = sharing(clock, tmp_path, 1)[0]
    first.wait()
    first.refused(Limits(retry_after=800.0))
    other = FakeClock(clock.time() + jump)
    begun = other.monotonic()

    sharing(other, tmp_path, 1)[0].wait()

    assert other.monotonic() == begun


def test_absurd_numbers_with_a_good_checksum_are_not_believed(tmp_path: Path) -> None:
    """A lane closed for a year, no numbers at all, or ones that are none: the file is as good as none."""
    clock = FakeClock()
    for change in ({"closed_until": clock.time() + 3e7}, {"quota.period": -1.0}, {"sent": 1e300}, {"sent": None}, {}):
        file = SharedFile(tmp_path / "x.lane", now=clock.time)
        with file.held() as held:
            assert held is not None
            held.put = {**Lane.new(clock.time()).numbers(0.0), **change} if change else {}
        pacer = Pacer(clock, random.Random(1), file)
        begun = clock.monotonic()
        pacer.wait()
        assert clock.monotonic() == begun


def test_without_a_writable_folder_each_goes_alone(tmp_path: Path) -> None:
    """A folder that cannot be made, a link of either kind in the file's place, a pipe: no error, and no file."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert Pacers(FakeClock(), random.Random(1), blocked / "pacer").of("h", "p").wait() == 0

    pacers = Pacers(FakeClock(), random.Random(1), tmp_path)
    target = tmp_path / "target"
    target.write_text("mine")
    for make in (lambda path: path.symlink_to(target), lambda path: path.hardlink_to(target), os.mkfifo):
        pacer = Pacers(FakeClock(), random.Random(1), tmp_path / "pacer").of("h", "p")
        path = pacer._shared.path  # type: ignore[union-attr]
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        make(path)
        assert pacer.wait() == 0
    assert target.read_text() == "mine"
    pacers.close()


def test_a_lock_that_nobody_gives_back_holds_nobody_up(tmp_path: Path) -> None:
    """A process that was stopped while it held the lock costs the others some milliseconds."""
    clock = FakeClock()
    first, second = sharing(clock, tmp_path, 2)
    first.wait()
    pauses: list[float] = []
    second._shared._pause = pauses.append  # type: ignore[union-attr]

    with first._shared.held() as held:  # type: ignore[union-attr]
        assert held is not None
        for _ in range(100):
            second.wait()

    assert sum(pauses) <= 0.05


def test_a_file_system_that_dawdles_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that took 0.2 s costs each request more than it is worth: half a minute without it."""
    now = [100.0]
    monkeypatch.setattr("runferry.sync.sharedfile.time.monotonic", lambda: now[0])
    file = SharedFile(tmp_path / "x.lane", now=lambda: 1_800_000_000.0)
    with file.held() as held:
        assert held is not None
        now[0] += 0.2
    for seconds, is_shared in ((29.0, False), (2.0, True)):
        now[0] += seconds
        with file.held() as held:
            assert (held is not None) is is_shared
    file.close()


def test_a_file_that_was_tidied_up_is_made_again(tmp_path: Path) -> None:
    """Whoever removes the file separates nobody for longer than a request."""
    clock = FakeClock()
    first, second = sharing(clock, tmp_path, 2)
    first.wait()
    second.wait()
    for path in tmp_path.iterdir():
        path.unlink()

    first.wait()
    second.wait()

    assert second._lane.sent == first._lane.sent + 1 == 3


def test_one_project_has_one_pacer_however_many_threads_ask() -> None:
    """All workers of a project share its pacer, and another project or host has its own."""
    pacers = Pacers(FakeClock(), random.Random(7))
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


def test_a_lane_is_closed_for_a_quarter_of_an_hour_at_most() -> None:
    """Whatever a server says."""
    assert make_pacer(FakeClock()).refused(Limits(retry_after=1e9)) <= MAX_WAIT_S + 5
