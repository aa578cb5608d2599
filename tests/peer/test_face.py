"""The names that a script can use: every one of the peer's stands here too, or in a table that says why not."""

from __future__ import annotations

import functools
import inspect
import json
import re
import subprocess

import pytest
import runferry
from support import peer

pytestmark = pytest.mark.peer

FRAMEWORKS = "catboost gym integration keras lightgbm profiler sacred sklearn tensorboard tensorflow xgboost"
"""Integrations of the peer's that patch a framework."""
INTERNAL = (
    "analytics apis data_types ensure_configured env helper jupyter patched proto sagemaker_auth"
    " sdk termsetup trigger util viz visualize wandb wandb_agent wandb_lib wandb_sdk wandb_torch"
)
"""Modules and helpers of the peer's own machinery that are visible in its namespace."""
ABSENT = {
    "api agents controller": "ask a server: `runferry sync` is what speaks to one",
    "ArtifactTTL": "a sentinel of the peer's server",
    "JoinedTable EvalTable Graph": "kinds of media with a viewer of their own on the peer's page only",
    FRAMEWORKS: "nothing is patched: let a callback of the framework call `log`",
    INTERNAL: "the peer's own machinery",
}
SERVERS = """
    checkout collection commit_hash created_at delete download entity file file_count files history_step id is_link
    json_encode link linked_artifacts linked_at logged_by project qualified_name source_artifact source_collection
    source_entity source_name source_project source_qualified_name source_version unlink updated_at url used_by verify use_as version
    digest_algorithm new_draft get_added_local_path_name
"""
"""What the peer's artifacts know once they are on a server."""
SWEEPS = "a sweep sets these values, and there are none"
METHODS_ABSENT = {
    "Run": {
        "status": "nothing is uploaded while the run is written",
    },
    "Config": {"merge_locked": SWEEPS, "persist": "every change is recorded", "update_locked": SWEEPS},
    "Artifact": dict.fromkeys(SERVERS.split(), "asks a server for an artifact that is there already"),
}
PARAMETERS_ABSENT = {
    ("init", "force"): "there is no login to insist on",
    ("init", "resume_from"): "a server rewinds a run",
    ("init", "fork_from"): "a server forks a run",
    ("init", "tensorboard"): "nothing patches TensorBoard",
    ("init", "sync_tensorboard"): "nothing patches TensorBoard",
    ("init", "monitor_gym"): "nothing patches gym",
    ("init", "anonymous"): "the peer ignores it",
    ("setdefaults", "d"): "its mapping goes by position",
    ("Artifact", "storage_region"): "a server chooses it",
    ("Artifact", "digest_algorithm"): "MD5 is what every reader knows",
}
PAGE = peer.ROOT / "docs" / "drop-in.md"
ASK = """
import inspect, json, wandb
def face(thing):
    return {name: parameters(thing, name) for name in dir(thing) if not name.startswith("_")}
def parameters(thing, name):
    try:
        return [name for name in inspect.signature(getattr(thing, name)).parameters if name != "self"]
    except Exception:  # no function, or a module that needs a framework
        return []
classes = {name: face(getattr(wandb, name)) for name in ("Run", "Artifact", "Config")}
kinds = {name: parameters(wandb, name) for name in
         ("Artifact", "Image", "Table", "Histogram", "Html", "Audio", "Video", "Object3D", "Plotly", "Classes")}
print(json.dumps({"module": face(wandb), "classes": classes, "kinds": kinds, "plot": face(wandb.plot)}))
"""


@pytest.fixture(scope="module")
def theirs():
    if reason := peer.missing():
        pytest.skip(reason)
    done = subprocess.run([peer.PYTHON, "-c", ASK], capture_output=True, check=True, text=True, timeout=60)
    return json.loads(done.stdout)


@functools.cache
def absent():
    return {name for names in ABSENT for name in names.split()}


def lacking(theirs, ours, what):
    """Parameters of the peer's that ours has neither by name nor by taking any."""
    parameters = inspect.signature(ours).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return []
    named = {parameter.name for parameter in parameters}
    return [name for name in theirs if name not in named and (what, name) not in PARAMETERS_ABSENT]


def test_every_name_of_the_module_is_there_or_accounted_for(theirs):
    """`import runferry as wandb` finds what `import wandb` finds."""
    missing = [name for name in theirs["module"] if not hasattr(runferry, name)]

    assert sorted(missing) == sorted(absent() & set(theirs["module"]))


@pytest.mark.parametrize("kind", ["Run", "Artifact", "Config"])
def test_every_method_is_there_or_accounted_for(theirs, kind):
    """Methods and properties of what a script holds in its hands."""
    ours = runferry.Artifact("name", "type") if kind == "Artifact" else getattr(runferry, kind)
    missing = [name for name in theirs["classes"][kind] if not hasattr(ours, name)]

    assert sorted(missing) == sorted(METHODS_ABSENT[kind])


def test_every_parameter_is_taken_or_accounted_for(theirs):
    """Of functions, methods and constructors, so that no call with the peer's arguments is a TypeError."""
    missing = [("init", name) for name in theirs["module"]["init"] if lacking([name], runferry.init, "init")]
    for kind, face in theirs["classes"].items():
        ours = getattr(runferry, kind)
        for name, parameters in face.items():
            if callable(getattr(ours, name, None)) and not hasattr(dict, name):
                missing += [(f"{kind}.{name}", lost) for lost in lacking(parameters, getattr(ours, name), name)]
    for kind, parameters in theirs["kinds"].items():
        missing += [(kind, lost) for lost in lacking(parameters, getattr(runferry, kind), kind)]
    for name, parameters in theirs["plot"].items():
        if parameters and name not in {"CustomChart", "Visualize", "visualize"}:  # behind them all, and no plot
            missing += [(name, lost) for lost in lacking(parameters, getattr(runferry.plot, name), name)]

    assert not missing


def documented():
    """The rows of the page's table: names and why."""
    by_reason = {reason: names.split() for names, reason in ABSENT.items()}
    for kind, methods in METHODS_ABSENT.items():
        for name, reason in methods.items():
            by_reason.setdefault(reason, []).append(f"{kind}.{name}")
    for (call, name), reason in PARAMETERS_ABSENT.items():
        shown = "Config.setdefaults" if call == "setdefaults" else call
        by_reason.setdefault(reason, []).append(f"{shown}({name}=)")
    return [(", ".join(f"`{name}`" for name in names), reason) for reason, names in by_reason.items()]


def test_the_page_has_every_name_that_is_absent():
    """In the words that stand here, and no other."""
    section = PAGE.read_text().split("## Names that are absent")[1]

    assert re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.MULTILINE) == documented()


def test_what_is_not_supported_says_so():
    """A sweep and an attachment are errors of their own, with a way out; a login needs nothing."""
    with pytest.raises(runferry.CommError, match="group"):
        runferry.sweep({})
    with pytest.raises(runferry.UsageError, match="process"):
        runferry.attach("id")

    assert runferry.login(key="x" * 40) is True
