"""Who the run is: its names, its config and its telemetry, as each segment of it begins with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import guides, records
from .config_files import config_from_files
from .encoding import to_json
from .guides import Guides
from .journal import Clock
from .mappings import REMOVED, Changed, Config
from .redaction import Redaction
from .settings import Resolved
from .values import Path

if TYPE_CHECKING:
    from .metrics import MetricDefinition

_MAX_CONFIG_VALUE_BYTES = 32 * 1024 * 1024
"""The whole config stands in one record."""
_MAX_INT32 = 2**31 - 1


class Behind(NamedTuple):
    """Where a run goes on that earlier logs hold the beginning of."""

    step: int = 0
    """Of the first row that is logged without one."""
    runtime_s: float = 0.0
    """Seconds that the run has taken before."""


class Identity:
    """What the log says of the run besides its rows. Changed on any thread; what changed comes back as records."""

    def __init__(
        self,
        settings: Resolved,
        config: Any,
        *,
        version: str,
        clock: Clock,
        changed: Changed,
        warn_once: Callable[[str, str], None],
        watch: Guides | None = None,
        behind: Behind | None = None,
    ) -> None:
        """Take over settings and config.

        Args:
            settings: every setting, decided.
            config: what `init(config=...)` was given, or None; stands over what files say.
            version: ours, for the log's header.
            clock: the time; now is the start of the run.
            changed: told of each change of the config.
            warn_once: takes a topic and one line for the user.
            watch: told the size of the config.
            behind: where the run goes on, if earlier logs of it are known.

        Raises:
            UnloggableError: `config` is neither a mapping nor an object with attributes.
        """
        self._version, self._clock, self._warn_once, self._watch = version, clock, warn_once, watch
        self._config_bytes = 0  # at most what the whole config has: a key that was set again counts again
        self.telemetry = records.Telemetry()
        self.info = records.RunInfo(
            run_id=settings.run_id,
            project=settings.project,
            entity=settings.entity,
            group=settings.group,
            job_type=settings.job_type,
            name=settings.name,
            notes=settings.notes,
            tags=settings.tags,
            sweep_id=settings.sweep_id,
            host=settings.host or _host(),
            start_ns=self._now_ns(),
            resume=settings.continues,
            starting_step=behind.step if behind else 0,
            runtime_s=min(int(behind.runtime_s), _MAX_INT32) if behind else 0,
        )
        self.behind = behind
        self.config = Config(changed)
        self.config.set_all(config_from_files(settings.config_paths, lambda line: warn_once(line, line)))
        if config is not None:
            self.config.set_all(config)
        self.redaction = Redaction(settings.redact)
        given = {
            records.FEATURE_INIT_NAME: settings.name,
            records.FEATURE_INIT_ID: settings.given_id,
            records.FEATURE_INIT_TAGS: settings.tags,
            records.FEATURE_INIT_CONFIG: self.config,
        }
        self.telemetry.features.update(number for number, value in given.items() if value)

    def opening(self, definitions: list[MetricDefinition] | None = None) -> list[bytes]:
        """The records that a segment begins with: each one tells the whole run.

        Args:
            definitions: given for a later segment, which its own start orders behind the earlier ones.
        """
        header = records.header(self._version)
        if definitions is None:
            return [header, self.record()]
        now_ns = self._now_ns()
        taken = self.info.runtime_s + max(0, now_ns - self.info.start_ns) // 10**9
        later = self.info._replace(resume=True, start_ns=now_ns, runtime_s=min(taken, _MAX_INT32))
        return [header, self._record(later), *(records.metric(definition) for definition in definitions)]

    def record(self) -> bytes:
        """The run record."""
        return self._record(self.info)

    def _record(self, info: records.RunInfo) -> bytes:
        config = [((name,), self._shown((name,), value)) for name, value in self.config.as_dict().items()]
        self._config_bytes = sum(len(text) for _, text in config)
        if self._watch is not None:
            self._watch.config(self._config_bytes)
        return records.run(info, config, self.telemetry.body())

    def config_change(self, path: Path, value: Any) -> list[bytes]:
        """The records for one change of the config: what stands there now, or `REMOVED`."""
        removal = records.config((), [path])
        if value is REMOVED:
            return [removal]
        text = self._shown(path, value)
        self._config_grew(len(text))
        update = records.config([(path, text)])
        # Readers merge dicts, so what a new dict no longer has must go first.
        return [removal, update] if isinstance(value, dict) else [update]

    def _config_grew(self, size: int) -> None:
        self._config_bytes += size
        if self._watch is not None and self._config_bytes > guides.MAX_CONFIG:
            self._config_bytes = len(to_json(self.config.as_dict()))
            self._watch.config(self._config_bytes)

    def _shown(self, path: Path, value: Any) -> bytes:
        """The value's JSON without secrets; what is left out is not searched."""
        text = self._json(path, value)
        shown = value if text == b"null" else self.redaction.config(path, value)
        return text if shown is value else self._json(path, shown)

    def _json(self, path: Path, value: Any) -> bytes:
        try:
            text = to_json(value)
            if len(text) <= _MAX_CONFIG_VALUE_BYTES:
                return text
            reason = f"{len(text) / 2**20:.0f} MiB of JSON"
        except (ValueError, RecursionError) as error:
            reason = str(error)
        self._warn_once(f"config {path}", f"config {'.'.join(path)} is left out: {reason}")
        return b"null"

    def _now_ns(self) -> int:
        return int(self._clock.time() * 1e9)


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
