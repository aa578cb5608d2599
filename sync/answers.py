"""What is believed of the server's answers: values of any type may stand in them, and what a run holds decides where rows go."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from .errors import Refused

_MOST_LINES = 10**15  # of a stream; a larger number is no count, and one of thousands of digits fits nowhere
_LONGEST_SHOWN = 40  # characters


@dataclass(frozen=True)
class ResumeStatus:
    """What the server holds of a run: lines per stream, and the last rows of its history (JSON texts)."""

    history_lines: int
    events_lines: int
    console_lines: int
    history_tail: tuple[str, ...] = ()
    events_tail: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """Each key wrapped as `{"value": ..}`."""
    tags: tuple[str, ...] = ()
    notes: str = ""
    writers: tuple[frozenset[str], ...] = ()
    """Whose lines these are: of each environment in its config the id of the writer and its start time."""


def read_status(bucket: Any, run_id: str) -> ResumeStatus:
    """What an answer says of a run that is there.

    Raises:
        Refused: a part of it is nothing that it could be.
    """

    def told(name: str, understand: Callable[[Any], Any]) -> Any:
        value = bucket.get(name) if isinstance(bucket, dict) else None
        found = understand(value)
        if found is None:
            shown = "null" if value is None else repr(value)[:_LONGEST_SHOWN]
            raise Refused(
                f"the server does not say what it holds of run {run_id} ({name} is {shown}), so nothing was sent"
            )
        return found

    history, tail = told("historyLineCount", count_of), told("historyTail", _tail)
    if tail and not history:
        raise Refused(f"the server shows a row of run {run_id} and counts none: it counts late", try_again=True)
    config = told("config", _document)
    return ResumeStatus(
        history_lines=history,
        events_lines=told("eventsLineCount", count_of),
        console_lines=told("logLineCount", count_of),
        history_tail=tail,
        events_tail=told("eventsTail", _tail),
        summary=told("summaryMetrics", _document),
        config=config,
        tags=told("tags", lambda tags: _all_texts([] if tags is None else tags)),
        notes=told("notes", lambda notes: "" if notes is None else notes if isinstance(notes, str) else None),
        writers=writers_in(config),
    )


def _document(text: Any) -> dict[str, Any] | None:
    """The object of a JSON text, empty where there is none; None for what is no object."""
    found = {} if text in (None, "", "null") else json_or_none(text)
    return found if isinstance(found, dict) else None


def _tail(text: Any) -> tuple[str, ...] | None:
    """The last lines of a stream; None for what are none."""
    return () if text in (None, "", "null") else _all_texts(json_or_none(text))


def _all_texts(value: Any) -> tuple[str, ...] | None:
    is_such = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return tuple(value) if is_such else None


def is_name(value: Any) -> TypeGuard[str]:
    """Whether a value is a text that an address can hold."""
    try:
        return isinstance(value, str) and value.encode() != b"" and "\0" not in value
    except UnicodeEncodeError:
        return False


def dig(value: Any, *path: str) -> Any:
    """What lies at a path of keys in nested objects; None where it leads nowhere."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def json_or_none(text: Any) -> Any:
    """The value of a JSON text, with the NaN and Infinity that rows may hold; None for anything else."""
    if isinstance(text, (dict, list)):
        return text
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def writers_in(config: Any) -> tuple[frozenset[str], ...]:
    """What identifies each client that wrote a run, from its config."""
    environments = dig(config, "_wandb", "value", "e")
    return tuple(
        frozenset(
            [
                key,
                *(
                    text
                    for name in ("writerId", "startedAt")
                    if isinstance(text := dig(environment, name), str) and text
                ),
            ]
        )
        for key, environment in (environments.items() if isinstance(environments, dict) else ())
    )


def count_of(value: Any) -> int | None:
    """A number of lines; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_LINES else None
