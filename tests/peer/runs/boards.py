"""Tables and media inside an artifact."""

import numpy as np
import wandb

with wandb.init(project="peer", id="boards") as run:
    artifact = wandb.Artifact("results", type="evaluation", metadata={"split": "test"})
    artifact.add(wandb.Table(columns=["id", "score"], data=[[1, 0.5], [2, 0.25]]), "scores")
    artifact.add(wandb.Html("<b>report</b>", inject=False), "report")
    artifact.add(wandb.Image(np.zeros((2, 2, 3), dtype=np.uint8)), "black")
    run.log_artifact(artifact, aliases=["final"])
    run.log({"loss": 1})
