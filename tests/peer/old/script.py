"""What old versions of `wandb` are run with: `script.py KIND`. It asks for nothing that a version of 2021 lacks, unless it looks first."""

# ruff: noqa: T201 - what it prints is what it is for

import contextlib
import math
import os
import signal
import sys
import time
from pathlib import Path

import wandb

if os.environ.get("WITH_CORE"):
    wandb.require("core")

KIND = sys.argv[1]


def begin(**more):
    return wandb.init(project="old", id=KIND, **more)


def everything():
    """Each thing that a run may say, once or twice."""
    run = begin(
        name="first",
        notes="n1",
        tags=["b", "a"],
        group="g",
        job_type="train",
        config={
            "lr": 0.1,
            "model": {"depth": 2, "width": 64, "act": {"name": "relu"}},
            "layers": [1, 2],
            "none": None,
            "inf": math.inf,
            "nan": math.nan,
            "big": 2**53 + 1,
            "a.b": "dot",
            "s/l": True,
            "blank ": "behind",
            "text": 'h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n',
            "empty": {},
        },
    )
    define(run)
    run.config.added = 5
    run.config.update({"model": {"depth": 3}, "fresh": {"a": {"b": 1}}}, allow_val_change=True)
    scalars(run)
    media(run)
    console()
    run.name = "renamed"
    run.tags = ("b", "a", "c")
    run.notes = "n2"
    summary(run)
    run.config.update({"lr": 0.2}, allow_val_change=True)
    run.alert("title", "text", level=wandb.AlertLevel.WARN, wait_duration=60)
    if hasattr(run, "mark_preempting"):
        run.mark_preempting()
    run.log({"loss": 0.03125})
    finish(run)


def define(run):
    if not hasattr(run, "define_metric"):
        return
    run.define_metric("epoch")
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("acc", step_metric="epoch", summary="min,max,mean")
    run.define_metric("hid", hidden=True)
    run.define_metric("low", summary="min")
    run.define_metric("tree.val", summary="max")
    run.define_metric("word", summary="max")
    run.define_metric("nan_min", summary="min")
    run.define_metric("last", summary="last")
    run.define_metric("silent", summary="none")
    with contextlib.suppress(TypeError):  # 0.31 has no goals
        run.define_metric("best", summary="best", goal="maximize")


def scalars(run):
    run.log({"loss": 0.5, "acc": 1, "nested": {"a": 1, "b": {"c": 2.5, "d": "deep"}}, "dot.key": 1, "slash/key": 2})
    run.log({"nan": math.nan, "inf": math.inf, "minus": -math.inf, "trail ": 1, "in list": [1, 2.5, "x", None, True]})
    run.log({"int64": 2**63 - 1, "exact": 2**53 + 1, "negative": -(2**40), "zero": -0.0, "tiny": 5e-324, "whole": 3.0})
    run.log({"text": 'h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n', "none": None, "yes": True, "empty": [], "void": {}})
    run.log({"fleeting": 1})
    run.log({"changes": 1})
    run.log({"changes": 1.5})
    run.log({"changes": "text"})
    run.log({"changes": None})
    run.log({"loss": 0.25}, commit=False)
    run.log({"acc": 2, "nested": {"b": {"c": 3.5}}})
    run.log({})
    run.log({"loss": 0.125}, step=20)
    run.log({"acc": 3}, step=20)
    run.log({"loss": 0.0625}, step=22)
    run.log({"loss": 99}, step=3)  # a step back is dropped
    for i in range(4):
        run.log(
            {
                "epoch": i,
                "acc": (4, 1, 3, 2)[i],
                "hid": i,
                "low": (3.5, 1.5, 2.5, 2.0)[i],
                "best": (1, 4, 2, 3)[i],
                "tree": {"val": (2, 5, 1, 0)[i], "other": i},
                "val/acc": i / 3,
                "word": ("b", 2, "a", 1)[i],
                "nan_min": (2.0, math.nan, 1.0, 3.0)[i],
                "last": 10 - i,
                "silent": i,
            }
        )


def media(run):
    run.log({"hist": wandb.Histogram(np_histogram=([1, 2, 3], [0.0, 1.0, 2.0, 3.0]))})
    run.log({"page": wandb.Html("<b>bold</b>", inject=False)})
    run.log(
        {
            "deep": {
                "hist": wandb.Histogram(np_histogram=([4, 5], [0.0, 0.5, 1.0])),
                "page": wandb.Html("<i>i</i>", inject=False),
            }
        }
    )
    try:
        from PIL import Image
    except ImportError:
        return
    Image.new("RGB", (4, 3), (255, 0, 0)).save("dot.png")
    run.log({"image": wandb.Image("dot.png", caption="red")})
    run.log({"images": [wandb.Image("dot.png"), wandb.Image("dot.png", caption="two")]})


def console():
    print("hello stdout")
    print("hello stderr", file=sys.stderr)
    for percent in (10, 50, 100):
        sys.stdout.write(f"\rprogress {percent}%")
    sys.stdout.write("\n")
    sys.stdout.write("long line\rshort\n")
    print("two\nlines")
    print("\x1b[31mred\x1b[0m")
    print()


def summary(run):
    run.summary["score"] = 0.9
    run.summary["nest"] = {"a": 1, "b": {"c": 2}}
    run.summary["nest"]["a"] = 7
    run.summary["gone"] = 1
    del run.summary["gone"]
    del run.summary["fleeting"]
    run.summary["text"] = "done"
    run.summary["nothing"] = None
    run.summary["list"] = [1, {"x": 2}]
    run.summary["loss"] = 0.01
    run.summary.update({"more": {"deep": {"er": 1}}, "dot.two": 2})


def finish(run):
    wandb.finish(exit_code=0)


def long():
    """Many rows, over block edges, and single records larger than a block."""
    run = begin(config={"pad": "c" * 3_000})
    for i in range(400):
        run.log({"loss": 1 / (i + 1), "i": i, f"group/{i % 7}": i * 0.5, "t": "x" * (i * 3 % 250)})
    run.log({"large": "y" * 70_000})
    run.log({f"wide{i}": i for i in range(300)})
    run.log({"loss": 2.0, "large": "small"})
    finish(run)


def files():
    """A table, a saved file and an artifact: online, they would wait for a server that knows artifacts."""
    run = begin()
    run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])})
    Path("saved.txt").write_text("saved\n")
    run.save("saved.txt", policy="now")
    artifact = wandb.Artifact("weights", "model", description="d", metadata={"k": 1})
    artifact.add_file("saved.txt")
    run.log_artifact(artifact, aliases=["best"])
    finish(run)


def code():
    """Ends by `sys.exit`, without `finish`."""
    begin().log({"loss": 1})
    sys.exit(3)


def raised():
    """Ends by an uncaught exception."""
    begin().log({"loss": 1})
    raise ValueError("boom")


def killed():
    """Kills its own process behind 400 rows."""
    run = begin(config={"lr": 0.1})
    for i in range(400):
        run.log({"loss": 1 / (i + 1), "i": i})
    time.sleep(1.0)  # for the process that writes
    os.kill(os.getpid(), signal.SIGKILL)


globals()[KIND]()
