"""Charts: a table in the row, and how it is drawn in the config."""

from __future__ import annotations

import json

import numpy as np
import pytest
from runferry.logformat import messages
from runferry.writer.media import plot
from runferry.writer.media.table import Table

TABLE = Table(["x", "y"], [[0, 1], [1, 4]])


def panel_of(landing):
    """Where in the config, and what."""
    record = messages.Record.FromString(landing.records[0])
    (item,) = record.config.update
    return list(item.nested_key), json.loads(item.value_json)


def test_a_chart_is_a_table_and_a_panel(landed):
    """The panel names the table's key, its columns and its texts; the row has the table."""
    chart = plot.plot_table("me/own", TABLE, {"x": "x"}, {"title": "T"})
    assert chart.where(("val", "pr")) == ("val.pr_table",)
    landing = landed(chart, "val.pr_table", "0")

    path, panel = panel_of(landing)
    runs = panel["panel_config"]["userQuery"]["queryFields"][0]
    assert path == ["_wandb", "visualize", "val.pr"]
    assert (panel["panel_type"], panel["panel_config"]["panelDefId"]) == ("Vega2", "me/own")
    assert panel["panel_config"]["fieldSettings"] == {"x": "x"}
    assert panel["panel_config"]["stringSettings"] == {"title": "T"}
    assert runs["fields"][-1]["args"] == [{"name": "tableKey", "value": "val.pr_table"}]
    assert landing.value["_type"] == "table-file"


def test_the_panel_is_recorded_once(landed):
    """The next row has the table only."""
    chart = plot.bar(Table(["a", "b"], [["p", 1]]), "a", "b")

    assert len(landed(chart, "c_table").records) == 2
    assert landed(chart, "c_table").records == ()


def test_a_table_may_have_a_section_of_its_own(landed):
    """Then its key begins with the section's name; the panel's key does not."""
    chart = plot.line(Table(["x", "y"], [[0, 1]]), "x", "y", split_table=True)
    (key,) = chart.where(("loss",))

    path, panel = panel_of(landed(chart, key))
    assert key == "Custom Chart Tables/loss_table"
    assert path == ["_wandb", "visualize", "loss"]
    assert panel["panel_config"]["fieldSettings"] == {"x": "x", "y": "y", "stroke": None}


@pytest.mark.parametrize(
    ("chart", "spec", "fields"),
    [
        (plot.scatter(TABLE, "x", "y"), "wandb/scatter/v0", {"x": "x", "y": "y"}),
        (plot.histogram(TABLE, "x"), "wandb/histogram/v0", {"value": "x"}),
        (plot.bar(TABLE, "x", "y"), "wandb/bar/v0", {"label": "x", "value": "y"}),
    ],
)
def test_ready_made_charts(chart, spec, fields, landed):
    """Their specifications and fields."""
    config = panel_of(landed(chart, "k_table"))[1]["panel_config"]

    assert (config["panelDefId"], config["fieldSettings"]) == (spec, fields)


def test_lines_of_one_or_several_axes():
    """One row per point; names are made up where there are none."""
    one = plot.line_series([0, 1], [[1, 2], [3, 4]], keys=["p", "q"]).table.data
    several = plot.line_series([[0], [5, 6]], np.array([[1, 2], [3, 4]])).table.data

    assert one == [[0, "p", 1], [1, "p", 2], [0, "q", 3], [1, "q", 4]]
    assert several == [[0, "line_0", 1], [5, "line_1", 3], [6, "line_1", 4]]
    with pytest.raises(ValueError, match="3 names for 1 line"):
        plot.line_series([0], [[1]], keys="abc")
    with pytest.raises(ValueError, match="2 series of x values for 1 line"):
        plot.line_series([[0], [1]], [[1]])


def test_a_confusion_matrix_counts():
    """Of classes by number, by name, and by probability."""
    by_number = plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0]).table.data
    by_name = plot.confusion_matrix(probs=[[0.1, 0.9], [0.8, 0.2]], y_true=[1, 1], class_names=["a", "b"]).table.data

    assert by_number == [
        ["Class_1", "Class_1", 1.0],
        ["Class_1", "Class_2", 0.0],
        ["Class_2", "Class_1", 1.0],
        ["Class_2", "Class_2", 1.0],
    ]
    assert [row[2] for row in by_name] == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"y_true": [0]},
        {"preds": [0]},
        {"y_true": [0], "preds": [0], "probs": [[1]]},
        {"y_true": [0, 1], "preds": [0]},
        {"y_true": [0], "preds": [5], "class_names": ["a"]},
    ],
)
def test_what_is_no_confusion_matrix(given):
    """Too few, too many, or classes without a name."""
    with pytest.raises(ValueError, match=r".+"):
        plot.confusion_matrix(**given)


Y = [0, 0, 1, 1]
P = [[0.9, 0.1], [0.4, 0.6], [0.65, 0.35], [0.2, 0.8]]


def test_a_roc_curve():
    """Worked by hand: scores of class 1 in falling order are 0.8 (hit), 0.6, 0.35 (hit), 0.1."""
    rows = plot.roc_curve(Y, P, labels=["no", "yes"], classes_to_plot=[1]).table.data

    assert rows == [["yes", 0.0, 0.0], ["yes", 0.0, 0.5], ["yes", 0.5, 0.5], ["yes", 0.5, 1.0], ["yes", 1.0, 1.0]]


def test_a_roc_curve_keeps_its_corners():
    """Where either rate changes its pace: of equal scores, one is a hit and two are not."""
    scores = [0.9, 0.8, 0.8, 0.8, 0.7]
    rows = plot.roc_curve([1, 1, 0, 0, 1], [[1 - p, p] for p in scores], classes_to_plot=[1]).table.data

    assert [row[1:] for row in rows] == [[0.0, 0.0], [0.0, 0.333], [1.0, 0.667], [1.0, 1.0]]


def test_a_precision_recall_curve():
    """At recall 1 two of three are hits; up to recall 0.5 all are."""
    rows = plot.pr_curve(Y, P, classes_to_plot=[1], interp_size=3).table.data

    assert rows == [[1, 0.667, 1.0], [1, 1.0, 0.5], [1, 1.0, 0.0]]


@pytest.mark.parametrize("curve", [plot.pr_curve, plot.roc_curve])
@pytest.mark.parametrize(("y", "p"), [(None, P), (Y, None), ([0, 1], P), ([], []), (Y, [0.1] * 4), ([0, 1, 2, 3], P)])
def test_what_is_no_curve(curve, y, p):
    """Missing or of another shape."""
    with pytest.raises(ValueError, match="_curve"):
        curve(y, p)


def test_a_chart_of_no_table():
    """Says what it was given."""
    with pytest.raises(TypeError, match="not of dict"):
        plot.plot_table("s", {}, {})
