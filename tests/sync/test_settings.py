"""Settings of a sync: what cannot be followed is an error before anything is looked at, and what can be said in two ways is one."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Shard, SyncSettings, UsageError
from runferry.sync.settings import locate_base_url


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"base_url": "https://user:secret@host"}, "no user or password"),
        ({"base_url": "host:8080"}, "did you mean http://host:8080"),
        ({"base_url": "ftp://host"}, "not an http"),
        ({"base_url": "https://host/?key=secret"}, "without blanks"),
        ({"base_url": "https://host#a"}, "without blanks"),
        ({"base_url": "https://ho st"}, "without blanks"),
        ({"base_url": "https://ho\nst"}, "without blanks"),
        ({"overlap": "none"}, "last, first, both"),
        ({"jobs": 0}, "at least 1"),
        ({"retry_for": -1}, "negative"),
        ({"retry_for": math.nan}, "no number"),
        ({"stale_after": -0.1}, "negative"),
        ({"run_id": ""}, "run id"),
        ({"run_id": "a/b"}, "run id"),
        ({"project": ".."}, "not names"),
        ({"entity": "."}, "not names"),
        ({"project": "a\x1b[2Jb"}, "no server takes a name with"),
        ({"entity": "a\udcff"}, "no server takes a name with"),
        ({"job_type": "a\udcff"}, "job type: .* no text"),
        ({"replace_tags": {"a": "b\udcff"}}, "tag: .* no text"),
        ({"states": ["finished", "done"]}, "no run is ever 'done'"),
        ({"newer_than": math.inf}, "no number"),
        ({"shard": "3/2"}, "1/N to N/N"),
    ],
)
def test_what_cannot_be_followed_is_an_error(given: dict[str, Any], says: str) -> None:
    """With the name of the setting; a password is not repeated."""
    with pytest.raises(UsageError, match=says) as error:
        SyncSettings(**given)

    assert "secret" not in str(error.value)


def test_one_meaning_is_one_value() -> None:
    """A slash at the end, one text for a list of one, a share as text: cursors and caches compare settings."""
    said = SyncSettings(base_url=" https://host/\r\n", states="failed", tags="a", shard="1/2")  # type: ignore[arg-type]

    assert said == SyncSettings(base_url="https://host", states=["failed"], tags=("a",), shard=Shard(1, 2))
    assert said.base_url == "https://host"


@pytest.mark.parametrize(
    ("given", "selects", "changes"),
    [
        ({}, False, False),
        ({"newer_than": 0.0}, True, False),
        ({"min_rows": 1}, True, False),
        ({"tags": "a"}, True, False),
        ({"project": "p", "run_id": "r"}, False, False),
        ({"job_type": ""}, False, True),
        ({"replace_tags": {"a": "b"}}, False, True),
    ],
)
def test_what_chooses_and_what_changes(given: dict[str, Any], selects: bool, changes: bool) -> None:
    """Runs may be left out by some settings, and say something else than their log by others."""
    settings = SyncSettings(**given)

    assert (settings.selects, settings.changes_run) == (selects, changes)


def test_the_server_is_the_strongest_word_and_says_where_it_stands(tmp_path: Any) -> None:
    """Our variable before the peer's, a variable before a file, an empty one is none."""
    settings = tmp_path / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nbase_url = https://file/\n")
    both = {"RUNFERRY_BASE_URL": "https://ours/", "WANDB_BASE_URL": "https://theirs"}

    assert locate_base_url(both, tmp_path) == ("https://ours", "RUNFERRY_BASE_URL")
    assert locate_base_url(both | {"RUNFERRY_BASE_URL": ""}, tmp_path) == ("https://theirs", "WANDB_BASE_URL")
    assert locate_base_url({}, tmp_path) == ("https://file", str(settings))
    assert locate_base_url({}, tmp_path / "none") == ("https://api.wandb.ai", "default")


@pytest.mark.parametrize(
    "options",
    [
        {"project": "a/b"},
        {"project": "a#b"},
        {"project": "x" * 129},
        {"entity": "a/b"},
        {"entity": "a?b"},
        {"jobs": 99},
    ],
)
def test_what_no_server_takes_is_wrong_usage(options: dict[str, Any]) -> None:
    """Names with what would be another path, and more runs at a time than there are places for."""
    with pytest.raises(UsageError):
        SyncSettings(**options)


@pytest.mark.parametrize(
    "content", [b"base_url = https://mine\n", b"\xff[default]\nbase_url = https://mine\n", b"[default]\nx\n"]
)
@pytest.mark.parametrize("whose", ["runferry", "wandb"])
def test_a_settings_file_that_cannot_be_read_does_not_send_runs_elsewhere(
    tmp_path: Path, content: bytes, whose: str
) -> None:
    """It names the file: who has set a server of his own there does not want his runs at the public one."""
    settings = tmp_path / "settings"
    settings.write_bytes(content)
    environ = {f"{whose.upper()}_CONFIG_DIR": str(tmp_path)}

    with pytest.raises(UsageError, match=re.escape(f"{settings}: it is no lines")):
        locate_base_url(environ, tmp_path)
    assert locate_base_url(environ | {"WANDB_BASE_URL": "https://mine"}, tmp_path)[0] == "https://mine"


def test_a_settings_file_of_an_editor_is_read(tmp_path: Path) -> None:
    """With the mark that some put first, and a key that stands there twice."""
    (tmp_path / "settings").write_bytes(
        b"\xef\xbb\xbf[default]\r\nbase_url = https://old\r\nbase_url = https://mine\r\n"
    )

    assert locate_base_url({"RUNFERRY_CONFIG_DIR": str(tmp_path)}, tmp_path)[0] == "https://mine"
