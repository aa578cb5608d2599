"""Logs of old versions of the peer: where those that are kept lie, what they should amount to, and by what name they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runferry.logformat import RunState, loads

from . import old, peer

KEPT = peer.ROOT / "fixtures" / "logs"
"""A folder per version; `tests/peer/old/keep.py` makes them."""
KEPT_VERSIONS = [version.name for version in old.VERSIONS]
TIMES = {("_timestamp",), ("_runtime",)}
BY_SERVER = {("images", "filenames")}
"""Written offline, and where a server says that it takes them."""
ABSENT = "absent"
Path_ = tuple[str, ...]
Leaves = dict[Path_, Any]


def by_python(version: str) -> bool:
    """Whether the peer's Python wrote the logs of that version, not its core."""
    return version < "0.18" and not version.endswith("core")


def own_state(files: Path) -> dict[str, Any]:
    """Summary and config as the version itself left them in the folder `files` of its run, less what it keeps for itself."""
    config = peer.yaml((files / "config.yaml").read_bytes())
    config = {key: entry["value"] for key, entry in config.items() if key != "wandb_version"}
    return _less_internals(loads((files / "wandb-summary.json").read_bytes()), config)


def our_state(state: RunState) -> dict[str, Any]:
    """The same of a fold."""
    return _less_internals(state.summary, state.config)


def _less_internals(summary: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    both = {"summary": summary, "config": config}
    return {name: {key: value for key, value in tree.items() if key != "_wandb"} for name, tree in both.items()}


def differences(ours: Any, theirs: Any) -> dict[Path_, tuple[Any, Any]]:
    """Each leaf that is not exactly the same, by its path: 1 is not 1.0, and NaN is NaN."""
    return different(dict(leaves(ours)), dict(leaves(theirs)))


def different(mine: Leaves, other: Leaves) -> dict[Path_, tuple[Any, Any]]:
    """The same of leaves by path."""
    pairs = {path: (mine.get(path, ABSENT), other.get(path, ABSENT)) for path in {**mine, **other}}
    return {path: pair for path, pair in pairs.items() if repr(pair[0]) != repr(pair[1])}


def leaves(tree: Any, above: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Path and value of all that is no object, or an empty one."""
    if isinstance(tree, dict) and tree:
        for key, inner in tree.items():
            yield from leaves(inner, (*above, key))
    else:
        yield above, tree


def named(version: str) -> dict[Path_, tuple[Any, Any]]:
    """Where a fold of `everything` differs from what the version left, and why."""
    if by_python(version):
        # What writes the file hears of all but removals; what writes the log knows better. (Before, one did both.)
        forgotten = {("summary", "gone"): (ABSENT, 1), ("summary", "fleeting"): (ABSENT, 1)}
        return forgotten if version >= "0.15" else {}
    empty: dict[Path_, tuple[Any, Any]] = {("config", "empty"): ({}, ABSENT)}  # it writes no empty object
    if version == "0.17.5-core":
        return empty
    # It forgets the siblings of a value that is set inside an object, where Python's view keeps them; and nulls.
    return empty | {("summary", "nest", "b", "c"): (2, ABSENT), ("summary", "nothing"): (None, ABSENT)}


def rows_of(state: RunState) -> dict[int, Leaves]:
    """The rows by step, less what clock and server decide; whole floats as integers, as the core writes them."""
    return {row["_step"]: {p: _whole(v) for p, v in leaves(row) if p not in TIMES | BY_SERVER} for row in state.rows}


def different_rows(mine: dict[int, Leaves], other: dict[int, Leaves]) -> dict[tuple[int, Path_], tuple[Any, Any]]:
    """Where two runs' rows differ: by step and path, what each has there."""
    pairs = {step: different(mine.get(step, {}), other.get(step, {})) for step in sorted({*mine, *other})}
    return {(step, path): pair for step in pairs for path, pair in pairs[step].items()}


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def expected(version: str, kind: str) -> dict[str, Any]:
    """What the version itself made of the log that is kept."""
    return dict(loads((KEPT / version / f"{kind}.json").read_bytes()))


def write_expected(path: Path, state: dict[str, Any]) -> None:
    path.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
