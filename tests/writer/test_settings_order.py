"""For every setting of the table: which of its sources counts, and under which names it is understood."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given as tried_with
from hypothesis import strategies as st
from runferry.writer import settings_values as takes
from runferry.writer.settings import Settings, SettingsError, examine, resolve
from runferry.writer.settings_table import (
    ANYWHERE,
    BY_KEY,
    NOT_IN_FILES,
    NOT_IN_WORKSPACE,
    SETTINGS,
    UNSUPPORTED,
    WITHOUT_EFFECT,
    Resolved,
)

NAMES = [setting.name for setting in SETTINGS]


def texts(setting):
    """Two texts that the setting takes and that mean different things, neither of them its default."""
    own = {
        "mode": ("online", "disabled"),
        "durability": ("relaxed", "disk"),
        "ranks": ("all", "auto"),
        "dir_prefix": ("offline-run", "run"),
        "file_transfer": ("link", "copy"),
        "console": ("wrap", "redirect"),
        "resume": ("must", "never"),
        "reinit": ("create_new", "return_previous"),
        "redact": ("-config", "off"),
        "dir": ("/one", "/two"),
        "base_url": ("http://one", "https://two:8080/path"),
        "copy_limit": ("1 MB", "2 MiB"),
        "sample_interval": ("1.5", "2.5"),
        "cpu_norm": ("physical", "available"),
        "open_metrics_http_headers": ('{"A": "b"}', '{"one": {"C": "d"}}'),
    }
    kinds = {
        takes.NUMBER: ("1", "2"),
        takes.SAMPLES: ("-1", "2"),
        takes.INTERVALS: ("cpu=30", '{"cpu": 2.5, "memory": 0}'),
        takes.ADDRESS: ("http://one", 'https://two/query?q=a{b="c", d="e"}'),
        takes.ENDPOINTS: ("one=http://one", '{"two": "http://two/metrics"}'),
        takes.FILTERS: ("one", '{"two": {}, "a": {"b": "c"}}'),
        takes.COUNT: ("1", "2"),
        takes.FLAG: ("true", "false"),
        takes.LIST: ("a,b", "c"),
        takes.TAGS: ("a,b", "c"),
    }
    return own.get(setting.name) or kinds.get(setting.kind) or ("one", "two")


class Surroundings:
    """All the places that may give one setting, each of which can be taken away."""

    def __init__(self, setting, tmp_path):
        self.setting, self.tmp_path = setting, tmp_path
        self.root, self.home = tmp_path / "root", tmp_path / "home"
        self.root.mkdir()
        self.arguments = Settings() if setting.name == "dir" else Settings(dir=self.root)
        self.base, self.environ = Settings(), {}
        self.steps = []
        """(place, value, how to take it away), the strongest first."""

    def fill(self):
        setting, (first, second) = self.setting, texts(self.setting)
        turn = 0

        def text():
            nonlocal turn
            turn += 1
            return first if turn % 2 else second

        for place, given in (("argument", self.arguments), ("settings=", self.base)):
            value = text()
            setattr(given, setting.name, takes.split(value) if setting.kind.listed else value)
            self.steps.append((place, value, lambda given=given: setattr(given, setting.name, None)))
        for variable in setting.environment:
            if variable.rpartition("_")[2].lower() and variable.partition("_")[2].lower() not in setting.switches:
                self.environ[variable] = value = text()
                self.steps.append((variable, value, lambda variable=variable: self.environ.pop(variable)))
        folders = {
            self.root / "runferry": ANYWHERE,
            self.root / "wandb": ANYWHERE,
            self.home / ".config" / "runferry": NOT_IN_WORKSPACE,
            self.home / ".config" / "wandb": NOT_IN_WORKSPACE,
        }  # and the scope besides ANYWHERE that is obeyed there
        for folder, scope in folders.items():
            if setting.scope in {ANYWHERE, scope}:
                folder.mkdir(parents=True)
                value = text()
                (folder / "settings").write_text(f"[default]\n{setting.name} = {value}\n")
                self.steps.append((f"{folder / 'settings'}:2", value, (folder / "settings").unlink))
        return self.steps

    def decided(self):
        each = examine(self.arguments, self.base, self.environ, self.home).each
        return next(decision for decision in each if decision.setting is self.setting)


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_the_strongest_source_counts(setting, tmp_path):
    """All sources set, and taken away one by one from the strongest: value and place follow, down to the default."""
    around = Surroundings(setting, tmp_path)
    for place, text, take_away in around.fill():
        decision = around.decided()
        value = takes.split(text) if setting.kind.listed else text
        assert (decision.place, decision.value) == (place, setting.kind.read(value))
        assert decision.problems == ()
        take_away()
    decision = around.decided()

    assert decision.place == "default"
    assert decision.value == (None if setting.default is None else setting.kind.read(setting.default))


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_every_name_of_a_setting_is_understood(setting):
    """In code, as a `Settings` and as a mapping: its own name and the peer's."""
    text = texts(setting)[0]
    value = setting.kind.read(text)
    for key in setting.keys:
        given, expected = (text, value) if key not in setting.switches else (True, setting.switches[key])
        for arguments, base in ((Settings(**{key: given}), None), (Settings(), {key: given})):
            resolved = resolve(arguments, base, {})
            assert getattr(resolved, setting.attribute) == expected
            assert resolved.warnings == ()
        assert setting in {other for other in SETTINGS if key in other.keys}


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_every_variable_of_a_setting_is_read(setting):
    """Alone, it decides; empty, it is not there."""
    for variable in setting.environment:
        key = variable.partition("_")[2].lower()
        text, expected = texts(setting)[0], None
        if key in setting.switches:
            text, expected = "true", setting.switches[key]
        resolved = resolve(Settings(), None, {variable: text})
        if expected is None:
            expected = setting.kind.read(takes.split(text) if setting.kind.listed else text)
        assert getattr(resolved, setting.attribute) == expected
        assert examine(Settings(), None, {variable: ""}).each == examine(Settings(), None, {}).each


@pytest.mark.parametrize("switch", sorted({key for setting in SETTINGS for key in setting.switches}))
def test_a_switch_that_is_off_says_nothing(switch, tmp_path):
    """`WANDB_DISABLED=false` is no wish for a mode."""
    off = examine(Settings(**{switch: False}), None, {}).each

    assert off == examine(Settings(), None, {}).each


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.scope != ANYWHERE], ids=lambda setting: setting.name)
def test_what_must_not_stand_in_a_file_is_refused_there(setting, tmp_path):
    """A folder that came with somebody's code turns no redaction off and sends nothing elsewhere; a line says so."""
    home, root = tmp_path / "home", tmp_path / "root"
    text = texts(setting)[0]
    places = {root / "wandb": {NOT_IN_WORKSPACE, NOT_IN_FILES}, home / ".config" / "wandb": {NOT_IN_FILES}}
    for folder, refusing in places.items():
        folder.mkdir(parents=True)
        file = folder / "settings"
        file.write_text(f"[default]\n{setting.name} = {text}\n")
        resolved = resolve(Settings(dir=root), None, {}, home)
        if setting.name != "dir":
            value = setting.kind.read(takes.split(text) if setting.kind.listed else text)
            obeyed = getattr(resolved, setting.attribute) == value
            assert obeyed == (setting.scope not in refusing)
        if setting.scope in refusing:
            said = (
                () if setting.name == "base_url" else (f"{file}:2: {setting.name} is ignored: it is {setting.scope}",)
            )
            assert resolved.warnings == said
        file.unlink()


ANY_TEXT = st.one_of(
    st.text(max_size=40), st.sampled_from(["1e400", "nan", "-1", "0", "inf", "1" * 5000, "\ud800", "a\0b"])
)


@tried_with(
    values=st.dictionaries(st.sampled_from(sorted(v for s in SETTINGS for v in s.environment)), ANY_TEXT, max_size=6)
)
def test_any_text_of_the_environment_is_taken_or_named(values):
    """Every setting has a value of its kind, or a line names variable, text and what it takes: an error if it steers."""
    try:
        resolved = resolve(Settings(), None, values)
    except SettingsError as error:
        message = str(error)
        variable = message.partition("=")[0]
        key = variable.partition("_")[2].lower()
        assert variable in values
        assert f": {key} takes " in message
        assert len(message) < 800
        assert BY_KEY[key].steers
    else:
        named = (line for line in resolved.warnings if " takes " in line)
        assert {line.partition("=")[0] for line in named} <= {*values}
        for setting in SETTINGS:
            value = getattr(resolved, setting.attribute)
            assert isinstance(value, frozenset) or setting.kind.read(value) == value


@tried_with(
    st.sampled_from(SETTINGS),
    st.one_of(st.none(), st.floats(), st.binary(max_size=5), st.lists(st.integers()), st.builds(object)),
)
def test_any_object_given_in_code_is_taken_or_named(setting, value):
    """No error of a conversion escapes as it is."""
    said = [
        problem.text
        for decision in examine(Settings(**{setting.name: value}), None, {}).each
        for problem in decision.problems
    ]

    assert all(text.startswith(f"{setting.name}=") for text in said)


def test_names_are_told_apart():
    """No name means two settings, but for switches; none is also called unsupported or without effect."""
    plain = [key for setting in SETTINGS for key in setting.keys if key not in setting.switches]

    assert len(plain) == len(set(plain))
    assert not set(BY_KEY) & {*UNSUPPORTED, *WITHOUT_EFFECT}
    assert len({setting.attribute for setting in SETTINGS}) == len(SETTINGS)


def test_defaults_and_explanations_are_whole():
    """Each default is a value of its kind, each line of help a sentence."""
    for setting in SETTINGS:
        if setting.default is not None:
            setting.kind.read(setting.default)
        assert setting.about.endswith(".")
        assert setting.kind.takes


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_decided_settings_are_read_by_every_name(setting):
    """Scripts ask `run.settings` by the peer's names."""
    resolved = resolve(Settings(**{setting.name: texts(setting)[0]}), None, {})
    for name in {*setting.keys} - {*setting.switches}:
        assert getattr(resolved, name) == getattr(resolved, setting.attribute)
    with pytest.raises(AttributeError, match="nothing is no setting"):
        _ = resolved.nothing


def test_resolved_settings_stay_as_they_are():
    """They are read on several threads; a variant is a copy."""
    resolved = resolve(Settings(project="a"), None, {})
    with pytest.raises(AttributeError, match="project was decided"):
        resolved.project = "b"
    other = resolved._replace(project="b")

    assert (resolved.project, other.project, other.run_id) == ("a", "b", resolved.run_id)
    assert isinstance(other, Resolved)
    assert "project='b'" in repr(other)
    assert pickle.loads(pickle.dumps(other)).project == "b"
    assert resolved.root == Path.cwd()
