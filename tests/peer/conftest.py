"""Logs of the real peer, each made once."""

from __future__ import annotations

import functools

import pytest
from support import peer


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """`made(kind)` is the run of that script: the folder with its logs, its exit code, what it said."""
    if reason := peer.missing():
        pytest.skip(reason)

    @functools.cache
    def make(kind):
        return peer.make(kind, tmp_path_factory.mktemp(kind))

    return make
