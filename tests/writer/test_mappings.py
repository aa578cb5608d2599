"""`run.config` and `run.summary` as dicts that tell what is done to them."""

from __future__ import annotations

import argparse
import copy
import json
import pickle

import pytest
from runferry.writer.mappings import REMOVED, Config, Summary
from runferry.writer.values import UnloggableError


class Told:
    """What a mapping told, in order."""

    def __init__(self):
        self.changes = []

    def __call__(self, path, value):
        self.changes.append((".".join(path), "removed" if value is REMOVED else value))


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def config(told):
    config = Config(told)
    config.set_all({"lr": 0.1, "model": {"layers": 2, "deep": {"x": 1}}})
    return config


def test_what_init_was_given_is_not_a_change(config, told):
    """The first config goes with the run record."""
    assert told.changes == []
    assert config == {"lr": 0.1, "model": {"layers": 2, "deep": {"x": 1}}}


def test_changes_are_told_at_any_depth(config, told):
    """By item, by attribute, nested, removed."""
    config["a"] = 1
    config.b = (1, 2)
    config["model"]["layers"] = 3
    config.model.deep.x = 4
    config.model.deep["new"] = {"y": 5}
    config.model.deep.new.y = 6
    del config["lr"]
    del config.model.deep.x

    assert told.changes == [
        ("a", 1),
        ("b", [1, 2]),
        ("model.layers", 3),
        ("model.deep.x", 4),
        ("model.deep.new", {"y": 5}),
        ("model.deep.new.y", 6),
        ("lr", "removed"),
        ("model.deep.x", "removed"),
    ]
    assert config == {"model": {"layers": 3, "deep": {"new": {"y": 6}}}, "a": 1, "b": [1, 2]}


def test_every_dict_method_tells(config, told):
    """Nothing that a dict can do to itself goes unrecorded."""
    config.update({"u": 1}, v=2, allow_val_change=True)
    config |= {"w": 3}
    config.setdefault("lr", 9)
    config.setdefault("s", 4)
    config.setdefaults({"lr": 9, "t": 5})
    popped = config.pop("u"), config.pop("none", "default"), config.popitem()
    config.model.clear()

    assert popped == (1, "default", ("t", 5))
    assert [change for change in told.changes if change[1] != "removed"] == [
        ("u", 1),
        ("v", 2),
        ("w", 3),
        ("s", 4),
        ("t", 5),
    ]
    removed = [name for name, value in told.changes if value == "removed"]
    assert removed == ["u", "t", "model.layers", "model.deep"]


def test_it_is_a_dict_to_others(config):
    """json, copy and pickle see plain values; missing names raise as dicts and objects do."""
    assert json.loads(json.dumps(config)) == config.as_dict()
    for copied in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config)), config.copy()):
        assert type(copied) is dict
        assert type(copied["model"]) is dict
        assert copied == config
    with pytest.raises(KeyError):
        config["none"]
    with pytest.raises(AttributeError):
        _ = config.none
    with pytest.raises(AttributeError):
        del config.none
    assert not hasattr(config, "none")


def test_a_config_may_be_an_object_with_attributes(told):
    """`argparse.Namespace` and its like."""
    config = Config(told)
    config.set_all(argparse.Namespace(lr=0.1, run=print))

    assert config == {"lr": 0.1, "run": "builtins.print"}
    with pytest.raises(UnloggableError):
        config.set_all(5)


def test_the_summary_reads_what_the_rows_left(told):
    """Every way to read fetches first; what is set is told and stands until the next fetch."""
    trees = [{"loss": number, "n": {"a": number}} for number in range(20)]
    summary = Summary(told, lambda: trees.pop(0))
    seen = [summary["loss"], summary.get("loss"), summary.loss, dict(summary)["loss"]]
    seen += [list(summary), len(summary), "loss" in summary, repr(summary)[:8], next(iter(summary.items()))[0]]

    assert seen[:2] == [0, 1]
    assert len(trees) <= 11
    summary["best"] = 1
    summary["n"]["b"] = 2
    del summary["loss"]
    assert told.changes == [("best", 1), ("n.b", 2), ("loss", "removed")]
    with pytest.raises(UnloggableError):
        summary["x"] = object()


def test_a_summary_without_a_run_keeps_what_is_set(told):
    """A disabled run's summary is an ordinary dict."""
    summary = Summary(told, lambda: None)
    summary["a"] = {"b": 1}

    assert summary["a"]["b"] == 1
    assert summary == {"a": {"b": 1}}
