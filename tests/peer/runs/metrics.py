"""define_metric in all its forms; the summary of the run depends on them."""

import math

import wandb

run = wandb.init(project="peer", id="metrics")
run.define_metric("epoch")
run.define_metric("val/*", step_metric="epoch")
run.define_metric("acc", step_metric="epoch", summary="min,max,mean,first,last")
run.define_metric("hid", hidden=True, summary="none")
run.define_metric("loss", summary="min")
run.define_metric("loss", summary="max", overwrite=True)
run.define_metric("both", summary="min")
run.define_metric("both", summary="max")
run.define_metric("nest.val", summary="max")
run.define_metric("dot\\.key", summary="max")
run.define_metric("glob_min/*", summary="min,last")
run.define_metric("word", summary="max,last")
run.define_metric("later", summary="mean")
for i, loss in enumerate([3.0, 1.0, math.nan, 2.0]):
    run.log(
        {
            "epoch": i,
            "acc": 0.1 * i - 0.05,
            "hid": i,
            "loss": loss,
            "both": (5, 7, 3, 6)[i],
            "nest": {"val": i, "other": i},
            "dot.key": -i,
            "val/acc": i / 3,
            "glob_min/a": 10 - i,
            "glob_min/b": i,
            "word": ("b", 2, "a", 1)[i],
            "plain": i,
        }
    )
run.log({"acc": 0.9, "later": 2})
run.log({"later": None, "acc": True})
run.log({"later": 5})
run.define_metric("plain", summary="min")
run.log({"plain": 100, "epoch": 9})
run.finish()
