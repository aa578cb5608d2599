"""A page as a browser's parser has it: its tags, what they hold, and everything that could lead out of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "img", "br", "hr", "input", "link"}
_ADDRESSES = {"src", "href", "xlink:href", "action", "formaction", "data", "poster", "srcset", "background", "ping"}


class Page(HTMLParser):
    """Parses at once; fails where tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open, tag
        assert self._open.pop() == tag

    def handle_data(self, data):
        (self.styles if self._open and self._open[-1] == "style" else self.texts).append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def having(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of each such element that has those given."""
        return [found for name, found in self.tags if name == tag and attributes.items() <= found.items()]

    def leads_out(self) -> list[str]:
        """Everything that could run, or fetch anything: empty for a page that needs nothing."""
        found = [
            f"<{tag}>" for tag, _ in self.tags if tag in {"script", "iframe", "object", "embed", "link", "base", "form"}
        ]
        for tag, attributes in self.tags:
            for name, value in attributes.items():
                is_inside = value.startswith("#") or re.match(
                    r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", value
                )
                if name.startswith("on") or (name in _ADDRESSES and not is_inside):
                    found.append(f"{tag} {name}={value[:80]}")
                if name == "style":
                    found.append(f"{tag} style={value[:80]}")
        found += [style[:80] for style in self.styles if re.search(r"@import|url\(|expression", style)]
        return found
