"""Artifacts of every shape that a log may have: versions, references to each other, parts, additions, tables, code."""

from datetime import timedelta
from pathlib import Path

import wandb

with wandb.init(project="peer", id="shapes") as run:
    for version in range(3):
        data = wandb.Artifact("versions", "dataset", description="words", metadata={"v": version, "bad": float("nan")})
        for name, text in {"same.txt": "same", f"dir/v{version} ü.txt": f"{version}", "empty": ""}.items():
            with data.new_file(name) as file:
                file.write(text)
        data.ttl = timedelta(days=2)
        run.log_artifact(data, aliases=["best", f"n{version}"], tags=["t1", "t2"])
    again = wandb.Artifact("versions", "dataset")
    for name, text in {"same.txt": "same", "dir/v1 ü.txt": "1", "empty": ""}.items():
        with again.new_file(name) as file:
            file.write(text)
    run.log_artifact(again, aliases=["seen"])
    mixed = wandb.Artifact("mixed", "model")
    mixed.add_reference("https://example.com/x.bin", name="remote", checksum=False)
    Path("local.txt").write_text("local")
    mixed.add_reference(f"file://{Path('local.txt').absolute()}", name="local")
    run.log_artifact(mixed)
    addition = wandb.Artifact("addition", "dataset", incremental=True)
    with addition.new_file("x.txt") as file:
        file.write("x")
    run.log_artifact(addition)
    parts = [wandb.Artifact("parts", "dataset") for _ in range(3)]
    for number, part in enumerate(parts):
        with part.new_file(f"{number}.txt") as file:
            file.write(f"part {number}")
        (run.finish_artifact if number == 2 else run.upsert_artifact)(part, distributed_id="group")
    run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, wandb.Html("<b>b</b>", inject=False)]])})
    run.log({"table": wandb.Table(columns=["a", "b"], data=[[2, wandb.Html("<b>c</b>", inject=False)]])})
    run.log_code(".", name="code", include_fn=lambda path: path.endswith(".txt"))
    run.log({"loss": 1})
