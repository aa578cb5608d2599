"""Video."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..report import warn_on_stderr
from ..runfiles import RunFiles
from ..values import UnloggableError
from .base import MediaContext, StagedMedia
from .content import ArtifactContents, Content, FileMedia, existing
from .libraries import library, to_array
from .pixels import to_bytes
from .sequence import Together, captions_of

_ENCODER = "moviepy.video.io.ImageSequenceClip"


class Video(FileMedia, Together):
    """A film."""

    KIND, FOLDER = "video-file", "media/videos"
    EXTS = ("gif", "mp4", "webm", "ogg")

    def __init__(
        self,
        data_or_path: Any,
        caption: str | None = None,
        fps: int | None = None,
        format: str | None = None,  # noqa: A002 - the peer's signature
    ) -> None:
        """Frames are copied now, and encoded now (GIF) or when they are logged; a file is copied when it is logged.

        Args:
            data_or_path: a file; the bytes of one, or something with a `read` method (with `format`); or frames, as an
                array of time x channels x height x width (with `format`), of values as those of an `Image`. Several
                films, on a first axis, are put side by side.
            caption: shown with it.
            fps: frames per second of an array, 4 unless given.
            format: "gif", "mp4", "webm" or "ogg". An array needs pillow for the first, and moviepy for the others.

        Raises:
            OSError: the file cannot be read.
            ValueError: no or an unknown format, or frames of another shape.
            TypeError: it is none of these.
            MissingLibraryError: what the format needs is not installed.
        """
        self._size: tuple[int, int] | None = None
        self._frames: Any = None
        self._fps = fps or 4
        if isinstance(data_or_path, (str, Path)):
            path = existing(data_or_path)
            self._format = _known(path.suffix[1:].lower())
            content = Content(path, path.suffix)
        else:
            if format is None:
                raise ValueError("Video of bytes or an array needs format")
            self._format = _known(format)
            data = _bytes_of(data_or_path)
            if data is None:
                data = self._take(data_or_path)
            elif fps:
                warn_on_stderr("the fps of a Video counts for arrays only: a file has its own")
            content = Content(data, f".{self._format}")
        super().__init__(content, caption)

    def _take(self, array: Any) -> bytes:
        frames = _frames(to_array(array, "Video of an array"))
        self._size = frames.shape[2], frames.shape[1]
        if self._format == "gif":
            return _gif(frames, self._fps)
        library(_ENCODER, f"Video of an array as {self._format}")
        self._frames = frames.copy()
        return b""

    def facts(self) -> dict[str, Any]:
        """What stands beside the file's name in a row and in an artifact."""
        facts = super().facts()
        if self._size:
            facts["width"], facts["height"] = self._size
        return facts

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        self._encode(files.directory / "tmp")
        return super().stage(files, context)

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:
        """As for any medium."""
        if self._frames is not None:
            with _folder(contents.scratch) as folder:
                self._encode(folder)
        return super().cell(contents)

    def _encode(self, folder: Path) -> None:
        """Encode what can be encoded into a file only, if that was not done. Two threads at once do it twice."""
        frames = self._frames
        if frames is None:
            return
        encoder = library(_ENCODER, f"Video of an array as {self._format}")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.urandom(8).hex()}.{self._format}"
        try:
            clip = encoder.ImageSequenceClip(list(frames), fps=self._fps)
            clip.write_videofile(str(path), logger=None)
            if not path.exists():
                raise UnloggableError(f"moviepy wrote nothing: its ffmpeg may have no encoder for {self._format}")
            self._content.source = path.read_bytes()
        finally:
            path.unlink(missing_ok=True)
        self._frames = None

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value."""
        return {
            "_type": "videos",
            "count": len(media),
            "videos": values,
            "captions": captions_of(media) or False,  # false: the peer's word for none
        }


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """The folder; a temporary one for an artifact that is made without a run, and so without a directory."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _known(name: str) -> str:
    if name not in Video.EXTS:
        raise ValueError(f"a Video is a file of type {', '.join(Video.EXTS)}, not {name!r}")
    return name


def _bytes_of(data: Any) -> bytes | None:
    if isinstance(data, (bytes, bytearray)):
        return bytes(data)
    if callable(getattr(data, "read", None)):
        read = data.read()
        if not isinstance(read, bytes):
            raise TypeError("a film is read as bytes: open the file in binary mode")
        return read
    return None


def _frames(video: Any) -> Any:
    """Frames of time x height x width x channels in bytes; several films become tiles of one."""
    numpy = library("numpy", "Video of an array")
    if video.ndim not in {4, 5} or not video.size:
        raise ValueError(f"frames are time x channels x height x width, not {tuple(video.shape)}")
    films = to_bytes(video if video.ndim == 5 else video[None])
    if films.shape[2] not in {1, 3, 4}:
        raise ValueError(f"frames have 1, 3 or 4 channels, not {films.shape[2]}: time x channels x height x width")
    count, time, channels, height, width = films.shape
    total = 1 << (count - 1).bit_length()  # black films fill the grid, whose sides are powers of two
    if total > count:
        films = numpy.concatenate([films, numpy.zeros((total - count, *films.shape[1:]), dtype=films.dtype)])
    rows = 2 ** ((count.bit_length() - 1) // 2)
    grid = films.reshape(rows, total // rows, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return grid.reshape(time, rows * height, total // rows * width, channels)


def _gif(frames: Any, fps: float) -> bytes:
    pillow = library("PIL.Image", "Video of an array as gif")
    images = [pillow.fromarray(frame[:, :, 0] if frame.shape[2] == 1 else frame) for frame in frames]
    buffer = io.BytesIO()
    images[0].save(
        buffer, format="GIF", save_all=True, append_images=images[1:], duration=1000 / fps, loop=0, optimize=False
    )
    return buffer.getvalue()
