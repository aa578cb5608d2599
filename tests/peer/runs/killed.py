"""Rows for ever, until somebody kills this process: each is announced on standard error once it was logged."""

import sys
import time

import wandb

run = wandb.init(project="peer", id="killed")
for i in range(100_000):
    run.log({"loss": 1 / (i + 1), "pad": "x" * 500})
    print(i, file=sys.__stderr__, flush=True)
    time.sleep(0.002)
