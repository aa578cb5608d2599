"""Arrays, tensors and their scalars, of any library.

None is imported: their objects are known by what they can do (`item`, `tolist`, `numpy`), and numpy counts a histogram
only where it is loaded anyway. Reading a tensor on an accelerator waits for the device, as it always does.
"""

from __future__ import annotations

import sys
from typing import Any

MAX_LISTED = 32
"""Elements. An array with more is logged as a histogram, as the peer does."""
HISTOGRAM_BINS = 32
_NO_NUMBERS = {"c": "complex numbers", "M": "dates", "m": "durations", "S": "bytes", "U": "text"}
"""Kinds of numpy's types that cannot be counted into bins. Text of digits could be, and is text all the same."""


class NoFormError(ValueError):
    """The array has too many elements for a list, and no histogram."""


def is_array(kind: type) -> bool:
    """Whether values of the type are arrays, tensors, or scalars of such a library."""
    return any(callable(getattr(kind, name, None)) for name in ("item", "tolist", "numpy"))


def is_scalar(kind: type) -> bool:
    """Whether values of the type are numpy's scalars, which always have one element."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, getattr(numpy, "generic", ()))


def count(value: Any) -> int:
    """The number of elements."""
    numel = getattr(value, "numel", None)  # torch: there, `size` is a method that gives the shape
    if callable(numel):
        return int(numel())
    size = getattr(value, "size", None)
    return size if isinstance(size, int) else len(value)


def elements(value: Any) -> Any:
    """One element as it is, up to 32 as a list (nested as the array is), more as a histogram; masked ones are None.

    What comes may still be of Python types that JSON lacks: dates, bytes, complex numbers.

    Raises:
        NoFormError: more than 32 elements that are no real numbers.
        Exception: whatever the array's own methods raise.
    """
    if not callable(getattr(value, "item", None)) and not callable(getattr(value, "tolist", None)):
        value = value.numpy()  # tensorflow
    number = count(value)
    if number > MAX_LISTED:
        return histogram(value)
    if number != 1:
        return value.tolist()
    if _masked(value):
        values = value.compressed()
        return values[0].item() if len(values) else None
    if not callable(getattr(value, "item", None)):
        return value.tolist()
    only = value.item()
    if not isinstance(only, type(value)):
        return only
    # Some scalars give themselves: extended precision, 16-bit types.
    return complex(only) if _kind(only) == "c" else float(only)


def histogram(value: Any) -> dict[str, Any]:
    """The peer's shape of a histogram: counts per bin, and one more edge than bins.

    NaN, infinities and masked elements are left out.
    """
    numpy = sys.modules.get("numpy")
    kind = _NO_NUMBERS.get(_kind(value))
    if numpy is None or kind is not None:
        why = f"of {kind} have no histogram" if kind else "have a histogram only where numpy is loaded"
        raise NoFormError(f"{count(value)} elements are too many for a list (at most {MAX_LISTED}), and arrays {why}")
    if _masked(value):
        value = value.compressed()
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu().float()
    try:
        array = numpy.asarray(value)
    except TypeError:  # cupy: never leaves its device unasked
        array = numpy.asarray(value.tolist())
    flat = array.astype(float).ravel()
    counts, edges = numpy.histogram(flat[numpy.isfinite(flat)], bins=HISTOGRAM_BINS)
    return {"_type": "histogram", "values": counts.tolist(), "bins": edges.tolist()}


def _kind(value: Any) -> str:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind if isinstance(kind, str) else ""


def _masked(value: Any) -> bool:
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(value, ma.MaskedArray)
