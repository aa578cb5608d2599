"""What a probe is: one source of metrics, its keys, its tier, its life `discover -> open -> sample -> close`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, ClassVar

from .context import Context
from .metric import Metric
from .settings import SamplerSettings

LONGEST_LINE = 1000  # characters of a warning

Values = dict[str, "int | float"]


class Tier(IntEnum):
    """Where a probe runs, by what could happen to its calls."""

    INLINE = 0  # reads of /proc and /sys, which answer at once: on the scheduler's thread
    THREAD = 1  # file systems, HTTP, commands: a daemon thread per probe; a stuck one is left behind
    HELPER = 2  # vendor libraries: a child process per probe; a stuck or crashed one is replaced


class ProbeUnavailableError(Exception):
    """Raised by `open`: the source is not here; the text says why. The probe is left out, with a warning if `loud`."""

    def __init__(self, reason: str, *, loud: bool = False) -> None:
        super().__init__(reason)
        self.loud = loud


def in_words(error: Exception) -> str:
    """What went wrong, for people: errors of ours and the system's say it in their text, of others it takes the type."""
    text, kind = str(error), type(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return text if ours and text else f"{kind.__name__}: {text}" if text else kind.__name__


def in_one_line(text: str) -> str:
    """`text` for a terminal: what a vendor's library says may be long, of many lines, and hold control characters."""
    words = " ".join(text[:LONGEST_LINE].split()) + "..." * (len(text) > LONGEST_LINE)
    return "".join(character if character.isprintable() else "\ufffd" for character in words)


class Stats:
    """How a probe fares, kept by whatever runs it."""

    __slots__ = ("duration", "errors", "lag", "last_error", "stalled")

    def __init__(self) -> None:
        self.duration = 0.0  # s, of the last sample
        self.lag = 0.0  # s from the last request to its values' record
        self.errors = 0  # samples that raised
        self.last_error: str | None = None
        self.stalled = False  # a call has been out for longer than it may


class Probe:
    """Base of all probes. Building one has no side effect; all work happens in the methods, in the probe's tier.

    `sample` writes what it could read: a value that is not known is left out, never zero. It may raise; then the
    keys of that probe are missing from that record only.
    """

    name: ClassVar[str]
    tier: ClassVar[Tier] = Tier.INLINE
    metrics: ClassVar[tuple[Metric, ...]] = ()  # all that it may write
    interval: ClassVar[float] = 0.0  # least seconds between two samples; every tick if that is longer
    instance = ""  # tells instances of one probe apart, such as a path
    notices: Sequence[str] = ()  # to be told to the user, each once

    @classmethod
    def instances(cls, settings: SamplerSettings) -> Iterable[Probe]:  # noqa: ARG003 - for overriding probes
        """The probes to run: one, unless the settings name several sources."""
        return (cls(),)

    def discover(self, ctx: Context) -> str | None:  # noqa: ARG002 - the port's
        """Why the source cannot be here, or None. Looks only at files that answer at once: the sampler waits."""
        return None

    def open(self, ctx: Context) -> None:
        """Acquire handles, take the first reading of counters. ProbeUnavailableError if the source is not here."""

    def sample(self, ctx: Context, out: Values) -> None:
        """Write the values of this tick (monotonic time `ctx.now`) into `out`."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """Fields for the hardware record; valid after `open`."""
        return {}

    def legend(self) -> dict[str, dict[str, str]]:
        """Key -> the labels that it stands for, where keys only number them; from any thread."""
        return {}

    def close(self) -> None:
        """Release handles; may be called twice."""

    @property
    def label(self) -> str:
        """Name for messages."""
        return f"{self.name}:{self.instance}" if self.instance else self.name
