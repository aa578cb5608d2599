"""Names and places of runs."""

from __future__ import annotations

from datetime import datetime

import pytest
from runferry.logformat import RunDirName, find_logs, latest_run, log_name, run_id_of, valid_run_id


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
