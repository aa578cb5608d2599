"""Rows and a summary with a value that no request has room for, beside ones that have."""

import wandb

with wandb.init(project="peer", id="oversize") as run:
    run.log({"loss": 1.0, "text": "short"})
    run.log({"loss": 0.5, "huge": "x" * 11_000_000})
    run.log({"loss": 0.25, "huge": "y"})
