"""Requests that get through, and those that don't."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from runferry.sync.channel import Channel, raise_for_status
from runferry.sync.errors import AuthError, Conflict, OutOfTime, Permanent, Retryable, TooLarge, TooSlow
from runferry.sync.pacer import Pacer
from runferry.sync.ratelimit import Limits
from runferry.sync.report import Event, Paused, Retrying
from runferry.sync.transport import Answer, Request
from support.clock import FakeClock
from support.simulation import Simulation

REQUEST = Request("POST", "http://backend.test/x", {}, b"{}")


class Script:
    """A transport that plays answers in turn; the last one again and again. Notes when each request came."""

    def __init__(self, clock: FakeClock, *answers: Answer | Exception) -> None:
        self.clock, self.answers, self.times = clock, list(answers), []

    def send(self, request: Request) -> Answer:
        self.times.append(self.clock.monotonic())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Rig:
    """A channel over scripted answers, on a clock of its own."""

    def __init__(self, *answers: Answer | Exception, retry_for: float = 600.0) -> None:
        self.clock = FakeClock()
        self.script = Script(self.clock, *answers)
        self.events: list[Event] = []
        rng = random.Random(3)
        self.pacer = Pacer(self.clock, rng)
        self.channel = Channel(self.script, clock=self.clock, rng=rng, retry_for=retry_for, reporter=self.events.append)

    def call(self, read: Callable[[Answer], Any] = lambda answer: answer.body, **options: Any) -> Any:
        return self.channel.call(REQUEST, self.pacer, what="rows", read=read, **options)

    @property
    def gaps(self) -> list[float]:
        """Seconds between the requests."""
        return [after - before for before, after in zip(self.script.times, self.script.times[1:], strict=False)]


def answer(status: int = 200, body: bytes = b"ok", **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def test_a_429_with_only_a_reset_is_waited_out() -> None:
    """After 429 with RateLimit-Reset 7 the next request comes 7 s later and not before; then all is well."""
    rig = Rig(answer(429, ratelimit_reset="7"), answer())

    assert rig.call() == b"ok"
    assert len(rig.gaps) == 1
    assert 7.0 <= rig.gaps[0] <= 8.0
    assert [type(event) for event in rig.events] == [Paused]


def test_refusals_are_no_failed_attempts() -> None:
    """Twenty refusals in a row with a budget that a single failure would break still end in success, as time is allowed."""
    refusals = [answer(429, retry_after="2")] * 9

    assert Rig(*refusals, answer(), retry_for=1.0).call() == b"ok"


def test_endless_refusals_end_once_the_budget_is_over() -> None:
    """A server that refuses for ever does not hold the sync for ever: it is a case for another time."""
    rig = Rig(answer(429, retry_after="30"), retry_for=100.0)

    with pytest.raises(OutOfTime):
        rig.call()

    assert rig.clock.monotonic() - rig.script.times[0] < 600.0


@pytest.mark.parametrize("failure", [answer(500), answer(503), answer(408), answer(425), Retryable("reset")])
def test_passing_failures_are_retried_with_jitter(failure: Answer | Exception) -> None:
    """Statuses and broken connections that may pass are tried again, each time after a wait that is announced."""
    rig = Rig(failure, failure, answer())

    assert rig.call() == b"ok"
    assert len(rig.script.times) == 3
    retries = [event for event in rig.events if isinstance(event, Retrying)]
    assert [event.attempt for event in retries] == [1, 2]
    assert [event.wait for event in retries] == pytest.approx(rig.gaps)


def test_a_503_with_retry_after_waits_as_long_as_asked() -> None:
    """Retry-After holds for failures too."""
    rig = Rig(answer(503, retry_after="20"), answer())

    rig.call()

    assert 20.0 <= rig.gaps[0] <= 22.0


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Permanent),
        (401, AuthError),
        (403, AuthError),
        (404, Permanent),
        (409, Conflict),
        (410, Permanent),
        (413, TooLarge),
        (422, Permanent),
        (501, Permanent),
        (302, Permanent),
    ],
)
def test_last_words_are_not_asked_for_twice(status: int, error: type[Exception]) -> None:
    """A status that says no for good ends the request after one attempt, with the server's own words."""
    rig = Rig(answer(status, b"because"))

    with pytest.raises(error, match="because"):
        rig.call()

    assert len(rig.script.times) == 1


def test_the_budget_ends_retrying() -> None:
    """A server that stays down is given up after the budget, and the error says what the last failure was."""
    rig = Rig(answer(500, b"oops"), retry_for=600.0)

    with pytest.raises(OutOfTime, match="oops"):
        rig.call()

    assert 500.0 < rig.script.times[-1] - rig.script.times[0] <= 600.0
    assert len(rig.script.times) > 8


def test_no_budget_means_one_attempt() -> None:
    """With retry_for 0 the first failure is the last."""
    rig = Rig(Retryable("down"), retry_for=0.0)

    with pytest.raises(OutOfTime):
        rig.call()

    assert len(rig.script.times) == 1


def test_a_host_that_is_down_is_down_for_everybody() -> None:
    """The second request to a host that has been silent for the whole budget gets one attempt, not a budget of its own."""
    rig = Rig(Retryable("down"), retry_for=600.0)
    with pytest.raises(OutOfTime):
        rig.call()
    before = len(rig.script.times)

    with pytest.raises(OutOfTime):
        rig.call()

    assert len(rig.script.times) - before == 1


def test_a_refusal_for_good_shows_that_the_host_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, a failure gets the whole budget again: the host was not silent all the time."""
    rig = Rig(Answer(500, {}, b""), retry_for=20.0)
    with pytest.raises(OutOfTime):
        rig.call()
    monkeypatch.setattr(rig.script, "answers", [Answer(404, {}, b"")])
    with pytest.raises(Permanent):
        rig.call()
    monkeypatch.setattr(rig.script, "answers", [Answer(500, {}, b""), answer()])

    assert rig.call() == b"ok"


def test_a_conflict_of_a_run_record_gets_a_few_attempts() -> None:
    """A 409 on the upsert may be a race and is tried again; one that speaks of a deleted run is final at once."""
    assert Rig(answer(409), answer()).call(retry_conflict=True) == b"ok"

    deleted = Rig(answer(409, b"run was deleted"))
    with pytest.raises(Conflict):
        deleted.call(retry_conflict=True)
    assert len(deleted.script.times) == 1


def test_an_answer_that_cannot_be_read_is_no_acknowledgement() -> None:
    """`read` may refuse an answer as cut off: the request goes again."""

    def read(got: Answer) -> bytes:
        if not got.body.endswith(b"}"):
            raise Retryable("cut off")
        return got.body

    assert Rig(answer(200, b'{"a"'), answer(200, b"{}")).call(read) == b"{}"


def test_absurd_waits_are_cut_and_said_so() -> None:
    """A Retry-After of a day becomes a quarter of an hour, with a message."""
    rig = Rig(answer(429, retry_after="86400"), answer())

    rig.call()

    assert 900.0 <= rig.gaps[0] <= 903.0
    assert ["asked for 86400 s, which is absurd and cut" in event.reason for event in rig.events] == [True]  # type: ignore[attr-defined]


def test_a_long_window_is_no_news() -> None:
    """A Reset of an hour with every success says how fast to go, and nothing that anybody needs to be told each time."""
    rig = Rig(answer(200, ratelimit_remaining="900", ratelimit_reset="3600"))

    for _ in range(5):
        rig.call()

    assert rig.events == []


# -- the host, for everybody -------------------------------------------------------------------------------------------


class Slow(Script):
    """Each attempt takes 10 s, as a host that swallows packets does."""

    def send(self, request: Request) -> Answer:
        self.clock.advance(10.0)
        return super().send(request)


def test_ten_thousand_requests_to_a_host_that_swallows_packets_end_soon() -> None:
    """Once it is given up, nobody waits ten seconds more for a connection: all the others end within two probes."""
    rig = Rig()
    rig.script = Slow(rig.clock, Retryable("no route"))
    rig.channel = Channel(
        rig.script, clock=rig.clock, rng=random.Random(3), retry_for=600.0, reporter=rig.events.append
    )
    with pytest.raises(OutOfTime):
        rig.call()
    before = rig.clock.monotonic()

    for _ in range(10_000):
        with pytest.raises(OutOfTime, match="no route"):
            rig.call()

    assert rig.clock.monotonic() - before < 60.0


def test_a_wish_of_zero_after_a_failure_never_becomes_a_busy_loop() -> None:
    """A 503 with Retry-After 0 is waited for as one without."""
    rig = Rig(answer(503, retry_after="0"), retry_for=60.0)

    with pytest.raises(OutOfTime):
        rig.call()

    assert len(rig.script.times) < 40


def test_a_busy_server_is_left_alone_by_all() -> None:
    """A 503 with Retry-After closes the lane for the other workers too."""
    rig = Rig(answer(503, retry_after="20"), answer())
    closed_for: list[float] = []
    rig.channel._reporter = lambda _: closed_for.append(rig.pacer.closed_for)

    rig.call()

    assert closed_for[0] >= 20.0
    begun = rig.script.times[0]
    assert rig.script.times[1] - begun >= 20.0


def test_nothing_is_sent_while_a_lane_is_closed() -> None:
    """No heartbeat, no probe: between the refusal and the end of the wait there is no request at all."""
    rig = Rig(answer(429, retry_after="300"), answer())

    rig.call()

    assert len(rig.script.times) == 2
    assert rig.gaps[0] >= 300.0


def test_workers_that_wait_for_the_same_are_one_piece_of_news() -> None:
    """Eight requests that fail at the same time with the same status are told once, not eight times."""
    clock = Simulation()
    events: list[Event] = []
    failures = [8]

    class Down:
        def send(self, _: Request) -> Answer:
            clock.sleep(0.1)
            failures[0] -= 1
            return answer(502) if failures[0] >= 0 else answer()

    channel = Channel(Down(), clock=clock, rng=random.Random(1), retry_for=600.0, reporter=events.append)
    pacer = Pacer(clock, random.Random(1))

    clock.run(*[lambda: channel.call(REQUEST, pacer, what="rows", read=lambda got: got.body) for _ in range(8)])

    assert [type(event) for event in events] == [Retrying]


def test_workers_that_are_refused_together_are_one_piece_of_news() -> None:
    """Eight 429s of one moment are one pause of the lane, told once."""
    clock = Simulation()
    events: list[Event] = []
    refusals = [8]

    class Busy:
        def send(self, _: Request) -> Answer:
            clock.sleep(0.1)
            refusals[0] -= 1
            return answer(429, retry_after="30") if refusals[0] >= 0 else answer()

    channel = Channel(Busy(), clock=clock, rng=random.Random(1), retry_for=600.0, reporter=events.append)
    pacer = Pacer(clock, random.Random(1))

    clock.run(*[lambda: channel.call(REQUEST, pacer, what="rows", read=lambda got: got.body) for _ in range(8)])

    assert [type(event) for event in events] == [Paused]


# -- bodies that take too long -----------------------------------------------------------------------------------------


def test_a_divisible_body_that_was_too_slow_is_not_sent_again_whole() -> None:
    """The caller is asked for halves at once; a body that cannot be divided, is small, or failed otherwise is sent again."""
    late = Retryable("the attempt took too long for its size", late=True)
    big = Request("POST", "http://backend.test/x", {}, b"x" * 1_000_000)
    rig = Rig(late, answer())
    with pytest.raises(TooSlow):
        rig.channel.call(big, rig.pacer, what="rows", read=lambda got: got.body, divisible=True)
    assert len(rig.script.times) == 1

    for failure, request, divisible in (
        (late, big, False),
        (late, Request("POST", big.url, {}, b"x" * 100_000), True),
        (Retryable("reset"), big, True),
    ):
        again = Rig(failure, answer())
        got = again.channel.call(request, again.pacer, what="rows", read=lambda got: got.body, divisible=divisible)
        assert got == b"ok"


def test_a_dead_server_is_not_a_slow_one_for_ever() -> None:
    """Halving does not renew the budget: a host that answers nothing is given up after it."""
    rig = Rig(retry_for=600.0)
    rig.script = Slow(rig.clock, Retryable("no answer in time", late=True))
    rig.channel = Channel(
        rig.script, clock=rig.clock, rng=random.Random(3), retry_for=100.0, reporter=rig.events.append
    )
    big = Request("POST", "http://backend.test/x", {}, b"x" * 1_000_000)

    for _ in range(40):
        try:
            rig.channel.call(big, rig.pacer, what="rows", read=lambda got: got.body, divisible=True)
        except OutOfTime:
            break
        except TooSlow:
            continue
    else:
        pytest.fail("never given up")
    assert rig.clock.monotonic() - rig.script.times[0] < 130.0


# -- redirects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "location", "words"),
    [
        (
            "http://a.test/graphql",
            "https://a.test/graphql",
            "set the base URL to that if you trust it (--base-url https://a.test)",
        ),
        ("http://a.test/graphql", "https://b.test/w/graphql?key=s3cret", "(--base-url https://b.test/w)"),
        ("http://a.test/files/e/p/r/file_stream", "//b.test/files/e/p/r/file_stream", "(--base-url http://b.test)"),
        ("http://a.test/graphql", "https://u:s3cret@b.test/login?next=s3cret", "redirects to https://b.test/login"),
        ("http://a.test/graphql", "https://b.test/k3y/graphql", "redirects to https://b.test/***"),
        ("http://a.test/graphql", "javascript:alert(1)", "a redirect to nowhere"),
        ("http://a.test/graphql", "http://[::1", "a redirect to nowhere"),
    ],
)
def test_a_redirect_says_which_base_url_to_use(url: str, location: str, words: str) -> None:
    """One attempt, not followed, and the message names the place without what may be secret in it."""
    rig = Rig(answer(301, location=location))
    rig.channel._hide_in = lambda text: text.replace(b"k3y", b"***")
    request = Request("POST", url, {"Authorization": "Basic x"}, b"{}")

    with pytest.raises(Permanent) as caught:
        rig.channel.call(request, rig.pacer, what="UpsertBucket", read=lambda got: got.body)

    assert words in str(caught.value)
    assert "not followed" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert len(rig.script.times) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "no such run"}', "x: HTTP 404: no such run"),
        (b'{"message": "gone"}', "x: HTTP 404: gone"),
        (b'{"errors": [{"message": "a"}, "b"]}', "x: HTTP 404: a; b"),
        (b'{"errors": [{"code": 7}]}', 'x: HTTP 404: {"errors": [{"code": 7}]}'),
        (b'{"detail": 1}', 'x: HTTP 404: {"detail": 1}'),
        (b"[1]", "x: HTTP 404: [1]"),
        (b"[" * 100_000, "x: HTTP 404: " + "[" * 500),
        (b"<html>", "x: HTTP 404: <html>"),
        (b"", "x: HTTP 404"),
    ],
)
def test_what_a_server_says_is_told_without_its_wrapping(body: bytes, said: str) -> None:
    """The message of a JSON answer; any other body as it is."""
    with pytest.raises(Permanent) as caught:
        raise_for_status(Answer(404, {}, body), "x", Limits())

    assert str(caught.value) == said


def test_a_wait_that_the_server_asked_for_uses_up_no_budget() -> None:
    """A failure, a 429 that outlasts the budget, another failure: the server was there all the time, and is asked again."""
    rig = Rig(answer(500), answer(429, Retry_After="700"), answer(500), answer(429, Retry_After="700"), answer())

    assert rig.call() == b"ok"


def test_a_conflict_shows_that_the_host_is_there() -> None:
    """After a last word of this kind, too, a failure gets the whole budget."""
    rig = Rig(answer(500), answer(409))
    with pytest.raises(Conflict):
        rig.call()
    rig.clock.advance(700.0)
    rig.script.answers = [answer(500), answer()]

    assert rig.call() == b"ok"


def test_a_storage_that_is_down_is_not_its_server() -> None:
    """Uploads to the server's own host are given up for themselves: its other requests get their whole budget."""
    rig = Rig(answer(503), retry_for=60.0)
    with pytest.raises(OutOfTime):
        rig.call(upload=True)
    rig.script.answers = [answer(503), answer(503), answer()]

    assert rig.call() == b"ok"


def test_uploads_are_put_off_while_others_wait() -> None:
    """Half a minute instead of the budget, then at once; when nobody waits any more, the rest of the budget is theirs."""
    rig = Rig(Retryable("refused"))
    rig.channel.puts_off = True
    begun = rig.clock.monotonic()
    for _ in range(3):
        with pytest.raises(OutOfTime):
            rig.call(upload=True)
    assert rig.clock.monotonic() - begun <= 30.0
    assert rig.channel.has_put_off

    rig.channel.puts_off = False
    rig.script.answers = [Retryable("refused")] * 4 + [answer()]
    assert rig.call(upload=True) == b"ok"


def test_the_second_turn_of_an_upload_does_not_find_its_host_resting() -> None:
    """A storage that swallows packets rests for a while; who has the whole budget again does not fail by that."""
    rig = Rig()
    rig.script = Slow(rig.clock, Retryable("no connection in time"))
    rig.channel._transport = rig.script
    rig.channel.puts_off = True
    for words in ("gave up", "not sent"):
        with pytest.raises(OutOfTime, match=words):
            rig.call(upload=True)

    rig.channel.puts_off = False
    rig.script.answers = [Retryable("no connection in time"), answer()]
    assert rig.call(upload=True) == b"ok"


def test_a_short_budget_is_not_made_longer_by_putting_off() -> None:
    """With --retry-for 5 an upload gets 5 s, and no second turn."""
    rig = Rig(Retryable("refused"), retry_for=5.0)
    rig.channel.puts_off = True
    begun = rig.clock.monotonic()
    with pytest.raises(OutOfTime):
        rig.call(upload=True)
    assert rig.clock.monotonic() - begun <= 5.0
    assert not rig.channel.has_put_off


def test_a_wait_that_a_busy_server_asks_for_is_told() -> None:
    """Also where it is longer than the budget, so that giving up at once has a reason, and where it is cut."""
    rig = Rig(answer(503, Retry_After="700"), retry_for=600.0)
    with pytest.raises(OutOfTime, match=r"it asked for 700 s; gave up after 0 s"):
        rig.call()

    rig = Rig(answer(503, Retry_After="99999"), answer(), retry_for=3600.0)
    rig.call()
    assert (
        "it asked for 86400 s, which is absurd and cut" in next(e for e in rig.events if isinstance(e, Retrying)).reason
    )
