"""The drop-in face: `import runferry` and the current run."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
import runferry
from runferry.logformat import RunState, read_records
from runferry.writer import NoRunError, SettingsError

QUIET = {"silent": True, "disable_stats": True, "disable_meta": True}


@pytest.fixture
def init(tmp_path):
    def init(**arguments):
        return runferry.init(dir=tmp_path, settings=QUIET, **arguments)

    return init


def test_the_current_run(init):
    """Module-level functions speak to the run that `init` made; `config` and `summary` are looked up each time."""
    assert runferry.run is None
    run = init(project="p", config={"a": 1})
    runferry.log({"loss": 0.5})
    runferry.log({"loss": 0.25}, step=3)
    runferry.define_metric("x", hidden=True)
    runferry.alert("t", "x")
    runferry.config.b = 2
    runferry.summary["best"] = 0.25

    assert runferry.run is run
    assert runferry.config == {"a": 1, "b": 2}
    assert runferry.summary["loss"] == 0.25
    report = runferry.finish()
    assert runferry.run is None
    assert runferry.finish() is None
    found = runferry.load(report.paths[0])
    assert [row["loss"] for row in found.rows] == [0.5, 0.25]
    assert [record.kind for record in runferry.read(report.paths[0])][-1] == "exit"
    second = init()
    assert runferry.config is second.config


def test_a_config_is_assigned(init):
    """As old scripts do, behind `init` or before it: it is logged, and the name goes on to mean the run's config."""
    runferry.config = {"early": 1, "both": 1}
    init(config={"both": 2})
    runferry.config = {"late": 3}
    runferry.summary = {"best": 4}
    runferry.run.summary = {"last": 5}
    runferry.config.later = 7

    assert runferry.config == {"early": 1, "both": 2, "late": 3, "later": 7}
    found = runferry.load(runferry.finish().paths[0])
    assert {"early": 1, "both": 2, "late": 3, "later": 7}.items() <= found.config.items()
    assert {"best": 4, "last": 5}.items() <= found.summary.items()
    init()
    assert runferry.config == {}
    runferry.finish()
    runferry.config = runferry.config  # as a test does that puts back what it replaced
    with pytest.raises(NoRunError):
        runferry.summary = {}


def test_a_config_is_given_and_assigned_as_whatever_it_may_be(init):
    """Both kinds of object."""
    runferry.config = types.SimpleNamespace(a=1)
    init(config=types.SimpleNamespace(b=2))

    assert runferry.config == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "use",
    [
        lambda: runferry.log({"a": 1}),
        lambda: runferry.define_metric("a"),
        lambda: runferry.alert("a", "b"),
        lambda: runferry.config["a"],
        lambda: runferry.config.update({"a": 1}),
        lambda: setattr(runferry.config, "a", 1),
        lambda: runferry.summary.__setitem__("a", 1),
    ],
)
def test_before_init(use):
    """Whatever needs a run says so, and what to do."""
    with pytest.raises(NoRunError, match=r"call runferry\.init\(\) first"):
        use()


def test_a_second_init(init):
    """Returns the current run; finishes it, or leaves it alone, if told so."""
    first = init()
    assert init() is first
    second = init(reinit=True)
    assert first.finished
    third = init(reinit="create_new")
    assert not second.finished
    assert runferry.run is third
    second.finish()


def test_a_second_init_where_nothing_is_said(tmp_path, monkeypatch):
    """In a notebook the run before is finished, since its cell has run; the environment and `settings=` decide too."""

    def init(**more):
        return runferry.init(**{"dir": tmp_path, "settings": {"disable_stats": True, "disable_meta": True}, **more})

    first = init()
    assert init(settings={"reinit": "return_previous"}) is first
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    second = init()
    assert (first.finished, second.finished) == (True, False)
    assert init(reinit=False) is second
    monkeypatch.setenv("WANDB_REINIT", "create_new")
    assert init() is not second
    assert not second.finished
    second.finish()


def test_quiet_leaves_warnings(tmp_path, capsys):
    """No news of where the log is, but what has no meaning here is named."""
    runferry.init(dir=tmp_path, quiet=True, nonsense=1, settings={"disable_stats": True, "disable_meta": True})
    error = capsys.readouterr().err

    assert "no meaning here: nonsense" in error
    assert "logging run" not in error


def test_settings_without_meaning_are_named_once(tmp_path, capsys):
    """A script for the peer carries settings that nothing here needs; a wrong value is an error."""
    for _ in range(2):
        runferry.init(dir=tmp_path, console_multipart=True, settings=runferry.Settings(x_sync=True, disable_stats=True))
        runferry.finish()
    error = capsys.readouterr().err

    assert error.count("no meaning here: console_multipart, x_sync\n") == 1
    with pytest.raises(SettingsError, match="durability"):
        runferry.init(dir=tmp_path, durability="never")


def test_one_process_of_a_job_speaks_of_its_settings(tmp_path, capsys, monkeypatch):
    """A wrong variable of a thousand ranks is one line."""
    monkeypatch.setenv("WANDB_CONSOLE", "of all")
    for rank, count in (("1", 0), ("0", 1)):
        monkeypatch.setenv("RANK", rank)
        runferry.init(dir=tmp_path, settings={"disable_stats": True, "disable_meta": True})
        runferry.finish()
        assert capsys.readouterr().err.count("WANDB_CONSOLE='of all'") == count


def test_online_says_what_it_does(tmp_path, capsys):
    """No pretending: the run is logged here, and the line says how it is sent."""
    run = runferry.init(dir=tmp_path, mode="online", settings={"disable_stats": True, "disable_meta": True})
    error = capsys.readouterr().err

    assert str(run.log_path) in error
    assert "runferry sync" in error


def test_disabled_by_mode(tmp_path):
    """A disabled run is a run whose calls do nothing."""
    with runferry.init(dir=tmp_path, mode="disabled") as run:
        run.log({"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_the_face_is_complete():
    """Every name of `__all__` can be had, is listed by `dir`, and an unknown name is an AttributeError."""
    for name in runferry.__all__:
        getattr(runferry, name)
    assert set(runferry.__all__) <= set(dir(runferry))
    with pytest.raises(AttributeError):
        _ = runferry.nothing


def python(code, **environ):
    """Run `code` in a fresh interpreter; what it printed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_import_loads_next_to_nothing():
    """`import runferry` brings neither its parts nor the libraries that they need."""
    code = "import sys; before = set(sys.modules); import runferry; print(*sorted(set(sys.modules) - before))"
    loaded = set(python(code).split())

    assert [name for name in loaded if name.startswith("runferry.")] == []
    assert {name.split(".")[0] for name in loaded} - {"runferry"} <= set(sys.stdlib_module_names)
    assert not {"asyncio", "dataclasses", "http", "json", "pathlib", "socket", "ssl"} & loaded


def test_a_run_needs_no_protobuf_runtime(tmp_path):
    """Starting, logging and finishing import no protobuf, no HTTP client and no command line."""
    code = f"""
import sys, runferry
run = runferry.init(dir={str(tmp_path)!r}, config={{"a": 1}}, settings={QUIET!r})
run.log({{"a": 1}}); run.summary["b"] = 1; run.config["c"] = 2
print(run.finish().complete, *sorted({{name.split(".")[0] for name in sys.modules}}))
"""
    words = python(code).split()

    assert words[0] == "True"
    assert not {"google", "httpx", "click", "rich", "psutil", "pynvml"} & set(words)


def test_many_runs_leave_nothing_behind(tmp_path):
    """300 runs in one process that may open 64 files: no descriptor, thread or hook stays."""
    code = f"""
import resource, sys, threading, os, runferry
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hook, leave = sys.excepthook, sys.exit
for number in range(300):
    run = runferry.init(dir={str(tmp_path)!r}, settings={QUIET!r}, durability="relaxed")
    run.log({{"a": number}})
    assert run.finish().complete
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) < 10
assert (sys.excepthook, sys.exit) == (hook, leave)
"""
    python(code)
    logs = list(tmp_path.rglob("*.wandb"))

    assert len(logs) == 300
    assert all(RunState().add_all(read_records(log)).exit_code == 0 for log in logs[:20])


def test_the_machine_is_recorded_as_it_was_when_the_run_began(tmp_path, monkeypatch):
    """A script that goes elsewhere, and changes its arguments, right behind `init` is recorded as it was started."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "1"])
    run = runferry.init(dir=tmp_path, settings={"silent": True, "disable_stats": True})
    monkeypatch.chdir(tmp_path / "elsewhere")
    sys.argv.clear()
    run.finish()

    environment = runferry.load(run.log_path).environment
    assert (environment.root, list(environment.args)) == (str(tmp_path), ["--lr", "1"])


@pytest.mark.parametrize("how", ["disabled", "rank"])
def test_a_process_that_logs_nothing_runs_the_same_script(init, monkeypatch, how):
    """Disabled, or another rank: the summary holds what was logged, and `dir` is a folder that goes with the process."""
    if how == "rank":
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("LOCAL_RANK", "3")
    run = init(mode="disabled" if how == "disabled" else None)
    run.log({"loss": 1, "val": {"acc": 0.5}})
    run.log({"loss": 2, "bad": object()})

    assert (run.summary["loss"], run.summary["val"]["acc"], "bad" in run.summary) == (2, 0.5, False)
    assert Path(run.dir).is_dir()
    assert run.dir == run.dir
    assert run.log_path is None


def test_a_second_init_gives_the_run_and_says_so(init, tmp_path, capsys):
    """What it was given is not taken over, so nobody should believe it."""
    run = runferry.init(dir=tmp_path, settings={**QUIET, "silent": False})
    assert runferry.init(project="other") is run
    assert "reinit=True" in capsys.readouterr().err


def test_strict_begins_no_run_that_has_no_log(tmp_path):
    """A path by mistake costs no training: `strict` refuses to begin."""
    (tmp_path / "file").write_text("")
    with pytest.raises(runferry.UsageError, match="no log could be made"):
        runferry.init(dir=tmp_path / "file", strict=True, settings=QUIET)

    assert runferry.run is None


def test_the_end_tells_of_an_exit_code(tmp_path, capsys):
    """The last line says with which code a run ended that did not end well."""
    runferry.init(dir=tmp_path, settings={**QUIET, "silent": False}).finish(3)

    assert "; exit code 3" in capsys.readouterr().err
