"""Rows whose values stand twice: as JSON text and in a typed field, which newer readers prefer."""

import math

import wandb

settings = wandb.Settings(x_history_value_encoding="json,typed")
with wandb.init(project="peer", id="typed", settings=settings) as run:
    run.log({"float": 0.1, "int": -(2**63), "big": 2**70, "true": True, "none": None, "text": "h\u00e9\n"})
    run.log({"nan": math.nan, "inf": -math.inf, "list": [1, math.nan], "nested": {"a": {"b": 1.5}}, "zero": -0.0})
