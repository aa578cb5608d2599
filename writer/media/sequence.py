"""Several media under one key: in lists, and in dicts where a dict is one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..runfiles import RunFiles
from ..values import UnloggableError
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


class Value(Media):
    """A plain value among media."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:  # noqa: ARG002 - the port's signature
        """As for any medium."""
        return Ready(self._value)


class Ready:
    """Staged media without a file."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def land(self, key: str, step: str) -> Landing:  # noqa: ARG002 - nothing to name
        """As for any staged medium."""
        return Landing(self._value)

    def drop(self) -> None:
        """Nothing lies anywhere."""


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
        staged = _stage_all(self._media, files, context)
        return _StagedList(self._media, staged, first if alike and issubclass(first, Together) else None)


class MediaDict(Media):
    """A dict with media in it, where dicts are values: in lists, and in the summary."""

    def __init__(self, media: Mapping[str, Media]) -> None:
        self._media = dict(media)

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        return _StagedDict(dict(zip(self._media, _stage_all(self._media.values(), files, context), strict=True)))


def _stage_all(media: Iterable[Media], files: RunFiles, context: MediaContext) -> list[StagedMedia]:
    """All of them, or none."""
    staged: list[StagedMedia] = []
    try:
        for medium in media:
            if medium.where(("k",)) != ("k",):
                raise UnloggableError("a chart stands in the row by itself, not in a list")
            staged.append(medium.stage(files, context))
    except BaseException:
        _drop_all(staged)
        raise
    return staged


def _drop_all(staged: Iterable[StagedMedia]) -> None:
    for medium in staged:
        with suppress(Exception):  # one that cannot be dropped keeps no other
            medium.drop()


def _gathered(value: Any, landings: Sequence[Landing]) -> Landing:
    return Landing(
        value,
        tuple(path for landing in landings for path in landing.paths),
        tuple(record for landing in landings for record in landing.records),
        tuple(feature for landing in landings for feature in landing.features),
    )


class _StagedList:
    def __init__(self, media: Sequence[Media], staged: list[StagedMedia], form: type[Together] | None) -> None:
        self._media, self._staged, self._form = media, staged, form

    def land(self, key: str, step: str) -> Landing:
        landings = [staged.land(key, step) for staged in self._staged]
        values: list[Any] = [landing.value for landing in landings]
        return _gathered(self._form.together(self._media, values) if self._form else values, landings)

    def drop(self) -> None:
        _drop_all(self._staged)


class _StagedDict:
    def __init__(self, staged: Mapping[str, StagedMedia]) -> None:
        self._staged = staged

    def land(self, key: str, step: str) -> Landing:
        landings = {name: staged.land(f"{key}.{name}", step) for name, staged in self._staged.items()}
        value = {name: landing.value for name, landing in landings.items()}
        return _gathered(value, list(landings.values()))

    def drop(self) -> None:
        _drop_all(self._staged.values())


def captions_of(media: Sequence[Any]) -> list[str | None] | None:
    """The captions in order, or None where there is not one."""
    captions = [medium.caption for medium in media]
    return None if all(caption is None for caption in captions) else captions
