"""What both say of this machine and this command, field by field."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from google.protobuf.json_format import MessageToDict
from runferry.logformat import RunState, find_logs, read_records
from support import peer

SCRIPT = """
import sys, {module} as wandb
wandb.init(project="p", mode="offline").finish()
"""
# Ours that the peer leaves out, and why they differ.
OURS = {
    ("username",): "the peer has it only from WANDB_USERNAME",
    ("cpu", "count"): "the peer has the model alone here, and the counts one level up",
    ("cpu", "countLogical"): "the same",
}
DIFFERENT = {
    ("startedAt", "seconds"): "two runs",
    ("startedAt", "nanos"): "two runs",
    ("root",): "each has its own folder; ours is checked below",
    ("writerId",): "two writers",
    ("disk", "/", "used"): "a moment apart",
    ("executable",): "two environments of Python",
    ("python",): "they may have two versions of it",
    ("args",): "ours has no secrets",
    ("slurm", "jwt"): "ours has no secrets",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """(peer's, ours): the folded record as the server shows it, by path."""
    if reason := peer.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("same")
    for command in (
        "init -q",
        "remote add origin https://ada:pw@host/a.git",
        "-c user.name=n -c user.email=e commit -q --allow-empty -m m",
    ):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    found = []
    for python, module in ((peer.PYTHON, "wandb"), (sys.executable, "runferry")):
        (folder / "train.py").write_text(SCRIPT.format(module=module))
        given = {"SLURM_JOB_ID": "99", "SLURM_NODELIST": "n[1-2]", "SLURM_JWT": "tok", "WANDB_DOCKER": "img:1"}
        told = {"WANDB_USER_EMAIL": "ada@host", "WANDB_SILENT": "true", "WANDB_DIR": str(folder / f"of_{module}")}
        (folder / f"of_{module}").mkdir()
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_", "SLURM_"))
        }
        command = [python, "train.py", "--lr", "3e-4", "--api-key", "abc"]
        subprocess.run(command, cwd=folder, env={**environ, **given, **told}, check=True, timeout=100)
        (log,) = find_logs(folder / f"of_{module}")
        record = RunState().add_all(read_records(log)).environment
        found.append(dict(leaves(MessageToDict(record))))
    return found


def leaves(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def test_every_field_of_the_peer_is_there(said):
    """But for the credential."""
    theirs, ours = said
    assert set(theirs) - set(ours) == {("slurm", "jwt")}


def test_no_other_field_is(said):
    """But for those that are named here."""
    theirs, ours = said
    assert set(ours) - set(theirs) == set(OURS)


def test_values_are_the_same(said):
    """But for those that are named here."""
    theirs, ours = said
    different = {path for path in set(theirs) & set(ours) if theirs[path] != ours[path]}
    assert different <= set(DIFFERENT)
    assert ours[("args",)] == ["--lr", "3e-4", "--api-key", "[redacted]"]
    assert [record[("root",)].rpartition("/")[2] for record in said] == ["of_wandb", "of_runferry"]
    assert (ours[("email",)], ours[("docker",)]) == ("ada@host", "img:1")
    assert ours[("git", "remote")] == "https://ada:@host/a.git"
