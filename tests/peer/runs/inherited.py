"""A forked child that logs to its parent's run."""

import os

import wandb

with wandb.init(project="peer", id="inherited") as run:
    run.log({"before": 1})
    child = os.fork()
    if not child:
        run.log({"child": 1})
        run.summary["of the child"] = 1
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    run.log({"after": 1})
