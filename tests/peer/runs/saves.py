"""Files of one's own that belong to the run: by name, glob, folder and policy."""

from pathlib import Path

import wandb

run = wandb.init(project="peer", id="saves")
for name in ("one.txt", "out/a.csv", "out/b.csv", "out/deep/c.csv", "data/x.bin", "\u00fcml\u00e4ut.txt"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(f"content of {name}\n")
run.save("one.txt")
run.save("out/*.csv", policy="end")
run.save("out/deep/c.csv", base_path="out", policy="now")
run.save(Path("data/x.bin"), policy="live")
run.save(str(Path("data").resolve() / "*.bin"), base_path=str(Path("data").resolve()))
run.save("none/*.txt")
run.save("\u00fcml\u00e4ut.txt", policy="now")
run.log({"loss": 1})
wandb.save("one.txt", policy="end")
run.finish()
