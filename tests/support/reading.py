"""What a log says, as plain values, by either reader: ours, or the peer's with a fold of the test's own."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from runferry.logformat import RunState, load
from support import peer
from support.peer import PeerRun
from support.state import ABSENT, Difference, compare

CLOCK = {"_timestamp", "_runtime", "_wandb"}
"""Keys of rows and summaries that only the clock knows."""
_PANELS = ("visualize", "mask/class_labels", "bounding_box/class_labels")
"""What the config holds beside the user's own: how charts are drawn, what classes are called."""
_OWN_FILES = {"requirements.txt"}
"""Files that the peer adds of its own accord."""
AN_UPDATE_COUNTED = Difference(
    "features set_config_item",
    lambda ours, theirs: (ours, theirs) == (True, ABSENT),
    "we count config.update as a change of items; the peer counts only what is assigned",
)
_RANDOM = re.compile(r"(?<=wandb-client-artifact://)[a-z0-9]{128}")
_RANDOM_FIELDS = {"client_id", "sequence_client_id"}


def compared(ours: PeerRun, theirs: PeerRun, allowed: Mapping[str, Difference]) -> tuple[set[str], list[str]]:
    """Both readers on the logs of both runs: the named differences that they show, and everything else that differs."""
    assert (ours.exit_code, len(ours.logs)) == (theirs.exit_code, len(theirs.logs)), ours.stderr
    named: set[str] = set()
    other: list[str] = []
    for pair in zip(ours.logs, theirs.logs, strict=True):
        for read in (by_us, by_the_peer):
            found, unnamed = compare(*map(read, pair), allowed)
            named |= found
            other += [f"{read.__name__}: {line}" for line in unnamed]
    return named, other


def by_us(log: Path) -> dict[str, Any]:
    """By our reader and fold."""
    state = load(log)
    info = dataclasses.asdict(state.info)
    assert info.pop("start_time_ns")
    return _spelled(
        log,
        run=info,
        config=_user_config(state),
        panels={name: state.config.get("_wandb", {}).get(name, {}) for name in _PANELS},
        summary=state.summary,
        rows=state.rows,
        metrics=[peer.plain(metric) for metric in state.metrics],
        files=state.files,
        artifacts=[peer.plain(artifact) for artifact in state.artifacts],
        alerts=[_told(alert) for alert in state.alerts],
        console=[(line.stream, line.text) for line in [*state.console, *state.console_rest]],
        features=peer.plain(state.telemetry).get("feature", {}),
        end={"code": state.exit_code, "preempting": state.preempting, "status": state.status(age=0)},
    ) | {"contents": contents(log, state.files)}


def _told(alert: Any) -> dict[str, Any]:
    """What an alert says; where it stands in its log is the log's affair."""
    return {key: value for key, value in dataclasses.asdict(alert).items() if key != "offset"}


def by_the_peer(log: Path) -> dict[str, Any]:
    """By the peer's reader: its own view of config, summary and console, its records for the rest."""
    view = peer.summary(log)
    of_kind: dict[str, list[Any]] = {}
    for entry in peer.inspect(log):
        assert "type" in entry, f"{log}: the peer's reader says {entry}"
        of_kind.setdefault(entry["type"], []).append(entry.get(entry["type"]))
    runs = [
        {key: run[key] for key in run if key not in {"config", "telemetry", "start_time"}} for run in of_kind["run"]
    ]
    assert view["start_time"]
    panels: dict[str, Any] = {name: {} for name in _PANELS}
    for record in [*of_kind["run"], *of_kind.get("config", [])]:
        update = record.get("config", record).get("update", {})
        for name in _PANELS:
            panels[name] |= _below(f"_wandb.{name}", update) or update.get("_wandb", {}).get(name, {})
    steps = [record["step"]["num"] for record in of_kind.get("history", [])]
    files = [item for record in of_kind.get("files", []) for item in record.get("files", [])]
    return _spelled(
        log,
        run={"last": runs[-1]} | {key: view[key] for key in ("run_id", "project", "entity", "name", "notes", "tags")},
        config=view["config"],
        panels=panels,
        summary=view["summary"],
        rows=[record.get("item", {}) for record in of_kind.get("history", [])],
        metrics=of_kind.get("metric", []),
        files={item["path"]: item.get("policy", "NOW") for item in files},
        artifacts=of_kind.get("artifact", []),
        alerts=of_kind.get("alert", []),
        console=[(line["stream"], line["line"]) for line in view["console"]],
        features=of_kind["telemetry"][-1].get("feature", {}),
        end={
            "code": view["exit_code"],
            "preempting": "preempting" in of_kind,
            "status": view["state"],
            "step": view["step"],
            "steps": [number for number, _ in itertools.groupby(steps)],
        },
    )


def _below(prefix: str, update: dict[str, Any]) -> dict[str, Any]:
    return {key[len(prefix) + 1 :]: value for key, value in update.items() if key.startswith(f"{prefix}.")}


def _user_config(state: RunState) -> dict[str, Any]:
    return {key: value for key, value in state.config.items() if key != "_wandb"}


def _spelled(
    log: Path,
    *,
    rows: list[dict[str, Any]],
    summary: dict[str, Any],
    files: dict[str, str],
    artifacts: list[dict[str, Any]],
    **others: Any,
) -> dict[str, Any]:
    """Rows by step and in their order, leaves by dotted name, and no value that only a clock or a die knows.

    The script's working directory, which holds `wandb`, goes by that name.
    """
    by_step: dict[str, Any] = {}
    place = ""
    for row in map(flat, rows):
        assert row.pop("_timestamp") > 1.7e9
        assert 0 <= row.pop("_runtime") < peer.TIMEOUT_S
        if str(row["_step"]) == place:  # a further part: a row that stays open is written when it is 0.7 s old
            by_step[place] |= row
            continue
        place = str(row["_step"])
        while place in by_step:
            place += "'"
        by_step[place] = row
    spelled = others | {
        "rows": by_step,
        "order": list(by_step),
        "summary": flat({key: value for key, value in summary.items() if key not in CLOCK}),
        "config": flat(others["config"]),
        "files": {path: policy for path, policy in sorted(files.items()) if path not in _OWN_FILES},
        "artifacts": [_spelled_artifact(artifact) for artifact in artifacts],
    }
    text = _RANDOM.sub("ID", json.dumps(peer.finite(spelled)))
    return json.loads(text.replace(str(log.parents[2].resolve()), "<working directory>"))


def _spelled_artifact(artifact: dict[str, Any]) -> dict[str, Any]:
    spelled = {key: value for key, value in artifact.items() if key not in _RANDOM_FIELDS}
    manifest = spelled.get("manifest", {})
    entries = [{key: entry[key] for key in entry if key != "local_path"} for entry in manifest.get("contents", [])]
    spelled["aliases"] = sorted(spelled.get("aliases", []))
    spelled["manifest"] = manifest | {"contents": {entry["path"]: entry for entry in entries}}
    return spelled


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted name; an empty object inside is a leaf."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return leaves


def contents(log: Path, files: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file that the log names, for each of the names that a glob matches."""
    root = log.parent / "files"
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for pattern in files
        if pattern not in _OWN_FILES
        for path in ([root / pattern] if (root / pattern).exists() else root.glob(pattern))
        if path.is_file()
    }


def strangers(log: Path) -> Iterator[str]:
    """Each file that the log needs and that does not lie, whole and as itself, in the run's directory."""
    home = log.parent.resolve()
    state = load(log)
    for name in state.files:
        path = log.parent / "files" / name
        if path.is_symlink() or not path.is_file() or home not in path.resolve().parents:
            yield f"files/{name}"
    for artifact in state.artifacts:
        for entry in artifact.manifest.contents:
            if entry.ref:
                continue
            path = Path(entry.local_path)
            path = path if path.is_absolute() else home / path
            if path.is_symlink() or not path.is_file() or home not in path.resolve().parents:
                yield f"{artifact.name}: {entry.path} at {entry.local_path}"
            elif base64.b64encode(hashlib.md5(path.read_bytes()).digest()).decode() != entry.digest:
                yield f"{artifact.name}: {entry.path} has another digest"
