"""An exception that nobody catches."""

import wandb

run = wandb.init(project="peer", id="exception")
run.log({"loss": 1})
raise ValueError("boom")
