"""What a run does with artifacts: the public half of `Run` that logs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import CommError

if TYPE_CHECKING:
    from .artifact import Artifact
    from .pump import Job
    from .runfiles import RunFiles
    from .settings import Resolved

_PathText = str | os.PathLike[str]
FEATURE_ARTIFACT_INCREMENTAL = 10
"""Telemetry's number of it."""


class ArtifactMethods:
    """Mixed into `Run`, which owns the attributes named here."""

    if TYPE_CHECKING:

        def _submit(self, job: Job) -> None: ...
        def _note(self, *features: int) -> None: ...
        def _log_refused(self) -> None: ...
        def _secure_files(self) -> None: ...
        def _warn_once(self, topic: str, text: str) -> None: ...

        @property
        def _files(self) -> RunFiles: ...

    _settings: Resolved
    _takes_rows: bool
    _warn: Callable[[str], None]

    @property
    def file_store(self) -> RunFiles | None:
        """Where contents of artifacts go while they are put together; None as long as there is no place for them."""
        if not self._takes_rows:
            return None
        files = self._files
        try:
            files.directory  # noqa: B018 - asks whether there is one
        except OSError:
            return None
        return files

    def log_artifact(
        self,
        artifact_or_path: Artifact | _PathText,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the peer's name
        aliases: Iterable[str] | str | None = None,
        tags: Iterable[str] | str | None = None,
    ) -> Artifact:
        """Log an artifact as an output of the run.

        When this returns, its contents are in the run's directory. A disk that does not take them raises nothing: the
        log then says where they lie, and a warning names them.

        Args:
            artifact_or_path: an artifact; or a file, a folder or a URI, of which one is made.
            name: what that one is called; `run-<id>-<its own name>` unless given.
            type: what it is; "unspecified" unless given.
            aliases: names of this version; "latest" always is one.
            tags: labels of this version.

        Raises:
            ValueError: nothing is at the path, or a name, alias or tag is one that no backend takes.
            TypeError: it is neither an artifact nor a path.
        """
        return self._log_artifact(artifact_or_path, name, type, aliases, tags)

    def log_model(
        self, path: _PathText, name: str | None = None, aliases: Iterable[str] | str | None = None
    ) -> Artifact:
        """Log a file, a folder or a URI as an artifact of type "model"; otherwise as `log_artifact`."""
        return self._log_artifact(path, name, "model", aliases)

    def upsert_artifact(
        self,
        artifact_or_path: Artifact | _PathText,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the peer's name
        aliases: Iterable[str] | str | None = None,
        distributed_id: str | None = None,
    ) -> Artifact:
        """Log a part of an artifact that several processes fill, and one of them ends with `finish_artifact`.

        Args:
            artifact_or_path: as for `log_artifact`, and so are the next three.
            name: see there.
            type: see there.
            aliases: see there.
            distributed_id: what these processes have in common; the run's group unless given.

        Raises:
            TypeError: there is neither a group nor a `distributed_id`.
            ValueError: as for `log_artifact`.
        """
        shared = self._distributed_id(distributed_id)
        return self._log_artifact(artifact_or_path, name, type, aliases, distributed_id=shared, finalize=False)

    def finish_artifact(
        self,
        artifact_or_path: Artifact | _PathText,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - the peer's name
        aliases: Iterable[str] | str | None = None,
        distributed_id: str | None = None,
    ) -> Artifact:
        """Log the last part of an artifact that several processes fill; otherwise as `upsert_artifact`."""
        shared = self._distributed_id(distributed_id)
        return self._log_artifact(artifact_or_path, name, type, aliases, distributed_id=shared)

    def use_artifact(
        self,
        artifact_or_name: Artifact | str,
        type: str | None = None,  # noqa: A002, ARG002 - the peer's signature
        aliases: Iterable[str] | str | None = None,
        use_as: str | None = None,  # noqa: ARG002 - has no meaning in the peer either
    ) -> Artifact:
        """Log an artifact as an input of the run.

        Args:
            artifact_or_name: an artifact put together here.
            type: of one that a backend has.
            aliases: names of this version.
            use_as: ignored.

        Raises:
            TypeError: it is a name: only a backend knows what is behind that.
        """
        if isinstance(artifact_or_name, str):
            raise TypeError(
                f"use_artifact({artifact_or_name!r}): this process is offline, and only a backend knows what is behind"
                " a name; download it before the run, and pass an Artifact of its files or of a reference to them"
            )
        return self._log_artifact(artifact_or_name, aliases=aliases, user_created=True, use_after_commit=True)

    def link_artifact(
        self, artifact: Artifact, target_path: str, aliases: Iterable[str] | str | None = None
    ) -> NoReturn:
        """Log the artifact, as the peer does, and then say that it was not linked.

        Args:
            artifact: it.
            target_path: the collection that it was to be linked to.
            aliases: not used, for they are names in that collection.

        Raises:
            NotImplementedError: always.
        """
        del aliases
        if not artifact.logged:
            self._log_artifact(artifact)
        self._refuse_link(artifact.name, target_path)

    def link_model(
        self,
        path: _PathText,
        registered_model_name: str,
        name: str | None = None,
        aliases: Iterable[str] | str | None = None,
    ) -> NoReturn:
        """Log the model, and then say that it was not linked; as `link_artifact`."""
        del aliases
        artifact = self._log_artifact(path, name, "model")
        self._refuse_link(artifact.name, registered_model_name)

    def use_model(self, name: str) -> NoReturn:
        """Not possible offline.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"use_model({name!r}): this process is offline, and there is nothing to download it from")

    def restore(self, name: str, *_args: Any, **_options: Any) -> NoReturn:
        """Not possible offline.

        Raises:
            CommError: always.
        """
        raise CommError(
            f"restore({name!r}): this process is offline, and there is no backend to get the file from; the files of"
            " earlier runs on this machine lie in their directories, under files/"
        )

    # -- helpers -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _refuse_link(name: str, target: str) -> NoReturn:
        raise NotImplementedError(
            f"artifact {name} is logged, and not linked to {target!r}: the log's format cannot say it offline;"
            " link it where the backend is, after a sync"
        )

    def _distributed_id(self, given: str | None) -> str:
        shared = given or self._settings.group
        if not shared:
            raise TypeError("an artifact that several processes fill needs a distributed_id, or a run in a group")
        return shared

    def _log_artifact(
        self,
        artifact_or_path: Artifact | _PathText,
        name: str | None = None,
        type_: str | None = None,
        aliases: Iterable[str] | str | None = None,
        tags: Iterable[str] | str | None = None,
        *,
        distributed_id: str = "",
        finalize: bool = True,
        user_created: bool = False,
        use_after_commit: bool = False,
    ) -> Artifact:
        from .artifact import Artifact
        from .artifact_checks import checked_aliases, checked_metadata, checked_tags

        named, labels = checked_aliases(aliases), checked_tags(tags)
        if isinstance(artifact_or_path, Artifact):
            artifact = artifact_or_path
        elif isinstance(artifact_or_path, (str, os.PathLike)):
            artifact = self._artifact_of(artifact_or_path, name, type_ or "unspecified")
        else:
            raise TypeError(f"log_artifact takes an Artifact or a path, not {type(artifact_or_path).__name__}")
        if not artifact.logged:
            named, labels = checked_aliases([*artifact.aliases, *named]), checked_tags([*artifact.tags, *labels])
        named = checked_aliases([*named, "latest"])
        metadata = checked_metadata(artifact.metadata)  # may have been changed since it was set
        if not self._takes_rows:
            self._log_refused()
            return artifact
        if artifact.incremental:
            self._note(FEATURE_ARTIFACT_INCREMENTAL)
        body = self._artifact_body(
            artifact,
            metadata=metadata,
            aliases=named,
            tags=labels,
            distributed_id=distributed_id,
            finalize=finalize,
            user_created=user_created,
            use_after_commit=use_after_commit,
        )
        self._secure_files()
        self._submit(lambda recorder: recorder.record(body, urgent=True))
        artifact.distributed_id = distributed_id or None
        artifact.mark_logged(named, labels)
        return artifact

    def _artifact_of(self, path: _PathText, name: str | None, type_: str) -> Artifact:
        from .artifact import Artifact

        text = os.fspath(path)
        artifact = Artifact(name or f"run-{self._settings.run_id}-{os.path.basename(text)}", type_)  # noqa: PTH119 - "a/" has none, as in the peer
        local = Path(text)
        if not self._takes_rows:
            return artifact
        with artifact.filled_for(self.file_store):
            if local.is_file():
                artifact.add_file(local)
            elif local.is_dir():
                artifact.add_dir(local)
            elif "://" in text:
                artifact.add_reference(text)
            else:
                raise ValueError(f"{text!r} is not a file, a folder or a URI")
        return artifact

    def _artifact_body(self, artifact: Artifact, **said: Any) -> bytes:
        """The record, once the contents are in the run's directory."""
        from .artifact_record import MAX_INLINE_ENTRIES, artifact_body, manifest_digest, manifest_lines

        files = self._files
        entries = artifact.contents_in(files, self._warn)
        manifest_file = ""
        if len(entries) > MAX_INLINE_ENTRIES:
            try:
                manifest_file = str(files.keep(manifest_lines(entries)).path)
            except OSError as error:  # in the record itself then, if a record takes so many
                self._warn(f"artifact {artifact.name}: no file for its list of contents ({error.strerror or error})")
        return artifact_body(
            run_id=self._settings.run_id,
            project=self._settings.project,
            entity=self._settings.entity,
            name=artifact.name,
            type_=artifact.type,
            entries=() if manifest_file else entries,
            digest=manifest_digest(entries),
            description=str(artifact.description or ""),
            client_id=artifact.client_id,
            sequence_client_id=artifact.sequence_client_id,
            ttl_s=int(artifact.ttl.total_seconds()) if artifact.ttl else 0,
            incremental=artifact.incremental,
            manifest_file=manifest_file,
            **said,
        )
