"""Where a setting's value comes from, and which values it may have."""

from __future__ import annotations

import copy
import enum
import pickle
import re
from pathlib import Path

import pytest
from runferry.writer.ranks import Rank, Role, rank_of
from runferry.writer.report import warn_on_stderr
from runferry.writer.settings import Settings, SettingsError, new_id, resolve, tell
from runferry.writer.settings_table import BY_KEY


def test_the_order_of_sources():
    """Argument, then Settings, then RUNFERRY_*, then WANDB_*, then the default."""
    environ = {"WANDB_PROJECT": "d", "RUNFERRY_PROJECT": "c"}

    assert resolve(Settings(project="a"), Settings(project="b"), environ).project == "a"
    assert resolve(Settings(), Settings(project="b"), environ).project == "b"
    assert resolve(Settings(), None, environ).project == "c"
    assert resolve(Settings(), None, {"WANDB_PROJECT": "d"}).project == "d"
    assert resolve(Settings(), None, {}).project == "uncategorized"


def test_every_variable_of_the_peer_that_we_know():
    """Each lands in its setting, in the setting's type."""
    environ = {
        "WANDB_MODE": "dryrun",
        "WANDB_DIR": "/scratch",
        "WANDB_ENTITY": "e",
        "WANDB_NAME": "n",
        "WANDB_NOTES": "o",
        "WANDB_TAGS": "a, b,",
        "WANDB_RUN_ID": "r1",
        "WANDB_RUN_GROUP": "g",
        "WANDB_JOB_TYPE": "j",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "wrap",
        "WANDB_X_STATS_SAMPLING_INTERVAL": "2.5",
        "WANDB_X_DISABLE_STATS": "true",
    }
    resolved = resolve(Settings(), None, environ)

    assert resolved.mode == "offline"
    assert resolved.root == Path("/scratch")
    assert (resolved.entity, resolved.name, resolved.notes) == ("e", "n", "o")
    assert resolved.tags == ("a", "b")
    assert (resolved.run_id, resolved.given_id) == ("r1", True)
    assert (resolved.group, resolved.job_type) == ("g", "j")
    assert (resolved.silent, resolved.console) == (True, "wrap")
    assert (resolved.sample_interval, resolved.disable_stats) == (2.5, True)


@pytest.mark.parametrize("variable", ["WANDB_DISABLED", "RUNFERRY_DISABLED"])
def test_disabled_by_variable(variable):
    """The peer's older switch turns everything off, unless a mode is given."""
    assert resolve(Settings(), None, {variable: "true"}).mode == "disabled"
    assert resolve(Settings(mode="offline"), None, {variable: "true"}).mode == "offline"


def test_the_peers_names_for_settings_are_understood():
    """Scripts pass the peer's Settings; what has no meaning here is kept to be named."""
    settings = Settings(run_name="n", x_disable_stats=True, root_dir="/r", sync_tensorboard=True, _x=False)
    settings.monitor_gym = False

    assert (settings.name, settings.disable_stats, settings.dir) == ("n", True, "/r")
    assert settings.unknown == ["sync_tensorboard", "_x"]  # who turns off what is not there misses nothing


@pytest.mark.parametrize(
    "run_id", ["", "a/b", "..", ".", "a:b", "a;b", "a,b", "a#b", "a?b", "a'b", "a\0b", " a", "a\nb"]
)
def test_ids_that_no_backend_or_disk_takes(run_id):
    """Separators, dot names, NUL, outer blanks, line ends."""
    with pytest.raises(SettingsError, match="run_id="):
        resolve(Settings(run_id=run_id), None, {})


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({"mode": "fast"}, {}),
        ({"durability": "paranoid"}, {}),
        ({"dir_prefix": "x"}, {}),
        ({"ranks": "some"}, {}),
        ({"sample_interval": 0.01}, {}),
        ({}, {"WANDB_RUN_ID": "a/b"}),
        ({}, {"WANDB_MODE": "fast"}),
        ({}, {"RUNFERRY_DIR": "a\0b"}),
        ({}, {"WANDB_PROJECT": "a/b"}),
        ({}, {"WANDB_RESUME": "sometimes"}),
        ({}, {"RUNFERRY_RESUME": "yes"}),
        ({"sample_interval": "nan"}, {}),
        ({"sample_interval": 1e20}, {}),
        ({"tags": 5}, {}),
        ({"tags": b"\xff"}, {}),
        ({"tags": [None]}, {}),
        ({"name": [None]}, {}),
        ({"name": iter("ab")}, {}),
        ({"name": print}, {}),
        ({"run_id": object()}, {}),
        ({"run_id": ["a"]}, {}),
        ({"strict": 2}, {}),
        ({"strict": [True]}, {}),
        ({"dir": "a\0b"}, {}),
        ({"dir": "\ud800"}, {}),
        ({"dir": 5}, {}),
        ({"base_url": "localhost:8080"}, {}),
        ({"base_url": "https://user:word@host"}, {}),
    ],
)
def test_values_that_a_setting_cannot_have(given, environ):
    """The error names the setting, or the variable that it came from."""
    (source,) = [*given, *environ]
    with pytest.raises(SettingsError, match=f"^{source}="):
        resolve(Settings(**given), None, environ)


@pytest.mark.parametrize(
    ("variable", "text", "attribute", "value"),
    [
        ("RUNFERRY_DURABILITY", "x", "durability", "normal"),
        ("RUNFERRY_SAMPLE_INTERVAL", "soon", "sample_interval", 15),
        ("WANDB_CONSOLE", "foo", "console", "off"),
        ("WANDB_TAGS", "a," + "b" * 65, "tags", ()),
        ("WANDB_DISABLED", "perhaps", "mode", "offline"),
        ("RUNFERRY_REDACT", "no-argv", "redact", {"argv", "config", "environment", "git"}),
        ("WANDB_BASE_URL", "https://user:word@host", "base_url", ""),
    ],
)
def test_wrong_variables_that_lead_no_run_astray(variable, text, attribute, value, capsys):
    """A cluster's profile stops no training: the value is named loudly, and the next source counts."""
    resolved = resolve(Settings(), None, {variable: text})
    (warning,) = resolved.warnings

    assert getattr(resolved, attribute) == value
    assert warning.startswith(f"{variable}=")
    assert warning.endswith("; the default counts instead")
    assert "word@" not in warning
    tell(resolved, warn_on_stderr)
    assert f"WARNING {warning}\n" in capsys.readouterr().err


def test_a_wrong_variable_leaves_the_next_source():
    """The warning says which."""
    environ = {"RUNFERRY_CONSOLE": "foo", "WANDB_CONSOLE": "wrap"}
    resolved = resolve(Settings(), None, environ)

    assert resolved.console == "wrap"
    assert "".join(resolved.warnings) == (
        "RUNFERRY_CONSOLE='foo': console takes off, wrap, redirect, auto (wrap), wrap_raw (wrap) or wrap_emu (wrap);"
        " WANDB_CONSOLE counts instead"
    )
    assert resolve(Settings(console="off"), None, environ).warnings == ()


class Word(str, enum.Enum):
    """Choices as programs keep them."""

    OFFLINE = "offline"


class Other(enum.Enum):
    """Members that are no text themselves."""

    GROUP = "g"


def test_what_stands_for_text():
    """The value of an enumeration's member, the text of bytes; blanks alone in a variable are nothing."""
    given = Settings(
        mode=Word.OFFLINE,
        name=Word.OFFLINE,
        dir=Word.OFFLINE,
        notes=b"caf\xc3\xa9",
        tags=[b"a", Word.OFFLINE],
        group=Other.GROUP,
    )
    found = resolve(given, None, {"WANDB_PROJECT": " \n"})

    assert (found.mode, found.name, found.notes) == ("offline", "offline", "caf\xe9")
    assert (found.root, found.tags, found.project) == (Path.cwd() / "offline", ("a", "offline"), "uncategorized")
    assert found.group == "g"
    assert resolve(Settings(tags=b"a"), None, {}).tags == ("a",)
    assert type(found.name) is str


def test_no_secret_is_shown():
    """Neither by `repr`, which stands in tracebacks and debuggers, nor by the message about a wrong value."""
    secret = "hf_" + "aB3" * 10
    given = Settings(notes=f"token={secret}", project="p")

    assert secret not in repr(given)
    assert "project='p'" in repr(given)
    assert secret not in repr(resolve(given, None, {}))
    headers = Settings(
        x_stats_open_metrics_http_headers={"X": "blue", "node": {"Y": "blue"}}
    )  # nothing tells that it is one
    assert "blue" not in repr(headers) + repr(resolve(headers, None, {}))
    assert "open_metrics_http_headers=" in repr(headers)
    with pytest.raises(SettingsError) as caught:
        resolve(Settings(project=f"https://user:{secret}@host"), None, {})
    assert secret not in str(caught.value)


def test_values_that_are_nearly_right():
    """Text for switches and numbers, numbers for text, one tag for a list; an empty variable is none."""
    given = Settings(strict="no", sample_interval="2", name=5, tags="one", resume=0)
    found = resolve(given, None, {"WANDB_TAGS": "", "WANDB_NAME": "", "RUNFERRY_SILENT": "yes"})

    assert (found.strict, found.sample_interval, found.name, found.tags) == (False, 2.0, "5", ("one",))
    assert (found.resume, found.continues, found.silent) == ("", False, True)
    assert resolve(Settings(disk_paths=Path("/a")), None, {}).disk_paths == ("/a",)


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    """No reason to stop a training: the log cannot be made there, which the run says."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert resolve(Settings(), None, {}).root == Path()


def test_random_ids():
    """Eight characters that every backend takes, never twice."""
    ids = {new_id() for _ in range(20_000)}

    assert len(ids) == 20_000
    assert all(re.fullmatch("[0-9a-z]{8}", run_id) for run_id in ids)


@pytest.mark.parametrize(
    ("environ", "rank", "role"),
    [
        ({}, Rank(0, 0), Role.FULL),
        ({"RANK": "0", "LOCAL_RANK": "0"}, Rank(0, 0), Role.FULL),
        ({"RANK": "3", "LOCAL_RANK": "3"}, Rank(3, 3), Role.NONE),
        ({"RANK": "8", "LOCAL_RANK": "0"}, Rank(8, 0), Role.SAMPLER),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, Rank(5, 1), Role.NONE),
        ({"SLURM_PROCID": "4", "SLURM_LOCALID": "0"}, Rank(4, 0), Role.SAMPLER),
        ({"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_JOB_NAME": "bash"}, Rank(0, 0), Role.FULL),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, Rank(2, 0), Role.SAMPLER),
        ({"PMI_RANK": "2"}, Rank(2, 2), Role.NONE),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_LOCAL_RANK": "1"}, Rank(1, 1), Role.NONE),
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "7", "SLURM_LOCALID": "7"}, Rank(0, 0), Role.FULL),
        ({"RANK": "", "SLURM_PROCID": "x"}, Rank(0, 0), Role.FULL),
        ({"RANK": "²"}, Rank(0, 0), Role.FULL),
    ],
)
def test_ranks(environ, rank, role):
    """Each launcher's variables, the inner launcher before the outer one; rank 0 logs, local rank 0 samples."""
    assert rank_of(environ) == rank
    assert rank_of(environ).role is role


def test_the_record_of_the_machine_says_what_the_settings_say(begin, state):
    """Names that were given stand instead of those found out; a repository that is not to be named is not."""
    names = {"host": "node7", "username": "ada", "program": "train.py"}
    run = begin(disable_meta=False, disable_git=True, cpu_count=3, gpu_type="none such", gpu_count=2, **names)
    found = state(*run.finish().paths)
    environment = found.environment

    assert {name: getattr(environment, name) for name in names} == names
    assert (environment.cpu_count, environment.gpu_count, environment.gpu_type) == (3, 2, "none such")
    assert not environment.HasField("git")
    assert found.info.host == "node7"


@pytest.mark.parametrize(
    ("setting", "given", "value"),
    [
        ("copy_limit", "1GB", 10**9),
        ("copy_limit", "1 gib", 2**30),
        ("copy_limit", "1.5k", 1500),
        ("copy_limit", "0", 0),
        ("copy_limit", 2.0, 2),
        ("redact", "all", {"argv", "environment", "config", "git"}),
        ("redact", True, {"argv", "environment", "config", "git"}),
        ("redact", "off", set()),
        ("redact", "none", set()),
        ("redact", False, set()),
        ("redact", "all, -config -git", {"argv", "environment"}),
        ("redact", ["-argv"], {"environment", "config", "git"}),
        ("continues", "auto", True),
        ("continues", "never", False),
        ("resume_mode", True, "auto"),
        ("resume_mode", False, ""),
        ("resume_mode", "", ""),
        ("resume_mode", "MUST", "must"),
        ("resume_mode", "true", "auto"),
        ("reinit", True, "finish_previous"),
        ("reinit", "false", "return_previous"),
        ("console", "auto", "wrap"),
        ("console", "wrap_emu", "wrap"),
        ("console", "wrap_raw", "wrap"),
        ("console", "redirect", "redirect"),
        ("mode", "shared", "online"),
        ("mode", "run", "online"),
        ("save_code", "y", True),
        ("gpu_device_ids", [0, 1], ("0", "1")),
        ("root", "~", Path.home()),
        ("name", "caf\udce9", "caf\ufffd"),
        ("name", "\ud800 \ud83d\ude00", "\ufffd \U0001f600"),
        ("name", Path("a/b"), "a/b"),
    ],
)
def test_how_values_may_be_written(setting, given, value):
    """Words in any case, amounts with units, what the peer calls by other words, text that no record could hold."""
    names = {"resume_mode": "resume", "continues": "resume", "root": "dir"}

    assert getattr(resolve(Settings(**{names.get(setting, setting): given}), None, {}), setting) == value


def test_shared_is_told_to_be_online():
    """Whoever expects processes that write to one run by a server learns what becomes of it, wherever the word stands."""
    said = "treated as online; logs of one run id become one run where they are synced"

    assert resolve(Settings(mode="Shared"), None, {}).warnings == (f"mode='Shared': {said}",)
    assert resolve(Settings(), {"mode": "shared"}, {}).warnings == (f"settings: mode='shared': {said}",)
    assert resolve(Settings(), None, {"WANDB_MODE": "shared"}).warnings == (f"WANDB_MODE='shared': {said}",)
    assert resolve(Settings(mode="run"), None, {"WANDB_MODE": "shared"}).warnings == ()


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("resume", ["", "auto", "never"]),
        ("copy_limit", [0, 1, 999, 1000, 1024, 1536, 500 * 10**6, 2**30, 3 * 2**40, 10**12, 2**63 - 1]),
        ("redact", [frozenset(), frozenset({"argv"}), frozenset({"argv", "config", "environment", "git"})]),
        ("tags", [("a", "b"), ()]),
        ("sample_interval", [0.1, 15.0]),
        ("strict", [True, False]),
    ],
)
def test_a_value_is_written_as_it_may_be_given(setting, values):
    """What `runferry settings` and the page show can be put into a variable, and means the same."""
    for value in values:
        text = BY_KEY[setting].kind.write(value)
        resolved = resolve(Settings(), None, {f"RUNFERRY_{setting.upper()}": text})
        assert getattr(resolved, BY_KEY[setting].attribute) == value
    assert BY_KEY["copy_limit"].kind.write(2**30) == "1 GiB"
    assert BY_KEY["copy_limit"].kind.write(500 * 10**6) == "500 MB"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"redact": "config"}, "redact='config': redact takes all, off, or what is left as it is: -argv, "),
        ({"copy_limit": "much"}, "copy_limit='much': copy_limit takes bytes, or text such as 500 MB or 1 GiB"),
        ({"copy_limit": -1}, "copy_limit=-1: "),
        ({"copy_limit": "1 iB"}, "copy_limit='1 iB': "),
        ({"copy_limit": True}, "copy_limit=True: "),
        ({"project": "a/b"}, "project='a/b': project takes up to 128 characters, none of # % / : ? \\"),
        ({"project": ".."}, "project='..': "),
        ({"cpu_count": 1 << 31}, "cpu_count=2147483648: cpu_count takes a whole number"),
        ({"project": "x" * 300}, "project='" + "x" * 199 + "...: "),
        ({"tags": ["", "a"]}, "tags=a list: tags takes a list of texts, each of 1 to 64 characters"),
        ({"strict": "ture"}, "strict='ture': strict takes true or false"),
        ({"disable_code": "perhaps"}, "disable_code='perhaps': disable_code takes true or false"),
        ({"run_name": {}}, "name=a dict: name takes text"),
        ({"resume": "yes"}, "resume='yes': resume takes allow, must, never, auto, true (auto) or false"),
        ({"resume": "1"}, "resume='1': resume takes "),
        ({"resume": 2}, "resume=2: resume takes "),
        ({"mode": "shard"}, "mode='shard': mode takes offline, online, disabled, dryrun (offline), run (online) or sh"),
        ({"probe_intervals": {"cpu": -1}}, "probe_intervals=a dict: -1 s for 'cpu' is not from 0 to 1,000,000; "),
        (
            {"open_metrics_endpoints": {"n": "http://u:pw@h/m"}},
            "open_metrics_endpoints=a dict: 'n': the URL holds a user or a password: give a header Authorization",
        ),
        (
            {"dcgm_exporter": "http://u:pw@h/m"},
            "dcgm_exporter='http://u:[redacted]@h/m': the URL holds a user or a password: ",
        ),
        ({"resume": "sometimes"}, "resume='sometimes': resume takes allow, must, never, auto, true (auto) or false"),
    ],
)
def test_an_error_says_what_the_setting_takes(given, says):
    """The place, the value (cut if it is long), the setting, and its values."""
    with pytest.raises(SettingsError) as caught:
        resolve(Settings(**given), None, {})
    assert str(caught.value).startswith(says)
    with pytest.raises(SettingsError) as caught:
        resolve(Settings(), given, {})
    assert str(caught.value).startswith(f"settings: {says}")


def test_a_list_that_is_half_json_is_told():
    """It is no list of one odd path. What merely begins with a bracket is text."""
    resolved = resolve(Settings(), None, {"RUNFERRY_DISK_PATHS": '["/a", "/b"', "RUNFERRY_TAGS": "[wip],x"})
    assert (resolved.disk_paths, resolved.tags) == (("/",), ("[wip]", "x"))
    (line,) = resolved.warnings
    assert "it begins as a JSON list, and is none; disk_paths takes a list" in line


def test_lists_of_the_environment():
    """Between commas, or as JSON; in code a single text is one item."""
    for text in ("a, b,", '["a", "b"]'):
        assert resolve(Settings(), None, {"WANDB_TAGS": text}).tags == ("a", "b")
    assert resolve(Settings(), None, {"WANDB_TAGS": "[wip], b"}).tags == ("[wip]", "b")
    assert resolve(Settings(tags="a, b"), None, {}).tags == ("a, b",)
    assert resolve(Settings(), None, {"WANDB_IGNORE_GLOBS": "*.ckpt,tmp/*"}).ignore_globs == ("*.ckpt", "tmp/*")


def test_settings_as_an_object():
    """Attributes are read and set by any of their names, copied and compared; what was not given is None."""
    settings = Settings(run_name="a", _disable_stats=True)
    settings.run_tags = ["t"]
    settings.nonsense = 1
    settings.project = "p"
    settings.disable_code = True
    other = copy.copy(settings)
    other.project = other.disable_code = None
    other.nonsense2 = 1

    assert (settings.name, settings.run_name, settings.tags, settings.x_disable_stats) == ("a", "a", ["t"], True)
    assert (settings.entity, settings.unknown, other.unknown) == (None, ["nonsense"], ["nonsense", "nonsense2"])
    assert (settings.disable_code, other.disable_code, settings.save_code) == (True, None, None)
    assert (settings.project, other.project, other.name) == ("p", None, "a")
    assert settings != other
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert repr(other) == "Settings(name='a', disable_stats=True, tags=['t'])"
    assert "sample_interval" in dir(settings)
    with pytest.raises(AttributeError, match="nothing is no setting"):
        _ = settings.nothing
    with pytest.raises(SettingsError, match="settings: a list is neither Settings nor a mapping"):
        resolve(Settings(), [], {})


@pytest.mark.parametrize(
    ("environ", "attribute", "value"),
    [
        ({"WANDB_DISABLE_CODE": "true", "WANDB_SAVE_CODE": "true"}, "save_code", False),
        ({"WANDB_DISABLE_CODE": "false", "WANDB_SAVE_CODE": "true"}, "save_code", True),
        ({"WANDB_DISABLED": "true", "WANDB_MODE": "online"}, "mode", "disabled"),
        ({"WANDB_DISABLED": "true", "RUNFERRY_MODE": "online"}, "mode", "online"),
        ({"WANDB_X_DISABLE_MACHINE_INFO": "true"}, "disable_stats", True),
        ({"WANDB_X_DISABLE_MACHINE_INFO": "true"}, "disable_meta", True),
        ({"WANDB__DISABLE_STATS": "true"}, "disable_stats", True),
        ({"WANDB_RUN_NAME": "a"}, "name", "a"),
        ({"WANDB_DURABILITY": "disk"}, "durability", "normal"),
        ({"WANDB_STRICT": "true"}, "strict", False),  # the peer has it, and does nothing with it
        ({"WANDB_GROUP": "a"}, "group", ""),
        ({"RUNFERRY_GROUP": "a", "WANDB_RUN_GROUP": "b"}, "group", "a"),
        ({"WANDB_START_METHOD": "thread"}, "mode", "offline"),
    ],
)
def test_variables_that_bear_on_each_other(environ, attribute, value):
    """A switch is stronger than the setting beside it; of the peer's variables only those that the peer has are read."""
    assert getattr(resolve(Settings(), None, environ), attribute) == value
