"""What a sync can be told, and where each value comes from: argument, `RUNFERRY_*`, `WANDB_*`, settings file, default."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from ..logformat import stitch, valid_run_id
from .body import FULL_BODY
from .credentials import origin_of
from .errors import UsageError
from .places import default_state_dir
from .shard import Shard

DEFAULT_BASE_URL = "https://api.wandb.ai"
DEFAULT_JOBS = 8
MAX_JOBS = 32
"""More runs at a time than the default pay where answers are slow: each waits for its own."""
OVERLAPS = stitch.OVERLAPS
_FORBIDDEN = frozenset("/\\#?%:")  # in the names of projects and entities
_LONGEST_PROJECT = 128  # characters
STATES = ("finished", "failed", "crashed", "running")
"""How a run may stand: its exit record says 0, or another code; it has none, and is gone, or goes on."""


@dataclass(frozen=True)
class SyncSettings:
    """Settings of one sync. Times in seconds, sizes in bytes."""

    base_url: str = DEFAULT_BASE_URL
    project: str | None = None
    """Overrides the log's project, as `entity`, `run_id` and `job_type` override theirs."""
    entity: str | None = None
    run_id: str | None = None
    job_type: str | None = None
    replace_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags to send others for; those with an empty text are left out. Each tag is looked at once: nothing is chained."""
    shard: Shard | None = None
    """Only this share of the runs; text such as "2/8" or "auto" will do."""
    states: Collection[str] = ()
    """Only runs that stand so, of `STATES`; none: all. So it is with the next three."""
    newer_than: float | None = None
    """Only runs that have grown since this time (epoch seconds)."""
    tags: Collection[str] = ()
    """Only runs with one of these tags, as their logs have them."""
    min_rows: int = 0
    """Only runs whose logs hold so many rows."""
    jobs: int | None = None
    """Runs at a time, at most `MAX_JOBS`; None for as many as there are, up to `DEFAULT_JOBS`."""
    retry_for: float = 600.0
    """How long a request is retried after its first failure; 0 for a single attempt."""
    stale_after: float = 600.0
    """A log without an exit record that has not grown for so long belongs to a run that is gone."""
    overlap: str = "last"
    """Whose rows count where two logs of a run have the same steps: the later one's ("last"), the earlier one's ("first"), or
    those of both ("both")."""
    include_synced: bool = False
    """Also send logs that are marked as synced without a cursor, and send again what we have sent, to the same lines."""
    follow_links: bool = False
    """Read what links among a run's files lead to, also out of its directory, as those of the peer's `save` do."""
    dry_run: bool = False
    following: bool = False
    """This sync comes right after one that brought everything over, and another one will follow: a run that goes on is not
    announced again unless its config changed, and its files that change with every row wait for its end."""
    state_dir: Path = field(default_factory=default_state_dir)
    """Where cursors and locks go if the log's own directory cannot be written."""
    body_bytes: int = FULL_BODY
    """Bytes of lines at which a request is sent."""

    def __post_init__(self) -> None:
        # A file or variable may end in a line break, and what differs in that only is one server.
        object.__setattr__(self, "base_url", self.base_url.strip().rstrip("/"))
        if "@" in self.base_url:
            raise UsageError("base URL: no user or password in it; the key comes from the environment or netrc")
        try:
            origin_of(self.base_url)
        except ValueError:
            hint = "" if "://" in self.base_url else f"; did you mean http://{self.base_url}?"
            raise UsageError(f"base URL: {self.base_url!r} is not an http(s) URL{hint}") from None
        if any(char in "?#" or char.isspace() or not char.isprintable() for char in self.base_url):
            raise UsageError("base URL: scheme, host, port and maybe a path, without blanks, `?` and `#`")
        if self.overlap not in OVERLAPS:
            raise UsageError(f"overlap: one of {', '.join(OVERLAPS)}, not {self.overlap!r}")
        if self.jobs is not None and not 1 <= self.jobs <= MAX_JOBS:
            raise UsageError(f"jobs: at least 1 and at most {MAX_JOBS}, not {self.jobs}")
        if not (self.retry_for >= 0 and self.stale_after >= 0):  # neither is NaN
            raise UsageError("a time is negative or no number")
        if self.run_id is not None and not valid_run_id(self.run_id):
            raise UsageError(f"no server takes {self.run_id!r} for a run id")
        if {self.project, self.entity} & {".", ".."}:
            raise UsageError("project and entity: `.` and `..` are not names")
        for name in ("project", "entity"):
            forbidden = sorted(set(getattr(self, name) or "") & _FORBIDDEN)
            forbidden += [char for char in getattr(self, name) or "" if not char.isprintable()]
            if forbidden:
                raise UsageError(f"{name}: no server takes a name with {forbidden[0]!r} in it")
        for name, text in (("job type", self.job_type or ""), *(("tag", tag) for tag in self.replace_tags.values())):
            if not _is_text(text):
                raise UsageError(f"{name}: {text!r} holds bytes that are no text (UTF-8)")
        if len(self.project or "") > _LONGEST_PROJECT:
            raise UsageError(f"project: no server takes a name of more than {_LONGEST_PROJECT} characters")
        for name in ("states", "tags"):
            values = getattr(self, name)
            object.__setattr__(self, name, frozenset([values] if isinstance(values, str) else values))
        unknown = sorted(set(self.states) - set(STATES))
        if unknown:
            raise UsageError(f"no run is ever {unknown[0]!r}; the states are {', '.join(STATES)}")
        if self.newer_than is not None and not isfinite(self.newer_than):
            raise UsageError("newer than: a time is no number")
        shard: object = self.shard
        if isinstance(shard, str):
            object.__setattr__(self, "shard", Shard.parse(shard))
        object.__setattr__(self, "replace_tags", dict(self.replace_tags))

    @property
    def selects(self) -> bool:
        """Whether some of the runs found may be left out."""
        return bool(self.shard or self.states or self.newer_than is not None or self.tags or self.min_rows > 0)

    @property
    def changes_run(self) -> bool:
        """Whether the run at the server is to say something else than the log, wherever it lies."""
        return self.job_type is not None or bool(self.replace_tags)


def _is_text(text: str) -> bool:
    """Whether it holds none of the halves of characters that stand for bytes which are no UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def find_base_url(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> str:
    """`RUNFERRY_BASE_URL`, `WANDB_BASE_URL`, `base_url` in the user's own settings files, else the default."""
    return locate_base_url(environ, home)[0]


def locate_base_url(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> tuple[str, str]:
    """As `find_base_url`, and where it stands: a variable, a file, or "default".

    A settings file beside the logs is not read: whoever wrote the logs must not choose where the key is sent.

    Raises:
        UsageError: a settings file of the user cannot be read: another server may stand there than the one that would get the runs.
    """
    for variable in ("RUNFERRY_BASE_URL", "WANDB_BASE_URL"):
        if environ.get(variable):
            return environ[variable].rstrip("/"), variable
    import configparser

    for path in _settings_files(environ, home):
        if not os.path.isfile(path):  # noqa: PTH113 - it raises for nothing
            continue
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(path.read_text(encoding="utf-8-sig"))
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no lines of `key = value` below [default]"
            raise UsageError(f"{path}: {why}: mend it, or say the server (--base-url, RUNFERRY_BASE_URL)") from None
        found = parser.get("default", "base_url", fallback="").rstrip("/")
        if found:
            return found, str(path)
    return DEFAULT_BASE_URL, "default"


def _settings_files(environ: Mapping[str, str], home: Path | None) -> Iterator[Path]:
    """The user's own settings files, ours before the peer's, which stands where the peer looks for it."""
    user = (home or Path(os.path.expanduser("~"))) / ".config"  # noqa: PTH111 - it raises for nothing
    ours = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else user
    for name, folder in (("runferry", ours), ("wandb", user)):
        chosen = environ.get(f"{name.upper()}_CONFIG_DIR")
        yield (Path(chosen) if chosen else folder / name) / "settings"
