"""Ranges of steps on the command line."""

from __future__ import annotations

from typing import Any

import click


class StepRange(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in some versions of click
    """Steps as a slice has them: 100:200 without 200, 100: to the end, :200 from the beginning, 100 that one."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The first step and the one behind the last; None where it is open."""
        if isinstance(value, tuple):
            return value
        first, colon, end = str(value).partition(":")
        try:
            low, high = (int(part) if part.strip() else None for part in (first, end))
        except ValueError:
            self.fail(f"{value!r} is no range of steps, such as 100:200, 100: or :200", param, ctx)
        if min(low or 0, high or 0) < 0:
            self.fail("steps are not counted from the end, and none is negative", param, ctx)
        if low is not None and high is not None and high <= low:
            self.fail(
                f"no step lies in {value!r}: the first number is the first step, the second one the end", param, ctx
            )
        if colon:
            return low, high
        if low is None:
            self.fail("a range of steps is empty", param, ctx)
        return low, low + 1
