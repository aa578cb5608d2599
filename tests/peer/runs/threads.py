"""Rows from several threads, one after the other, while the main thread waits."""

import threading

import wandb

run = wandb.init(project="peer", id="threads")


def work(name):
    for i in range(5):
        run.log({f"{name}/loss": i, "name": name})
    run.summary[name] = "done"
    wandb.config.update({name: threading.current_thread().name})


for number in range(4):
    thread = threading.Thread(target=work, args=(f"t{number}",), name=f"worker-{number}")
    thread.start()
    thread.join()
run.finish()
