"""Media: images, tables, sounds and the like, as files beside the log and values that name them.

Each type is a module; none is imported, and no library with it, before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..values import name_of, plain
from .base import Landing, Media, MediaContext, StagedMedia

__all__ = ["Landing", "Media", "MediaContext", "StagedMedia", "media_of"]

FIGURES = ("matplotlib", "plotly", "pandas")
"""The packages whose figures and tables `log` takes as they are."""


def media_of(value: Any) -> Media | None:
    """What `log` makes of a value that is not plain: the medium that it is or stands for, or None.

    Raises:
        Exception: whatever making it raises.
    """
    if isinstance(value, Media):
        return value
    if isinstance(value, (list, tuple)):
        listed = [media_of(item) for item in value]
        if not any(medium is not None for medium in listed):
            return None
        from .sequence import MediaList

        return MediaList(_filled(listed, value))
    if isinstance(value, Mapping):
        named = {name_of(name): media_of(item) for name, item in value.items()}
        if not any(medium is not None for medium in named.values()):
            return None
        from .sequence import MediaDict

        return MediaDict(dict(zip(named, _filled(named.values(), value.values()), strict=True)))
    from .libraries import is_data_frame, is_matplotlib, is_plotly, type_name

    if type_name(value).partition(".")[0] not in FIGURES:
        return None

    if is_data_frame(value):
        from .table import Table

        return Table(dataframe=value)
    if is_matplotlib(value) or is_plotly(value):
        from .plotly import Plotly

        return Plotly.make_plot_media(value)
    return None


def _filled(media: Iterable[Media | None], values: Iterable[Any]) -> list[Media]:
    """The media, and the plain values among them."""
    from .sequence import Value

    pairs = zip(media, values, strict=True)
    return [Value(plain(value)) if medium is None else medium for medium, value in pairs]
