"""Memory for bodies, shared by the runs that send at a time."""

from __future__ import annotations

from runferry.sync.room import Room

MIB = 1024 * 1024


def test_a_run_alone_gets_bodies_of_the_full_size() -> None:
    """From its first one on, as half of the room is a whole body."""
    with Room(16 * MIB).share() as share:
        assert [share.body_bytes(8 * MIB) for _ in range(3)] == [8 * MIB] * 3


def test_a_large_run_among_small_ones_gets_what_they_leave() -> None:
    """Seven first bodies of 1 MiB leave it 4.5 MiB; when they are through it has all that it can use."""
    room = Room(16 * MIB, jobs=8)
    small = [room.share() for _ in range(7)]
    with room.share() as large:
        assert {share.body_bytes(8 * MIB) for share in [*small, large]} == {MIB}
        assert large.body_bytes(8 * MIB) == 4.5 * MIB
        for share in small:
            share.__exit__(None, None, None)
        assert large.body_bytes(8 * MIB) == 8 * MIB


def test_many_large_runs_stay_within_the_room() -> None:
    """Whatever the order: eight of them hold 16 MiB at most, and even shares in the end."""
    room = Room(16 * MIB, jobs=8)
    shares = [room.share() for _ in range(8)]
    for _ in range(20):
        taken = [share.body_bytes(8 * MIB) for share in shares]
        assert sum(taken) <= 16 * MIB
    assert min(taken) >= 1.5 * MIB


def test_no_share_is_too_small_to_be_worth_a_request() -> None:
    """Thirty-two runs in a room of 1 MiB get half a MiB each all the same, and no more than they ask for."""
    room = Room(MIB, jobs=32)
    shares = [room.share() for _ in range(32)]
    assert {share.body_bytes(8 * MIB) for share in shares} == {MIB // 2}
    assert shares[0].body_bytes(100) == 100


def test_what_was_taken_is_given_back() -> None:
    """A run that ends, or fails, leaves the room as it was."""
    room = Room(16 * MIB, jobs=2)
    for _ in range(50):
        with room.share() as share:
            share.body_bytes(8 * MIB)
            share.body_bytes(8 * MIB)
    with room.share() as share:
        share.body_bytes(8 * MIB)
        assert share.body_bytes(8 * MIB) == 8 * MIB
