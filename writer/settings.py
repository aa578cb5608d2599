"""Settings of a run: argument > RUNFERRY_* > WANDB_* > default."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..logformat.rundir import valid_run_id
from .errors import UsageError

MODES = ("offline", "online", "disabled", "dryrun")
LEVELS = ("relaxed", "normal", "record", "disk")
RANKS = ("auto", "all")
PARTS = frozenset({"argv", "environment", "config", "git"})
"""What is redacted, each for itself."""
ID_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 8

# What the peer's settings call by another name.
_ALIASES = {
    "run_name": "name",
    "run_notes": "notes",
    "run_tags": "tags",
    "run_group": "group",
    "run_job_type": "job_type",
    "root_dir": "dir",
    "id": "run_id",
    "x_disable_stats": "disable_stats",
    "x_disable_meta": "disable_meta",
    "x_stats_sampling_interval": "sample_interval",
    "x_label": "label",
}


def _flag(value: Any) -> bool:
    return value.strip().lower() in {"1", "true", "yes", "on"} if isinstance(value, str) else bool(value)


def _tags(text: str) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


# field -> environment variables behind their prefix, and how their text is read
_ENVIRONMENT: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "mode": (("RUNFERRY_MODE", "WANDB_MODE"), str),
    "dir": (("RUNFERRY_DIR", "WANDB_DIR"), str),
    "project": (("RUNFERRY_PROJECT", "WANDB_PROJECT"), str),
    "entity": (("RUNFERRY_ENTITY", "WANDB_ENTITY"), str),
    "name": (("RUNFERRY_NAME", "WANDB_NAME"), str),
    "notes": (("RUNFERRY_NOTES", "WANDB_NOTES"), str),
    "tags": (("RUNFERRY_TAGS", "WANDB_TAGS"), _tags),
    "run_id": (("RUNFERRY_RUN_ID", "WANDB_RUN_ID"), str),
    "group": (("RUNFERRY_RUN_GROUP", "WANDB_RUN_GROUP"), str),
    "job_type": (("RUNFERRY_JOB_TYPE", "WANDB_JOB_TYPE"), str),
    "console": (("RUNFERRY_CONSOLE", "WANDB_CONSOLE"), str),
    "silent": (("RUNFERRY_SILENT", "WANDB_SILENT"), str),
    "durability": (("RUNFERRY_DURABILITY",), str),
    "dir_prefix": (("RUNFERRY_DIR_PREFIX",), str),
    "strict": (("RUNFERRY_STRICT",), str),
    "ranks": (("RUNFERRY_RANKS",), str),
    "label": (("RUNFERRY_LABEL", "WANDB_X_LABEL"), str),
    "sample_interval": (("RUNFERRY_SAMPLE_INTERVAL", "WANDB_X_STATS_SAMPLING_INTERVAL"), str),
    "disable_stats": (("RUNFERRY_DISABLE_STATS", "WANDB_X_DISABLE_STATS"), str),
    "disable_meta": (("RUNFERRY_DISABLE_META", "WANDB_X_DISABLE_META"), str),
}


_RESUME = ("allow", "must", "never", "auto")


class SettingsError(UsageError, ValueError):
    """A setting has a value that it cannot have; names the setting and what it takes."""


class Settings:
    """Settings given in code; None means not given, and the environment or the default decides.

    Names that are not known here are kept in `unknown` and named once by `init`, because scripts written for the peer
    carry some.

    Attributes:
        mode: "offline" (default), "disabled" (nothing is written), "dryrun" (the same as offline) or "online" (logs
            offline too, and says how to sync).
        dir: where the folder `wandb` goes; the working directory unless given.
        run_id: of the characters that a backend takes; eight random ones unless given.
        project: "uncategorized" unless given.
        durability: "relaxed", "normal" (default), "record" or "disk"; see docs/writing.md.
        console: "off" (default) or "wrap": what is written to sys.stdout and sys.stderr goes to the log too.
        dir_prefix: "run" (default) or "offline-run", the name that the peer's own sync looks for.
        strict: raise for values that cannot be logged, instead of leaving them out with a warning.
        ranks: "auto" (rank 0 logs, local rank 0 of each node samples) or "all" (every process is a run).
        label: appended to the names of system metrics, so that several nodes of one run stay apart.
        sample_interval: seconds between samples of system metrics, >= 0.1; 15 unless given.
        disable_stats: no system metrics.
        disable_meta: no record of the machine and the command.
        silent: only warnings about lost data are printed.
    """

    mode: str | None = None
    dir: str | os.PathLike[str] | None = None
    project: str | None = None
    entity: str | None = None
    name: str | None = None
    notes: str | None = None
    tags: tuple[str, ...] | None = None
    run_id: str | None = None
    group: str | None = None
    job_type: str | None = None
    resume: bool | str | None = None
    console: str | None = None
    silent: bool | None = None
    durability: str | None = None
    dir_prefix: str | None = None
    strict: bool | None = None
    ranks: str | None = None
    label: str | None = None
    sample_interval: float | None = None
    disable_stats: bool | None = None
    disable_meta: bool | None = None

    def __init__(self, **given: Any) -> None:
        self.unknown: list[str] = []
        for name, value in given.items():
            own = _ALIASES.get(name, name)
            if own in Settings.__annotations__:
                setattr(self, own, value)
            else:
                self.unknown.append(name)

    def __repr__(self) -> str:
        given = {name: value for name in Settings.__annotations__ if (value := getattr(self, name)) is not None}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class Resolved(NamedTuple):
    """Settings with every value decided and checked."""

    mode: str
    root: Path
    project: str
    entity: str
    name: str
    notes: str
    tags: tuple[str, ...]
    run_id: str
    given_id: bool
    group: str
    job_type: str
    resume: bool
    console: str
    silent: bool
    durability: str
    dir_prefix: str
    strict: bool
    ranks: str
    label: str
    sample_interval: float
    disable_stats: bool
    disable_meta: bool
    resume_mode: str = ""
    """What was asked for: "" (nothing), "allow", "must", "never" or "auto"."""
    reinit: str = "default"
    quiet: bool = False
    disable_git: bool = False
    git_diff: bool = False
    save_code: bool = False
    sweep_id: str = ""
    host: str = ""
    """"" for the machine's own name, as with `program` and `username`."""
    program: str = ""
    username: str = ""
    file_transfer: str = "copy"
    copy_limit: int = 1 << 30
    """Bytes; larger files are linked."""
    ignore_globs: tuple[str, ...] = ()
    redact: frozenset[str] = PARTS
    """The parts that are redacted."""
    config_paths: tuple[str, ...] = ()
    sync_watch: bool = True
    log_guides: bool = True
    base_url: str = ""
    """Where the sync of an online run sends it, if the settings say it."""


def resolve(arguments: Settings, base: Settings | None = None, environ: Mapping[str, str] | None = None) -> Resolved:
    """Decide every setting.

    Args:
        arguments: given one by one, the strongest.
        base: given as a `Settings` object.
        environ: the environment; the process's own unless given.

    Raises:
        SettingsError: a value that its setting cannot have.
    """
    environ = os.environ if environ is None else environ

    def decide(name: str, default: Any, convert: Callable[[Any], Any]) -> Any:
        """The value of a setting, from the strongest source that has one."""
        for given in (arguments, base):
            value = getattr(given, name, None)
            if value is not None:
                return _converted(name, value, convert)
        variables, read = _ENVIRONMENT.get(name, ((), str))
        for variable in variables:
            if text := environ.get(variable):
                return _converted(variable, text, lambda value: convert(read(value)))
        return default

    def choice(*choices: str) -> Callable[[Any], str]:
        def choose(value: Any) -> str:
            if str(value).lower() in choices:
                return str(value).lower()
            raise ValueError(f"is none of {', '.join(choices)}")

        return choose

    disabled = any(_flag(environ.get(name, "")) for name in ("RUNFERRY_DISABLED", "WANDB_DISABLED"))
    mode = decide("mode", "disabled" if disabled else "offline", choice(*MODES, "shared"))
    console = decide("console", "off", str).lower()
    given_id = decide("run_id", None, _run_id)
    resume_mode = decide("resume", "", _resume_mode)
    return Resolved(
        mode={"dryrun": "offline", "shared": "online"}.get(mode, mode),
        root=decide("dir", None, _folder) or _folder("."),
        project=decide("project", "uncategorized", str),
        entity=decide("entity", "", str),
        name=decide("name", "", str),
        notes=decide("notes", "", str),
        tags=decide("tags", (), _tuple),
        run_id=new_id() if given_id is None else given_id,
        given_id=given_id is not None,
        group=decide("group", "", str),
        job_type=decide("job_type", "", str),
        resume=resume_mode in {"allow", "must", "auto"},
        resume_mode=resume_mode,
        console=console if console == "wrap" else "off",
        silent=decide("silent", False, _flag),
        durability=decide("durability", "normal", choice(*LEVELS)),
        dir_prefix=decide("dir_prefix", "run", choice("run", "offline-run")),
        strict=decide("strict", False, _flag),
        ranks=decide("ranks", "auto", choice(*RANKS)),
        label=decide("label", "", str),
        sample_interval=decide("sample_interval", 15.0, _interval),
        disable_stats=decide("disable_stats", False, _flag),
        disable_meta=decide("disable_meta", False, _flag),
    )


def _converted(source: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except Exception as error:  # whatever the value's type does when it is asked
        shown = repr(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
        raise SettingsError(f"{source}={shown} {error}") from None


def _resume_mode(value: Any) -> str:
    if isinstance(value, (bool, int)):
        return "auto" if value else ""
    return str(value).lower() if str(value).lower() in _RESUME else ""


def _run_id(value: Any) -> str:
    run_id = str(value)
    if not valid_run_id(run_id):
        raise ValueError("is no run id: 1 to 128 bytes of printable characters, none of : ; , # ? / \\ '")
    return run_id


def _folder(value: Any) -> Path:
    path = Path(value)
    with suppress(FileNotFoundError):  # the working directory was removed: the log cannot be made, and says so
        path = path.absolute()
    if "\0" in str(path):
        raise ValueError("is no path")
    return path


def _tuple(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value)


def _interval(value: Any) -> float:
    seconds = float(value)
    if not 0.1 <= seconds <= 1e6:  # as the sampler has it; NaN fails too
        raise ValueError("is no number of seconds from 0.1 to 1,000,000")
    return seconds


def new_id() -> str:
    """A run id that no seeding of random numbers repeats."""
    number = int.from_bytes(os.urandom(16), "big")  # 128 bits on 41: the bias of the remainder is beyond measure
    letters = []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(ID_CHARACTERS))
        letters.append(ID_CHARACTERS[digit])
    return "".join(letters)
