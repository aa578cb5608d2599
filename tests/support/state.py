"""What a server ended up holding, and the differences that two ways to sync the same logs may leave."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support import peer
from support.server import Server

ABSENT = "<absent>"
VOLATILE = {"created_at", "updated_at", "heartbeat_at", "files", "artifacts"}
"""Fields of a run that tell when it was synced; its files are compared by content, its artifacts with their entries."""
_ARTIFACT_REF = re.compile("wandb-artifact://(?P<id>[0-9a-f]+)/(?P<path>.*)", re.DOTALL)
_CONSOLE = re.compile(r"(?P<level>ERROR )?(?P<time>\d{4}-\d\d-\d\dT[\d:.]+) (?P<text>.*)", re.DOTALL)


def state_of(server: Server) -> dict[str, dict[str, Any]]:
    """Everything that a server holds, by run id.

    Fields, config, summary, rows, samples, console lines, files, alerts, artifacts.
    """
    places = {run["name"]: (run["entity"], run["project"], run["name"]) for run in server.runs()}
    artifacts = {name: server.artifacts(*place) for name, place in places.items()}
    titles = {artifact["id"]: _title(artifact) for found in artifacts.values() for artifact in found}
    return {
        name: _run_state(server, *place) | {"artifacts": _artifacts_state(artifacts[name], titles)}
        for name, place in places.items()
    }


def _title(artifact: dict[str, Any]) -> str:
    return f"{artifact['name']}:v{artifact['version']}"


def _artifacts_state(artifacts: list[dict[str, Any]], titles: Mapping[str, str]) -> dict[str, Any]:
    """The artifacts of a run by what they are to it and by name and version; ids are the server's own.

    An entry that refers to another artifact holds that one's id: it is spelled by name and version, too.
    """
    state = {}
    for artifact in artifacts:
        shown = {key: value for key, value in artifact.items() if key not in {"id", "role"}}
        shown["entries"] = {entry.pop("path"): entry for entry in shown["entries"]}
        for entry in shown["entries"].values():
            if found := _ARTIFACT_REF.fullmatch(entry["ref"] or ""):
                key = base64.b64encode(bytes.fromhex(found["id"])).decode()
                entry["ref"] = f"wandb-artifact://{titles.get(key, 'unknown')}/{found['path']}"
        state[f"{artifact['role']} {_title(artifact)}"] = shown
    return state


def _run_state(server: Server, *place: str) -> dict[str, Any]:
    run = server.run(*place)
    names = [file["name"] for file in run["files"] if file["uploaded"]]
    state = {key: value for key, value in run.items() if key not in VOLATILE | {"config", "summary", "alerts"}}
    if re.fullmatch(r"run-\d+", run["display_name"]):  # the server invents names in the order in which runs come
        del state["display_name"]
    return {
        "run": state,
        "config": _spell_config(run["config"]),
        "summary": run["summary"],
        "alerts": [{key: value for key, value in alert.items() if key != "created_at"} for alert in run["alerts"]],
        "history": server.history(*place),
        "events": server.events(*place),
        "console": [_console_line(line) for line in server.console(*place)],
        "files": {name: _content(name, server.file(*place, name)) for name in names},
    }


def _console_line(line: str) -> dict[str, Any]:
    """Level, time and text of a console line, plain or structured."""
    if line.startswith("{"):
        given = json.loads(line)
        return {"level": given.get("level"), "time": given["ts"], "text": given["content"]}
    return _CONSOLE.fullmatch(line).groupdict()


def _content(name: str, data: bytes) -> Any:
    if name == "config.yaml":
        return _spell_config(peer.yaml(data))
    return json.loads(data) if name in {"wandb-summary.json", "wandb-metadata.json"} else data


def _spell_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config with lists whose order says nothing as objects, so that they compare by what they hold.

    Metric definitions refer to a step metric by its place, and they and telemetry list the switches that are on; the
    peer writes all three in random order. Environments are keyed by an id that the peer invents for each sync.
    """
    spelled = json.loads(json.dumps(config))
    internal = spelled.get("_wandb", {}).get("value", {})
    metrics = internal.get("m", [])
    names = [metric.get("1") or metric.get("2") for metric in metrics]
    for metric in metrics:
        metric |= {key: sorted(metric[key]) for key in ("6", "7")}
        if "5" in metric:
            metric["5"] = names[metric["5"] - 1]
    internal["m"] = dict(zip(names, metrics, strict=True))
    internal["t"] = {
        key: sorted(value) if isinstance(value, list) else value for key, value in internal.get("t", {}).items()
    }
    if "e" in internal:
        internal["e"] = {environment["writerId"]: environment for environment in internal["e"].values()}
    return spelled


@dataclass(frozen=True)
class Difference:
    """A difference that may be: where, and what both sides must say there."""

    where: str
    """Regular expression over the path, its parts joined by blanks."""
    holds: Callable[[Any, Any], bool]
    """Whether (ours, the peer's) differ in this way only."""
    reason: str


# What our sync leaves otherwise than the peer's, in the order in which a path is looked up.
DIFFERENCES = {
    "program": Difference(
        "run program",
        lambda ours, theirs: str(theirs).endswith("/bin/wandb") and not str(ours).endswith("/bin/wandb"),
        "the peer names the program that syncs; we name the one that ran, where the log has it",
    ),
    "console time": Difference(
        r"console \d+ time",
        lambda ours, theirs: ours < theirs,
        "the peer writes the time of the sync; we write the time of the line",
    ),
    "sync feature": Difference(
        r".*_wandb value t 3",
        lambda ours, theirs: sorted([*ours, 76]) == theirs,
        "the peer counts its own sync among the features that the run used",
    ),
    "core version": Difference(
        r".*_wandb value t 12",
        lambda ours, theirs: ours == ABSENT and theirs == "0.31.0",
        "the peer adds its own version where the log's client gave none",
    ),
    "null in the summary": Difference(
        r"(summary|files wandb-summary.json) .*",
        lambda ours, theirs: ours is None and theirs == ABSENT,
        "the peer leaves out what was set to null; we send what the log says",
    ),
    "siblings in the summary": Difference(
        r"(summary|files wandb-summary.json) nest b",
        lambda ours, theirs: ours == {"c": 2} and theirs == ABSENT,
        "the peer forgets what stood beside a value that was set inside an object",
    ),
    "below a value in the summary": Difference(
        r"(summary|files wandb-summary.json) x z",
        lambda ours, theirs: ours == ABSENT and theirs == "two",
        "the peer keeps what stood below a key that was a plain value in between; the later value replaces it all",
    ),
    "summed runtime": Difference(
        r"(summary|files wandb-summary.json|history \d+|events \d+) (_runtime|_wandb runtime)",
        lambda ours, theirs: ours > theirs,
        "the peer counts the time of the last segment only; ours is the sum over all segments of the run",
    ),
    "rounding": Difference(
        r"events \d+ _runtime",
        lambda ours, theirs: math.isclose(ours, theirs, rel_tol=1e-15 * 8),
        "the peer subtracts two floats; we subtract integers and round once",
    ),
    "row that is too long": Difference(
        "history|run (history_lines|next_line history)",
        lambda ours, theirs: (
            [row for row in ours if row["_step"] != 1] == theirs if isinstance(ours, list) else ours == theirs + 1
        ),
        "the peer drops a row that has no room in a request; we leave out the value that is too long",
    ),
    "console of the last part": Difference(
        "files output.log",
        lambda ours, theirs: ours.endswith(theirs) and len(ours) > len(theirs),
        "the peer's file of console text holds what the last segment printed; ours holds all of it",
    ),
    "artifact left behind": Difference(
        "artifacts output .*",
        lambda ours, theirs: theirs == ABSENT and isinstance(ours, dict) and ours["state"] == "COMMITTED",
        "where a run is sent to another project or id, the peer's artifacts still go to the log's; ours go with the run",
    ),
    "explicit step": Difference(
        r"history \d+ _step",
        lambda ours, theirs: ours < theirs,
        "the peer numbers a row anew that goes back behind another; we keep the step that was asked for",
    ),
    "run without an end": Difference(
        "run (state|exit_code)",
        lambda ours, theirs: (ours, theirs) in {("running", "failed"), (None, 1)},
        "the peer ends a run that has no exit record as failed; we wait until its log is old",
    ),
    "link out of the run": Difference(
        "files saved.txt",
        lambda ours, theirs: ours == ABSENT and theirs == b"saved\n",
        "the peer follows links wherever they lead; we read nothing outside the run's folder, and say so",
    ),
}


def differences(ours: Any, theirs: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Each place where the two differ as (path, ours, theirs)."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from differences(ours.get(key, ABSENT), theirs.get(key, ABSENT), (*path, key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, (*path, str(index)))
    elif not peer.same(peer.finite(ours), peer.finite(theirs)):
        yield " ".join(path), ours, theirs


def compare(ours: Any, theirs: Any, allowed: Mapping[str, Difference] = DIFFERENCES) -> tuple[set[str], list[str]]:
    """The named differences between two states of a run, and everything else that differs, which must be nothing."""
    named: set[str] = set()
    other: list[str] = []
    for path, mine, their in differences(ours, theirs):
        for name, difference in allowed.items():
            if re.fullmatch(difference.where, path) and difference.holds(mine, their):
                named.add(name)
                break
        else:
            other.append(f"{path}: ours {str(mine)[:400]!r}, the peer's {str(their)[:400]!r}")
    return named, other
