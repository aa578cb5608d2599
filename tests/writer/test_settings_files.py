"""Settings files: where they are looked for, what is read, and what is said about those that cannot be."""

from __future__ import annotations

import builtins
import configparser
import errno
import io
import os
import re
import sys
import threading
from pathlib import Path

import pytest
import runferry
from hypothesis import given as tried_with
from hypothesis import strategies as st
from runferry.writer import settings_files
from runferry.writer.settings import Settings, SettingsError, resolve, tell
from runferry.writer.settings_files import MAX_BYTES, Line, read_settings_file, user_files, workspace_files
from runferry.writer.settings_table import BY_KEY, OWN_VARIABLES


@pytest.fixture
def read(tmp_path):
    """What a file of the given content says."""
    file = tmp_path / "settings"

    def read(content):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_settings_file(file)

    return read


def test_the_peers_format(read):
    """Comments, both marks, values over several lines, a byte order mark, other sections, upper case."""
    found = read(
        "\ufeff# one\n; two\n\n[other]\nmode = disabled\n[DEFAULT]\nentity = weak\nnotes = weak\n[default]\r\n"
        "Entity = team\nname: a = b\nnotes =\n  first\n\n  # no\n  second\ntags =\n  project = p 100%%\n"
    )

    assert found.problem == ""
    assert found.values == {
        "entity": Line("team", 10),
        "name": Line("a = b", 11),
        "notes": Line("first\n\nsecond", 12),
        "tags": Line("project = p 100%", 17),
    }


def test_indented_keys_are_keys(read):
    """A line goes on only if it stands deeper than its key."""
    found = read("[default]\n  mode = offline\n  name = a\n    b\n")

    assert {key: line.value for key, line in found.values.items()} == {"mode": "offline", "name": "a\nb"}


TEXTS = st.text(
    st.characters(
        codec="utf-8", exclude_characters="%\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=["Cc"]
    ),
    max_size=12,
)


@tried_with(st.dictionaries(st.sampled_from(["mode", "entity", "base_url", "x_label"]), TEXTS.map(str.strip)))
def test_what_the_peer_writes_is_read_as_the_peer_reads_it(values):
    """For files that its library wrote, the values are those that its library reads."""
    parser = configparser.ConfigParser()
    parser.add_section("default")
    for key, value in values.items():
        parser.set("default", key, value)
    file = io.StringIO()
    parser.write(file)
    again = configparser.ConfigParser()
    again.read_string(file.getvalue())
    found = settings_files._parsed(settings_files.Path("f"), file.getvalue())

    assert found.problem == ""
    assert {key: line.value for key, line in found.values.items()} == dict(again.items("default"))


@tried_with(
    st.one_of(st.binary(max_size=200), st.text(alphabet="[]=:#; \n\tdefaultMODE\0", max_size=60).map(str.encode))
)
def test_any_bytes_are_read_or_named(tmp_path_factory, content):
    """Never an exception, and each problem names the file, and the line unless it is about the whole."""
    file = tmp_path_factory.getbasetemp() / "any-settings"
    file.write_bytes(content)
    found = read_settings_file(file)

    assert found.problem == "" or found.problem.startswith(f"{file}:")
    assert all(key and 0 < line.number <= content.count(b"\n") + 1 for key, line in found.values.items())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("mode = offline\n[default]\nname = n\n", ":1: this line is ignored: it is no `key = value` below [default]"),
        (
            "[default]\nname = n\nmode\n= x\n",
            ":3: this line (as 1 more) is ignored: it is no `key = value` below [default]",
        ),
        (b"[default]\nname = n\nnotes = \xff\n", ":3: this settings file is ignored: it is no UTF-8 text"),
        (b"[default]\nname = n\n\0\n", ":3: this settings file is ignored: it is no UTF-8 text"),
        (
            b"[default]\nname = n\n" + b"#" * MAX_BYTES,
            f": this settings file is ignored: it is larger than {MAX_BYTES} bytes",
        ),
    ],
)
def test_garbled_files(read, tmp_path, content, problem):
    """A stray line costs itself; a file that is no text, or far too large, counts for nothing."""
    found = read(content)

    assert found.problem == f"{tmp_path / 'settings'}{problem}"
    assert ("name" in found.values) == ("this line" in problem)


def test_a_file_that_says_it_is_small_is_read_no_further(read, monkeypatch):
    """What grows, or lies about its size, is cut off at the limit."""
    status = os.stat_result((0o100600, *[0] * 9))
    monkeypatch.setattr(os, "fstat", lambda _: status)

    assert "larger than" in read(b"\n" * (MAX_BYTES + 1)).problem


@pytest.mark.parametrize(
    "content",
    [
        "[default]\nname = a\n" + " b\n" * 340_000,
        "[default]\n" + "".join(f"{number:x}=1\n" for number in range(120_000)),
        "x\n" * 500_000,
        "[default]\n" + "x" * 1_000_000 + "=1\n",
        "[default]\ntags = " + "[" * 1_000_000,
    ],
    ids=["lines", "keys", "wrong", "name", "nested"],
)
def test_files_made_to_take_long(tmp_path, content):
    """A megabyte of anything costs moments, and few characters of a message."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text(content)
    resolved = resolve(Settings(dir=tmp_path), None, {})

    assert len("".join(resolved.warnings)) < 3000


def test_what_is_no_file(tmp_path):
    """A missing one is nothing to speak of; a directory, a pipe, a loop, a device are named, and nothing waits."""
    assert read_settings_file(tmp_path / "none") is None
    (tmp_path / "plain").touch()
    assert read_settings_file(tmp_path / "plain" / "settings") is None
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    for name, why in {
        "": os.strerror(errno.EISDIR),
        "loop": os.strerror(errno.ELOOP),
        "pipe": "it is no regular file",
        "null": "it is no regular file",
    }.items():
        found = read_settings_file(tmp_path / name)
        assert found.values == {}
        assert found.problem.startswith(f"{tmp_path / name}: this settings file is ignored: ")
        assert why in found.problem


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    """The system's reason is told."""

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    found = read_settings_file(tmp_path)

    assert found.problem == f"{tmp_path}: this settings file is ignored: Permission denied"


def test_where_files_are_looked_for(tmp_path):
    """Beside the runs, ours before the peer's and a hidden folder before a plain one; then in the user's own folders."""
    assert list(workspace_files(tmp_path)) == [tmp_path / name / "settings" for name in ("runferry", "wandb")]
    (tmp_path / ".wandb").mkdir()
    assert list(workspace_files(tmp_path)) == [tmp_path / name / "settings" for name in ("runferry", ".wandb")]

    config = tmp_path / ".config"
    xdg, own = tmp_path / "xdg", tmp_path / "own"
    cases = {
        (): [config / "runferry", config / "wandb"],
        (("XDG_CONFIG_HOME", xdg),): [xdg / "runferry", config / "wandb"],
        (("WANDB_CONFIG_DIR", own),): [config / "runferry", own],
        (("RUNFERRY_CONFIG_DIR", own), ("XDG_CONFIG_HOME", xdg)): [own, config / "wandb"],
    }
    for environ, folders in cases.items():
        found = list(user_files({name: str(path) for name, path in environ}, tmp_path))
        assert found == [folder / "settings" for folder in folders]
    assert list(user_files({}, None)) == []


def test_the_home_is_the_environments(tmp_path, monkeypatch):
    """As everywhere: the user's home is what HOME says."""
    folder = tmp_path / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nentity = team\n")

    assert resolve(Settings(), None, {"HOME": str(tmp_path)}).entity == "team"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(Settings()).entity == "team"
    assert resolve(Settings(), None, {}).entity == ""
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("~").symlink_to(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", str)  # a user without a home, in a folder that looks like one
    assert resolve(Settings()).entity == ""


def test_a_workspace_is_where_runs_go_and_where_the_script_starts(tmp_path, monkeypatch):
    """The file of `dir`, wherever that was given, is stronger than that of the working directory; both are read."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, more in ((here, "name = n\n"), (there, "")):
        (folder / "wandb").mkdir(parents=True)
        (folder / "wandb" / "settings").write_text(f"[default]\nentity = {folder.name}\n{more}")
    monkeypatch.chdir(here)
    elsewhere = resolve(Settings(), None, {"WANDB_DIR": str(there)})

    assert resolve(Settings(), None, {}).entity == "here"
    assert (elsewhere.entity, elsewhere.name) == ("there", "n")


def test_a_wrong_value_in_a_file_is_passed_over(tmp_path):
    """The next source counts, one line names file, line, value and what the setting takes; a training goes on."""
    home = tmp_path / "home"
    files = [tmp_path / "wandb" / "settings", home / ".config" / "wandb" / "settings"]
    for file, console in zip(files, ("fast", "wrap"), strict=True):
        file.parent.mkdir(parents=True)
        file.write_text(f"[default]\nconsole = {console}\n")
    resolved = resolve(Settings(dir=tmp_path), None, {}, home)

    assert resolved.console == "wrap"
    takes = f"console takes {BY_KEY['console'].kind.takes}"
    assert resolved.warnings == (f"{files[0]}:2: console='fast': {takes}; {files[1]}:2 counts instead",)
    files[0].write_text("[default]\nconsole =\n")
    assert resolve(Settings(dir=tmp_path), None, {}, home).console == "wrap"
    files[1].write_text("[default]\nproject = a/b\n")
    with pytest.raises(SettingsError, match=f"^{files[1]}:2: project='a/b': project takes "):
        resolve(Settings(dir=tmp_path), None, {}, home)
    assert resolve(Settings(dir=tmp_path, project="p"), None, {}, home).project == "p"


def test_names_without_meaning_are_told_in_one_line(tmp_path):
    """Those of arguments, objects and files together, and variables of our own, sorted, with a guess for slips."""
    (tmp_path / "wandb").mkdir()
    file = tmp_path / "wandb" / "settings"
    file.write_text("[default]\nx_service_hope = 3\nbase_url = http://a\nstart_method = fork\n")
    given = Settings(dir=tmp_path, console_multipart=True, x_proxies=None, projct="p", start_method="thread")
    resolved = resolve(given, {"\x1b[2J": 1}, {"RUNFERRY_PROJCT": "p", "WANDB_FUTURE": "1"})

    (line,) = resolved.warnings
    assert line.removeprefix("these settings have no meaning here: ") == (
        "'\\x1b[2J', RUNFERRY_PROJCT (did you mean RUNFERRY_PROJECT?), console_multipart, projct (did"
        f" you mean project?), x_service_hope ({file})"
    )
    assert len(resolve(Settings(**{f"x{number}": 1 for number in range(500)}), None, {}).warnings[0]) < 1000


def test_variables_of_our_own_that_are_no_settings():
    """A slip is told with a guess; ours that other parts read, empty ones and those of the peer are not, nor any value."""

    def told(**environ):
        return "".join(resolve(Settings(), None, environ).warnings)

    assert told(RUNFERRY_PROJEKT="foo") == (
        "these settings have no meaning here: RUNFERRY_PROJEKT (did you mean RUNFERRY_PROJECT?)"
    )
    assert told(RUNFERRY_API_KAY="5ec2e7") == (
        "these settings have no meaning here: RUNFERRY_API_KAY (did you mean RUNFERRY_API_KEY?)"
    )
    assert told(RUNFERRY_FORK_FROM="r").startswith("RUNFERRY_FORK_FROM is not followed: ")
    assert told(RUNFERRY_XYZ="1").endswith("here: RUNFERRY_XYZ")
    assert told(RUNFERRY_PROJEKT=" ", RUNFERRY_START_METHOD="fork", WANDB_PROJEKT="p", RUNFERRYX="1") == ""
    assert told(**{f"RUNFERRY_{name}": "1" for name in OWN_VARIABLES}) == ""


def test_every_variable_that_the_program_reads_is_known():
    """What a part of the program takes from the environment is no slip."""
    package = Path(runferry.__file__).parent
    parts = ("backend", "cli", "logformat", "sampler", "sync", "viewer", "writer")
    sources = [path for part in parts for path in (package / part).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r"\bRUNFERRY_([A-Z_]*[A-Z])\b", path.read_text())}

    assert {"RANK", "API_KEY"} <= read
    assert read <= OWN_VARIABLES | {key.upper() for key in BY_KEY}


def test_what_a_script_would_miss_is_told_with_its_reason():
    """Forks, rewinds and keys in code are not followed; the key itself is nowhere in the message, nor kept."""
    given = Settings(fork_from="r?_step=3", resume_from="r?_step=3", api_key="5ec2e7" * 7, code_dir=".")
    resolved = resolve(given, None, {})

    assert [line.partition(" is not followed: ")[0] for line in resolved.warnings] == [
        "fork_from",
        "api_key",
        "resume_from",
        "code_dir",
    ]
    assert "log_code" in resolved.warnings[-1]
    assert "5ec2e7" not in f"{resolved.warnings}{resolved}{given}{vars(given)}"


def test_each_warning_is_told_once_in_a_process():
    """Three hundred runs of one process say it once; `silent` says nothing."""
    told = []
    quiet = resolve(Settings(told_once=1, silent=True), None, {})
    tell(quiet, told.append)
    assert told == []
    for _ in range(2):
        tell(resolve(Settings(told_once=1), None, {}), told.append)

    assert told == ["these settings have no meaning here: told_once"]


def test_nothing_is_written_anywhere(tmp_path, monkeypatch):
    """Settings are looked for without making a folder, a file or a lock."""
    written = []
    watching = threading.local()
    watching.on = True

    def hook(event, arguments):
        if not getattr(watching, "on", False):
            return
        writes = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or event in {"os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink"}:
            written.append((event, arguments))

    sys.addaudithook(hook)
    try:
        resolve(Settings(dir=tmp_path / "new"), None, {"HOME": str(tmp_path / "home")})
    finally:
        watching.on = False

    assert written == []
    assert list(tmp_path.iterdir()) == []


def test_no_parser_is_loaded(monkeypatch):
    """Neither configparser nor a YAML reader, file or not: a run begins in milliseconds."""
    wanted = builtins.__import__

    def refuse(name, *rest):
        assert name.partition(".")[0] not in {"configparser", "yaml", "tomllib"}
        return wanted(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    resolve(Settings(), None, {})
