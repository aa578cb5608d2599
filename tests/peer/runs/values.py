"""Values of other types than JSON's."""

import datetime as dt
import enum
import math
from pathlib import PurePosixPath

import wandb


class Color(enum.Enum):
    RED = "red"
    TWO = 2


with wandb.init(project="peer", id="values") as run:
    run.log({"date": dt.date(2026, 1, 2), "time": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)})
    run.log({"enum": Color.RED, "number": Color.TWO, "bytes": b"bytes", "set": {1}, "frozen": frozenset(["x"])})
    run.log({"function": math.sin, "list": [dt.date(2026, 1, 2), Color.RED], "tuple": (1, (2, 3))})
    run.log({"empty": {}, "empty_list": [], "nested": {"empty": {}, "list": [{}]}, "a": 1})
    run.log({"dicts": [{"a": 1}, {"a": 2}], "lists": [[1, 2], [3]], "mixed": [1, "a", None, True, 1.5]})
    run.config.update({"date": dt.date(2026, 1, 2), "tuple": (1, 2), "set": {3}, "enum": Color.TWO})
    run.config["path"] = PurePosixPath("a/b")
