"""Histograms: made here or given, of sequences and arrays."""

import numpy as np
import wandb

values = np.concatenate([np.linspace(0, 1, 50), np.linspace(0.4, 0.6, 50)])
with wandb.init(project="peer", id="histograms") as run:
    run.log({"given": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 1.0, 2.0, 3.0]))})
    run.log({"numpy": wandb.Histogram(np_histogram=np.histogram(values, bins=8))})
    run.log({"sequence": wandb.Histogram([0, 1, 1, 2, 2, 2, 3], num_bins=4), "array": wandb.Histogram(values)})
    run.log({"nested": {"deep": wandb.Histogram(values, num_bins=3)}, "loss": 1})
    run.log({"raw": values, "ints": np.arange(100), "same": np.ones(40)})
    run.summary["shown"] = wandb.Histogram([1, 2, 3])
