"""Files: media, a saved file, an artifact, code."""

from pathlib import Path

import wandb

run = wandb.init(project="peer", id="media")
run.log({"page": wandb.Html("<b>bold</b>", inject=False), "loss": 1})
run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [float("nan"), None]])})
run.log({"histogram": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 1.0, 2.0, 3.0]))})
run.log({"nested": {"page": wandb.Html("<i>italic</i>", inject=False)}})
run.log({"bars": wandb.plot.bar(wandb.Table(columns=["a", "b"], data=[["x", 1]]), "a", "b")})
saved = Path("saved.txt")
saved.write_text("saved\n")
run.save("saved.txt", policy="now")
artifact = wandb.Artifact("weights", "model", description="d", metadata={"k": 1, "nan": float("nan")})
artifact.add_file("saved.txt")
artifact.add_reference("http://127.0.0.1:9/file", checksum=False)
run.log_artifact(artifact, aliases=["best"], tags=["t1"])
run.write_logs("from a logger")
run.finish()
