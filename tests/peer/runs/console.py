"""Output as terminals show it: carriage returns, both streams, an unfinished last line, and exit code 3."""

# ruff: noqa: T201 - what it prints is what this script is for
import sys

import wandb

run = wandb.init(project="peer", id="console")
print("hello stdout")
print("hello stderr", file=sys.stderr)
for percent in (10, 50, 100):
    sys.stdout.write(f"\rprogress {percent}%")
sys.stdout.write("\n")
sys.stdout.write("long line\rshort\n")
print("two\nlines")
print("\x1b[31mred\x1b[0m")
print()
run.log({"loss": 1})
sys.stdout.write("no newline")
run.finish(exit_code=3)
