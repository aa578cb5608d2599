"""A run that is marked as about to lose its machine, and ends well."""

import wandb

with wandb.init(project="peer", id="preempting") as run:
    run.log({"x": 1})
    run.mark_preempting()
    run.log({"x": 2})
