"""A step metric of one's own: rows that lack it get its last value, and globs take it, too."""

import wandb

run = wandb.init(project="peer", id="stepmetrics")
run.define_metric("global_step")
run.define_metric("train/*", step_metric="global_step")
run.define_metric("val/*", step_metric="epoch", step_sync=False)
run.define_metric("loss", step_metric="global_step", step_sync=True, summary="min")
run.log({"loss": 5})
for i in range(4):
    run.log({"global_step": 100 * i})
    run.log({"loss": 4 - i, "train/lr": 0.1})
    run.log({"val/acc": i / 4, "epoch": i})
    run.log({"val/f1": i / 8})
run.log({"global_step": 1000, "loss": 0})
run.log({"loss": 1}, commit=False)
run.log({"train/other": 1})
run.finish()
