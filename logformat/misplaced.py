"""Records that stand in the wrong place, by their numbers: sectors that were written to each other's places still have good checksums."""

from __future__ import annotations

from itertools import pairwise

_MOST_RUNS = 512  # of numbers without a gap: a log with more is not damaged, it has other numbers


class Misplaced:
    """Told the numbers of a log's records in their order; tells which of them stand where others belong.

    Those are the fewest that have to be moved to have all in order. Nothing is known of logs without numbers, and of those
    in which a number comes twice.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []  # first and last
        self._tells = True

    def add(self, num: int) -> None:
        """The next record's number."""
        if not self._tells:
            return
        if self._runs and num == self._runs[-1][1] + 1:
            self._runs[-1] = (self._runs[-1][0], num)
        else:
            self._runs.append((num, num))
            self._tells = num > 0 and len(self._runs) <= _MOST_RUNS

    def spans(self) -> list[tuple[int, int]]:
        """First and last number of each stretch of records that have to be moved, in the order of the numbers."""
        runs = self._runs
        if not self._tells or all(before[1] < after[0] for before, after in pairwise(runs)):
            return []
        if any(before[1] >= after[0] for before, after in pairwise(sorted(runs))):
            return []
        # The heaviest chain of stretches that stand in the order of their numbers stays.
        weight: list[int] = []
        previous: list[int] = []
        for at, (first, last) in enumerate(runs):
            best = max((place for place in range(at) if runs[place][1] < first), key=weight.__getitem__, default=-1)
            weight.append(last - first + 1 + (weight[best] if best >= 0 else 0))
            previous.append(best)
        at = max(range(len(runs)), key=weight.__getitem__)
        kept = set()
        while at >= 0:
            kept.add(at)
            at = previous[at]
        return sorted(run for place, run in enumerate(runs) if place not in kept)
