"""A thousand metrics in a row, again and again, with keys that come and go."""

import wandb

with wandb.init(project="peer", id="wide") as run:
    for i in range(5):
        run.log({f"layer{n}/grad": n * i for n in range(1000)})
    for i in range(30):
        run.log({f"part{n}": i for n in range(i, i + 20)})
    run.log({"k" * n: n for n in range(1, 60)})
