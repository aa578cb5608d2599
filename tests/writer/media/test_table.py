"""Tables: rows, columns, and the files that hold them."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import json
import math
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import messages
from runferry.writer.media import media_of
from runferry.writer.media import table as table_module
from runferry.writer.media.html import Html
from runferry.writer.media.image import Image
from runferry.writer.media.object3d import Object3D
from runferry.writer.media.table import Table
from runferry.writer.media.table_files import artifact_name
from runferry.writer.values import UnloggableError

RGB = np.zeros((2, 2, 3), dtype=np.uint8)
ROWS = [[1, "x", None], [2.5, "y", True]]


class Frame:
    """A data frame, as far as it is looked at."""

    columns = ("a", "b")

    @property
    def iloc(self):
        return self

    def __getitem__(self, place):
        class Column:
            array = (np.array([1, 2]), np.array([0.5, math.nan]))[place[1]]

        return Column


Frame.__module__, Frame.__name__ = "pandas.core.frame", "DataFrame"


class Colour(enum.Enum):
    RED = "r"


def artifact_of(landing):
    """The artifact's record."""
    (body,) = landing.records
    return messages.Record.FromString(body).artifact


def held_in(landing):
    """The artifact's table as JSON."""
    artifact = artifact_of(landing)
    (entry,) = (entry for entry in artifact.manifest.contents if entry.path.endswith(".table.json"))
    with open(entry.local_path, encoding="utf-8") as file:  # noqa: PTH123
        return json.load(file)


def shown_in(landing, files):
    """The table that the row names."""
    return json.loads((files.files / landing.value["path"]).read_text())


# -- making ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        Table(["a", "b"], [[1, 0.5], [2, math.nan]]),
        Table(["a", "b"], rows=[[1, 0.5], (2, math.nan)]),
        Table(["a", "b"], np.array([[1, 0.5], [2, math.nan]])),
        Table(dataframe=Frame()),
        Table(["ignored"], Frame()),
    ],
    ids=["lists", "rows", "array", "data frame", "data frame as data"],
)
def test_a_table_is_made_of_many_things(table):
    """Lists, arrays and data frames."""
    assert table.columns == ["a", "b"]
    assert table.get_column("a") == [1, 2]
    assert json.dumps(table.column_types.to_json()) == json.dumps(Table(["a", "b"], [[1, 1.5]]).column_types.to_json())


def test_a_data_frame_is_logged_as_a_table():
    """As it is."""
    assert media_of(Frame()).columns == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"columns": ["a"], "data": [[1, 2]]}, ValueError),
        ({"columns": ["a"], "data": [[1], ["x"]]}, TypeError),
        ({"columns": ["a"], "data": "text"}, TypeError),
        ({"columns": [1.5]}, TypeError),
        ({"columns": ["a"], "log_mode": "SOMETIMES"}, ValueError),
        ({"columns": ["a"], "data": [[None]], "optional": False}, TypeError),
        ({"columns": ["a"], "data": [["x"]], "dtype": int}, TypeError),
    ],
)
def test_what_is_no_table(arguments, error):
    """Rows that do not fit the columns, columns that are none, unknown modes."""
    with pytest.raises(error):
        Table(**arguments)


def test_columns_of_one_name_have_their_own_types(landed, files):
    """A data frame may have such; each cell is kept."""
    table = Table(["a", "a"], [[1, "x"]], optional=[True])

    assert shown_in(landed(table), files) == {"columns": ["a", "a"], "data": [[1, "x"]]}
    with pytest.raises(TypeError):
        table.add_data("x", "x")


def test_fewer_types_than_columns_are_for_the_first():
    """The rest is found out."""
    table = Table(["a", "b"], [[1, "x"]], dtype=[int])
    with pytest.raises(TypeError):
        table.add_data(1, 2)


def test_what_pandas_has_where_a_value_is_missing(landed, files):
    """Is None, in both forms and for the type."""
    missing = type("NAType", (), {"__module__": "pandas._libs.missing"})()
    landing = landed(Table(["a"], [[1], [missing]]))

    assert shown_in(landing, files)["data"] == held_in(landing)["data"] == [[1], [None]]


def test_mixed_types_are_refused_unless_they_are_wanted():
    """The error names the column, both types, and the way out; the row is not taken."""
    table = Table(["a"], [[1]])
    with pytest.raises(TypeError, match=r"column 'a' takes None or Number, not String .* allow_mixed_types=True"):
        table.add_data("x")
    assert table.data == [[1]]

    assert Table(["a"], [[1], ["x"], [None]], allow_mixed_types=True).get_column("a") == [1, "x", None]


def test_columns_are_added_and_computed():
    """A column of its own, and columns made of the others."""
    table = Table(["x"], [[1], [2]])
    table.add_column("y", np.array([3, 4]))
    table.add_computed_columns(lambda number, row: {"sum": row["x"] + row["y"], "at": number})

    assert [row for _, row in table.iterrows()] == [[1, 3, 4, 0], [2, 4, 6, 1]]
    assert table.get_column("sum", convert_to="numpy").tolist() == [4, 6]
    assert table.get_index() == [0, 1]
    assert Table([], []).columns == []


def test_the_first_column_makes_the_rows():
    """Of a table without columns."""
    table = Table([])
    table.add_column("a", [1, 2])
    table.add_row(3)

    assert table.data == [[1], [2], [3]]


@pytest.mark.parametrize(("name", "data"), [("x", [1, 2]), ("y", [1]), (2.5, [1, 2])])
def test_columns_that_do_not_fit(name, data):
    """A name that is taken or is none, another count; nothing of them is added."""
    table = Table(["x"], [[1], [2]])
    with pytest.raises((ValueError, TypeError)):
        table.add_column(name, data)
    assert table.data == [[1], [2]]


def test_a_column_of_mixed_cells_leaves_the_table_alone():
    """No half of it is added."""
    table = Table(["x"], [[1], [2]])
    with pytest.raises(TypeError):
        table.add_column("y", [1, "x"])
    assert (table.columns, table.data) == (["x"], [[1], [2]])


def test_a_column_is_cast_where_all_cells_fit():
    """Else it keeps its type."""
    table = Table(["a"], [[1], [None]])

    assert str(table.cast("a", int, optional=True)) == "None or Number"
    with pytest.raises(TypeError):
        table.cast("a", str)
    with pytest.raises(ValueError, match="no column"):
        table.cast("b", str)


def test_tables_compare_by_what_they_hold():
    """Columns, types and cells, arrays included."""
    one, other = (Table(["a", "v"], [[1, np.arange(3)]]) for _ in range(2))

    assert one == other == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
    assert one != Table(["a", "v"], [[1, np.arange(1, 4)]])
    assert one != Table(["a"], [[1]])
    assert one != 3


# -- logging ---------------------------------------------------------------------------------------------------------


def test_a_table_is_a_file_and_an_artifact(landed, files):
    """The row names both; the record lists the artifact's content, which lies in the run's directory."""
    landing = landed(Table(["a", "b", "c"], ROWS), "val/t", "4")
    artifact, value = artifact_of(landing), landing.value

    client, sequence = artifact.client_id, artifact.sequence_client_id
    assert value == {
        "_type": "table-file",
        "ncols": 3,
        "nrows": 2,
        "log_mode": "IMMUTABLE",
        "path": landing.paths[0],
        "sha256": value["sha256"],
        "size": (files.files / landing.paths[0]).stat().st_size,
        "artifact_path": f"wandb-client-artifact://{client}/val/t.table.json",
        "_latest_artifact_path": f"wandb-client-artifact://{sequence}:latest/val/t.table.json",
    }
    assert value["path"] == f"media/table/val/t_4_{value['sha256'][:20]}.table.json"
    assert shown_in(landing, files) == {"columns": ["a", "b", "c"], "data": ROWS}
    assert (artifact.type, artifact.name) == ("run_table", "run-rid-valt-9b9YLw")
    assert (artifact.run_id, artifact.project, artifact.entity) == ("rid", "proj", "me")
    assert [entry.path for entry in artifact.manifest.contents] == ["val/t.table.json"]
    assert held_in(landing)["data"] == ROWS
    assert landing.features == (78,)


@pytest.mark.parametrize(
    ("cell", "shown", "held"),
    [
        (math.nan, math.nan, None),
        (math.inf, math.inf, math.inf),
        (np.float64("nan"), math.nan, None),
        (np.float32(0.5), 0.5, 0.5),
        (np.int64(7), 7, 7),
        (np.bool_(True), True, True),
        (2**70, 2**70, 2**70),
        (dt.datetime(2020, 1, 1, 0, 0, 1), "2020-01-01T00:00:01", 1577836801000),  # noqa: DTZ001 - as users have them
        (dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc), "2020-01-01T00:00:00+00:00", 1577836800000),
        (dt.date(2020, 1, 1), "2020-01-01", 1577836800000),
        (np.datetime64("2020-01-01"), "2020-01-01", 1577836800000),
        (np.datetime64("2020-01-01T00:00:00.000000001"), "2020-01-01T00:00:00", 1577836800000),
        (decimal.Decimal("1.5"), 1.5, 1.5),
        (Colour.RED, "RED", "RED"),
        (b"raw\xff", "raw\ufffd", "raw\ufffd"),
        ({"a": [np.int8(1), math.nan]}, {"a": [1, math.nan]}, {"a": [1, None]}),
        ((1, 2), [1, 2], [1, 2]),
        ({3}, [3], [3]),
        (np.arange(3), [0, 1, 2], [0, 1, 2]),
        (math.sin, "math.sin", "math.sin"),
        ("\udcff", "\ufffd", "\udcff"),
        (Html("x"), "Html", {"_type": "html-file"}),
    ],
)
def test_cells_have_two_forms(cell, shown, held, landed, files):
    """One for the file that the row names, one for the artifact."""
    landing = landed(Table(["v"], [[cell]], allow_mixed_types=True))

    assert repr(shown_in(landing, files)["data"]) == repr([[shown]])
    found = held_in(landing)["data"][0][0]
    assert found["_type"] == "html-file" if isinstance(cell, Html) else repr(found) == repr(held)


class Thing:
    def __str__(self):
        return "thing"


class Mute:
    def __str__(self):
        raise RuntimeError("no words")


class BrokenArray(np.ndarray):
    def tolist(self):
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize(
    ("cell", "text"),
    [(Thing(), "thing"), (Mute(), "<{}.Mute>"), (np.zeros(3).view(BrokenArray), "<{}.BrokenArray>"), ([Mute()], None)],
)
def test_what_has_no_form_is_text(cell, text, landed, files):
    """It costs neither the table nor the row."""
    data = shown_in(landed(Table(["v"], [[cell], [None]])), files)["data"]

    expected = [f"<{__name__}.Mute>"] if text is None else text.format(__name__)
    assert data == [[expected], [None]]


def test_a_cell_that_holds_itself_is_refused():
    """When it is added; one that was changed so afterwards, when it is logged."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(UnloggableError, match="nested without end"):
        Table(["v"], [[loop]])


def test_media_in_cells_are_files_of_the_artifact(landed, files):
    """With all that belongs to them: names of classes, boxes and masks."""
    mask = {"mask_data": RGB[:, :, 0], "class_labels": {0: "sky"}}
    box = {"position": {"minX": 0, "maxX": 1, "minY": 0, "maxY": 1}, "class_id": 1}
    image = Image(RGB, caption="c", masks={"m": mask}, boxes={"b": {"box_data": [box], "class_labels": {1: "cat"}}})
    landing = landed(Table(["i", "far"], [[image, Image("s3://b/x.png")], [None, None]]))

    cell, far = held_in(landing)["data"][0]
    contents = {entry.path: entry for entry in artifact_of(landing).manifest.contents}
    assert cell["boxes"] == {"b": [box]}
    assert (cell["_type"], cell["caption"], cell["width"], cell["format"]) == ("image-file", "c", 2, "png")
    assert {cell["path"], cell["masks"]["m"]["path"], cell["classes"]["path"]} <= contents.keys()
    assert contents[cell["classes"]["path"]].digest == cell["classes"]["digest"]
    assert contents[far["path"]].ref == "s3://b/x.png"
    assert shown_in(landing, files)["data"] == [["Image", "Image"], [None, None]]


def test_a_file_in_a_cell_keeps_its_name(landed, tmp_path):
    """Below its hash, so that two of one name have room."""
    (tmp_path / "p.html").write_text("<b>")
    landing = landed(Table(["h"], [[Html(tmp_path / "p.html", inject=False)]]))

    cell = held_in(landing)["data"][0][0]
    assert cell["path"] == f"media/html/{cell['sha256'][:20]}/p.html"


def test_arrays_lie_in_a_file_of_their_own(landed, files):
    """But for short vectors, which are lists; the type says where."""
    grids = [np.full((2, 2), n) for n in range(3)]
    landing = landed(Table(["g", "v", "n"], [[grid, np.arange(4), np.arange(200)] for grid in grids]))

    value = held_in(landing)
    types = value["column_types"]["params"]["type_map"]
    where = types["g"]["params"]["allowed_types"][0]["params"]["serialization_path"]
    entry = next(e for e in artifact_of(landing).manifest.contents if e.path == where["path"])
    assert np.array_equal(np.load(entry.local_path)[where["key"]], np.array(grids))
    assert types["v"] == {"wb_type": "list", "params": {"element_type": {"wb_type": "number"}, "length": 4}}
    assert value["data"][0] == [None, [0, 1, 2, 3], None]
    assert shown_in(landing, files)["data"][1][0] == [[1, 1], [1, 1]]


def test_an_immutable_table_is_logged_as_it_was_first(landed, files, said):
    """Rows that come later are named once, and do not count."""
    table = Table(["a"], [[1]])
    first = landed(table)
    again = landed(table, "other")
    assert (again.value, again.paths, again.records, said) == (first.value, (), (), [])
    table.add_data(2)

    assert landed(table).value == first.value
    assert len(said) == 1
    assert 'log_mode="MUTABLE"' in said[0]


def test_a_mutable_table_is_logged_as_it_is(landed, files):
    """Each time it changed, a file and a version of the artifact."""
    table = Table(["a"], [[1]], log_mode="MUTABLE")
    first = landed(table)
    assert landed(table).records == ()
    table.add_data(2)
    second = landed(table)

    assert [shown_in(landing, files)["data"] for landing in (first, second)] == [[[1]], [[1], [2]]]
    assert artifact_of(first).name == artifact_of(second).name
    assert artifact_of(first).digest != artifact_of(second).digest


def test_an_incremental_table_adds_its_new_rows(landed, files):
    """Each increment names those before, and the record says that contents are added."""
    table = Table(["a"], log_mode="INCREMENTAL")
    landings = []
    for number in range(3):
        table.add_data(number)
        landings.append(landed(table))
    assert landed(table).records == ()

    assert [shown_in(landing, files)["data"] for landing in landings] == [[[0]], [[1]], [[2]]]
    last, value = landings[2].value, held_in(landings[2])
    before = [landing.value["artifact_path"] for landing in landings[:2]]
    assert (last["_type"], last["increment_num"], last["nrows"]) == ("incremental-table-file", 2, 3)
    assert last["previous_increments_paths"] == value["previous_increments_paths"] == before
    assert (value["increment_num"], value["data"], value["log_mode"]) == (2, [[2]], "INCREMENTAL")
    artifact = artifact_of(landings[2])
    assert (artifact.name, artifact.type, artifact.incremental_beta1) == (
        "run-rid-incr-k",
        "wandb-run-incremental-table",
        True,
    )
    assert last["artifact_path"].endswith("/2-1500.k.table.json")
    assert landings[2].features == (78, 79)


def test_an_incremental_table_takes_rows_only():
    """Columns would change what was logged."""
    table = Table(["a"], [[1]], log_mode="INCREMENTAL")
    with pytest.raises(ValueError, match="rows only"):
        table.add_column("b", [1])
    with pytest.raises(ValueError, match="rows only"):
        table.add_computed_columns(lambda *_: {})


def test_a_copy_of_an_incremental_table_begins_anew(landed, files):
    """It has been logged nowhere, so its first increment has all rows."""
    table = Table(["a"], [[1]], log_mode="INCREMENTAL")
    landed(table)
    landing = landed(pickle.loads(pickle.dumps(table)))

    assert (landing.value["increment_num"], shown_in(landing, files)["data"]) == (0, [[1]])


def test_an_increment_whose_row_went_nowhere_is_in_the_next(files, context, landed):
    """No row of the table is lost, nor is its number used."""
    table = Table(["a"], [[1]], log_mode="INCREMENTAL")
    table.stage(files, context).drop()
    table.add_data(2)
    landing = landed(table)

    assert shown_in(landing, files)["data"] == [[1], [2]]
    assert (landing.value["increment_num"], landing.value["previous_increments_paths"]) == (0, [])


def test_an_increment_is_not_lost_though_another_came_after_it(files, context, landed):
    """The disk refused the first when the second was staged: the third has its rows."""
    table = Table(["a"], [[1]], log_mode="INCREMENTAL")
    first = table.stage(files, context)
    table.add_data(2)
    second = table.stage(files, context)
    first.drop()
    landings = [second.land("k", "1"), landed(table), landed(table)]

    assert [shown_in(landing, files)["data"] for landing in landings[:2]] == [[[2]], [[1]]]
    assert [landing.value["increment_num"] for landing in landings] == [1, 2, 2]


def test_dates_without_a_zone_are_utc(monkeypatch, landed):
    """In every time zone the artifact holds the same."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        landing = landed(Table(["a"], [[dt.datetime(2020, 1, 1, 0, 0, 1)]]))  # noqa: DTZ001 - as users have them
    finally:
        monkeypatch.undo()
        time.tzset()

    assert held_in(landing)["data"] == [[1577836801000]]


def test_a_dropped_table_can_be_logged_again(files, context, landed):
    """And one that two rows have stays for the other."""
    table = Table(["a"], [[1]])
    one, two = table.stage(files, context), table.stage(files, context)
    assert one is two
    one.drop()
    assert two.land("k", "0").paths
    two.drop()

    other = Table(["a"], [[1]])
    other.stage(files, context).drop()
    assert list((files.directory / "tmp").iterdir()) == []
    assert landed(other).paths


def test_rows_beyond_the_guide_are_logged_all(monkeypatch, landed, files, said):
    """With one line that says how many viewers show."""
    monkeypatch.setattr(Table, "MAX_ARTIFACT_ROWS", 10)
    landing = landed(Table(["a"], [[n] for n in range(25)]))

    assert len(shown_in(landing, files)["data"]) == len(held_in(landing)["data"]) == 25
    assert "25 rows" in said[0]


def test_more_increments_than_viewers_show_are_named(monkeypatch, landed, said):
    """All of them are kept."""
    monkeypatch.setattr("runferry.writer.media.table_files.MAX_INCREMENTS", 1)
    table = Table(["a"], [[1]], log_mode="INCREMENTAL")
    landed(table)
    table.add_data(2)
    landed(table)

    assert "logged 2 times" in said[0]


def test_names_of_artifacts_are_no_longer_than_they_may_be():
    """A long key is cut, and a checksum keeps it apart."""
    one, two = artifact_name("run-x-" + "k" * 300), artifact_name("run-x-" + "k" * 301)

    assert len(one) == len(two) == 128
    assert one != two


def test_artifacts_hold_no_meshes(landed):
    """A table with one is left out, and the error says why."""
    import io

    table = Table(["o"], [[Object3D(io.StringIO("v 0 0 0"), file_type="obj")]])
    with pytest.raises(UnloggableError, match="clouds of points"):
        landed(table)


def test_a_list_of_tables_is_a_list(landed):
    """Each has its own file and artifact."""
    landing = landed(media_of([Table(["a"], [[1]]), Table(["a"], [[2]])]), "tl")

    assert [each["_type"] for each in landing.value] == ["table-file", "table-file"]
    assert (len(landing.paths), len(landing.records)) == (2, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.lists(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
                min_size=width,
                max_size=width,
            ),
            max_size=5,
        )
    )
)
def test_any_rows_have_both_forms(tmp_path_factory, rows):
    """Mixed columns take anything, and as many rows come out as went in."""
    from runferry.writer.filesystem import RealFileSystem
    from runferry.writer.media import MediaContext
    from runferry.writer.runfiles import RunFiles

    run = tmp_path_factory.mktemp("run")
    files = RunFiles(lambda: run, RealFileSystem())
    columns = [f"c{n}" for n in range(len(rows[0]) if rows else 1)]
    landing = Table(columns, rows, allow_mixed_types=True).stage(files, MediaContext("rid")).land("k", "0")

    assert [len(row) for row in shown_in(landing, files)["data"]] == [len(row) for row in rows]
    assert [len(row) for row in held_in(landing)["data"]] == [len(row) for row in rows]


def test_adding_rows_of_known_types_asks_no_type_again(monkeypatch):
    """Of a million cells, only the first of each kind is looked at."""
    table = Table(["a", "b"], [[1, "x"]])
    table.add_data(np.float64(2), None)
    monkeypatch.setattr(table_module.Table, "_fitting", lambda *_: 1 / 0)
    for number in range(100):
        table.add_data(float(number), None)
        table.add_data(np.float64(number), "y")

    assert len(table.data) == 202
