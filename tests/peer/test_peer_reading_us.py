"""Our logs, read by the peer's own reader: what it prints is what we wrote."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, messages, read_records
from runferry.logformat.record import parse_record
from support import peer
from support.exact import payload_of
from support.frames import log_of

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

BY_SCRIPT = sorted(set(peer.KINDS) - {"forked", "killed", "typed"})
"""Scripts that both run."""
EDGES = [10, 11, 32_747, 32_748, 32_754, 32_755, 32_761, 32_762, 65_521, 65_522, 65_523, 70_000]
"""Payload sizes: from the smallest to several blocks, on both sides of what one and two chunks hold."""


def check(folder, payloads):
    """Frame `payloads` with our framer; the peer's reader prints each of them, with equal values."""
    log = folder / "run-x.wandb"
    log.write_bytes(log_of(*payloads))
    theirs = peer.inspect(log)
    ours = [peer.printed(n, parse_record(payload, 0, 0)) for n, payload in enumerate(payloads, 1)]

    assert len(ours) == len(theirs)
    for mine, entry in zip(ours, theirs, strict=True):
        assert peer.same(mine, entry), f"ours   {mine}\ntheirs {entry}"


def sized(num, size):
    """A record whose payload has exactly `size` bytes, 10 at least."""
    return payload_of(
        size, lambda more, text: messages.Record(num=num, alert=messages.AlertRecord(title=more, text=text))
    )


def filler(left):
    """A record after which `left` bytes are left in block 0."""
    return sized(1, BLOCK_SIZE - len(FILE_HEADER) - 7 - left)


@pytest.mark.parametrize("left", range(9))
def test_records_around_the_edge_of_a_block(tmp_path, left):
    """With 0 to 8 bytes left in a block, records of every critical size and their successors are read whole."""
    for size in EDGES:
        check(tmp_path, [filler(left), sized(2, size), sized(3, 10)])
    check(tmp_path, [filler(left), b"", sized(3, 10)])


@pytest.mark.slow
@pytest.mark.parametrize("left", range(9))
def test_records_of_every_size_around_the_edge_of_a_block(tmp_path, left):
    """The same for every size near the edges and a sample of all others up to 70,000 bytes."""
    sizes = {edge + near for edge in (32_754, 32_761, 65_515, 65_522) for near in range(-20, 21)}
    sizes |= {*range(10, 40), *range(40, 70_001, 331)}
    for size in sorted(sizes):
        check(tmp_path, [filler(left), sized(2, size), sized(3, 10)])


def test_a_record_that_fills_a_block_exactly_and_its_neighbours(tmp_path):
    """Payloads of 32,740 to 32,770 bytes one behind the other, so that each begins elsewhere in its block."""
    check(tmp_path, [sized(n, size) for n, size in enumerate(range(32_740, 32_771), 1)])


def test_a_long_log(tmp_path):
    """Some 100 blocks of records of 10 to 9,000 bytes."""
    check(tmp_path, [sized(n, 10 + n * n * 13 % 9_000) for n in range(1, 800)])


def test_every_kind_of_record(tmp_path):
    """Each record type with its fields set, and each with none."""
    m = messages
    time = m.Timestamp(seconds=1_796_033_459, nanos=123_456_789)
    item = m.Item(nested_key=["a", "b"], value_json='{"x": [1, NaN]}')
    gone = [m.Item(key="k"), m.Item(nested_key=["x", "y"])]
    bodies = [
        {"header": m.HeaderRecord(version_info=m.VersionInfo(producer="runferry", min_consumer="0.70.0"))},
        {
            "run": m.RunRecord(
                run_id="x",
                entity="e",
                project="p",
                config=m.ConfigRecord(update=[item, m.Item(key="big", value_json=str(2**63 - 1))]),
                run_group="g",
                job_type="j",
                display_name="n",
                notes="t\u00e9xt",
                tags=["b", "a"],
                sweep_id="s",
                host="h",
                starting_step=-1,
                start_time=time,
                telemetry=m.TelemetryRecord(feature=b"\x08\x01\x28\x01", env=b"\x08\x01", platform="linux-x86_64"),
                git=m.GitRepoRecord(remote_url="u", commit="c"),
                branch_point=m.BranchPoint(run="r", value=1, metric="_step"),
                resume=True,
            )
        },
        {"summary": m.SummaryRecord(update=[item], remove=gone)},
        {"config": m.ConfigRecord(update=[item], remove=gone)},
        {"metric": m.MetricRecord(name="a", options=m.MetricOptions(defined=True), summary=m.MetricSummary(none=True))},
        {"metric": m.MetricRecord(glob_name="a*", goal=2, step_metric="s", _control=m.MetricControl(overwrite=True))},
        {"output_raw": m.OutputRecord(output_type=1, timestamp=time, line="a\r\n\x1b[0m\u2028")},
        {"output_raw": m.OutputRecord(output_type=0, line="e")},
        {"output_logger": m.OutputLoggerRecord(line="l\n")},
        {"files": m.FilesRecord(files=[m.FilesItem(path="f", policy=2, type=1), m.FilesItem(path="g", policy=1)])},
        {"stats": m.StatsRecord(timestamp=time, item=[m.StatsItem(key="cpu", value_json="0.5")])},
        {"alert": m.AlertRecord(title="t", text="x", level="WARN", wait_duration=60_000)},
        {"preempting": m.Empty()},
        {"tbrecord": m.TBRecord(log_dir="d", save=True, namespace="")},
        {
            "environment": m.EnvironmentRecord(
                os="Linux",
                started_at=time,
                args=["--lr", "0.1"],
                cpu_count=4,
                disk={"/": m.DiskInfo(total=2**63, used=1)},
                memory=m.MemoryInfo(total=2**40),
                gpu_count=1,
                gpu_nvidia=[m.GpuNvidiaInfo(name="H200", memory_total=2**37, numa_node=0)],
                slurm={"job_id": "7"},
                writer_id="w",
            )
        },
        {
            "artifact": m.ArtifactRecord(
                name="a",
                ttl_duration_seconds=5,
                manifest=m.ArtifactManifest(
                    version=1,
                    storage_policy_config=[m.ManifestItem(key="storageLayout", value_json='"V2"')],
                    contents=[
                        m.ArtifactManifestEntry(path="f", size=6, extra=[m.ManifestItem(key="k", value_json="1")]),
                    ],
                ),
            )
        },
        {"exit": m.RunExitRecord(exit_code=3, runtime=7)},
        *({kind: body()} for kind, body in m.BODIES.items()),
    ]
    check(tmp_path, [m.Record(num=num, **body).SerializeToString() for num, body in enumerate(bodies, 1)])


def test_values_in_every_spelling(tmp_path):
    """Plain and nested keys, NaN and infinities, exact integers, exponents, typed values, broken texts."""
    item = messages.HistoryItem
    texts = ["NaN", "Infinity", "-Infinity", "[NaN, -Infinity]", "9007199254740993", "-9223372036854775808", "1e+06"]
    texts += [
        "1.50",
        "-0",
        "5e-324",
        "1.7976931348623157e308",
        "true",
        "null",
        '"h\u00e9\\u2028"',
        "{nope",
        "1 2",
        "nan",
    ]
    rows = [
        [item(nested_key=["a"], value_json=text), item(nested_key=["b", "c.d", "e"], value_json="1")] for text in texts
    ]
    rows.append([item(key="a", value_json="1"), item(nested_key=["t"], integer=-(2**63)), item(key="x", none=0)])
    rows.append(
        [item(key="a", number=0.1), item(key="b", boolean=False), item(key="c", text="t"), item(key="d", json="[1]")]
    )
    payloads = [
        messages.Record(
            num=num, history=messages.HistoryRecord(item=row, step=messages.HistoryStep(num=num))
        ).SerializeToString()
        for num, row in enumerate(rows, 1)
    ]
    check(tmp_path, payloads)


NUMBERS = st.floats() | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=6), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ROWS)
def test_any_values(tmp_path_factory, rows):
    """Whatever JSON a row holds, both readers see the same, and it is what was put in."""
    payloads = []
    for num, row in enumerate(rows, 1):
        items = [messages.HistoryItem(nested_key=[key], value_json=json.dumps(value)) for key, value in row.items()]
        record = messages.Record(num=num, history=messages.HistoryRecord(item=items))
        payloads.append(record.SerializeToString())
    folder = tmp_path_factory.mktemp("any")
    check(folder, payloads)

    for row, entry in zip(rows, peer.inspect(folder / "run-x.wandb"), strict=True):
        assert peer.same(peer.finite(row), entry["history"]["item"])


def test_a_cut_log_gives_the_peer_every_record_before_the_cut(tmp_path):
    """A torn tail is announced, and nothing before it is lost."""
    payloads = [sized(n, 3_000) for n in range(1, 30)]
    log = tmp_path / "run-x.wandb"
    log.write_bytes(log_of(*payloads)[:-1])
    whole = [entry for entry in peer.inspect(log) if "type" in entry]

    assert len(whole) == len(payloads) - 1


@pytest.mark.parametrize("kind", BY_SCRIPT)
def test_logs_of_our_writer(ours, kind):
    """Every record of a run that `runferry.init`, `log` and `finish` wrote."""
    for log in ours(kind).logs:
        records = list(read_records(log))
        theirs = peer.inspect(log)

        assert records
        assert [record.num for record in records] == list(range(1, len(theirs) + 1))
        for position, (record, entry) in enumerate(zip(records, theirs, strict=True), 1):
            mine = peer.printed(position, record)
            assert peer.same(mine, entry), f"{log}\nours   {mine}\ntheirs {entry}"


def test_rows_of_our_writer_are_what_the_script_logged(ours):
    """By the peer's reader, without our own in between."""
    entries = [entry["history"] for entry in peer.inspect(ours("scalars").log) if entry["type"] == "history"]
    rows = [entry["item"] for entry in entries]

    assert [entry["step"]["num"] for entry in entries] == [row["_step"] for row in rows]
    assert (rows[0]["loss"], rows[0]["nested.b.d"], rows[0]["dot.key"]) == (0.5, "deep", 1)
    assert (rows[1]["nan"], rows[1]["inf"], rows[1]["inside"]) == ("NaN", "Infinity", [1, "NaN", {"x": "Infinity"}])
    assert (rows[2]["int64"], rows[2]["exact"]) == (2**63 - 1, 2**53 + 1)
    assert math.isclose(rows[2]["big"], 2**70)
    assert rows[4]["text"] == 'h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n'
