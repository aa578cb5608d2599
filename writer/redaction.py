"""Secrets out of a config before it is written. The rules are the sampler's; here is when they are needed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

# The rules cost some milliseconds to load. They hide values by the name beside them, or by what the value is: then it
# is long, or an assignment, a header or a URL.
_NAME_SIGN = re.compile(r"key|token|secret|pass|pwd|cred|auth|jwt|bearer|cookie|connection", re.IGNORECASE)
_VALUE_SIGN = re.compile(r"[=@:]|\s")
_NUMBERS = frozenset({int, float, bool})
_SHORT = 12  # characters; as short as what of the environment is hidden


class Redaction:
    """Hides the secrets of one run's config, and counts them."""

    def __init__(self, parts: Collection[str], environ: Mapping[str, str] | None = None) -> None:
        """Nothing is hidden yet.

        Args:
            parts: what is redacted at all; a config is if "config" is among them.
            environ: credentials that it holds by name are hidden in the config too; the process's own unless given.
        """
        self._on = "config" in parts
        self._environ = os.environ if environ is None else environ
        self._known: tuple[str, ...] | None = None
        self._counts: dict[tuple[str, ...], int] = {}
        self._told = 0

    @property
    def removed(self) -> int:
        """Values of the config that are hidden; one that was written several times counts once."""
        return sum(list(self._counts.values()))

    def config(self, path: tuple[str, ...], value: Any) -> Any:
        """The plain value that stands at `path` without its secrets; `value` itself if there are none."""
        if not self._on:
            return value
        below = any(map(_holds_secrets, path[:-1]))
        shown, count = self._value(path[-1], value, secret=below)
        if count or path in self._counts:
            self._counts[path] = count
        return shown if count else value

    def news(self) -> str:
        """What to tell the user since the last call, as a line; empty if there is nothing."""
        further, self._told = self.removed - self._told, max(self.removed, self._told)
        if further <= 0:
            return ""
        values = "1 value" if further == 1 else f"{further} values"
        verb = ("looks like a secret and is" if further == 1 else "look like secrets and are") + " hidden in the log"
        return f"{values} of the config {verb} (with the setting redact=-config they stand as given)"

    def _value(self, name: str, value: Any, *, secret: bool) -> tuple[Any, int]:
        """`value` without its secrets, and their number. `secret`: a name above says that all of it is."""
        if isinstance(value, dict):
            secret = secret or _holds_secrets(name)
            named = value.get("name")  # `{"name": "API_KEY", "value": ...}`
            if not isinstance(named, str):
                named = "value"
            pairs = [
                (key, *self._value(named if key == "value" else key, item, secret=secret))
                for key, item in value.items()
            ]
            return {key: item for key, item, _ in pairs}, sum(count for _, _, count in pairs)
        if isinstance(value, list):
            if not secret and not _NAME_SIGN.search(name) and _NUMBERS.issuperset(map(type, value)):
                return value, 0  # a million of them are looked at in no time
            if not secret and all(type(item) is str for item in value) and any(map(_NAME_SIGN.search, value)):
                return self._arguments(name, value)
            items = [self._value(name, item, secret=secret) for item in value]
            return [item for item, _ in items], sum(count for _, count in items)
        if value is None or value is True or value is False:
            return value, 0
        if not isinstance(value, str):
            return (
                self._text(name, str(value), value, secret=secret) if _NAME_SIGN.search(name) or secret else (value, 0)
            )
        if len(value) < _SHORT and not (secret or _NAME_SIGN.search(name) or _VALUE_SIGN.search(value)):
            return value, 0
        return self._text(name, value, value, secret=secret)

    def _text(self, name: str, text: str, value: Any, *, secret: bool) -> tuple[Any, int]:
        from ..sampler.redact import MARK, is_secret_name, is_secret_value, redact_text

        if (secret and is_secret_value("secret", text)) or (is_secret_name(name) and is_secret_value(name, text)):
            return MARK, 1
        if value is not text:
            return value, 0
        return redact_text(text, before=name, known=self._secrets())

    def _arguments(self, name: str, value: list[str]) -> tuple[list[str], int]:
        """A list of texts, which may be a command line."""
        from ..sampler.redact import is_secret_name, redact_argv

        if is_secret_name(name):
            items = [self._text(name, item, item, secret=False) for item in value]
            return [item for item, _ in items], sum(count for _, count in items)
        return redact_argv(value, self._secrets(), before=name)

    def _secrets(self) -> tuple[str, ...]:
        if self._known is None:
            from ..sampler.redact import known_secrets

            self._known = known_secrets(self._environ)
        return self._known


def _holds_secrets(name: str) -> bool:
    if not _NAME_SIGN.search(name):
        return False
    from ..sampler.redact import holds_secrets

    return holds_secrets(name)
