"""Everything about a run that changes on the way, with the environment and a system sample."""

import wandb

run = wandb.init(
    project="peer",
    entity="team",
    id="edits",
    name="first",
    notes="n1",
    tags=["b", "a"],
    group="g",
    job_type="train",
    config={
        "lr": 0.1,
        "model": {"depth": 2, "width": 64},
        "layers": [1, 2],
        "none": None,
        "nan": float("nan"),
        "inf": float("inf"),
        "big": 2**70,
        "a.b": "dot",
    },
)
run.config.added = 5
run.config.update({"model": {"depth": 3}, "fresh": {"a": {"b": 1}}}, allow_val_change=True)
run.log({"loss": 1.0, "best": 0.0})
run.name = "renamed"
run.tags = ("b", "a", "c")
run.notes = "n2"
run.log({"loss": 0.5})
run.summary["best"] = 0.9
run.summary["nest"] = {"a": 1, "b": {"c": 2}}
run.summary["nest"]["a"] = 7
run.summary["gone"] = 1
del run.summary["gone"]
run.summary["text"] = "done"
run.summary["nothing"] = None
run.summary["not_finite"] = float("nan")
run.config.update({"lr": 0.2}, allow_val_change=True)
run.alert("title", "text", level="WARN", wait_duration=60)
run.mark_preempting()
run.finish(exit_code=0)
