"""Ways to give and change a config."""

import argparse

import wandb

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--layers", nargs="*", default=[1, 2])
run = wandb.init(project="peer", id="config", config=parser.parse_args(["--lr", "0.5"]))
assert (run.config.lr, run.config["layers"], run.config.get("none", 7)) == (0.5, [1, 2], 7)
run.config.batch = 32
run.config["model"] = {"depth": 2, "act": "relu"}
run.config.setdefaults({"batch": 64, "epochs": 3})
run.config.update({"lr": 0.25}, allow_val_change=True)
run.config.update({"seed": 1, "data": {"name": "digits", "splits": ["train", "test"]}})
run.config.update(argparse.Namespace(warmup=10))
run.config.update({"model": {"act": "gelu", "heads": 4}}, allow_val_change=True)
assert "epochs" in run.config
assert run.config["batch"] == 32
assert set(run.config.keys()) == {"lr", "layers", "batch", "model", "epochs", "seed", "data", "warmup"}
assert dict(run.config)["seed"] == 1
run.log({"loss": run.config.lr})
run.finish()
