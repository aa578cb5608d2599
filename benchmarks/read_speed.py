"""Reading a large log: framing with checksums, and the exact fold, beside the peer's summary of the same file."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from common import OURS, PEER, child, measure, median_of, rounds, table
from make_log import make


def core() -> Path:
    """The peer's Go core."""
    (found,) = PEER.parent.parent.glob("lib/python3*/site-packages/wandb/bin/wandb-core")
    return found


def main() -> str:
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        rows = []
        for count, metrics in ((100_000, 10), (500_000, 5)):
            log = directory / f"run-b{count}.wandb"
            make(log, count, metrics, "peer")
            size = log.stat().st_size / 1e6
            inspect = [core(), "leet", "inspect", "--no-observability", "--summary", "--run-file", log, directory]
            frames, fold, load, theirs = rounds(
                3,
                lambda log=log: child(OURS, "read_child.py", log, "frames"),
                lambda log=log: child(OURS, "read_child.py", log, "fold"),
                lambda log=log: child(OURS, "read_child.py", log, "load"),
                lambda command=inspect: vars(measure(command)),
            )
            what = f"{count:,} x {metrics}, {size:.0f} MB"
            wall = median_of(frames, "wall")
            rows.append([what, "frames and checksums", f"{wall:.2f} s ({size / wall:.0f} MB/s)", "", ""])
            ours, peer = median_of(fold, "wall"), median_of(theirs, "wall")
            memory = f"{median_of(fold, 'rss') / 1e6:.0f} MB"
            rows.append(
                [
                    what,
                    "exact summary",
                    f"{ours:.2f} s, {memory}",
                    f"{peer:.2f} s, {median_of(theirs, 'peak_rss') / 1e6:.0f} MB",
                    f"{peer / ours:.1f}x",
                ]
            )
            kept = f"{median_of(load, 'wall'):.2f} s, {median_of(load, 'rss') / 1e6:.0f} MB"
            rows.append([what, "all rows kept", kept, "", ""])
            log.unlink()
    finally:
        shutil.rmtree(directory)
    return table("Reading", ["log", "", "runferry", "wandb leet inspect --summary", "ratio"], rows)


if __name__ == "__main__":
    print(main())
