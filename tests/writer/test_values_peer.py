"""The table of docs/values.md: each value logged by the real peer and by us, and what both logs have for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from runferry.logformat import read_records
from support import peer

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

RAISES = "the peer raises"
SAME = "the same"

PREAMBLE = """
import array, collections, dataclasses, datetime as dt, decimal, enum, fractions, math, pathlib, types, uuid

class Color(enum.Enum):
    RED = "red"

class Level(enum.IntEnum):
    HIGH = 3

class Words(str, enum.Enum):
    A = "a"

Point = collections.namedtuple("Point", "x y")

@dataclasses.dataclass
class Options:
    a: int = 1
    b: float = 2.5
"""

ROWS = {
    "0.1": ("0.1", SAME),
    "5e-324": ("5e-324", SAME),
    "-0.0": ("-0.0", "-0"),
    "1.0": ("1.0", "1"),
    "1e-5": ("0.00001", "1e-05"),
    "math.nan": ("NaN", SAME),
    "-math.inf": ("-Infinity", SAME),
    "[math.nan, math.inf]": ("[NaN,Infinity]", SAME),
    "2**63 - 1": ("9223372036854775807", SAME),
    "2**64 - 1": ("18446744073709551615", "1.8446744073709552e+19"),
    "-2**70": ("-1180591620717411303424", "-1.1805916207174113e+21"),
    "True": ("true", SAME),
    "None": ("null", SAME),
    "'é\\u2028<>&'": ('"é\u2028<>&"', SAME),
    "'a\\ud800b'": ('"a\ufffdb"', SAME),
    "'a\\0b'": ('"a\\u0000b"', SAME),
    "b'caf\\xc3\\xa9'": ('"café"', SAME),
    "b'\\xff'": ('"\ufffd"', RAISES),
    "bytearray(b'ab')": ('"ab"', SAME),
    "memoryview(b'ab')": ('"ab"', RAISES),
    "1+2j": ('"1+2j"', SAME),
    "complex(math.nan, 1)": ('"NaN+1j"', SAME),
    "decimal.Decimal('1.50')": ('"1.50"', SAME),
    "fractions.Fraction(1, 2)": ('"1/2"', SAME),
    "uuid.UUID(int=5)": ('"00000000-0000-0000-0000-000000000005"', SAME),
    "dt.date(2026, 1, 2)": ('"2026-01-02"', SAME),
    "dt.datetime(2026, 1, 2, 3, 4, 5, 6)": ('"2026-01-02T03:04:05.000006"', SAME),
    "dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)": ('"2026-01-02T00:00:00+00:00"', '"2026-01-02T00:00:00Z"'),
    "dt.time(1, 2)": ('"01:02:00"', SAME),
    "dt.timedelta(seconds=90)": ('"PT1M30S"', SAME),
    "dt.timedelta(days=1, hours=2, microseconds=5)": ('"P1DT2H0.000005S"', SAME),
    "dt.timedelta(seconds=-1)": ('"-PT1S"', SAME),
    "dt.timedelta(0)": ('"PT0S"', SAME),
    "dt.timedelta(days=400)": ('"P400D"', '"P1Y35D"'),
    "Color.RED": ('"red"', SAME),
    "Level.HIGH": ("3", SAME),
    "Words.A": ('"a"', SAME),
    "pathlib.PurePosixPath('/a/b')": ('"/a/b"', RAISES),
    "(1, (2,))": ("[1,[2]]", SAME),
    "{3, 1, 2}": ("[1,2,3]", SAME),
    "frozenset('a')": ('["a"]', SAME),
    "Point(1, 2)": ("[1,2]", SAME),
    "collections.deque([1])": ("[1]", SAME),
    "collections.UserList([1])": ("[1]", RAISES),
    "array.array('i', [1])": ("[1]", RAISES),
    "range(3)": ("[0,1,2]", RAISES),
    "{'a': 1}.keys()": ('["a"]', RAISES),
    "math.sin": ('"math.sin"', SAME),
    "dict": ('"builtins.dict"', SAME),
    "(i for i in range(3))": (None, "[0,1,2]"),
    "object()": (None, RAISES),
    "[object()]": (None, RAISES),
    "ValueError('x')": (None, RAISES),
    "[]": ("[]", SAME),
    "{}": (None, SAME),
    "[{'a': 1}, {'b': [2]}]": ('[{"a":1},{"b":[2]}]', SAME),
    "Options()": ({"a": "1", "b": "2.5"}, SAME),
    "collections.Counter('aab')": ({"a": "2", "b": "1"}, SAME),
    "types.MappingProxyType({'a': 1})": ({"a": "1"}, RAISES),
    "{1: 2, (1, 'b'): 3, None: 4, 1.5: 5, b'k': 6, print: 7}": (
        {"1": "2", "1,b": "3", "None": "4", "1.5": "5", "k": "6", "builtins.print": "7"},
        SAME,
    ),
    "{1: 'int', '1': 'str'}": ({"1": '"str"'}, SAME),
    "{'': 1, 'a ': 2, 'a.b': 3}": ({"": "1", "a ": "2", "a.b": "3"}, SAME),
}
"""Expression -> the JSON text that we write (by key below it, for what has keys; None for nothing), and the peer's."""

CONFIG = {
    "0.1": ("0.1", SAME),
    "1.0": ("1.0", SAME),
    "2**70": ("1180591620717411303424", SAME),
    "math.nan": ("NaN", "null"),
    "math.inf": ("Infinity", SAME),
    "b'ab'": ('"ab"', SAME),
    "bytearray(b'ab')": ('"ab"', "[97,98]"),
    "1+2j": ('"1+2j"', SAME),
    "fractions.Fraction(1, 2)": ('"1/2"', SAME),
    "dt.timedelta(seconds=90)": ('"0:01:30"', SAME),
    "dt.datetime(2026, 1, 2)": ('"2026-01-02T00:00:00"', SAME),
    "Color.RED": ('"RED"', SAME),
    "Level.HIGH": ('"HIGH"', SAME),
    "pathlib.PurePosixPath('/a/b')": ('"/a/b"', SAME),
    "{3, 1, 2}": ("[1,2,3]", SAME),
    "range(3)": ("[0,1,2]", SAME),
    "collections.deque([1])": ("[1]", SAME),
    "math.sin": ('"math.sin"', SAME),
    "Options()": ('{"a":1,"b":2.5}', SAME),
    "{'a': {'b': ()}}": ('{"a":{"b":[]}}', SAME),
    "{1: 2, (1, 'b'): 3, None: 4}": ('{"1":2,"1,b":3,"None":4}', SAME),
    "{1: 'int', '1': 'str'}": ('{"1":"str"}', '{"1":"int","1":"str"}'),
    "[object]": ('["builtins.object"]', SAME),
    "{}": ("{}", SAME),
}
"""The same for a value of the config."""

PROGRAM = """
import json, sys, {module} as lib
{preamble}
tables = json.load(sys.stdin)
raised = []
with lib.init(project="p", mode="offline") as run:
    for number, text in enumerate(tables["rows"]):
        run.log({{"number": number}}, commit=False)
        try:
            run.log({{"v": eval(text)}})
        except Exception:
            raised.append(text)
            run.log({{}})
    for text in tables["config"]:
        run.config[text] = eval(text)
json.dump(raised, sys.stdout)
"""


def logged(python, module, folder):
    """What that module's log has for each expression: rows, config."""
    tables = json.dumps({"rows": list(ROWS), "config": list(CONFIG)})
    folder.mkdir()
    done = subprocess.run(
        [python, "-c", PROGRAM.format(module=module, preamble=PREAMBLE)], input=tables, cwd=folder, text=True,
        env=peer.environment(folder, **peer.QUIET), capture_output=True, timeout=peer.TIMEOUT_S, check=True,
    )  # fmt: skip
    raised = set(json.loads(done.stdout.splitlines()[-1]))
    (log,) = folder.glob("wandb/*run-*/*.wandb")
    rows, config = {}, {}
    for record in read_records(log):
        message = record.message()
        if record.kind == "history":
            items = {tuple(item.nested_key): item.value_json for item in message.item}
            below = {path[1]: text for path, text in items.items() if path[0] == "v" and len(path) == 2}
            text = list(ROWS)[int(items["number",])]
            rows[text] = RAISES if text in raised else items.get(("v",), below or None)
        elif record.kind == "config":
            config |= {item.key: item.value_json for item in message.update if item.key in CONFIG}
    return rows, config


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    return logged(sys.executable, "runferry", folder / "ours"), logged(peer.PYTHON, "wandb", folder / "theirs")


@pytest.mark.parametrize("text", ROWS)
def test_a_value_of_a_row(both, text):
    """Ours is what the table says; the peer's is the same, or differs as the table says."""
    (ours, _), (theirs, _) = both
    expected, others = ROWS[text]

    assert ours[text] == expected
    assert theirs[text] == (expected if others == SAME else others)


@pytest.mark.parametrize("text", CONFIG)
def test_a_value_of_a_config(both, text):
    """The same for `run.config[...] = value`."""
    (_, ours), (_, theirs) = both
    expected, others = CONFIG[text]

    assert ours[text] == expected
    assert theirs[text] == (expected if others == SAME else others)
