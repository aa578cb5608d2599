"""System metrics in columns, and under the names of today."""

from __future__ import annotations

import io
import math
from array import array

import pytest
from runferry.logformat import RunState, messages, read_records
from runferry.logformat.samples import Sample, Samples
from support.frames import log_of


def samples(*ticks):
    """The samples of stats records: (seconds, {key: JSON text})."""
    payloads = []
    for seconds, values in ticks:
        stats = messages.StatsRecord()
        stats.timestamp.seconds, stats.timestamp.nanos = int(seconds), round(seconds % 1 * 1e9)
        for key, text in values.items():
            stats.item.add(key=key, value_json=text)
        payloads.append(messages.Record(num=len(payloads) + 1, stats=stats).SerializeToString())
    return RunState().add_all(read_records(io.BytesIO(log_of(*payloads)))).samples


def test_a_metric_is_a_column_with_its_times():
    """Of the samples that have it."""
    found = samples((1, {"cpu": "1.5"}), (2, {"gpu": "7"}), (3, {"cpu": "2", "gpu": "NaN"}))

    assert found.keys == ("cpu", "gpu")
    assert found.timestamps_ns == array("q", [1_000_000_000, 2_000_000_000, 3_000_000_000])
    cpu, gpu = found.columns
    assert (cpu.key, cpu.values, list(cpu.timestamps_ns)) == ("cpu", [1.5, 2], [1_000_000_000, 3_000_000_000])
    assert list(gpu.timestamps_ns) == [2_000_000_000, 3_000_000_000]
    assert math.isnan(found.column("gpu").doubles()[1])
    with pytest.raises(KeyError):
        found.column("no")


def test_samples_are_a_sequence():
    """To index, to slice, to compare."""
    found = samples((1, {"a": "1"}), (2, {}), (3, {"b": "2"}))
    as_list = [Sample(1_000_000_000, {"a": 1}), Sample(2_000_000_000, {}), Sample(3_000_000_000, {"b": 2})]

    assert found == as_list
    assert list(found) == as_list
    assert (found[-1], found[1:], found[::-1]) == (as_list[-1], as_list[1:], as_list[::-1])
    assert Samples() == []
    assert repr(found) == "<Samples: 3 of 2 metrics>"


def test_numbers_inside_an_object_are_metrics():
    """The network's, in logs of old."""
    (sample,) = samples((1, {"network": '{"sent": 5, "recv": 7.5, "name": "eth0", "up": true}', "gone": "{"}))

    assert sample.values == {"network.sent": 5, "network.recv": 7.5}


def test_old_names_are_todays():
    """What a GPU's process had is what the GPU had; as logged they stay to be had."""
    found = samples(
        (1, {"memory": "40", "disk": "9", "gpu.process.0.temp": "50", "cpu": "1"}),
        (2, {"gpu.0.temp": "60", "gpu.process.0.temp": "61", "gpu.process.x": "1"}),
        (3, {"gpu.process.0.temp": "71", "gpu.0.temp": "70"}),
    )

    assert [sample.values for sample in found.named()] == [
        {"memory_percent": 40, "disk./.usagePercent": 9, "gpu.0.temp": 50, "cpu": 1},
        {"gpu.0.temp": 60, "gpu.process.x": 1},
        {"gpu.0.temp": 70},
    ]
    assert "memory" in found.keys


def test_a_tick_of_several_records_is_one_sample():
    """Though its times step back; a further tick has keys again, or comes later."""
    found = samples(
        *((10.2, {"cpu": "1"}), (10.1, {"gpu.0.gpu": "2"}), (10.15, {"disk": "3"})),
        *((25.2, {"cpu": "4"}), (25.1, {"gpu.0.gpu": "5"})),
        *((25.2, {"cpu": "6"}), (40.0, {"gpu.0.gpu": "7"})),
    ).named()

    assert [(sample.timestamp_ns / 1e9, sample.values) for sample in found] == [
        (10.1, {"cpu": 1, "gpu.0.gpu": 2, "disk./.usagePercent": 3}),
        (25.1, {"cpu": 4, "gpu.0.gpu": 5}),
        (25.2, {"cpu": 6}),
        (40.0, {"gpu.0.gpu": 7}),
    ]


def test_a_time_far_back_begins_another_sample():
    """A clock that was set back says nothing of what belongs together."""
    named = samples((100, {"cpu": "1"}), (90, {"gpu": "2"}), (89.9, {"tpu": "3"})).named()

    assert [sample.values for sample in named] == [{"cpu": 1}, {"gpu": 2, "tpu": 3}]


def test_times_that_cannot_be_are_kept_at_the_edge():
    """A sample of the far future is still a sample."""
    (sample,) = samples((2**40, {"a": "1"}))

    assert sample.timestamp_ns == 2**63 - 1
