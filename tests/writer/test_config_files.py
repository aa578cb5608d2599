"""Config from files: the peer's format, plain values, and files that cannot be followed."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from runferry.writer import config_files
from runferry.writer.config_files import DEFAULTS, config_from_files


@pytest.fixture
def read(tmp_path):
    """Writes files by name and reads them together: (config, warnings)."""

    def read(files, *, paths=None):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        said = []
        names = [name for name in files if name != DEFAULTS] if paths is None else paths
        return config_from_files(names, said.append, tmp_path), said

    return read


class FakeYaml:
    """Stands for PyYAML, which is no dependency: its documents are JSON behind a first line."""

    class YAMLError(Exception):
        """Its text repeats the line at fault."""

        problem = "mapping values are not\n   allowed here"

    @staticmethod
    def safe_load(text):
        head, _, rest = text.partition("\n")
        if head != "yaml":
            error = FakeYaml.YAMLError(head)
            error.problem_mark = SimpleNamespace(line=0)
            raise error
        return json.loads(rest)


@pytest.fixture
def no_yaml(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)


@pytest.fixture
def yaml(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", FakeYaml)


def test_wrapped_and_plain_values(read):
    """The peer wraps each value and notes a version; a plain mapping means what it says."""
    wrapped = {
        "wandb_version": 1,
        "_wandb": {"value": {}},
        "lr": {"value": 0.1, "desc": None},
        "net": {"value": {"d": 2}},
    }
    plain = {"epochs": 3, "range": {"value": 1, "least": 0}, "deep": {"value": {"value": 1}}}
    config, said = read({"a.json": json.dumps(wrapped), "b.json": json.dumps(plain)})

    assert config == {"lr": 0.1, "net": {"d": 2}, "epochs": 3, "range": {"value": 1, "least": 0}, "deep": {"value": 1}}
    assert said == []


def test_later_files_stand_over_earlier_ones(read, yaml):
    """And all of them over the defaults that lie in the folder."""
    files = {
        DEFAULTS: 'yaml\n{"a": 0, "b": 0, "c": 0}',
        "one.yaml": 'yaml\n{"a": {"value": 1}, "b": {"value": 1}}',
        "two.json": '{"a": 2}',
    }

    assert read(files) == ({"a": 2, "b": 1, "c": 0}, [])
    assert read(files, paths=["two.json", "one.yaml"])[0]["a"] == 1


def test_without_a_yaml_reader(read, no_yaml, tmp_path):
    """JSON is YAML too; what is neither is named with what to do, and the rest stands."""
    config, said = read({"a.yaml": '{"a": 1}', "b.yaml": "b: 1\n", "c.json": '{"c": 1}'})

    assert config == {"a": 1, "c": 1}
    assert said == [
        f"config file {tmp_path / 'b.yaml'} is left out: YAML needs PyYAML, which is not installed; JSON needs nothing"
    ]


def test_files_that_cannot_be_followed(read, yaml, tmp_path, monkeypatch):
    """Each is named with its reason, on one line; the others stand."""
    monkeypatch.setattr(config_files, "_MAX_BYTES", 100)
    wrong = {
        "broken.json": ("{", "Expecting property name"),
        "list.json": ("[1]", "it is not a mapping of names to values"),
        "new.json": ('{"wandb_version": 2}', "its wandb_version is 2, and only 1 is known"),
        "binary.json": (b"\xff", "invalid start byte"),
        "large.json": ('"' + "x" * 100 + '"', "it is larger than 100 bytes"),
        "wrong.yaml": ("a: hunter2: c", "mapping values are not allowed here in line 1"),
    }
    files = {name: content for name, (content, _) in wrong.items()}
    config, said = read({**files, "good.json": '{"good": 1}'}, paths=[*files, "missing.json", ".", "good.json"])

    assert config == {"good": 1}
    assert len(said) == len(wrong) + 2
    for line, (name, (_, why)) in zip(said, wrong.items(), strict=False):
        assert line.startswith(f"config file {tmp_path / name} is left out: ")
        assert why in line
        assert "\n" not in line
        assert "hunter2" not in line  # what stands in a file may be a secret
    assert said[-2] == f"config file {tmp_path / 'missing.json'}: No such file or directory"
    assert said[-1].endswith(" is left out: Is a directory")


def test_an_empty_file_and_missing_defaults_are_nothing(read, yaml):
    """No warning for what was not asked for."""
    assert read({"null.yaml": "yaml\nnull"}) == ({}, [])


def test_aliases_that_would_fill_the_memory(read, monkeypatch, tmp_path):
    """Ten values ten times in each other, ten levels deep, are two hundred bytes of YAML: counted, not written out."""
    node = ["x"] * 10
    for _ in range(10):
        node = [node] * 10
    loop = {}
    loop["loop"] = loop
    for found, why in ((node, "it holds more than 1000000 values"), (loop, "it is nested deeper than 128 levels")):
        monkeypatch.setattr(config_files, "_yaml", lambda _, found=found: {"a": found})
        assert read({"bomb.yaml": ""}) == ({}, [f"config file {tmp_path / 'bomb.yaml'} is left out: {why}"])


def test_a_run_takes_files_below_its_own_config(begin, tmp_path, monkeypatch, state):
    """`config=` stands over the files, and all of it is in the log; a missing file costs a line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULTS).write_text('{"from": {"value": "defaults"}, "kept": {"value": 1}}')
    (tmp_path / "a.json").write_text('{"from": "file", "lr": 0.1}')
    said = []
    run = begin({"from": "code"}, config_paths=["a.json", "gone.json"], warn=said.append)
    found = state(*run.finish().paths)

    assert dict(run.config) == {"from": "code", "kept": 1, "lr": 0.1}
    assert found.config | {"_wandb": None} == {"from": "code", "kept": 1, "lr": 0.1, "_wandb": None}
    assert said == ["config file gone.json: No such file or directory"]
