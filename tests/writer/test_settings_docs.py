"""docs/settings.md says what the table of settings says. `python tests/writer/test_settings_docs.py` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

from runferry.writer.settings_table import ANYWHERE, SETTINGS, UNSUPPORTED, WITHOUT_EFFECT, Resolved

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
HEAD = ("setting", "variables", "takes", "default", "is")


def written(setting):
    """A default as `runferry settings` shows it, but for folders, which it shows whole."""
    if setting.default is None or setting is Resolved.root:
        return setting.default or ""
    return setting.kind.write(setting.kind.read(setting.default))


def cells(setting):
    """One row. Behind `RUNFERRY_` only a setting's own name and its switches are shown, to keep the table legible."""
    about = setting.about + ("" if setting.scope == ANYWHERE else f" *{setting.scope.capitalize()}.*")
    names = [setting.name, *(key for key in setting.keys if key != setting.name)]
    ours = {f"RUNFERRY_{key.upper()}" for key in (setting.name, *setting.switches)}
    variables = [name for name in setting.environment if name in ours or name.startswith("WANDB_")]
    default = written(setting)
    return (
        ", ".join(f"`{name}`" for name in names),
        ", ".join(f"`{name}`" for name in variables),
        setting.kind.takes.replace("|", "\\|"),
        f"`{default}`" if default else "",
        about,
    )


def table():
    lines = [HEAD, ("---",) * len(HEAD), *map(cells, SETTINGS)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parts(text):
    """The page before, within and after its table."""
    return re.fullmatch(r"(.*?\n\n)(\| setting \|.*?\n)(\n.*|)", text, re.DOTALL).groups()


def test_the_page_has_every_setting_as_it_is():
    """A setting that is added, renamed or explained anew changes the page with it."""
    assert parts(PAGE.read_text())[1] == table(), f"run `python {Path(__file__).name}`"


def test_the_page_speaks_of_what_is_not_followed():
    """Whoever looks for a setting of the peer that has no meaning here finds it named."""
    text = PAGE.read_text()

    assert all(f"`{name}`" in text for name in {*UNSUPPORTED, *WITHOUT_EFFECT})


def test_the_page_names_the_settings_that_must_be_right():
    """A wrong value of these is an error wherever it stands."""
    (row,) = re.findall(r"^\| a variable or a file \| (`.*`) \| `SettingsError`", PAGE.read_text(), re.MULTILINE)

    assert row == ", ".join(f"`{setting.name}`" for setting in SETTINGS if setting.steers)


def test_the_table_can_be_read_back():
    """Each row has as many cells as the head, and its first name is the setting's."""
    rows = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table().splitlines()[2:]]

    assert {len(row) for row in rows} == {len(HEAD)}
    assert [row[0].split("`")[1] for row in rows] == [setting.name for setting in SETTINGS]


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + table() + after)
