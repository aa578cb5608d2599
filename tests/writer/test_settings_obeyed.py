"""Settings are obeyed: each is read by some code, and those about files of the run itself do what they say."""

from __future__ import annotations

import ast
import subprocess
import threading
from pathlib import Path

import pytest
import runferry
from runferry.sampler import gitinfo
from runferry.writer import attendant
from runferry.writer.settings_table import SETTINGS

ROOT = Path(runferry.__file__).parent
HOLDERS = {"settings", "_settings", "resolved", "given"}
"""What decided settings are called where they are read."""


def read_attributes():
    """Every attribute that some code of the writer reads from decided settings."""
    for path in (ROOT / "writer").rglob("*.py"):
        own = path.name == "settings_table.py"  # whose properties combine some
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                holder = getattr(node.value, "attr", getattr(node.value, "id", ""))
                if holder in HOLDERS or (own and holder == "self"):
                    yield node.attr


def test_every_setting_is_read():
    """None is offered that nothing follows."""
    found = set(read_attributes())

    assert [setting.name for setting in SETTINGS if setting.attribute not in found] == []


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository whose only file has changed, with a key in the change; the working directory."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("lr = 1\n")
    for command in ("init -q", "add .", "-c user.name=n -c user.email=e commit -qm m"):
        subprocess.run(["git", *command.split()], check=True)
    (folder / "train.py").write_text("lr = 2\napi_key = 'hunter2hunter2'\n")
    return folder


@pytest.fixture
def saved(begin, state):
    """Runs once, and says which files its log names, its folder for them, and what was told."""

    def saved(**settings):
        said = []
        run = begin(warn=said.append, **settings)
        folder = Path(run.dir)
        return state(*run.finish().paths).files, folder, said

    return saved


def test_changes_that_are_not_committed(tree, saved, capsys):
    """Kept where they are asked for, without secrets unless these are asked for too; the number hidden is told."""
    assert not saved()[0]
    assert not saved(git_diff=True, disable_git=True)[0]
    files, folder, said = saved(git_diff=True, silent=False)
    patch = (folder / "diff.patch").read_text()

    assert (list(files), said) == (["diff.patch"], [])
    assert "-lr = 1\n+lr = 2\n" in patch
    assert "hunter2" not in patch
    assert "1 of the values in diff.patch look like secrets and are hidden" in capsys.readouterr().err
    assert "hunter2" in (saved(git_diff=True, redact="-git")[1] / "diff.patch").read_text()


def test_nothing_to_keep(tree, saved, tmp_path, monkeypatch):
    """No repository and no changes are nothing to speak of; a repository that cannot be asked is named."""
    (tree / "train.py").write_text("lr = 1\n")
    assert saved(git_diff=True)[::2] == ({}, [])
    monkeypatch.setattr(gitinfo, "_DIFF", ("git", "no-such-command"))
    files, _, said = saved(git_diff=True)
    assert (files, said) == ({}, [f"diff.patch is not saved: git diff in {tree} ended with 1"])
    monkeypatch.chdir(tmp_path)
    assert saved(git_diff=True)[::2] == ({}, [])


def test_a_diff_that_was_cut_says_so(tree, saved, monkeypatch):
    """Whoever applies it should know."""
    whole = gitinfo.diff
    monkeypatch.setattr(gitinfo, "diff", lambda root, **options: whole(root, limit=100, **options))
    files, folder, said = saved(git_diff=True)

    assert (list(files), said) == (["diff.patch"], ["diff.patch is cut off behind 10 MiB"])
    assert (folder / "diff.patch").stat().st_size <= 100


def test_files_of_the_run_itself_may_be_ignored(tree, saved):
    """`ignore_globs` is about them too, as in the peer."""
    files, folder, _ = saved(git_diff=True, disable_meta=False, ignore_globs=["*.patch"])

    assert "requirements.txt" in files
    assert "diff.patch" not in files
    assert not (folder / "diff.patch").exists()


def test_an_errand_that_fails_costs_no_other(tree, saved, monkeypatch):
    """Whatever looking for changes raises, the rest of what is to be said about the run is said."""
    monkeypatch.setattr(gitinfo, "find", lambda _: 1 / 0)
    files, _, said = saved(git_diff=True, disable_stats=True)

    assert files == {}
    assert said == ["a file about the run is not saved: ZeroDivisionError: division by zero"]


def test_an_errand_that_outlasts_the_run_is_named(tree, saved, monkeypatch):
    """A disk that does not answer `git` keeps no run from its end, and what is missing is said."""
    hung = threading.Event()
    monkeypatch.setattr(attendant, "JOIN_S", 0.01)
    monkeypatch.setattr(gitinfo, "find", lambda _: hung.wait(60) and None)
    _, _, said = saved(git_diff=True)
    hung.set()

    assert said == ["the run is over before all files about it are saved: they took more than 0.01 s"]


@pytest.mark.parametrize("settings", [{"save_code": True}, {"save_code": True, "program": "a.py"}, {"git_diff": True}])
def test_a_run_begins_where_the_working_directory_is_gone(saved, tmp_path, monkeypatch, settings):
    """What is to be kept of the code is not there; the training goes on."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert saved(**settings)[::2] == ({}, [])
