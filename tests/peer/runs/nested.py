"""Nested rows: merged by parts, overwritten by scalars, deep and wide."""

import wandb

with wandb.init(project="peer", id="nested") as run:
    run.log({"a": {"b": {"c": {"d": {"e": 1}}}}, "x": {"y": 1, "z": "two"}})
    run.log({"a": {"b": {"c": 2}}}, commit=False)
    run.log({"a": {"b": {"other": 3}}, "x": {"y": 5}}, commit=False)
    run.log({"a": {"f": 4}})
    run.log({"x": 7})
    run.log({"x": {"y": 8}})
    run.log({"train": {f"layer{i}": {"mean": i, "std": i / 2} for i in range(20)}})
    run.log({"train": {"layer0": {"mean": -1}}, "list": [{"a": {"b": 1}}]})
    run.define_metric("train.layer0.mean", summary="min,max")
    run.log({"train": {"layer0": {"mean": 3}}})
    run.log({"train": {"layer0": {"mean": 1}}})
