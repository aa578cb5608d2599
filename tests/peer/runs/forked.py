"""A run that branches off another one at step 1."""

import wandb

with wandb.init(project="peer", id="forked", fork_from="parent?_step=1", config={"lr": 0.5}) as run:
    for i in range(3):
        run.log({"loss": i})
