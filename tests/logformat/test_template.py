"""The quick road through rows of one shape gives what the walk gives, for any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import WireError, history, messages


def body_of(values: list[str]) -> bytes:
    items = [messages.HistoryItem(nested_key=["m", f"k{at}"], value_json=text) for at, text in enumerate(values)]
    items.append(messages.HistoryItem(nested_key=["_step"], value_json="7"))
    step = messages.HistoryStep(num=7)
    return messages.HistoryRecord(item=items, step=step).SerializeToString()


def train(body: bytes) -> None:
    """Show rows of one shape until it has a template."""
    history._last_template = None
    history._unfit.clear()
    for _ in range(history._TEMPLATE_REPEATS + 2):
        history.decode_items(body)
    assert history._last_template is not None


def walked(body: bytes) -> object:
    """What the walk alone makes of a body."""
    kept, history._last_template = history._last_template, None
    try:
        return history.decode_items(body)
    except WireError as error:
        return str(error)
    finally:
        history._last_template = kept


SCALARS = st.sampled_from(
    ["1", "-0", "1.5e-07", "NaN", "Infinity", "null", "true", "12345678901234567890", "0." + "3" * 100]
)


@given(st.lists(SCALARS | st.sampled_from(['"text"', "[1,2]", "{}", ""]), min_size=3, max_size=3))
def test_rows_of_a_known_shape_are_read_as_by_the_walk(values: list[str]) -> None:
    """Scalars take the template; texts, lists and objects under the same keys fall back to the walk."""
    train(body_of(["1", "2", "3"]))
    body = body_of(values)

    assert history.decode_items(body) == walked(body)


@given(st.lists(SCALARS, min_size=3, max_size=3), st.data())
def test_changed_bytes_are_judged_as_by_the_walk(values: list[str], data: st.DataObject) -> None:
    """Whatever byte of a row is another one, lengths included, both roads say the same."""
    train(body_of(["1", "2", "3"]))
    body = bytearray(body_of(values))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    try:
        found: object = history.decode_items(bytes(body))
    except WireError as error:
        found = str(error)
    assert found == walked(bytes(body))


def test_a_shape_with_texts_gets_no_template_twice() -> None:
    """A shape whose rows do not fit its template is not compiled again and again."""
    train(body_of(["1", "2", "3"]))
    for _ in range(40):
        history.decode_items(body_of(['"a"', "2", "3"]))

    assert history._last_template is None


@pytest.mark.parametrize("keys", [600])
def test_very_wide_rows_are_walked(keys: int) -> None:
    """Compiling an expression for hundreds of keys would cost more than it gives back."""
    history._last_template = None
    body = body_of(["1"] * keys)
    for _ in range(40):
        found = history.decode_items(body)

    assert history._last_template is None
    assert found is not None
    assert len(found[0]) == keys + 1
