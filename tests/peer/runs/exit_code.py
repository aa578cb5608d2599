"""A program that says itself how it ended."""

import sys

import wandb

run = wandb.init(project="peer", id="exitcode")
run.log({"loss": 1})
sys.exit(3)
