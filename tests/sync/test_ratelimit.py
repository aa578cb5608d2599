"""What servers say about their limits."""

from __future__ import annotations

import pytest
from runferry.sync.ratelimit import MAX_WAIT_S, Limits, read_limits

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
        ({"Retry-After": "86400"}, Limits(retry_after=86400.0)),
        ({"RateLimit-Reset": "7"}, Limits(reset=7.0)),
        ({"RateLimit-Reset": str(NOW + 30)}, Limits(reset=30.0)),
        ({"RateLimit-Reset": "inf"}, Limits()),
        ({"RateLimit-Reset": "5000"}, Limits(reset=5000.0)),
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
        ({"RateLimit-Reset": "1e300"}, Limits(reset=86400.0)),
        ({"RateLimit-Reset": "0x1e"}, Limits()),
        ({"RateLimit-Reset": "\u0663\u0660"}, Limits()),
        ({"RateLimit-Reset": "1_0"}, Limits()),
        ({"RateLimit-Reset": "9" * 5000}, Limits()),
        ({"Retry-After": "1" * 65}, Limits()),
        ({"Retry-After": "Fri, 15 Jan 99999 08:00:07 GMT"}, Limits()),
        (
            {"Retry-After": "Mon, 30 Nov 2026 09:00:20 GMT", "Date": "Mon, 30 Nov 2026 09:00:00 GMT"},
            Limits(retry_after=20.0),
        ),
        ({"RateLimit-Reset": "1700000010", "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}, Limits(reset=10.0)),
        ({"RateLimit": '"d";r=1;t=1,' * 200}, Limits()),
    ],
)
def test_headers_of_all_dialects_are_read_and_garbage_is_ignored(headers: dict[str, str], expected: Limits) -> None:
    """Each dialect gives its numbers, and a value that makes no sense says nothing."""
    assert read_limits(headers, NOW) == expected


def test_no_header_can_ask_for_more_than_a_quarter_of_an_hour() -> None:
    """What is asked is known, for rates and for the user; what is waited is cut."""
    limits = Limits(reset=5000.0)

    assert (limits.asked, limits.wish) == (5000.0, MAX_WAIT_S)
    assert Limits(retry_after=2.0, reset=5000.0).wish == 2.0
    assert Limits(remaining=3.0).wish is None
