"""Media: images, tables, sounds and the like, as files beside the log and values that name them."""

from __future__ import annotations

from typing import Any

from .base import Landing, Media, MediaContext, StagedMedia

__all__ = ["Landing", "Media", "MediaContext", "StagedMedia", "media_of"]


def media_of(value: Any) -> Media | None:
    """What `log` makes of a value that is not plain: the medium that it is or stands for, or None."""
    return value if isinstance(value, Media) else None
