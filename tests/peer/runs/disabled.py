"""A run that writes nothing: everything may be done to it."""

from pathlib import Path

import wandb

run = wandb.init(project="peer", mode="disabled", config={"lr": 0.1})
run.log({"loss": 1, "nested": {"a": 1}})
run.config.update({"depth": 2})
run.summary["best"] = 1
run.define_metric("loss", summary="min")
run.name = "nobody sees it"
run.alert("title", "text")
run.log_artifact(wandb.Artifact("a", "t"))
assert run.config["lr"] == 0.1
assert run.config.depth == 2
assert run.summary["best"] == 1
run.finish()
assert not list(Path().glob("wandb/*run-*"))
