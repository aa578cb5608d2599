"""The code of a run: `log_code`, `save_code`, and what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer import Run, Settings, codefiles
from runferry.writer.requirements import requirements
from runferry.writer.settings import resolve


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with code, logs and other things in it."""
    folder = tmp_path / "work"
    for name in ("main.py", "pkg/mod.py", "pkg/data.csv", "requirements.txt", "Dockerfile.gpu", "wandb/run-1/code.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "sub" / "wandb").mkdir(parents=True)
    (folder / "sub" / "wandb" / "kept.py").touch()
    monkeypatch.chdir(folder)
    return folder


def folded(run):
    """The state of a run, which is finished with this."""
    (log,) = run.finish().paths
    return RunState().add_all(read_records(log))


def paths(artifact):
    """Its contents."""
    return sorted(artifact.manifest.entries)


def test_code_is_python_requirements_and_docker(begin, here, monkeypatch):
    """Without the folders of logs at the top; the config names the artifact, which is named after the script."""
    monkeypatch.setattr(codefiles, "main_script", lambda: here / "pkg" / "mod.py")
    run = begin(project="my project")
    artifact = run.log_code()
    assert paths(artifact) == ["Dockerfile.gpu", "main.py", "pkg/mod.py", "requirements.txt", "sub/wandb/kept.py"]
    assert (artifact.name, artifact.type) == ("source-my_project-pkg_mod.py", "code")
    state = folded(run)
    assert state.config["_wandb"] == {"code_path": artifact.name}
    (record,) = state.artifacts
    assert (record.name, record.type, list(record.aliases)) == (artifact.name, "code", ["latest"])


def test_the_user_chooses(begin, here):
    """Functions of the path, or of the path and the root, and a name."""
    run = begin()
    artifact = run.log_code(
        "pkg",
        name="odd name",
        include_fn=lambda path: path.endswith((".csv", ".py")),
        exclude_fn=lambda path, root: str(Path(path).relative_to(root)).startswith("mod"),
    )
    assert paths(artifact) == ["data.csv"]
    assert artifact.name == codefiles.internal_name("odd name")


def test_the_folder_of_this_run_is_no_code(begin, here):
    """Wherever it lies."""
    run = begin(dir=here / "out")
    Path(run.dir, "x.py").touch()
    assert not [path for path in paths(run.log_code()) if path.startswith("out")]


def test_code_that_cannot_be_read(begin, here, monkeypatch, capsys):
    """It is left out and named, as is what went away meanwhile or has an odd name; the rest is logged."""
    real = Path.open

    def denied(path, *args, **kwargs):
        if path.name == "main.py":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    (here / "c:x.py").touch()
    (here / "gone.py").touch()
    run = begin()

    def included(path):
        if path.endswith("gone.py"):
            return not Path(path).unlink()
        return path.endswith(".py")

    assert paths(run.log_code(include_fn=included)) == ["pkg/mod.py", "sub/wandb/kept.py"]
    assert "leads out of the run's files and 1 more" in capsys.readouterr().err


def test_code_where_the_working_directory_is_gone(begin, here):
    """Nothing is raised, and one line says so."""
    warned = []
    run = begin(warn=warned.append)
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert run.log_code() is None
    assert len(warned) == 1
    assert run.log_code(here / "pkg") is not None


def test_no_code(begin, here):
    """None, and one warning."""
    warned = []
    run = begin(warn=warned.append)
    (here / "nothing").mkdir()
    assert run.log_code("nothing") is run.log_code("nothing") is run.log_code(None) is None
    assert len(warned) == 1
    assert begin(mode="disabled").log_code() is None
    assert not folded(run).artifacts


@pytest.mark.parametrize(
    ("project", "script", "name"),
    [
        ("p", "a/b c.py", "source-p-a_b_c.py"),
        ("p", "", "source-p"),
        ("p" * 200, "s.py", f"source-{'p' * 56}..{'p' * 58}-s.py"),
    ],
)
def test_names_of_code(project, script, name):
    """Characters that no name has become underscores; a long name is cut in the middle, to 128."""
    found = codefiles.code_name(project, script)
    assert found == name
    assert len(found) <= 128


def test_the_script_is_named_from_its_repository(tmp_path):
    """From the folder that has `.git`, or from the working directory; outside of both it has no path."""
    script = tmp_path / "repo" / "src" / "train.py"
    folder = script.parent
    folder.mkdir(parents=True)
    assert codefiles.below_repository(script, folder) == "train.py"
    (tmp_path / "repo" / ".git").mkdir()
    assert codefiles.below_repository(script, folder) == "src/train.py"
    assert codefiles.below_repository(script, folder, git=False) == "train.py"
    assert codefiles.below_repository(tmp_path / "else.py", folder) == ""
    assert codefiles.below_repository(None, folder) == ""


def test_requirements_are_what_the_library_finds():
    """`name==version`, sorted, of this environment."""
    found = requirements().decode().splitlines()
    known = {f"{each.metadata['Name']}=={each.version}" for each in metadata.distributions()}
    assert set(found) == known
    assert len(found) > 10


def test_requirements_of_odd_folders(tmp_path):
    """What is no folder, has no name, or is there twice: the first one counts; nothing raises."""
    for folder, name, text in (
        ("one", "b_c-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: B_c\nVersion: 1\n\nName: no\n"),
        ("one", "a.egg-info", "Name: a\nVersion: 2\n"),
        ("one", "text.dist-info/METADATA", "\nName: text\nVersion: 1\n"),
        ("one", "none.dist-info/README", ""),
        ("two", "b-c.egg-info/PKG-INFO", "Name: b-c\nVersion: 3\n"),
    ):
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folders = [str(tmp_path / name) for name in ("one", "missing", "two")]
    assert requirements(folders) == b"a==2\nB_c==1\n"


MACHINE = "runferry-machine.json"  # what is known of the machine, once it was found out
SCRIPT = """
import runferry
runferry.init(project="p", dir="logs", settings={"silent": True, "disable_stats": True, **%r}).finish()
"""


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        ({"save_code": True}, {"code/train.py": 1, "requirements.txt": 1}),
        ({"save_code": True, "disable_meta": True}, {"code/train.py": 1}),
        ({"disable_meta": True}, {}),
        ({}, {"requirements.txt": 1}),
    ],
)
def test_what_is_saved_of_the_run_itself(tmp_path, settings, files):
    """The script with `save_code`, the requirements with the record of the machine; each file is there."""
    (tmp_path / "train.py").write_text(SCRIPT % settings)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, timeout=60)
    (log,) = tmp_path.glob("logs/wandb/run-*/*.wandb")
    items = list(read_records(log))
    found = {item.path: item.type for record in items if record.kind == "files" for item in record.message().files}
    found.pop(MACHINE, None)
    assert found == files
    for path in files:
        assert (log.parent / "files" / path).stat().st_size
    config = RunState().add_all(items).config.get("_wandb", {})
    assert config == ({"code_path": "code/train.py"} if "save_code" in settings else {})


def test_nothing_is_saved_of_another_program(tmp_path):
    """A run around a command: this interpreter's packages and script are not that program's."""
    settings = resolve(Settings(dir=tmp_path, silent=True, disable_stats=True, save_code=True), None, {})
    run = Run(settings, argv=["./train"])
    assert not set(folded(run).files) - {MACHINE}
    assert not [path for path in Path(run.dir).iterdir() if path.name != MACHINE]
