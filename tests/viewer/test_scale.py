from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.scale import Scale, duration, value_ticks, widened, x_place, x_ticks

FINITE = st.floats(allow_nan=False, allow_infinity=False)
UTC = dt.timezone.utc


def labels(ticks):
    return [text for _, text in ticks]


def test_ticks_of_values_are_round():
    """Ticks are 1, 2 or 5 times a power of ten, no more than asked for."""
    assert labels(value_ticks(Scale(0.0, 2.5), 6)) == ["0", "0.5", "1", "1.5", "2", "2.5"]
    assert labels(value_ticks(Scale(0.0, 2.5), 4)) == ["0", "1", "2"]


def test_ticks_of_a_logarithmic_scale_are_powers():
    """Powers of ten where there are some, else round values between them."""
    assert labels(value_ticks(Scale(1e-3, 100.0, is_log=True), 6)) == ["0.001", "0.01", "0.1", "1", "10", "100"]
    assert labels(value_ticks(Scale(2.0, 8.0, is_log=True), 4)) == ["2", "4", "6", "8"]


def test_steps_have_no_ticks_between_whole_numbers():
    """An axis of steps has ticks at whole numbers only, large ones with a prefix; one of numbers has others, too."""
    assert labels(x_ticks(Scale(0.0, 2.0), 8, "step", UTC)) == ["0", "1", "2"]
    assert labels(x_ticks(Scale(0.0, 4e5), 4, "step", UTC)) == ["0", "100k", "200k", "300k", "400k"]
    assert labels(x_ticks(Scale(0.0, 2.0), 4, "number", UTC)) == ["0", "0.5", "1", "1.5", "2"]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0.1, ["0", "0.05s", "0.1s"]),
        (60, ["0", "30s", "1m"]),
        (5400, ["0", "1h"]),
        (86400 * 3, ["0", "2d"]),
        (86400 * 3000, ["0", "2000d"]),
    ],
)
def test_ticks_of_relative_time(length, expected):
    """Ticks of a time since the start are round in the unit that suits the length."""
    assert labels(x_ticks(Scale(0.0, float(length)), 2, "relative", UTC)) == expected


def test_ticks_of_days_tell_the_day():
    """Ticks of a wall clock that are days apart are dates."""
    assert labels(x_ticks(Scale(1796000000.0, 1796000000.0 + 4 * 86400), 4, "wall", UTC)) == [
        "Dec 01",
        "Dec 02",
        "Dec 03",
        "Dec 04",
    ]


def test_ticks_of_wall_clocks_stand_where_they_say():
    """The value of a tick is the time that its label tells, in zones of half hours, too."""
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    ticks = x_ticks(Scale(1796026800.0, 1796026800.0 + 7200), 4, "wall", zone)
    assert labels(ticks) == ["Nov 30 14:00", "14:30", "15:00", "15:30"]
    assert [value - ticks[0][0] for value, _ in ticks] == [0, 1800, 3600, 5400]
    assert dt.datetime.fromtimestamp(ticks[0][0], zone).strftime("%H:%M:%S") == "14:00:00"


def test_no_date_is_a_number():
    """Wall clocks beyond the calendar have ticks that are numbers."""
    assert labels(x_ticks(Scale(0.0, 1e12), 4, "wall", UTC))[-1] == "1T"
    assert x_place(1e300, "wall", UTC) == "1e+300"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (1.5, "1.5s"),
        (59.99, "60s"),
        (90, "1m30s"),
        (3600, "1h"),
        (3660, "1h1m"),
        (-86400, "-1d"),
        (1e9, "11574d"),
    ],
)
def test_durations(seconds, text):
    """Times are told by their two largest units, very long ones in days."""
    assert duration(seconds) == text


def test_places_on_an_axis():
    """A place is told with all that tells it from its neighbours."""
    assert x_place(1234567.0, "step", UTC) == "1,234,567"
    assert x_place(0.125, "number", UTC) == "0.125"
    assert x_place(5400.0, "relative", UTC) == "1h30m"
    assert x_place(1796026800.0, "wall", UTC) == "Nov 30 08:20:00"


@settings(max_examples=150, deadline=None)
@given(
    FINITE, FINITE, FINITE, st.integers(1, 12), st.sampled_from(["number", "step", "relative", "wall"]), st.booleans()
)
def test_any_range(one, other, value, count, kind, is_log):
    """Every range of doubles becomes one with a length, whose ticks lie in it, and on which every value has a place."""
    low, high = sorted((abs(one) or 1.0, abs(other) or 1.0) if is_log else (one, other))
    scale = Scale(*widened(low, high, by=0.1, is_log=is_log), is_log=is_log)
    assert scale.low < scale.high
    assert abs(scale.fraction(value)) <= 1e9
    assert 0 <= scale.column(value, 7) < 7
    assert all(scale.low <= at <= scale.high for at, _ in value_ticks(scale, count))
    assert len(x_ticks(scale, count, kind, UTC)) <= 3 * count + 3
