"""The heartbeat: which process it names, and whether that one is alive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text, read_heartbeat

linux = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="processes are told apart in /proc")


def beat(folder: Path, text: bytes) -> Path:
    """A log whose heartbeat says `text`."""
    log = folder / "run-x.wandb"
    heartbeat_path(log).write_bytes(text)
    return log


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The process, and the time of the file as the sign of life."""
    process = Process.current()
    log = beat(tmp_path, heartbeat_text(process, 5.0))
    os.utime(heartbeat_path(log), (7, 7))

    assert read_heartbeat(log) == (process, 7.0)
    assert process.pid == os.getpid()
    assert process.is_near()


def test_what_is_too_large_is_none(tmp_path: Path) -> None:
    """However it begins: a heartbeat is a few hundred bytes."""
    text = heartbeat_text(Process.current(), 5.0)

    assert read_heartbeat(beat(tmp_path, text + b" " * (4096 - len(text)))) is not None
    assert read_heartbeat(beat(tmp_path, text + b" " * (4097 - len(text)))) is None


def test_whatever_a_machine_is_called(tmp_path: Path) -> None:
    """The text is JSON all the same."""
    process = Process.current()._replace(host='a "b"\\c\u00e9')
    found = read_heartbeat(beat(tmp_path, heartbeat_text(process, 1.5)))
    assert found is not None
    assert found.process == process


@linux
def test_this_process_lives() -> None:
    """Whatever its number was used for before."""
    process = Process.current()

    assert process.lives() is True
    assert process._replace(start=str(int(process.start) - 1)).lives() is False


@linux
def test_a_process_that_ended_is_dead_before_it_is_waited_for() -> None:
    """A zombie still has its number and its start."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    stat = Path(f"/proc/{child.pid}/stat")
    while b") Z" not in stat.read_bytes():
        time.sleep(0.005)
    start = stat.read_text().rpartition(")")[2].split()[19]

    assert Process.current()._replace(pid=child.pid, start=start).lives() is False
    child.wait()
    assert Process.current()._replace(pid=child.pid, start=start).lives() is False


@pytest.mark.parametrize("field", ["host", "boot", "namespaces"])
def test_of_another_machine_nothing_can_be_told(field: str) -> None:
    """Nor of another boot, nor from another container: the number means another process there."""
    process = Process.current()._replace(**{field: "other"})

    assert not process.is_near()
    assert process.lives() is None


def test_without_a_start_a_number_that_is_in_use_says_nothing() -> None:
    """Where the system does not tell when a process began."""
    assert Process.current()._replace(start="").lives() is None


def test_a_number_that_no_process_can_have_is_dead() -> None:
    """The system refuses it, in one way or another."""
    assert Process.current()._replace(pid=2**40).lives() is False
    assert Process.current()._replace(pid=2**100).lives() is False


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"pid": 0}',
        b'{"pid": -1}',
        b'{"pid": true}',
        b'{"pid": 1.0}',
        b'{"pid": 1, "host": 5}',
        b"[" * 4000,
        b" " * 5000 + b'{"pid": 1}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_heartbeat(tmp_path: Path, text: bytes) -> None:
    """Half written, foreign or hostile: there is none then, and no process of a group is ever asked."""
    assert read_heartbeat(beat(tmp_path, text)) is None


def test_only_an_ordinary_file_is_opened(tmp_path: Path) -> None:
    """A pipe would hang whoever looks, and a link leads elsewhere."""
    log = tmp_path / "run-x.wandb"
    path = heartbeat_path(log)
    os.mkfifo(path)
    assert read_heartbeat(log) is None
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(heartbeat_text(Process.current(), 0.0))
    path.symlink_to(elsewhere)
    assert read_heartbeat(log) is None
    path.unlink()
    path.mkdir()
    assert read_heartbeat(log) is None
    assert read_heartbeat(tmp_path / "nothing") is None
