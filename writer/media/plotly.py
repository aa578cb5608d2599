"""Figures of plotly."""

from __future__ import annotations

import math
from typing import Any

from ..encoding import to_json
from .content import Content, FileMedia
from .image import Image
from .libraries import is_matplotlib, is_plotly, listed


class Plotly(FileMedia):
    """A figure that its viewer draws."""

    KIND, FOLDER, TYPED = "plotly-file", "media/plotly", False

    def __init__(self, val: Any) -> None:
        """The figure is encoded now.

        Args:
            val: a figure of plotly.

        Raises:
            TypeError: it is none. One of matplotlib is an `Image`.
        """
        if not is_plotly(val):
            raise TypeError(f"Plotly takes a figure of plotly, not {type(val).__name__}; Image one of matplotlib")
        super().__init__(Content(to_json(_finite(listed(val.to_plotly_json()))), ".plotly.json"))

    @classmethod
    def make_plot_media(cls, val: Any) -> Image | Plotly:
        """A figure of matplotlib as an image, one of plotly as it is."""
        return Image(val) if is_matplotlib(val) else cls(val)


def _finite(value: Any) -> Any:
    """A gap is null: a browser reads no figure that has NaN in it."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
