"""The older name of the offline mode, by argument."""

import wandb

with wandb.init(project="peer", id="dryrun", mode="dryrun", config={"lr": 0.1}) as run:
    run.log({"loss": 1})
