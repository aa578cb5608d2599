"""A run that ends with an exit code of its own."""

import wandb

run = wandb.init(project="peer", id="exitcode")
run.log({"loss": 1})
run.finish(exit_code=3)
