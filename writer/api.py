"""The drop-in face: one current run per process, and functions that speak to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import CommError, NoRunError, UsageError
from .mappings import Config, Summary, selected, values_of
from .notebook import in_notebook
from .ranks import Role, rank_of
from .report import FinishReport, say, warn_on_stderr
from .run import Run
from .settings import Settings, resolve, tell

if TYPE_CHECKING:
    from .metrics import MetricDefinition

_current: Run | None = None
_assigned: dict[Any, Any] = {}
"""What was assigned to `runferry.config` without a run: the next one's."""


def init(  # noqa: PLR0917 - the peer's signature, as far as it is there
    entity: str | None = None,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - the peer's name
    id: str | None = None,  # noqa: A002 - the peer's name
    name: str | None = None,
    notes: str | None = None,
    tags: Iterable[str] | str | None = None,
    config: Any = None,
    *,
    group: str | None = None,
    job_type: str | None = None,
    resume: bool | str | None = None,
    mode: str | None = None,
    reinit: bool | str | None = None,
    durability: str | None = None,
    console: str | None = None,
    strict: bool | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    **others: Any,
) -> Run:
    """Begin a run and make it the current one.

    A setting that is not given here comes from `settings`, then from RUNFERRY_* and WANDB_* variables, then from
    settings files, then from its default (docs/settings.md).

    Args:
        project: where the run belongs.
        entity: whose project it is.
        name: how the run is shown.
        id: the run's id; a random one unless given.
        group: runs shown together.
        job_type: what the run does within its group.
        tags: labels.
        notes: free text.
        config: a mapping, a dataclass, absl's flags, the path of a JSON or YAML file, or an object with attributes
            such as `argparse.Namespace`.
        dir: where the folder `wandb` goes.
        resume: "allow" goes on behind the logs of the run `id` in this folder, if there are any, "must" warns if there
            are none, and "never" takes it for an error if there are. "auto" (or true) finds the run by itself: a
            restarted Slurm or torchrun job's, else the last one that was cut off. docs/resume.md tells the rest.
        mode: "offline", "disabled", "dryrun" or "online".
        reinit: what to do with a current run: True or "finish_previous" finishes it, "create_new" leaves it alone,
            False or "return_previous" returns it; unless given it is returned, and in a notebook finished.
        durability: "relaxed", "normal", "record" or "disk".
        console: "wrap" logs what is written to sys.stdout and sys.stderr, "redirect" all that the process and its
            children print, "off" (the default) nothing.
        strict: raise for values that cannot be logged.
        settings: the same and more, as `Settings` or a mapping.
        others: `config_include_keys` or `config_exclude_keys`, the config's top-level names that are wanted or not;
            further settings by name; what has no meaning here is named once.

    Raises:
        SettingsError: a setting that cannot have its value.
        UnloggableError: `config` has no names and values.
        UsageError: `resume`, or the wanted names of the config, ask for what cannot be.
    """
    global _current, _assigned
    arguments = Settings(
        project=project,
        entity=entity,
        name=name,
        run_id=id,
        group=group,
        job_type=job_type,
        tags=tags,
        notes=notes,
        dir=dir,
        resume=resume,
        mode=mode,
        durability=durability,
        console=console,
        strict=strict,
        reinit=reinit,
    )
    config = selected(config, others.pop("config_include_keys", None), others.pop("config_exclude_keys", None))
    for other, value in others.items():
        setattr(arguments, other, value)
    resolved = resolve(arguments, settings)
    going_on = _current is not None and not _current.finished and not _current.inherited
    if _current is not None and going_on and resolved.reinit != "create_new":
        if resolved.reinit != "finish_previous" and not (resolved.reinit == "default" and in_notebook()):
            if not _current.settings.silent:
                say(
                    f"run {_current.id} goes on: init in the middle of a run gives that run (reinit=True ends it first)"
                )
            return _current
        _current.finish()
    role = Role.FULL if resolved.ranks == "all" else rank_of(os.environ).role
    if role is Role.FULL:  # once for a job, however many processes it has
        tell(resolved, warn_on_stderr)
    from .. import __version__

    start = None
    if resolved.resume_mode or resolved.given_id or resolved.ranks == "all":
        from .resume import begin

        start = begin(resolved, os.environ, role)
        resolved = start.settings
    if _assigned:
        config = _assigned if config is None else {**_assigned, **values_of(config)}
    run = Run(resolved, config, role=role, behind=start.behind if start else None, version=__version__)
    if resolved.strict and not run.disabled and run.log_path is None:
        run.finish(1)
        raise UsageError(f"strict: no log could be made in {resolved.root}; a warning above says why")
    _current, _assigned = run, {}
    if not resolved.silent and not run.disabled:
        if run.log_path and resolved.talks:
            say(f"logging run {run.id} to {run.log_path}")
        if start is not None:
            for warning in start.warnings:
                warn_on_stderr(warning)
            for note in start.notes if resolved.talks else ():
                say(note)
    return run


def _required(what: str) -> Run:
    if _current is None:
        raise NoRunError(f"runferry.{what} needs a run: call runferry.init() first")
    return _current


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
    """Log one row of metrics to the current run; see `Run.log`.

    Raises:
        NoRunError: there was no `init`.
    """
    if _current is None:
        _required("log")
        return
    _current.log(data, step, commit)


def finish(exit_code: int | None = None) -> FinishReport | None:
    """End the current run; see `Run.finish`. None if there is none."""
    global _current
    run, _current = _current, None
    return None if run is None else run.finish(exit_code)


join = finish


def define_metric(name: str, *args: Any, **kwargs: Any) -> MetricDefinition:
    """Say how a metric of the current run is drawn and summarised; see `Run.define_metric`.

    Raises:
        NoRunError: there was no `init`.
    """
    return _required("define_metric").define_metric(name, *args, **kwargs)


def _of_the_run(name: str) -> Callable[..., Any]:
    """The current run's method of that name, as a function of this module."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return getattr(_required(name), name)(*args, **kwargs)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"""`Run.{name}` of the current run. Raises NoRunError if there was no `init`."""
    return forward


alert = _of_the_run("alert")
save = _of_the_run("save")
restore = _of_the_run("restore")
log_artifact = _of_the_run("log_artifact")
log_model = _of_the_run("log_model")
log_code = _of_the_run("log_code")
use_artifact = _of_the_run("use_artifact")
use_model = _of_the_run("use_model")
link_artifact = _of_the_run("link_artifact")
link_model = _of_the_run("link_model")
mark_preempting = _of_the_run("mark_preempting")
watch = _of_the_run("watch")
unwatch = _of_the_run("unwatch")
pin_config_keys = _of_the_run("pin_config_keys")


def login(*_args: Any, **_options: Any) -> bool:
    """True: writing needs no key. `runferry sync` takes it from the environment or netrc; none is stored here."""
    return True


def setup(*_args: Any, **_options: Any) -> None:
    """Nothing to set up: there is no service beside the process."""


def teardown(exit_code: int | None = None) -> None:
    """Finish the current run, if there is one."""
    finish(exit_code)


def require(*_args: Any, **_options: Any) -> None:
    """Nothing to require: no feature is behind a switch."""


def sweep(*_args: Any, **_options: Any) -> NoReturn:
    """Not supported.

    Raises:
        CommError: always; a sweep's parameters are handed out by a server.
    """
    raise CommError("sweeps need a server that hands out parameters; log each trial as a run with a `group` instead")


agent = sweep


def attach(*_args: Any, **_options: Any) -> NoReturn:
    """Not supported.

    Raises:
        UsageError: always; one process writes a log.
    """
    raise UsageError("a run belongs to the process that began it: begin a run of the same id or group here instead")


def termlog(string: str = "", **_options: Any) -> None:
    """Print one line on stderr."""
    say(string)


def termwarn(string: str, **_options: Any) -> None:
    """Print one line on stderr that is not to be missed."""
    warn_on_stderr(string)


def termerror(string: str, **_options: Any) -> None:
    """Print one line on stderr that tells of an error."""
    say(f"ERROR {string}")


class AlertLevel(str, Enum):
    """How urgent an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class _BeforeInit:
    """Stands for the config or summary of a run that is not there yet: whatever is done to it says so."""

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "_what", what)

    def _refuse(self, *_: Any) -> NoReturn:
        raise NoRunError(f"runferry.{object.__getattribute__(self, '_what')} needs a run: call runferry.init() first")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspection asks of every object
            raise AttributeError(name)
        self._refuse()

    __setattr__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _refuse

    def __repr__(self) -> str:
        return f"<runferry.{object.__getattribute__(self, '_what')} before init>"


def current_run() -> Run | None:
    """`runferry.run`: the current run; None before `init` and after `finish`."""
    return None if _current is None or _current.finished else _current


def current_config() -> Config | _BeforeInit:
    """`runferry.config`: the current run's."""
    return _BeforeInit("config") if _current is None else _current.config


def assign_config(values: Any) -> None:
    """`runferry.config = values`: adds to the current run's, or to that of the run that begins next."""
    global _assigned
    if isinstance(values, (_BeforeInit, Config)):  # put back by who had replaced it
        return
    if current_run() is None:
        _assigned = values_of(values)
    else:
        _required("config").config.update(values)


def assign_summary(values: Any) -> None:
    """`runferry.summary = values`: adds to the current run's.

    Raises:
        NoRunError: there was no `init`.
    """
    if not isinstance(values, _BeforeInit):
        _required("summary").summary = values


def current_summary() -> Summary | _BeforeInit:
    """`runferry.summary`: the current run's."""
    return _BeforeInit("summary") if _current is None else _current.summary
