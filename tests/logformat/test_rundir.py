"""Names and places of runs."""

from __future__ import annotations

import os
from datetime import datetime

import pytest
from runferry.logformat import RunDirName, find_logs, latest_run, log_name, run_id_of, valid_run_id
from runferry.logformat.rundir import MAX_DEPTH


def make_run(root, name, run_id, content=b""):
    folder = root / name
    (folder / "files").mkdir(parents=True)
    log = folder / log_name(run_id)
    log.write_bytes(content)
    return log


@pytest.mark.parametrize("name", ["run-20261130_142500-a1b2", "offline-run-20261130_142500-my-run-1"])
def test_a_run_directory_name_says_when_and_which(name):
    """Both prefixes, ids with dashes."""
    parsed = RunDirName.parse(name)

    assert parsed.started == datetime(2026, 11, 30, 14, 25)  # noqa: DTZ001 - local by contract
    assert str(parsed) == name


@pytest.mark.parametrize(
    "name", ["latest-run", "run-2026-x", "run-20269930_142500-x", "xrun-20261130_142500-a", "run-20261130_142500-"]
)
def test_other_names_are_no_run_directories(name):
    """Dates must be dates, and an id must be there."""
    assert RunDirName.parse(name) is None


def test_logs_are_found_from_every_level(tmp_path):
    """The log, its directory, the wandb directory and a tree of them; files of the run are not searched."""
    first = make_run(tmp_path / "a/wandb", "run-20261130_142500-one", "one")
    second = make_run(tmp_path / "b/wandb", "offline-run-20261130_142501-two", "two")
    (first.parent / "files" / "copy.wandb").write_bytes(b"")

    assert find_logs(first) == find_logs(first.parent) == find_logs(tmp_path / "a/wandb") == [first]
    assert find_logs(tmp_path) == [first, second]


def test_the_link_to_the_latest_run_gives_no_run_twice(tmp_path):
    """Links inside are not followed; a link that is itself the path is."""
    log = make_run(tmp_path, "run-20261130_142500-one", "one")
    (tmp_path / "latest-run").symlink_to(log.parent.name)

    assert find_logs(tmp_path) == [log]
    assert [found.name for found in find_logs(tmp_path / "latest-run")] == [log.name]


def test_nothing_there_is_an_error_that_names_it(tmp_path):
    """A wrong path is not an empty result."""
    with pytest.raises(FileNotFoundError, match="nope"):
        find_logs(tmp_path / "nope")


def test_the_latest_run_needs_no_link(tmp_path):
    """By link, by name where the link is missing, dangling or leads outside, across both prefixes."""
    make_run(tmp_path, "run-20261130_142500-one", "one")
    newer = make_run(tmp_path, "offline-run-20261130_142501-two", "two").parent
    assert latest_run(tmp_path) == newer

    link = tmp_path / "latest-run"
    for target in ("run-20261130_142500-gone", "../elsewhere", "/etc"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert latest_run(tmp_path) == newer

    link.unlink()
    link.symlink_to("run-20261130_142500-one")
    assert latest_run(tmp_path).name == "run-20261130_142500-one"
    assert latest_run(tmp_path / "nowhere") is None


@pytest.mark.parametrize("run_id", ["a", "my run", "x" * 128, "ünïcode", "a.b-c_d"])
def test_ids_that_a_backend_takes(run_id):
    """Letters, digits, blanks inside, dots."""
    assert valid_run_id(run_id)
    assert run_id_of(type("P", (), {"name": log_name(run_id)})) == run_id


@pytest.mark.parametrize(
    "run_id",
    ["", " a", "a ", "a/b", "a:b", "..", ".", "a\0", "a\nb", "x" * 129, "a?", "a#", "a'b", "a\\b", "a;b", "a,b"],
)
def test_ids_that_nobody_takes(run_id):
    """Separators, control characters, outer blanks, dot names, endless ones."""
    assert not valid_run_id(run_id)


def test_a_folder_above_runs_may_have_any_name(tmp_path):
    """`files`, `logs` and `tmp` are passed over inside run directories only; version control is nowhere looked into."""
    wanted = [
        make_run(tmp_path / above / "wandb", "run-20261130_142500-one", "one") for above in ("files", "logs", "tmp")
    ]
    for inside in ("files", "logs", "tmp"):
        make_run(wanted[0].parent / inside, "run-20261130_142500-no", "no")
    make_run(tmp_path / ".git", "run-20261130_142500-no", "no")

    assert find_logs(tmp_path) == wanted


def test_deep_trees_and_loops_of_links_end(tmp_path):
    """A log far down is found, and once, though a link beside it leads back to the top."""
    deep = tmp_path.joinpath(*"abcdefghijklmnop")
    log = make_run(deep, "run-20261130_142500-one", "one")
    (deep / "top").symlink_to(tmp_path)

    assert find_logs(tmp_path) == [log]


def test_each_folder_is_listed_once_and_nothing_asked_of_what_is_in_it(tmp_path):
    """A listing says what is a folder, so that a tree on a network file system costs one listing per folder."""
    for number in range(3):
        make_run(tmp_path, f"run-20261130_14250{number}-r{number}", f"r{number}")
    listed = []

    def scan(folder):
        listed.append(str(folder.relative_to(tmp_path)))
        return os.scandir(folder)

    assert len(find_logs(tmp_path, scan=scan)) == 3
    assert sorted(listed) == [".", *(f"run-20261130_14250{number}-r{number}" for number in range(3))]


def test_folders_that_cannot_be_listed_are_told(tmp_path):
    """The others are searched all the same."""
    log = make_run(tmp_path, "run-20261130_142500-one", "one")
    make_run(tmp_path, "run-20261130_142500-two", "two")
    told = []

    def scan(folder):
        if folder.name.endswith("two"):
            raise PermissionError(13, "Permission denied", str(folder))
        return os.scandir(folder)

    assert find_logs(tmp_path, scan=scan) == [log]
    assert find_logs(tmp_path, scan=scan, unreadable=told.append) == [log]
    assert [error.filename for error in told] == [str(tmp_path / "run-20261130_142500-two")]


def test_a_log_by_itself_may_lie_beside_folders_of_runs(tmp_path):
    """Folders named as those of a run directory are searched where there is no run directory around them."""
    bare = tmp_path / "run-bare.wandb"
    bare.touch()
    below = [make_run(tmp_path / name / "wandb", "run-20261130_142500-one", "one") for name in ("logs", "tmp")]

    assert find_logs(tmp_path) == sorted([bare, *below])


def test_folders_that_lie_too_deep_are_told(tmp_path):
    """What is not searched is named, and nothing that is searched is."""
    at_the_edge = tmp_path.joinpath(*["d"] * MAX_DEPTH)
    log = make_run(at_the_edge.parent, at_the_edge.name, "one")
    beyond = make_run(at_the_edge, "run-20261130_142500-two", "two").parent
    (at_the_edge / "files" / "any").mkdir()
    told = []

    assert find_logs(tmp_path, unreadable=told.append) == [log]
    assert [error.filename for error in told] == [str(beyond)]


def test_a_path_that_is_no_folder_is_for_its_reader_to_judge(tmp_path):
    """A link that leads nowhere is an answer, not an empty one: whoever reads it says what is wrong."""
    link = tmp_path / "run-x.wandb"
    link.symlink_to("nowhere")

    assert find_logs(link) == [link]
