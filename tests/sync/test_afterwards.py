"""A sync that deletes what it brought over: only what the server, asked once more, says that it has as a whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Report, SyncSettings, sync
from runferry.sync.afterwards import delete_after_verify
from runferry.sync.clean import Cleaner
from runferry.sync.compare import Check, Match, Verification
from runferry.sync.credentials import ApiKey
from runferry.sync.report import Cleaned, Finished, Reporter
from runferry.sync.session import Session
from runferry.sync.verify import VerifyReport
from support import logs
from support.fakebackend import URL
from support.server import Server
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


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_value_that_differs_at_the_server_keeps_the_run(folder: Path, server: Server, is_changed: bool) -> None:
    """As many rows, the same steps, the same last row: values are compared before the only other copy of them is deleted."""
    log = logs.simple_run(folder, run_id=f"av{is_changed}", rows=30)
    settings = SyncSettings(base_url=server.url, retry_for=0)
    key = ApiKey(server.key, base_url=server.url, source="test")
    events: list[Any] = []

    def run(reporter: Reporter) -> Report:
        report = sync([log], settings, key=key, reporter=reporter)
        if is_changed:
            with contextlib.closing(sqlite3.connect(server.data_dir / "runferry.sqlite3", timeout=30)) as store, store:
                (stream,) = store.execute(
                    "SELECT streams.id FROM streams JOIN runs ON runs.id = streams.run WHERE runs.name = ? AND streams.name LIKE '%history%'",
                    (f"av{is_changed}",),
                ).fetchone()
                edit = "UPDATE lines SET text = replace(text, '\"loss\":0.125', '\"loss\":0.126') WHERE key = ?"
                assert store.execute(edit, ((stream << 40) + 7,)).rowcount == 1
        return report

    with contextlib.closing(Session()) as session:
        code = delete_after_verify(run, settings, events.append, session=session, key=key)

    (cleaned,) = [event for event in events if isinstance(event, Cleaned)]
    assert (code, cleaned.fate, log.exists()) == ((1, "kept", True) if is_changed else (0, "deleted", False))
    assert ("step 7 has other values there" in cleaned.reason) == is_changed
