"""Globs with summaries, and an exact name that goes before one. No metric matches two globs: the peer picks any."""

import wandb

run = wandb.init(project="peer", id="globs")
run.define_metric("train/*", summary="min,last")
run.define_metric("train/own", summary="mean")
run.define_metric("quiet/*", summary="none")
run.define_metric("tree.*", summary="max,first")
for i in range(3):
    run.log({"a": i, "train/loss": 5 - i, "train/own": i, "quiet/x": i, "tree": {"b": i, "c": {"d": -i}}, "s": f"v{i}"})
run.finish()
