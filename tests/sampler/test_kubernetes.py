"""The container's image, asked of the cluster's own server and of nobody else."""

from __future__ import annotations

import json
import subprocess
import time
import traceback

import pytest
from runferry.sampler import SamplerSettings, kubernetes
from runferry.sampler.environment import Inquiry
from runferry.sampler.gathering import Gathering
from runferry.sampler.kubernetes import image_id, kubernetes_facts
from support import peer
from support.certificates import server_context
from support.rawserver import RawServer, reply

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN = "eyJ.tell-nobody.x"
IMAGE = "registry.example/team/train@sha256:" + "ab" * 32
PROXY = {"name": "proxy", "imageID": "registry.example/proxy@sha256:" + "cd" * 32}
POD = {"status": {"containerStatuses": [PROXY, {"name": "main", "imageID": f"docker-pullable://{IMAGE}"}]}}
TERMINATION = "700 650 8:1 /pods/0a1b/containers/main/5f6e /dev/termination-log rw,relatime - ext4 /dev/sda1 rw\n"


@pytest.fixture
def cluster(machine, tmp_path_factory):
    """Start a server of the API in a machine that has a service account for it; it gives one answer to all."""
    servers = []

    def start(answer, **environ):
        tls, authority = server_context(tmp_path_factory.mktemp("cluster"))
        server = RawServer(answer, tls=tls).__enter__()
        servers.append(server)
        machine.write({f"{ACCOUNT}/token": f"{TOKEN}\n", f"{ACCOUNT}/ca.crt": authority.read_text()})
        server.environ = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_PORT_443_TCP_PORT": str(server.port),
            "HOSTNAME": "train-0",
            **environ,
        }
        return server

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def told(machine, environ):
    facts = kubernetes_facts(machine.context(), environ)
    gathering = Gathering(facts)
    found = gathering.take(20), gathering.missing.get("Kubernetes", "")
    assert set(facts) == {"Kubernetes"}
    assert TOKEN not in str(found)
    return found


def test_the_image_of_our_container(machine, cluster):
    """Of the one that the pod's folder is named after, whatever stands before it; the token is sent as it has to be."""
    server = cluster(reply(json.dumps(POD).encode()))
    machine.write({"/proc/self/mountinfo": TERMINATION, f"{ACCOUNT}/namespace": "lab"})

    assert told(machine, server.environ) == ({"docker": IMAGE}, "")
    (request,) = server.requests
    lines = request.decode().split("\r\n")
    assert lines[0] == "GET /api/v1/namespaces/lab/pods/train-0 HTTP/1.1"
    assert f"Authorization: Bearer {TOKEN}" in lines


def test_namespace_and_pod_are_parts_of_a_path(machine, cluster):
    """A variable of the user's says which namespace; no name leads elsewhere on the server."""
    server = cluster(reply(json.dumps(POD).encode()), KUBERNETES_NAMESPACE="a/../b", HOSTNAME="x?y")
    machine.write({f"{ACCOUNT}/namespace": "lab"})
    assert told(machine, server.environ)[0] == {"docker": PROXY["imageID"]}
    assert server.requests[0].startswith(b"GET /api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy HTTP")


def test_nobody_is_asked_elsewhere(machine):
    """Outside of a pod, without a token, and where the image is named already, there is no request."""
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}
    assert kubernetes_facts(machine.context(), inside) == {}
    machine.write({f"{ACCOUNT}/token": TOKEN})
    assert set(kubernetes_facts(machine.context(), inside)) == {"Kubernetes"}
    for environ in ({}, {"HOSTNAME": "train-0"}, {"KUBERNETES_SERVICE_HOST": "h"}, {**inside, "WANDB_DOCKER": "i"}):
        assert kubernetes_facts(machine.context(), environ) == {}


def test_a_server_that_the_account_does_not_vouch_for_is_told_nothing(machine, cluster, tmp_path):
    """Neither where the certificates are those of another cluster, nor where there are none."""
    server = cluster(reply(json.dumps(POD).encode()))
    _, others = server_context(tmp_path)
    machine.write({f"{ACCOUNT}/ca.crt": others.read_text()})
    assert "not trusted" in told(machine, server.environ)[1]
    (machine.root / ACCOUNT.lstrip("/") / "ca.crt").unlink()
    assert "certificates" in told(machine, server.environ)[1]
    assert server.requests == []


def test_the_token_is_for_the_clusters_server_alone(machine, cluster):
    """A redirect to another one is not followed."""
    with RawServer(reply()) as other:
        server = cluster(reply(status="302 Found", headers=f"Location: {other.url}\r\n"))
        assert "another server" in told(machine, server.environ)[1]
        assert other.connected == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (reply(status="403 Forbidden"), "it answers 403 Forbidden"),
        (reply(b" " * (5 << 20)), "larger than 4 MiB"),
        (reply(b"no json"), "JSONDecodeError"),
        (reply(b'{"kind": "Pod", "status": {"phase": "Pending"}}'), ""),
        (lambda connection: connection.recv(1), "in time"),
    ],
    ids=["forbidden", "large", "garbled", "pending", "silent"],
)
def test_what_no_image_comes_of(machine, cluster, monkeypatch, answer, why):
    """The reason is kept; it takes no longer than a few seconds and no more than a few megabytes."""
    monkeypatch.setattr(kubernetes, "WITHIN", 1.0)
    started = time.monotonic()
    found, missing = told(machine, cluster(answer).environ)
    assert found == {}
    assert why in missing
    assert bool(why) == bool(missing)
    assert time.monotonic() - started < 10


def test_a_token_that_is_none(machine, cluster):
    """An empty file, and one with what no header may hold, which the error does not repeat."""
    server = cluster(reply())
    machine.write({f"{ACCOUNT}/token": " \n"})
    assert "token" in told(machine, server.environ)[1]
    machine.write({f"{ACCOUNT}/token": f"{TOKEN}\nX-Injected: 1"})
    (ask,) = kubernetes_facts(machine.context(), server.environ).values()
    with pytest.raises(Exception, match="header") as caught:
        ask()
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert server.requests == []


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (POD, PROXY["imageID"]),
        ({"status": {"containerStatuses": [{"imageID": "i"}]}}, "i"),
        ({"status": {"containerStatuses": [{"imageID": ""}]}}, None),
        ({"status": {"containerStatuses": [{"imageID": "a\x1b[2J"}]}}, None),
        ({"status": {"containerStatuses": [{"imageID": "a" * 1025}]}}, None),
        ({"status": {"containerStatuses": [None, 5, {"imageID": 7}]}}, None),
        ({"status": {"containerStatuses": {}}}, None),
        ({"status": []}, None),
        ([], None),
        (None, None),
    ],
)
def test_odd_pods(pod, expected):
    """Without a container that is ours, the first counts; what is no text of a line is none."""
    assert image_id(pod, "unknown") == expected
    assert image_id(pod, None) == expected


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
def test_addresses_of_both_kinds(machine, host):
    """An IPv6 address comes without brackets."""
    machine.write({f"{ACCOUNT}/token": TOKEN, f"{ACCOUNT}/ca.crt": ""})
    environ = {"KUBERNETES_SERVICE_HOST": host, "HOSTNAME": "p", "KUBERNETES_SERVICE_PORT_HTTPS": "1"}
    assert "no valid URL" not in told(machine, environ)[1]
    assert "not a valid URL" not in told(machine, environ)[1]


def test_a_run_that_begins_does_not_wait_for_it(machine, cluster):
    """Who runs what is recorded at once; the image is in what comes later."""
    server = cluster(lambda connection: (time.sleep(0.5), connection.sendall(reply(json.dumps(POD).encode()))))
    asked = Inquiry(
        SamplerSettings(probes=()),
        argv=["train.py"],
        started_at_ns=1,
        folder=machine.root,
        environ=server.environ,
        root=str(machine.root),
    )
    begun = time.monotonic()
    assert "docker" not in asked.context()
    assert time.monotonic() - begun < 0.5
    assert (asked.hardware() | asked.rest())["docker"] == PROXY["imageID"]


@pytest.mark.peer
@pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())
def test_the_peer_tells_the_same(machine, cluster):
    """Its own function, with another folder in place of the account's, of the same server."""
    server = cluster(reply(json.dumps(POD).encode()))
    script = (
        "import inspect, wandb.util as util\n"
        f"source = inspect.getsource(util.image_id_from_k8s).replace({ACCOUNT!r}, {str(machine.root) + ACCOUNT!r})\n"
        "exec(source, vars(util))\n"
        "print(util.image_id_from_k8s())\n"
    )
    # It sends the end of the line in the token's file, too, which no server takes; accounts have none.
    (machine.root / ACCOUNT.lstrip("/") / "token").write_text(TOKEN)
    environ = {**peer.environment(machine.root), **server.environ}
    done = subprocess.run(
        [peer.PYTHON, "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    theirs, ours = done.stdout.strip(), told(machine, server.environ)[0]["docker"]
    assert theirs == ours == PROXY["imageID"]
    paths = [request.split(b" ")[1] for request in server.requests]
    assert paths[0] == paths[1] == b"/api/v1/namespaces/default/pods/train-0"
