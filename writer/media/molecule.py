"""Molecules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..encoding import utf8
from .content import Content, FileMedia, existing
from .sequence import Together, captions_of


class Molecule(FileMedia, Together):
    """A molecule, as a file of one of the usual types."""

    KIND, FOLDER, TYPED = "molecule-file", "media/molecule", False
    SUPPORTED_TYPES = ("pdb", "pqr", "mmcif", "mcif", "cif", "sdf", "sd", "gro", "mol2", "mmtf")

    def __init__(self, data_or_path: Any, caption: str | None = None, **kwargs: Any) -> None:
        """Text is read now; a file is copied when it is logged.

        Args:
            data_or_path: a file, or something with a `read` method (with `file_type`, unless it has a name).
            caption: shown with it.
            kwargs: `file_type`, one of SUPPORTED_TYPES.

        Raises:
            OSError: the file cannot be read.
            ValueError: an unknown type of file.
            TypeError: it is none of these.
        """
        super().__init__(_content_of(data_or_path, kwargs.get("file_type")), caption)

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value."""
        return {
            "_type": "molecule",
            "filenames": [value["path"] for value in values],
            "count": len(media),
            "captions": captions_of(media) or False,  # false: the peer's word for none
        }


def _content_of(data: Any, file_type: str | None) -> Content:
    if not isinstance(data, (str, Path)) and isinstance(getattr(data, "name", None), str):
        data = data.name  # an open file: its name tells the type
    if isinstance(data, (str, Path)):
        path = existing(data)
        _check(path.suffix[1:])
        return Content(path, path.suffix)
    if not callable(getattr(data, "read", None)):
        raise TypeError(f"a Molecule is a file, or readable, not {type(data).__name__}")
    if file_type is None:
        raise ValueError("a Molecule that is read needs file_type")
    _check(file_type)
    if callable(getattr(data, "seek", None)):
        data.seek(0)
    read = data.read()
    return Content(read if isinstance(read, bytes) else utf8(str(read)), f".{file_type}")


def _check(file_type: str) -> None:
    if file_type not in Molecule.SUPPORTED_TYPES:
        raise ValueError(f"a Molecule is a file of type {', '.join(Molecule.SUPPORTED_TYPES)}, not {file_type!r}")
