"""Our table of messages against the peer's own descriptors."""

from __future__ import annotations

import pytest
from runferry.logformat import messages
from support import peer

pytestmark = pytest.mark.peer

LEFT_OUT = {
    "run.settings": "never in a log",
    "use_artifact.partial": "belongs to jobs of a launch agent, which write no logs of this kind",
    "control.flow_control": "between the peer's processes",
    "control.end_offset": "between the peer's processes",
    "control.connection_id": "between the peer's processes",
    "_info._tracelog_id": "never in a log",
}
"""Fields of the peer that we do not name. They survive as unknown fields all the same."""
GONE = ("telemetry.issues",)
"""Fields that only older versions of the peer write."""
ENUM, INT32, MESSAGE, BYTES = 14, 5, 11, 12


def differences(ours, theirs, name, path=""):
    """Every field of message `name` that is not the same on both sides, by its path from the record."""
    mine = {field.number: field for field in ours.fields}
    for number, field in theirs[name].items():
        where = f"{path}{field['name']}"
        if int(number) not in mine:
            if where.rpartition(".")[2] != "_info" and where not in LEFT_OUT:  # 0.31 sets `_info` of no inner message
                yield f"{where}: we have no field {number}"
            continue
        found = mine.pop(int(number))
        kind = INT32 if field["type"] == ENUM else field["type"]
        switches = found.type == BYTES and kind == MESSAGE
        if (found.name, found.is_repeated) != (field["name"], field["repeated"]) or not (
            switches or found.type == kind
        ):
            yield f"{where}: ours is {found.name}, type {found.type}, theirs {field}"
        if found.message_type is not None:
            yield from differences(found.message_type, theirs, field["message"], f"{where}.")
    for number, found in mine.items():
        if not f"{path}{found.name}".endswith(GONE):
            yield f"{path}{found.name}: theirs has no field {number}"


def test_every_field_has_the_peers_number_name_and_type():
    """A wrong number reads as absent and writes as something else: nothing else would notice it."""
    if reason := peer.missing():
        pytest.skip(reason)

    assert list(differences(messages.Record.DESCRIPTOR, peer.descriptors(), "wandb_internal.Record")) == []
