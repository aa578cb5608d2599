"""A logger for PyTorch Lightning: the metrics and hyperparameters of a `Trainer` as a run.

Metrics keep their names, with `trainer/global_step` as their step, as Lightning's other loggers of this kind have it.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

try:
    from lightning.pytorch.loggers.logger import DummyExperiment, Logger  # type: ignore[import-not-found]
    from lightning.pytorch.utilities import rank_zero_only  # type: ignore[import-not-found]
except ImportError:  # the older name of the package
    from pytorch_lightning.loggers.logger import DummyExperiment, Logger  # type: ignore[import-not-found]
    from pytorch_lightning.utilities import rank_zero_only  # type: ignore[import-not-found]

from ..api import current_run, init
from ..ranks import Role, rank_of
from ..run import Run

_PROJECT = "lightning_logs"
_STEP = "trainer/global_step"


class RunferryLogger(Logger):  # type: ignore[misc]
    """Logs what a LightningModule logs: `Trainer(logger=RunferryLogger(project="digits"))`.

    The run is the one given, else the current one, else a new one, begun when it is first needed. It stays open for
    later calls of `fit`, `validate` and `test`, until `finish()` or the end of the program.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        save_dir: str | os.PathLike[str] | None = None,
        version: str | None = None,
        prefix: str = "",
        **settings: Any,
    ) -> None:
        """Nothing begins before it is needed.

        Args:
            run: where to log.
            save_dir: where the folder `wandb` goes; also where Lightning puts checkpoints.
            version: the run's id.
            prefix: put before the name of each metric, with a dash.
            settings: arguments of `runferry.init`, if it is called. The project is "lightning_logs" unless they or the
                environment say otherwise.
        """
        super().__init__()
        self._run = run
        self._prefix = prefix
        directory = settings.pop("dir", None) if save_dir is None else save_dir
        self._settings = settings | {"dir": directory, "id": version or settings.get("id"), "resume": "allow"}
        if not (os.environ.get("RUNFERRY_PROJECT") or os.environ.get("WANDB_PROJECT")):
            self._settings["project"] = settings.get("project") or _PROJECT

    @property
    def experiment(self) -> Any:
        """The `Run`. In a process that is not the first and that no launcher numbered: an object that does nothing."""
        if self._run is None:
            if rank_zero_only.rank and rank_of(os.environ).role is Role.FULL:
                return DummyExperiment()
            self._run = current_run()
            if self._run is None:
                self._run = init(**self._settings)
                self._run.define_metric(_STEP)
                self._run.define_metric("*", step_metric=_STEP, step_sync=True)
        return self._run

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """They go to the config; functions and classes by their bare names."""
        given = vars(params) if isinstance(params, Namespace) else dict(params)
        named = {name: getattr(value, "__name__", value) if callable(value) else value for name, value in given.items()}
        self.experiment.config.update(named, allow_val_change=True)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """One row."""
        row = {f"{self._prefix}-{name}" if self._prefix else name: value for name, value in metrics.items()}
        self.experiment.log(row if step is None else row | {_STEP: step})

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_image(self, key: str, images: list[Any], step: int | None = None, **each: list[Any]) -> None:
        """One row with a list of images (files, arrays, tensors or pictures of Pillow).

        Args:
            key: the name of the list.
            images: what `runferry.Image` takes.
            step: the global step.
            each: further arguments of `runferry.Image` such as `caption`, each a list with an item per image.

        Raises:
            ValueError: a list that has not an item for each image.
        """
        for name, values in each.items():
            if len(values) != len(images):
                raise ValueError(f"{name}: {len(values)} items for {len(images)} images")
        from ..media.image import Image

        arguments = [{name: values[index] for name, values in each.items()} for index in range(len(images))]
        self.log_metrics({key: [Image(image, **given) for image, given in zip(images, arguments, strict=True)]}, step)

    def log_table(
        self,
        key: str,
        columns: list[str] | None = None,
        data: Any = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """One row with a table, by columns and data or by a data frame."""
        from ..media.table import Table

        self.log_metrics({key: Table(columns=columns, data=data, dataframe=dataframe)}, step)

    log_text = log_table

    @rank_zero_only  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        """The end of a `fit` or `test`: what was logged is brought to the device; the run goes on."""
        del status
        if self._run is not None:
            self._run.flush()

    @property
    def save_dir(self) -> str | None:
        """Where the folder `wandb` is; None means the working directory."""
        directory = self._settings["dir"]
        return None if directory is None else os.fspath(directory)

    @property
    def name(self) -> str | None:
        """The project."""
        return self._run.project if self._run is not None else self._settings.get("project")

    @property
    def version(self) -> str | None:
        """The run's id, once it is known."""
        return self._run.id if self._run is not None else self._settings["id"]

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process goes on with the run in a log of its own."""
        state = self.__dict__.copy()
        if self._run is not None:
            state["_settings"] = self._settings | {"id": self._run.id, "project": self._run.project}
            state["_run"] = None
        return state
