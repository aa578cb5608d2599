"""Reads the text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0, of which gauges and counters are samples.

A large body is passed over family by family, and what nobody wants is never split into lines: ten megabytes cost what
their wanted lines cost. Time stamps and exemplars are left unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

LONGEST_LINE = 1 << 16  # bytes; a match cannot be interrupted, and nothing that long is a sample

_TYPE = b"# TYPE "
_KINDS = frozenset([b"gauge", b"counter"])
_TOTAL = b"_total"

_NAME = rb"[a-zA-Z0-9_:\x80-\xff]+"
_QUOTED = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_LABELS = rb'\{[^"}\n]*(?:' + _QUOTED + rb'[^"}\n]*)*\}'
# Each part begins with what the part before cannot hold, so that no line makes it slow.
_SAMPLE = re.compile(
    rb"^[ \t]*(?:(?P<series>(?P<name>" + _NAME + rb")(?:[ \t]*(?P<labels>" + _LABELS + rb"))?)(?:(?<=\})[ \t]*|[ \t]+)"
    rb"|(?P<braced>" + _LABELS + rb")[ \t]*)"
    rb"(?P<value>[^\s#]\S*)(?:[ \t\r].*)?$",
    re.MULTILINE,
)
_ANYTHING = re.compile(rb"^[ \t]*[^\s#]", re.MULTILINE)
_LABEL = re.compile(
    rb'[ \t]*(?:(?P<name>[a-zA-Z0-9_.:\x80-\xff]+|"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)")[ \t]*=[ \t]*)?'
    rb'"(?P<value>[^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?P<more>,?)'
)
_ESCAPE = re.compile(r"\\([\\\"n])")
_UNESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


class Line(NamedTuple):
    """One sample. Lines of one series have the same `series` text, unless labels change their order in between."""

    series: bytes
    """Name and labels as they stand."""
    name: bytes
    labels: bytes
    """With the braces, empty without any: for `parse_labels`."""
    value: float
    """May be NaN or infinite."""


class Exposition:
    """One answer of an endpoint."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._kinds: dict[bytes, bytes] = {}  # of the names that are wanted
        self.typed = 0
        """Families seen."""
        self.malformed = 0
        """Lines that were read and are none of the format."""

    def lines(self, wanted: Callable[[bytes], bool]) -> Iterator[Line]:
        """Samples of gauges and counters, in the order of the body, for families of which a name is `wanted`.

        A counter's samples may bear the family's name (as in the older format) or `_total` behind it. Values of a
        histogram, a summary, or of no known type are no samples here.
        """
        body = self._body
        at = 0 if body.startswith(_TYPE) else body.find(b"\n" + _TYPE) + 1
        if at == 0 and not body.startswith(_TYPE):
            return
        while at < len(body):
            end = _line_end(body, at)
            following = body.find(b"\n" + _TYPE, end) + 1 or len(body)
            words = body[at + len(_TYPE) : end].split()
            at = following
            if len(words) != 2:  # no declaration: what stands below it has no type
                continue
            self.typed += 1
            name, kind = _declared(words[0]), words[1]
            if kind in _KINDS and (wanted(name) or (kind == b"counter" and wanted(name + _TOTAL))):
                self._kinds[name] = kind
            elif self._all_of(name, end + 1, following):
                continue
            yield from self._block(end + 1, following)

    def _all_of(self, name: bytes, start: int, end: int) -> bool:
        """Whether all samples between are of this family, as both formats demand and nearly all exporters do."""
        if not self._kinds:
            return True  # no other family is known whose samples they could be
        return self._body.count(b"\n" + name, start - 1, end) >= self._at_most(start, end)

    def _at_most(self, start: int, end: int) -> int:
        """How many samples the lines between may be: all but the comments. Both are the start of a line."""
        body = self._body
        unended = end > start and body[end - 1] != ord("\n")
        return body.count(b"\n", start, end) + unended - body.count(b"\n#", start - 1, end)

    def _block(self, start: int, end: int) -> Iterator[Line]:
        if self._holds_endless_line(start, end):
            self.malformed += 1
            return
        read = 0
        for match in _SAMPLE.finditer(self._body, start, end):
            series, name, labels, braced, text = match.groups()
            read += 1
            if braced is not None:
                series, labels = braced, braced
                name = (parse_labels(braced) or ("", {}))[0].encode()
            if self._kind_of(name) is None:
                continue
            value = parse_value(text)
            if value is None:
                self.malformed += 1
            else:
                yield Line(series, name, labels or b"", value)
        if read < self._at_most(start, end):  # blank lines, or worse
            self.malformed += sum(1 for _ in _ANYTHING.finditer(self._body, start, end)) - read

    def _holds_endless_line(self, start: int, end: int) -> bool:
        while end - start > LONGEST_LINE:
            start = self._body.rfind(b"\n", start, start + LONGEST_LINE) + 1
            if start == 0:
                return True
        return False

    def _kind_of(self, name: bytes) -> bytes | None:
        kind = self._kinds.get(name)
        if kind is None and name.endswith(_TOTAL) and self._kinds.get(name[: -len(_TOTAL)]) == b"counter":
            return b"counter"
        return kind


def _line_end(body: bytes, start: int) -> int:
    end = body.find(b"\n", start)
    return len(body) if end < 0 else end


def _declared(name: bytes) -> bytes:
    """The name in a TYPE line, which is quoted where it holds more than the older format's letters."""
    return _unescape(name[1:-1]).encode() if name[:1] == name[-1:] == b'"' and len(name) > 1 else name


def parse_value(text: bytes) -> float | None:
    """A decimal number, NaN or an infinity; None if it is no number."""
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def parse_labels(text: bytes) -> tuple[str, dict[str, str]] | None:
    """`{a="b",...}` as (name of the metric if it stands inside, labels), None if it is not of the format.

    A label that is there twice has its last value. Escapes other than the three of the format stay as they are.
    """
    metric = ""
    labels: dict[str, str] = {}
    at, end = 1, len(text) - 1
    more = True
    while at < end and more:
        match = _LABEL.match(text, at, end)
        if match is None:
            return None if text[at:end].strip() else (metric, labels)
        name, quoted, value, comma = match.groups()
        if name is not None:
            labels[_unescape(name if quoted is None else quoted)] = _unescape(value)
        elif metric or labels:
            return None
        else:
            metric = _unescape(value)
        more = bool(comma)
        at = match.end()
    return None if text[at:end].strip() else (metric, labels)


def _unescape(text: bytes) -> str:
    plain = text.decode("utf-8", "replace")
    return _ESCAPE.sub(lambda match: _UNESCAPED[match[1]], plain) if "\\" in plain else plain
