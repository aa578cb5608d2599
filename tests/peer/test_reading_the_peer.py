"""Logs of the real peer, read by us and by the peer's own reader: every record, and what they amount to."""

from __future__ import annotations

import math

import pytest
from runferry.logformat import FILE_HEADER, Framer, GapReason, Record, RunState, load, messages, read_records
from runferry.logformat.record import parse_record
from support import peer

pytestmark = pytest.mark.peer

EXIT_CODES = {"ctrl_c": -2, "exception": 1, "exit_code": 3, "killed": -9}
"""Of the scripts; 0 if it is not here."""


def records_of(log):
    """All records, after a check that nothing but the tail of a killed run is missing."""
    items = list(read_records(log))
    records = [item for item in items if isinstance(item, Record)]
    assert {item.reason for item in items if not isinstance(item, Record)} <= {GapReason.TORN_TAIL}
    return records


@pytest.mark.parametrize("kind", peer.KINDS)
def test_every_record_is_what_the_peers_reader_prints(made, kind):
    """Kind by kind and value by value, nothing skipped; the numbers run from 1."""
    for log in made(kind).logs:
        records = records_of(log)
        theirs = [entry for entry in peer.inspect(log) if "type" in entry]

        assert [record.num for record in records] == list(range(1, len(theirs) + 1))
        for position, (record, entry) in enumerate(zip(records, theirs, strict=True), 1):
            ours = peer.printed(position, record)
            assert peer.same(ours, entry), f"{log}\nours   {ours}\ntheirs {entry}"


@pytest.mark.parametrize("kind", peer.KINDS)
def test_the_peers_payloads_framed_by_us_are_the_peers_bytes(made, kind):
    """The framing is exact to the byte, up to the end of the last whole record."""
    for log in made(kind).logs:
        records, framer, out = records_of(log), Framer(), bytearray(FILE_HEADER)
        for record in records:
            framer.append(record.payload, out)

        assert bytes(out) == log.read_bytes()[: records[-1].end]


# What the peer's reader shows differently from what the log says, and why we follow the log.
_SUMMARY_BELOW_OBJECTS = {"edits": {"nest": {"b": {"c": 2}}}, "summary_forms": {"tree": {"x": {"y": 1}}}}
"""The peer's reader forgets the siblings of a value that is set inside an object; the run itself keeps them."""
_NOT_SHOWN = {"loggers": ["first line", "second", "with a break", "", "last \u00fc"], "media": ["from a logger"]}
"""Console lines of loggers: the peer's reader leaves them out, `output.log` has them."""
_LINE = 4096
"""Characters of a console line that the peer's reader shows."""


def without(tree, named):
    """`tree` less the leaves of `named`, which must be there."""
    rest = dict(tree)
    for key, inner in named.items():
        if isinstance(inner, dict) and rest[key] != inner:
            rest[key] = without(rest[key], inner)
        else:
            assert rest.pop(key) == inner
    return rest


def without_nulls(tree):
    """The peer's reader shows no metric that is null."""
    return {
        key: without_nulls(value) if isinstance(value, dict) else value
        for key, value in tree.items()
        if value is not None
    }


@pytest.mark.parametrize("kind", peer.KINDS)
def test_the_state_of_the_run_is_the_peers(made, kind):
    """Config, summary, last step, exit code, name, notes, tags, times and console agree with the peer's own fold."""
    for log in made(kind).logs:
        state, theirs = load(log), peer.summary(log)
        # It shows no empty object of a config.
        config = {key: value for key, value in state.config.items() if key != "_wandb" and value != {}}
        summary = {key: value for key, value in state.summary.items() if key != "_wandb"}
        summary = without_nulls(without(summary, _SUMMARY_BELOW_OBJECTS.get(kind, {})))
        lines = [(line.stream, line.text[:_LINE]) for line in [*state.console, *state.console_rest]]
        info = state.info
        if kind == "killed":  # its last row may be cut off behind its summary: the step is that of the last whole row
            summary["_step"] = theirs["summary"]["_step"]

        assert peer.same(peer.finite(config), theirs["config"])
        assert peer.same(peer.finite(summary), theirs["summary"])
        assert (state.exit_code, state.last_step) == (theirs["exit_code"], theirs["step"])
        assert state.status(age=0) == theirs["state"]
        assert (info.run_id, info.project, info.entity) == (theirs["run_id"], theirs["project"], theirs["entity"])
        assert (info.display_name, info.notes, info.tags) == (theirs["name"], theirs["notes"], theirs["tags"])
        assert info.start_time_ns == peer.nanoseconds(theirs["start_time"])
        assert [line for line in lines if line[1] not in _NOT_SHOWN.get(kind, [])] == [
            (line["stream"], line["line"]) for line in theirs["console"]
        ]
        assert state.bad_records == 0


def rows_of(log):
    """The rows, less the times that only the clock knows."""
    rows = list(load(log).rows)
    assert all(row.pop("_timestamp") > 1.7e9 and 0 < row.pop("_runtime") < peer.TIMEOUT_S for row in rows)
    return rows


def test_rows_are_what_the_script_logged(made):
    """Nested dicts, keys with dots, values that JSON lacks, explicit steps, rows of several calls, a dropped one."""
    rows = rows_of(made("scalars").log)
    nan = rows[1].pop("nan")
    inside = rows[1].pop("inside")

    assert math.isnan(nan)
    assert math.isnan(inside.pop(1))
    assert inside == [1, {"x": math.inf}]
    assert rows == [
        {
            "_step": 0,
            "loss": 0.5,
            "acc": 1,
            "nested": {"a": 1, "b": {"c": 2.5, "d": "deep"}},
            "dot.key": 1,
            "slash/key": 2,
        },
        {"_step": 1, "inf": math.inf, "minus": -math.inf},
        {"_step": 2, "big": 2.0**70, "int64": 2**63 - 1, "uint64": 2.0**64, "exact": 2**53 + 1, "negative": -(2**63)},
        {
            "_step": 3,
            "whole": 3,
            "million": 1e6,
            "tiny": 5e-324,
            "huge": 1.7976931348623157e308,
            "zero": 0,
            "third": 1 / 3,
        },
        {
            "_step": 4,
            "text": 'h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n',
            "none": None,
            "yes": True,
            "list": [1, "a", None],
            "empty": [],
        },
        {"_step": 5, "loss": 0.25, "acc": 2, "nested": {"b": {"c": 3.5}}},
        {"_step": 6},
        {"_step": 10, "loss": 0.125, "acc": 3},
        {"_step": 12, "loss": 0.0625},
    ]


def test_typed_values_alone_give_the_same_rows(made):
    """Without the JSON texts that stand beside them, typed values decode to the same rows."""
    log = made("typed").log
    rows = list(load(log).rows)
    bare = RunState()
    for record in records_of(log):
        if record.kind == "history":
            message = record.message()
            assert all(item.WhichOneof("value") for item in message.item)
            for item in message.item:
                item.ClearField("value_json")
            payload = messages.Record(num=record.num, history=message).SerializeToString()
            record = parse_record(payload, record.offset, record.end)  # noqa: PLW2901 - the same record, bare
        bare.add(record)

    assert (len(rows), rows[0]["int"], rows[1]["nested"]) == (2, -(2**63), {"a": {"b": 1.5}})
    assert peer.same(peer.finite(list(bare.rows)), peer.finite(rows))


def test_a_fork_names_its_parent_and_goes_on_behind_it(made):
    """The branch point is read, and the first row has the step behind it."""
    state = load(made("forked").log)

    assert (state.info.run_id, state.info.branch_run, state.info.branch_step) == ("forked", "parent", 1)
    assert [row["_step"] for row in state.rows] == [2, 3, 4]
    assert state.config["_wandb"]["branch_point"] == {"run_id": "parent", "step": 1}


def test_config_keeps_what_the_peers_json_cannot_tell(made):
    """An exact big integer is still one; objects of updates merge; a key with a dot is one key."""
    config = load(made("edits").log).config

    assert config["model"] == {"depth": 3, "width": 64}
    assert config["fresh"] == {"a": {"b": 1}}
    assert (config["a.b"], config["inf"], config["nan"], config["lr"]) == ("dot", math.inf, None, 0.2)
    assert config["big"] in {2**70, 2.0**70}, "the peer itself makes a float of it when the run record is written again"


def test_alerts_preemption_environment_and_samples_are_read(made):
    """The rarer records of a run come to where consumers look for them."""
    state = load(made("edits").log)
    (alert,) = state.alerts

    assert (alert.title, alert.text, alert.level, alert.wait_seconds) == ("title", "text", "WARN", 60)
    assert state.preempting
    assert (state.environment.python.split()[0], state.environment.cpu_count > 0) == ("CPython", True)
    assert state.environment.program.endswith("edits.py")
    assert state.sample_count == len(state.samples) >= 1
    assert "memory_percent" in state.samples[0].values


def test_the_summary_of_defined_metrics_is_the_one_that_the_run_had(made):
    """Known values, beside the comparison with the peer's fold."""
    summary = load(made("metrics").log).summary

    assert summary["acc"]["min"] == -0.05
    assert summary["acc"]["mean"] == pytest.approx(0.26)
    assert "hid" not in summary
    assert math.isnan(summary["loss"]["max"])
    assert summary["both"] == {"min": 3, "max": 7}
    assert summary["nest"] == {"val": {"max": 3}, "other": 3}
    assert summary["dot.key"] == {"max": 0}
    assert summary["plain"] == {"min": 0}, "defined late, and the peer had counted from the start"


def test_an_uncaught_exception_is_exit_code_1_and_its_traceback(made):
    """The console ends with the exception."""
    run = made("exception")
    state = load(run.log)

    assert (run.exit_code, state.exit_code) == (1, 1)
    assert [line.text for line in state.console if line.stream == "stderr"][-1] == "ValueError: boom"


def test_a_killed_run_has_rows_without_a_hole_and_no_exit(made):
    """What stands in the file is a beginning of what was logged: nothing in between is missing."""
    run = made("killed")
    state, announced = load(run.log), len(run.stderr.splitlines())

    assert run.exit_code == -9
    assert 0 < state.row_count <= announced + 1, "the row being logged may be there, too"
    assert [row["_step"] for row in state.rows] == list(range(state.row_count))
    assert [row["loss"] for row in state.rows] == [1 / (i + 1) for i in range(state.row_count)]
    assert state.exit_code is None
    assert (state.status(age=0), state.status(age=3600)) == ("running", "crashed")
    assert [gap.reason for gap in state.gaps] in ([], [GapReason.TORN_TAIL])
    assert state.damage == []


def test_segments_of_a_resumed_run_fold_into_one(made):
    """Two logs, one run: config adds up, rows of both are there."""
    first, second = made("resumed").logs
    state = load(first).add_all(read_records(second))

    assert state.info.resume
    assert {key for key in state.config if key != "_wandb"} == {"part0", "part5"}
    assert [row["loss"] for row in state.rows] == list(range(10))
    assert state.summary["loss"] == 9


def test_files_and_artifacts_are_listed_as_logged(made):
    """Media, saved files and artifacts, with the manifest's settings."""
    run = made("media")
    state = load(run.log)
    weights = next(artifact for artifact in state.artifacts if artifact.name == "weights")

    assert all((run.log.parent / "files" / path).exists() for path in state.files)
    assert {"requirements.txt", "saved.txt"} < set(state.files)
    assert sum(path.startswith("media/html/") for path in state.files) == 2
    assert (sorted(weights.aliases), list(weights.tags), weights.type) == (["best", "latest"], ["t1"], "model")
    assert {entry.path: entry.ref for entry in weights.manifest.contents} == {
        "file": "http://127.0.0.1:9/file",
        "saved.txt": "",
    }
    assert [(item.key, item.value_json) for item in weights.manifest.storage_policy_config] == [
        ("storageLayout", '"V2"')
    ]
    assert state.config["_wandb"]["visualize"]["bars"]["panel_type"] == "Vega2"
    assert state.rows[0]["page"]["_type"] == "html-file"


@pytest.mark.parametrize("kind", peer.KINDS)
def test_each_script_ends_as_it_should(made, kind):
    """A script that failed for another reason would leave a log that proves nothing."""
    assert made(kind).exit_code == EXIT_CODES.get(kind, 0), made(kind).stderr
