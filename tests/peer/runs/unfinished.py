"""A program that just ends, with a row open."""

import wandb

run = wandb.init(project="peer", id="unfinished", config={"lr": 0.1})
run.log({"loss": 1})
run.summary["best"] = 1
run.log({"loss": 2}, commit=False)
