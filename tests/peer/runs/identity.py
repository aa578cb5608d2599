"""Name, notes and tags that change while the run goes on; group and type of job that do not."""

import wandb

run = wandb.init(
    project="peer", entity="team", id="identity", name="first", group="g", job_type="train", tags=("b", "a"), notes="n"
)
run.log({"loss": 1})
run.name = "second"
run.tags += ("c",)
run.notes = "line one\nline two"
run.log({"loss": 2})
assert (run.id, run.name, run.tags, run.notes) == ("identity", "second", ("b", "a", "c"), "line one\nline two")
assert (run.project, run.entity, run.group, run.job_type) == ("peer", "team", "g", "train")
run.tags = ["only"]
run.name = "third"
run.finish()
