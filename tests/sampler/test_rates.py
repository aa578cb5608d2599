"""Counters of what comes and goes."""

from __future__ import annotations

from runferry.sampler.probes.network import NetworkProbe
from runferry.sampler.rates import FORGET_EVERY, Rises, Totals

NAMES, AT_ONCE = 10_000, 10  # interfaces that come and go, of which so many are there at a time


def test_names_that_are_gone_are_forgotten():
    """10,000 names come and go: few are kept, what they rose by stays in the sum, and who stays is never forgotten."""
    rises, totals = Rises[str](), Totals[str]()
    most = 0
    for tick in range(NAMES // AT_ONCE):
        names = [f"veth{tick * AT_ONCE + each}" for each in range(AT_ONCE)]
        for step in range(2):  # each is there for two readings
            raw = {"eth0": 3 * (2 * tick + step), **dict.fromkeys(names, 5 * step)}
            totals.update(raw)
            found = {name: rises.rise(name, value, 2.0 * tick + step) for name, value in raw.items()}
        assert found["eth0"] == (3, 1.0)
        assert found[names[0]] == (5, 1.0)
        most = max(most, len(rises._last), len(totals.risen), len(totals._seen))
    assert most <= AT_ONCE * FORGET_EVERY + AT_ONCE + 1  # of 200 readings
    assert totals.risen["eth0"] == 3 * (2 * NAMES // AT_ONCE - 1)
    assert totals.total == totals.risen["eth0"] + 5 * NAMES


def test_one_that_is_missing_for_a_while_is_known():
    """Below 100 readings nobody is forgotten; a rate is then over the whole time, and a total goes on."""
    rises, totals = Rises[str](), Totals[str]()
    for now in range(2):
        rises.rise("a", 10 * now, now)
        totals.update({"a": 10 * now})
    for now in range(2, FORGET_EVERY + 1):
        rises.rise("b", 0, now)
        totals.update({"b": 0})
    assert rises.rise("a", 210, FORGET_EVERY + 1) == (200, FORGET_EVERY)
    totals.update({"a": 210})
    totals.update({"a": 211})
    assert (totals.risen["a"], totals.total) == (11, 11)


def test_the_sum_of_interfaces_never_goes_back(machine, sampled):
    """What interfaces carried that have been forgotten is still part of `network.sent`."""
    line = "{}: {} 0 0 0 0 0 0 0 {} 0 0 0 0 0 0 0\n"
    machine.write({"/proc/net/dev": line.format("eth0", 0, 0)})
    network = sampled(NetworkProbe(), machine.context(per_interface=True))
    for tick in range(3 * FORGET_EVERY):
        name, sent = f"veth{tick // 2}", 7 * (tick % 2)
        machine.write({"/proc/net/dev": line.format("eth0", 0, 0) + line.format(name, 0, sent)})
        values = network.next()
        assert values["network.sent"] == 7 * ((tick + 1) // 2)
        assert values[f"network.{name}.sent"] == sent
    assert len(network.probe._sent.risen) <= FORGET_EVERY + 1


def test_no_rate_where_no_time_has_passed():
    """Two readings at one moment, as of two devices under one name."""
    rises = Rises()
    assert rises.rise("a", 1, 1.0) is None
    assert rises.rise("a", 5, 1.0) is None
    assert rises.rise("a", 9, 3.0) == (4, 2.0)


def test_whoever_was_there_within_a_hundred_readings_is_known():
    """Seen for the last time at the reading at which others were forgotten, it is known for a hundred more."""
    rises, totals = Rises(), Totals()
    for reading in range(1, FORGET_EVERY + 1):
        rises.rise("a", reading, float(reading))
        totals.update({"a": reading})
    for reading in range(FORGET_EVERY + 1, 2 * FORGET_EVERY + 1):
        rises.rise("other", reading, float(reading))
        totals.update({"other": reading})
    assert rises.rise("a", 2 * FORGET_EVERY, 2.0 * FORGET_EVERY) == (FORGET_EVERY, FORGET_EVERY)
    assert totals.risen["a"] == FORGET_EVERY - 1
