"""A run of a sweep, in a checkout with a remote, whose code is kept."""

import os
import subprocess
from pathlib import Path

import wandb

Path("train.py").write_text("# the program\n")
identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com"}
identity |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in identity.items()}
for command in (
    ["init", "-q"],
    ["remote", "add", "origin", "https://user:secret@example.com/team/repo.git"],
    ["add", "train.py"],
    ["commit", "-q", "-m", "first"],
):
    subprocess.run(["git", *command], check=True, env=os.environ | identity)
Path("train.py").write_text("# the program, edited\n")
os.environ |= {"WANDB_SWEEP_ID": "sweep1", "WANDB_RUN_ID": "checkout"}
with wandb.init(project="peer", settings=wandb.Settings(disable_git=False, save_code=True)) as run:
    run.log_code(".")
    run.log({"loss": 1})
