"""A run that was resumed, with console output in both parts."""

# ruff: noqa: T201 - what it prints is what this script is for
import wandb

for part in (1, 2):
    with wandb.init(project="peer", id="talking", resume="allow") as run:
        for i in range(3):
            print(f"part {part} line {i}")
            run.log({"x": 10 * part + i})
