"""The functions and objects of the module, which speak to the current run."""

import wandb

assert wandb.run is None
wandb.init(project="peer", id="module", config={"lr": 0.1})
wandb.define_metric("loss", summary="min")
wandb.config.batch = 32
wandb.config.update({"depth": 4})
wandb.config["width"] = 8
for i in range(3):
    wandb.log({"loss": 3 - i, "lr": wandb.config.lr})
wandb.log({"loss": 9}, step=7, commit=True)
wandb.summary["best"] = 1
wandb.summary.update({"more": 2})
wandb.alert("hello", "from the module")
assert wandb.run.id == "module"
assert wandb.config["batch"] == wandb.config.batch == 32
wandb.finish()
assert wandb.run is None
