"""Config values that are odd, large or deep."""

import math

import wandb

config = {
    "none": None,
    "nan": math.nan,
    "inf": [math.inf, -math.inf],
    "tuple": (1, (2, 3)),
    "deep": {"a": {"b": {"c": [1, {"d": 2}]}}},
    "many": {str(i): i for i in range(300)},
    "long": "x" * 100_000,
    "empty": {},
    "list": [],
    "ints": {1: "one", 2: "two"},
    "text": '\u00fc "quoted" \\ / <&>',
}
run = wandb.init(project="peer", id="edges", config=config)
run.config.update({"layers": [{"size": i} for i in range(5)], "flag": True, "zero": 0.0, "int": 10**15})
run.config.update({"deep": {"a": {"b": {"z": 1}}}}, allow_val_change=True)
run.log({"loss": 1})
run.finish()
