"""A terminal program: progress bars, colours, long lines, odd bytes, prints from threads and after an exception."""

# ruff: noqa: T201 - what it prints is what this script is for
import sys
import threading

import wandb

run = wandb.init(project="peer", id="terminal")
for done in range(0, 101, 20):
    print(f"\r{done:3d}%|{'#' * (done // 10):<10}|", end="", flush=True)
print()
print("\x1b[1;32mgreen\x1b[0m and \x1b[31mred\x1b[0m", file=sys.stderr)
print("x" * 20_000)
print("t\u00e4b\there", "\u2028", "\U0001f600")
thread = threading.Thread(target=print, args=("from a thread",))
thread.start()
thread.join()
sys.stdout.writelines(["one\n", "two\n"])
print("up\x1b[Aover")
print("a", "b", sep="|", end="!\n")
run.log({"loss": 1})
print("last")
run.finish()
print("behind the run")
