"""Images: pixels, files, and what is drawn over them."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow
from runferry.writer.media import Media, media_of, pixels
from runferry.writer.media.image import Image
from runferry.writer.media.libraries import MissingLibraryError
from runferry.writer.media.overlays import BoundingBoxes2D, Classes, ImageMask
from runferry.writer.values import UnloggableError

RGB = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
BOX = {"position": {"minX": 0.1, "maxX": 0.2, "minY": 0.3, "maxY": 0.4}, "class_id": 1}


class Tensor:
    """A tensor of PyTorch, as far as it is looked at."""

    def __init__(self, values, dtype="torch.float32"):
        self._values, self.dtype = values, dtype

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self._values.astype(np.float32))

    def numpy(self):
        if self.dtype == "torch.bfloat16":
            raise TypeError("unsupported ScalarType BFloat16")
        return self._values


Tensor.__module__ = "torch"


def decoded(image):
    return np.asarray(Pillow.open(io.BytesIO(image._content.source)))


@pytest.fixture(params=["pillow", "zlib"])
def encoder(request, monkeypatch):
    """With pillow, and without."""
    if request.param == "zlib":
        monkeypatch.setattr(pixels, "optional", lambda _module: None)
    return request.param


@pytest.mark.parametrize(
    "given",
    [
        RGB,
        RGB[:, :, 0],
        RGB[:, :, :1],
        np.dstack([RGB, RGB[:, :, 0]]),
        RGB[None],
        RGB.astype(float) + 0.7,
        RGB.astype(np.int64),
        RGB[:, ::-1],
        Tensor(RGB.transpose(2, 0, 1)),
        Tensor(RGB.transpose(2, 0, 1)[None]),
        Tensor(RGB.transpose(2, 0, 1).astype(np.float32), "torch.bfloat16"),
    ],
    ids=[
        "rgb",
        "gray",
        "one channel",
        "alpha",
        "batch of one",
        "float",
        "int64",
        "view",
        "tensor",
        "batch",
        "bfloat16",
    ],
)
def test_pixels_come_back_as_they_went(given, encoder):
    """Arrays and tensors of every shape and number type, by both encoders."""
    expected = RGB
    if isinstance(given, np.ndarray):
        expected = given[0] if given.ndim == 4 else given.squeeze().astype(np.uint8)

    image = Image(given)

    assert np.array_equal(decoded(image), expected)
    assert (image.width, image.height, image.format) == (expected.shape[1], expected.shape[0], "png")


def test_what_is_changed_afterwards_is_not_logged():
    """Pixels are encoded when the image is made."""
    given = RGB.copy()
    image = Image(given)
    given[:] = 0

    assert np.array_equal(decoded(image), RGB)


@pytest.mark.parametrize(
    ("values", "normalize", "expected"),
    [
        ([0.0, 0.5, 1.0], False, [0, 0, 1]),
        ([0.0, 0.5, 1.0], True, [0, 128, 255]),
        ([-0.1, 0.5, 1.0], True, [0, 0, 1]),
        ([0.0, 0.5, 1.1], True, [0, 0, 1]),
        ([0.5, np.nan, np.inf], True, [128, 0, 255]),
        ([0.5, -np.inf, 1.0], True, [128, 0, 255]),
        ([np.nan, np.nan, np.nan], True, [0, 0, 0]),
        ([0.0, 128.9, 255.0], True, [0, 128, 255]),
        ([-3.0, 300.0, np.nan], False, [0, 255, 0]),
        ([np.inf, -np.inf, 7.9], False, [255, 0, 7]),
        ([0, 1, 1], True, [0, 1, 1]),
        ([0, 300, -5], True, [0, 255, 0]),
        ([True, False, True], True, [255, 0, 255]),
        ([True, False, True], False, [1, 0, 1]),
    ],
)
def test_values_are_taken_for_bytes(values, normalize, expected):
    """From 0 to 255, cut off outside; floats from 0 to 1 are parts of that, unless they are to be taken as they are."""
    assert decoded(Image(np.array([values]), normalize=normalize)).tolist() == [expected]


def test_floats_from_0_to_1_are_scaled_unless_told_otherwise():
    """Without an argument; and no line is said of it."""
    every = np.arange(256, dtype=np.uint8)[None]
    for kind in (np.float16, np.float32, np.float64):
        assert np.array_equal(decoded(Image(every.astype(kind) / kind(255))), every)
    assert decoded(Image(Tensor(np.full((1, 1, 1), 0.5)))).tolist() == [[128]]


def test_what_is_masked_is_black():
    """And does not decide what the others are parts of."""
    for values, light in (([[0.5, 7.0]], 128), ([[200, 7]], 200)):
        given = np.ma.masked_equal(np.array(values), 7)
        assert decoded(Image(given)).tolist() == [[light, 0]]


def test_a_tensor_has_its_channels_first():
    """One with channels last is named with its own shape."""
    with pytest.raises(ValueError, match=r"PyTorch .*, not \(5, 6, 3\)"):
        Image(Tensor(np.zeros((5, 6, 3))))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4]), st.randoms(use_true_random=False))
def test_our_own_png_is_read_by_others(height, width, channels, random):
    """Any size and any bytes, without pillow on our side."""
    given = np.array([random.randrange(256) for _ in range(height * width * channels)], dtype=np.uint8)
    given = given.reshape((height, width, channels) if channels > 1 else (height, width))
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]

    read = Pillow.open(io.BytesIO(pixels._png(given, mode)))

    assert read.mode == mode
    assert np.array_equal(np.asarray(read), given)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "YCbCr"])
@pytest.mark.parametrize("file_type", ["png", "jpg", "bmp"])
def test_images_of_pillow(mode, file_type):
    """Every mode becomes a file of every type that has a form for it."""
    given = Pillow.new("RGB", (5, 3), "red").convert(mode.replace("I;16", "I"))
    if mode == "I;16":
        given = Pillow.fromarray(np.full((3, 5), 4000, dtype=np.uint16))
    if (mode, file_type) in {("I;16", "jpg"), ("I;16", "bmp"), ("LA", "bmp")}:
        with pytest.raises(OSError, match="cannot write mode"):
            Image(given, file_type=file_type)
        return

    image = Image(given, file_type=file_type)

    assert Pillow.open(io.BytesIO(image._content.source)).size == (5, 3)
    assert image.facts() == {"format": file_type, "width": 5, "height": 3}


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".GIF"])
def test_a_file_is_taken_as_it_is(suffix, tmp_path, landed, files):
    """Its bytes, its extension, and its size from its head."""
    path = tmp_path / f"own{suffix}"
    Pillow.new("RGB", (5, 3), "red").save(path)
    landing = landed(Image(path, caption="c", grouping=2), "key", "0")

    assert (files.files / landing.paths[0]).read_bytes() == path.read_bytes()
    assert landing.paths[0].endswith(suffix)
    assert landing.value == {
        "_type": "image-file",
        "caption": "c",
        "format": suffix[1:],
        "width": 5,
        "height": 3,
        "grouping": 2,
        "path": landing.paths[0],
        "sha256": landing.value["sha256"],
        "size": path.stat().st_size,
    }


def test_a_file_without_pillow_is_logged_without_its_size(tmp_path, monkeypatch):
    """PNG tells its size itself; of other kinds it is left out."""
    monkeypatch.setattr(pixels, "optional", lambda _module: None)
    Pillow.new("RGB", (5, 3)).save(tmp_path / "a.png")
    Pillow.new("RGB", (5, 3)).save(tmp_path / "a.jpg")

    assert Image(tmp_path / "a.png").width == 5
    assert Image(tmp_path / "a.jpg").facts() == {"format": "jpg"}


def test_without_the_libraries_one_line_says_what_to_install(monkeypatch):
    """For what needs pillow, and for what needs numpy."""
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingLibraryError, match=r"file of type jpg needs pillow: pip install pillow"):
        Image(RGB, file_type="jpg")
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingLibraryError, match=r"needs numpy: pip install numpy"):
        Image([[1, 2]])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (np.zeros((2, 2, 5)), ValueError),
        (np.zeros(3), ValueError),
        (np.zeros((0, 3)), ValueError),
        (np.zeros((2, 3, 4, 5)), ValueError),
        (np.array([["a"]]), TypeError),
        (np.array([[1j]]), TypeError),
        ("missing.png", FileNotFoundError),
        (".", OSError),
    ],
)
def test_what_is_no_image(given, error):
    """Another shape, another type, no such file."""
    with pytest.raises(error):
        Image(given)


def test_what_only_looks_like_an_image_file(tmp_path):
    """A file that pillow does not know is refused when the image is made, as by the peer."""
    (tmp_path / "x.jpg").write_bytes(b"text")
    with pytest.raises(OSError, match="cannot identify"):
        Image(tmp_path / "x.jpg")


def test_an_image_of_too_many_pixels_is_refused_before_it_is_made():
    """More than readers open."""
    huge = np.broadcast_to(np.uint8(0), (20_000, 20_000))
    with pytest.raises(ValueError, match="larger than readers open"):
        Image(huge)


@pytest.mark.parametrize("bad", [{"file_type": "tiff"}, {"boxes": [1]}, {"masks": "m"}, {"classes": [{"id": 1}]}])
def test_arguments_that_are_none(bad):
    """A file type, layers and classes of other forms."""
    with pytest.raises((ValueError, TypeError)):
        Image(RGB, **bad)


def test_an_image_of_an_image(landed):
    """The same file, with what is said of it now."""
    first = Image(RGB, caption="a", grouping=4, classes=[{"id": 1, "name": "cat"}])
    second = Image(first, caption="b")

    assert landed(second).value["sha256"] == landed(first).value["sha256"]
    assert (second.caption, Image(first).caption, second.facts()["grouping"]) == ("b", "a", 4)
    assert second._classes == Classes([{"id": 1, "name": "cat"}])


def test_a_dropped_image_takes_its_layers_with_it(files, context):
    """Nothing of it stays in the run's directory; nor where one layer cannot be staged."""
    boxes = {"b": {"box_data": [BOX]}}
    masks = {"m": {"mask_data": np.eye(4, 6, dtype=np.uint8)}}
    Image(RGB, masks=masks, boxes=boxes).stage(files, context).drop()

    assert [path for path in files.directory.rglob("*") if path.is_file()] == []


def test_a_group_of_0_is_none():
    """As the peer has it."""
    assert "grouping" not in Image(RGB, grouping=0).facts()


def test_what_lies_elsewhere_cannot_stand_in_a_row(landed):
    """An address has no bytes here; the error says where it can be used."""
    with pytest.raises(ValueError, match=r"https://host/a\.png lies elsewhere"):
        landed(Image("https://host/a.png"))


# -- layers ----------------------------------------------------------------------------------------------------------


def test_masks_and_boxes_are_files_beside_the_image(landed, files):
    """Each layer has its file, and its class names stand in the config once."""
    mask = {"mask_data": np.eye(4, 6, dtype=np.uint8) * 200, "class_labels": {0: "none", 200: "some"}}
    image = Image(RGB, masks={"truth": mask}, boxes={"found": {"box_data": [BOX], "class_labels": {1: "cat"}}})

    landing, again = landed(image, "img", "0"), landed(image, "img", "1")

    boxes, masks = landing.value["boxes"]["found"], landing.value["masks"]["truth"]
    assert (boxes["_type"], masks["_type"]) == ("boxes2D", "mask")
    assert boxes["path"].startswith("media/metadata/boxes2D/img_0_")
    assert boxes["path"].endswith(".boxes2D.json")
    assert masks["path"].startswith("media/images/mask/img_0_")
    assert masks["path"].endswith(".mask.png")
    assert json.loads((files.files / boxes["path"]).read_text()) == {"box_data": [BOX], "class_labels": {"1": "cat"}}
    assert np.asarray(Pillow.open(files.files / masks["path"])).max() == 200
    assert set(landing.paths) == {landing.value["path"], boxes["path"], masks["path"]}
    assert (len(landing.records), again.records, again.paths) == (2, (), ())


def test_class_names_are_made_up_where_none_are_given():
    """By their numbers."""
    boxes = BoundingBoxes2D({"box_data": [BOX, {**BOX, "class_id": 7}]}, "b")
    mask = ImageMask({"mask_data": Tensor(np.array([[3, 3], [0, 3]]))}, "m")

    assert boxes.labels == {1: "class_1", 7: "class_7"}
    assert mask.labels == {0: "class_0", 3: "class_3"}


def test_a_mask_of_a_file_has_no_names(tmp_path, landed):
    """The file is taken as it is."""
    Pillow.new("L", (6, 4)).save(tmp_path / "mask.png")
    landing = landed(Image(RGB, masks={"m": {"path": str(tmp_path / "mask.png")}}))

    assert landing.value["masks"]["m"]["size"] == (tmp_path / "mask.png").stat().st_size
    assert landing.records == ()


@pytest.mark.parametrize(
    "val",
    [
        {},
        {"box_data": "x"},
        {"box_data": [{}]},
        {"box_data": [{"position": {"minX": 1}}]},
        {"box_data": [{"position": {"middle": [1], "width": 1, "height": 1}}]},
        {"box_data": [{**BOX, "class_id": "cat"}]},
        {"box_data": [{**BOX, "scores": [1]}]},
        {"box_data": [{**BOX, "scores": {"p": "high"}}]},
        {"box_data": [{**BOX, "box_caption": 3}]},
        {"box_data": [BOX], "class_labels": {"one": "cat"}},
        {"box_data": [BOX], "class_labels": {1: 2}},
    ],
)
def test_what_is_no_box(val):
    """Positions, scores, captions and names of other forms."""
    with pytest.raises(TypeError):
        BoundingBoxes2D(val, "k")


@pytest.mark.parametrize(
    "values",
    [
        {"position": {"middle": np.array([0.5, 0.5]), "width": np.float32(0.25), "height": 1}},
        {"position": {"middle": (3, 4), "width": 2, "height": 1}, "domain": "pixel", "class_id": np.int64(3)},
    ],
)
def test_boxes_of_arrays(values):
    """Numbers of numpy in a box are numbers, and the caller's dict is left alone."""
    boxes = BoundingBoxes2D({"box_data": [values]}, "k")

    assert isinstance(boxes.boxes[0]["position"]["middle"], list)
    assert json.loads(boxes._content.source)["box_data"] == boxes.boxes


@pytest.mark.parametrize("data", [np.zeros(3), np.full((2, 2), 300), np.full((2, 2), -1), np.array([["a"]])])
def test_what_is_no_mask(data):
    """Other shapes, and classes that do not fit a byte."""
    with pytest.raises(TypeError):
        ImageMask({"mask_data": data}, "k")


def test_a_mask_needs_data():
    """The error says of what form."""
    with pytest.raises(TypeError, match="mask_data"):
        ImageMask({}, "k")


def test_layers_that_cannot_be_staged_leave_nothing(files, context, monkeypatch, tmp_path):
    """The image's own content goes with them."""
    image = Image(RGB, masks={"m": {"mask_data": RGB[:, :, 0]}})
    monkeypatch.setattr(image._masks["m"], "layer", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        image.stage(files, context)

    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == []


# -- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_of_images_is_one_value(landed):
    """The size of the first, the files and the captions of all, however many there are."""
    images = [Image(RGB + n, caption=f"c{n}" if n == 2 else None) for n in range(120)]
    value = landed(media_of(images), "l", "0").value

    assert (value["_type"], value["count"], len(value["filenames"])) == ("images/separated", 120, 120)
    assert (value["width"], value["height"], value["format"]) == (6, 4, "png")
    assert value["captions"] == [None, None, "c2", *[None] * 117]


def test_layers_of_a_list_stand_beside_its_files(landed):
    """One entry per image, None where there is no layer."""
    mask = {"mask_data": RGB[:, :, 0]}
    value = landed(media_of((Image(RGB), Image(RGB, masks={"m": mask}, boxes={"b": {"box_data": [BOX]}}))), "l").value

    assert value["all_masks"][0] is value["all_boxes"][0] is None
    assert value["all_masks"][1]["m"]["_type"] == "mask"
    assert value["all_boxes"][1]["b"]["_type"] == "boxes2D"
    assert "captions" not in value


def test_a_mixed_list_is_a_list_of_what_each_is(landed, said):
    """Named once, because few viewers draw it."""
    value = landed(media_of([Image(RGB), BOX and Image(RGB), _histogram()]), "l").value

    assert [each["_type"] for each in value] == ["image-file", "image-file", "histogram"]
    assert len(said) == 1


def test_values_among_media_are_kept(landed):
    """None and numbers in a list, dicts with media in them."""
    value = landed(media_of([Image(RGB), None, {"deep": Image(RGB), "n": np.float32(0.5)}]), "l", "0").value

    assert (value[0]["_type"], value[1]) == ("image-file", None)
    assert (value[2]["deep"]["path"][:22], value[2]["n"]) == ("media/images/l.deep_0_", 0.5)
    with pytest.raises(UnloggableError, match="a log cannot hold a value of type object"):
        media_of([Image(RGB), object()])


def test_a_chart_stands_by_itself(landed, files, tmp_path):
    """Its table has a place of its own in the row; nothing is left of what stood before it in the list."""
    from runferry.writer.media import plot, table

    chart = plot.bar(table.Table(["a", "b"], [["x", 1]]), "a", "b")
    with pytest.raises(UnloggableError, match="a chart stands in the row by itself"):
        landed(media_of([Image(RGB), chart]))
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == []


def _histogram():
    from runferry.writer.media.histogram import Histogram

    return Histogram(np_histogram=([1], [0, 1]))


def test_classes_by_themselves_cannot_be_logged(landed):
    """They belong to an image or an artifact."""
    with pytest.raises(TypeError, match="belong to an image"):
        landed(Classes([{"id": 0, "name": "x"}]))


def test_what_artifacts_do_not_hold_says_so():
    """A medium without a form in artifacts."""

    class Other(Image):
        cell = Media.cell

    with pytest.raises(UnloggableError, match="artifacts hold no Other"):
        Other(RGB).cell(None)
