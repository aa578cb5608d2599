"""A process killed at each point of its work on the disk: what it acknowledged is there, and whoever comes next can work."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runferry.logformat import Gap, GapReason, read_records
from runferry.writer.filesystem import FileSystem
from support import peer
from support.killbed import bed
from support.killpoints import POINTS, case_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")


def read(log):
    """(kinds of the records, numbers of the rows) of a log, of which only the end may be torn."""
    items = list(read_records(log))
    torn = [item for item in items if isinstance(item, Gap)]
    assert all(gap.reason is GapReason.TORN_TAIL for gap in torn), (log, torn)
    assert len(torn) <= 1
    records = [item for item in items if not isinstance(item, Gap)]
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    kinds = [record.kind for record in records]
    return kinds, [json.loads(value) for record in records if record.kind == "history" for value in numbers_of(record)]


def numbers_of(record):
    return [item.value_json for item in record.message().item if (item.nested_key or [item.key])[-1] == "n"]


def files_of(log):
    records = [item for item in read_records(log) if not isinstance(item, Gap) and item.kind == "files"]
    return [file.path for record in records for file in record.message().files]


def judge(result, *, by_peer):
    name = result["name"], result["seed"]
    assert result["code"] == -9, name
    assert result["again"] == 0, name
    assert not result["grown"], name
    assert len(result["after"]) == len(result["logs"]) + 1, name
    found = set()
    for log in result["logs"]:
        kinds, numbers = read(log)
        assert kinds[:2] == ["header", "run"], name
        found |= set(numbers)
        assert all((Path(log).parent / "files" / path).stat().st_size > 5000 for path in files_of(log)), name
        if by_peer:
            assert [entry["type"] for entry in peer.inspect(Path(log)) if "type" in entry] == kinds, name
    if not name[0].startswith("deleted"):
        assert found >= set(range(result["acknowledged"])), name


def kill(folder, seeds):
    folder.mkdir(exist_ok=True)
    cases = [case_of(point, seed) for seed in seeds for point in POINTS]
    # Some 3,000 cases take two minutes of two cores, and long on cores that others use too.
    results = bed("points", folder, stdin="".join(json.dumps(case) + "\n" for case in cases), timeout_s=1700)
    assert len(results) == len(cases)
    return results


def test_there_are_many_points():
    """Every operation of the writer on the disk is met, and each point has a name of its own."""
    names = [point.name for point in POINTS]

    assert len(set(names)) == len(names) >= 45
    assert {point.operation for point in POINTS} == {name for name in dir(FileSystem) if not name.startswith("_")} - {
        "remove_directory",  # of a log that could not be created: nothing was logged to it
        "touch",  # of the heartbeat: no call of a run that ends within seconds
    }


def test_killed_at_each_point(tmp_path):
    """Each point is met and kills; acknowledged rows are there, no log is without its run, and a new run works."""
    for number, result in enumerate(kill(tmp_path, [0])):
        judge(result, by_peer=number % 8 == 0 and not peer.missing())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_each_point_twenty_times(tmp_path):
    """The same with other rows, five times at each level; the peer reads every log of one round."""
    rounds = [range(first, first + 4) for first in range(1, 21, 4)]
    with ThreadPoolExecutor(len(rounds)) as pool:
        found = pool.map(lambda seeds: kill(tmp_path / str(seeds[0]), seeds), rounds)
        for result in (result for results in found for result in results):
            judge(result, by_peer=result["seed"] == 4 and not peer.missing())
