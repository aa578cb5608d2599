"""Rows of very different sizes over many blocks."""

import wandb

run = wandb.init(project="peer", id="long")
for i in range(120):
    run.log({"i": i, "pad": "x" * (i * 37 % 1500)})
run.log({"pad": "y" * 70_000})
run.log({f"key{i}": i for i in range(500)})
run.finish()
