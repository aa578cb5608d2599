"""Media: images, tables, sounds and the like, as files beside the log and values that name them.

Each type is a module; none is imported, and no library with it, before it is used.
"""

from __future__ import annotations

from typing import Any

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
        media = [media_of(item) for item in value]
        found = [medium for medium in media if medium is not None]
        if not found or len(found) < len(media):
            return None
        from .sequence import MediaList

        return MediaList(found)
    package = type(value).__module__.partition(".")[0]
    if package not in FIGURES:
        return None
    from .libraries import is_data_frame, is_matplotlib, is_plotly

    if is_data_frame(value):
        from .table import Table

        return Table(dataframe=value)
    if is_matplotlib(value) or is_plotly(value):
        from .plotly import Plotly

        return Plotly.make_plot_media(value)
    return None
