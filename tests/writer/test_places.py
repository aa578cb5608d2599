"""Places where no log can be made, or that go away: named once, training goes on, and nothing is put elsewhere."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from support.children import fold, only_log, start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="file systems as POSIX has them")

PROLOGUE = """
import os, shutil, sys, time
import runferry
folder = sys.argv[1]
quiet = {"silent": True, "disable_stats": True, "disable_meta": True}
def rows(run):
    for number in range(3):
        run.log({"n": number})
        time.sleep(0.02)
    report = run.finish()
    print(report.rows_written, report.rows_dropped, report.complete)
"""


# Everything is imported before: whoever it is may not read our packages.
SOMEBODY_ELSE = """
runferry.init(dir=folder + "/warm", settings=quiet).finish()
shutil.rmtree(folder + "/warm")
os.chmod(folder, 0o555); os.setgid(65534); os.setuid(65534)
"""


def child(folder, body):
    """(stdout, stderr, seconds) of a child that must end well."""
    started = time.monotonic()
    process = start(folder, PROLOGUE + body)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err, time.monotonic() - started


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


@pytest.mark.parametrize(
    ("prepare", "place", "reason"),
    [
        ("open(folder + '/f', 'w').close()", "folder + '/f'", "Not a directory"),
        ("open(folder + '/wandb', 'w').close()", "folder", "Not a directory"),
        ("os.symlink(folder + '/nowhere', folder + '/link')", "folder + '/link'", "No such file"),
        ("os.symlink(folder + '/nowhere', folder + '/wandb')", "folder", "No such file"),
        ("os.symlink(folder + '/loop', folder + '/loop')", "folder + '/loop'", "Too many levels"),
        ("", "folder + '/' + 'x' * 300", "File name too long"),
        ("", "folder + ('/' + 'x' * 200) * 25", "File name too long"),
        ("os.mkdir(folder + '/c'); os.chdir(folder + '/c'); os.rmdir(folder + '/c')", "None", "was gone when"),
        (SOMEBODY_ELSE, "folder", "Permission denied"),
    ],
)
def test_a_place_where_no_log_can_be_made(tmp_path, prepare, place, reason):
    """One line says where and why, another at the end how many rows were lost, and the end does not wait for nothing."""
    if "setuid" in prepare and os.geteuid():
        pytest.skip("only root can become somebody else")
    out, err, seconds = child(tmp_path, f"{prepare}\nrows(runferry.init(dir={place}, settings=quiet))\n")

    assert out == "0 3 False\n"
    assert err.count("WARNING") == 2
    assert "no log can be made in" in err
    assert reason in err
    assert "3 rows did not make it" in err
    assert seconds < 4
    assert not list(tmp_path.rglob("*.wandb"))


def test_a_working_directory_that_is_gone_is_no_other_one(tmp_path):
    """The log does not turn up where the program goes later."""
    body = """
os.makedirs(folder + "/gone"); os.mkdir(folder + "/other"); os.chdir(folder + "/gone"); os.rmdir(folder + "/gone")
run = runferry.init(settings=quiet)
os.chdir(folder + "/other")
time.sleep(0.4)
rows(run)
"""
    out, err, _ = child(tmp_path, body)

    assert out == "0 3 False\n"
    assert err.count("WARNING") == 2
    assert contents(tmp_path) == ["other"]


def test_a_program_may_go_elsewhere(tmp_path):
    """What is relative is so to where the run began."""
    body = "os.chdir(folder)\nrun = runferry.init(dir='a', settings=quiet)\nos.chdir('/')\nrows(run)\n"

    assert child(tmp_path, body)[0] == "3 0 True\n"
    assert only_log(tmp_path / "a").is_file()


@pytest.mark.parametrize("name", ["\udcff", "\N{SNOWMAN} \n'\"", "a link"])
def test_odd_names_of_folders(tmp_path, name):
    """Bytes that are no text, quotes, line ends, and a symbolic link: a log like any other, with the machine's record."""
    body = f"""
os.mkdir(folder + "/real"); os.symlink(folder + "/real", folder + "/a link")
rows(runferry.init(dir=folder + "/" + {name!r}))
"""
    out, err, _ = child(tmp_path, body)

    assert out == "3 0 True\n"
    assert "WARNING" not in err
    assert fold(only_log(tmp_path)).row_count == 3


@pytest.mark.parametrize("what", ["/", "/wandb", "/wandb/latest-run/run-k.wandb"])
def test_a_log_that_is_deleted_meanwhile(tmp_path, what):
    """It is noticed at the next sync: what is known lost is counted, a new log has the rest, and one line says so."""
    body = f"""
run = runferry.init(dir=folder + "/d", id="k", settings=quiet)
run.log({{"n": -1}})
run.flush()
target = os.path.realpath(folder + "/d" + {what!r})
shutil.rmtree(target) if os.path.isdir(target) else os.unlink(target)
rows(run)
"""
    out, err, _ = child(tmp_path, body)

    assert out == "3 1 False\n"
    assert err.count("was deleted, and 1 row with it") == 1
    state = fold(only_log(tmp_path / "d"))
    assert [row["n"] for row in state.rows] == [0, 1, 2]
    assert state.exit_code == 0


def test_a_program_that_closes_every_descriptor(tmp_path):
    """As daemons do: what it opens then under our number is its own, and the rows go to a new log."""
    body = """
run = runferry.init(dir=folder, settings=quiet, durability="record")
run.log({"n": -1})
os.closerange(3, 64)
files = [open(f"{folder}/own{number}", "w") for number in range(20)]
rows(run)
"""
    out, err, _ = child(tmp_path, body)

    assert out == "4 0 True\n"
    assert "is another file's now" in err
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("own*"))
    held = {row["n"] for log in tmp_path.glob("wandb/run-*/*.wandb") for row in fold(log).rows}
    assert held == {-1, 0, 1, 2}


def test_a_folder_that_is_renamed_meanwhile(tmp_path):
    """The log goes with it."""
    body = """
run = runferry.init(dir=folder + "/d", settings=quiet)
run.log({"n": -1})
run.flush()
os.rename(folder + "/d", folder + "/e")
rows(run)
"""

    assert child(tmp_path, body)[0] == "4 0 True\n"
    assert fold(only_log(tmp_path / "e")).row_count == 4


def test_a_disk_that_may_not_be_written(tmp_path):
    """A mount that is read-only: as a folder without permission, for root too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        out, err, _ = child(disk, "rows(runferry.init(dir=folder, settings=quiet))\n")
    finally:
        subprocess.run(["umount", disk], check=True)

    assert out == "0 3 False\n"
    assert "Read-only file system" in err


def test_no_console_at_all(tmp_path):
    """Streams that are None, closed, or broken pipes: nothing is raised, and the log is whole."""
    for number, break_it in enumerate(
        [
            "sys.stdin = sys.stdout = sys.stderr = None",
            "os.close(2)",
            "end, start = os.pipe(); os.close(end); os.dup2(start, 2)",
        ]
    ):
        body = f"out = os.dup(1)\n{break_it}\nrun = runferry.init(dir=folder)\nrun.log({{'n': 1}})\nreport = run.finish()\n"
        process = start(tmp_path / str(number), PROLOGUE + body + "os.write(out, str(report.complete).encode())\n")
        out, _ = process.communicate(timeout=60)

        assert out == "True"
        assert fold(only_log(tmp_path / str(number))).row_count == 1
