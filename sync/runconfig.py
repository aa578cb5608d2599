"""What a run says of itself, as the server takes it: the config tree with its `_wandb` entries, and the fields of the run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ..logformat import RunState
from ..logformat.elapsed import nanoseconds
from ..logformat.wire import WireError, set_flags
from .api import RunFields
from .jsontext import compact
from .plan import RunPlan
from .settings import SyncSettings

_FLAG_SETS = {
    "1": "imports_init",
    "2": "imports_finish",
    "3": "feature",
    "8": "env",
    "10": "deprecated",
    "11": "issues",
}
_TEXTS = {"4": "python_version", "5": "cli_version", "6": "huggingface_version", "12": "core_version", "13": "platform"}
_OFFLINE = 4  # the telemetry feature that every log of ours has: it was written offline
_SUMMARIES = {"min": 1, "max": 2, "mean": 3, "best": 4, "last": 5, "none": 6, "copy": 7, "first": 8}
_OPTIONS = {"step_sync": 1, "hidden": 2, "defined": 3}


def config_tree(state: RunState) -> dict[str, Any]:
    """The config, each key wrapped as `{"value": ..}`, and what the log says of its client under `_wandb`."""
    tree = {key: {"value": value} for key, value in state.config.items() if key != "_wandb"}
    own = state.config.get("_wandb")
    internal: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
    telemetry = state.telemetry
    for key in ("cli_version", "python_version"):
        text = getattr(telemetry, key, "")
        if text:
            internal[key] = text
    internal["t"] = telemetry_tree(telemetry)
    internal["m"] = metric_list(state.metrics)
    if state.environments:
        internal["e"] = {writer or state.info.run_id: tree for writer, tree in environment_trees(state).items()}
    tree["_wandb"] = {"value": internal}
    return tree


def telemetry_tree(telemetry: Any) -> dict[str, Any]:
    """Telemetry by field number. Never empty: a run without it counts as one that no client has started."""
    tree: dict[str, Any] = {}
    if telemetry is not None:
        for number, name in _FLAG_SETS.items():
            try:
                flags = set_flags(getattr(telemetry, name))
            except WireError:
                continue
            if flags:
                tree[number] = flags
        for number, name in _TEXTS.items():
            if getattr(telemetry, name):
                tree[number] = getattr(telemetry, name)
        label = [telemetry.label.code_string, telemetry.label.repo_string, telemetry.label.code_version]
        if any(label):
            tree["9"] = {str(number): text for number, text in enumerate(label, 1) if text}
    return tree or {"3": [_OFFLINE]}


def metric_list(metrics: list[Any]) -> list[dict[str, Any]]:
    """Metric definitions by field number; a step metric is an entry of its own, and others refer to it by its place."""
    entries: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    named = {metric.name for metric in metrics if metric.name}
    for metric in metrics:
        step = metric.step_metric
        if step and step not in named and step not in places:
            entries.append({"1": step, "6": [], "7": []})  # nobody defined it
            places[step] = len(entries)
        entries.append({"1": metric.name} if metric.name else {"2": metric.glob_name})
        if metric.name:
            places[metric.name] = len(entries)
    positions = iter(entries)
    for metric in metrics:
        entry = next(item for item in positions if item.get("1") == metric.name or item.get("2") == metric.glob_name)
        if metric.step_metric:
            entry["5"] = places[metric.step_metric]
        options = [number for name, number in _OPTIONS.items() if getattr(metric.options, name)]
        entry["6"] = options if metric.name else [number for number in options if number != _OPTIONS["defined"]]
        entry["7"] = [number for name, number in _SUMMARIES.items() if getattr(metric.summary, name)]
        if metric.goal:
            entry["8"] = metric.goal
    return entries


_MAPS = {"disk", "slurm"}
"""Fields of the environment that are maps."""


def environment_trees(state: RunState) -> dict[str, dict[str, Any]]:
    """Writer id -> its environment as the server shows it: camel case, 64-bit numbers as text."""
    return {writer: _environment_tree(environment) for writer, environment in state.environments.items()}


def environment_tree(state: RunState) -> dict[str, Any]:
    """The environment of the latest writer; empty if no log says it."""
    return _environment_tree(state.environment) if state.environment is not None else {}


def _environment_tree(environment: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    tree: dict[str, Any] = MessageToDict(environment)
    if environment.HasField("started_at"):
        tree["startedAt"] = rfc3339(nanoseconds(environment.started_at))
    for name in _MAPS & set(tree):  # their order differs from process to process, and with it that of a file's bytes
        tree[name] = dict(sorted(tree[name].items()))
    return tree


def rfc3339(time_ns: int) -> str:
    """As the server shows it: a time in UTC with as many digits of the second, in groups of three, as it has."""
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    try:
        text = datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z" if digits else f"{text}Z"


def run_fields(state: RunState, plan: RunPlan, settings: SyncSettings) -> RunFields:
    """The fields of the run, with the settings' overrides. Empty ones are None: leave as it is."""
    info = state.info
    program = getattr(state.environment, "program", "") if state.environment is not None else ""
    return RunFields(
        run_id=plan.run_id,
        project=plan.project,
        entity=plan.entity,
        config=compact(config_tree(state)),
        display_name=info.display_name or None,
        notes=info.notes or None,
        group=info.group or None,
        job_type=settings.job_type or info.job_type or None,
        tags=_tags(info.tags, settings.replace_tags),
        host=info.host or None,
        program=program or None,
        commit=info.git_commit or None,
        repo=info.git_remote or None,
        sweep=info.sweep_id or None,
    )


def _tags(tags: list[str], replacements: Mapping[str, str]) -> tuple[str, ...] | None:
    """The tags as they are sent, each once. None where the log has none: those at the server are not ours."""
    replaced = (replacements.get(tag, tag) for tag in tags)
    return tuple(dict.fromkeys(tag for tag in replaced if tag)) if tags else None


def summary_tree(state: RunState, last_step: int | None) -> dict[str, Any]:
    """The summary as the server shows it: the fold, the last row's step, and the runtime in whole seconds."""
    tree = state.summary
    if last_step is not None:
        tree["_step"] = last_step
    internal = tree.get("_wandb")
    runtime = internal.get("runtime") if isinstance(internal, dict) else None
    if not isinstance(runtime, int) or (state.elapsed.before and runtime < int(state.runtime)):
        tree["_wandb"] = {**(internal if isinstance(internal, dict) else {}), "runtime": int(state.runtime)}
    return _sorted(tree)


def _sorted(tree: dict[str, Any]) -> dict[str, Any]:
    """Keys in order at every level, so that the line does not depend on the way by which the log was folded."""
    return {key: _sorted(value) if isinstance(value, dict) else value for key, value in sorted(tree.items())}


def summary_line(tree: dict[str, Any], limit: int, dropped: list[str]) -> str:
    """The summary as one line of at most `limit` bytes; keys that are too large are left out and named in `dropped`."""
    texts = {key: compact(value) for key, value in tree.items()}
    line = _object(texts)
    largest = iter(sorted(texts, key=lambda key: len(texts[key]), reverse=True))
    while (excess := len(line.encode()) - limit) > 0:
        while excess > 0:  # a summary of many small values is not built anew without each of them
            key = next(largest)
            text = texts.pop(key)
            excess -= len(text.encode())
            dropped.append(f"summary: {key} ({len(text) / 1e6:.1f} MB)")
        line = _object(texts)
    return line


def _object(texts: dict[str, str]) -> str:
    return "{" + ",".join(f"{compact(key)}:{text}" for key, text in texts.items()) + "}"
