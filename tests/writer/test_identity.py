"""Who a run is, as each segment of its log begins with it."""

from __future__ import annotations

import pytest
from runferry.logformat import messages
from runferry.writer.identity import Behind, Identity
from runferry.writer.metrics import define
from runferry.writer.settings import Settings, resolve


class Clock:
    """Stands still until it is told."""

    now = 1000.5

    def time(self):
        return self.now

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def identify(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def identify(config=None, *, behind=None, watch=None, warn=lambda *_: None):
        settings = resolve(Settings(dir=tmp_path, run_id="r1", project="p"), None, {})
        clock = Clock()
        made = Identity(
            settings,
            config,
            version="1",
            clock=clock,
            changed=lambda *_: None,
            warn_once=warn,
            watch=watch,
            behind=behind,
        )
        return made, clock

    return identify


def parsed(bodies):
    return [messages.Record.FromString(body) for body in bodies]


def test_a_segment_begins_with_the_whole_run(identify):
    """The first has header and run; a later one starts when it starts, has the time so far, and the definitions."""
    identity, clock = identify({"lr": 0.1})
    header, run = parsed(identity.opening())
    clock.sleep(90.75)
    later_header, later, metric = parsed(identity.opening([define("a", "s")]))

    assert header.header == later_header.header
    assert (run.run.run_id, run.run.start_time.seconds, run.run.start_time.nanos) == ("r1", 1000, 500_000_000)
    assert (run.run.runtime, run.run.resume) == (0, False)
    assert (later.run.start_time.seconds, later.run.runtime, later.run.resume) == (1091, 90, True)
    assert (metric.metric.name, metric.metric.step_metric) == ("a", "s")
    assert later.run.config == run.run.config


def test_a_run_that_goes_on(identify):
    """Step and time of the logs behind which it goes on; a clock that was set back adds none; 31 bits are the most."""
    identity, clock = identify(behind=Behind(step=7, runtime_s=60.9))
    run = parsed(identity.opening())[1].run
    clock.sleep(-500)
    back = parsed(identity.opening([]))[1].run

    assert (run.starting_step, run.runtime) == (7, 60)
    assert back.runtime == 60
    assert parsed(identify(behind=Behind(runtime_s=1e30))[0].opening())[1].run.runtime == 2**31 - 1


def test_the_size_of_a_config_that_grows(identify, monkeypatch):
    """A key that is set again and again is counted once, before anything is said."""
    monkeypatch.setattr("runferry.writer.guides.MAX_CONFIG", 1000)
    said = []

    class Watch:
        def config(self, size):
            said.append(size > 1000)

    identity, _ = identify({"a": 1}, watch=Watch())
    identity.opening()
    for _ in range(50):
        identity.config["b"] = "x" * 300
        identity.config_change(("b",), "x" * 300)
    assert said
    assert not any(said)

    identity.config["c"] = "x" * 800
    identity.config_change(("c",), "x" * 800)
    assert said[-1]
