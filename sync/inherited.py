"""What earlier logs of a run left at the server, where they are not here to be read: a later log must not wipe it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .answers import ResumeStatus
from .api import RunFields
from .jsontext import compact

_VIEWS = ("viz", "visualize", "mask/class_labels")
"""Keys below `_wandb` that later logs refer to."""


@dataclass(frozen=True)
class Inherited:
    """Config (each key wrapped as `{"value": ..}`), summary, tags and notes; what the logs here say stands before it."""

    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    notes: str = ""

    @classmethod
    def from_status(cls, status: ResumeStatus) -> Inherited:
        """All that the server said of the run."""
        return cls(status.config, status.summary, status.tags, status.notes)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Inherited:
        """What `as_json` made; of anything else as much as is understood."""
        config, summary, tags = document.get("config"), document.get("summary"), document.get("tags")
        return cls(
            config if isinstance(config, dict) else {},
            summary if isinstance(summary, dict) else {},
            tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
            str(document.get("notes") or ""),
        )

    def as_json(self) -> dict[str, Any]:
        """For the cursor; empty where there is nothing."""
        found = {
            "config": dict(self.config),
            "summary": dict(self.summary),
            "tags": list(self.tags),
            "notes": self.notes,
        }
        return {key: value for key, value in found.items() if value}

    def config_under(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The config with what only earlier logs had; of their `_wandb` entry the writers and what views need."""
        if not self.config:
            return dict(own)
        theirs, ours = (_value(tree.get("_wandb")) for tree in (self.config, own))
        internal = {key: theirs[key] for key in _VIEWS if key in theirs} | ours
        writers = {**_dict(theirs.get("e")), **_dict(ours.get("e"))}
        if writers:
            internal["e"] = writers
        return {**self.config, **own, "_wandb": {"value": internal}}

    def summary_under(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The summary with the keys that only earlier logs had."""
        return {**self.summary, **own}

    def fields_under(self, own: RunFields, config: Mapping[str, Any]) -> RunFields:
        """The run's fields with this config, and with the tags and notes of earlier logs where the logs here have none."""
        return replace(
            own,
            config=compact(config),
            tags=(self.tags or None) if own.tags is None else own.tags,
            notes=own.notes or self.notes or None,
        )


def _value(wrapped: Any) -> dict[str, Any]:
    return _dict(wrapped.get("value")) if isinstance(wrapped, dict) else {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
