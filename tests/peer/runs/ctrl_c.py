"""Ctrl-C in the middle of training."""

import signal

import wandb

run = wandb.init(project="peer", id="ctrlc")
for i in range(100):
    run.log({"loss": i})
    if i == 5:
        signal.raise_signal(signal.SIGINT)
