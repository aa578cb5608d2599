"""The cluster's name, asked of a server of the host and of nobody else."""

from __future__ import annotations

import http.server
import threading
import time
from pathlib import Path

import pytest
from runferry.sampler.coreweave import coreweave_facts, read_metadata
from runferry.sampler.gathering import Gathering
from support.rawserver import RawServer, reply

ANSWER = (Path(__file__).resolve().parents[2] / "fixtures" / "sampler" / "coreweave-meta-data.txt").read_bytes()
KNOWN = {"cluster_name": "blue-cluster", "org_id": "cw-org-17", "region": "US-EAST-04"}


@pytest.fixture
def server():
    """Gives the recorded answer to one path, and keeps what it was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if self.path == "/meta" else 404)
            self.end_headers()
            self.wfile.write(ANSWER)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()
        thread.join()


def told(machine, environ=None, **settings):
    gathering = Gathering(coreweave_facts(machine.context(**settings), environ or {}))
    return gathering.take(20), gathering.missing


def test_three_fields_and_nothing_else(machine, server):
    """Tokens beside them are not kept."""
    url, asked = server
    fields, missing = told(machine, coreweave_metadata_base_url=f"{url}/", coreweave_metadata_endpoint="meta")

    assert (fields, missing, asked) == ({"coreweave": KNOWN}, {}, ["/meta"])


def test_nobody_is_asked_without_a_sign(machine):
    """The address is every cloud's: elsewhere there is no request."""
    machine.write({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n"})
    assert coreweave_facts(machine.context(), {"HOME": "/"}) == {}


@pytest.mark.parametrize(
    ("files", "environ"),
    [({"/sys/class/dmi/id/chassis_asset_tag": "CoreWeave\n"}, {}), ({}, {"COREWEAVE_NODE": "g1"})],
)
def test_signs_of_their_machines(machine, files, environ):
    """The board's maker, or a variable of theirs."""
    machine.write(files)
    assert set(coreweave_facts(machine.context(), environ)) == {"CoreWeave"}


def test_a_server_that_refuses_costs_nothing_else(machine, server):
    """The reason is kept, without the address."""
    url, _ = server
    fields, missing = told(machine, coreweave_metadata_base_url=url)

    assert fields == {}
    assert missing == {"CoreWeave": "it answers 404 Not Found"}


def test_an_answer_is_bounded(machine):
    """A few lines are expected: 64 KiB are read of it, within a second."""
    with RawServer(reply(b"region: x\n" * 7000)) as large:
        assert told(machine, coreweave_metadata_base_url=large.url)[1] == {"CoreWeave": "the answer is too large"}
    with RawServer(lambda connection: connection.recv(1)) as silent:
        started = time.monotonic()
        assert "in time" in told(machine, coreweave_metadata_base_url=silent.url)[1]["CoreWeave"]
        assert time.monotonic() - started < 3.0


def test_lines_that_are_none():
    """Whatever else stands there is passed over."""
    assert read_metadata("no colon\nregion:\ncluster_name: a:b\nother: x\n") == {"cluster_name": "a:b"}
    assert read_metadata(f"region: a\x1b[2J\ncluster_name: {'x' * 257}\norg_id: o\n") == {"org_id": "o"}
