"""A sync that deletes what it brought over: only what the server, asked once more, says that it has as a whole."""

from __future__ import annotations

import os
from typing import Any

import pytest
from runferry.sync import SyncSettings
from runferry.sync.afterwards import delete_after_verify
from runferry.sync.clean import Cleaner
from runferry.sync.compare import Check, Match, Verification
from runferry.sync.report import Cleaned, Finished
from runferry.sync.session import Session
from runferry.sync.verify import VerifyReport
from support.fakebackend import URL
from support.syncrig import Rig

ROWS = Check("rows", Match.EQUAL)


@pytest.mark.parametrize(
    ("match", "found", "code", "fate", "why"),
    [
        (Match.EQUAL, {"checks": (ROWS, Check("alerts", Match.UNKNOWN))}, 0, "deleted", ""),
        (Match.EQUAL, {"checks": (ROWS, Check("files", Match.UNKNOWN))}, 1, "kept", "does not tell enough"),
        (Match.EQUAL, {"checks": (ROWS,), "is_damaged": True}, 1, "kept", "does not tell enough"),
        (Match.DIFFERS, {"checks": (ROWS,)}, 1, "kept", "differs from what the server has: because"),
        (Match.UNKNOWN, {}, 1, "kept", "unknown from what the server has: because"),
        (Match.UNKNOWN, {"try_again": True}, 75, "kept", "unknown from what the server has: because"),
    ],
)
def test_what_the_server_does_not_surely_have_is_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, match: Match, found: dict[str, Any], code: int, fate: str, why: str
) -> None:
    """All but alerts was compared and is equal, or the run stays, and the exit code says that it does."""
    log = rig.run()
    result = Verification("a1b2c3d4", (os.fspath(log),), "t", match, "because", **found)
    monkeypatch.setattr("runferry.sync.afterwards.verify_remote", lambda *_, **__: VerifyReport((result,)))
    events: list[Any] = []

    given = delete_after_verify(
        lambda _: rig.sync(log),
        SyncSettings(base_url=URL, state_dir=rig.state),
        events.append,
        session=Session(rig.backend, rig.clock),
        cleaner=Cleaner(state_dir=rig.state, clock=rig.clock),
    )

    (cleaned,) = [event for event in events if isinstance(event, Cleaned)]
    assert (given, cleaned.fate, log.exists()) == (code, fate, fate == "kept")
    assert why in cleaned.reason
    assert isinstance(events[-1], Finished)
    assert events[-1].exit_code == code
