"""Summaries of several kinds at once, hidden metrics and definitions that replace or add to others."""

import wandb

run = wandb.init(project="peer", id="kinds")
run.define_metric("acc", summary="max")
run.define_metric("loss", summary="min,last")
run.define_metric("all", summary="min,max,mean,first,last")
run.define_metric("hidden", hidden=True)
run.define_metric("none", summary="none")
run.define_metric("twice", summary="min")
run.define_metric("twice", summary="max", overwrite=True)
run.define_metric("twice", step_metric="acc")
run.define_metric("e*", summary="min")
run.define_metric("exact", summary="max")
for i, acc in enumerate([0.1, 0.9, 0.5, -2]):
    run.log({"acc": acc, "loss": -acc, "all": acc, "hidden": i, "none": i, "twice": acc, "exact": acc, "every": acc})
run.log({"all": "text", "acc": True})
run.log({"acc": None, "loss": 0.3})
run.summary["acc"] = "set by hand"
run.finish()
