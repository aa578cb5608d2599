"""The real peer (wandb 0.31.0, in an environment of its own): it makes logs, reads logs and syncs logs for the tests."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runferry.logformat import Record, loads
from runferry.logformat.wire import set_flags

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peer" / "bin" / "python"
TRAINING_PYTHON = ROOT / ".venv-train" / "bin" / "python"
"""Of an environment with training libraries, the peer and us: `make train-env`."""
RUNS = ROOT / "tests" / "peer" / "runs"
"""The scripts that make logs."""
TRAINING = ROOT / "tests" / "peer" / "training"
"""Those that need training libraries."""
WATCHED = ROOT / "tests" / "support" / "watched"
"""A folder for PYTHONPATH: its `sitecustomize` is imported by each Python process of our runs."""
TIMEOUT_S = 120

QUIET = {"WANDB_X_DISABLE_STATS": "true", "WANDB_X_DISABLE_META": "true", "WANDB_CONSOLE": "off"}
CONSOLE = {"WANDB_CONSOLE": "wrap"}
SETTINGS = {
    "edits": CONSOLE,
    "console": CONSOLE,
    "exception": QUIET | CONSOLE,
    "terminal": QUIET | CONSOLE,
}
"""What each script runs under; QUIET if it is not here: no samples, no environment, no console, so no noise."""
KINDS = sorted(script.stem for script in RUNS.glob("*.py"))
SYNCED = [
    "alerts",
    "artifacts",
    "console",
    "edits",
    "exception",
    "forked",
    "globs",
    "killed",
    "long",
    "media",
    "metrics",
    "nested",
    "references",
    "resumed",
    "scalars",
    "tables",
    "typed",
]
"""Of these, those whose logs go to a server, too: one run of the script's name each."""


def training_missing() -> str:
    """Why training scripts cannot run; empty if they can."""
    return missing() or ("" if TRAINING_PYTHON.exists() else "no .venv-train: `make train-env` sets it up")


def missing() -> str:
    """Why the peer cannot be asked; empty if it can."""
    if not PYTHON.exists():
        return f"no {PYTHON.parent.parent.name}: `make test` sets it up"
    return "" if core() else "the peer's environment has no wandb-core"


@functools.cache
def core() -> Path | None:
    """The peer's Go program: its reader starts in milliseconds."""
    return next(PYTHON.parent.parent.glob("lib/python*/site-packages/wandb/bin/wandb-core"), None)


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """An environment in which the peer is offline and leaves nothing outside `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "HOME": str(home)}
    return kept | settings | {"WANDB_ERROR_REPORTING": "false"} | extra


# -- making logs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerRun:
    """What one script left."""

    folder: Path
    """The working directory of the script; `wandb/` lies in it."""
    exit_code: int
    stdout: str
    stderr: str

    @property
    def logs(self) -> list[Path]:
        """Its logs in the order of their start."""
        found = list(self.folder.glob("wandb/*run-*/run-*.wandb"))
        return sorted(found, key=started) if len(found) > 1 else found

    @property
    def log(self) -> Path:
        """Its only log."""
        (only,) = self.logs
        return only


def started(log: Path) -> int:
    """The start time in the run record, nanoseconds since the epoch, by which segments are ordered."""
    return nanoseconds(next(entry["run"]["start_time"] for entry in inspect(log) if entry["type"] == "run"))


def make(kind: str, folder: Path) -> PeerRun:
    """Run the script of that name in `folder`; the one that runs for ever is killed after 120 rows."""
    if kind == "killed":
        return make_killed(folder, 120)
    return _run_script([PYTHON, RUNS / f"{kind}.py"], folder, **SETTINGS.get(kind, QUIET))


def make_ours(kind: str, folder: Path) -> PeerRun:
    """Run the same script by us: `import wandb` means `runferry` to all its processes, which `support.audit` hears."""
    settings = SETTINGS.get(kind, QUIET)
    return _run_script([sys.executable, RUNS / f"{kind}.py"], folder, **settings, **watched(folder))


def make_training(kind: str, folder: Path) -> PeerRun:
    """Run a training script by the peer."""
    return _run_script([TRAINING_PYTHON, TRAINING / f"{kind}.py"], folder, **QUIET)


def make_our_training(kind: str, folder: Path) -> PeerRun:
    """Run the same script by us."""
    heard = watched(folder)
    heard["MPLCONFIGDIR"] = heard["TMPDIR"]  # Lightning imports matplotlib, where it is
    return _run_script([TRAINING_PYTHON, TRAINING / f"{kind}.py"], folder, **QUIET, **heard)


def watched(folder: Path) -> dict[str, str]:
    """Variables by which Python processes tell `folder` what they do, and find an empty folder for scratch files."""
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    heard = {"AUDIT_LOG": str(folder / "audit.jsonl"), "PYTHONPATH": str(WATCHED), "PYTHONDONTWRITEBYTECODE": "1"}
    return heard | {"TMPDIR": str(scratch)}


def _run_script(command: list[Any], folder: Path, **variables: str) -> PeerRun:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return PeerRun(folder, done.returncode, done.stdout, done.stderr)


def make_killed(folder: Path, after_rows: int) -> PeerRun:
    """The run of `killed.py`, its process killed once it announced `after_rows` rows."""
    process = subprocess.Popen(
        [PYTHON, RUNS / "killed.py"],
        cwd=folder,
        env=environment(folder, **QUIET),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    announced: list[str] = []
    try:
        announced += itertools.islice(process.stderr, after_rows)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        process.stderr.close()
    return PeerRun(folder, process.returncode, "", "".join(announced))


# -- reading logs ----------------------------------------------------------------------------------------------------


def _leet(log: Path, *options: str) -> str:
    command = [core(), "leet", "inspect", "--no-observability", "--json", *options, "--run-file", log, log.parent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise AssertionError(f"the peer's reader failed on {log}: {done.stderr}")
    return done.stdout


def inspect(log: Path) -> list[dict[str, Any]]:
    """Each record as the peer's reader prints it; what it says about damage is in entries without `type`."""
    return [json.loads(line) for line in _leet(log).split("\n") if line]


def summary(log: Path) -> dict[str, Any]:
    """The peer's view of the run: state, exit code, config, summary, the last console lines."""
    return dict(json.loads(_leet(log, "--summary")))


# -- syncing ---------------------------------------------------------------------------------------------------------


def sync(logs: list[Path], url: str, key: str, folder: Path) -> str:
    """`wandb sync` of these logs to a server. It exits with 0 whatever happens: judge by what the server holds."""
    environ = environment(folder, WANDB_MODE="online", WANDB_BASE_URL=url, WANDB_API_KEY=key)
    command = [PYTHON.parent / "wandb", "sync", "--include-online", *(log.parent for log in logs)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout + done.stderr


def yaml(text: bytes) -> Any:
    """The value of a YAML text, by the library that the peer brings."""
    program = "import sys, json, yaml; print(json.dumps(yaml.safe_load(sys.stdin.buffer.read())))"
    done = subprocess.run([PYTHON, "-c", program], input=text, capture_output=True, timeout=TIMEOUT_S, check=True)
    return json.loads(done.stdout)


# -- our records in the peer's spelling ------------------------------------------------------------------------------

_ENUMS = {
    ("OutputRecord", "output_type"): {0: "STDERR", 1: "STDOUT"},
    ("FilesItem", "policy"): {1: "END", 2: "LIVE"},
    ("FilesItem", "type"): {1: "WANDB", 2: "MEDIA", 3: "ARTIFACT"},
    ("MetricRecord", "goal"): {1: "GOAL_MINIMIZE", 2: "GOAL_MAXIMIZE"},
}
_ALWAYS = {("OutputRecord", "output_type"), ("RunExitRecord", "exit_code"), ("HistoryStep", "num")}
"""Fields that the peer prints also where they hold the default."""
_COLLAPSED = {
    ("HistoryRecord", "item"),
    ("SummaryRecord", "update"),
    ("ConfigRecord", "update"),
    ("StatsRecord", "item"),
}
_COLLAPSED |= {("ArtifactManifest", "storage_policy_config"), ("ArtifactManifestEntry", "extra")}
"""Lists of key and JSON text that the peer prints as one object."""


def printed(position: int, record: Record) -> dict[str, Any]:
    """What the peer's reader prints for `record`, the `position`-th of its log counted from 1."""
    kind = "unknown" if record.kind == "empty" else record.kind
    entry: dict[str, Any] = {"num": position, "type": kind}
    if kind == "request":
        entry[kind] = {}
    elif (message := record.message()) is not None:
        entry[kind] = plain(message)
        if kind == "output" and message.output_type == 0:  # the older kind of output record has no such exception
            del entry[kind]["output_type"]
    return entry


def plain(message: Any) -> Any:
    """A message of the log as the peer's JSON: 64-bit integers as text, names for numbers, items as one object."""
    owner = message.DESCRIPTOR.name
    if owner == "Timestamp":
        return timestamp(message.seconds * 1_000_000_000 + message.nanos)
    fields = {field.name: (field, getattr(message, field.name)) for field in message.DESCRIPTOR.fields}
    present = {field.name for field, _ in message.ListFields()}
    present |= {name for name in fields if (owner, name) in _ALWAYS}
    return {name: _value(owner, *fields[name]) for name in present}


def _value(owner: str, field: Any, value: Any) -> Any:
    if (owner, field.name) in _ENUMS:
        return _ENUMS[owner, field.name][value]
    if (owner, field.name) in _COLLAPSED and all(item.value_json for item in value):
        return {_dotted(item): json_value(item.value_json) for item in value}
    if field.type == field.TYPE_BYTES:  # a message of switches
        names = _switches()[field.name]
        return {
            names[number]: True for number in set_flags(value) if number in names
        }  # it has no name for retired ones
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: value[key] if isinstance(value[key], str) else plain(value[key]) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_scalar(field, item) for item in value]
    return _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if (field.containing_type.name, field.name) == ("HistoryItem", "none"):
        return None
    if (field.containing_type.name, field.name) == ("HistoryStep", "num"):
        return value
    if field.type in {field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_SINT64}:
        return str(value)
    return finite(value)


def _dotted(item: Any) -> str:
    return ".".join(getattr(item, "nested_key", ())) or item.key


def json_value(text: str) -> Any:
    """The value of a JSON text in the peer's output; the text itself where it is none."""
    try:
        return finite(loads(text.encode()))
    except ValueError:
        return text


def finite(value: Any) -> Any:
    """`value` with names instead of the floats that JSON lacks, as the peer prints them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return value


def same(ours: Any, theirs: Any) -> bool:
    """Equal, where an integer beyond 64 bits equals the float that the peer makes of it; true is not 1."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    kinds = {type(ours), type(theirs)}
    if kinds == {int, float} or (kinds == {int} and not -(2**63) <= ours < 2**63):
        return float(ours) == float(theirs)  # the peer prints a whole float as an integer
    return type(ours) is type(theirs) and bool(ours == theirs)


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with 0, 3, 6 or 9 digits of a second, the fewest that hold them all."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    whole = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"


def nanoseconds(time: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time in UTC."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))


_DESCRIPTORS = """
import json
from wandb.proto.wandb_internal_pb2 import Record

found, todo = {}, [Record.DESCRIPTOR]
while todo:
    message = todo.pop()
    found[message.full_name] = {
        field.number: {
            "name": field.name,
            "type": field.type,
            "repeated": field.is_repeated,
            "message": field.message_type and field.message_type.full_name,
        }
        for field in message.fields
    }
    inner = [field.message_type for field in message.fields if field.message_type]
    todo += [message for message in inner if message.full_name not in found]
print(json.dumps(found))
"""


@functools.cache
def descriptors() -> dict[str, dict[str, dict[str, Any]]]:
    """The peer's messages: full name -> field number -> name, type, whether repeated, name of the inner message."""
    done = subprocess.run([PYTHON, "-c", _DESCRIPTORS], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return dict(json.loads(done.stdout))


@functools.cache
def _switches() -> dict[str, dict[int, str]]:
    """For each telemetry field made of switches: their names by number."""
    fields = descriptors()["wandb_internal.TelemetryRecord"].values()
    return {
        field["name"]: {int(number): switch["name"] for number, switch in descriptors()[field["message"]].items()}
        for field in fields
        if field["message"]
    }
