"""Meshes and clouds of points."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..encoding import to_json, utf8
from ..values import UnloggableError
from .content import ArtifactContents, Content, FileMedia, existing
from .libraries import is_array, is_torch, library, listed, to_array
from .sequence import Together

_POINTS = ".pts.json"


class Object3D(FileMedia, Together):
    """A mesh, or a cloud of points with boxes and vectors."""

    KIND, FOLDER = "object3D-file", "media/object3D"
    SUPPORTED_TYPES = ("obj", "gltf", "glb", "babylon", "stl", "pts.json")
    SUPPORTED_POINT_CLOUD_TYPES = ("lidar/beta",)

    def __init__(self, data_or_path: Any, caption: str | None = None, **kwargs: Any) -> None:
        """Points are encoded now; a file is copied when it is logged.

        Args:
            data_or_path: a file; something with a `read` method (with `file_type`, unless it has a name); an array of
                N x 3 (x, y, z), N x 4 (and a category from 1 to 14) or N x 6 (and red, green, blue); or a dict of
                type "lidar/beta" with `points`, `boxes` and `vectors`.
            caption: shown with it.
            kwargs: `file_type`, one of SUPPORTED_TYPES.

        Raises:
            OSError: the file cannot be read.
            ValueError: an unknown type of file or cloud, or another shape.
            TypeError: it is none of these.
        """
        super().__init__(_content_of(data_or_path, kwargs.get("file_type")), caption)

    @classmethod
    def from_file(cls, data_or_path: Any, file_type: str | None = None) -> Object3D:
        """Of a file, or something with a `read` method (with `file_type`)."""
        return cls(data_or_path, file_type=file_type)

    @classmethod
    def from_numpy(cls, data: Any) -> Object3D:
        """Of an array of N x 3, 4 or 6."""
        if not is_array(data):
            raise ValueError(f"from_numpy takes an array, not {type(data).__name__}")
        return cls(data)

    @classmethod
    def from_point_cloud(
        cls,
        points: Sequence[Any],
        boxes: Sequence[Mapping[str, Any]],
        vectors: Sequence[Mapping[str, Any]] | None = None,
        point_cloud_type: str = "lidar/beta",
    ) -> Object3D:
        """Of points, boxes (`box3d`) and vectors ({start, end})."""
        return cls({"type": point_cloud_type, "points": points, "boxes": boxes, "vectors": vectors or []})

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:
        """As for any medium."""
        if self._content.extension != _POINTS:
            raise UnloggableError(f"artifacts hold clouds of points, not files of type {self._content.extension[1:]}")
        return super().cell(contents)

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value."""
        names = [value["path"].removeprefix(f"{cls.FOLDER}/") for value in values]
        return {"_type": "object3D", "filenames": names, "count": len(media), "objects": values}


def _content_of(data: Any, file_type: str | None) -> Content:
    if not isinstance(data, (str, Path, Mapping)) and isinstance(getattr(data, "name", None), str):
        data = data.name  # an open file: its name tells the type
    if callable(getattr(data, "read", None)):
        if file_type is None:
            raise ValueError("an Object3D that is read needs file_type")
        if callable(getattr(data, "seek", None)):
            data.seek(0)
        read = data.read()
        return Content(read if isinstance(read, bytes) else utf8(str(read)), f".{_known(file_type)}")
    if isinstance(data, (str, Path)):
        found = [name for name in Object3D.SUPPORTED_TYPES if str(data).endswith(f".{name}")]
        return Content(existing(data), f".{_known(found[0] if found else Path(data).suffix[1:])}")
    if isinstance(data, Mapping):
        kind = data.get("type")
        if kind not in Object3D.SUPPORTED_POINT_CLOUD_TYPES:
            raise ValueError(f"a scene is of type {', '.join(Object3D.SUPPORTED_POINT_CLOUD_TYPES)}, not {kind!r}")
        scene = {name: listed(data.get(name, ())) for name in ("vectors", "points", "boxes")}
        return Content(to_json({"type": kind, **scene}), _POINTS)
    if is_array(data) or is_torch(data):
        data = to_array(data, "Object3D of points")
        if data.ndim != 2 or data.shape[1] not in {3, 4, 6}:
            raise ValueError(f"points are an array of N x 3, N x 4 or N x 6, not {tuple(data.shape)}")
        return Content(to_json(data.tolist()), _POINTS)
    raise TypeError(f"an Object3D is a file, an array of points or a scene, not {type(data).__name__}")


def _known(file_type: str) -> str:
    if file_type not in Object3D.SUPPORTED_TYPES:
        raise ValueError(f"an Object3D is a file of type {', '.join(Object3D.SUPPORTED_TYPES)}, not {file_type!r}")
    return file_type


def box3d(
    *,
    center: Any,
    size: Any,
    orientation: Any,
    color: Sequence[float],
    label: str | None = None,
    score: float | None = None,
) -> dict[str, Any]:
    """A box in a cloud of points.

    Args:
        center: x, y, z.
        size: along the box's own axes.
        orientation: a quaternion (r, i, j, k) that turns the world's axes into the box's.
        color: red, green, blue, from 0 to 1.
        label: shown at it.
        score: shown at it.

    Raises:
        ValueError: numbers of another count, or a quaternion of zeros.
    """
    numpy = library("numpy", "box3d")
    middle, sides, turn = (numpy.asarray(given, dtype=float) for given in (center, size, orientation))
    if middle.shape != (3,) or sides.shape != (3,) or turn.shape != (4,):
        raise ValueError("a box has a center and a size of 3 numbers, and an orientation of 4")
    length = numpy.linalg.norm(turn)
    if not length:
        raise ValueError("an orientation of zeros turns nowhere")
    r, i, j, k = turn / length
    rotation = numpy.array(
        [
            [1 - 2 * (j * j + k * k), 2 * (i * j + k * r), 2 * (i * k - j * r)],
            [2 * (i * j - k * r), 1 - 2 * (i * i + k * k), 2 * (j * k + i * r)],
            [2 * (i * k + j * r), 2 * (j * k - i * r), 1 - 2 * (i * i + j * j)],
        ]
    )
    corners = middle + (0.5 * sides * numpy.array(list(itertools.product((-1, 1), repeat=3)))) @ rotation
    return {"corners": corners.tolist(), "color": list(color), "label": label, "score": score}
