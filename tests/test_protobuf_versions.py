"""One source, every protobuf that training environments pin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WRITING = ["api", "history", "identity", "metrics", "parts", "recorder", "run"]
"""The writer's tests whose logs hold every kind of record."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["4.25", "5", "6", "7"])
def test_the_log_format_works_with_every_protobuf_generation(version, tmp_path):
    """The tests of the format and of what the writer records pass in an environment with that protobuf, and no other copy of it."""
    environment = ROOT / f".venv-protobuf-{version}"
    python = environment / "bin" / "python"
    needs = [
        f"protobuf=={version}.*",
        "orjson",
        "psutil",
        "click",
        "rich",
        "hypothesis",
        "pytest",
        "pytest-timeout",
        "nvidia-ml-py",
        "zstandard",
    ]
    stamp = environment / "ready.stamp"
    if not stamp.exists() or stamp.read_text() != " ".join(needs):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs], check=True)
        stamp.write_text(" ".join(needs))
    (tmp_path / "runferry").symlink_to(ROOT)
    found = subprocess.run(
        [python, "-c", "import google.protobuf; print(google.protobuf.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "tests/logformat",
            *(f"tests/writer/test_{part}.py" for part in WRITING),
            "-q",
            "-m",
            "not slow and not peer",
            "-p",
            "no:xdist",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.startswith(f"{version}.")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
