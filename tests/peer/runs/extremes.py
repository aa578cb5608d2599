"""Numbers at the edges of what JSON, doubles and 64 bits hold."""

import math
import sys
from decimal import Decimal
from fractions import Fraction

import wandb

with wandb.init(project="peer", id="extremes", config={"big": 2**100, "nan": math.nan, "list": [1e400, -1]}) as run:
    run.log({"max": sys.float_info.max, "min": sys.float_info.min, "epsilon": sys.float_info.epsilon, "deep": 5e-324})
    run.log({"int64": 2**63 - 1, "below": -(2**63), "exact": 2**53 + 1, "true": True, "false": False})
    run.log({"beyond": 2**63, "far": -(2**70), "googol": 10**100})
    run.log({"nan": math.nan, "inf": math.inf, "minus": -math.inf, "zero": -0.0, "none": None})
    run.log({"deep": [math.nan, {"x": [math.inf, {"y": -math.inf}]}], "tuple": (1, 2.5, "x")})
    run.log({"e5": 1e5, "e6": 1e6, "e15": 1e15, "e16": 1e16, "e21": 1e21, "e22": 1e22, "m4": 1e-4, "m5": 1e-5})
    run.log({"decimal": Decimal("1.10"), "complex": str(1 + 2j), "fraction": float(Fraction(1, 3))})
    run.log({f"p{n}": 0.1**n for n in range(12)})
    run.summary["big"] = 2**80
    run.summary["inf"] = math.inf
