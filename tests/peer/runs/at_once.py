"""Two runs at the same time, each with its own rows, config and end."""

import time

import wandb

one = wandb.init(project="peer", id="one", config={"n": 1}, reinit="create_new")
time.sleep(0.01)
two = wandb.init(project="peer", id="two", config={"n": 2}, reinit="create_new")
for i in range(4):
    one.log({"loss": i})
    two.log({"loss": -i, "only": "two"})
one.summary["best"] = 0
two.config.update({"late": True})
one.finish()
two.log({"loss": 100})
two.finish(exit_code=4)
