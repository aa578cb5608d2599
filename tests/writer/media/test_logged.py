"""Media in rows and in the summary of a run: what the log and its directory hold."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from runferry.logformat import RunState, read_records
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media import plot
from runferry.writer.media.histogram import Histogram
from runferry.writer.media.html import Html
from runferry.writer.media.image import Image
from runferry.writer.media.table import Table
from runferry.writer.ranks import Role

RGB = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def kinds_of(path):
    """The records' kinds, in their order."""
    return [record.kind for record in read_records(path)]


def below(files):
    return sorted(str(path.relative_to(files)) for path in files.rglob("*") if path.is_file())


def test_a_row_names_its_files(logged):
    """Each lies where the row says, and a files record stands before the row."""
    state, files = logged(
        {"loss": 1, "img": Image(RGB)},
        {"val": {"img": Image(RGB), "deep": {"h": Histogram(np_histogram=([1], [0, 1]))}}},
        {"list": [Html("a"), Html("b")]},
    )

    first, second, third = state.rows
    assert first["loss"] == 1
    assert first["img"]["path"].startswith("media/images/img_0_")
    assert second["val"]["img"]["path"].startswith("media/images/img_1_")
    assert second["val"]["deep"]["h"] == {"_type": "histogram", "values": [1], "bins": [0, 1]}
    assert [page["path"].rpartition("_")[0] for page in third["list"]["html"]] == ["media/html/list_2"] * 2
    assert below(files) == sorted(set(state.files) - {"requirements.txt"})
    assert state.summary["img"] == first["img"]
    assert not any(path.is_symlink() for path in files.rglob("*"))


def test_files_are_recorded_before_their_row(begin):
    """So that who reads a log has the file when the row names it."""
    run = begin()
    run.log({"img": Image(RGB)})
    run.finish()

    kinds = kinds_of(run.log_path)
    assert kinds.index("files") < kinds.index("history")


def test_a_file_bears_the_step_of_its_row(logged, begin):
    """Also where the step is given, and in the summary that word stands."""
    run = begin()
    run.log({"img": Image(RGB)}, step=20)
    run.log({"img": Image(RGB)}, step=20)
    run.summary["best"] = Image(RGB)
    run.summary["shown"] = {"table": Table(["a"], [[1]]), "n": 1}
    run.finish()

    names = below(run.log_path.parent / "files")
    assert [name.rpartition("_")[0] for name in names] == [
        "media/images/best_summary",
        "media/images/img_20",
        "media/table/shown.table_summary",
    ]
    summary = RunState().add_all(read_records(run.log_path)).summary
    assert (summary["best"]["_type"], summary["shown"]["table"]["nrows"], summary["shown"]["n"]) == ("image-file", 1, 1)


KEYS = ["../../up", "/etc/abs", "nul\0", "a/b.c", "", "é" * 300, "x" * 5000, "..", "\\..\\w", "\udcff", "a\nb", "C:x"]


def test_keys_lead_nowhere_else(logged, tmp_path):
    """Whatever the key, its file lies below the run's folder, and the row has the key."""
    state, files = logged({key: Image(RGB + n) for n, key in enumerate(KEYS)}, {key: Html(key) for key in KEYS})

    for row in state.rows:
        assert sum(isinstance(value, dict) for value in row.values()) == len(KEYS)
        for value in (value for value in row.values() if isinstance(value, dict)):
            path = files / value["path"]
            assert path.resolve().is_relative_to(files.resolve())
            assert path.stat().st_size == value["size"]
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and files.parent not in path.parents]
    assert outside == []


def test_charts_stand_at_the_top_of_the_row(logged):
    """Under their dotted name; the config says how they are drawn."""
    table = Table(["x", "y"], [[0, 1]])
    state, _ = logged(
        {"val": {"pr": plot.line(table, "x", "y"), "acc": 1}}, {"val": {"pr": plot.line(table, "x", "y")}}
    )

    assert state.rows[0]["val"] == {"acc": 1}
    assert state.rows[0]["val.pr_table"] == state.rows[1]["val.pr_table"]
    assert state.config["_wandb"]["visualize"]["val.pr"]["panel_config"]["panelDefId"] == "wandb/line/v0"


def test_names_of_classes_stand_in_the_config(logged):
    """By the image's key and the layer's."""
    mask = {"mask_data": RGB[:, :, 0], "class_labels": {0: "sky", 7: "sea"}}
    state, _ = logged({"a": {"img": Image(RGB, masks={"m": mask})}})

    assert state.config["_wandb"]["mask/class_labels"] == {
        "img_wandb_delimeter_m": {
            "type": "mask/class_labels",
            "key": "img_wandb_delimeter_m",
            "value": {"0": "sky", "7": "sea"},
        }
    }


def test_a_table_is_counted_as_a_feature(begin):
    """As the peer's telemetry has it."""
    run = begin()
    run.log({"t": Table(["a"], [[1]])})
    run.finish()
    features = [record.message().feature for record in read_records(run.log_path) if record.kind == "telemetry"]

    assert any(b"\xf0\x04\x01" in switches for switches in features)  # number 78, true


class Vanishing(Html):
    """A medium whose content cannot be read when it is logged."""

    def stage(self, files, context):
        raise OSError(errno.EIO, "gone", "somewhere")


def test_what_cannot_be_staged_costs_its_own_key(begin):
    """One line names key and reason; the rest of the row stands."""
    said = []
    run = begin(warn=said.append)
    run.log({"page": Vanishing("x"), "loss": 1, "img": Image(RGB)})
    run.log({"page": Vanishing("x"), "loss": 2})
    run.finish()

    rows = [record for record in read_records(run.log_path) if record.kind == "history"]
    assert len(rows) == 2
    assert [line for line in said if "page" in line] == ["page is left out: OSError: [Errno 5] gone: 'somewhere'"]


def test_strict_raises_what_cannot_be_logged(begin):
    """As for values."""
    run = begin(strict=True)
    with pytest.raises(TypeError, match="page is left out"):
        run.log({"page": Vanishing("x")})


def test_a_source_that_is_gone_before_it_is_logged(begin, tmp_path):
    """The key is left out; nothing is raised."""
    said = []
    (tmp_path / "a.html").write_text("x")
    page = Html(tmp_path / "a.html", inject=False)
    (tmp_path / "a.html").unlink()
    run = begin(warn=said.append)
    run.log({"page": page, "loss": 1})
    run.finish()

    assert "page is left out: FileNotFoundError" in said[0]


class FullDisk(RealFileSystem):
    """Has no room for files beside the log."""

    full = True

    def write(self, fd, data):
        if self.full and Path(f"/proc/self/fd/{fd}").readlink().parent.name == "tmp":
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data)


def test_a_row_without_room_leaves_nothing(begin, monkeypatch):
    """It is dropped and counted; its media, which were staged before, go with it."""
    run = begin()
    monkeypatch.setattr(run._pump, "ease", 0)
    monkeypatch.setattr(run._pump, "admit", lambda _row: False)
    run.log({"img": Image(RGB), "loss": 1})
    report = run.finish()

    assert (report.rows_written, report.rows_dropped) == (0, 1)
    assert below(run.log_path.parent) == [run.log_path.name]


@pytest.mark.parametrize("step", [None, "no number"])
def test_what_strict_refuses_leaves_nothing(begin, step):
    """Neither of the row's other media, which were staged before or would be after."""
    run = begin(strict=True)
    with pytest.raises(TypeError):
        run.log({"img": Image(RGB)} | ({"page": Vanishing("x")} if step is None else {}), step=step)
    run.finish()

    assert below(run.log_path.parent) == [run.log_path.name]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the names of open files")
def test_a_full_disk_costs_the_media_only(begin):
    """Named once per key; when there is room again, media are logged again."""
    said, disk = [], FullDisk()
    run = begin(fs=disk, warn=said.append)
    image, table = Image(RGB), Table(["a"], [[1]], log_mode="INCREMENTAL")
    run.log({"img": image, "t": table, "loss": 1})
    disk.full = False
    run.log({"img": image, "t": table, "loss": 2})
    run.finish()

    values = [record.message() for record in read_records(run.log_path) if record.kind == "history"]
    assert [any(item.key == "img" or "img" in item.nested_key for item in row.item) for row in values] == [False, True]
    assert len([line for line in said if "No space left" in line]) == 2
    names = below(run.log_path.parent)
    assert len([name for name in names if name.startswith("tmp/")]) == 0
    (shown,) = [name for name in names if name.startswith("files/media/table")]
    assert json.loads((run.log_path.parent / shown).read_text())["data"] == [[1]]


def test_a_run_that_is_disabled_takes_media_for_nothing(begin, tmp_path):
    """No file is made."""
    said = []
    run = begin(mode="disabled", strict=True, warn=said.append)
    run.log({"img": Image(RGB), "t": Table(["a"], [[1]])})
    run.summary["img"] = Image(RGB)
    run.finish()

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == said == []


@pytest.mark.parametrize("role", [Role.SAMPLER, Role.NONE])
def test_other_ranks_have_a_summary_of_their_own(begin, tmp_path, role):
    """Their scripts read back what they set, and nothing of it is in a log."""
    run = begin(role=role)
    run.log({"img": Image(RGB)})
    run.summary["img"], run.summary["n"] = Image(RGB), 1
    assert run.summary["n"] == 1
    report = run.finish()

    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".wandb"]
    assert all(RunState().add_all(read_records(path)).summary.keys() <= {"_wandb"} for path in report.paths)


def test_a_summary_takes_media_as_long_as_the_run(begin):
    """After its end, and in a forked child, nothing is put into its directory."""
    run = begin()
    run.log({"loss": 1})
    child = os.fork()
    if not child:
        run.summary["img"] = Image(RGB)
        run.log({"img": Image(RGB)})
        os._exit(0)
    os.waitpid(child, 0)
    run.finish()
    run.summary["img"] = Image(RGB)

    assert below(run.log_path.parent) == [run.log_path.name]


def test_many_images_under_one_key(logged):
    """Each row has its file; the same pixels in other rows are files of their own."""
    state, files = logged(*[{"img": Image(RGB + n % 3)} for n in range(50)])

    assert len({row["img"]["path"] for row in state.rows}) == len(below(files)) == 50


def test_the_face_has_the_media():
    """`import runferry as wandb` finds them, and imports neither numpy nor pillow for it."""
    import subprocess
    import sys

    program = (
        "import sys, runferry as wandb;"
        "names = 'Image Table Histogram Html Audio Video Object3D Plotly Molecule Classes BoundingBoxes2D ImageMask';"
        "[getattr(wandb, name) for name in names.split()]; wandb.plot.line; wandb.plot_table; wandb.box3d;"
        "print([name for name in ('numpy', 'PIL', 'google.protobuf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
