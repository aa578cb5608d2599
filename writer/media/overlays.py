"""What is drawn over an image: classes, boxes and masks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from .. import records
from ..encoding import to_json
from ..runfiles import RunFiles
from ..values import plain
from .base import Landing, Media, MediaContext, StagedMedia
from .content import ArtifactContents, Content, FileMedia, StagedFile, existing, file_facts
from .libraries import library, to_array
from .pixels import encode_array

_DELIMITER = "_wandb_delimeter_"  # the peer's spelling

_POSITION = "a box has a position with middle, width and height, or with minX, maxX, minY and maxY"


class Classes(Media):
    """Names of classes, by their ids."""

    KIND = "classes"

    def __init__(self, class_set: Sequence[Mapping[str, Any]]) -> None:
        """`class_set`: one dict with `id` and `name` per class. ValueError where one lacks them."""
        for entry in class_set:
            if "id" not in entry or "name" not in entry:
                raise ValueError("each class has an id and a name")
        self._class_set = [dict(entry) for entry in class_set]

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:  # noqa: ARG002 - the port's signature
        """Not by themselves."""
        raise TypeError("Classes belong to an image or an artifact; alone they cannot be logged")

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:  # noqa: ARG002 - it has no file
        """As for any medium."""
        return {"_type": self.KIND, "class_set": plain(self._class_set)}

    def names(self) -> dict[Any, str]:
        """Name by id."""
        return {entry["id"]: entry["name"] for entry in self._class_set}

    def entry(self, contents: ArtifactContents) -> dict[str, str]:
        """How an image in an artifact names its classes, which are a file of the artifact."""
        digest = hashlib.md5(str(self._class_set).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        body = json.dumps(self.cell(contents), sort_keys=True).encode()
        entry = contents.add(f"media/classes/{digest}_cls.classes.json", body)
        return {"type": "classes-file", "path": entry.path, "digest": entry.digest}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Classes) and self._class_set == other._class_set

    __hash__ = None  # type: ignore[assignment]  # as the peer's


class Overlay(FileMedia):
    """One layer over an image: a file, and names for its classes in the run's config."""

    LABELS = ""
    """Where in the config the names stand."""

    def __init__(self, content: Content, key: str, labels: Mapping[Any, str] | None) -> None:
        super().__init__(content)
        self._key = key
        self.labels = dict(labels) if labels is not None else None

    def layer(self, files: RunFiles, context: MediaContext) -> StagedOverlay:
        """As `stage`; what lands is told of the image's key."""
        return StagedOverlay(self, self._content.stage(files), context)

    def labels_record(self, image_key: str) -> bytes | None:
        """The config record with the names of the classes; None where there are none."""
        if self.labels is None:
            return None
        key = f"{image_key}{_DELIMITER}{self._key}"
        value = {"type": self.LABELS, "key": key, "value": plain(self.labels)}
        return records.config([(("_wandb", self.LABELS, key), to_json(value))])


class StagedOverlay:
    """A layer in the run's directory."""

    def __init__(self, overlay: Overlay, file: StagedFile, context: MediaContext) -> None:
        self._overlay, self._file, self._context = overlay, file, context

    def land(self, key: str, step: str) -> Landing:
        """As for any medium; `key` is the image's."""
        path, new = self._file.land(self._overlay.FOLDER, key, step)
        record = self._overlay.labels_record(key)
        return Landing(
            {"_type": self._overlay.KIND, **file_facts(self._file, path)},
            new,
            self._context.once(record) if record is not None else (),
        )

    def drop(self) -> None:
        """The image goes nowhere."""
        self._file.drop()


class BoundingBoxes2D(Overlay):
    """Boxes over an image."""

    KIND, FOLDER, LABELS = "boxes2D", "media/metadata/boxes2D", "bounding_box/class_labels"

    def __init__(self, val: Mapping[str, Any], key: str) -> None:
        """The boxes are read now.

        Args:
            val: `box_data`, a list of boxes: dicts with `position` ({minX, maxX, minY, maxY}, or {middle, width,
                height}), and, if known, `domain` ("pixel", else fractions), `class_id`, `scores` and `box_caption`;
                and `class_labels`, names by class id.
            key: the layer's name.

        Raises:
            TypeError: a box is none.
        """
        boxes = [_checked_box(box) for box in _boxes_of(val)]
        labels = val.get("class_labels")
        _check_labels(labels)
        if labels is None:
            ids = sorted({int(box["class_id"]) for box in boxes if "class_id" in box})
            labels = {number: f"class_{number}" for number in ids}
        body = to_json({str(name): boxes if name == "box_data" else plain(value) for name, value in val.items()})
        super().__init__(Content(body, ".boxes2D.json"), key, labels)
        self.boxes = boxes

    def cell(self, contents: ArtifactContents) -> Any:  # noqa: ARG002 - in an artifact the boxes have no file
        """As for any medium."""
        return self.boxes


def _boxes_of(val: Mapping[str, Any]) -> list[Any]:
    boxes = val.get("box_data")
    if not isinstance(boxes, list):
        raise TypeError("box_data is a list of boxes")
    return boxes


def _checked_box(box: Any) -> dict[str, Any]:
    if not isinstance(box, Mapping) or not isinstance(box.get("position"), Mapping):
        raise TypeError(_POSITION)
    position = {name: _plain_number(value) for name, value in box["position"].items()}
    middle = position.get("middle")
    by_middle = isinstance(middle, list) and len(middle) == 2 and _numbers(position, "width", "height")
    if not by_middle and not _numbers(position, "minX", "maxX", "minY", "maxY"):
        raise TypeError(_POSITION)
    checked = {str(name): position if name == "position" else plain(value) for name, value in box.items()}
    scores = checked.get("scores", {})
    if not isinstance(scores, dict) or not all(isinstance(score, Number) for score in scores.values()):
        raise TypeError("the scores of a box are numbers by name")
    if not isinstance(checked.get("class_id", 0), int):
        raise TypeError("the class_id of a box is an integer")
    if not isinstance(checked.get("box_caption", ""), str):
        raise TypeError("the box_caption of a box is text")
    return checked


def _plain_number(value: Any) -> Any:
    return plain(value.tolist() if callable(getattr(value, "tolist", None)) else value)


def _numbers(position: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(position.get(name), Number) for name in names)


def _check_labels(labels: Any) -> None:
    if labels is None:
        return
    if not isinstance(labels, Mapping) or not all(
        isinstance(key, Number) and isinstance(value, str) for key, value in labels.items()
    ):
        raise TypeError("class_labels are names by the number of the class")


class ImageMask(Overlay):
    """A class per pixel, over an image."""

    KIND, FOLDER, LABELS = "mask", "media/images/mask", "mask/class_labels"

    def __init__(self, val: Mapping[str, Any], key: str) -> None:
        """The mask is encoded now.

        Args:
            val: `mask_data`, an array or tensor of H x W classes from 0 to 255, or `path`, a PNG of them; and
                `class_labels`, names by class.
            key: the layer's name.

        Raises:
            TypeError: it is no such array.
            OSError: the file cannot be read.
            MissingLibraryError: an array needs numpy.
        """
        if "path" in val:
            path = existing(Path(val["path"]))
            super().__init__(Content(path, path.suffix), key, None)
            return
        if "mask_data" not in val:
            raise TypeError("a mask has mask_data: an array of H x W classes")
        numpy = library("numpy", "ImageMask")
        pixels = to_array(val["mask_data"], "ImageMask")
        if pixels.ndim != 2 or not pixels.size:
            raise TypeError(f"mask_data is an array of H x W classes, not {tuple(pixels.shape)}")
        if pixels.dtype.kind not in "buif" or not (pixels.min() >= 0 and pixels.max() <= 255):
            raise TypeError("mask_data holds integers from 0 to 255")
        labels = val.get("class_labels")
        _check_labels(labels)
        pixels = pixels.astype(numpy.uint8)
        if labels is None:
            labels = {number: f"class_{number}" for number in numpy.unique(pixels).tolist()}
        super().__init__(Content(encode_array(pixels, None, "png").data, ".mask.png"), key, labels)
