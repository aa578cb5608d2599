"""Values of every kind, nested keys, explicit steps, and rows built by several calls."""

import math

import wandb

with wandb.init(project="peer", id="scalars", name="all values", config={"lr": 0.001}) as run:
    run.log({"loss": 0.5, "acc": 1, "nested": {"a": 1, "b": {"c": 2.5, "d": "deep"}}, "dot.key": 1, "slash/key": 2})
    run.log({"nan": math.nan, "inf": math.inf, "minus": -math.inf, "inside": [1, math.nan, {"x": math.inf}]})
    run.log({"big": 2**70, "int64": 2**63 - 1, "uint64": 2**64 - 1, "exact": 2**53 + 1, "negative": -(2**63)})
    run.log(
        {"whole": 3.0, "million": 1e6, "tiny": 5e-324, "huge": 1.7976931348623157e308, "zero": -0.0, "third": 1 / 3}
    )
    run.log(
        {
            "text": 'h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n',
            "none": None,
            "yes": True,
            "list": [1, "a", None],
            "empty": [],
        }
    )
    run.log({"loss": 0.25}, commit=False)
    run.log({"acc": 2, "nested": {"b": {"c": 3.5}}})
    run.log({})
    run.log({"loss": 0.125}, step=10)
    run.log({"acc": 3}, step=10)
    run.log({"loss": 0.0625}, step=12)
    run.log({"loss": 99}, step=3)  # a step back: the peer warns and drops it
