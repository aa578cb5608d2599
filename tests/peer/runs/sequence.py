"""Runs one behind the other: `init` while one is open, finished ones, and what `reinit` makes of them."""

import time

import wandb

first = wandb.init(project="peer", id="first", config={"n": 1})
first.log({"loss": 1})
assert wandb.init(project="peer", id="ignored") is first, "the open run is the one"
first.log({"loss": 2})
time.sleep(0.01)
second = wandb.init(project="peer", id="second", config={"n": 2}, reinit="finish_previous")
assert second is not first
second.log({"loss": 3})
second.finish(exit_code=2)
time.sleep(0.01)
third = wandb.init(project="peer", id="third", reinit=True)
wandb.log({"loss": 4})
wandb.finish()
