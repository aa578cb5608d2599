"""A run that takes some seconds, and says when it has begun; its rows are long, for the peer writes whole blocks."""

# ruff: noqa: T201 - a line tells the test
import time

import wandb

with wandb.init(project="peer", id="slow") as run:
    for i in range(40):
        run.log({"loss": i, "pad": "x" * 3000})
        if i == 5:
            print("begun", flush=True)
        time.sleep(0.1)
