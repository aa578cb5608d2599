"""The code of a project, as an artifact of its own."""

from pathlib import Path

import wandb

for name in ("src/train.py", "src/sub/model.py", "src/notes.txt", "src/config.yaml", "src/wandb/skipped.py"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(f"# {name}\n")
run = wandb.init(project="peer", id="sourcecode")
run.log_code("src")
run.log_code("src", name="chosen", include_fn=lambda path: path.endswith((".py", ".yaml")))
run.log_code("src", name="less", include_fn=lambda path: True, exclude_fn=lambda path: "sub" in path)
run.log({"loss": 1})
run.finish()
