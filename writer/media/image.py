"""Images."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..runfiles import RunFiles
from .base import Landing, MediaContext, StagedMedia
from .content import ArtifactContents, Content, FileMedia, StagedFile, existing, file_facts, is_reference
from .libraries import figure_of, is_matplotlib, is_torch, to_array, type_name
from .overlays import BoundingBoxes2D, Classes, ImageMask, Overlay, StagedOverlay
from .pixels import FILE_TYPES, encode_array, encode_pillow, planes, size_of, to_bytes
from .sequence import Together, captions_of


class Image(FileMedia, Together):
    """An image, with boxes and masks over it."""

    KIND, FOLDER = "image-file", "media/images"

    def __init__(  # noqa: PLR0917 - the peer's signature
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        grouping: int | None = None,
        classes: Classes | Sequence[Mapping[str, Any]] | None = None,
        boxes: Mapping[str, BoundingBoxes2D | Mapping[str, Any]] | None = None,
        masks: Mapping[str, ImageMask | Mapping[str, Any]] | None = None,
        file_type: str | None = None,
        normalize: bool = True,
    ) -> None:
        """Pixels are encoded now; a file is copied when the image is logged.

        Args:
            data_or_path: a file; an array of H x W or H x W x (1, 3 or 4) values: from 0 to 255, or floats from 0 to 1; a
                tensor of PyTorch (channels first); an image of pillow; a figure of matplotlib; another `Image`.
            mode: the colours of the file that is made of an array, by pillow's name.
            caption: shown with it.
            grouping: a number that belongs together.
            classes: names of classes, for boxes and masks.
            boxes: layers of boxes, by name.
            masks: layers of masks, by name.
            file_type: "png" (default), "jpg", "jpeg" or "bmp"; plays no role for a file.
            normalize: floats of an array that all lie in 0..1 are parts of the full brightness; False takes them, too, as
                they are: black.

        Raises:
            OSError: the file cannot be read, or is no image.
            TypeError: it is none of these.
            ValueError: a shape that no image has, an unknown file type.
            MissingLibraryError: it needs numpy or pillow.
        """
        self._grouping = grouping
        self._size: tuple[int, int] | None = None
        file_type = file_type or "png"
        if isinstance(data_or_path, Image):
            self._copy(data_or_path, caption)
        elif is_reference(data_or_path):
            self.format = urlsplit(data_or_path).path.rpartition("/")[2].rpartition(".")[2]
            super().__init__(Content(b"", ""), caption, data_or_path)
        elif isinstance(data_or_path, (str, Path)):
            path = existing(data_or_path)
            self._size = size_of(path)
            self.format = path.suffix[1:]
            super().__init__(Content(path, path.suffix), caption)
        else:
            if file_type not in FILE_TYPES:
                raise ValueError(f"file_type is one of {', '.join(FILE_TYPES)}, not {file_type!r}")
            data = self._encode(data_or_path, mode, file_type, normalize)
            self.format = file_type
            super().__init__(Content(data, f".{file_type}"), caption)
        self._boxes = _layers(boxes, BoundingBoxes2D, "boxes")
        self._masks = _layers(masks, ImageMask, "masks")
        self._classes = self._all_classes(classes)

    def _copy(self, other: Image, caption: str | None) -> None:
        super().__init__(other._content, other.caption if caption is None else caption, other._reference)
        self._size, self._classes, self.format = other._size, other._classes, other.format
        self._grouping = other._grouping if self._grouping is None else self._grouping

    def _encode(self, data: Any, mode: str | None, file_type: str, normalize: bool) -> bytes:
        if is_matplotlib(data):
            buffer = io.BytesIO()
            figure_of(data).savefig(buffer, format=file_type)
            self._size = size_of(buffer.getvalue())
            return buffer.getvalue()
        if type_name(data).startswith("PIL."):
            encoded = encode_pillow(data, file_type)
        else:
            array = to_array(data, "Image of an array")
            pixels = planes(_channels_last(array) if is_torch(data) else array)
            encoded = encode_array(to_bytes(pixels, normalize=normalize), mode, file_type)
        self._size = encoded.width, encoded.height
        return encoded.data

    def _all_classes(self, classes: Classes | Sequence[Mapping[str, Any]] | None) -> Classes | None:
        names: dict[Any, str] = {}
        for layer in [*self._boxes.values(), *self._masks.values()]:
            names.update(layer.labels or {})
        if classes is not None:
            names.update((classes if isinstance(classes, Classes) else Classes(classes)).names())
        if names:
            return Classes([{"id": key, "name": name} for key, name in names.items()])
        return getattr(self, "_classes", None)

    @property
    def width(self) -> int | None:
        """Pixels; None where that needs pillow."""
        return self._size[0] if self._size else None

    @property
    def height(self) -> int | None:
        """Pixels; None where that needs pillow."""
        return self._size[1] if self._size else None

    def facts(self) -> dict[str, Any]:
        """What stands beside the file's name in a row and in an artifact."""
        facts = super().facts() | {"format": self.format}
        if self._size:
            facts["width"], facts["height"] = self._size
        if self._grouping:
            facts["grouping"] = self._grouping
        return facts

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        staged = _StagedImage(self.facts() | {"_type": self.KIND})
        try:
            staged.file = self._staged(files)
            for name, layers in (("boxes", self._boxes), ("masks", self._masks)):
                for key, layer in layers.items():
                    staged.layers[name, key] = layer.layer(files, context)
        except BaseException:
            staged.drop()
            raise
        return staged

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:
        """What stands for it in an artifact's JSON. Raises OSError."""
        value = super().cell(contents)
        if self._classes is not None:
            value["classes"] = self._classes.entry(contents)
        for name, layers in (("boxes", self._boxes), ("masks", self._masks)):
            if layers:
                value[name] = {key: layer.cell(contents) for key, layer in layers.items()}
        return value

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value: the size of the first, and the files of all."""
        first = values[0]
        value: dict[str, Any] = {
            "_type": "images/separated",
            **{name: first[name] for name in ("width", "height", "format") if name in first},
            "count": len(values),
            "filenames": [each["path"] for each in values],
        }
        if captions := captions_of(media):
            value["captions"] = captions
        for name in ("masks", "boxes"):
            layers = [each.get(name) for each in values]
            if any(layers):
                value[f"all_{name}"] = layers
        return value


class _StagedImage:
    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self.file: StagedFile | None = None
        self.layers: dict[tuple[str, str], StagedOverlay] = {}

    def land(self, key: str, step: str) -> Landing:
        assert self.file is not None  # noqa: S101 - `stage` set it
        path, paths = self.file.land(Image.FOLDER, key, step)
        value = {**self._facts, **file_facts(self.file, path)}
        found: tuple[bytes, ...] = ()
        for (name, layer_key), layer in self.layers.items():
            landing = layer.land(key, step)
            value.setdefault(name, {})[layer_key] = landing.value
            paths += landing.paths
            found += landing.records
        return Landing(value, paths, found)

    def drop(self) -> None:
        for part in [self.file, *self.layers.values()]:
            if part is not None:
                part.drop()


def _layers(given: Any, kind: Any, name: str) -> dict[str, Overlay]:
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is a dict of layers by name")
    return {str(key): layer if isinstance(layer, kind) else kind(layer, str(key)) for key, layer in given.items()}


def _channels_last(tensor: Any) -> Any:
    while tensor.ndim > 3 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.ndim != 3:
        return tensor
    if tensor.shape[0] not in {1, 3, 4}:
        raise ValueError(f"an image of PyTorch is H x W or (1, 3 or 4) x H x W pixels, not {tuple(tensor.shape)}")
    return tensor.transpose(1, 2, 0)
