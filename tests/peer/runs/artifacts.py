"""Artifacts: files, folders, new files, metadata, aliases; the same content again."""

from pathlib import Path

import wandb

run = wandb.init(project="peer", id="artifacts")
for name in ("weights.bin", "folder/a.txt", "folder/sub/b.txt"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(f"content of {name}\n")
model = wandb.Artifact("net", type="model", description="a net", metadata={"acc": 0.5, "layers": [1, 2]})
model.add_file("weights.bin")
model.add_file("weights.bin", name="copies/again.bin")
model.add_dir("folder")
model.add_dir("folder", name="below")
with model.new_file("notes.txt", encoding="utf-8") as file:
    file.write("n\u00f6tes\n")
run.log_artifact(model, aliases=["best", "v-one"], tags=["t1", "t2"])
model.metadata["never"] = "logged already"
again = wandb.Artifact("net", type="model")
again.add_file("weights.bin")
run.log_artifact(again)
empty = wandb.Artifact("empty", type="dataset")
run.log_artifact(empty)
run.log_artifact("weights.bin", name="bypath", type="model", aliases=["direct"])
run.log_artifact("folder", name="byfolder", type="dataset")
wandb.log_artifact("folder/a.txt", type="dataset")
run.log_model("weights.bin", name="amodel", aliases=["prod"])
run.log({"loss": 1})
run.finish()
