"""What `define_metric` says, and which definition of a metric is in force."""

from __future__ import annotations

import pytest
from runferry.writer import UsageError
from runferry.writer.metrics import Definitions, MetricDefinition, define


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"summary": "min"}, {"summary": "max"}, {"summary": frozenset({"min", "max"})}),
        ({"hidden": True}, {}, {"hidden": True}),
        ({}, {"hidden": True}, {"hidden": True}),
        ({"step_metric": "s"}, {}, {"step_metric": "s", "step_sync": True}),
        ({"step_metric": "s"}, {"step_metric": "t", "step_sync": False}, {"step_metric": "t", "step_sync": True}),
        ({"goal": "maximize"}, {"summary": "best", "goal": "minimize"}, {"summary": {"best"}, "goal": "minimize"}),
        ({"goal": "maximize"}, {"hidden": True}, {"goal": "maximize", "hidden": True}),
        ({"summary": "min", "hidden": True}, {"summary": "max", "overwrite": True}, {"summary": {"max"}}),
    ],
)
@pytest.mark.parametrize("name", ["a", "a*"])
def test_a_metric_that_is_defined_again(name, first, second, together):
    """What the second definition does not say stays as the first one said, unless it overwrites."""
    definitions = Definitions()
    definitions.add(define(name, **first))
    found = definitions.add(define(name, **second))

    assert found._replace(overwrite=False) == MetricDefinition(name)._replace(**together)
    assert definitions.all() == [found]
    assert definitions.find(("a",)) == found


def test_the_definition_in_force():
    """A name goes before a glob, an earlier glob before a later one, and a nested metric by its dotted name."""
    definitions = Definitions()
    assert not definitions
    early, late, exact = (definitions.add(define(name)) for name in ("a.*", "a*", "a.b"))

    assert definitions
    assert definitions.find(("a", "b")) == exact
    assert definitions.find(("a", "c")) == early
    assert definitions.find(("ab",)) == late
    assert definitions.find(("b", "a")) is None


def test_the_steps_of_all_definitions():
    """Of names and globs."""
    definitions = Definitions()
    for name, step in (("a", "s"), ("b*", "t"), ("c", None)):
        definitions.add(define(name, step))

    assert definitions.step_metrics == {"s", "t"}


def test_what_is_no_kind_of_summary_is_a_usage_error():
    """A number as well as an unknown word."""
    for summary in (5, object(), "most"):
        with pytest.raises(UsageError, match="summary"):
            define("loss", summary=summary)
