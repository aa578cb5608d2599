"""What the store keeps, counts and replaces."""

from __future__ import annotations

import hashlib

import pytest
from runferry.backend import Store
from runferry.backend.artifact_model import NewArtifact
from runferry.backend.artifacts import Artifacts
from runferry.backend.database import SCHEMA, connect
from runferry.backend.filestream import CONSOLE, EVENTS, HISTORY, SUMMARY, Chunk, StreamUpdate
from runferry.backend.runs import RunFields, RunPath
from runferry.backend.store import DATABASE_NAME, RunNotFoundError

PATH = RunPath("team", "proj", "r1")


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    store = Store(tmp_path / "data", clock=clock)
    yield store
    store.close()


@pytest.fixture
def run(store):
    return store.upsert_run(PATH, RunFields())[0]


def update(uploaded=(), preempting=False, complete=False, exit_code=None, **files):
    named = {
        {"history": HISTORY, "events": EVENTS, "console": CONSOLE, "summary": SUMMARY}[k]: v for k, v in files.items()
    }
    chunks = {name: Chunk(offset, list(content)) for name, (offset, content) in named.items()}
    return StreamUpdate(chunks, tuple(uploaded), preempting, complete, exit_code)


def rows(store, stream=HISTORY, **limits):
    return store.lines(store.run(PATH), stream, **limits)


def put(store, run, name, content):
    upload = store.blobs.upload()
    try:
        upload.write(content)
        return store.put_file(run.key, name, upload)
    finally:
        upload.discard()


def blobs(store):
    return sorted(path.name for path in (store._path.parent / "blobs").rglob("*") if path.is_file())


def test_a_null_leaves_a_field_as_it_is(store):
    """An upsert changes what it names; None changes nothing, an empty list of tags empties them."""
    first, inserted = store.upsert_run(PATH, RunFields(notes="n", tags=["a"], config='{"x":1}', display_name="d"))
    second, again = store.upsert_run(PATH, RunFields(notes=None, tags=None, group_name="g"))
    third, _ = store.upsert_run(PATH, RunFields(tags=[]))

    assert (inserted, again) == (True, False)
    assert first.group_name is None
    assert (second.notes, second.tags, second.config, second.display_name, second.group_name) == (
        "n",
        ["a"],
        '{"x":1}',
        "d",
        "g",
    )
    assert third.tags == []


def test_a_run_without_a_name_gets_one(store):
    """The server names runs by their place in the project, so that two servers fed the same way agree."""
    names = [store.upsert_run(RunPath("e", "p", f"id{n}"), RunFields())[0].display_name for n in range(3)]

    assert names == ["run-1", "run-2", "run-3"]


def test_a_line_written_again_replaces_the_line(store, run):
    """Overlapping writes leave each line number once, with its last text, and count it once."""
    store.apply_stream(PATH, update(history=(0, ["a", "b", "c"])))
    store.apply_stream(PATH, update(history=(2, ["C", "D"])))
    store.apply_stream(PATH, update(history=(2, ["C", "D"])))

    assert rows(store) == [(0, "a"), (1, "b"), (2, "C"), (3, "D")]
    assert (store.run(PATH).extent(HISTORY).rows, store.run(PATH).extent(HISTORY).length) == (4, 4)


def test_a_jump_ahead_leaves_a_hole(store, run):
    """Lines that never came are no rows, and the lines after them keep their numbers; a late line fills its hole."""
    store.apply_stream(PATH, update(history=(0, ["a"])))
    store.apply_stream(PATH, update(history=(5, ["f"])))
    with_hole = store.run(PATH).extent(HISTORY)
    store.apply_stream(PATH, update(history=(3, ["d"])))

    assert (with_hole.rows, with_hole.length) == (2, 6)
    assert rows(store) == [(0, "a"), (3, "d"), (5, "f")]
    assert rows(store, start=1, stop=5) == [(3, "d")]
    assert (store.run(PATH).extent(HISTORY).rows, store.run(PATH).extent(HISTORY).length) == (3, 6)


def test_streams_and_runs_do_not_mix(store, run):
    """The same line numbers of other streams and runs are other lines."""
    other = RunPath("team", "proj", "r2")
    store.upsert_run(other, RunFields())
    store.apply_stream(PATH, update(history=(0, ["h"]), events=(0, ["e"]), console=(0, ["c"])))
    store.apply_stream(other, update(history=(0, ["other"])))

    assert [rows(store, stream) for stream in (HISTORY, EVENTS, CONSOLE)] == [[(0, "h")], [(0, "e")], [(0, "c")]]
    assert store.lines(store.run(other), HISTORY) == [(0, "other")]


def test_lines_come_in_pages(store, run):
    """`all_lines` gives a long stream whole and in order, whatever the page size."""
    store.apply_stream(PATH, update(history=(0, map(str, range(25_000)))))

    pages = list(store.all_lines(store.run(PATH), HISTORY))

    assert len(pages) > 1
    assert [line for page in pages for line in page] == [(n, str(n)) for n in range(25_000)]


def test_large_lines_come_one_by_one(store, run):
    """A page is bounded in bytes as well as in lines, and still holds at least one line."""
    store.apply_stream(PATH, update(history=(0, ["x" * 9_000_000] * 3)))

    assert [len(page) for page in store.all_lines(store.run(PATH), HISTORY)] == [1, 1, 1]


def test_the_summary_is_the_last_one_sent(store, run):
    """Summary lines are no stream: the newest is the run's summary."""
    store.apply_stream(PATH, update(summary=(0, ['{"a":1}'])))
    store.apply_stream(PATH, update(summary=(0, ['{"a":NaN}'])))

    assert store.run(PATH).summary == '{"a":NaN}'
    assert SUMMARY not in store.run(PATH).streams


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (1, "failed"), (255, "failed"), (None, "finished")])
def test_the_exit_code_decides_the_state(store, run, code, state):
    """A complete run is finished with code 0 and failed with any other."""
    store.apply_stream(PATH, update(complete=True, exit_code=code))

    assert (store.run(PATH).state, store.run(PATH).exit_code) == (state, code)


def test_a_finished_run_lives_again_with_new_data(store, run):
    """Rows after the end reopen a run; file names that were uploaded late do not."""
    store.apply_stream(PATH, update(complete=True, exit_code=3))
    store.apply_stream(PATH, update(uploaded=["late.txt"]))
    after_files = store.run(PATH)
    store.apply_stream(PATH, update(history=(0, ["{}"])))

    assert (after_files.state, after_files.exit_code) == ("failed", 3)
    assert (store.run(PATH).state, store.run(PATH).exit_code) == ("running", None)


def test_a_preempted_run_stays_marked_until_it_ends(store, run):
    """Data after the mark does not take it away; the end does."""
    store.apply_stream(PATH, update(preempting=True))
    store.apply_stream(PATH, update(history=(0, ["{}"])))
    marked = store.run(PATH).state
    store.apply_stream(PATH, update(complete=True, exit_code=0))

    assert (marked, store.run(PATH).state) == ("preempting", "finished")


def test_silence_is_a_crash(store, run, clock):
    """A run counts as crashed once nothing, not even a heartbeat, came for long enough; a finished one never does."""
    clock.now += 290
    store.apply_stream(PATH, update())
    clock.now += 300
    alive = store.run(PATH).state_at(clock.now, 300)
    silent = store.run(PATH).state_at(clock.now + 1, 300)
    store.apply_stream(PATH, update(complete=True, exit_code=0))

    assert (alive, silent) == ("running", "crashed")
    assert store.run(PATH).state_at(clock.now + 10_000, 300) == "finished"


def test_a_missing_run_takes_nothing(store):
    """Lines, alerts and files for a run that was never made are refused, not kept somewhere."""
    with pytest.raises(RunNotFoundError):
        store.apply_stream(PATH, update(history=(0, ["a"])))
    with pytest.raises(RunNotFoundError):
        store.add_alert(PATH, "t", "x", "INFO", 0)
    upload = store.blobs.upload()
    with pytest.raises(RunNotFoundError):
        store.put_file(99, "f", upload)
    upload.discard()
    assert blobs(store) == []


def test_asking_for_a_missing_run_looks_at_no_other(store, run):
    """Clients ask about each new run: what that costs does not grow with the runs that are there."""
    store.has_run(PATH)  # opens a connection to read by
    asked = []
    store._readers[0].set_trace_callback(asked.append)
    with pytest.raises(RunNotFoundError):
        store.run(RunPath("team", "proj", "new"))

    assert any("FROM runs" in statement for statement in asked)
    assert not any("streams" in statement for statement in asked)


def test_a_failed_request_changes_nothing(store, run):
    """One request is one transaction: when its second part fails, its first part is gone as well."""
    bad = update(history=(0, ["a"]), console=(0, ["\ud800"]))  # a lone surrogate has no UTF-8

    with pytest.raises(UnicodeEncodeError):
        store.apply_stream(PATH, bad)

    assert rows(store) == []
    assert store.run(PATH).streams == {}
    store.apply_stream(PATH, update(history=(0, ["b"])))
    assert rows(store) == [(0, "b")]


def test_a_file_has_its_size_and_digest(store, run):
    """Size and MD5 are those of the bytes; the content lies under its own hash, whatever the name says."""
    file = put(store, run, "deep/../../name", b"hello")

    assert (file.size, file.md5) == (5, hashlib.md5(b"hello").hexdigest())
    assert blobs(store) == [hashlib.sha256(b"hello").hexdigest()]


def test_replaced_contents_go_when_nothing_needs_them(store, run):
    """A file sent again frees its earlier content, unless another file has the same."""
    put(store, run, "a", b"one")
    put(store, run, "b", b"one")
    put(store, run, "a", b"two")
    shared = blobs(store)
    put(store, run, "b", b"two")

    assert len(shared) == 2
    assert blobs(store) == [hashlib.sha256(b"two").hexdigest()]
    assert [(file.name, file.size) for file in store.files(run)] == [("a", 3), ("b", 3)]


def test_an_announced_file_that_never_came_is_told(store, run):
    """`uploaded` marks files; a name without a content stays visible as missing."""
    put(store, run, "a", b"x")
    store.apply_stream(PATH, update(uploaded=["a", "ghost"]))

    assert [(file.name, file.uploaded, file.blob is None) for file in store.files(run)] == [
        ("a", True, False),
        ("ghost", True, True),
    ]


def test_uploads_that_broke_off_are_swept_at_start(tmp_path):
    """Bytes of an upload that a kill interrupted do not pile up."""
    store = Store(tmp_path)
    upload = store.blobs.upload()
    upload.write(b"half")
    upload._file.close()
    store.close()

    Store(tmp_path).close()

    assert list((tmp_path / "incoming").iterdir()) == []


def test_one_alert_sent_twice_is_one_alert(store, run, clock):
    """The same alert within its waiting time is a repetition; another text or a later time is not."""
    for text, seconds in (("x", 0), ("x", 30), ("y", 0), ("x", 60)):
        clock.now += seconds
        store.add_alert(PATH, "t", text, "WARN", 60)

    assert [alert.text for alert in store.alerts(run)] == ["x", "y", "x"]


def test_rewind_drops_later_rows(store, run):
    """Rows after the step are gone, and the next row takes the first free line number."""
    store.apply_stream(
        PATH, update(history=(0, [f'{{"_step":{n},"x":NaN}}' for n in range(10)]), complete=True, exit_code=0)
    )

    rewound = store.rewind(PATH, 3)

    assert [text for _, text in rows(store)] == [f'{{"_step":{n},"x":NaN}}' for n in range(4)]
    assert (rewound.extent(HISTORY).rows, rewound.extent(HISTORY).length, rewound.state) == (4, 4, "running")
    assert store.rewind(PATH, -1).extent(HISTORY).length == 0


def test_everything_is_there_after_a_restart(tmp_path):
    """A store opened again holds what it held, the key of upload addresses included."""
    store = Store(tmp_path)
    run = store.upsert_run(PATH, RunFields(notes="n"))[0]
    store.apply_stream(PATH, update(history=(0, ["a"])))
    put(store, run, "f", b"x")
    secret = store.secret
    store.close()

    again = Store(tmp_path)

    assert again.run(PATH).notes == "n"
    assert rows(again) == [(0, "a")]
    assert again.blobs.path(again.files(run)[0].blob).read_bytes() == b"x"
    assert again.secret == secret
    again.close()


def test_two_servers_cannot_share_a_folder(store, tmp_path):
    """The second one is told so, and the first goes on."""
    with pytest.raises(BlockingIOError, match="another server"):
        Store(tmp_path / "data")

    assert store.runs() == []


def test_an_older_file_gets_what_it_lacks(tmp_path):
    """A database of the first version keeps its runs and takes artifacts from then on."""
    tmp_path.joinpath(DATABASE_NAME).touch()
    old = connect(tmp_path / DATABASE_NAME)
    old.executescript(f"{SCHEMA} PRAGMA user_version=1;")
    old.execute(
        "INSERT INTO runs (entity, project, name, display_name, created_at, updated_at, heartbeat_at)"
        " VALUES ('team', 'proj', 'r1', 'd', 1, 1, 1)"
    )
    old.close()

    store = Store(tmp_path)
    artifact = Artifacts(store, lambda: 2.0).create(NewArtifact("team", "proj", "model", "net", "d1", run=PATH))

    assert store.run(PATH).display_name == "d"
    assert [one.key for one in Artifacts(store, lambda: 3.0).of_run(store.run(PATH).key, "output")] == [artifact.key]
    store.close()


def test_a_newer_file_is_left_alone(tmp_path):
    """A database of a later version is refused, not touched."""
    store = Store(tmp_path)
    store._db.execute("PRAGMA user_version=99")
    store.close()

    with pytest.raises(ValueError, match="schema 99"):
        Store(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\\b", "a\0b", "a?b", "a%2fb", "x" * 200, "a\nb"])
def test_names_that_could_break_out_are_refused(name):
    """Entity, project and run names are safe inside URLs and storage ids."""
    with pytest.raises(ValueError, match="name"):
        RunPath("e", "p", name)


def test_storage_ids_go_both_ways():
    """A client sends back the id that it got; anything else is refused."""
    path = RunPath("team ü", "proj", "r 1")

    assert RunPath.from_storage_id(path.storage_id) == path
    for foreign in ("", "???", "UnVuOnYyOmE6Yjpj", "dXNlcg=="):
        with pytest.raises(ValueError, match="unknown run id"):
            RunPath.from_storage_id(foreign)
