"""Quota windows."""

from __future__ import annotations

from runferry.backend import limits
from runferry.backend.limits import RateLimiter


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
