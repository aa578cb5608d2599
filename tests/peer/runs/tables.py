"""Tables: by data, by rows, with mixed types and media, and several times under one name."""

import numpy as np
import wandb

with wandb.init(project="peer", id="tables") as run:
    run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])})
    grown = wandb.Table(columns=["n", "text", "none", "flag"])
    for i in range(3):
        grown.add_data(i / 2, f"row {i}", None, i > 1)
    run.log({"grown": grown, "loss": 1})
    run.log({"table": wandb.Table(columns=["a"], data=[[float("inf")], [float("-inf")], [1.5]])})
    run.log({"arrays": wandb.Table(data=np.arange(6).reshape(3, 2), columns=["x", "y"])})
    run.log({"unnamed": wandb.Table(data=[[1, 2, 3]])})
    run.log({"nested": {"table": wandb.Table(columns=["a"], data=[["deep"]])}})
    run.log({"lists": wandb.Table(columns=["v"], data=[[[1, 2]], [[3]]])})
    optional = wandb.Table(columns=["a", "b"], dtype=[int, str])
    optional.add_data(1, "x")
    optional.add_column("c", [0.5])
    run.log({"typed": optional})
    run.log({"empty": wandb.Table(columns=["a", "b"])})
