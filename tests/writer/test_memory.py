"""What a long run takes: as much as a short one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).resolve().parents[2] / "benchmarks" / "rss_child.py"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("level", ["relaxed", "normal"])
def test_memory_does_not_grow_with_rows(tmp_path, level):
    """100,000 rows, as fast as they are taken: less than 5 MiB more than after the first 2,000."""
    command = [sys.executable, CHILD, "runferry", tmp_path, "100000", level]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=dict(os.environ))
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["last"] - found["first"] < 5
    assert found["most"] - found["first"] < 8
