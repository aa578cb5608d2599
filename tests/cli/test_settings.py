"""`runferry settings`: what counts, where it stands, and what is wrong with it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.writer.settings_table import SETTINGS


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs the command with a home and a working directory of its own, and with no variable but those given."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "RUNFERRY_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("NETRC", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")

    def call(*arguments, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return CliRunner().invoke(group, ["settings", *map(str, arguments)])

    return call


def rows(result):
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(line["type"] == "setting" for line in lines)
    return {line["name"]: line for line in lines}


def test_every_setting_is_shown_with_its_default(call):
    """One object per setting of the table, and the server and key of a sync."""
    result = call("--json")
    shown = rows(result)

    assert result.exit_code == 0
    assert set(shown) == {setting.name for setting in SETTINGS} | {"base_url", "api_key"}
    assert {row["source"] for row in shown.values()} == {"default"}
    assert shown["api_key"]["value"] is None
    assert shown["redact"]["value"] == ["argv", "config", "environment", "git"]


def test_where_values_come_from(call, tmp_path):
    """The variable, the file with its line, and the option are named."""
    folder = tmp_path / "home" / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\n# whose\nentity = team\nbase_url = http://127.0.0.1:9\n")
    shown = rows(call("--json", "--dir", tmp_path, WANDB_PROJECT="p", RUNFERRY_TAGS="a,b", WANDB_DISABLED="1"))
    found = {name: (shown[name]["value"], shown[name]["source"]) for name in shown}

    assert found["entity"] == ("team", f"{folder / 'settings'}:3")
    assert found["project"] == ("p", "WANDB_PROJECT")
    assert found["tags"] == (["a", "b"], "RUNFERRY_TAGS")
    assert found["mode"] == ("disabled", "WANDB_DISABLED")
    assert found["dir"] == (str(tmp_path), "--dir")
    assert found["base_url"] == ("http://127.0.0.1:9", str(folder / "settings"))


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_wrong_value_is_shown_and_told_by_the_exit_code(call, form):
    """The setting's row says what it takes; the others are shown all the same."""
    result = call(*form, RUNFERRY_DURABILITY="paranoid", WANDB_PROJECT="p")

    assert result.exit_code == 2
    assert "RUNFERRY_DURABILITY='paranoid': durability takes relaxed, normal, record or disk" in result.stdout
    assert "WANDB_PROJECT" in result.stdout


def test_a_wrong_value_in_a_file_is_passed_over_and_shown(call, tmp_path):
    """What counts instead is shown beside the place of the wrong one."""
    folder = tmp_path / "work" / "wandb"
    folder.mkdir()
    (folder / "settings").write_text("[default]\nconsole = fast\nnonsense\nfuture = 1\n")
    result = call("--json")
    row = rows(result)["console"]

    assert result.exit_code == 2
    assert (row["value"], row["source"]) == ("off", "default")
    assert row["problem"].startswith(f"{folder / 'settings'}:2: console='fast': console takes off")
    assert f"{folder / 'settings'}:3: this line is ignored" in result.stderr
    assert "no meaning here: future" in result.stderr
    assert result.stderr.count("fast") == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_keys_are_never_shown(call, tmp_path, form):
    """Only that there is one, and where: in a variable, in netrc, or in a variable where it cannot be right."""
    secret = "5ec2e7" * 7
    result = call(*form, WANDB_API_KEY=secret)
    assert (result.exit_code, secret in result.output) == (0, False)
    assert "WANDB_API_KEY" in result.stdout

    result = call(*form, WANDB_API_KEY=secret + " " + secret)
    assert (result.exit_code, secret in result.output) == (2, False)

    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text(f"machine api.wandb.ai login user password {secret}\n")
    netrc.chmod(0o600)
    result = call(*form, WANDB_API_KEY="")
    assert (result.exit_code, secret in result.output) == (0, False)
    assert str(netrc) in result.stdout

    result = call(*form, WANDB_BASE_URL=f"https://user:{secret}@host")
    assert (result.exit_code, secret in result.output) == (2, False)


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RUNFERRY_OPEN_METRICS_ENDPOINTS", "n=http://h/m?api_key={}"),
        ("RUNFERRY_OPEN_METRICS_ENDPOINTS", '{{"n": "http://h/m?a=b&token={}"}}'),
        ("RUNFERRY_DCGM_EXPORTER", "http://h/m?token={}"),
        ("RUNFERRY_COREWEAVE_METADATA_BASE_URL", "http://h/m?password={}"),
        ("RUNFERRY_COREWEAVE_METADATA_ENDPOINT", "/m?password={}"),
        ("RUNFERRY_NOTES", "see http://me:{}@h/"),
        ("RUNFERRY_TAGS", "token={}"),
    ],
)
def test_credentials_within_values_are_hidden(call, form, variable, text):
    """The rest of the value is shown."""
    result = call(*form, **{variable: text.format("QSECRET99")})

    assert result.exit_code == 0
    assert "QSECRET99" not in result.output
    assert "[redacted]" in result.stdout


def test_a_piped_table_is_one_line_per_setting(call):
    """Scripts may cut it: no wrapping, no colours, the same each time."""
    first, second = call(), call()

    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) == len(SETTINGS) + 2
    assert first.stdout.splitlines()[1].split() == ["mode", "offline", "default"]
    assert "\x1b" not in first.stdout


def test_defaults_are_shown_in_the_words_of_the_page(call):
    """What stands in docs/settings.md is what the command shows, but for the folder, which it shows whole."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)`.*? \|.*?\|.*?\| (?:`(.*?)`)? \|[^|]*\|$", page, re.MULTILINE))
    lines = [re.split(r"\s{2,}", line.strip()) for line in call().stdout.splitlines()[1:]]
    shown = {name: rest[0] if rest[1:] else "" for name, *rest in lines}

    assert {setting.name for setting in SETTINGS} <= documented.keys() & shown.keys()
    assert (shown["resume"], shown["copy_limit"], shown["redact"]) == ("false", "1 GiB", "all")
    different = {name for name in documented if documented[name] != shown[name].replace("not set", "")}
    assert different == {"dir", "base_url"}


def test_control_characters_of_values_do_not_reach_the_terminal(call):
    """A value is text of somebody else."""
    assert "\x1b" not in call(WANDB_NAME="\x1b[2J").stdout
