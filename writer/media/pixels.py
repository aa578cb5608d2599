"""Arrays of pixels as image files. Pillow does it where it is there; PNG of the plain kinds needs only zlib."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from .libraries import library, optional

MAX_PIXELS = 178_956_970
"""Of one image: what pillow, and so most readers, open before they take it for an attack."""
FILE_TYPES = ("png", "jpg", "jpeg", "bmp")

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_COLOURS = {"L": 0, "RGB": 2, "RGBA": 6}
_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
_WRITTEN_AS_RGB = frozenset({"CMYK", "YCbCr", "LAB", "HSV", "RGBX", "RGBa"})


class Encoded(NamedTuple):
    """An image file."""

    data: bytes
    width: int
    height: int


def planes(pixels: Any) -> Any:
    """Pixels as an array of shape H x W or H x W x C (C: 1 to 4), without axes of length 1 around it.

    Raises:
        ValueError: another shape, or more pixels than an image may have.
    """
    shape = tuple(pixels.shape)
    while pixels.ndim > 3 and 1 in pixels.shape:
        pixels = pixels.squeeze(axis=pixels.shape.index(1))
    if pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in {2, 3} or (pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS) or not pixels.size:
        raise ValueError(f"an image is H x W or H x W x (1, 3 or 4) pixels, not {shape}")
    if pixels.shape[0] * pixels.shape[1] > MAX_PIXELS:
        raise ValueError(f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels is larger than readers open")
    return pixels


def to_bytes(pixels: Any, *, normalize: bool = True) -> Any:
    """Pixels of any number type as uint8: fractions are cut off, and what is outside 0 to 255 becomes the nearest.

    Args:
        pixels: an array.
        normalize: booleans, and floats that all lie in 0..1, are parts of the full brightness. NaN and infinities do
            not decide.
    """
    numpy = library("numpy", "Image of an array")
    if pixels.dtype == numpy.uint8:
        return pixels
    kind = pixels.dtype.kind
    if kind == "b":
        return pixels.astype(numpy.uint8) * (255 if normalize else 1)
    if kind not in "fiu":
        raise TypeError(f"pixels are numbers, not {pixels.dtype}")
    if kind == "f":
        finite = numpy.isfinite(pixels)
        low, high = pixels.min(where=finite, initial=0), pixels.max(where=finite, initial=0)
        pixels = numpy.nan_to_num(pixels, nan=0.0, posinf=255.0, neginf=0.0)
        if normalize and low >= 0 and high <= 1:
            pixels = numpy.rint(pixels * 255)  # so that the quotients of bytes and 255 come back
    return numpy.clip(pixels, 0, 255).astype(numpy.uint8)


def encode_array(pixels: Any, mode: str | None, file_type: str) -> Encoded:
    """An array of uint8 as a file.

    Args:
        pixels: as `planes` gives them.
        mode: pillow's name of the colours that the file is to have; by the number of channels unless given.
        file_type: one of FILE_TYPES.

    Raises:
        MissingLibraryError: it needs pillow.
        ValueError: pillow has no such mode, or cannot write it.
    """
    own = "L" if pixels.ndim == 2 else _CHANNELS[pixels.shape[2]]
    if mode is None:
        mode = "RGB" if own == "RGBA" and file_type in {"jpg", "jpeg"} else own
    pillow = optional("PIL.Image")
    if pillow is None and file_type == "png" and mode == own:
        return Encoded(_png(pixels, own), pixels.shape[1], pixels.shape[0])
    pillow = pillow or library("PIL.Image", f"Image as {mode} in a file of type {file_type}")
    return encode_pillow(pillow.fromarray(pixels).convert(mode), file_type)


def encode_pillow(image: Any, file_type: str) -> Encoded:
    """An image of pillow as a file. Raises OSError where the file type has no such mode."""
    if image.mode in _WRITTEN_AS_RGB or (file_type in {"jpg", "jpeg"} and image.mode in {"RGBA", "LA", "P", "PA"}):
        image = image.convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG" if file_type in {"jpg", "jpeg"} else file_type.upper(), transparency=None)
    return Encoded(buffer.getvalue(), image.width, image.height)


def _png(pixels: Any, mode: str) -> bytes:
    height, width = pixels.shape[:2]
    stride = pixels.reshape(height, -1)
    rows = b"".join(b"\0" + row.tobytes() for row in stride)  # 0: the row is not filtered
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOURS[mode], 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def size_of(source: bytes | Path) -> tuple[int, int] | None:
    """Width and height of an image file, from its head; None where only pillow would know and is not there.

    Raises:
        OSError: it cannot be read, or is no image that pillow knows.
    """
    if isinstance(source, bytes):
        head = source[:24]
    else:
        with source.open("rb") as file:
            head = file.read(24)
    if head.startswith(_PNG) and len(head) == 24:
        width, height = struct.unpack(">II", head[16:])
        return width, height
    pillow = optional("PIL.Image")
    if pillow is None:
        return None
    with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
        return image.width, image.height
