"""Several media under one key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..runfiles import RunFiles
from .base import Landing, Media, MediaContext, StagedMedia


class Together(Media):
    """A type whose lists have a form of their own: one value that names them all."""

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """What stands under the key of a list of these media.

        Args:
            media: at least one, all of this type.
            values: what each of them would have in the row.
        """
        raise NotImplementedError


class MediaList(Media):
    """A list of media: of one type that has a form for it, or a JSON list of what each is."""

    def __init__(self, media: Sequence[Media]) -> None:
        self._media = tuple(media)

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        first = type(self._media[0])
        alike = all(isinstance(medium, first) for medium in self._media)
        if not alike:
            context.warn(
                "mixed media",
                "a list holds media of several types: the values are logged as a list, which few viewers draw",
            )
        staged: list[StagedMedia] = []
        try:
            staged.extend(medium.stage(files, context) for medium in self._media)
        except BaseException:
            for medium in staged:
                medium.drop()
            raise
        return _StagedList(self._media, staged, first if alike and issubclass(first, Together) else None)


class _StagedList:
    def __init__(self, media: Sequence[Media], staged: list[StagedMedia], form: type[Together] | None) -> None:
        self._media, self._staged, self._form = media, staged, form

    def land(self, key: str, step: str) -> Landing:
        landings = [staged.land(key, step) for staged in self._staged]
        values: list[Any] = [landing.value for landing in landings]
        return Landing(
            self._form.together(self._media, values) if self._form else values,
            tuple(path for landing in landings for path in landing.paths),
            tuple(record for landing in landings for record in landing.records),
            tuple(feature for landing in landings for feature in landing.features),
        )

    def drop(self) -> None:
        for staged in self._staged:
            with suppress(Exception):  # one that cannot be dropped keeps no other
                staged.drop()


def captions_of(media: Sequence[Any]) -> list[str | None] | None:
    """The captions in order, or None where there is not one."""
    captions = [medium.caption for medium in media]
    return None if all(caption is None for caption in captions) else captions
