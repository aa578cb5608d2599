"""Steps: rows of several calls, gaps, explicit and automatic ones in turn, and what `commit` does to them."""

import wandb

with wandb.init(project="peer", id="steps") as run:
    for i in range(3):
        run.log({"a": i}, commit=True)
    run.log({"b": 1}, commit=False)
    run.log({"c": 2}, commit=False)
    run.log({"b": 3})
    run.log({"d": 1}, step=10)
    run.log({"e": 2}, step=10)
    run.log({"d": 3}, step=10)
    run.log({"behind": 1}, step=11)
    run.log({"automatic": 1})
    run.log({})
    run.log({}, step=20)
    run.log({"committed": 1}, step=25, commit=True)
    run.log({"after": 1})
    run.log({"far": 1}, step=1_000_000)
    run.log({"open": 1}, commit=False)
