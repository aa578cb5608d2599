"""A callback for the `Trainer` of Hugging Face transformers: its logs, arguments and model configuration as a run.

Metrics have the names that the Trainer's own integrations give them, so that charts and scripts go on to fit:
`train/loss`, `eval/loss`, `test/loss`, each with `train/global_step` as its step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found]

from ..api import current_run, init
from ..run import Run

_PROJECT = "huggingface"
_OF_THE_WHOLE = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
"""Logged once, at the end of training: values of the run, not of a step."""


class RunferryCallback(TrainerCallback):  # type: ignore[misc]
    """Logs what a Trainer logs: `Trainer(..., callbacks=[RunferryCallback()])`, with `report_to="none"`.

    The run is the one given, else the current one, else a new one. It stays open for later calls of `evaluate`,
    `predict` and `train`, until `finish()` or the end of the program; each trial of a hyperparameter search is a run
    of its own.
    """

    def __init__(self, run: Run | None = None, **settings: Any) -> None:
        """Nothing begins before training does.

        Args:
            run: where to log.
            settings: arguments of `runferry.init`, if it is called. The name is `TrainingArguments.run_name` and the
                project "huggingface" unless they or the environment say otherwise.
        """
        self._run = run
        self._settings = settings
        self._described = False

    def on_train_begin(self, args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
        """The run begins, and its config says what is trained and how."""
        if state.is_hyper_param_search and self._run is not None:
            self._run.finish()
            self._run, self._described = None, False
        self._describe(args, state, model)

    def on_log(self, args: Any, state: Any, _control: Any, model: Any = None, logs: Any = None, **_: Any) -> None:
        """A row; totals of the whole training go to the summary."""
        run = self._describe(args, state, model)
        if not state.is_world_process_zero:
            return
        logs = logs or {}
        for name in _OF_THE_WHOLE:
            if name in logs:
                run.summary[name] = logs[name]
        row = renamed({name: value for name, value in logs.items() if name not in _OF_THE_WHOLE})
        run.log(row | {"train/global_step": state.global_step})

    def on_predict(self, args: Any, state: Any, _control: Any, metrics: Mapping[str, Any], **_: Any) -> None:
        """A row of test metrics."""
        run = self._describe(args, state, None)
        if state.is_world_process_zero:
            run.log(renamed(metrics))

    def _begin(self, args: Any, state: Any) -> Run:
        """Every process begins it: ranks beyond 0 record their node's system metrics, or nothing."""
        if (run := self._run or current_run()) is not None:
            return run
        given = {name: value for name, value in self._settings.items() if value is not None}
        if not (os.environ.get("RUNFERRY_PROJECT") or os.environ.get("WANDB_PROJECT")):
            given.setdefault("project", _PROJECT)
        if state.trial_name is not None:
            given = {"group": args.run_name or args.output_dir} | given | {"name": state.trial_name}
        elif args.run_name is not None:
            given.setdefault("name", args.run_name)
        return init(**given)

    def _describe(self, args: Any, state: Any, model: Any) -> Run:
        if self._run is None or not self._described:
            self._run, self._described = self._begin(args, state), True
            if state.is_world_process_zero:
                self._run.config.update(config_of(args, model), allow_val_change=True)
                self._run.define_metric("train/global_step")
                self._run.define_metric("*", step_metric="train/global_step", step_sync=True)
        return self._run


def renamed(logs: Mapping[str, Any]) -> dict[str, Any]:
    """`eval_loss` is `eval/loss`, `test_loss` is `test/loss`, and `loss` is `train/loss`."""
    row = {}
    for name, value in logs.items():
        kind, _, rest = name.partition("_")
        row[f"{kind}/{rest}" if rest and kind in {"eval", "test"} else f"train/{name}"] = value
    return row


def config_of(args: Any, model: Any) -> dict[str, Any]:
    """The configuration of model and adapters, the training arguments over it (tokens are masked), and the size."""
    config: dict[str, Any] = {}
    adapters = getattr(model, "peft_config", None)
    if adapters is not None:
        config["peft_config"] = {
            name: getattr(each, "to_dict", lambda each=each: each)() for name, each in adapters.items()
        }
    of_model = getattr(model, "config", None)
    if of_model is not None:
        config |= of_model if isinstance(of_model, dict) else of_model.to_dict()
    config |= args.to_dict()
    if hasattr(model, "num_parameters"):
        config["model/num_parameters"] = model.num_parameters()
    return config
