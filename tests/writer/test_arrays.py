"""Arrays of the real libraries, where they are installed; `test_values.py` has objects that behave like theirs."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from runferry.logformat import load
from runferry.writer.values import UnloggableError, described, flatten, plain

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / ".venv-train" / "bin" / "python"

np = pytest.importorskip("numpy")


def same(a, b):
    """Equal, of the same type, where NaN equals itself."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


SCALARS = {
    "float16": (np.float16(0.1), 0.0999755859375),
    "float32": (np.float32(0.1), 0.10000000149011612),
    "float64": (np.float64(0.1), 0.1),
    "longdouble": (np.longdouble("0.5"), 0.5),
    "nan": (np.float32("nan"), math.nan),
    "infinity": (np.float16("-inf"), -math.inf),
    "minus zero": (np.float32(-0.0), -0.0),
    "subnormal": (np.float64(5e-324), 5e-324),
    "bool": (np.bool_(True), True),
    "str": (np.str_("x"), "x"),
    "bytes": (np.bytes_(b"x"), "x"),
    "void": (np.void(b"ab"), "ab"),
    "record": (np.array([(1, 2.5)], dtype=[("a", int), ("b", float)])[0], [1, 2.5]),
    "complex64": (np.complex64(1 + 2j), "1+2j"),
    "complex128": (np.complex128(1), "1+0j"),
    "longcomplex": (np.clongdouble(1 + 2j), "1+2j"),
    "datetime": (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
    "day": (np.datetime64("2026-01-02"), "2026-01-02"),
    "nanoseconds": (np.datetime64(1767323045123456789, "ns"), 1767323045123456789),
    "no time": (np.datetime64("NaT"), None),
    "duration": (np.timedelta64(90, "s"), "PT1M30S"),
    "bare duration": (np.timedelta64(5), 5),
    "masked": (np.ma.masked, None),
    "0-d": (np.array(0.5), 0.5),
    "0-d text": (np.array("x"), "x"),
    "one": (np.array([[0.5]]), 0.5),
    "one masked": (np.ma.masked_array([1.0], mask=[True]), None),
    "one of a masked array": (np.ma.masked_array([1.0], mask=[False]), 1.0),
} | {
    kind: (np.array(value, dtype=kind)[()], value)
    for size in (8, 16, 32, 64)
    for kind, value in ((f"int{size}", -(2 ** (size - 1))), (f"uint{size}", 2**size - 1))
}

ARRAYS = {
    "integers": (np.arange(3), [0, 1, 2]),
    "nested": (np.arange(4.0).reshape(2, 2), [[0.0, 1.0], [2.0, 3.0]]),
    "32": (np.arange(32), list(range(32))),
    "empty": (np.array([]), []),
    "no rows": (np.zeros((0, 3)), []),
    "strided": (np.arange(10)[::3], [0, 3, 6, 9]),
    "reversed": (np.arange(3)[::-1], [2, 1, 0]),
    "fortran": (np.asfortranarray(np.arange(4).reshape(2, 2)), [[0, 1], [2, 3]]),
    "big endian": (np.arange(2, dtype=">i4"), [0, 1]),
    "text": (np.array(["a", "b"]), ["a", "b"]),
    "bytes": (np.array([b"a", b"b"]), ["a", "b"]),
    "booleans": (np.array([True, False]), [True, False]),
    "objects": (np.array([1, "a", None], dtype=object), [1, "a", None]),
    "records": (np.zeros(2, dtype=[("a", int), ("b", float)]), [[0, 0.0], [0, 0.0]]),
    "masked": (np.ma.masked_array([1.0, 2.0], mask=[0, 1]), [1.0, None]),
    "complex": (np.array([1 + 2j, 2]), ["1+2j", "2+0j"]),
    "days": (np.array(["2026-01-02", "NaT"], dtype="M8[D]"), ["2026-01-02", None]),
    "not finite": (np.array([np.nan, 1, np.inf]), [math.nan, 1.0, math.inf]),
    "uint64": (np.full(2, 2**64 - 1, dtype=np.uint64), [2**64 - 1, 2**64 - 1]),
    "longdouble": (np.arange(2, dtype=np.longdouble), [0.0, 1.0]),
    "matrix": (np.arange(4).reshape(2, 2).view(np.matrix), [[0, 1], [2, 3]]),
    "list of": ([np.float32(0.5), np.arange(2)], [0.5, [0, 1]]),
}


@pytest.mark.parametrize(("value", "expected"), (SCALARS | ARRAYS).values(), ids=(SCALARS | ARRAYS))
def test_every_kind_has_its_form(value, expected):
    """One element is a scalar, up to 32 are a list, exact; a copy, whatever the memory's layout."""
    assert same(plain(value), expected)
    assert math.copysign(1, plain(np.float64(-0.0))) == -1


LARGE = {
    "floats": np.arange(40.0),
    "half": np.arange(40, dtype=np.float16),
    "extended": np.arange(40, dtype=np.longdouble),
    "integers": np.arange(40),
    "objects": np.array(range(40), dtype=object),
    "strided": np.arange(80)[::2] / 2,
    "read only": np.broadcast_to(np.arange(40.0), (1, 40)),
    "masked": np.ma.masked_array(np.r_[np.arange(40.0), 1e9], mask=np.r_[np.zeros(40), 1]),
    "not finite": np.r_[np.arange(40.0), np.nan, np.inf],
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_large_arrays_are_counted_into_bins(value):
    """32 bins as the peer has them; what is no number, or masked, is in none."""
    made = plain(value)

    assert made["_type"] == "histogram"
    assert (len(made["values"]), len(made["bins"])) == (32, 33)
    assert (made["bins"][0], made["bins"][-1], sum(made["values"])) == (0.0, 39.0, 40)
    assert set(flatten({"h": value}, {})) == {("h", "_type"), ("h", "values"), ("h", "bins")}
    assert isinstance(described(value), str)


def test_an_array_of_no_numbers_at_all_counts_none():
    """A model that diverged goes on being logged."""
    assert sum(plain(np.full(40, np.nan))["values"]) == 0


@pytest.mark.parametrize(
    "value",
    [
        np.full(40, 1j),
        np.full(40, "1"),
        np.full(40, b"1"),
        np.zeros(40, dtype="M8[s]"),
        np.zeros(40, dtype="m8[s]"),
        np.zeros(40, dtype=[("a", int), ("b", float)]),
        np.full(40, 1e308),  # numpy cannot cut such a range
        np.array([object()], dtype=object),
        np.array([object(), 1], dtype=object),
    ],
    ids=lambda value: value.dtype.str,
)
def test_arrays_without_a_form_are_named(value):
    """Not counted by their real part, nor by the numbers that stand behind dates; a config has their text."""
    with pytest.raises(UnloggableError):
        plain(value)
    assert described(value)


def test_the_array_may_change_after_the_call(begin, state):
    """What was logged is what stood there."""
    values, one = np.arange(3), np.zeros(())
    run = begin()
    run.log({"values": values, "one": one, "list": [values]})
    values += 10
    one += 1
    (row,) = state(*run.finish().paths).rows

    assert (row["values"], row["one"], row["list"]) == ([0, 1, 2], 0, [[0, 1, 2]])


def test_small_floats_of_machine_learning():
    """bfloat16, the 8-bit floats and 4-bit integers, one and many."""
    ml_dtypes = pytest.importorskip("ml_dtypes")

    for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        assert same(plain(kind(0.5)), 0.5)
        assert same(plain(np.arange(3, dtype=kind)), [0.0, 1.0, 2.0])
    assert sum(plain(np.arange(40, dtype=ml_dtypes.bfloat16))["values"]) == 40
    assert plain(ml_dtypes.int4(3)) == 3


def test_tables_libraries():
    """Series and their scalars; what is not available is null."""
    pd = pytest.importorskip("pandas")

    assert plain(pd.Series([1, 2])) == [1, 2]
    assert plain(pd.Series([0.5])) == 0.5
    assert plain(pd.Index(["a", "b"])) == ["a", "b"]
    assert plain(pd.array([1, None], dtype="Int64")) == [1, None]
    assert plain(pd.Timestamp("2026-01-02T03:04:05")) == "2026-01-02T03:04:05"
    assert plain(pd.Timedelta("90s")) == "PT1M30S"
    assert (plain(pd.NA), plain(pd.NaT)) == (None, "NaT")
    assert plain(pd.Series(range(40)))["_type"] == "histogram"
    with pytest.raises(UnloggableError):
        plain(pd.Interval(0, 1))


TENSORS = """
import sys
import torch
import runferry

torch.manual_seed(0)
run = runferry.init(dir=sys.argv[1], settings=runferry.Settings(disable_stats=True, disable_meta=True, silent=True))
run.log({
    "float": torch.tensor(0.5), "bfloat16": torch.tensor(0.5, dtype=torch.bfloat16), "int": torch.tensor([3]),
    "bool": torch.tensor(True), "grad": torch.tensor(0.5, requires_grad=True) * 2, "complex": torch.tensor(1 + 2j),
    "list": torch.arange(3), "empty": torch.tensor([]), "parameter": torch.nn.Parameter(torch.zeros(2)),
    "half": torch.arange(40, dtype=torch.bfloat16), "weights": torch.nn.Linear(10, 10).weight, "size": torch.zeros(2, 3).shape,
    "strided": torch.arange(10)[::3], "sparse": torch.zeros(2, 2).to_sparse(), "meta": torch.zeros(1, device="meta"),
})
run.finish()
"""


@pytest.mark.slow
@pytest.mark.skipif(not TRAIN.exists(), reason="no .venv-train")
def test_real_tensors(tmp_path):
    """Scalars of every kind, with a gradient, strided; one warning for what has no values to read."""
    if subprocess.run([TRAIN, "-c", "import torch, numpy"], check=False, capture_output=True).returncode:
        pytest.skip(".venv-train has no torch with numpy")
    done = subprocess.run([TRAIN, "-c", TENSORS, tmp_path], check=True, capture_output=True, text=True)
    (log,) = tmp_path.glob("wandb/run-*/*.wandb")
    (row,) = load(log).rows
    halves, weights = row.pop("half"), row.pop("weights")

    assert {key: value for key, value in row.items() if key[0] != "_"} == {
        "float": 0.5, "bfloat16": 0.5, "int": 3, "bool": True, "grad": 1.0, "complex": "1+2j", "list": [0, 1, 2],
        "empty": [], "parameter": [0.0, 0.0], "size": [2, 3], "strided": [0, 3, 6, 9],
    }  # fmt: skip
    assert (sum(halves["values"]), sum(weights["values"])) == (40, 100)
    assert sorted(line.split()[2] for line in done.stderr.splitlines()) == ["meta", "sparse"]


JAX = """
import sys
import jax, jax.numpy as jnp
import runferry

run = runferry.init(dir=sys.argv[1], settings=runferry.Settings(disable_stats=True, disable_meta=True, silent=True))
run.log({
    "float": jnp.float32(0.5), "bfloat16": jnp.bfloat16(0.5), "half": jnp.float16(0.5), "int": jnp.int32(3),
    "bool": jnp.bool_(True), "one": jnp.array([7]), "list": jnp.arange(3), "brain": jnp.arange(3, dtype=jnp.bfloat16),
    "weights": jnp.ones((10, 10)), "jitted": jax.jit(lambda x: x * 2)(0.25),
})
jax.jit(lambda x: (run.log({"traced": x, "beside": 1}), x)[1])(0.5)
run.finish()
"""


@pytest.mark.slow
@pytest.mark.skipif(not TRAIN.exists(), reason="no .venv-train")
def test_real_jax_arrays(tmp_path):
    """Scalars of every kind, what a compiled function gave; one inside of it has no value yet, and costs its own key."""
    if subprocess.run([TRAIN, "-c", "import jax"], check=False, capture_output=True).returncode:
        pytest.skip(".venv-train has no jax")
    done = subprocess.run([TRAIN, "-c", JAX, tmp_path], check=True, capture_output=True, text=True)
    (log,) = tmp_path.glob("wandb/run-*/*.wandb")
    row, traced = load(log).rows
    weights = row.pop("weights")

    assert {key: value for key, value in row.items() if key[0] != "_"} == {
        "float": 0.5, "bfloat16": 0.5, "half": 0.5, "int": 3, "bool": True, "one": 7, "list": [0, 1, 2],
        "brain": [0, 1, 2], "jitted": 0.5,
    }  # fmt: skip
    assert sum(weights["values"]) == 100
    assert ("traced" in traced, traced["beside"]) == (False, 1)
    assert sum("traced is left out" in line for line in done.stderr.splitlines()) == 1


def test_no_array_library_is_imported():
    """Logging Python's own values loads none of them."""
    program = (
        "import sys; from runferry.writer.values import plain; plain([1, {'a': b'x'}]); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "False"
