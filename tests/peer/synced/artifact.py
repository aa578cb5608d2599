"""An artifact of three files, one of them empty, and a reference."""

from pathlib import Path

import wandb

for name in ("a.txt", "dir/b.txt", "empty.txt"):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("" if name == "empty.txt" else f"content of {name}\n")
with wandb.init(project="peer", id="artifact") as run:
    dataset = wandb.Artifact("ds", type="dataset", description="three files", metadata={"n": 3, "split": [1, 2]})
    for name in ("a.txt", "dir/b.txt", "empty.txt"):
        dataset.add_file(name, name=name)
    dataset.add_reference("https://example.com/data.bin", name="remote", checksum=False)
    run.log_artifact(dataset, aliases=["latest", "best"])
    run.log({"loss": 1})
