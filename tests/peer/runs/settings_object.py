"""A settings object instead of arguments; an argument goes before it."""

import wandb

settings = wandb.Settings(
    project="overruled", entity="team", run_id="byobject", run_group="group", run_job_type="eval", mode="offline"
)
settings.run_notes = "noted"
with wandb.init(project="peer", settings=settings, tags=["x"]) as run:
    run.log({"loss": 1})
    assert (run.project, run.entity, run.group, run.job_type) == ("peer", "team", "group", "eval")
