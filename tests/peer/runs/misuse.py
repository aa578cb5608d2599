"""What a program does wrong, and goes on."""

import wandb

wrong = {}


def tried(name, what):
    try:
        what()
    except Exception:  # each library has errors of its own
        wrong[name] = True
    else:
        wrong[name] = False


tried("log before init", lambda: wandb.log({"a": 1}))
tried("config before init", lambda: wandb.config.update({"a": 1}))
run = wandb.init(project="peer", id="misuse", config={"lr": 0.1})
tried("a summary that is none", lambda: run.define_metric("x", summary="median"))
tried("a changed config", lambda: run.config.update({"lr": 0.2}))
tried("a missing key", lambda: run.config["missing"])
tried("a missing attribute", lambda: run.config.missing)
tried("a missing summary", lambda: run.summary["missing"])
run.log(wrong)
run.finish()
run.finish()
