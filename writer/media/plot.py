"""Ready-made charts, as `runferry.plot`: each gives a `CustomChart` to log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...logformat.words import counted
from .chart import CustomChart
from .libraries import library, listed, to_array
from .table import Table

__all__ = [
    "CustomChart",
    "bar",
    "confusion_matrix",
    "histogram",
    "line",
    "line_series",
    "plot_table",
    "pr_curve",
    "roc_curve",
    "scatter",
]


def plot_table(
    vega_spec_name: str,
    data_table: Table,
    fields: Mapping[str, Any],
    string_fields: Mapping[str, Any] | None = None,
    split_table: bool = False,
) -> CustomChart:
    """A chart by a specification of Vega that the backend knows.

    Args:
        vega_spec_name: its name, such as "wandb/line/v0".
        data_table: what is drawn.
        fields: column of the table by field of the specification.
        string_fields: text by field, such as the title.
        split_table: show the table in a section of its own.

    Raises:
        TypeError: `data_table` is no table.
    """
    if not isinstance(data_table, Table):
        raise TypeError(f"a chart is drawn of a Table, not of {type(data_table).__name__}")
    return CustomChart(data_table, vega_spec_name, fields, string_fields, split_table=split_table)


def line(  # noqa: PLR0917 - the peer's signature
    table: Table, x: str, y: str, stroke: str | None = None, title: str = "", split_table: bool = False
) -> CustomChart:
    """Lines through the points (`x`, `y`) of a table; one per value of the column `stroke`, if that is given."""
    return plot_table("wandb/line/v0", table, {"x": x, "y": y, "stroke": stroke}, {"title": title}, split_table)


def scatter(table: Table, x: str, y: str, title: str = "", split_table: bool = False) -> CustomChart:
    """The points (`x`, `y`) of a table."""
    return plot_table("wandb/scatter/v0", table, {"x": x, "y": y}, {"title": title}, split_table)


def bar(table: Table, label: str, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """A bar per row of a table, `value` high."""
    return plot_table("wandb/bar/v0", table, {"label": label, "value": value}, {"title": title}, split_table)


def histogram(table: Table, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """How often values of the column `value` occur."""
    return plot_table("wandb/histogram/v0", table, {"value": value}, {"title": title}, split_table)


def line_series(  # noqa: PLR0917 - the peer's signature
    xs: Any,
    ys: Any,
    keys: Iterable[str] | None = None,
    title: str = "",
    xname: str = "x",
    split_table: bool = False,
) -> CustomChart:
    """Several lines.

    Args:
        xs: x values of all lines, or a sequence of them per line.
        ys: a sequence of y values per line.
        keys: names of the lines; "line_0" and so on unless given.
        title: of the chart.
        xname: of the x axis.
        split_table: show the table in a section of its own.

    Raises:
        ValueError: as many lines as there are x values or names there are not.
    """
    lines, across = [list(each) for each in ys], list(xs)
    single = not across or not isinstance(across[0], Iterable) or isinstance(across[0], (str, bytes))
    axes = [across] * len(lines) if single else [list(each) for each in across]
    if len(axes) != len(lines):
        raise ValueError(f"{len(axes)} series of x values for {counted(len(lines), 'line')}")
    names = [f"line_{number}" for number in range(len(lines))] if keys is None else list(keys)
    if len(names) != len(lines):
        raise ValueError(f"{counted(len(names), 'name')} for {counted(len(lines), 'line')}")
    rows = [
        [x, name, y]
        for name, axis, values in zip(names, axes, lines, strict=True)
        for x, y in zip(axis, values, strict=False)
    ]
    columns = ["step", "lineKey", "lineVal"]
    return plot_table(
        "wandb/lineseries/v0",
        Table(columns, rows),
        {name: name for name in columns},
        {"title": title, "xname": xname},
        split_table,
    )


def confusion_matrix(  # noqa: PLR0917 - the peer's signature
    probs: Any = None,
    y_true: Sequence[Any] | None = None,
    preds: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
    title: str = "Confusion Matrix Curve",
    split_table: bool = False,
) -> CustomChart:
    """How often each class was taken for each.

    Args:
        probs: per sample, the probability of each class (N x K); or `preds`.
        y_true: the true classes.
        preds: the predicted classes.
        class_names: names of the classes 0 to K - 1; "Class_1" and so on unless given.
        title: of the chart.
        split_table: show the table in a section of its own.

    Raises:
        ValueError: both or neither of `probs` and `preds`, or they do not fit `y_true` or the names.
    """
    if (probs is None) == (preds is None):
        raise ValueError("a confusion matrix is made of probs or preds: of one of them")
    if y_true is None:
        raise ValueError("a confusion matrix needs y_true")
    if probs is not None:
        preds = library("numpy", "confusion_matrix").argmax(to_array(probs, "confusion_matrix"), axis=1)
    predicted, true = listed(preds), listed(y_true)
    if len(predicted) != len(true):
        raise ValueError(f"{len(predicted)} predictions for {len(true)} true classes")
    classes = sorted({*predicted, *true}) if class_names is None else list(range(len(class_names)))
    names = list(class_names) if class_names is not None else [f"Class_{i + 1}" for i in range(len(classes))]
    place = {value: at for at, value in enumerate(classes)}
    if strange := sorted({*predicted, *true} - place.keys(), key=str):
        raise ValueError(f"no name is given for the classes {strange}: there are {len(names)} names, from 0")
    counts = [[0.0] * len(classes) for _ in classes]
    for was, taken in zip(true, predicted, strict=True):
        counts[place[was]][place[taken]] += 1
    columns = ["Actual", "Predicted", "nPredictions"]
    rows = [[names[i], names[j], counts[i][j]] for i in range(len(classes)) for j in range(len(classes))]
    return plot_table(
        "wandb/confusion_matrix/v1",
        Table(columns, rows),
        {name: name for name in columns},
        {"title": title},
        split_table,
    )


def pr_curve(  # noqa: PLR0917 - the peer's signature
    y_true: Any = None,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    split_table: bool = False,
) -> CustomChart:
    """Precision over recall, per class.

    Args:
        y_true: the true classes (N).
        y_probas: the probability of each class (N x K).
        labels: names of the classes, where they are integers.
        classes_to_plot: all unless given.
        interp_size: points per curve, at equal distances of recall.
        title: of the chart.
        split_table: show the table in a section of its own.
    """
    numpy = library("numpy", "pr_curve")
    recalls = numpy.linspace(0, 1, interp_size)[::-1]
    rows: list[list[Any]] = []
    for label, hits, _ in _ranked(y_true, y_probas, labels, classes_to_plot, "pr_curve"):
        taken = numpy.arange(1, len(hits.found) + 1)[hits.last]
        found = hits.found[hits.last]
        precision = numpy.concatenate([[1.0], found / taken])
        recall = numpy.concatenate([[0.0], found / max(found[-1], 1) if hits.positives else numpy.ones_like(found)])
        # The best precision that can be had at this recall or a higher one.
        best = numpy.maximum.accumulate(precision[::-1])[::-1]
        at = numpy.searchsorted(recall, recalls, side="left")
        rows += [[label, round(float(best[i]), 3), round(float(r), 3)] for i, r in zip(at, recalls, strict=True)]
    return plot_table(
        "wandb/area-under-curve/v0",
        Table(["class", "precision", "recall"], rows),
        {"x": "recall", "y": "precision", "class": "class"},
        {"title": title, "x-axis-title": "Recall", "y-axis-title": "Precision"},
        split_table,
    )


def roc_curve(  # noqa: PLR0917 - the peer's signature
    y_true: Any,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    title: str = "ROC Curve",
    split_table: bool = False,
) -> CustomChart:
    """The rate of true positives over that of false ones, per class; arguments as for `pr_curve`."""
    numpy = library("numpy", "roc_curve")
    rows: list[list[Any]] = []
    for label, hits, size in _ranked(y_true, y_probas, labels, classes_to_plot, "roc_curve"):
        found = hits.found[hits.last]
        missed = numpy.arange(1, size + 1)[hits.last] - found
        keep = numpy.ones(len(found), dtype=bool)  # points on a straight line between two others say nothing
        keep[1:-1] = numpy.diff(found, 2).astype(bool) | numpy.diff(missed, 2).astype(bool)
        found, missed = (numpy.concatenate([[0], counts[keep]]) for counts in (found, missed))
        rates = zip(missed / max(missed[-1], 1), found / max(found[-1], 1), strict=True)
        rows += [[label, round(float(false), 3), round(float(true), 3)] for false, true in rates]
    return plot_table(
        "wandb/area-under-curve/v0",
        Table(["class", "fpr", "tpr"], rows),
        {"x": "fpr", "y": "tpr", "class": "class"},
        {"title": title, "x-axis-title": "False positive rate", "y-axis-title": "True positive rate"},
        split_table,
    )


class _Hits:
    """Samples of one class, best score first: how many were found so far, and where a score ends."""

    def __init__(self, numpy: Any, is_class: Any, scores: Any) -> None:
        order = numpy.argsort(-scores, kind="stable")
        ranked = scores[order]
        self.found = numpy.cumsum(is_class[order])
        self.last = numpy.concatenate([numpy.flatnonzero(numpy.diff(ranked)), [len(ranked) - 1]])
        self.positives = int(is_class.sum())


def _ranked(y_true: Any, y_probas: Any, labels: Any, wanted: Any, purpose: str) -> Iterable[tuple[Any, _Hits, int]]:
    numpy = library("numpy", purpose)
    if y_true is None or y_probas is None:
        raise ValueError(f"{purpose} needs y_true and y_probas")
    true, probas = to_array(y_true, purpose), to_array(y_probas, purpose).astype(float)
    if true.ndim != 1 or probas.ndim != 2 or len(true) != len(probas) or not len(true):
        raise ValueError(f"{purpose} takes N classes and N x K probabilities, not {true.shape} and {probas.shape}")
    classes = numpy.unique(true)
    if len(classes) > probas.shape[1]:
        raise ValueError(f"{purpose}: {len(classes)} classes occur, and probabilities are there for {probas.shape[1]}")
    for at, value in enumerate(classes.tolist()):
        if wanted is None or value in list(wanted):
            label = labels[value] if labels is not None and isinstance(value, int) else value
            yield label, _Hits(numpy, true == value, probas[:, at]), len(true)
