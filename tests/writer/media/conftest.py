from __future__ import annotations

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media import MediaContext
from runferry.writer.runfiles import RunFiles


@pytest.fixture
def files(tmp_path):
    """The files of a run that has a directory."""
    run = tmp_path / "run"
    run.mkdir()
    return RunFiles(lambda: run, RealFileSystem())


@pytest.fixture
def said():
    """What the user was told."""
    return []


@pytest.fixture
def context(said):
    return MediaContext(
        "rid", "proj", "me", warn=lambda topic, text: said.append(text), time=lambda: 1.5, recorded=set()
    )


@pytest.fixture
def landed(files, context):
    """What a medium leaves in a row."""

    def land(medium, key="k", step="3"):
        return medium.stage(files, context).land(key, step)

    return land


@pytest.fixture
def logged(begin):
    """The state and the directory of a run that logged these rows."""

    def log(*rows, **settings):
        run = begin(**settings)
        for row in rows:
            run.log(row)
        run.finish()
        path = run.log_path
        return RunState().add_all(read_records(path)), path.parent / "files"

    return log
