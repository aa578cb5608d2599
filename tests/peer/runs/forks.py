"""Forked workers that compute, as data loaders do, while the parent logs; one leaves without clean-up, one raises."""

import multiprocessing
import os

import wandb


def square(number):
    return number * number


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with wandb.init(project="peer", id="forks") as run:
        run.log({"before": 1})
        with context.Pool(2) as pool:
            for value in pool.map(square, range(5)):
                run.log({"square": value})
        child = os.fork()
        if not child:
            os._exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        run.log({"child": code})
        worker = context.Process(target=os.strerror, args=(1,))
        worker.start()
        worker.join()
        run.log({"after": worker.exitcode})
