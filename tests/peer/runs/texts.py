"""Text that is odd as a value or as a name."""

import wandb

ODD = {"blank": "", "nul": "a\0b", "quotes": "\"'`", "control": "\x01\x1f\x7f\x9f", "lines": "a\r\nb\u2028c\u0085d"}
with wandb.init(project="peer", id="texts", name="n\u00e4me \U0001f600", notes="two\nlines", tags=["t\u00e4g"]) as run:
    run.log(ODD)
    run.log({"surrogate": "a\ud800b", "pair": "\ud83d\ude00", "bom": "\ufeffx", "last": "\U0010ffff"})
    run.log({"long": "0123456789" * 20_000})
    run.log(
        {" spaced ": 1, "sl/a/sh": 2, "do.t.s": 3, "back\\slash": 4, "\u00fcn\u00efcode": 5, "UPPER": 6, "upper": 7}
    )
    run.log({"a b\tc": 1, "100%": 2, "[0]": 3, "{x}": 4, "$ref": 5, "#": 6, "k" * 300: 7, "__dunder__": 8})
    run.log({"a": {"b.c": 1, "d/e": {"": 2}}, "a.b": 3})
    run.log({"_step": 99, "_runtime": 99, "own": 1})
    run.log({"_hidden": 1})
    run.config.update({"sur": "a\ud800b", "do.t": 1, "sl/ash": 2, "": 3, **ODD})
    run.summary["do.t"] = 1
    run.summary["odd \u00fc"] = "a\0b"
