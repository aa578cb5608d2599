"""Spawned workers: they import the script, and only the parent has the run."""

import multiprocessing

import wandb


def work(queue, number):
    queue.put((number, wandb.run is None))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with wandb.init(project="peer", id="spawned") as run:
        queue = context.Queue()
        workers = [context.Process(target=work, args=(queue, number)) for number in range(2)]
        for worker in workers:
            worker.start()
        for number, alone in sorted(queue.get() for _ in workers):
            run.log({"worker": number, "alone": alone})
        for worker in workers:
            worker.join()
