"""The notebook's address, asked of the notebook server of the same machine."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from runferry.sampler.colab import colab_facts, notebook_path
from runferry.sampler.gathering import Gathering
from support.rawserver import RawServer, reply

RUNTIME = "/root/.local/share/jupyter/runtime"
KERNEL = "8a2b"
SESSIONS = [
    {"kernel": {"id": "other"}, "notebook": {"path": "fileId=other"}},
    {"kernel": {"id": KERNEL}, "notebook": {"path": "fileId=https%3A//host/a.ipynb", "name": "a.ipynb"}},
]
MODULES = {
    "google.colab": None,
    "ipykernel": SimpleNamespace(get_connection_file=lambda: f"{RUNTIME}/kernel-{KERNEL}.json"),
}


def told(machine, modules=MODULES):
    gathering = Gathering(colab_facts(machine.context(), modules))
    return gathering.take(20), gathering.missing


def test_the_notebook_of_our_kernel(machine):
    """By the server's sessions, with the token that lies beside its address; a file of one that was killed is passed over."""
    with RawServer(reply(json.dumps(SESSIONS).encode())) as server:
        machine.write(
            {
                f"{RUNTIME}/kernel-{KERNEL}.json": "{}",
                f"{RUNTIME}/jpserver-1.json": json.dumps({"url": "http://127.0.0.1:1/", "token": "t"}),
                f"{RUNTIME}/jpserver-2.json": "torn",
                f"{RUNTIME}/nbserver-3.json": json.dumps({"url": server.url, "token": "s3"}),
            }
        )
        found = {"colab": "https://colab.research.google.com/notebook#fileId=https://host/a.ipynb"}
        assert told(machine) == (found, {})
    (request,) = server.requests
    assert request.startswith(b"GET /api/sessions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: token s3\r\n" in request


def test_nobody_is_asked_elsewhere(machine):
    """Neither in a program, nor in another notebook."""
    for item in MODULES.items():
        assert colab_facts(machine.context(), dict([item])) == {}
    assert colab_facts(machine.context()) == {}


def test_no_server_that_answers(machine):
    """The reason is kept, without the token; where there is no server at all, nothing is missing."""
    assert told(machine) == ({}, {})
    with RawServer(reply(status="403 Forbidden")) as server:
        machine.write({f"{RUNTIME}/jpserver-1.json": json.dumps({"url": server.url, "token": "t0k"})})
        assert told(machine) == ({}, {"Colab": "it answers 403 Forbidden"})


@pytest.mark.parametrize(
    "sessions",
    [
        {},
        None,
        [None, 5],
        [{"kernel": KERNEL, "notebook": []}],
        [{"kernel": {"id": KERNEL}}],
        [{"kernel": {"id": KERNEL}, "notebook": {"path": "a.ipynb"}}],
        [{"kernel": {"id": KERNEL}, "notebook": {"path": "fileId=%1b[2J"}}],
        [{"kernel": {"id": KERNEL}, "notebook": {"path": "fileId=" + "x" * 600}}],
    ],
)
def test_odd_sessions(sessions):
    """What names no notebook of Colab's is none."""
    assert notebook_path(sessions, KERNEL) is None
