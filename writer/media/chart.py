"""Charts of `plot`: a table in the row, and in the run's config how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import records
from ..encoding import to_json
from ..runfiles import RunFiles
from ..values import Path, plain
from .base import Landing, Media, MediaContext, StagedMedia
from .table import Table

_SUFFIX, _SECTION = "_table", "Custom Chart Tables/"
_QUERY_NAMES = ("id", "name", "_defaultColorIndex")


class CustomChart(Media):
    """A table, and a specification of Vega that draws it."""

    def __init__(
        self,
        table: Table,
        spec_name: str,
        fields: Mapping[str, Any],
        string_fields: Mapping[str, Any] | None = None,
        *,
        split_table: bool = False,
    ) -> None:
        """`spec_name` names a specification that the backend has; the rest as for `plot_table`."""
        self.table = table
        self._spec_name = spec_name
        self._fields = plain(dict(fields))
        self._string_fields = plain(dict(string_fields or {}))
        self._section = _SECTION if split_table else ""

    def where(self, path: Path) -> Path:
        """The table stands under the chart's dotted name and `_table`, at the top of the row."""
        return (f"{self._section}{'.'.join(path)}{_SUFFIX}",)

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        return _StagedChart(self, self.table.stage(files, context), context)

    def panel(self, table_key: str) -> bytes:
        """The config record that says how the table is drawn."""
        key = table_key.removeprefix(self._section).removesuffix(_SUFFIX)
        return records.config([(("_wandb", "visualize", key), to_json(self._panel(table_key)))])

    def _panel(self, table_key: str) -> dict[str, Any]:
        fields: list[dict[str, Any]] = [{"name": name, "fields": []} for name in _QUERY_NAMES]
        fields.append({"name": "summaryTable", "args": [{"name": "tableKey", "value": table_key}], "fields": []})
        runs = {"name": "runSets", "args": [{"name": "runSets", "value": "${runSets}"}], "fields": fields}
        return {
            "panel_type": "Vega2",
            "panel_config": {
                "panelDefId": self._spec_name,
                "fieldSettings": self._fields,
                "stringSettings": self._string_fields,
                "transform": {"name": "tableWithLeafColNames"},
                "userQuery": {"queryFields": [runs]},
            },
        }


class _StagedChart:
    def __init__(self, chart: CustomChart, table: StagedMedia, context: MediaContext) -> None:
        self._chart, self._table, self._context = chart, table, context

    def land(self, key: str, step: str) -> Landing:
        landing = self._table.land(key, step)
        return landing._replace(records=(*self._context.once(self._chart.panel(key)), *landing.records))

    def drop(self) -> None:
        self._table.drop()
