"""Histograms: counts per bin, in the row itself."""

from __future__ import annotations

from typing import Any

from ..runfiles import RunFiles
from .base import Media, MediaContext, StagedMedia
from .content import ArtifactContents
from .libraries import library, listed, to_array
from .sequence import Ready


class Histogram(Media):
    """How many values fall between two edges."""

    KIND = "histogram"
    MAX_LENGTH = 512
    """Bins: what the viewers of the format draw."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        """Count now; what is logged does not change with the values afterwards.

        Args:
            sequence: numbers: a list, an array or a tensor of any shape. NaN, infinities and what is masked are
                not counted.
            np_histogram: counts and edges instead, as `numpy.histogram` gives them.
            num_bins: bins of equal width, 512 at most.

        Raises:
            ValueError: too many bins, or not one more edge than bins.
            MissingLibraryError: `sequence` needs numpy.
        """
        if np_histogram is not None:
            if len(np_histogram) != 2:
                raise ValueError("np_histogram is a pair: counts per bin, and the edges of the bins")
            counts, edges = (listed(part) for part in np_histogram)
        else:
            numpy = library("numpy", "Histogram of a sequence")
            if callable(getattr(sequence, "compressed", None)):
                sequence = sequence.compressed()  # without what is masked
            values = to_array([] if sequence is None else sequence, "Histogram of a sequence").astype(float).ravel()
            counts, edges = (listed(part) for part in numpy.histogram(values[numpy.isfinite(values)], bins=num_bins))
        if len(counts) > self.MAX_LENGTH:
            raise ValueError(f"{len(counts)} bins are more than a histogram may have ({self.MAX_LENGTH})")
        if len(edges) != len(counts) + 1:
            raise ValueError(f"{len(counts)} bins have {len(counts) + 1} edges, not {len(edges)}")
        self.histogram: list[Any] = counts
        """Counts per bin."""
        self.bins: list[Any] = edges
        """Edges, in rising order."""

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:  # noqa: ARG002 - the port's signature
        """As for any medium."""
        return Ready({"_type": self.KIND, "values": list(self.histogram), "bins": list(self.bins)})

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:  # noqa: ARG002 - it has no file
        """As for any medium."""
        return {"_type": self.KIND, "values": list(self.histogram), "bins": list(self.bins)}
