"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import audit, peer

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    f"{page.name}:{number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL), 1)
}
"""Page and place on it -> a block of Python."""
NEEDING = {"integrations.md:1": "transformers", "integrations.md:2": "lightning"}
"""Blocks that are not run, because they take a framework; tests/peer/test_training.py runs trainings with each."""
TIMEOUT_S = 60


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - NEEDING))
def test_a_block_of_python_runs_as_printed(tmp_path, name):
    """In a folder without runs, with `import runferry` at most before it, without a network, a failure or a value left out."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "RUNFERRY_"))}
    surroundings = {
        "AUDIT_LOG": str(tmp_path / "audit.jsonl"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(peer.WATCHED),
    }
    (tmp_path / "example.py").write_text(f"import runferry\n{BLOCKS[name]}")
    (tmp_path / "work" / "wandb").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, tmp_path / "example.py"],
        cwd=tmp_path / "work",
        env=kept | surroundings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "left out" not in done.stderr
    assert "not saved" not in done.stderr
    assert audit.read(tmp_path).network == []


def test_what_is_not_run_is_there():
    """A block that is passed over stands where it is said to, and takes its framework."""
    assert {name: package in BLOCKS[name] for name, package in NEEDING.items()} == dict.fromkeys(NEEDING, True)


def test_extras_are_installed_from_the_clone():
    """The package is on no index, so `pip install 'runferry[...]'` would fail as printed, by a page or an error."""
    sources = [
        source for folder in ("writer", "sampler", "sync", "backend", "cli") for source in (ROOT / folder).rglob("*.py")
    ]
    assert [text.name for text in [*PAGES, *sources] if re.search(r"pip install '?runferry", text.read_text())] == []


def test_every_test_that_a_page_names_is_there():
    """A test that was renamed leaves a claim without its proof."""
    tests = {test.stem for test in (ROOT / "tests").rglob("test_*.py")}
    tests |= {
        name for test in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", test.read_text())
    }
    named = {name for page in (ROOT / "docs").rglob("*.md") for name in re.findall(r"\btest_\w+", page.read_text())}

    assert named - tests == set()
