"""Logs of old versions, read by us and by the reader of the peer of today."""

from __future__ import annotations

import gzip

import pytest
from runferry.logformat import Record, read_records
from support import oldlogs, peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

LOGS = [path for version in oldlogs.KEPT_VERSIONS for path in sorted((oldlogs.KEPT / version).glob("*.wandb*"))]
MISCOUNTED = {"0.17.5-core/long", "0.17.5-core/killed"}
"""Its blocks begin behind the header: the peer loses what it finds out of place, and we read all."""


def name_of(path):
    return f"{path.parent.name}/{path.name.split('.')[0]}"


def both(path, folder):
    """Our records, as the peer prints them, and its own."""
    log = folder / "run-old.wandb"
    log.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    ours = [item for item in read_records(log) if isinstance(item, Record)]
    printed = [peer.printed(position, record) for position, record in enumerate(ours, 1)]
    return printed, [entry for entry in peer.inspect(log) if "type" in entry]


@pytest.mark.parametrize("path", [path for path in LOGS if name_of(path) not in MISCOUNTED], ids=name_of)
def test_every_record_is_what_the_peer_prints(path, tmp_path):
    """Kind by kind and value by value."""
    ours, theirs = both(path, tmp_path)

    assert len(ours) == len(theirs)
    for mine, entry in zip(ours, theirs, strict=True):
        assert peer.same(mine, entry), f"{path}\nours   {mine}\ntheirs {entry}"


@pytest.mark.parametrize("path", [path for path in LOGS if name_of(path) in MISCOUNTED], ids=name_of)
def test_a_log_that_the_peer_cannot_read(path, tmp_path):
    """What the peer does read is a part of what we read."""
    ours, theirs = both(path, tmp_path)
    left = iter([{key: value for key, value in entry.items() if key != "num"} for entry in ours])

    assert len(theirs) < len(ours)
    assert all(
        any(peer.same(mine, wanted) for mine in left)
        for wanted in ({k: v for k, v in e.items() if k != "num"} for e in theirs)
    )
