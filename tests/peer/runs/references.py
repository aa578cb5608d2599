"""Artifacts that only refer to what lies elsewhere, and entries that are taken out again."""

from pathlib import Path

import wandb

run = wandb.init(project="peer", id="references")
Path("here.txt").write_text("here\n")
artifact = wandb.Artifact("refs", type="dataset", incremental=False)
artifact.add_reference("http://127.0.0.1:9/a/b.csv", checksum=False)
artifact.add_reference("https://127.0.0.1:9/c?x=1", name="named.csv", checksum=False)
artifact.add_reference("unknown-scheme://host/path", name="odd", checksum=False)
artifact.add_file("here.txt")
artifact.add_file("here.txt", name="gone.txt")
artifact.remove("gone.txt")
artifact.description = "set later"
artifact.metadata = {"rows": 3}
run.log_artifact(artifact)
files = wandb.Artifact("local", type="dataset")
files.add_reference(f"file://{Path('here.txt').resolve()}", checksum=True)
run.log_artifact(files)
run.finish()
