"""The libraries that some media need; none of them is imported before it is used."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..values import plain


class MissingLibraryError(ImportError):
    """A library that is not installed; says which, for what, and how to get it."""


def library(module: str, purpose: str) -> Any:
    """The module of that name.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        name = "pillow" if name == "PIL" else name
        raise MissingLibraryError(f"{purpose} needs {name}: pip install {name}") from error


def optional(module: str) -> Any:
    """The module of that name, or None."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def type_name(value: Any) -> str:
    """Module and name of a value's type, of a module its own name: what tells whose it is without importing that."""
    if isinstance(value, ModuleType):
        return value.__name__
    kind = type(value)
    return f"{kind.__module__}.{kind.__name__}"


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of PyTorch."""
    return type(value).__module__.partition(".")[0] == "torch" and callable(getattr(value, "detach", None))


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy."""
    return any(kind.__module__ == "numpy" and kind.__name__ == "ndarray" for kind in type(value).__mro__)


def is_matplotlib(value: Any) -> bool:
    """Whether it is a figure of matplotlib, a part of one, or `pyplot` itself."""
    return type_name(value).startswith("matplotlib.")


def is_plotly(value: Any) -> bool:
    """Whether it is a figure of plotly."""
    name = type_name(value)
    return name.startswith("plotly.") and name.endswith((".Figure", ".FigureWidget"))


def is_missing(value: Any) -> bool:
    """Whether it is what pandas has where a value is missing."""
    return type(value).__module__.startswith("pandas.") and type(value).__name__ in {"NaTType", "NAType"}


def is_data_frame(value: Any) -> bool:
    """Whether it is a table of pandas."""
    name = type_name(value)
    return name.startswith("pandas.") and name.endswith(".DataFrame")


def to_array(value: Any, purpose: str) -> Any:
    """An array, tensor or sequence as an array of numpy; a tensor on an accelerator is waited for.

    Masked elements are NaN, or 0 in an array without one.

    Raises:
        MissingLibraryError: numpy is not installed.
    """
    if is_array(value):
        filled = getattr(value, "filled", None)
        return filled(math.nan if value.dtype.kind == "f" else 0) if callable(filled) else value
    numpy = library("numpy", purpose)
    if is_torch(value):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # numpy has no such type
            value = value.float()
    if callable(getattr(value, "numpy", None)):
        value = value.numpy()
    return numpy.asarray(value)


def listed(value: Any) -> Any:
    """Plain lists and dicts, whatever arrays and tensors are in them and however long; dates as text.

    Raises:
        UnloggableError: something in it has no such form.
    """
    if isinstance(value, Mapping):
        return {str(key): listed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [listed(item) for item in value]
    if is_dated(value):
        return listed(dates(value))
    return listed(value.tolist()) if callable(getattr(value, "tolist", None)) else plain(value)


def is_dated(value: Any) -> bool:
    """Whether it is a date of numpy, or an array of them."""
    return getattr(getattr(value, "dtype", None), "kind", "") == "M"


def dates(value: Any) -> Any:
    """Dates of numpy as Python's, days without a time; None where there is none."""
    fine = str(value.dtype).endswith(("[ns]", "[ps]", "[fs]", "[as]"))  # Python's know no nanoseconds
    return (value.astype("datetime64[us]") if fine else value).tolist()


def figure_of(value: Any) -> Any:
    """The figure of `pyplot`, of a part of a figure, or the figure itself.

    Raises:
        TypeError: there is none.
    """
    if callable(getattr(value, "gcf", None)):
        value = value.gcf()
    if not callable(getattr(value, "savefig", None)):
        value = getattr(value, "figure", None)
    if not callable(getattr(value, "savefig", None)):
        raise TypeError("of matplotlib, figures and their parts can be logged")
    return value
