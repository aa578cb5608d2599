"""What a run costs that logs nothing: wake-ups and CPU of each of its threads and processes, beside the peer.

The training process sleeps meanwhile; system metrics are sampled every 15 s, as both do unless told otherwise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import OURS, PEER, QUIET_PEER, child, table

WARM, SECONDS = 20.0, 60.0
RUNS = [(OURS, "runferry", "default"), (OURS, "runferry", "relaxed"), (OURS, "runferry", "redirect")]


def main() -> str:
    lines = []
    for python, module, case in [*RUNS, *([(PEER, "wandb", "default")] if PEER.exists() else [])]:
        with tempfile.TemporaryDirectory() as folder:
            env = {**QUIET_PEER, "RUNFERRY_STATE_DIR": folder}
            threads = child(python, "idle_child.py", module, case, WARM, SECONDS, env=env, cwd=Path(folder))
        run = module if case == "default" else f"{module}, {case}"
        each: dict[tuple[str, str], list[float]] = {}
        for where, name, wakes, share in threads:
            if name != "MainThread":  # the benchmark's own
                sums = each.setdefault((where, name), [0, 0.0, 0.0])
                sums[:] = sums[0] + 1, sums[1] + wakes, sums[2] + share
        for (where, name), (count, wakes, share) in each.items():
            shown = name if count == 1 else f"{name} ({count:.0f} threads)"
            lines.append([run, where, shown, f"{wakes:,.0f}", f"{100 * share:.4f} %"])
        total = [sum(sums[index] for sums in each.values()) for index in (1, 2)]
        lines.append([run, "", "all", f"{total[0]:,.0f}", f"{100 * total[1]:.4f} %"])
    return table("A run that logs nothing", ["run", "where", "thread", "wake-ups a minute", "of a core"], lines)


if __name__ == "__main__":
    print(main())
