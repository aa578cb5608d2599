"""Logs of the real peer and of the same scripts by us, each made once."""

from __future__ import annotations

import functools

import pytest
from support import peer


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """`made(kind)` is the run of that script: the folder with its logs, its exit code, what it said."""
    if reason := peer.missing():
        pytest.skip(reason)
    return functools.cache(lambda kind: peer.make(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="session")
def ours(tmp_path_factory):
    """The same by us."""
    if reason := peer.missing():
        pytest.skip(reason)
    return functools.cache(lambda kind: peer.make_ours(kind, tmp_path_factory.mktemp(f"our-{kind}")))
