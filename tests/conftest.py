"""What holds for all tests."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how loaded the machine is, and nothing of what is tested.
settings.register_profile("runferry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("runferry")

_COUNT = itertools.count()


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a state directory of its own: none hears from another how long a server wants to be left alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state" / str(next(_COUNT))))
