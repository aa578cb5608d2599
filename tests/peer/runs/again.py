"""Runs that are resumed in every way that needs no server."""

import time

import wandb

for resume in ("allow", "must", True):
    time.sleep(0.01)
    with wandb.init(project="peer", id="again", resume=resume, config={"way": str(resume)}) as run:
        run.log({"loss": 1})
time.sleep(0.01)
with wandb.init(project="peer", id="fresh", resume="never") as run:
    run.log({"loss": 2})
time.sleep(0.01)
with wandb.init(project="peer", id="plain") as run:
    run.log({"loss": 3}, step=4)
