"""Settings from the environment, as schedulers and launchers give them; an argument goes before them."""

import os

import wandb

os.environ |= {
    "WANDB_PROJECT": "overruled",
    "WANDB_ENTITY": "team",
    "WANDB_NAME": "named",
    "WANDB_NOTES": "noted",
    "WANDB_TAGS": "b,a",
    "WANDB_RUN_ID": "byenviron",
    "WANDB_RUN_GROUP": "group",
    "WANDB_JOB_TYPE": "eval",
    "WANDB_RESUME": "allow",
    "WANDB_MODE": "offline",
}
with wandb.init(project="peer") as run:
    run.log({"loss": 1})
    assert (run.id, run.name, run.group) == ("byenviron", "named", "group")
