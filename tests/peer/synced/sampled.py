"""A run with system metrics: the samples at its start and end, and some between."""

import time

import wandb

with wandb.init(project="peer", id="sampled", settings=wandb.Settings(x_stats_sampling_interval=0.2)) as run:
    for i in range(5):
        run.log({"loss": i})
        time.sleep(0.2)
