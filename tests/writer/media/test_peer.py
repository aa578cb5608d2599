"""Tables and layers by the peer and by us: the same values, the same files, artifacts that hold the same."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import peer

pytestmark = pytest.mark.peer

SCRIPT = """
import datetime, math
import numpy as np
import wandb

rgb = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
mask = {"mask_data": rgb[:, :, 0] % 3, "class_labels": {0: "sky", 1: "sea", 2: "sand"}}
box = {"position": {"middle": [0.5, 0.5], "width": 0.1, "height": 0.2}, "class_id": 1, "scores": {"p": 0.5}}
layered = lambda: wandb.Image(rgb, caption="c", grouping=3, masks={"m/1": mask, "n": {"mask_data": rgb[:, :, 1]}},
                              boxes={"b": {"box_data": [box], "class_labels": {1: "cat"}}})
with wandb.init(project="peer", id="cells") as run:
    run.log({"layers": layered(), "nested": {"layers": layered()}})
    run.log({"list": [wandb.Image(rgb, caption="first"), layered()]})
    rows = [
        [1, "x", None, float("nan"), datetime.datetime(2020, 1, 2, 3, 4, 5), True, [1, 2], layered(), np.arange(3)],
        [2.5, None, None, math.inf, datetime.date(2021, 1, 1), False, [3], wandb.Image(rgb[:2]), np.arange(3) * 2],
        [np.float32(0.5), "z", None, 1, None, None, None, None, None],
    ]
    run.log({"cells": wandb.Table(columns=list("abcdefghi"), data=rows)})
    run.log({"grids": wandb.Table(columns=["g"], data=[[np.full((2, 2), n)] for n in range(3)])})
    run.log({"mixed": wandb.Table(columns=["m"], data=[[1], ["x"], [{"k": [1, 2.5]}]], allow_mixed_types=True)})
    run.log({"typed": wandb.Table(columns=["t", "u"], data=[[1, "x"]], dtype=[int, str], optional=[True, False])})
    shared = wandb.Table(columns=["s"], data=[[1]])
    run.log({"first": shared})
    run.log({"second": shared})
    mutable = wandb.Table(columns=["s"], data=[[1]], log_mode="MUTABLE")
    run.log({"mutable": mutable})
    mutable.add_data(2)
    run.log({"mutable": mutable})
    increments = wandb.Table(columns=["s"], log_mode="INCREMENTAL")
    for number in range(3):
        increments.add_data(number)
        run.log({"increments": increments})
    run.log({"a b/c.d": wandb.Table(columns=["s"], data=[["odd key"]])})
    run.log({"tables": [wandb.Table(columns=["s"], data=[[n]]) for n in range(2)]})
    run.log({"mixed list": [wandb.Html("<b>"), wandb.Image(rgb)]})
    run.log({"pr": wandb.plot.line(shared, "s", "s", split_table=True)})
    run.log({"halves": [wandb.Image(np.full((2, 2), 0.5)), wandb.Image(np.full((2, 2, 3), 0.5, np.float32))]})
    run.summary["last"] = wandb.Table(columns=["s"], data=[[3]])
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What the peer's reader prints for our log and for the peer's, and the folders of both."""
    if reason := peer.missing():
        pytest.skip(reason)
    libraries = subprocess.run([peer.PYTHON, "-c", "import numpy, PIL"], capture_output=True, check=False)
    if libraries.returncode:
        pytest.skip("the peer's environment has no numpy and pillow")
    drop_in = "import runferry, runpy, sys; sys.modules['wandb'] = runferry; runpy.run_path(sys.argv[1])"
    found = []
    for name, command in (("ours", [sys.executable, "-c", drop_in]), ("peer", [peer.PYTHON])):
        folder = tmp_path_factory.mktemp(name)
        (folder / "cells.py").write_text(SCRIPT)
        environ = peer.environment(folder, **peer.QUIET)
        done = subprocess.run(
            [*command, "cells.py"], cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        (log,) = folder.glob("wandb/*run-*-cells/run-*.wandb")
        found.append((log, [entry for entry in peer.inspect(log) if entry["type"] not in {"summary", "telemetry"}]))
    return found


def plain(value):
    """A value without what is random: ids of artifacts, times in names; increments begin with None by the peer."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        value = re.sub(r"[0-9a-z]{128}", "ID", value)
        return re.sub(r"(None|\d+)-\d{13}\.", "N.", value)
    return value


def rows_of(entries):
    clock = {"_runtime", "_timestamp"}
    rows = (entry["history"]["item"] for entry in entries if entry["type"] == "history")
    return [{key: plain(value) for key, value in row.items() if key not in clock} for row in rows]


def without(rows, key):
    return [{name: value for name, value in row.items() if not name.startswith(key)} for row in rows]


def test_floats_from_0_to_1_are_no_bytes(both):
    """A difference that is meant: the peer shows them black."""
    pillow = pytest.importorskip("PIL.Image")
    seen = []
    for log, entries in both:
        (names,) = [row["halves.filenames"] for row in rows_of(entries) if "halves.filenames" in row]
        seen.append([pillow.open(log.parent / "files" / name).getpixel((0, 0)) for name in names])

    assert seen == [[128, (128, 128, 128)], [0, (0, 0, 0)]]


def test_rows_name_the_same(both):
    """Every value but the ids of artifacts; hashes too, so that all files have the same bytes."""
    (_, ours), (_, theirs) = both

    assert without(rows_of(ours), "halves") == without(rows_of(theirs), "halves")


def test_the_same_files_are_recorded(both):
    """Each once, and each lies there."""
    (log, ours), (_, theirs) = both
    counts = [
        Counter(file["path"] for entry in entries if entry["type"] == "files" for file in entry["files"]["files"])
        for entries in (ours, theirs)
    ]
    for count in counts:
        del count["requirements.txt"]

    same = [Counter({path: n for path, n in count.items() if "halves" not in path}) for count in counts]
    assert same[0] == same[1]
    assert counts[0].total() == counts[1].total()
    assert all((log.parent / "files" / path).is_file() for path in counts[0])


def held_by(entries):
    """Each artifact: name, type, flags, the digests of its contents, and what its tables say."""
    found = []
    for artifact in (entry["artifact"] for entry in entries if entry["type"] == "artifact"):
        digests, tables = {}, []
        for content in artifact["manifest"]["contents"]:
            path = plain(content["path"])
            if not path.endswith(".table.json"):
                digests[path] = content["digest"]
                continue
            value = json.loads(Path(content["local_path"]).read_text())
            sort_sets(value["column_types"])
            tables.append((path, peer.finite(plain(value))))
        flags = {key: artifact.get(key) for key in ("aliases", "finalize", "incremental_beta1", "user_created")}
        found.append((artifact["name"], artifact["type"], flags, digests, tables))
    return found


def sort_sets(kind):
    """Sets are lists in any order."""
    if isinstance(kind, dict):
        for value in kind.values():
            sort_sets(value)
    elif isinstance(kind, list):
        for value in kind:
            sort_sets(value)
        if all(isinstance(value, (int, str)) for value in kind):
            kind.sort(key=str)


def test_artifacts_hold_the_same(both):
    """Contents by name and digest; of tables what they say, because the peer writes sets in any order."""
    (_, ours), (_, theirs) = both

    for mine, his in zip(held_by(ours), held_by(theirs), strict=True):
        assert mine == his


def config_of(entries):
    """What layers and charts say in the config, as one dict."""
    found = {}
    for update in (entry["config"]["update"] for entry in entries if entry["type"] == "config"):
        whole = update.pop("_wandb", {})
        for kind in ("mask/class_labels", "bounding_box/class_labels"):
            found |= {f"_wandb.{kind}.{key}": value for key, value in whole.get(kind, {}).items()}
        found |= update
    return found


def test_the_config_says_the_same(both):
    """Names of classes, by image and layer, and how charts are drawn."""
    (_, ours), (_, theirs) = both

    assert config_of(ours) == config_of(theirs)


def test_arrays_of_a_table_are_read_back(both):
    """By numpy, from the artifact's file."""
    import numpy as np

    (_, ours), _ = both
    (content,) = [
        content
        for entry in ours
        if entry["type"] == "artifact"
        for content in entry["artifact"]["manifest"]["contents"]
        if content["path"].endswith(".npz")
    ]
    assert np.load(io.BytesIO(Path(content["local_path"]).read_bytes()))["g"].shape == (3, 2, 2)
