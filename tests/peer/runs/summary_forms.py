"""The summary as a live mapping, while rows go on."""

import wandb

run = wandb.init(project="peer", id="summary")
run.log({"loss": 3, "acc": 0.1, "nested": {"a": 1, "b": 2}})
run.summary["best"] = {"epoch": 1, "loss": 3}
run.summary.last = "attribute"
run.summary.update({"acc": 0.5, "own": 1, "tree": {"x": {"y": 1}}})
run.summary["tree"]["x"]["z"] = 2
run.summary["gone"] = {"a": 1}
del run.summary["gone"]
run.log({"loss": 2, "nested": {"a": 5}})
run.summary["loss"] = -1
assert run.summary["own"] == 1
assert run.summary.get("missing", 5) == 5
assert "acc" in run.summary.keys()  # noqa: SIM118 - the peer has no `in`
run.log({"acc": 0.25, "nested": {"b": 7}})
run.summary["list"] = [1, 2, {"a": 1}]
run.summary["text"] = "done"
run.finish()
