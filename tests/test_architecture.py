"""The rules that keep the folders apart, the import light and the wheel complete: docs/architecture.md."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("backend", "bundle", "cli", "export", "logformat", "sampler", "sync", "viewer", "writer")
SOURCES = [*sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")), ROOT / "__init__.py"]

HOMES = {
    "click": ("cli",),
    "certifi": ("sync/network.py",),
    "fsspec": ("export", "bundle"),
    "gcipuinfo": ("sampler/probes/ipu.py",),
    "google": ("export", "logformat", "sync", "writer"),
    "h2": ("sampler/probes/tpu_grpc.py",),
    "httpcore": ("sync/sockets.py", "sync/transport.py"),
    "libtpu": ("sampler/probes/tpu.py",),
    "lightning": ("writer/integrations/lightning.py",),
    "numpy": ("logformat",),
    "orjson": ("backend", "bundle", "cli", "export", "logformat", "sync", "writer"),
    "pandas": ("logformat",),
    "polars": ("logformat",),
    "psutil": ("sampler",),
    "pyarrow": ("export", "logformat"),
    "pynvml": ("sampler",),
    "pytorch_lightning": ("writer/integrations/lightning.py",),
    "rich": ("cli",),
    "starlette": ("backend",),
    "textual": ("viewer",),
    "transformers": ("writer/integrations/huggingface.py",),
    "uvicorn": ("backend",),
    "zstandard": ("bundle", "logformat", "sync"),
}
"""Module of a dependency -> where it may be imported."""


def may_import():
    """Folder -> the folders that it may import, from the third column of the table in docs/architecture.md."""
    table = re.findall(
        r"^\| `([\w.]+?)/?` \|.*\| ([^|]+) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
    rules = {}
    for folder, rule in table:
        if rule.startswith("all"):
            rules[folder] = set(FOLDERS)
        else:
            rules[folder] = set(re.findall(r"`(\w+)`", rule))
    return rules


def imports(path):
    """Every import in a file as (line, relative level, module, names), those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, node.module or "", [alias.name for alias in node.names]


def targets(path, level, module, names):
    """The modules of ours that a relative import reaches, by their path below the root."""
    package = path.relative_to(ROOT).parent.parts
    base = [*package[: len(package) - level + 1], *filter(None, module.split("."))]
    return [base] if module else [[*base, name] for name in names]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_keep_to_the_rules(path):
    """Between folders only as the table says; inside the package relatively; a dependency only in its home."""
    here = path.relative_to(ROOT)
    folder = here.parts[0]
    allowed = may_import()[folder] | {folder}
    for line, level, module, names in imports(path):
        where = f"{here}:{line}"
        if level == 0:
            top = module.partition(".")[0]
            assert top not in {"runferry", *FOLDERS}, f"{where}: inside the package imports are relative"
            if top not in sys.stdlib_module_names:
                homes = HOMES.get(top, ())
                assert any(here.is_relative_to(home) for home in homes), f"{where}: {top} belongs into {homes}"
            continue
        for target in targets(path, level, module, names):
            if target != ["__version__"]:
                assert target[0] in allowed, f"{where}: {folder} must not import {target[0]}"


def test_the_table_of_the_document_speaks_of_every_folder():
    """The rules that are tested are the rules that are written."""
    assert set(may_import()) == {"__init__.py", *FOLDERS}
    assert may_import()["logformat"] == may_import()["sampler"] == may_import()["backend"] == set()


def modules_after(statement):
    """The modules that `statement` loads in a fresh interpreter, beyond those of its start and of `typing`."""
    program = (
        "import sys, typing, importlib, json; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_the_map_of_sync_names_every_module():
    """Who looks for a line of `sync/` finds its module in the document."""
    section = (ROOT / "docs" / "architecture.md").read_text().split("## A map of `sync/`")[1].split("\n## ")[0]
    modules = {path.stem for path in (ROOT / "sync").glob("*.py")} - {"__init__"}

    assert modules - set(re.findall(r"`(\w+)(?:\.py)?`", section)) == set()


def test_import_loads_nothing_but_itself():
    """`import runferry` costs milliseconds because every name is looked up on first use."""
    assert modules_after("import runferry") == {"runferry"}
    assert modules_after("import runferry; dir(runferry)") == {"runferry"}


@pytest.mark.parametrize("name", ["init", "log", "finish", "Settings", "config", "run", "read", "load"])
def test_logging_and_reading_load_no_client_no_server_and_no_terminal(name):
    """A training process pays for what it uses: no HTTP, SQL, event loop, terminal or number library."""
    statement = f"import runferry, contextlib\nwith contextlib.suppress(Exception): runferry.{name}"
    loaded = {module.partition(".")[0] for module in modules_after(statement)}

    assert loaded & {"runferry"}
    assert not loaded & {
        *("asyncio", "click", "http", "httpcore", "numpy", "psutil", "pynvml", "rich", "socket", "sqlite3", "ssl"),
        *("starlette", "textual", "urllib3", "uvicorn", "zstandard"),
    }


def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def data_files():
    """Files inside the packages that are no Python source."""
    kept = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {ROOT / name for name in kept.splitlines() if not name.endswith(".py")}


def test_every_package_of_the_tree_is_declared():
    """A folder that `pyproject.toml` forgets would be missing in the wheel and nowhere else."""
    tree = {path.parent.relative_to(ROOT).parts for path in SOURCES if path.name == "__init__.py"}

    assert set(settings()["packages"]) == {".".join(("runferry", *parts)) for parts in tree}
    assert all((path.parent / "__init__.py").exists() for path in SOURCES), "a folder of modules without __init__.py"


def test_every_data_file_of_a_package_is_declared():
    """The same for files that are no Python source."""
    declared = set()
    for package, patterns in settings()["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        declared |= {path for pattern in patterns for path in folder.glob(pattern)}

    assert data_files() <= declared
    assert ROOT / "py.typed" in declared


def test_no_module_stands_at_the_root():
    """The root is the package: a stray `.py` file there would be shipped."""
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    """Built from a copy: every source and data file is in it, no test, nothing at the top level. Fetches setuptools."""
    kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copy = tmp_path / "clone.1"
    for name in filter(None, kept.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, copy]
    subprocess.run(command, capture_output=True, check=True, timeout=250)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = {*SOURCES, *data_files(), ROOT / "py.typed"}

    assert held == {
        f"runferry/{path.relative_to(ROOT).as_posix()}" for path in tracked if (copy / path.relative_to(ROOT)).exists()
    }
