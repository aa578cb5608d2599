"""How much memory a long run takes, beside the peer: rows of 10 metrics, as fast as they are taken."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from common import OURS, PEER, QUIET_PEER, child, table

ROWS, PEER_ROWS = 1_000_000, 100_000
"""The peer takes a tenth: it is slower, and what it takes grows with the rows."""


def one(python: Path, module: str, rows: int, level: str) -> dict[str, float]:
    directory = tempfile.mkdtemp(prefix="bench-")
    try:
        return child(python, "rss_child.py", module, directory, rows, level, env=QUIET_PEER, cwd=Path(directory))
    finally:
        shutil.rmtree(directory)


def main() -> str:
    cases = [("normal", OURS, "runferry", ROWS), ("relaxed", OURS, "runferry", ROWS), ("", PEER, "wandb", PEER_ROWS)]
    lines = []
    for level, python, module, rows in cases:
        found = one(python, module, rows, level)
        grown, most = found["last"] - found["first"], found["most"] - found["first"]
        lines.append(
            [
                f"{module} {level}".strip(),
                f"{rows:,}",
                f"{found['first']:.1f} MiB",
                f"{grown:+.1f} MiB",
                f"{most:+.1f} MiB",
                f"{found['rows_s']:,.0f}",
            ]
        )
    header = ["", "rows", "resident after 2,000 rows", "at the end", "at most", "rows/s"]
    return table("Memory while rows are logged as fast as they are taken", header, lines)


if __name__ == "__main__":
    print(main())
