"""Scalars and arrays of numpy, in rows, config and summary."""

import numpy as np
import wandb

KINDS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32]
with wandb.init(
    project="peer", id="arrays", config={"lr": np.float32(0.1), "n": np.int64(3), "v": np.arange(3)}
) as run:
    run.log({kind.__name__: kind(7) for kind in [*KINDS, np.float64, np.bool_]})
    run.log({kind.__name__: np.iinfo(kind).max for kind in KINDS[:-2]} | {"third": np.float32(1 / 3)})
    run.log({kind.__name__: kind(np.iinfo(kind).min) for kind in KINDS[:-3]} | {"half": np.float16(0.1)})
    run.log({"nan": np.float32("nan"), "inf": np.float64("inf"), "minus": np.float16("-inf"), "text": np.str_("t")})
    run.log({"zero_d": np.array(1.5), "one": np.array([2]), "matrix": np.ones((1, 1)), "flag": np.array(True)})
    run.log({"few": np.arange(5), "grid": np.arange(6).reshape(2, 3), "floats": np.linspace(0, 1, 32)})
    run.log({"nans": np.array([1.0, np.nan]), "list": [np.float32(1), np.int64(2)], "nested": {"a": np.float64(2.5)}})
    run.log({"many": np.arange(1000.0), "big": np.ones((10, 10))})
    run.summary["best"] = np.float32(0.5)
    run.summary["count"] = np.int64(4)
    run.config["later"] = np.float64(0.25)
