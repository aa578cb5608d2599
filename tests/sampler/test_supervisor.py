"""The supervisor of a helper process, told by a child that is played: each answer at the moment that the test chooses."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from runferry.sampler import Probe, SamplerSettings, Tier, supervisor
from runferry.sampler.context import Context
from runferry.sampler.supervisor import FIRST_BACKOFF, KILL_AFTER, KILL_OPENING_AFTER, LONGEST_BACKOFF, HelperRunner


class Library(Probe):
    name = "library"
    tier = Tier.HELPER


class Played:
    """A child of which the test reads the requests and writes the answers; killed, it is gone when the test says so."""

    def __init__(self, pid):
        self.pid, self.returncode, self.killed = pid, None, 0
        requests, to_child = os.pipe()
        from_child, answers = os.pipe()
        self.stdin = os.fdopen(to_child, "wb", buffering=0)
        self.stdout = os.fdopen(from_child, "rb", buffering=0)
        self._requests = os.fdopen(requests, "rb", buffering=0)
        self._answers = os.fdopen(answers, "wb", buffering=0)

    def poll(self):
        return self.returncode

    def kill(self):
        self.killed += 1

    def wait(self, timeout=None):
        self.returncode = 0
        return 0

    def asked(self):
        """The number of the next request."""
        return json.loads(self._requests.readline())["id"]

    def say(self, data):
        self._answers.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    def end(self):
        for pipe in (self._answers, self._requests, self.stdin, self.stdout):
            pipe.close()


@pytest.fixture
def played():
    """A runner, its children in the order in which they were started, and a wait for what a thread does."""
    children = []

    def spawn():
        children.append(Played(900_000_000 + len(children)))
        return children[-1]

    runner = HelperRunner(
        Library(), Context(SamplerSettings(interval=1.0), own_pids=set()), threading.Condition(), spawn=spawn
    )
    runner.children = children
    yield runner
    runner.close(0.1)
    threads = [thread for thread in threading.enumerate() if thread.name == "runferry-library"]
    for child in children:
        child._answers.close()
    for thread in threads:
        thread.join(10)
    for child in children:
        child.end()


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def opened(runner, now=0.0):
    runner.request(now)
    child = runner.children[-1]
    child.say({"id": child.asked(), "metadata": {}})
    eventually(lambda: not runner.opening)
    return child


def values(count):
    return {"values": {"count": count}, "duration": 0.0, "error": None, "notices": []}


def test_an_answer_to_an_earlier_request_is_none_to_this_one(played):
    """It is not taken for what is asked now."""
    child = opened(played)
    assert played.request(1.0)
    number = child.asked()
    child.say({"id": number - 1, **values(1)})
    child.say({"id": number, **values(2)})
    eventually(lambda: not played.waiting)
    assert played.take(1.0) == {"count": 2}


def test_a_child_that_was_replaced_speaks_for_nobody(played):
    """What it said before it was killed may be read after the next child was asked, by the same number."""
    first = opened(played)
    played.request(1.0)
    played.request(1.0 + KILL_AFTER)
    first.returncode = -9
    played.request(2.0 + KILL_AFTER)
    played.request(3.0 + KILL_AFTER + FIRST_BACKOFF)
    second = played.children[1]
    number = second.asked()
    first.say({"id": number, "metadata": {"gpu_type": "old"}})
    first._answers.close()
    eventually(lambda: first.stdout.closed)
    assert (played.opening, played.metadata()) == (True, {})
    second.say({"id": number, "metadata": {"gpu_type": "new"}})
    eventually(lambda: not played.opening)
    assert played.metadata() == {"gpu_type": "new"}


def test_an_answer_without_end(played, monkeypatch):
    """It does not fill the memory: the child is killed, and the reason told."""
    monkeypatch.setattr(supervisor, "LONGEST_LINE", 1000)
    child = opened(played)
    played.request(1.0)
    child.say(b"x" * 1001)
    eventually(lambda: child.killed)
    assert played.stats.last_error == "an answer without end"


def test_opening_may_take_long(played):
    """A driver that nobody keeps loaded: said to hang after 30 s, given up after 120 s."""
    played.request(0.0)
    for now, stalled, killed in (
        (KILL_AFTER - 0.1, False, 0),
        (KILL_AFTER, True, 0),
        (KILL_OPENING_AFTER - 0.1, True, 0),
        (KILL_OPENING_AFTER, True, 1),
    ):
        played.request(now)
        assert (played.stats.stalled, played.children[0].killed) == (stalled, killed)


def test_the_backoff_has_an_end():
    """5 s, 10 s ... and then 300 s for ever; a helper that has answered begins at 5 s again."""

    def spawn():
        raise OSError("no processes left")

    runner = HelperRunner(Library(), Context(SamplerSettings()), threading.Condition(), spawn=spawn)
    now, waits = 0.0, []
    for _ in range(9):
        runner.request(now)
        waits.append(runner._start_at - now)
        now = runner._start_at
    assert waits == [FIRST_BACKOFF, 10, 20, 40, 80, 160, LONGEST_BACKOFF, LONGEST_BACKOFF, LONGEST_BACKOFF]


def test_an_interpreter_whose_disk_does_not_answer():
    """The end of sampling does not wait for a helper that is being started, and the helper ends when it comes."""
    begun, release, children = threading.Event(), threading.Event(), []
    lock, held = threading.Lock(), []

    def spawn():
        begun.set()
        assert release.wait(20)
        child = Played(900_000_000)
        child.wait = lambda timeout: (held.append(lock.locked()), Played.wait(child, timeout))[1]
        children.append(child)
        return child

    ctx = Context(SamplerSettings(), own_pids=set())
    runner = HelperRunner(Library(), ctx, threading.Condition(lock), spawn=spawn)
    tick = threading.Thread(target=runner.request, args=(0.0,))
    tick.start()
    assert begun.wait(20)
    runner.dismiss()
    runner.close(0.1)
    release.set()
    tick.join(20)
    (child,) = children
    assert (child.killed, child.stdin.closed, child.stdout.closed, child.returncode) == (1, True, True, 0)
    assert ctx.own_pids == set()
    assert held == [False]  # others' ends go on meanwhile
    child.end()


def test_a_forked_child_has_nothing_left_of_the_helper(played):
    """No end of a pipe, also of a request that is still being written, and no process that it could wait for."""
    played.request(0.0)
    child = played.children[0]
    eventually(lambda: played._opening_pipe.closed)
    played._opening_pipe = writing = os.fdopen(os.dup(child.stdin.fileno()), "wb", buffering=0)
    child._answers.close()  # its thread does not exist in a forked child
    eventually(lambda: child.stdout.closed)
    played.forget()
    assert (child.stdin.closed, child.stdout.closed, writing.closed, child.returncode) == (True, True, True, 0)


def test_a_helper_keeps_no_file_system_busy(tmp_path, monkeypatch):
    """Its working folder is the root, wherever the training runs."""
    monkeypatch.chdir(tmp_path)
    child = supervisor.spawn_helper()
    try:
        assert str(Path(f"/proc/{child.pid}/cwd").readlink()) == "/"
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()
