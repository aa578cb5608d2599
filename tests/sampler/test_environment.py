"""Who runs what, where, on what."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from runferry.sampler import SamplerSettings, execution_context, hardware
from runferry.sampler.gitinfo import diff, find
from runferry.sampler.redact import MARK

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def repository(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_execution_context(tmp_path):
    """The record's own field names, relative paths from the repository and the working folder, arguments redacted."""
    work = tmp_path / "repo" / "exp"
    work.mkdir(parents=True)
    repository(
        tmp_path / "repo" / ".git",
        {
            "HEAD": "ref: refs/heads/main\n",
            "refs/heads/main": f"{COMMIT}\n",
            "config": '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://me:s3cret@host/a/b.git\n',
        },
    )
    record = execution_context(
        SamplerSettings(),
        argv=["train.py", "--lr", "3e-4", "--api-key", "abc"],
        started_at_ns=123,
        folder=work,
        environ={"SLURM_JOB_ID": "99", "SLURM_JWT": "secret", "SLURM_NODELIST": "n[1-2]", "HOME": "/"},
    )
    assert record["args"] == ["--lr", "3e-4", "--api-key", MARK]
    assert record["program"] == str(work / "train.py")
    assert record["code_path"] == "exp/train.py"
    assert record["code_path_local"] == "train.py"
    assert record["root"] == str(work)
    assert record["slurm"] == {"job_id": "99", "nodelist": "n[1-2]"}
    assert record["git"] == {"remote_url": "https://me:@host/a/b.git", "commit": COMMIT}
    assert record["started_at"] == 123
    assert record["python"] == f"CPython {sys.version.split()[0]}"
    assert record["executable"] == sys.executable
    assert {"os", "host", "username"} <= set(record)
    assert "email" not in record


@pytest.mark.parametrize("name", ["", "-c"])
def test_without_a_program(tmp_path, name):
    """An interactive session has no program, and no empty field in its place."""
    record = execution_context(SamplerSettings(), argv=[name], folder=tmp_path, environ={})
    assert not {"program", "code_path", "args", "slurm"} & set(record)


def test_start_is_now_unless_given(tmp_path):
    """`started_at` is in nanoseconds of the wall clock."""
    before = time.time_ns()
    assert before <= execution_context(SamplerSettings(), folder=tmp_path)["started_at"] <= time.time_ns()


def test_git_of_a_worktree_with_packed_refs(tmp_path):
    """A `.git` file leads to the worktree's folder, `commondir` to refs and configuration; packed refs count."""
    main = tmp_path / "main" / ".git"
    repository(
        main,
        {
            "config": '[remote "up"]\n\turl = git@host:a/b.git\n',
            "packed-refs": f"# pack-refs\n{COMMIT} refs/heads/topic\n^{'f' * 40}\n",
            "worktrees/t/HEAD": "ref: refs/heads/topic\n",
            "worktrees/t/commondir": "../..\n",
        },
    )
    repository(tmp_path / "tree", {".git": "gitdir: ../main/.git/worktrees/t\n"})
    state = find(tmp_path / "tree")
    assert (state.root, state.commit, state.remote_url) == (tmp_path / "tree", COMMIT, "git@host:a/b.git")


@pytest.mark.parametrize("head", ["ref: refs/heads/none\n", "garbage\n", ""])
def test_git_head_that_leads_nowhere_is_no_commit(tmp_path, head):
    """A branch without one, or what is no hash."""
    repository(tmp_path / ".git", {"HEAD": head})
    assert find(tmp_path).commit is None


@pytest.mark.parametrize("head", ["ref: ../../outside", "ref: refs/../../../outside", "ref: {}/outside"])
def test_no_file_outside_the_repository_is_read_for_a_commit(tmp_path, head):
    """Even if one is there that holds a commit."""
    repository(tmp_path / "repo" / ".git", {"HEAD": head.format(tmp_path)})
    for folder in (tmp_path, tmp_path / "repo"):
        (folder / "outside").write_text(COMMIT)

    assert find(tmp_path / "repo").commit is None


def test_the_remote_that_is_named(tmp_path):
    """`origin` wherever it stands, and its `url` alone, no other setting that has one in its name."""
    config = """
        [remote "fork"]
            url = https://host/fork.git
        [remote "origin"]
            pushurl = https://host/push.git
            url = "https://host/origin.git"
        [url "https://host/instead"]
            insteadOf = https://host/of
    """
    repository(tmp_path / ".git", {"HEAD": COMMIT, "config": config})

    assert find(tmp_path).remote_url == "https://host/origin.git"


def test_detached_head(tmp_path):
    """A checked out commit is the commit."""
    repository(tmp_path / ".git", {"HEAD": f"{COMMIT}\n"})
    assert find(tmp_path) == (tmp_path, COMMIT, None)


def test_hardware(machine):
    """Host facts whatever the limits: cores, model, memory, disk; overrides win; unknown fields are left out."""
    machine.load("cgroup-v2-k8s.json")
    machine.write(
        {
            "/sys/devices/system/cpu/online": "0-3\n",
            "/proc/cpuinfo": "".join(
                f"processor: {cpu}\nmodel name\t: EPYC 9\nphysical id: 0\ncore id: {cpu % 2}\n\n" for cpu in range(4)
            ),
            "/proc/meminfo": "MemTotal: 1024 kB\n",
        }
    )
    record = hardware(SamplerSettings(disk_paths=("/", "/nope"), cpu_logical_count=6), root=str(machine.root))
    assert record["cpu"] == {"count": 2, "count_logical": 6, "model": "EPYC 9"}
    assert (record["cpu_count"], record["cpu_count_logical"]) == (2, 6)
    assert record["memory"] == {"total": 1 << 20}
    assert set(record["disk"]) == {"/"}
    sizes = os.statvfs(machine.root)
    assert record["disk"]["/"]["total"] == sizes.f_blocks * sizes.f_frsize
    assert not {"gpu_type", "gpu_count", "gpu_nvidia", "cuda_version"} & set(record)


def test_a_command_is_named_by_where_it_is_found(tmp_path, monkeypatch):
    """A command of the path is not looked for in the working directory; a script there is."""
    command = tmp_path / "bin" / "trainer"
    command.parent.mkdir()
    command.touch(mode=0o755)
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("PATH", str(command.parent))

    def program(name):
        return execution_context(SamplerSettings(), argv=[name], folder=tmp_path)["program"]

    assert program("trainer") == str(command)
    assert program("train.py") == str((tmp_path / "train.py").resolve())
    assert program("nowhere") == str((tmp_path / "nowhere").resolve())


def test_each_part_can_be_left_as_it_is(tmp_path):
    """`redact` names the parts; what is not among them stands as given."""
    repository(tmp_path / ".git", {"HEAD": COMMIT, "config": '[remote "o"]\nurl = https://me:s3cret@host/a\n'})
    given = {
        "argv": ["t.py", "--api-key", "abc"],
        "folder": tmp_path,
        "environ": {"SLURM_JWT": "x", "SLURM_COMMENT": "password=a"},
    }
    open_, closed = (
        execution_context(SamplerSettings(), redact=(), **given),
        execution_context(SamplerSettings(), **given),
    )

    assert (open_["args"], closed["args"]) == (["--api-key", "abc"], ["--api-key", MARK])
    assert open_["slurm"] == {"jwt": "x", "comment": "password=a"}
    assert closed["slurm"] == {"comment": f"password={MARK}"}
    assert (open_["git"]["remote_url"], closed["git"]["remote_url"]) == (
        "https://me:s3cret@host/a",
        "https://me:@host/a",
    )


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A working tree with one committed file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "train.py").write_text('lr = 0.1\nseed = 0\napi_key = ""\n')
    for command in ("init -q", "add .", "-c user.name=n -c user.email=e commit -q -m m"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    return folder


def test_a_diff_is_what_is_not_committed(tree, monkeypatch):
    """With secrets out of it; git's own index stays untouched, and a file that git does not know is not in it."""
    assert diff(tree).patch == b""
    monkeypatch.setenv("DB_PASSWORD", "correct-horse")
    (tree / "train.py").write_text('lr = 0.2\nseed = 0\napi_key = "hunter2"\nx = "correct-horse"\n')
    (tree / "new.py").write_text("new\n")
    index = (tree / ".git" / "index").stat()
    found = diff(tree)

    assert b"-lr = 0.1\n+lr = 0.2\n seed = 0\n" in found.patch
    assert b"hunter2" not in found.patch
    assert b"correct-horse" not in found.patch
    assert b"new" not in found.patch
    assert (found.cut, found.redacted) == (False, 2)
    assert b'+api_key = "hunter2"' in diff(tree, redact=False).patch
    assert (tree / ".git" / "index").stat() == index


def test_a_diff_starts_none_of_a_repositorys_programs(tree, tmp_path):
    """Neither one that watches its files, which may stay behind, nor those that compare them."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.mine.textconv", "diff.mine.command"):
        subprocess.run(["git", "config", name, program], cwd=tree, check=True)
    (tree / ".git" / "info").mkdir(exist_ok=True)
    (tree / ".git" / "info" / "attributes").write_text("*.py diff=mine\n")
    (tree / "train.py").write_text("lr = 0.2\n")

    assert b"+lr = 0.2" in diff(tree).patch
    assert not (tmp_path / "started").exists()


def test_a_diff_is_bounded(tree):
    """It is cut behind a line; bytes that are no text stay as they are."""
    (tree / "train.py").write_bytes(b"caf\xe9\n" * 10_000)
    found = diff(tree, limit=1000)

    assert found.cut
    assert 900 < len(found.patch) <= 1000
    assert found.patch.endswith(b"+caf\xe9\n")


def test_a_diff_that_cannot_be_had_says_why(tree, tmp_path):
    """No repository, a command that hangs."""
    with pytest.raises(OSError, match="ended with"):
        diff(tmp_path)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "git").write_text("#!/bin/sh\nexec sleep 100\n")
    (bin_folder / "git").chmod(0o755)
    os.environ["PATH"], path = f"{bin_folder}:{os.environ['PATH']}", os.environ["PATH"]
    try:
        with pytest.raises(OSError, match="took longer than 0 s"):
            diff(tree, timeout_s=0.05)
    finally:
        os.environ["PATH"] = path


def test_a_core_without_a_number_costs_no_other(machine):
    """One line of /proc/cpuinfo that makes no sense: the cores that have numbers are counted."""
    cores = "".join(f"processor: {cpu}\nphysical id: {cpu // 2}\ncore id: {cpu % 2}\n\n" for cpu in range(4))
    machine.write({"/proc/cpuinfo": cores + "processor: 4\ncore id: ?\n\nprocessor: 5\nphysical id: ?\ncore id: 1\n"})
    assert hardware(SamplerSettings(), root=str(machine.root), devices_within=0)["cpu_count"] == 5
