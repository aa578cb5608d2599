"""A real file system that is small."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from support.children import run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")


def test_a_real_disk_that_fills_up(tmp_path):
    """256 KiB: one warning, 3,000 calls, space comes back half way, later rows are there, the rest is counted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    body = """
import json
ballast = os.path.join(sys.argv[1], "ballast")
open(ballast, "wb").write(bytes(128 * 1024))
row = {f"metric_{k}": 0.1 + k for k in range(10)}
for number in range(3000):
    if number == 1500:
        time.sleep(0.3)
        os.unlink(ballast)
    if not number % 100:
        time.sleep(0.02)
    run.log({"n": number} | row)
time.sleep(1)
from runferry.writer import pump
pump.FINISH_RETRY_S = 0.3
report = run.finish()
print(json.dumps([report.rows_written, report.rows_dropped]))
"""
    try:
        code, out, err, state = run(disk, body)
    finally:
        subprocess.run(["umount", disk], check=True)
    written, dropped = json.loads(out)

    assert code == 0
    assert written + dropped == 3000
    assert 0 < dropped < 3000
    assert err.count("errno 28") == 1
    assert f"{dropped} rows did not make it" in err
    assert [row["n"] for row in state.rows] == list(range(written))
    assert written * 500 > 140 * 1024  # more than fitted before space came back
