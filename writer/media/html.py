"""Pages of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..encoding import utf8
from .content import Content, FileMedia, existing
from .sequence import Together

_HEAD = '<base target="_blank"><link rel="stylesheet" type="text/css" href="https://app.wandb.ai/normalize.css" />'  # the peer's, so that pages look alike


class Html(FileMedia, Together):
    """A page, or a piece of one."""

    KIND, FOLDER = "html-file", "media/html"

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        """The page is read now; with `inject=False` a file is copied when it is logged.

        Args:
            data: HTML; the path of a file that ends in `.html`; or something with a `read` method.
            inject: add the style sheet that the backend's pages have, and let links open elsewhere.
            data_is_not_path: `data` is HTML even if there is a file of that name.

        Raises:
            OSError: the file cannot be read.
            TypeError: it is none of these.
        """
        path = None if data_is_not_path else _html_file(data)
        if path is not None and not inject:
            super().__init__(Content(path, ".html"))
            return
        if path is not None:
            page = path.read_text(encoding="utf-8", errors="replace")
        elif isinstance(data, str):
            page = data
        elif callable(getattr(data, "read", None)):
            if callable(getattr(data, "seek", None)):
                data.seek(0)
            read = data.read()
            page = read.decode("utf-8", "replace") if isinstance(read, bytes) else str(read)
        else:
            raise TypeError(f"HTML is text, a file that ends in .html, or readable, not {type(data).__name__}")
        super().__init__(Content(utf8(_with_head(page) if inject else page), ".html"))

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value."""
        return {"_type": "html", "count": len(media), "html": values}


def _html_file(data: Any) -> Path | None:
    if not isinstance(data, (str, Path)) or not str(data).endswith(".html"):
        return None
    try:
        return existing(data) if Path(data).is_file() else None
    except ValueError:  # no path: it holds a NUL
        return None


def _with_head(page: str) -> str:
    for tag, opening, closing in (("<head>", "<head>", ""), ("<html>", "<html><head>", "</head>")):
        before, found, after = page.partition(tag)
        if found:
            return f"{before}{opening}{_HEAD}{closing}{after}".strip()
    return f"{_HEAD}{page}".strip()
