"""The command `runferry serve` as a process: start, kill, restart, end."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import click.testing
import httpx
import pytest
from runferry.cli.serve import command
from support.artifactclient import ArtifactClient, Sent, md5
from support.server import Server, serve

ROWS_PER_REQUEST = 500


def put(url, content):
    with urllib.request.urlopen(urllib.request.Request(url, content, method="PUT"), timeout=60) as answer:
        return answer.status


def upload_url(server, run, name):
    query = """mutation C($r: String!, $f: [String!]!) { createRunFiles(input: {entityName: "local", projectName: "proj",
        runName: $r, files: $f}) { files { uploadUrl } } }"""
    return server.graphql(query, {"r": run, "f": [name]})["data"]["createRunFiles"]["files"][0]["uploadUrl"]


def history(offset, count):
    rows = [json.dumps({"_step": step, "x": step / 7}) for step in range(offset, offset + count)]
    return {"files": {"wandb-history.jsonl": {"offset": offset, "content": rows}}}


def test_what_was_acknowledged_survives_sigkill(tmp_path):
    """Killed right behind the last acknowledgement, again and again, the server has every run, row, summary and file."""
    content = os.urandom(100_000)
    with serve(tmp_path) as server:
        server.make_run("r1", config='{"a":{"value":1}}')
        for attempt in range(4):
            server.stream("r1", history(attempt * ROWS_PER_REQUEST, ROWS_PER_REQUEST))
            put(upload_url(server, "r1", f"f{attempt}"), content + bytes([attempt]))
            server.kill()
            server.start()
        server.stream(
            "r1",
            {"files": {"wandb-summary.json": {"offset": 0, "content": ['{"x":NaN}']}}, "complete": True, "exitcode": 0},
        )
        server.kill()
        server.start()

        run = server.run("local", "proj", "r1")
        steps = [row["_step"] for row in server.history("local", "proj", "r1")]
        files = {file["name"]: file["md5"] for file in run["files"]}

    assert steps == list(range(4 * ROWS_PER_REQUEST))
    assert (run["state"], run["config"], list(run["summary"])) == ("finished", {"a": {"value": 1}}, ["x"])
    assert files == {f"f{n}": hashlib.md5(content + bytes([n])).hexdigest() for n in range(4)}


def test_killed_in_the_middle_of_writing(tmp_path):
    """A kill at any moment loses no acknowledged row and leaves no half request."""
    acknowledged = 0
    with serve(tmp_path) as server:
        server.make_run("r1")
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                server.stream("r1", history(acknowledged * ROWS_PER_REQUEST, ROWS_PER_REQUEST))
                acknowledged += 1
                if acknowledged == 10:
                    threading.Timer(0.02, server.process.kill).start()
        server.kill()
        server.start()
        steps = [row["_step"] for row in server.history("local", "proj", "r1")]

    assert acknowledged >= 10
    assert len(steps) // ROWS_PER_REQUEST in {
        acknowledged,
        acknowledged + 1,
    }  # the last one may have been stored, unheard
    assert steps == list(range(len(steps) // ROWS_PER_REQUEST * ROWS_PER_REQUEST))


def test_an_upload_address_outlives_a_restart(tmp_path):
    """A client may use the address it got before the server was killed."""
    with serve(tmp_path) as server:
        server.make_run("r1")
        url = upload_url(server, "r1", "f")
        server.kill()
        server.start()

        assert put(url, b"late") == 200
        assert server.file("local", "proj", "r1", "f") == b"late"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path, number):
    """SIGTERM and SIGINT end the server with code 0 and no words, a connection that idles notwithstanding."""
    with serve(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))):
            server.process.send_signal(number)
            code = server.process.wait(10)

        assert (code, server.errors()) == (0, "")


def test_a_broken_upload_leaves_nothing(tmp_path):
    """A body that stops half way is neither kept nor listed."""
    with serve(tmp_path) as server:
        server.make_run("r1")
        url = upload_url(server, "r1", "f")
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            path = url.removeprefix(server.url)
            connection.sendall(
                f"PUT {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 3000000\r\n\r\n".encode()
            )
            connection.sendall(b"x" * 2_000_000)
        server.make_run("r2")  # answered after the broken one was noticed
        server.stop()
        server.start()

        assert server.run("local", "proj", "r1")["files"] == []
        assert [path for path in (server.data_dir / "blobs").rglob("*") if path.is_file()] == []
        assert list((server.data_dir / "incoming").iterdir()) == []


def test_the_request_log(tmp_path):
    """Each request has a line with what it carried when its answer arrives, and no key or signature in it."""
    with serve(tmp_path, limit=3) as server:
        server.make_run("r1")
        url = upload_url(server, "r1", "f")
        put(url, b"12345")
        server.stream("r1", history(40, 3) | {"uploaded": ["f"], "complete": True, "exitcode": 1})
        with pytest.raises(urllib.error.HTTPError) as caught:
            server.stream("r1", {})
        caught.value.close()
        entries = server.requests()
        log = (tmp_path / "requests.jsonl").read_text()

    assert [(entry["operation"], entry["status"]) for entry in entries] == [
        ("U", 200),
        ("C", 200),
        ("Upload", 200),
        ("FileStream", 200),
        ("FileStream", 429),
    ]
    assert (entries[2]["file"], entries[2]["request_bytes"]) == ("f", 5)
    assert entries[3]["files"] == {"wandb-history.jsonl": {"offset": 40, "lines": 3}}
    assert (entries[3]["uploaded"], entries[3]["complete"], entries[3]["exitcode"]) == (1, True, 1)
    assert server.key not in log
    assert "signature" not in log


def test_the_data_is_private(tmp_path):
    """Other users of the machine can read neither database nor key."""
    with serve(tmp_path) as server:
        modes = {
            name: stat.S_IMODE((server.data_dir / name).stat().st_mode)
            for name in ("runferry.sqlite3", "api-key", "blobs")
        }

    assert modes == {"runferry.sqlite3": 0o600, "api-key": 0o600, "blobs": 0o700}


def test_two_servers_on_one_folder(tmp_path):
    """The second one ends with code 2 and says why; the first is not disturbed."""
    with serve(tmp_path) as server:
        arguments = ["--data-dir", str(server.data_dir), "--port", "0"]
        second = click.testing.CliRunner().invoke(command, arguments, standalone_mode=True)

        assert "another server is using" in second.output
        assert second.exit_code != 0
        server.make_run("r1")


def run_command(*arguments, code=None):
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "runferry.cli"]
    return subprocess.run([*start, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--no-auth", "--host", "0.0.0.0"], "loopback"),
        (["--limit", "0"], "--limit"),
        (["--api-key-file", "/nonexistent"], "/nonexistent"),
        (["--faults", "/nonexistent"], "/nonexistent"),
        (["--host", "192.0.2.1"], "cannot listen"),
    ],
)
def test_usage_errors(tmp_path, arguments, reason):
    """A wrong option ends with code 2 and names the cause, without a traceback."""
    done = run_command("--data-dir", str(tmp_path), "--port", "0", *arguments)

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra(tmp_path):
    """Where starlette or uvicorn is missing, the command says what to install and ends with code 2."""
    code = "import sys; sys.modules['uvicorn'] = None; from runferry.cli import main; main()"

    done = run_command("--data-dir", str(tmp_path), code=code)

    assert done.returncode == 2
    assert "pip install starlette uvicorn" in done.stderr


def test_serve_prints_what_to_paste_where_one_syncs(tmp_path):
    """The two lines work in a shell, at every start, and the key itself is not among what is printed."""
    command_line = [sys.executable, "-m", "runferry.cli", "serve", "--port", "0", "--data-dir", str(tmp_path / "a b")]
    for _ in range(2):
        with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(4)]
            process.terminate()
            assert process.wait(20) == 0
        script = "".join(lines[2:]) + 'echo "$WANDB_BASE_URL $WANDB_API_KEY"'
        said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()

        key = (tmp_path / "a b" / "api-key").read_text().strip()
        assert said[0].startswith("http://127.0.0.1:")
        assert said[0] in lines[0]
        assert said[1] == key
        assert key not in "".join(lines)


def test_keys_from_the_environment(tmp_path, monkeypatch):
    """Keys of the environment are used and told nowhere."""
    monkeypatch.setenv("RUNFERRY_SERVE_API_KEYS", "e" * 40)
    command_line = [sys.executable, "-m", "runferry.cli", "serve", "--json", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        process.terminate()
        rest = process.stdout.read()

    assert said == {"type": "serving", "url": said["url"], "api_key_file": None}
    assert rest == ""


def test_a_refusal_of_a_large_body_can_be_read(tmp_path):
    """A client that is still sending when it is refused gets the reason, not a broken pipe."""
    with serve(tmp_path) as server:
        headers = {"Authorization": "Basic eDp5"}
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError) as caught:
                server.post("/files/local/proj/r1/file_stream", b"x" * 8_000_000, headers=headers)
            assert (caught.value.code, b"API key" in caught.value.read()) == (401, True)


def test_the_helper_starts_on_the_same_address(tmp_path):
    """A restarted server has its old address, as a client that waits for it expects."""
    with serve(tmp_path) as server:
        assert isinstance(server, Server)
        before = server.url
        server.kill()
        server.start()

        assert server.url == before


class OverTheNetwork:
    """What `ArtifactClient` needs of a server, over its socket."""

    def __init__(self, server):
        self.graphql = server.graphql

    def request(self, method, url, *, key, **options):
        assert key is None
        return httpx.request(method, url, **options)


def test_an_artifact_goes_on_after_every_kill(tmp_path):
    """The server is killed after each acknowledged step: nothing has to be sent again, and the artifact is committed once."""
    sent = Sent({"a": b"1", "b": b"22"})
    with serve(tmp_path) as server:
        server.make_run("r1")
        client = ArtifactClient(OverTheNetwork(server))

        def killed(answer):
            server.kill()
            server.start()
            return answer

        artifact = killed(client.create(sent))["id"]
        manifest = killed(client.manifest(artifact))["id"]
        nodes = killed(client.announce(artifact, manifest, sent.files))
        for node, data in zip(nodes, sent.files.values(), strict=True):
            assert killed(client.put(node, data)).status_code == 200
        file = killed(client.manifest(artifact, md5(sent.manifest())))["file"]
        assert killed(client.put(file, sent.manifest())).status_code == 200
        assert killed(client.commit(artifact)) == {"id": artifact, "digest": sent.digest}
        again = client.create(sent)
        found = server.artifacts("local", "proj", "r1")

    assert (again["id"], again["state"]) == (artifact, "COMMITTED")
    assert [(one["version"], [entry["path"] for entry in one["entries"]]) for one in found] == [(0, ["a", "b"])]


def test_limits_are_options(tmp_path):
    """The documented rates, one of them changed, told by Retry-After: the second new run within a second is refused."""
    options = ["--limits", "documented", "--limit-new-runs", "1", "--limit-headers", "retry-after"]
    query = 'mutation { upsertBucket(input: {name: "%s", modelName: "p"}) { inserted } }'
    with serve(tmp_path, arguments=options) as server:
        answers = []
        for number in range(20):  # some of them within the same second
            try:
                answers.append(server.graphql(query % f"r{number}") and "made")
            except urllib.error.HTTPError as error:
                error.close()
                answers.append((error.code, error.headers["Retry-After"]))
        made = len(server.runs())

    assert (429, "1") in answers
    assert answers.count("made") == made
    assert set(answers) == {"made", (429, "1")}
