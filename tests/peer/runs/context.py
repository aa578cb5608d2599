"""A context manager that an exception leaves, and another run behind it that ends well."""

from contextlib import suppress

import wandb

with suppress(ZeroDivisionError), wandb.init(project="peer", id="failed") as run:
    run.log({"loss": 1})
    run.log({"loss": 1 / 0})
with wandb.init(project="peer", id="fine") as run:
    run.log({"loss": 2})
