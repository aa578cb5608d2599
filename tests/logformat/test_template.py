"""The quick road through rows of known keys gives what the walk gives, for any bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import WireError, history, messages

KEYS = [["m", "k0"], ["m", "k1"], ["plain"], ["_step"]]


def body_of(items: list[tuple[list[str], str]]) -> bytes:
    record = messages.HistoryRecord(
        item=[messages.HistoryItem(nested_key=path, value_json=text) for path, text in items],
        step=messages.HistoryStep(num=7),
    )
    return record.SerializeToString()


def walked(body: bytes) -> object:
    """What the walk alone makes of a body."""
    try:
        return history._walk_items(body)
    except WireError as error:
        return str(error)


def decoded(body: bytes) -> object:
    try:
        return history.decode_items(body)
    except WireError as error:
        return str(error)


SCALARS = st.sampled_from(
    ["1", "-0", "1.5e-07", "NaN", "Infinity", "null", "true", "12345678901234567890", "0." + "3" * 100, '"text"', '""']
)
OTHERS = st.sampled_from(['"a\\"b"', '"é"', "[1,2]", "{}", "", "1" * 121, "\n"])
VALUES = st.lists(SCALARS, min_size=len(KEYS), max_size=len(KEYS))


def test_rows_of_known_keys_and_plain_values_need_no_walk() -> None:
    """In any order of the keys, once they have been seen."""
    history.decode_items(body_of([(path, "1") for path in KEYS]))

    found = history._plain_items(body_of([(path, '"x"') for path in reversed(KEYS)]))

    assert found is not None
    assert found[:2] == (tuple(tuple(path) for path in reversed(KEYS)), [b'"x"'] * len(KEYS))


@given(st.permutations(KEYS), st.lists(SCALARS | OTHERS, min_size=len(KEYS), max_size=len(KEYS)))
def test_rows_in_any_order_are_read_as_by_the_walk(keys: list[list[str]], values: list[str]) -> None:
    """Plain values take the quick road; others under the same keys fall back to the walk."""
    body = body_of(list(zip(keys, values, strict=True)))

    assert decoded(body) == walked(body)


@given(VALUES, st.data())
def test_changed_bytes_are_judged_as_by_the_walk(values: list[str], data: st.DataObject) -> None:
    """Whatever byte of a row is another one, lengths included, both roads say the same."""
    history.decode_items(body_of([(path, "1") for path in KEYS]))
    body = bytearray(body_of(list(zip(KEYS, values, strict=True))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    assert decoded(bytes(body)) == walked(bytes(body))


def test_known_keys_that_are_cut_otherwise_are_no_known_keys() -> None:
    """A key that holds a zero byte, and its two halves as keys, are not taken for one another."""
    whole = body_of([(["a\0\x12\x01b"], "1"), (["_step"], "1")])
    history.decode_items(whole)
    halves = body_of([(["a"], "1"), (["b"], "1"), (["_step"], "1")])

    assert decoded(halves) == walked(halves)
    assert decoded(whole) == walked(whole)
