"""Pages, sound, video, points, molecules and figures."""

from __future__ import annotations

import hashlib
import io
import json
import math
import sys
import types
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from runferry.writer.artifact import Artifact
from runferry.writer.media import libraries, media_of
from runferry.writer.media.audio import Audio
from runferry.writer.media.content import ArtifactContents
from runferry.writer.media.histogram import Histogram
from runferry.writer.media.html import Html
from runferry.writer.media.image import Image
from runferry.writer.media.libraries import MissingLibraryError
from runferry.writer.media.molecule import Molecule
from runferry.writer.media.object3d import Object3D, box3d
from runferry.writer.media.plotly import Plotly
from runferry.writer.media.video import Video
from runferry.writer.values import UnloggableError

POINTS = np.arange(12.0).reshape(4, 3)


def text_of(medium):
    return medium._content.source.decode()


# -- histograms ------------------------------------------------------------------------------------------------------


def test_a_histogram_counts_what_is_finite(landed):
    """Of lists and arrays of any shape; NaN and infinities are left out, as in rows."""
    value = landed(Histogram([[0.0, 1.0], [math.nan, math.inf]], num_bins=2)).value

    assert value == {"_type": "histogram", "values": [1, 1], "bins": [0.0, 0.5, 1.0]}
    assert Histogram().histogram == [0] * 64


def test_a_histogram_that_is_given(landed):
    """Counts and edges, of lists or arrays; changed afterwards, they are not logged."""
    counts = [1, 2]
    medium = Histogram(np_histogram=(counts, np.array([0, 1, 2])))
    counts[0] = 9

    assert landed(medium).value == {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}


@pytest.mark.parametrize("given", [{"np_histogram": ([1], [0])}, {"np_histogram": ([1],)}, {"num_bins": 513}])
def test_what_is_no_histogram(given):
    """Edges that do not fit, and more bins than are drawn."""
    with pytest.raises(ValueError, match=r"bins|pair"):
        Histogram([1, 2], **given)


def test_a_histogram_of_values_needs_numpy(monkeypatch):
    """One that is given does not."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingLibraryError, match="Histogram of a sequence needs numpy"):
        Histogram([1])
    assert Histogram(np_histogram=([1], [0, 1])).bins == [0, 1]


def test_what_is_masked_is_not_counted():
    """Whatever lies under the mask."""
    for kind in (int, float):
        assert Histogram(np.ma.masked_equal(np.array([1, 2, 9], dtype=kind), 9), num_bins=2).histogram == [1, 1]


def test_a_histogram_of_two_arrays_in_one():
    """Counts and edges as rows of an array of objects, or no pair at all."""
    pair = np.array([np.array([1, 2]), np.array([0.0, 1.0, 2.0])], dtype=object)
    assert Histogram(np_histogram=pair).histogram == [1, 2]
    with pytest.raises(ValueError, match="a pair"):
        Histogram(np_histogram=())


# -- pages -----------------------------------------------------------------------------------------------------------

HEAD = '<base target="_blank"><link rel="stylesheet" type="text/css" href="https://app.wandb.ai/normalize.css" />'


@pytest.mark.parametrize(
    ("given", "page"),
    [
        ("<b>x</b>", f"{HEAD}<b>x</b>"),
        (" <html><body>", f"<html><head>{HEAD}</head><body>"),
        ("<html><head><t>", f"<html><head>{HEAD}<t>"),
        (io.StringIO("x"), f"{HEAD}x"),
        (io.BytesIO(b"\xffx"), f"{HEAD}\ufffdx"),
        ("bad \udcff", f"{HEAD}bad \ufffd"),
        ("nul\0.html", f"{HEAD}nul\0.html"),
        ("missing.html", f"{HEAD}missing.html"),
    ],
)
def test_a_page_gets_the_head_of_the_others(given, page):
    """Where its own is, or in front."""
    assert text_of(Html(given)) == page


def test_a_page_of_a_file(tmp_path):
    """A path that ends in .html, unless it is said to be none."""
    path = tmp_path / "p.html"
    path.write_text("<i>")

    assert text_of(Html(path)) == f"{HEAD}<i>"
    assert Html(str(path), inject=False)._content.source == path
    assert text_of(Html(str(path), inject=False, data_is_not_path=True)) == str(path)
    with pytest.raises(TypeError, match="not int"):
        Html(3)


# -- sound -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([0.0, 0.5, 1.0, -1.0, 2.0, math.nan]), [0, 16384, 32767, -32768, 32767, 0]),
        ([0.0, -0.5], [0, -16384]),
        (np.array([1, -2], dtype=np.int16), [1, -2]),
        (np.array([1 << 16, -(1 << 17)], dtype=np.int32), [1, -2]),
        (np.array([[0.5, -0.5]] * 2), [16384, -16384] * 2),
    ],
)
def test_samples_become_wav(samples, expected):
    """16 bits, as many channels as columns."""
    with wave.open(io.BytesIO(Audio(samples, sample_rate=8000)._content.source)) as file:
        assert (file.getframerate(), file.getsampwidth()) == (8000, 2)
        assert file.getnchannels() == (2 if np.ndim(samples) == 2 else 1)
        assert np.frombuffer(file.readframes(100), "<i2").tolist() == expected


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((np.zeros(3),), ValueError),
        ((np.zeros(3), 0), ValueError),
        ((np.zeros(3), -8), ValueError),
        ((np.zeros((1, 1, 1)), 8), ValueError),
        ((np.zeros((2, 16_000)), 8), ValueError),
        ((np.zeros((2, 70_000)), 8), ValueError),
        ((np.zeros((2, 0)), 8), ValueError),
        ((np.zeros(3, dtype=np.uint8), 8), TypeError),
        (("missing.wav",), OSError),
    ],
)
def test_what_is_no_sound(given, error):
    """No rate, another shape (channels first), another type, no such file."""
    with pytest.raises(error):
        Audio(*given)


def test_a_list_of_sounds(landed, tmp_path):
    """Rates, lengths and captions stand beside the files; a file has neither rate nor length."""
    (tmp_path / "a.mp3").write_bytes(b"mp3")
    sounds = [Audio(np.zeros(10), 5, caption="c"), Audio(tmp_path / "a.mp3")]
    value = landed(media_of(sounds), "s").value

    assert (value["_type"], value["count"], value["captions"]) == ("audio", 2, ["c", ""])
    assert (value["sampleRates"], value["durations"]) == ([5, None], [2.0, None])
    assert [each["path"].rpartition(".")[2] for each in value["audio"]] == ["wav", "mp3"]


def test_sound_that_lies_elsewhere(landed, files):
    """Stands in artifacts only."""
    far = Audio("gs://b/a.wav", caption="c")
    with pytest.raises(ValueError, match="lies elsewhere"):
        landed(far)

    contents = ArtifactContents(files)
    sha256 = hashlib.sha256(b"gs://b/a.wav").hexdigest()
    path = f"media/audio/{sha256[:20]}/a.wav"
    assert far.cell(contents) == {"caption": "c", "_type": "audio-file", "path": path, "sha256": sha256}
    Audio("gs://other/a.wav").cell(contents)  # of the same name: a content of its own
    assert [entry.ref for entry in contents.entries] == ["gs://b/a.wav", "gs://other/a.wav"]


# -- video -----------------------------------------------------------------------------------------------------------


def frames_of(data):
    film = Pillow.open(io.BytesIO(data))
    shown = []
    for number in range(film.n_frames):
        film.seek(number)
        shown.append(np.asarray(film.convert("RGB")))
    return shown, film.info["duration"]


def test_frames_become_a_gif(landed):
    """Each frame, its time, and the size in the row."""
    video = np.zeros((3, 3, 8, 6), dtype=np.uint8)
    video[1, 0] = 255
    film = Video(video, fps=5, format="gif", caption="c")
    video[:] = 7

    shown, duration = frames_of(film._content.source)
    assert ([frame[0, 0].tolist() for frame in shown], duration) == ([[0, 0, 0], [255, 0, 0], [0, 0, 0]], 200)
    value = landed(film).value
    assert (value["width"], value["height"], value["caption"], value["_type"]) == (6, 8, "c", "video-file")


@pytest.mark.parametrize(("films", "size"), [(1, (6, 8)), (2, (12, 8)), (3, (24, 8)), (4, (12, 16)), (5, (24, 16))])
def test_several_films_are_put_side_by_side(films, size):
    """In a grid whose sides are powers of two; one channel will do."""
    film = Video(np.zeros((films, 2, 1, 8, 6)), format="gif")

    assert (film.facts()["width"], film.facts()["height"]) == size


def test_a_film_as_a_file_or_bytes(tmp_path, landed, capsys):
    """As it is; frames per second are its own."""
    (tmp_path / "a.MP4").write_bytes(b"mp4")

    assert landed(Video(tmp_path / "a.MP4")).paths[0].endswith(".MP4")
    assert Video(io.BytesIO(b"webm"), format="webm", fps=3)._content.source == b"webm"
    assert "fps" in capsys.readouterr().err
    assert Video(b"ogg", format="ogg")._content.extension == ".ogg"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((np.zeros((2, 3, 4, 4)),), ValueError),
        ((np.zeros((2, 3, 4, 4)), None, None, "avi"), ValueError),
        ((np.zeros((3, 4, 4)), None, None, "gif"), ValueError),
        ((np.zeros((2, 5, 4, 4)), None, None, "gif"), ValueError),
        ((b"x",), ValueError),
        ((io.StringIO("x"), None, None, "gif"), TypeError),
        (("a.txt",), OSError),
    ],
)
def test_what_is_no_film(given, error):
    """No or another format, other shapes, text."""
    with pytest.raises(error):
        Video(*given)


def test_a_film_that_needs_moviepy_says_so(monkeypatch):
    """When it is made, not when it is logged."""
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(MissingLibraryError, match="as mp4 needs moviepy: pip install moviepy"):
        Video(np.zeros((2, 3, 4, 4)), format="mp4")


def test_a_film_is_encoded_in_the_runs_directory(monkeypatch, landed, files, tmp_path):
    """By moviepy, which writes files only; for an artifact without a run, in a folder that goes again."""
    written = []

    class Clip:
        def __init__(self, frames, fps):
            self.text = f"{len(frames)} frames of {frames[0].shape} at {fps}"

        def write_videofile(self, name, logger):
            written.append(name)
            with open(name, "w") as file:  # noqa: PTH123
                file.write(self.text)

    module = types.SimpleNamespace(ImageSequenceClip=Clip)
    monkeypatch.setattr("runferry.writer.media.video.library", lambda name, *_: module if "moviepy" in name else np)
    film = Video(np.zeros((2, 3, 4, 6)), format="mp4", fps=3)
    landing = landed(film)
    cell = Video(np.zeros((2, 3, 4, 6)), format="mp4", fps=3).cell(ArtifactContents(files))
    assert len(written) == 2
    alone = Artifact("films", "dataset")
    alone.add(Video(np.zeros((2, 3, 4, 6)), format="mp4", fps=3), "film")
    outside = Path(written.pop()).parent

    assert not outside.is_relative_to(tmp_path / "run")
    assert not outside.exists()
    assert len(alone.manifest) == 2
    assert (files.files / landing.paths[0]).read_text() == "2 frames of (4, 6, 3) at 3"
    assert cell["sha256"] == landing.value["sha256"]
    assert all(name.startswith(str(tmp_path / "run" / "tmp")) for name in written)
    assert list((tmp_path / "run" / "tmp").iterdir()) == []
    assert landed(media_of([film]), "l").value["captions"] is False


def test_frames_of_floats_are_as_light_as_images():
    """From 0 to 1 they are parts of the full brightness."""
    shown, _ = frames_of(Video(np.full((1, 3, 8, 6), 0.5, dtype=np.float32), format="gif")._content.source)

    assert shown[0][0, 0].tolist() == [128] * 3


def test_two_threads_log_one_film(monkeypatch, files, context):
    """The second asks while the first encodes."""
    films = []

    class Clip:
        def __init__(self, frames, fps):
            self.count = len(frames)
            if films:
                films.pop().stage(files, context)

        def write_videofile(self, name, logger):
            Path(name).write_text(f"{self.count} frames")

    module = types.SimpleNamespace(ImageSequenceClip=Clip)
    monkeypatch.setattr("runferry.writer.media.video.library", lambda name, *_: module if "moviepy" in name else np)
    film = Video(np.zeros((2, 3, 4, 6)), format="mp4")
    films.append(film)

    path = film.stage(files, context).land("k", "0").paths[0]
    assert (files.files / path).read_text() == "2 frames"


def test_an_encoder_that_writes_nothing_is_named(monkeypatch, landed):
    """Builds of ffmpeg differ in what they can encode."""
    clip = types.SimpleNamespace(write_videofile=lambda *_, **__: None)
    module = types.SimpleNamespace(ImageSequenceClip=lambda *_, **__: clip)
    monkeypatch.setattr("runferry.writer.media.video.library", lambda name, *_: module if "moviepy" in name else np)
    with pytest.raises(UnloggableError, match="no encoder for ogg"):
        landed(Video(np.zeros((2, 3, 4, 6)), format="ogg"))


# -- points and molecules --------------------------------------------------------------------------------------------


def test_points_become_json(landed, files):
    """Arrays and scenes, with arrays of any kind in them."""
    cloud = landed(Object3D(POINTS, caption="c"))
    scene = Object3D.from_point_cloud(
        points=POINTS,
        boxes=[box3d(center=(0, 0, 0), size=(2, 2, 2), orientation=(1, 0, 0, 0), color=(1, 0, 0), label="b")],
        vectors=[{"start": np.zeros(3), "end": [1, 2, 3]}],
    )

    assert json.loads((files.files / cloud.paths[0]).read_text()) == POINTS.tolist()
    assert cloud.paths[0].endswith(".pts.json")
    read = json.loads(text_of(scene))
    assert read["vectors"] == [{"start": [0.0, 0.0, 0.0], "end": [1, 2, 3]}]
    assert read["boxes"][0]["corners"][0] == [-1.0, -1.0, -1.0]
    assert list(read) == ["type", "vectors", "points", "boxes"]


class Points:
    """A tensor of PyTorch, as far as it is looked at."""

    dtype = "torch.float32"

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return POINTS


Points.__module__ = "torch"


def test_points_of_a_tensor():
    """As an array's."""
    assert text_of(Object3D(Points())) == text_of(Object3D(POINTS))


@pytest.mark.parametrize("suffix", Object3D.SUPPORTED_TYPES)
def test_meshes_are_files(suffix, tmp_path):
    """Of the types that viewers know; streams say of which they are."""
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(b"mesh")

    assert Object3D(path)._content.extension == f".{suffix}"
    assert Object3D.from_file(io.BytesIO(b"mesh"), suffix)._content.source == b"mesh"
    with path.open() as file:
        assert Object3D(file)._content.source == path


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (np.zeros((2, 5)), ValueError),
        ({"type": "other"}, ValueError),
        ({}, ValueError),
        (io.StringIO("x"), ValueError),
        ("missing.obj", OSError),
        (3, TypeError),
    ],
)
def test_what_is_no_object(given, error):
    """Other shapes, scenes and types."""
    with pytest.raises(error):
        Object3D(given)


def test_objects_by_their_makers():
    """Arrays only, and lists of objects."""
    with pytest.raises(ValueError, match="takes an array"):
        Object3D.from_numpy([[1, 2, 3]])
    with pytest.raises(ValueError, match="lidar/beta"):
        Object3D.from_point_cloud([], [], point_cloud_type="x")
    with pytest.raises(ValueError, match="type obj"):
        Object3D.from_file(io.StringIO("x"), "txt")


def test_a_list_of_objects(landed):
    """Their files by name."""
    value = landed(media_of([Object3D.from_numpy(POINTS)]), "o", "1").value

    assert (value["_type"], value["count"]) == ("object3D", 1)
    assert value["filenames"] == [value["objects"][0]["path"].removeprefix("media/object3D/")]


def test_a_box_turns_about_its_axis():
    """A quarter turn about z: what was along x is along y."""
    turned = box3d(center=(0, 0, 0), size=(2, 0, 0), orientation=(1, 0, 0, 1), color=(0, 0, 0))

    assert np.allclose(np.abs(turned["corners"][0]), [0, 1, 0])
    with pytest.raises(ValueError, match="turns nowhere"):
        box3d(center=(0, 0, 0), size=(1, 1, 1), orientation=(0, 0, 0, 0), color=(0, 0, 0))
    with pytest.raises(ValueError, match="3 numbers"):
        box3d(center=(0, 0), size=(1, 1, 1), orientation=(1, 0, 0, 0), color=(0, 0, 0))


def test_molecules(tmp_path, landed):
    """Files and streams of the usual types."""
    (tmp_path / "a.pdb").write_text("ATOM")

    value = landed(media_of([Molecule(tmp_path / "a.pdb", caption="c"), Molecule(io.StringIO("A"), file_type="sdf")]))
    assert (value.value["_type"], value.value["captions"]) == ("molecule", ["c", None])
    for bad in (tmp_path / "a.txt", io.StringIO("A"), 3):
        with pytest.raises((OSError, ValueError, TypeError)):
            Molecule(bad)
    with pytest.raises(ValueError, match="type pdb"):
        Molecule(io.StringIO("A"), file_type="txt")


# -- figures ---------------------------------------------------------------------------------------------------------


class Figure:
    """A figure of matplotlib, as far as it is looked at."""

    def savefig(self, buffer, format):  # noqa: A002
        Pillow.new("RGB", (7, 5)).save(buffer, format=format)


class Axes:
    figure = Figure()


DATES = np.array(["2024-01-02", "NaT"], dtype="datetime64[ns]")


class Chart:
    """A figure of plotly."""

    def to_plotly_json(self):
        return {"data": [{"x": np.arange(2), "y": (1, math.nan)}], "layout": {"at": DATES}}


Figure.__module__ = Axes.__module__ = "matplotlib.figure"
Chart.__module__, Chart.__name__ = "plotly.graph_objs._figure", "Figure"


@pytest.mark.parametrize("given", [Figure(), Axes()])
def test_figures_of_matplotlib_are_images(given):
    """Given to `Image`, or to `log` as they are."""
    assert (Image(given).width, Image(given).height) == (7, 5)
    assert isinstance(media_of(given), Image)


def test_pyplot_stands_for_its_figure():
    """As the module is what scripts have."""
    pyplot = types.ModuleType("matplotlib.pyplot")
    pyplot.gcf = Figure

    assert Image(pyplot).width == media_of(pyplot).width == 7
    with pytest.raises(TypeError, match="figures and their parts"):
        libraries.figure_of(3)


def test_figures_of_plotly_are_their_json():
    """Arrays as lists, dates as text; gaps as null, because a browser reads no NaN."""
    assert (
        text_of(media_of(Chart())) == '{"data":[{"x":[0,1],"y":[1,null]}],"layout":{"at":["2024-01-02T00:00:00",null]}}'
    )
    assert isinstance(Plotly.make_plot_media(Figure()), Image)
    with pytest.raises(TypeError, match="Image one of matplotlib"):
        Plotly(Figure())


@pytest.mark.parametrize("value", [3, [], object(), Pillow.new("L", (1, 1)), [object()], {"a": 1}])
def test_what_stands_for_no_medium(value):
    """Is left to others."""
    assert media_of(value) is None
