"""The peer as judge: the same variables and files mean the same in both."""

from __future__ import annotations

import json
import subprocess

import pytest
from runferry.writer.settings import Settings, SettingsError, resolve
from runferry.writer.settings_table import SETTINGS, Resolved
from support import peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

ASK = """
import json, os, sys
from wandb.sdk.wandb_settings import Settings
answers = []
for case in json.load(sys.stdin):
    os.chdir(case["folder"])
    settings = Settings()
    try:
        settings.settings_system = case["system"]
        settings.update_from_system_settings()
        settings.update_from_env_vars(case["environ"])
        answers.append({name: getattr(settings, name) for name in case["names"]})
    except Exception:
        answers.append(None)
json.dump(answers, open(sys.argv[1], "w"))
"""


def ask_peer(cases, folder):
    """What the peer makes of each case: its settings by name, None if it refuses."""
    answers = folder / "answers.json"
    subprocess.run(
        [peer.PYTHON, "-c", ASK, answers],
        input=json.dumps(cases),
        text=True,
        check=True,
        capture_output=True,
        timeout=peer.TIMEOUT_S,
        cwd=folder,
    )
    return json.loads(answers.read_text())


NAMES = {
    "root_dir": "root",
    "project": "project",
    "entity": "entity",
    "run_name": "name",
    "run_notes": "notes",
    "run_tags": "tags",
    "run_id": "run_id",
    "run_group": "group",
    "run_job_type": "job_type",
    "sweep_id": "sweep_id",
    "resume": "resume_mode",
    "reinit": "reinit",
    "ignore_globs": "ignore_globs",
    "silent": "silent",
    "quiet": "quiet",
    "disable_git": "disable_git",
    "host": "host",
    "program": "program",
    "username": "username",
    "x_label": "label",
    "x_stats_sampling_interval": "sample_interval",
    "x_disable_stats": "disable_stats",
    "x_disable_meta": "disable_meta",
    "x_stats_no_cgroup": "no_cgroup",
    "x_stats_cpu_count": "cpu_count",
    "x_stats_gpu_type": "gpu_type",
    "x_primary": "primary",
    "x_stats_self_usage": "self_usage",
    "x_stats_buffer_size": "stats_buffer_size",
    "x_stats_neuron_monitor_config_path": "neuron_monitor_config_path",
    "x_stats_open_metrics_endpoints": "open_metrics_endpoints",
    "x_stats_open_metrics_filters": "open_metrics_filters",
    "x_stats_open_metrics_http_headers": "open_metrics_http_headers",
    "x_stats_dcgm_exporter": "dcgm_exporter",
    "x_stats_coreweave_metadata_base_url": "coreweave_metadata_base_url",
    "x_stats_coreweave_metadata_endpoint": "coreweave_metadata_endpoint",
}
"""The peer's name of each setting that both have with equal values -> the attribute here."""

OWN_DEFAULTS = {"project": (None, "uncategorized"), "mode": ("online", "offline")}
"""Setting -> the peer's default and ours."""

CASES = [
    {"environ": {}},
    {
        "environ": {
            "WANDB_MODE": "disabled",
            "WANDB_DIR": "/scratch",
            "WANDB_PROJECT": "p",
            "WANDB_ENTITY": "e",
            "WANDB_NAME": "n",
            "WANDB_NOTES": "o",
            "WANDB_TAGS": "a,b",
            "WANDB_RUN_ID": "r1",
            "WANDB_RUN_GROUP": "g",
            "WANDB_JOB_TYPE": "j",
            "WANDB_SWEEP_ID": "s",
            "WANDB_RESUME": "must",
            "WANDB_REINIT": "create_new",
            "WANDB_IGNORE_GLOBS": "*.a,*.b",
            "WANDB_SILENT": "true",
            "WANDB_QUIET": "1",
            "WANDB_DISABLE_GIT": "true",
            "WANDB_HOST": "h",
            "WANDB_PROGRAM": "t.py",
            "WANDB_USERNAME": "u",
            "WANDB_X_LABEL": "l",
            "WANDB_X_STATS_SAMPLING_INTERVAL": "2.5",
            "WANDB_X_DISABLE_STATS": "yes",
            "WANDB__DISABLE_META": "on",
            "WANDB_X_STATS_CPU_COUNT": "3",
            "WANDB_X_STATS_GPU_TYPE": "t",
        }
    },
    {
        "environ": {
            "WANDB_X_PRIMARY": "false",
            "WANDB_X_STATS_SELF_USAGE": "true",
            "WANDB_X_STATS_BUFFER_SIZE": "-1",
            "WANDB_X_STATS_NEURON_MONITOR_CONFIG_PATH": "/etc/n.json",
            "WANDB_X_STATS_OPEN_METRICS_ENDPOINTS": '{"node": "http://localhost:9100/metrics"}',
            "WANDB_X_STATS_OPEN_METRICS_FILTERS": '["node.cpu", "node.memory"]',
            "WANDB_X_STATS_OPEN_METRICS_HTTP_HEADERS": '{"Authorization": "Bearer t"}',
            "WANDB_X_STATS_DCGM_EXPORTER": 'http://localhost:9400/api/v1/query?query=DCGM_FI_DEV_GPU_TEMP{node="l1", b="c"}',
            "WANDB_X_STATS_COREWEAVE_METADATA_BASE_URL": "http://localhost:8080",
            "WANDB_X_STATS_COREWEAVE_METADATA_ENDPOINT": "/meta",
        }
    },
    {"environ": {"WANDB_X_STATS_OPEN_METRICS_FILTERS": '{".*": {"pod": "a.*"}}'}},
    {"environ": {"WANDB_RUN_NAME": "n", "WANDB_RUN_NOTES": "o", "WANDB_RUN_JOB_TYPE": "j", "WANDB_ROOT_DIR": "/r"}},
    {"environ": {"WANDB_SILENT": "f", "WANDB_QUIET": "N", "WANDB_RESUME": "never", "WANDB_MODE": "dryrun"}},
    {"environ": {}, "workspace": "entity = e\nmode = online\n", "user": "entity = weak\nrun_name: n\n"},
    {"environ": {"WANDB_ENTITY": "strong"}, "workspace": "entity = e\nrun_notes = a\n  b\n\n  c\n"},
    {"environ": {"WANDB_DIR": "/scratch"}, "workspace": "Entity = e\n# c\n; c\nproject : p = q\n"},
    {"environ": {}, "user": "ignore_globs = a,b\nsilent = true\nx_stats_sampling_interval = 3\nrun_id = r=1\n"},
    {"environ": {}, "user": "run_group = 100%%\n[other]\nentity = no\n[DEFAULT]\nhost = h\n"},
]


def test_variables_and_files_mean_what_they_mean_to_the_peer(tmp_path, monkeypatch):
    """Each case resolved by both: equal, but for the two defaults that are ours."""
    asked = []
    for number, case in enumerate(CASES):
        folder, home = tmp_path / f"{number}", tmp_path / f"home{number}"
        places = {"workspace": folder / "wandb" / "settings", "user": home / ".config" / "wandb" / "settings"}
        folder.mkdir()
        for place, path in places.items():
            if place in case:
                path.parent.mkdir(parents=True)
                path.write_text(f"[default]\n{case[place]}")
        system = str(places["user"])
        asked.append({"folder": str(folder), "system": system, "environ": case["environ"], "names": [*NAMES, "mode"]})
    for number, (case, theirs) in enumerate(zip(asked, ask_peer(asked, tmp_path), strict=True)):
        monkeypatch.chdir(case["folder"])
        ours = resolve(Settings(), None, {"HOME": str(tmp_path / f"home{number}"), **case["environ"]})
        assert ours.warnings == ()
        found = {name: getattr(ours, attribute) for name, attribute in NAMES.items()}
        found["mode"] = ours.mode
        found["run_id"] = ours.run_id if ours.given_id else None
        found["root_dir"] = str(ours.root)
        for name, value in found.items():
            their = theirs[name]
            if (their, value) == OWN_DEFAULTS.get(name):
                continue
            if isinstance(their, list):
                their = tuple(their)
            same = value == ("offline" if their == "dryrun" else their) if their is not None else not value
            assert same, (number, name, their, value)


TEXTS = (
    "1",
    "0",
    "TRUE",
    "off",
    "a b",
    "a/b",
    "\xe4",
    "must",
    "wrap",
    "2.5",
    "-1",
    "a, b",
    "[1]",
    ".",
    "x" * 65,
    "x" * 129,
)
"""For every variable that both know: right for some, odd or wrong for others."""

MEANT = {
    **dict.fromkeys([("WANDB_REINIT", text) for text in ("1", "TRUE")], "finish_previous"),
    **dict.fromkeys([("WANDB_REINIT", text) for text in ("0", "off")], "return_previous"),
    ("WANDB_X_STATS_GPU_DEVICE_IDS", "[1]"): ["1"],
}
"""Where the peer says it in another type: what it means there."""

OURS = {
    "a, b": "blanks around the items of a list are no part of them",
    "[1]": "a list may be written as JSON",
    ".": "a project or id of that name cannot stand in a URL or a path",
    "-1": "no number of processors, and no process",
    "x" * 129: "an id that the name of a file may be too short for",
}
"""Text that the peer takes as it is for some variables, and why it is otherwise here."""

DIFFERING = {
    *((f"WANDB_{name}", text) for name in ("TAGS", "RUN_TAGS", "IGNORE_GLOBS") for text in ("a, b", "[1]")),
    *((f"WANDB_X_STATS_{name}_COUNT", "-1") for name in ("CPU", "CPU_LOGICAL", "GPU")),
    ("WANDB_X_STATS_PID", "-1"),
    ("WANDB_PROJECT", "."),
    ("WANDB_RUN_ID", "."),
    ("WANDB_RUN_ID", "x" * 129),
}


def test_what_the_peer_takes_from_a_variable_is_taken_here(tmp_path, monkeypatch):
    """Every variable that both know with every text: the same value without a word, or a difference that is listed."""
    monkeypatch.chdir(tmp_path)
    fields = {
        "dir": "root_dir",
        "name": "run_name",
        "notes": "run_notes",
        "tags": "run_tags",
        "job_type": "run_job_type",
    }
    known = [(setting, key) for setting in SETTINGS for key in setting.peer if key not in setting.switches]
    asked = [(setting, f"WANDB_{key.upper()}", fields.get(key, key), text) for setting, key in known for text in TEXTS]
    common = {"folder": str(tmp_path), "system": str(tmp_path / "none")}
    cases = [{**common, "environ": {variable: text}, "names": [field]} for _, variable, field, text in asked]
    differing = set()
    for (setting, variable, field, text), answer in zip(asked, ask_peer(cases, tmp_path), strict=True):
        if answer is None:
            continue
        their = MEANT.get((variable, text), answer[field])
        try:
            resolved = resolve(Settings(), None, {variable: text})
        except SettingsError:
            differing.add((variable, text))
            continue
        ours = getattr(resolved, setting.attribute)
        if setting is Resolved.root:
            their = str((tmp_path / their).absolute())
        if resolved.warnings or json.loads(json.dumps(ours, default=str)) != their:
            differing.add((variable, text))

    no_url = {("WANDB_X_STATS_DCGM_EXPORTER", text) for text in TEXTS}  # the peer finds that out when it asks
    assert differing - no_url == DIFFERING
    assert no_url < differing
    assert {text for _, text in DIFFERING} == {*OURS}
