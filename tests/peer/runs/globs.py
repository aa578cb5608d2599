"""A glob that catches all, and definitions beside it."""

import wandb

run = wandb.init(project="peer", id="globs")
run.define_metric("*", summary="max")
run.define_metric("train/*", summary="min")
run.define_metric("own", summary="mean")
run.define_metric("quiet/*", summary="none")
for i in range(3):
    run.log({"a": i, "train/loss": 5 - i, "own": i, "quiet/x": i, "nest": {"b": i}, "s": f"v{i}"})
run.finish()
