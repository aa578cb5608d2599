"""`run.config` and `run.summary` as dicts that tell what is done to them."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import pickle
import threading

import pytest
from runferry.logformat import load
from runferry.writer.errors import UsageError
from runferry.writer.mappings import REMOVED, Config, Summary, selected, values_of
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


def test_what_is_copied_out_of_it_is_plain(config, told):
    """YAML, OmegaConf and others look at the very type of a dict; what is changed by name is in later copies."""
    config["a"] = [{"b": {}}]
    config.model.deep["y"] = {"z": 1}
    config.model.deep.y.z = 2
    del config.model.deep["x"]
    expected = {"lr": 0.1, "model": {"layers": 2, "deep": {"y": {"z": 2}}}, "a": [{"b": {}}]}
    copies = [dict(config), {**config}, dict(config.items()), dict(zip(config, config.values(), strict=True))]

    for copied in (*copies, config.as_dict(), dict(config.model)["deep"], config.pop("model")):
        assert {type(inner) for inner in copied.values() if isinstance(inner, dict)} <= {dict}
    assert copies == [expected] * 4
    assert json.loads(json.dumps(config)) == {"lr": 0.1, "a": [{"b": {}}]}
    assert told.changes[-1] == ("model", "removed")


def test_a_dict_inside_is_one_for_all(config):
    """Who holds it sees what others change there, until it is replaced."""
    held, deep = config.model, config["model"]["deep"]
    config.model.layers = 3
    config["model"]["deep"]["new"] = 1

    assert config.model is held
    assert held.get("deep") is deep
    assert (held.layers, deep.new) == (3, 1)
    config.model = {"other": 1}
    assert config.model is not held
    assert config.model == {"other": 1}


def test_a_config_may_be_an_object_with_attributes(told):
    """`argparse.Namespace` and its like."""
    config = Config(told)
    config.set_all(argparse.Namespace(lr=0.1, run=print))

    assert config == {"lr": 0.1, "run": "builtins.print"}
    with pytest.raises(UnloggableError):
        config.set_all(5)


@dataclasses.dataclass
class Options:
    lr: float = 0.1
    layers: tuple = (1, 2)


class Flags:
    """As absl's: an object with attributes of its own beside the values."""

    other = 5

    def flag_values_dict(self):
        return {"lr": 0.1}


class Lookalike:
    """As ml_collections' ConfigDict: no Mapping, and its attributes are not its values."""

    def __init__(self, **values):
        self._fields = values
        self._locked = False

    def keys(self):
        return self._fields.keys()

    def items(self):
        return self._fields.items()

    def __iter__(self):
        return iter(self._fields)

    def __getitem__(self, key):
        return self._fields[key]


class Interpolated(dict):
    """As OmegaConf's: a value may be missing, and items cannot be had at once then."""

    def items(self):
        raise ValueError("missing")

    def __getitem__(self, key):
        if key == "missing":
            raise ValueError(key)
        return super().__getitem__(key)


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        (argparse.Namespace(a=1), {"a": 1}),
        (Options(), {"lr": 0.1, "layers": (1, 2)}),
        (Flags(), {"lr": 0.1}),
        (Lookalike(a={"b": 1}), {"a": {"b": 1}}),
        (Interpolated(a=1, missing=2), {"a": 1, "missing": "<ValueError>"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_config_may_be(told, source, values):
    """All that training scripts have: at the start, in an update, as defaults."""
    plain = json.loads(json.dumps(values))
    assert values_of(source) == values
    for take in (Config.set_all, Config.update, Config.setdefaults):
        config = Config(told)
        take(config, source)
        assert config == plain


def test_what_looks_like_a_mapping_inside_a_config(told):
    """It is one at any depth; a table of numbers is none."""

    class Table(Lookalike):
        __array__ = None

        def __str__(self):
            return "a table"

    config = Config(told)
    config["c"] = Lookalike(n=Lookalike(b=(1, 2)), t=Table(x=1))

    assert config == {"c": {"n": {"b": [1, 2]}, "t": "a table"}}


@pytest.mark.parametrize("name", ["config.json", "config.yaml"])
def test_a_config_may_be_a_file(told, tmp_path, name):
    """By its path, in the peer's form or plainly."""
    (tmp_path / name).write_text('{"lr": {"value": 0.1, "desc": null}, "model": {"layers": 2}}')
    config = Config(told)
    config.set_all(str(tmp_path / name))
    config.update(tmp_path / name)

    assert config == {"lr": 0.1, "model": {"layers": 2}}
    (tmp_path / name).write_text("[1]")
    for path in (tmp_path / name, tmp_path / "none.json"):
        with pytest.raises(UnloggableError, match="config: the file"):
            config.set_all(path)


@pytest.mark.parametrize("text", ['{"api_key": "hunter2", "lr": 1}', "password=hunter2"])
def test_a_config_in_the_place_of_a_path_is_not_repeated(told, text):
    """It is no file, and the error that says so goes to consoles and job logs."""
    with pytest.raises(UnloggableError, match="No such file") as caught:
        Config(told).set_all(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("source", [5, None, object(), [1]])
def test_what_has_no_names_and_values_is_refused(told, source):
    """By its type; nothing is changed."""
    with pytest.raises((UnloggableError, TypeError)):
        Config(told).update(source)
    assert told.changes == []


def test_a_part_of_a_config_may_be_wanted():
    """`config_include_keys`, `config_exclude_keys`: top-level names; not both."""
    config = argparse.Namespace(a={"b": 1}, c=2)

    assert selected(config, ["a"], None) == {"a": {"b": 1}}
    assert selected(config, None, ["a"]) == {"c": 2}
    assert selected(config, None, []) is config
    assert selected(None, ["a"], None) is None
    with pytest.raises(UsageError):
        selected(config, ["a"], ["c"])


def test_a_config_takes_pairs_and_names(config):
    """As dict.update does; keys have one text."""
    config.update([("a", 1), (2, 3)], b=4)

    assert (config["a"], config[2], config["2"], config.b) == (1, 3, 3, 4)
    assert 2 in config
    assert config.get(2) == 3
    assert {**config}["b"] == 4
    assert config.pop(2) == 3


def test_a_list_of_a_config_is_a_copy(config):
    """What the caller does to his list later changes neither the config nor what was told."""
    given = [{"a": [1]}]
    config["l"] = given
    given[0]["a"].append(2)
    config.as_dict()["model"]["layers"] = 99

    assert config["l"] == [{"a": [1]}]
    assert config.model.layers == 2


def test_what_is_told_last_is_what_stands_there():
    """Another thread that comes between a change and its telling has its own told, or ours tells it too."""
    changes = []

    def changed(path, value):
        changes.append((path[-1], value))
        if changes == [("a", 1)]:
            dict.__setitem__(config, "a", 2)
        if changes[-1] == ("b", REMOVED):
            dict.__setitem__(config, "b", 3)

    config = Config(changed)
    config["a"] = 1
    config["b"] = 0
    del config["b"]

    assert changes == [("a", 1), ("a", 2), ("b", 0), ("b", REMOVED), ("b", 3)]


def test_threads_change_one_config(begin):
    """Nothing raises, and the log ends up with what the config says."""
    run = begin({"shared": 0})
    failures = []

    def work(number):
        try:
            for step in range(100):
                run.config[f"own {number}"] = step
                run.config["shared"] = (number, step)
                run.config["nested"] = {"of": number}
                run.config.update({f"gone {number}": 1})
                run.config.pop(f"gone {number}")
                dict(run.config), run.config.as_dict(), list(run.config)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = run.finish().paths

    assert failures == []
    assert {name: value for name, value in load(path).config.items() if name != "_wandb"} == run.config.as_dict()


def test_a_run_and_its_summary(begin):
    """The ways to read and change it that scripts have, while rows come."""
    run = begin()
    run.log({"loss": 0.5, "n": {"a": 1}})
    run.summary["n"]["b"] = 2
    run.summary.update({"best": 0.5, "list": [1]})
    run.summary["list"].append(2)
    run.summary.n.c = {"d": [3]}
    del run.summary["loss"]

    assert run.summary["n"] == {"a": 1, "b": 2, "c": {"d": [3]}}
    assert (run.summary.get("loss"), run.summary.pop("best"), run.summary.setdefault("new", 1)) == (None, 0.5, 1)
    assert json.loads(json.dumps(dict(run.summary)))["list"] == [1]
    assert dict(run.summary) == run.summary.as_dict() == copy.deepcopy(run.summary) == {**run.summary}
    with pytest.raises(TypeError):  # not silently an empty dict
        json.dumps(run.summary)
    (path,) = run.finish().paths
    kept = {name: value for name, value in load(path).summary.items() if name[0] != "_"}
    assert kept == {"n": {"a": 1, "b": 2, "c": {"d": [3]}}, "list": [1], "new": 1}


def test_the_summary_reads_what_the_rows_left(told):
    """Every way to read fetches first; what is set is told and stands until the next fetch."""
    trees = [{"loss": number, "n": {"a": number}} for number in range(30)]
    summary = Summary(told, lambda: trees.pop(0))
    seen = [summary["loss"], summary.get("loss"), summary.loss, dict(summary)["loss"]]
    seen += [list(summary), len(summary), "loss" in summary, repr(summary)[:8], next(iter(summary.items()))[0]]

    assert seen[:2] == [0, 1]
    assert len(trees) <= 21
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


def test_what_is_taken_out_of_a_summary_stays_out(begin):
    """Rows told of it, and no summary record had yet; what a later row brings is there again."""
    run = begin()
    run.log({"gone": 1, "back": 1, "n": {"a": 1}, "m": {"a": 1}})
    del run.summary["gone"]
    del run.summary["back"]
    run.summary["n"] = {"z": 2}
    run.summary["m"] = 3
    run.log({"back": 2})
    (path,) = run.finish().paths

    kept = {name: value for name, value in load(path).summary.items() if name[0] != "_"}
    assert kept == {"back": 2, "n": {"z": 2}, "m": 3}


def test_a_summary_that_did_not_change_is_not_built_again(told):
    """Reading a thousand values one by one is no work of a million."""
    tree = {"a": 1, "l": [1]}
    summary = Summary(told, lambda: tree)
    first = summary._read()

    assert summary._read() is first
    summary["l"].append(2)
    assert tree == {"a": 1, "l": [1]}
    summary["a"] = 2
    assert summary["a"] == 1  # what the log has


def test_init_takes_the_wanted_part_of_a_config(tmp_path):
    """The peer's two parameters; together they are refused."""
    from runferry.writer import api

    quiet = {"dir": tmp_path, "settings": {"disable_stats": True, "disable_meta": True, "silent": True}}
    for part, kept in (("config_include_keys", {"a": 1}), ("config_exclude_keys", {"b": 2})):
        run = api.init(config={"a": 1, "b": 2}, **quiet, **{part: ["a"]})
        run.finish()
        assert run.config == kept
    with pytest.raises(UsageError):
        api.init(config={"a": 1}, config_include_keys=["a"], config_exclude_keys=["b"], **quiet)
