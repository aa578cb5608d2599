"""Make the small logs that are kept in `fixtures/logs`: `PYTHONPATH=tests python tests/peer/old/keep.py [VERSION]...`."""

import gzip
import shutil
import sys
from pathlib import Path

from support import old, oldlogs
from support.allyes import stand_in

RUNS = Path("/tmp/run")
"""Stands in tracebacks: a path that says nothing of the machine."""
WHOLE = {"everything": True, "long": True, "files": False, "raised": False, "killed": False}
"""Kind -> whether it is made online, where the version leaves its own summary and config."""
PLAIN_LIMIT = 20_000
"""Bytes; longer logs are kept packed."""


def keep(version: old.Version, server: str) -> None:
    """Run the script and keep what it left."""
    target = oldlogs.KEPT / version.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for kind, online in WHOLE.items():
        folder = RUNS / kind
        shutil.rmtree(folder, ignore_errors=True)
        run = old.run_script(version, kind, folder, server, online=online)
        data = run.log.read_bytes()
        if len(data) > PLAIN_LIMIT:
            (target / f"{kind}.wandb.gz").write_bytes(gzip.compress(data, mtime=0))
        else:
            (target / f"{kind}.wandb").write_bytes(data)
        if online:
            oldlogs.write_expected(target / f"{kind}.json", oldlogs.own_state(run.files))


if __name__ == "__main__":
    with stand_in() as url:
        for wanted in old.VERSIONS:
            if wanted.name in sys.argv[1:] or not sys.argv[1:]:
                print(wanted.name, flush=True)  # noqa: T201 - a script
                keep(wanted, url)
