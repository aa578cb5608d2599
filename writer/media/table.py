"""Tables: rows of anything, media included."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from ...logformat.words import counted
from ..runfiles import RunFiles
from ..values import TooDeepError
from .base import Media, MediaContext, StagedMedia
from .column_types import Anything, ColumnType, TypedDict, Unknown, optional_type, type_by_class, type_from, type_of
from .content import ArtifactContents
from .libraries import is_array, is_data_frame, library
from .table_files import Snapshot, StagedTable, artifact_json

LOG_MODES = ("IMMUTABLE", "MUTABLE", "INCREMENTAL")
_DEFAULT_COLUMNS = ("Input", "Output", "Expected")  # the peer's

ColumnKey = str | int


class Table(Media):
    """Rows with named, typed columns."""

    KIND = "table"
    MAX_ROWS = 10_000
    """The peer's limits: nothing is cut here, but its viewers may be slow beyond them."""
    MAX_ARTIFACT_ROWS = 200_000

    def __init__(  # noqa: PLR0917 - the peer's signature
        self,
        columns: Sequence[ColumnKey] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        dtype: Any = None,
        optional: bool | list[bool] = True,
        allow_mixed_types: bool = False,
        log_mode: Literal["IMMUTABLE", "MUTABLE", "INCREMENTAL"] | None = "IMMUTABLE",
    ) -> None:
        """A table, empty unless it is given rows.

        Args:
            columns: names of the columns; "Input", "Output" and "Expected" unless given.
            data: rows: a list of lists, an array of two axes, or a data frame of pandas.
            rows: the same; an older name.
            dataframe: a data frame; its columns count instead of `columns`.
            dtype: the type of all columns, or one per column: a type of Python or of media, a list or dict of types,
                or a constant. Found out from the rows unless given.
            optional: whether cells may be None; one answer, or one per column.
            allow_mixed_types: columns take anything.
            log_mode: what becomes of rows that are added after the table was logged. "IMMUTABLE": nothing; what is
                logged again is what was logged first. "MUTABLE": the next `log` has the whole table. "INCREMENTAL":
                the next `log` adds the new rows to those before.

        Raises:
            TypeError: a cell does not fit the type of its column.
            ValueError: a row has too many or too few cells; an unknown log mode.
        """
        if log_mode not in LOG_MODES:
            raise ValueError(f"log_mode is one of {', '.join(LOG_MODES)}, not {log_mode!r}")
        self.log_mode = log_mode
        self.data: list[list[Any]] = []
        """The rows."""
        if dataframe is None and is_data_frame(data):
            dataframe = data
        if dataframe is not None:
            columns = list(dataframe.columns)
            data = [list(row) for row in zip(*_columns_of(dataframe), strict=True)]
        elif data is None:
            data = rows
        self.columns: list[ColumnKey] = _checked_columns(_DEFAULT_COLUMNS if columns is None else columns)
        self._lock = threading.RLock()
        self._staged: StagedTable | None = None
        self._changed = False
        self._next = 0
        self._missed: list[list[Any]] = []
        self._increment = 0
        self._increments: list[str] = []
        self._types: list[ColumnType] = []
        self._settled: list[set[type]] = []  # per column, the classes whose values leave its type as it is
        kind = Anything() if allow_mixed_types else Unknown() if dtype is None else dtype
        kinds = _per_column(kind, self.columns, Unknown())
        for kind, may_lack in zip(kinds, _per_column(optional, self.columns, True), strict=True):
            self._add_type(optional_type(type_from(kind)) if may_lack else type_from(kind))
        if data is not None and not isinstance(data, (list, tuple)) and not is_array(data):
            raise TypeError(f"the rows of a table are a list, an array or a data frame, not {type(data).__name__}")
        for row in () if data is None else data:
            self.add_data(*row)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has been logged nowhere.
        fresh: dict[str, Any] = {
            "_lock": None,
            "_staged": None,
            "_changed": False,
            "_next": 0,
            "_missed": [],
            "_increment": 0,
            "_increments": [],
        }
        return self.__dict__ | fresh

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    # -- rows and columns --------------------------------------------------------------------------------------------

    def add_data(self, *data: Any) -> None:
        """Add a row.

        Args:
            data: a cell per column.

        Raises:
            TypeError: a cell does not fit the type of its column.
            ValueError: there are too many or too few.
        """
        if len(data) != len(self.columns):
            raise ValueError(
                f"the table has {len(self.columns)} columns, {self.columns}; the row has {len(data)} cells"
            )
        with self._lock:
            grown: dict[int, ColumnType] = {}
            for at, cell in enumerate(data):
                if type(cell) in self._settled[at]:
                    continue
                known = self._types[at]
                fitting = self._fitting(self.columns[at], known, cell)
                if fitting != known:
                    grown[at] = fitting
                elif type_by_class(cell):
                    self._settled[at].add(type(cell))
            for at, kind in grown.items():
                self._types[at], self._settled[at] = kind, _settled(kind)
            self.data.append(list(data))
            self._changed = True

    def add_row(self, *row: Any) -> None:
        """As `add_data`; an older name."""
        self.add_data(*row)

    def add_column(self, name: ColumnKey, data: Any, optional: bool = False) -> None:
        """Add a column.

        Args:
            name: a new name.
            data: a cell per row: a list or an array.
            optional: whether cells may be None.

        Raises:
            TypeError: the cells have no common type.
            ValueError: the name is taken, there are too many or too few cells, or the table is incremental.
        """
        self._refuse_if_incremental("add_column")
        if name in self.columns:
            raise ValueError(f"the table has a column {name!r} already")
        _checked_columns([name])
        with self._lock:
            if self.columns and len(data) != len(self.data):
                raise ValueError(
                    f"the table has {counted(len(self.data), 'row')}; the column has {counted(len(data), 'cell')}"
                )
            kind: ColumnType = optional_type(Unknown()) if optional else Unknown()
            cells = list(data)
            for cell in cells:
                kind = self._fitting(name, kind, cell)
            if not self.columns:
                self.data = [[] for _ in cells]
            for row, cell in zip(self.data, cells, strict=True):
                row.append(cell)
            self.columns.append(name)
            self._add_type(kind)
            self._changed = True

    def add_computed_columns(self, fn: Callable[[int, dict[ColumnKey, Any]], dict[str, Any]]) -> None:
        """Add columns that are made of the others.

        Args:
            fn: takes a row's number and its cells by column, and gives the new cells by column.
        """
        self._refuse_if_incremental("add_computed_columns")
        added: dict[str, list[Any]] = {}
        for number, row in self.iterrows():
            for name, cell in fn(number, dict(zip(self.columns, row, strict=True))).items():
                added.setdefault(name, []).append(cell)
        for name, cells in added.items():
            self.add_column(name, cells)

    def cast(self, col_name: ColumnKey, dtype: Any, optional: bool = False) -> ColumnType:
        """Give a column another type. TypeError where a cell does not fit it."""
        if col_name not in self.columns:
            raise ValueError(f"the table has no column {col_name!r}")
        kind = optional_type(type_from(dtype)) if optional else type_from(dtype)
        at = self.columns.index(col_name)
        with self._lock:
            for row in self.data:
                kind = self._fitting(col_name, kind, row[at])
            self._types[at], self._settled[at] = kind, _settled(kind)
            self._changed = True
        return kind

    def get_column(self, name: ColumnKey, convert_to: Literal["numpy"] | None = None) -> Any:
        """The cells of a column: a list, or an array (`convert_to="numpy"`)."""
        at = self.columns.index(name)
        cells = [row[at] for row in self.data]
        return library("numpy", "Table.get_column").array(cells) if convert_to == "numpy" else cells

    def get_index(self) -> list[int]:
        """The numbers of the rows."""
        return list(range(len(self.data)))

    def get_dataframe(self) -> Any:
        """The table as a data frame. MissingLibraryError without pandas."""
        pandas = library("pandas", "Table.get_dataframe")
        return pandas.DataFrame.from_records(self.data, columns=self.columns)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Each row with its number."""
        yield from enumerate(self.data)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Table)
            and self.columns == other.columns
            and self._types == other._types
            and len(self.data) == len(other.data)
            and all(_same(mine, theirs) for mine, theirs in zip(self.data, other.data, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _refuse_if_incremental(self, method: str) -> None:
        if self.log_mode == "INCREMENTAL":
            raise ValueError(f"an incremental table grows by rows only: it has no {method}")

    def _fitting(self, column: ColumnKey, kind: ColumnType, cell: Any) -> ColumnType:
        try:
            grown = kind.take(cell)
        except RecursionError:
            raise TooDeepError from None
        if grown is None:
            raise TypeError(
                f"column {column!r} takes {kind}, not {type_of(cell)} ({type(cell).__name__});"
                " allow_mixed_types=True lets it take anything"
            )
        return grown

    def _add_type(self, kind: ColumnType) -> None:
        self._types.append(kind)
        self._settled.append(_settled(kind))

    # -- logging -----------------------------------------------------------------------------------------------------

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:
        """As for any medium."""
        directory = files.directory
        with self._lock:
            staged = self._staged
            current = not self._changed or self.log_mode == "IMMUTABLE"
            if staged is not None and current and staged.directory == directory and staged.retain():
                if self._changed:
                    context.warn(
                        "table changed",
                        "a table was changed after it was logged, and logging it again changes nothing:"
                        ' log_mode="MUTABLE" logs what it is then',
                    )
                return staged
            incremental = self.log_mode == "INCREMENTAL"
            snapshot = Snapshot(
                columns=list(self.columns),
                rows=[*self._missed, *self.data[self._next :]],
                types=list(self._types),
                log_mode=self.log_mode,
                total=len(self.data),
                increment=self._increment if incremental else None,
                increments=self._increments,
            )
            if len(snapshot.rows) > self.MAX_ARTIFACT_ROWS:
                context.warn(
                    "table rows",
                    f"a table has {len(snapshot.rows)} rows. All are logged, but the peer's viewers stop at"
                    f" {self.MAX_ARTIFACT_ROWS}",
                )
            staged = StagedTable(snapshot, files, context, self._undo(snapshot.rows))
            self._staged, self._changed = staged, False
            if incremental:
                self._next, self._missed, self._increment = len(self.data), [], self._increment + 1
            return staged

    def _undo(self, rows: list[list[Any]]) -> Callable[[StagedTable], None]:
        def undo(staged: StagedTable) -> None:
            """It went nowhere: the rows of an increment belong to the next, also where others came after it."""
            with self._lock:
                last = self._staged is staged
                if last:
                    self._staged = None
                if self.log_mode == "INCREMENTAL":
                    self._missed += rows
                    self._increment -= last
                self._changed = self._changed or last or bool(self._missed)

        return undo

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:
        """As for any medium."""
        with self._lock:
            snapshot = Snapshot(
                columns=list(self.columns),
                rows=self.data[:],
                types=list(self._types),
                log_mode=self.log_mode,
                total=len(self.data),
            )
        return artifact_json(snapshot, contents)

    @property
    def column_types(self) -> TypedDict:
        """The types of the columns, by name."""
        return TypedDict(dict(zip(self.columns, self._types, strict=True)))


def _columns_of(dataframe: Any) -> list[Any]:
    """The columns of a data frame; by place, because several may have one name."""
    return [dataframe.iloc[:, at].array for at in range(len(dataframe.columns))]


def _per_column(value: Any, columns: Sequence[ColumnKey], default: Any) -> list[Any]:
    """A value per column: one for all, or a list, which may be too short."""
    given = value if isinstance(value, list) else [value] * len(columns)
    return [*given[: len(columns)], *[default] * (len(columns) - len(given))]


def _settled(kind: ColumnType) -> set[type]:
    """The classes whose values leave a type as it is: most rows need no further look."""
    samples: dict[type, tuple[Any, ...]] = {
        str: ("",),
        int: (0,),
        bool: (True,),
        float: (0.0, float("nan")),
        type(None): (None,),
    }
    return {cls for cls, values in samples.items() if all(kind.take(value) == kind for value in values)}


def _checked_columns(columns: Iterable[Any]) -> list[ColumnKey]:
    names = list(columns)
    if not all(type(name) in {str, int} for name in names):
        raise TypeError("the names of columns are text or integers")
    return names


def _same(mine: Sequence[Any], theirs: Sequence[Any]) -> bool:
    for one, other in zip(mine, theirs, strict=True):
        alike = one == other
        if not (alike.all() if callable(getattr(alike, "all", None)) else alike):
            return False
    return True
