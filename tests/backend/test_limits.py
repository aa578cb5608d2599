"""Quota windows."""

from __future__ import annotations

import pytest
from runferry.backend import DOCUMENTED, Rates, limits
from runferry.backend.limits import QuotaError, Quotas, RateLimiter
from support.clock import FakeClock
from support.inprocess import in_process

PROJECT = ("team", "proj")


@pytest.fixture
def clock():
    return FakeClock(0.0)


def refusals(take, count):
    """How many of `count` calls are refused, and the name of the quota that was used up."""
    names = []
    for number in range(count):
        try:
            take(number)
        except QuotaError as error:
            names.append(error.quota.name)
    return len(names), set(names)


def test_a_window_begins_with_its_first_request():
    """Requests are counted until the window is over; refused ones cost nothing."""
    times = [100.0, 105.0, 105.5, 109.999, 110.0, 119.0, 119.5]
    limiter = RateLimiter(2, 10.0, clock=iter(times).__next__)
    quotas = [limiter.take("p") for _ in times]
    seen = [(quota.allowed, quota.remaining, quota.headers()["RateLimit-Reset"]) for quota in quotas]

    assert seen == [
        (True, 1, "10"),
        (True, 0, "5"),
        (False, 0, "5"),
        (False, 0, "1"),
        (True, 1, "10"),
        (True, 0, "1"),
        (False, 0, "1"),
    ]


def test_invented_projects_do_not_fill_the_memory(monkeypatch):
    """Windows that are over are forgotten, and of those that are not the oldest, once there are many."""
    monkeypatch.setattr(limits, "MAX_WINDOWS", 10)
    for window_s, kept in ((1.0, 1), (1_000.0, 10)):
        limiter = RateLimiter(1, window_s, clock=iter(range(200)).__next__)
        for project in range(100):
            limiter.take(project)

        assert list(limiter._windows) == list(range(100 - kept, 100))


def test_a_window_that_begins_anew_is_the_youngest(monkeypatch):
    """What is forgotten first is what ends first, not what came first."""
    monkeypatch.setattr(limits, "MAX_WINDOWS", 2)
    limiter = RateLimiter(1, 10.0, clock=iter([0, 5, 10, 11]).__next__)
    for project in ("a", "b", "a", "c"):
        limiter.take(project)

    assert list(limiter._windows) == ["a", "c"]


def test_the_documented_rates(clock):
    """In any second 500 stream requests and 120 MB of a project, 2 requests of a run, 80 new runs pass; no more."""
    quotas = Quotas(None, 1.0, DOCUMENTED, clock.monotonic)

    seconds = []
    for _ in range(2):
        clock.advance(1.0)
        seconds.append(
            (
                refusals(lambda _: quotas.stream(PROJECT, "one", 10), 5),
                refusals(lambda number: quotas.stream(PROJECT, f"run{number}", 10), 600),
                refusals(lambda _: quotas.creation(PROJECT), 100),
                refusals(lambda number: quotas.stream(("team", "big"), f"run{number}", 12_000_000), 12),
            )
        )

    assert (
        seconds
        == [((3, {"run-requests"}), (102, {"project-requests"}), (20, {"run-creations"}), (2, {"project-bytes"}))] * 2
    )


def test_a_refused_request_takes_from_no_quota(clock):
    """What one quota refuses does not count in the others."""
    quotas = Quotas(None, 1.0, Rates(requests=4, run_requests=2), clock.monotonic)

    refused = refusals(lambda _: quotas.stream(PROJECT, "one", 1), 10)
    told = quotas.stream(PROJECT, "two", 1)

    assert (refused, told.remaining) == ((8, {"run-requests"}), 1)


def test_a_body_above_the_limit_passes_alone(clock):
    """Else it could never be sent; what comes after it in the same second is refused."""
    quotas = Quotas(None, 1.0, Rates(size=100), clock.monotonic)

    assert quotas.stream(PROJECT, "one", 1000).remaining == 0
    assert refusals(lambda _: quotas.stream(PROJECT, "one", 1), 1) == (1, {"project-bytes"})
    clock.advance(1.0)
    assert quotas.stream(PROJECT, "one", 1).remaining == 99


@pytest.mark.parametrize(
    ("style", "fine", "refused"),
    [
        (
            "fields",
            {"ratelimit-limit": "2", "ratelimit-remaining": "1", "ratelimit-reset": "30"},
            {"ratelimit-limit": "2", "ratelimit-remaining": "0", "ratelimit-reset": "30"},
        ),
        ("reset", {"ratelimit-reset": "30"}, {"ratelimit-reset": "30"}),
        ("retry-after", {}, {"retry-after": "30"}),
        (
            "structured",
            {"ratelimit-policy": '"requests";q=2;w=30', "ratelimit": '"requests";r=1;t=30'},
            {"ratelimit-policy": '"requests";q=2;w=30', "ratelimit": '"requests";r=0;t=30'},
        ),
        ("none", {}, {}),
    ],
)
def test_quotas_are_told_in_many_ways(tmp_path, style, fine, refused):
    """Each spelling that servers use, on answers and on refusals."""
    with in_process(tmp_path / "data", limit=2, window_s=30.0, limit_headers=style) as server:
        server.upsert()
        server.steady += 30
        answers = [server.stream({}) for _ in range(3)]

    told = [
        {name: value for name, value in answer.headers.items() if name.startswith(("ratelimit", "retry"))}
        for answer in answers
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert (told[0], told[2]) == (fine, refused)


def test_new_runs_are_limited_and_changes_are_not(tmp_path):
    """The quota of new runs is answered 429 and makes no run; an upsert of a run that is there is no new run."""
    document = {"query": 'mutation { upsertBucket(input: {name: "c", modelName: "proj"}) { inserted } }'}
    with in_process(tmp_path / "data", rates=Rates(run_creations=2)) as server:
        server.upsert("a")
        server.upsert("b")
        for _ in range(5):
            server.upsert("a")
        refused = server.request("POST", "/graphql", json=document)
        server.steady += 1
        later = server.request("POST", "/graphql", json=document)

        assert (refused.status_code, refused.headers["ratelimit-reset"], later.status_code) == (429, "1", 200)
        assert len(server.store.runs()) == 3


def test_rates_that_make_no_sense_are_refused():
    """A rate below one per second would let nothing through."""
    with pytest.raises(ValueError, match="at least 1"):
        Rates(requests=0)
