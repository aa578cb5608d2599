"""docs/logs-in-hand.md shows what the commands print. `python tests/cli/test_logs_in_hand_docs.py` writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "logs-in-hand.md"
sys.path.insert(0, str(PAGE.parents[1] / "tests"))

from runferry.logformat import read_records  # noqa: E402 - the tests' helpers are found by the path above
from support import logs  # noqa: E402

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def scene(folder: Path) -> None:
    """Two runs: in one a row is lost and a bit flipped, the other ends inside a record; both are old."""
    log = logs.simple_run(folder / "wandb", rows=6)
    rows = [item for item in read_records(log) if item.kind == "history"]
    data = bytearray(log.read_bytes())
    data[rows[0].offset + 20] ^= 4
    data[rows[2].offset + 9 : rows[2].end] = bytes(rows[2].end - rows[2].offset - 9)
    log.write_bytes(data)
    torn = logs.simple_run(folder / "wandb", run_id="torn0001", exit_code=None, prefix="run-20260921_150000")
    torn.write_bytes(torn.read_bytes()[:-4])
    for path in (log, torn):
        os.utime(path, (1_790_000_100, 1_790_000_100))


def printed(page: str, folder: Path) -> str:
    """The page with what each command prints behind it."""
    program = folder / "bin" / "runferry"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m runferry.cli "$@"\n')
    program.chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    environ = {**kept, "TZ": "UTC", "PATH": f"{program.parent}:{kept['PATH']}", "LC_ALL": "C.UTF-8"}

    def ran(block: re.Match[str]) -> str:
        lines = []
        for command in re.findall(r"^\$ (.*)$", block[1], re.MULTILINE):
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            said = re.sub(r"silent for \d+ d", "silent for 80 d", done.stdout)
            lines += [f"$ {command}", *(line.rstrip() for line in said.splitlines())]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(ran, page)


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """Every command in it, one after the other, in a folder of two damaged runs."""
    scene(tmp_path)
    page = PAGE.read_text()

    assert printed(page, tmp_path) == page


def test_every_field_of_json_is_named(tmp_path: Path) -> None:
    """What the commands give, and nothing that they don't say."""
    scene(tmp_path)
    table = dict(re.findall(r"^\| `(\w+)` \| (?:.*?) \| (.*) \|$", PAGE.read_text().split("## JSON")[1], re.MULTILINE))
    import json

    for options in (
        "show {}",
        "show {} --keys",
        "show {} --metric l*",
        "verify {}",
        "grep step {}",
        "repair {} --force",
    ):
        command = [
            sys.executable,
            "-m",
            "runferry.cli",
            *options.format("wandb/run-20260921_141320-a1b2c3d4").split(),
            "--json",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            said = json.loads(line)
            named = set(re.findall(r"`(\w+)`", table[said["type"]])) | {"type"}
            assert said.keys() <= named, said


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        scene(Path(made))
        PAGE.write_text(printed(PAGE.read_text(), Path(made)))
