"""Make a log of ROWS x METRICS random doubles: by the peer's layout (a summary beside each row) or ours (rows only).

make_log.py FILE ROWS METRICS peer|ours
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from runferry.logformat import FILE_HEADER, Framer, messages


def make(path: Path, rows: int, metrics: int, layout: str) -> None:
    """The log of a finished run, whose rows are a tenth of a second apart."""
    rng = random.Random(rows)
    framer = Framer()
    start = 1_790_000_000
    num = 0
    keys = [f"metric/k{k}" for k in range(metrics)]
    run_id = path.name.removeprefix("run-").removesuffix(".wandb")
    with path.open("wb") as file:
        out = bytearray(FILE_HEADER)

        def add(**fields: object) -> None:
            nonlocal num, out
            num += 1
            framer.append(messages.Record(num=num, **fields).SerializeToString(), out)
            if len(out) > 1 << 20:
                file.write(out)
                out = bytearray()

        add(header=messages.HeaderRecord())
        add(run=messages.RunRecord(run_id=run_id, project="bench", start_time=messages.Timestamp(seconds=start)))
        for step in range(rows):
            values = [repr(rng.random()) for _ in keys]
            internal = [("_step", str(step)), ("_timestamp", repr(start + step / 10)), ("_runtime", repr(step / 10))]
            items = [*zip(keys, values, strict=True), *internal]
            if layout == "peer":  # its maps have no order
                rng.shuffle(items)
            history = [messages.HistoryItem(nested_key=[key], value_json=value) for key, value in items]
            if layout == "peer":
                runtime = [
                    messages.Item(nested_key=["_wandb", "runtime"], value_json=str(step // 10)),
                    messages.Item(key="_runtime", value_json=str(step // 10)),
                ]
                add(summary=messages.SummaryRecord(update=runtime))
                update = [messages.Item(nested_key=[key], value_json=value) for key, value in items]
                add(summary=messages.SummaryRecord(update=update))
            add(history=messages.HistoryRecord(item=history, step=messages.HistoryStep(num=step)))
        add(exit=messages.RunExitRecord(runtime=rows // 10))
        file.write(out)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
