"""Mode online: the process beside the training, and what the training notices of it, which is nothing."""

from __future__ import annotations

import atexit
import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import runferry
from runferry.logformat import find_logs, load
from runferry.writer import online
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.online import MOST, Syncs
from runferry.writer.ranks import Role
from support.server import serve

QUIET = {"disable_stats": True, "disable_meta": True}


class Started:
    """Stands for the processes that are started: their commands, options, and exit codes."""

    def __init__(self, code: int = 0, error: OSError | None = None) -> None:
        self.commands: list[list[str]] = []
        self.options: list[dict] = []
        self._code, self._error = code, error
        self.ended = threading.Event()

    def __call__(self, command, **options):
        if self._error is not None:
            raise self._error
        self.commands.append(list(command))
        self.options.append(options)
        return self

    def wait(self):
        self.ended.set()
        return self._code


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch):
    """No sync is at work."""
    crew = online._Crew()
    monkeypatch.setattr(online, "_crew", crew)
    yield
    atexit.unregister(crew._at_exit)


@pytest.fixture
def started(monkeypatch):
    started = Started()
    monkeypatch.setattr(online, "_popen", started)
    return started


def init(folder, **given):
    return runferry.init(dir=folder, mode="online", settings=QUIET, **given)


def test_a_sync_of_the_run_is_started(tmp_path, started, monkeypatch, capsys):
    """On the run's directory, in a session of its own, with nothing of ours open, and without a key in its command."""
    monkeypatch.setenv("WANDB_API_KEY", "s3cret" * 7)
    run = init(tmp_path)
    folder = run.log_path.parent

    (command,) = started.commands
    assert command[:2] == [sys.executable, "-c"]
    assert command[3:] == ["sync", "--watch", "--writer", str(os.getpid()), str(folder)]
    assert "s3cret" not in str(command)
    (options,) = started.options
    assert options["stdout"] == options["stderr"]
    assert options["env"]["WANDB_API_KEY"] == "s3cret" * 7
    assert options | {"stdout": 0, "stderr": 0, "env": 0} == {
        "stdin": subprocess.DEVNULL,
        "stdout": 0,
        "stderr": 0,
        "close_fds": True,
        "start_new_session": True,
        "cwd": folder,
        "env": 0,
    }
    assert str(folder / "sync.log") in capsys.readouterr().err
    assert (folder / "sync.log").exists()


def test_the_server_may_be_a_setting(tmp_path, started):
    """It is handed over; where it is not given, the sync finds its own."""
    init(tmp_path, base_url="http://127.0.0.1:9")

    assert started.commands[0][-3:-1] == ["--base-url", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    "given", [{"mode": "offline"}, {"mode": "disabled"}, {"settings": QUIET | {"sync_watch": False}}]
)
def test_whoever_wants_none_gets_none(tmp_path, started, given):
    """Offline means offline; a run with mode online may be synced by something else."""
    runferry.init(**({"dir": tmp_path, "mode": "online", "settings": QUIET} | given)).log({"a": 1})
    runferry.finish()

    assert started.commands == []


@pytest.mark.parametrize("role", [Role.SAMPLER, Role.NONE])
def test_other_ranks_start_none(begin, started, role):
    """Only the process that logs rows."""
    begin(mode="online", role=role)

    assert started.commands == []


def test_each_run_of_a_process_has_its_own(tmp_path, started):
    """Also side by side."""
    runs = [init(tmp_path, reinit="create_new") for _ in range(3)]

    assert [command[-1] for command in started.commands] == [str(run.log_path.parent) for run in runs]
    for run in runs:
        run.finish()
    assert len(started.commands) == 3


def test_a_sync_that_cannot_be_started_is_one_warning(tmp_path, monkeypatch, capsys):
    """The run is logged, and the line says how to send it later."""
    monkeypatch.setattr(online, "_popen", Started(error=OSError(errno.EAGAIN, "no more processes")))
    with init(tmp_path) as run:
        run.log({"a": 1})
    said = capsys.readouterr().err

    assert said.count("could not be started") == 1
    assert f"runferry sync {run.log_path.parent}" in said
    assert load(run.log_path).row_count == 1


def test_a_log_in_the_way_is_no_way_out(tmp_path, started):
    """A link in the place of the sync's output is not followed."""
    said = []
    victim = tmp_path / "victim"
    victim.touch()
    (tmp_path / "sync.log").symlink_to(victim)

    assert Syncs(said.append).accompany([tmp_path / "run-x.wandb"]) == []
    assert len(said) == 1
    assert victim.read_bytes() == b""
    assert started.commands == []


def ended():
    """Wait for what is told of syncs that have ended."""
    for thread in threading.enumerate():
        if thread.name == "runferry-online":
            thread.join(10)


@pytest.mark.parametrize("code", [0, 1, 2, 75, -9])
def test_a_sync_that_did_not_do_it_all_is_told(tmp_path, code):
    """No key, no module, no server until it gave up, killed: nothing starts it again, so the user has to know."""
    said = []
    Syncs(said.append, spawn=Started(code)).accompany([tmp_path / "run-x.wandb"])
    ended()

    assert len(said) == (code != 0)
    assert all(f"runferry sync {tmp_path}" in line and "sync.log" in line for line in said)


class Lasting:
    """Processes that go on until they are let go."""

    def __init__(self) -> None:
        self.folders: list[list[str]] = []
        self._going: list[threading.Event] = []

    def __call__(self, command, **_):
        self.folders.append([Path(word).name for word in command[4:] if word.startswith("/")])
        going = threading.Event()
        self._going.append(going)
        return SimpleNamespace(wait=lambda: going.wait(10) and 0)

    def let_go(self):
        """All that have been started; wait until that is seen."""
        for going in self._going:
            going.set()
        ended()


def test_the_end_of_a_run_says_that_its_sync_goes_on(tmp_path, monkeypatch, capsys):
    """One line with the place where to look; none for a sync that has ended, well or not, or could not be started."""
    processes = Lasting()
    monkeypatch.setattr(online, "_popen", processes)
    run = init(tmp_path)
    run.finish()
    told = f"not all of it is sent yet: the sync goes on in the background, see {run.log_path.parent / 'sync.log'}\n"
    assert capsys.readouterr().err.count(told) == 1

    run = init(tmp_path)
    processes.let_go()
    run.finish()
    init(tmp_path, quiet=True).finish()
    for spawn in (Started(code=1), Started(error=OSError(errno.EAGAIN, "no more processes"))):
        monkeypatch.setattr(online, "_popen", spawn)
        run = init(tmp_path)
        if not spawn._error:
            ended()
        run.finish()
    processes.let_go()

    assert "not all of it is sent" not in capsys.readouterr().err


def logs_in(folder, numbers):
    for number in numbers:
        place = folder / f"{number:02}"
        place.mkdir()
        yield place / "run-x.wandb"


def test_many_runs_do_not_fill_the_machine_with_syncs(tmp_path):
    """Where no server answers, the syncs of a hundred short runs would wait side by side: the rest goes together."""
    said, processes = [], Lasting()
    syncs = [Syncs(said.append, spawn=processes) for _ in range(MOST + 30)]
    begun = [one.accompany([log]) for one, log in zip(syncs, logs_in(tmp_path, range(MOST + 30)), strict=True)]

    assert [len(folders) for folders in begun] == [1] * MOST + [0] * 30
    assert len(processes.folders) == MOST
    assert len(said) == 1
    processes.let_go()
    assert processes.folders[MOST:] == [[f"{number:02}" for number in range(MOST, MOST + 30)]]
    processes.let_go()
    begun = Syncs(said.append, spawn=processes).accompany(logs_in(tmp_path, range(50, 52 + MOST)))
    assert len(begun) == MOST
    processes.let_go()
    processes.let_go()
    assert len(processes.folders) == MOST + 1 + MOST + 1


def test_what_waits_for_a_sync_is_not_left_behind_at_exit(tmp_path):
    """The end of the process starts it, for each server one."""
    processes = Lasting()
    for number, log in enumerate(logs_in(tmp_path, range(MOST + 4))):
        Syncs(lambda _: None, base_url=f"http://{number % 2}", spawn=processes).accompany([log])
    online._crew._at_exit()

    waited = [f"{number:02}" for number in range(MOST, MOST + 4)]
    assert processes.folders[MOST:] == [waited[::2], waited[1::2]]
    processes.let_go()
    assert len(processes.folders) == MOST + 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_counts_its_own_syncs(tmp_path):
    """Those of its parent end without its knowledge."""
    processes = Lasting()
    for log in logs_in(tmp_path, range(MOST)):
        Syncs(lambda _: None, spawn=processes).accompany([log])
    pid = os.fork()
    if pid == 0:
        begun = Syncs(lambda _: None, spawn=Started()).accompany(logs_in(tmp_path, [50]))
        os._exit(0 if begun else 1)

    assert os.waitpid(pid, 0)[1] == 0
    processes.let_go()


def test_no_thread_is_needed(tmp_path, monkeypatch):
    """Where the system refuses one more thread the sync goes on, and the run begins."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert Syncs(lambda _: None, spawn=Started()).accompany([tmp_path / "run-x.wandb"]) == [tmp_path]


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", "/usr/bin/uwsgi"), ("executable", None)])
def test_a_program_that_is_no_python_is_not_started_again(tmp_path, monkeypatch, name, value):
    """Where it is frozen, or embeds Python, its executable is the training itself, whatever its arguments."""
    monkeypatch.setattr(sys, name, value, raising=False)
    said, processes = [], Started()

    assert Syncs(said.append, spawn=processes).accompany([tmp_path / "run-x.wandb"]) == []
    assert processes.commands == []
    assert len(said) == 1


PACKED = """
import sys
sys.path += {places!r}
sys.path[:] = [place for place in sys.path if place] + [""]
import os, pathlib, time
import runferry
sys.path.insert(0, {hidden!r})
run = runferry.init(dir={folder!r}, mode="online", base_url="http://127.0.0.1:9", settings={quiet!r})
log = run.log_path.with_name("sync.log")
os.chdir({gone!r})
os.rmdir({gone!r})
deadline = time.monotonic() + 30
while "API key" not in log.read_text() and "Error" not in log.read_text() and time.monotonic() < deadline:
    time.sleep(0.02)
"""


def test_the_sync_finds_us_where_the_program_found_us(tmp_path):
    """In a folder that only the program knows, beside modules that would hide Python's own; a folder has blanks."""
    vendored, hidden, gone = tmp_path / "vendored here", tmp_path / "src", tmp_path / "gone"
    for folder in (vendored, hidden, gone):
        folder.mkdir()
    (vendored / "runferry").symlink_to(Path(runferry.__file__).parent)
    (hidden / "netrc.py").write_text("raise SystemExit('hidden by the program')")
    places = [str(vendored), *(place for place in sys.path if place.endswith("site-packages"))]
    code = PACKED.format(places=places, folder=str(tmp_path), quiet=QUIET, gone=str(gone), hidden=str(hidden))
    (tmp_path / "train.py").write_text(code)
    # Without the site module nothing is importable but Python's own, as with an interpreter that has no packages.
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"}
    command = [sys._base_executable, str(tmp_path / "train.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    (said,) = [path.read_text() for path in tmp_path.glob("wandb/run-*/sync.log")]
    assert done.returncode == 0, done.stderr
    assert "API key" in said, said


class FailingOnce(RealFileSystem):
    """A file system that loses one sync."""

    def __init__(self):
        self.failures = 0

    def sync_data(self, fd):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().sync_data(fd)


def test_a_further_log_of_the_run_is_synced_too(begin, started):
    """A disk that failed has the run go on in a new directory: its sync begins with the end of the run."""
    fs = FailingOnce()
    run = begin(fs=fs, mode="online", warn=lambda _: None)
    run.log({"a": 1})
    run.flush()
    fs.failures = 1
    run.log({"a": 2})
    run.flush()
    report = run.finish()

    assert len(report.paths) == 2
    assert sorted(command[-1] for command in started.commands) == sorted(str(path.parent) for path in report.paths)


TRAINING = """
import os, sys, time
import runferry

with runferry.init(dir=sys.argv[1], mode="online", project="p", id="live", base_url=sys.argv[2],
                   settings={"disable_stats": True, "disable_meta": True}) as run:
    if os.fork() == 0:
        os._exit(0)
    for number in range(50):
        run.log({"n": number})
    print(run.log_path.parent, flush=True)
    sys.stdin.readline()
    for number in range(50, 60):
        run.log({"n": number})
    if sys.stdin.readline().strip() == "die":
        os.kill(os.getpid(), 9)
"""


def train(folder, server, home):
    """A training process in mode online."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    environ |= {"RUNFERRY_API_KEY": server.key, "HOME": str(home)}
    command = [sys.executable, "-c", TRAINING, str(folder), server.url]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )


def until(condition, what):
    """Wait for what another process does."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def watchers(folder):
    """Processes whose command names a run directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--watch" in command and os.fsencode(folder) in command:
            found.append(int(entry.parent.name))
    return found


def held(server):
    """The rows that the server has of the run."""
    return len(server.history("local", "p", "live")) if server.run("local", "p", "live") else 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("end", ["finish", "die"])
def test_a_training_process_and_its_sync(tmp_path, end):
    """Rows arrive while it trains, all of them at its end or death, and nothing is left running; also without a home.

    In a home there is nothing of the writer, and of its sync the file by which syncs share a server's limits.
    """
    home = tmp_path / "home"
    if end == "finish":
        home.mkdir()
    else:
        home.touch()  # nothing can be made below it, whoever tries
    with serve(tmp_path / "server") as server:
        training = train(tmp_path, server, home)
        try:
            folder = Path(training.stdout.readline().strip())
            until(lambda: held(server) == 50, "rows of a run that goes on")
            (watcher,) = watchers(folder)
            assert os.getsid(watcher) == watcher
            training.stdin.write(f"\n{end}\n")
            training.stdin.flush()
            _, said = training.communicate(timeout=30)
            assert training.returncode == (-9 if end == "die" else 0), said
            until(lambda: not watchers(folder), "the sync goes on")
        finally:
            training.kill()
            training.communicate()
        run = server.run("local", "p", "live")
        rows = server.history("local", "p", "live")

    (log,) = find_logs(folder)
    assert rows == load(log).rows
    assert len(rows) >= 50
    assert "error" not in said.lower()
    verdict = (folder / "sync.log").read_text()
    if end == "finish":
        assert (len(rows), run["state"], run["exit_code"]) == (60, "finished", 0)
        assert log.with_name(log.name + ".synced").exists()
    else:
        assert run["exit_code"] is None
        assert "crashed" in verdict
    assert len(verdict.splitlines()) < 10
    assert server.key not in verdict
    left = [path for path in home.rglob("*") if path.is_file()]
    assert {path.parent for path in left} <= {home / ".local" / "state" / "runferry" / "pacer"}
