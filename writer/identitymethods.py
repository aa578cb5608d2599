"""What a run is called and what it was begun with: the half of `Run` that only says or changes that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import records
from .mappings import Config, Summary
from .settings import Resolved

if TYPE_CHECKING:
    from .identity import Identity
    from .pump import Job


class IdentityMethods:
    """Mixed into `Run`, which owns the attributes named here."""

    _settings: Resolved
    _identity: Identity
    _summary: Summary
    _warn_once: Callable[[str, str], None]

    if TYPE_CHECKING:

        def _submit(self, job: Job, *, wake: bool = True, wait: bool = True) -> None: ...
        def _note(self, *features: int) -> None: ...

    def _identify(self, feature: int, **changes: Any) -> None:
        self._identity.info = self._identity.info._replace(**changes)
        self._note(feature)
        body = self._identity.record()
        self._submit(lambda recorder: recorder.record(body, urgent=True))

    @property
    def config(self) -> Config:
        """The run's configuration: a dict whose changes are recorded."""
        return self._identity.config

    @property
    def summary(self) -> Summary:
        """The run's summary. What is assigned to it adds to it, as with `update`."""
        return self._summary

    @summary.setter
    def summary(self, values: Any) -> None:
        if values is not self._summary:
            self._summary.update(values)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._settings.run_id

    @property
    def name(self) -> str:
        """The display name; empty means that the backend makes one up."""
        return self._identity.info.name

    @name.setter
    def name(self, name: str | None) -> None:
        self._identify(records.FEATURE_RUN_NAME, name="" if name is None else str(name))

    @property
    def notes(self) -> str:
        """Free text."""
        return self._identity.info.notes

    @notes.setter
    def notes(self, notes: str | None) -> None:
        self._identify(records.FEATURE_RUN_NAME, notes="" if notes is None else str(notes))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags; the format cannot say that the last one was taken away."""
        return self._identity.info.tags

    @tags.setter
    def tags(self, tags: Iterable[str] | None) -> None:
        given = (tags,) if isinstance(tags, str) else tags or ()
        self._identify(records.FEATURE_RUN_TAGS, tags=tuple(str(tag) for tag in given))

    @property
    def project(self) -> str:
        """The project."""
        return self._settings.project

    @property
    def entity(self) -> str:
        """The entity; empty means the backend's default."""
        return self._settings.entity

    @property
    def group(self) -> str:
        """The group."""
        return self._settings.group

    @property
    def job_type(self) -> str:
        """The job type."""
        return self._settings.job_type

    @property
    def resumed(self) -> bool:
        """Whether earlier logs of the run are known, behind which it goes on."""
        return self._identity.behind is not None

    @property
    def starting_step(self) -> int:
        """The step of the first row that was logged without one."""
        return self._identity.behind.step if self._identity.behind else 0

    @property
    def path(self) -> str:
        """`entity/project/id`, as a backend names the run."""
        return "/".join(part for part in (self.entity, self.project, self.id) if part)

    @property
    def sweep_id(self) -> str | None:
        """The sweep that began the run, if one did."""
        return self._settings.sweep_id or None

    @property
    def start_time(self) -> float:
        """Seconds since the epoch."""
        return self._identity.info.start_ns / 1e9

    @property
    def settings(self) -> Resolved:
        """Every setting as it was decided."""
        return self._settings

    @property
    def offline(self) -> bool:
        """Whether nothing sends the run while it goes on."""
        return self._settings.mode != "online"

    @property
    def url(self) -> str | None:
        """None: only a backend gives a run its address."""
        return None

    project_url = sweep_url = url

    def get_url(self) -> str | None:
        """As `url`."""
        return self.url

    @property
    def config_static(self) -> dict[str, Any]:
        """A plain copy of the config."""
        return self.config.as_dict()

    def display(self, height: int = 420, hidden: bool = False) -> bool:  # noqa: ARG002 - the peer's signature
        """Whether a page of the run could be shown in a notebook: never, since it has no address."""
        return False

    def to_html(self, height: int = 420, hidden: bool = False) -> str:  # noqa: ARG002 - the peer's signature
        """The run in one line of HTML, for a notebook's cell."""
        import html

        return f"<code>{html.escape(self.path)}</code>"

    def watch(self, *_models: Any, **_options: Any) -> None:
        """Not supported: neither gradients nor weights are logged, and a warning says so."""
        self._warn_once("watch", "watch logs nothing here; log the histograms of your weights or gradients yourself")

    def unwatch(self, models: Any = None) -> None:
        """Nothing to undo; see `watch`."""

    def pin_config_keys(self, keys: Iterable[str] = ()) -> None:
        """Nothing here: which keys a page shows first is the page's affair."""
