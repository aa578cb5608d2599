"""Numbers out of the kernel's text files. What is no number is None and costs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Context

_LONGEST = 20  # digits of the largest number that a kernel writes, 2 ** 64 - 1


def whole(text: str) -> int | None:
    """The decimal integer, with or without sign and blanks around it; None for anything else ("max", "", "N/A")."""
    text = text.strip()
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST else None


def read_whole(ctx: Context, path: str) -> int | None:
    """The integer in a one-line file, None if there is none."""
    text = ctx.read(path)
    return None if text is None else whole(text)


def wholes(fields: list[str]) -> list[int] | None:
    """All `fields` as integers, None if one of them is none."""
    numbers = [number for field in fields if (number := whole(field)) is not None]
    return numbers if len(numbers) == len(fields) else None


def read_table(text: str | None, separator: str = " ", names: tuple[str, ...] = ()) -> dict[str, int]:
    """Lines of `name number ...` (memory.stat, vmstat, memory.events ...): the first number by name.

    With `names` only of lines that begin with one of them: most files hold far more than is asked for.
    """
    table = {}
    for line in (text or "").splitlines():
        if names and not line.startswith(names):
            continue
        name, _, rest = line.partition(separator)
        number = whole((rest.split(maxsplit=1) or ("",))[0])
        if number is not None:
            table[name.strip()] = number
    return table


def read_pair(text: str | None, group: str, name: str) -> int | None:
    """One number of /proc/net/snmp or netstat: a line of names, then one of numbers, both beginning with `group:`."""
    lines = [line.split() for line in (text or "").splitlines() if line.startswith(f"{group}:")]
    pairs = dict(zip(lines[0], lines[1], strict=False)) if len(lines) > 1 else {}
    return whole(pairs.get(name, ""))
