"""Sound."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .content import Content, FileMedia, existing, is_reference
from .libraries import library, to_array
from .sequence import Together, captions_of

MAX_CHANNELS = 1024
"""As libsndfile has it, which the peer writes with: more are samples on the wrong axis."""


class Audio(FileMedia, Together):
    """A recording."""

    KIND, FOLDER = "audio-file", "media/audio"

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        """Samples are encoded now, as WAV of 16 bits; a file is copied when it is logged.

        Args:
            data_or_path: a file of any kind; or samples, N or N x channels: floats from -1 to 1, or integers of 16 or
                32 bits.
            sample_rate: samples per second; needed for samples.
            caption: shown with it.

        Raises:
            OSError: the file cannot be read.
            ValueError: no sample rate, or another shape.
            TypeError: numbers of another type.
            MissingLibraryError: samples need numpy.
        """
        self.sample_rate = sample_rate
        """Of samples; None for a file, unless it was given."""
        self.duration: float | None = None
        """Seconds; None for a file."""
        reference = data_or_path if is_reference(data_or_path) else ""
        if reference:
            content = Content(b"", "")
        elif isinstance(data_or_path, (str, Path)):
            path = existing(data_or_path)
            content = Content(path, path.suffix)
        else:
            if sample_rate is None or int(sample_rate) < 1:
                raise ValueError("Audio of samples needs sample_rate, samples per second")
            samples = _samples(data_or_path)
            self.duration = len(samples) / float(sample_rate)
            content = Content(_wav(samples, int(sample_rate)), ".wav")
        super().__init__(content, caption, reference)

    @classmethod
    def together(cls, media: Sequence[Any], values: list[dict[str, Any]]) -> dict[str, Any]:
        """As one value."""
        value: dict[str, Any] = {
            "_type": "audio",
            "count": len(media),
            "audio": values,
            "sampleRates": [each.sample_rate for each in media],
            "durations": [each.duration for each in media],
        }
        if captions := captions_of(media):
            value["captions"] = [caption or "" for caption in captions]
        return value


def _samples(data: Any) -> Any:
    """Samples of 16 bits, N or N x channels."""
    numpy = library("numpy", "Audio of samples")
    samples = to_array(data, "Audio of samples")
    if samples.ndim not in {1, 2}:
        raise ValueError(f"samples are N or N x channels, not {tuple(samples.shape)}")
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise ValueError(f"samples are N x channels, with {MAX_CHANNELS} channels at most, not {tuple(samples.shape)}")
    kind, size = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        # As libsndfile does it, which the peer writes with: to 32 bits, of which the upper 16 are kept.
        wide = numpy.nan_to_num(samples.astype(numpy.float64)) * (2**31 - 1)
        return numpy.floor(numpy.clip(numpy.rint(wide), -(2**31), 2**31 - 1) / 65536).astype("<i2")
    if kind == "i" and size == 2:
        return samples.astype("<i2")
    if kind == "i" and size == 4:
        return (samples >> 16).astype("<i2")
    raise TypeError(f"samples are floats from -1 to 1, or integers of 16 or 32 bits, not {samples.dtype}")


def _wav(samples: Any, rate: int) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()
