"""Event files, read by TensorBoard's own reader."""

from __future__ import annotations

import io
import json
import math
import struct
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.export import Options, export, tfrecord
from support import exports, logs
from support.exports import accumulated, array, export_to

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def exported(tmp_path, log, **options):
    """What TensorBoard reads of an export of a log, and what was said of it."""
    (outcome,) = export_to(tmp_path / "out", log, to="tensorboard", **options)
    return accumulated(tmp_path / "out" / outcome.run), outcome


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_scalars_have_step_time_and_value(tmp_path):
    """Every number and bool of the rows at its step, as a float of 32 bits; NaN and infinities are there, gaps are gaps."""
    log = exports.mixed_run(tmp_path / "wandb")
    found, outcome = exported(tmp_path, log)

    loss = found.Scalars("loss")
    assert [event.step for event in loss] == [0, 1, 2, 3, 4]
    assert [event.wall_time for event in loss] == [logs.START_S + step * 0.5 for step in range(5)]
    assert loss[0].value == float32(0.1 + 0.2)
    assert math.isnan(loss[1].value)
    assert [loss[2].value, loss[3].value, loss[4].value] == [math.inf, -math.inf, 0.0]
    assert [(event.step, event.value) for event in found.Scalars("opt.lr")] == [(0, float32(1e-5)), (1, 3.0)]
    assert [(event.step, event.value) for event in found.Scalars("ok")] == [(0, 1.0), (2, 0.0)]
    assert [(event.step, event.value) for event in found.Scalars("count")] == [(0, 1.0), (3, float32(-(2**62)))]
    assert [(event.step, event.wall_time, event.value) for event in found.Scalars("system/cpu")] == [
        (0, logs.START_S, 12.5),
        (2, logs.START_S + 2.25, 50.0),
    ]
    assert outcome.notes == ["left out: any: 3 of its values are nothing that TensorBoard shows"]
    assert outcome.problems == []


def test_texts_and_documents(tmp_path):
    """Text of rows at its step; config and summary as text that Markdown leaves alone."""
    found, _ = exported(tmp_path, exports.mixed_run(tmp_path / "wandb"))

    words = found.Tensors("word")
    assert [(event.step, array(event).item().decode()) for event in words][:2] == [(0, "a,b"), (1, 'say "hi"\nand go')]
    (config,) = found.Tensors("config")
    text = array(config).item().decode()
    assert all(line.startswith("    ") for line in text.splitlines())
    assert json.loads(text) == {"lr": 0.001, "net": {"depth": 3, "act": "relu"}}
    assert found.SummaryMetadata("config").plugin_data.plugin_name == "text"


@pytest.mark.parametrize(
    ("exit_code", "status", "fate"),
    [(0, None, 1), (3, None, 2), (None, None, 3), (None, "crashed", 2), (None, "ended", 0)],
)
def test_hyperparameters_are_those_of_the_config(tmp_path, exit_code, status, fate):
    """By the plugin's own messages, with the run's start, end and fate."""
    log = exports.mixed_run(tmp_path / "wandb", exit_code=exit_code)
    known = {} if status is None else {"status": lambda *_: status}
    (outcome,) = export([log], tmp_path / "out", Options("tensorboard"), **known)
    found = accumulated(tmp_path / "out" / outcome.run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.plugins.hparams import plugin_data_pb2

    def session(tag):
        return plugin_data_pb2.HParamsPluginData.FromString(found.SummaryMetadata(tag).plugin_data.content)

    start = session("_hparams_/session_start_info").session_start_info
    end = session("_hparams_/session_end_info").session_end_info
    assert start.hparams["lr"].number_value == 0.001
    assert start.hparams["net.depth"].number_value == 3
    assert start.hparams["net.act"].string_value == "relu"
    assert start.start_time_secs == logs.START_S
    assert end.status == fate


def test_histograms_have_their_bins(tmp_path):
    """Edges listed or as first edge, width and number; one that does not fit its counts is left out."""
    rows = [
        {"h": {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 2.0]}},
        {"h": {"_type": "histogram", "values": [3, 4], "packedBins": {"min": -1, "size": 0.5, "count": 2}}},
        {"h": {"_type": "histogram", "values": [3, 4], "bins": [1, 2]}},
    ]
    found, outcome = exported(tmp_path, exports.mixed_run(tmp_path / "wandb", rows=rows))

    assert [array(event).tolist() for event in found.Tensors("h")] == [
        [[0.0, 0.5, 1.0], [0.5, 2.0, 2.0]],
        [[-1.0, -0.5, 3.0], [-0.5, 0.0, 4.0]],
    ]
    assert found.SummaryMetadata("h").plugin_data.plugin_name == "histograms"
    assert outcome.notes == ["left out: h: 1 of its values are nothing that TensorBoard shows"]


def test_images_are_taken_from_the_run_directory_alone(tmp_path):
    """Files below `files/` that a row names; whatever leads out of there, by name or link, is not read."""
    names = [
        "media/a.png",
        "../../secret.png",
        str(tmp_path / "secret.png"),
        "media/link.png",
        "media/none.png",
        "x\0y",
        "media",
    ]
    image = {"_type": "image-file", "width": 3, "height": 2}
    rows = [
        *({"img": {**image, "path": name}} for name in names),
        {"img": {"_type": "images/separated", "filenames": names[:2]}},
    ]
    log = exports.mixed_run(tmp_path / "wandb", rows=rows)
    media = log.parent / "files" / "media"
    media.mkdir(parents=True)
    (media / "a.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(b"not for you")
    (tmp_path / "wandb" / "secret.png").write_bytes(b"not for you")
    (media / "link.png").symlink_to(tmp_path / "secret.png")

    found, outcome = exported(tmp_path, log)

    assert [(event.step, [bytes(part) for part in array(event)]) for event in found.Tensors("img")] == [
        (0, [b"3", b"2", PNG]),
        (7, [b"0", b"0", PNG]),
    ]
    assert outcome.notes == ["left out: img: 6 of its values are nothing that TensorBoard shows"]
    assert all(b"not for you" not in path.read_bytes() for path in (tmp_path / "out").rglob("events*"))


def test_rows_without_step_or_time_have_a_place(tmp_path):
    """The number of the row, and the run's start."""
    log = logs.make_log(
        tmp_path / "run-n.wandb",
        logs.run_record("n"),
        logs.row(None, {"x": 1.0}),
        logs.row(None, {"x": 2.0, "_runtime": 4}),
        logs.row(None, {"x": 3.0, "_step": "nine", "_timestamp": math.nan}),
    )
    found, _ = exported(tmp_path, log)

    start = logs.START_S
    assert [(event.step, event.wall_time, event.value) for event in found.Scalars("x")] == [
        (0, start, 1.0),
        (1, start + 4, 2.0),
        (2, start, 3.0),
    ]


def test_numbers_beyond_32_bits_are_counted_not_bent(tmp_path):
    """A finite double must not become an infinity."""
    found, outcome = exported(
        tmp_path, exports.mixed_run(tmp_path / "wandb", rows=[{"x": 1e300}, {"x": 1.0}, {"x": 10**400}])
    )

    assert [(event.step, event.value) for event in found.Scalars("x")] == [(1, 1.0)]
    assert outcome.notes == ["left out: x: 2 of its values are nothing that TensorBoard shows"]


def test_a_key_called_as_the_system_metrics(tmp_path):
    """Keeps its tag; the metrics get another."""
    found, _ = exported(tmp_path, exports.mixed_run(tmp_path / "wandb", rows=[{"system/cpu": 7.0, "config": 1.0}]))

    assert [event.value for event in found.Scalars("system/cpu")] == [7.0]
    assert [event.value for event in found.Scalars("_system/cpu")] == [12.5, 50.0]
    assert found.Scalars("config")[0].value == 1.0
    assert found.Tensors("_config")


@given(st.binary(max_size=100))
def test_checksums_are_those_of_tensorboard(data):
    """CRC-32C of any bytes, of any length."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c

    assert tfrecord.crc32c(data) == crc32c(data)


@pytest.mark.parametrize(("data", "crc"), [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"", 0)])
def test_checksums_are_those_of_the_standard(data, crc):
    """The check value of the Castagnoli polynomial, and a test vector of RFC 3720."""
    assert tfrecord.crc32c(data) == crc


def test_records_are_framed(tmp_path):
    """Length, masked checksum, data, masked checksum: 16 bytes beside the data."""
    file = io.BytesIO()
    tfrecord.write_record(file, b"abc")

    data = file.getvalue()
    assert len(data) == 19
    assert struct.unpack("<Q", data[:8]) == (3,)
    assert data[12:15] == b"abc"


def test_a_step_beyond_64_bits_is_the_number_of_the_row(tmp_path):
    """Events have no room for it; neither have they for one that is no integer."""
    steps = [5, 2**63, -(2**63), -(2**63) - 1, 10**30, 1.5]
    log = logs.make_log(
        tmp_path / "run-s.wandb", logs.run_record("s"), *(logs.row(None, {("_step",): step, "x": 1}) for step in steps)
    )
    found, _ = exported(tmp_path, log)

    assert [event.step for event in found.Scalars("x")] == [5, 1, -(2**63), 3, 4, 5]


def test_a_tag_is_of_the_kind_of_its_first_value(tmp_path):
    """TensorBoard's plugins show no others; values of another kind are counted."""
    bars = {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    log = exports.mixed_run(
        tmp_path / "wandb",
        rows=[{"t": "text", "h": bars, "n": 1}, {"t": bars, "h": 2, "n": "x"}, {"t": 1, "h": "x", "n": 2}],
    )
    found, outcome = exported(tmp_path, log)

    assert [array(event).item() for event in found.Tensors("t")] == [b"text"]
    assert [array(event).tolist() for event in found.Tensors("h")] == [[[0.0, 1.0, 1.0], [1.0, 2.0, 2.0]]]
    assert [event.value for event in found.Scalars("n")] == [1.0, 2.0]
    assert sorted(outcome.notes) == [
        f"left out: {key}: {count} of its values are nothing that TensorBoard shows"
        for key, count in (("h", 2), ("n", 1), ("t", 2))
    ]
