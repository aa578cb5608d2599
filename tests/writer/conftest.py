from __future__ import annotations

import os

import pytest
from runferry.logformat import Gap, RunState, read_records
from runferry.writer import Settings, api, online
from runferry.writer.run import Run
from runferry.writer.settings import resolve


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch):
    """No variable of the surroundings decides a setting or a rank."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "RUNFERRY_", "SLURM_", "OMPI_", "PMI_")) or name in {"RANK", "LOCAL_RANK"}:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    """Runs of mode online start no sync, but in the tests that are about it."""

    def refuse(command, **_options):
        raise OSError(f"no process in tests: {command}")

    monkeypatch.setattr(online, "_popen", refuse)


@pytest.fixture(autouse=True)
def no_current_run():
    """Each test begins and ends without a current run."""
    yield
    api.finish()


@pytest.fixture
def begin(tmp_path):
    """Begins runs that neither sample nor print; those left open are finished at the end."""
    runs = []

    def begin(config=None, *, fs=None, clock=None, warn=None, role=None, behind=None, **settings):
        given = {"dir": tmp_path, "silent": True, "disable_stats": True, "disable_meta": True, **settings}
        ports = {"fs": fs, "clock": clock, "warn": warn, "role": role, "behind": behind}
        run = Run(resolve(Settings(**given), None, {}), config, **{k: v for k, v in ports.items() if v is not None})
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.finish()


@pytest.fixture
def state():
    """The fold of a run's logs, which must be whole."""

    def fold(*paths):
        items = [item for path in paths for item in read_records(path)]
        assert not [item for item in items if isinstance(item, Gap)]
        return RunState().add_all(items)

    return fold
