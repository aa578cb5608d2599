"""Loggers for training frameworks, against stand-ins for the frameworks; real ones train in `peer/test_training.py`."""

from __future__ import annotations

import argparse
import importlib
import math
import pickle
import subprocess
import sys
import types
from types import SimpleNamespace

import pytest
import runferry
from runferry.logformat import load

QUIET = {"silent": True, "disable_stats": True, "disable_meta": True}


def module(monkeypatch, name, **contents):
    monkeypatch.setitem(sys.modules, name, made := types.ModuleType(name))
    vars(made).update(contents)


@pytest.fixture
def fresh(monkeypatch):
    """Imports one of our modules anew, and forgets it afterwards."""

    def fresh(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        found = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, name, found)
        return found

    return fresh


# -- Hugging Face ----------------------------------------------------------------------------------------------------


@pytest.fixture
def callback(monkeypatch, fresh, tmp_path):
    """Makes a callback whose runs go to `tmp_path`."""
    module(monkeypatch, "transformers", TrainerCallback=type("TrainerCallback", (), {}))
    made = fresh("runferry.writer.integrations.huggingface").RunferryCallback
    return lambda **settings: made(dir=tmp_path, settings=QUIET, **settings)


class Arguments(SimpleNamespace):
    """The part of `TrainingArguments` that is asked."""

    def __init__(self, **given):
        super().__init__(**{"run_name": None, "output_dir": "out", "lr": 0.1, "dropout": 0.5, **given})

    def to_dict(self):
        return vars(self)


def trainer_state(**given):
    return SimpleNamespace(
        **{"is_world_process_zero": True, "is_hyper_param_search": False, "trial_name": None, "global_step": 0, **given}
    )


MODEL = SimpleNamespace(
    config=SimpleNamespace(to_dict=lambda: {"layers": 2, "dropout": 0.0}),
    peft_config={"default": SimpleNamespace(to_dict=lambda: {"rank": 8})},
    num_parameters=lambda: 42,
)


def finished():
    """The state of the current run, which ends."""
    return load(runferry.finish().paths[0])


def test_a_trainer_is_a_run(callback):
    """Config of model, adapters and arguments; rows by kind, with the global step; totals in the summary; predictions."""
    ours = callback()
    ours.on_train_begin(Arguments(run_name="bert"), trainer_state(), None, model=MODEL)
    for step, logs in [(5, {"loss": 2.0, "epoch": 0.5}), (10, {"eval_loss": 1.0, "eval_a_b": 3, "epoch": 1})]:
        ours.on_log(Arguments(), trainer_state(global_step=step), None, logs=logs)
    ours.on_log(Arguments(), trainer_state(global_step=10), None, logs={"train_runtime": 3.5, "total_flos": 1e9})
    ours.on_predict(Arguments(), trainer_state(), None, {"test_loss": 4.0})
    state = finished()
    rows = [{key: value for key, value in row.items() if key[0] != "_"} for row in state.rows]

    assert (state.info.project, state.info.display_name) == ("huggingface", "bert")
    assert state.config["dropout"] == 0.5, "the arguments stand over the model"
    assert (state.config["layers"], state.config["peft_config"]) == (2, {"default": {"rank": 8}})
    assert state.config["model/num_parameters"] == 42
    assert rows == [
        {"train/loss": 2, "train/epoch": 0.5, "train/global_step": 5},
        {"eval/loss": 1, "eval/a_b": 3, "train/epoch": 1, "train/global_step": 10},
        {"train/global_step": 10},
        {"test/loss": 4, "train/global_step": 10},
    ]
    assert (state.summary["train_runtime"], state.summary["total_flos"]) == (3.5, 1e9)
    assert [(metric.name, metric.glob_name, metric.step_metric) for metric in state.metrics] == [
        ("train/global_step", "", ""),
        ("", "*", "train/global_step"),
    ]


def test_a_callback_logs_to_the_run_that_is_there(callback, tmp_path):
    """The current run, or the one that it was given; a second training goes on in it."""
    run = runferry.init(project="own", dir=tmp_path, settings=QUIET)
    ours = callback(project="other")
    for step in (1, 2):
        ours.on_train_begin(Arguments(), trainer_state(), None, model=MODEL)
        ours.on_log(Arguments(), trainer_state(global_step=step), None, logs={"loss": step})
    given = callback(run=run)
    given.on_log(Arguments(), trainer_state(global_step=3), None, logs={"loss": 3})
    state = finished()

    assert (state.info.run_id, state.info.project) == (run.id, "own")
    assert [row["train/loss"] for row in state.rows] == [1, 2, 3]


def test_each_trial_of_a_search_is_a_run(callback, tmp_path):
    """Named by the trial, in a group of their own."""
    ours = callback()
    for trial in ("run-0", "run-1"):
        state = trainer_state(is_hyper_param_search=True, trial_name=trial)
        ours.on_train_begin(Arguments(run_name="search"), state, None, model=None)
        ours.on_log(Arguments(run_name="search"), state, None, logs={"loss": 1})
    runferry.finish()
    infos = [load(log).info for log in tmp_path.glob("wandb/run-*/run-*.wandb")]

    assert {(info.display_name, info.group) for info in infos} == {("run-0", "search"), ("run-1", "search")}


def test_other_processes_of_a_trainer_log_nothing(callback, monkeypatch, tmp_path):
    """Rank 1 of a launcher begins no log of rows."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    ours = callback()
    elsewhere = trainer_state(is_world_process_zero=False)
    ours.on_train_begin(Arguments(), elsewhere, None, model=MODEL)
    ours.on_log(Arguments(), elsewhere, None, logs={"loss": 1, "train_runtime": 1})
    ours.on_predict(Arguments(), elsewhere, None, {"test_loss": 1})
    runferry.finish()

    assert list(tmp_path.rglob("*.wandb")) == []


@pytest.mark.parametrize(
    ("settings", "environ", "project"),
    [
        ({}, {}, "huggingface"),
        ({"project": "mine"}, {"WANDB_PROJECT": "theirs"}, "mine"),
        ({}, {"WANDB_PROJECT": "theirs"}, "theirs"),
        ({}, {"RUNFERRY_PROJECT": "ours"}, "ours"),
    ],
)
def test_the_project_of_a_trainer(callback, monkeypatch, settings, environ, project):
    """An argument goes before the environment, and that before the name of the library."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    callback(**settings).on_train_begin(Arguments(), trainer_state(), None, model=None)

    assert runferry.run.project == project


# -- Lightning -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def lightning(request, monkeypatch, fresh):
    """Our module, with a stand-in for the library under either of its names."""

    def rank_zero_only(call):
        return lambda *args, **kwargs: None if rank_zero_only.rank else call(*args, **kwargs)

    rank_zero_only.rank = 0
    for absent in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, absent, None)
    package = request.param
    for name in (package.partition(".")[0], package, f"{package}.loggers"):
        module(monkeypatch, name)
    contents = {"DummyExperiment": type("DummyExperiment", (), {}), "Logger": type("Logger", (), {})}
    module(monkeypatch, f"{package}.loggers.logger", **contents)
    module(monkeypatch, f"{package}.utilities", rank_zero_only=rank_zero_only)
    return fresh("runferry.writer.integrations.lightning")


def test_a_lightning_trainer_is_a_run(lightning, tmp_path):
    """Hyperparameters, rows with the global step, a prefix; begun when needed, open until `finish`."""
    logger = lightning.RunferryLogger(project="lines", version="abc", save_dir=tmp_path, prefix="m", settings=QUIET)
    assert (logger.name, logger.version, logger.save_dir) == ("lines", "abc", str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    logger.log_hyperparams(argparse.Namespace(lr=0.1, act=math.sin, kind=dict))
    logger.log_hyperparams({"lr": 0.2, "nested": {"a": 1}})
    logger.log_metrics({"loss": 1.5, "epoch": 0}, step=7)
    logger.log_metrics({"loss": 1.0})
    logger.finalize("success")
    logger.log_metrics({"loss": 0.5}, 9)
    state = finished()
    rows = [{key: value for key, value in row.items() if key[0] != "_"} for row in state.rows]

    assert (state.info.run_id, state.info.project) == ("abc", "lines")
    assert {key: state.config[key] for key in ("lr", "act", "kind", "nested")} == {
        "lr": 0.2,
        "act": "sin",
        "kind": "dict",
        "nested": {"a": 1},
    }
    assert rows == [
        {"m-loss": 1.5, "m-epoch": 0, "trainer/global_step": 7},
        {"m-loss": 1, "trainer/global_step": 7},
        {"m-loss": 0.5, "trainer/global_step": 9},
    ]


def test_tables_of_a_lightning_module(lightning, tmp_path):
    """As in Lightning's own loggers; a caption for each image or an error."""
    logger = lightning.RunferryLogger(save_dir=tmp_path, settings=QUIET)
    logger.log_table("t", columns=["a"], data=[[1]], step=3)
    logger.log_text("words", ["w"], [["x"]])
    with pytest.raises(ValueError, match="caption: 1 items for 2 images"):
        logger.log_image("i", [b"", b""], caption=["one"])
    state = finished()

    assert [row.get("t", row.get("words"))["_type"] for row in state.rows] == ["table-file"] * 2
    assert state.info.project == "lightning_logs"


def test_a_logger_in_another_process_goes_on_in_a_log_of_its_own(lightning, tmp_path, monkeypatch):
    """Pickled, it forgets the open run and keeps its id."""
    monkeypatch.setattr(lightning.RunferryLogger, "__reduce_ex__", object.__reduce_ex__)
    logger = lightning.RunferryLogger(save_dir=tmp_path, settings=QUIET)
    logger.log_metrics({"loss": 1}, 1)
    copy = pickle.loads(pickle.dumps(logger))
    run_id = logger.version
    runferry.finish()
    copy.log_metrics({"loss": 2}, 2)
    runferry.finish()
    logs = list(tmp_path.glob("wandb/run-*/run-*.wandb"))

    assert copy.version == run_id
    assert {load(log).info.run_id for log in logs} == {run_id}
    assert sorted(load(log).summary["loss"] for log in logs) == [1, 2]


def test_processes_that_no_launcher_numbered_log_nothing(lightning, tmp_path):
    """Lightning itself starts further processes: they get an object that does nothing, and no log."""
    lightning.rank_zero_only.rank = 1
    logger = lightning.RunferryLogger(save_dir=tmp_path, settings=QUIET)
    logger.log_metrics({"loss": 1}, 1)
    logger.log_hyperparams({"a": 1})

    assert type(logger.experiment).__name__ == "DummyExperiment"
    assert list(tmp_path.iterdir()) == []


def test_a_logger_uses_the_current_run(lightning, tmp_path):
    """No second run beside one that is open."""
    run = runferry.init(project="own", dir=tmp_path, settings=QUIET)
    logger = lightning.RunferryLogger()

    assert logger.experiment is run
    assert (logger.name, logger.version) == ("own", run.id)


def test_no_framework_is_imported_before_it_is_asked_for():
    """Neither with the package nor with the folder of loggers."""
    program = (
        "import sys, runferry, runferry.writer, runferry.writer.integrations\n"
        "print([name for name in ('torch', 'transformers', 'lightning', 'pytorch_lightning') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
