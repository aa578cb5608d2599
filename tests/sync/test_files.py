"""Files of a run: which ones go, which ones may not, and what a lost one means."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import SyncSettings, Verdict, runfiles
from runferry.sync.report import NOTHING_NEW
from runferry.sync.todo import Todo, preview
from runferry.sync.transport import Answer, Request
from support import logs
from support.fakebackend import URL
from support.syncrig import Rig, cursor, marker, on


def with_files(rig: Rig, *names: str) -> Path:
    """A run whose log names files."""
    log = rig.folder / "run-20260921_141320-f" / "run-f.wandb"
    records = logs.simple_records("f")
    logs.make_log(log, *records[:3], logs.files_record(*names), *records[3:])
    (log.parent / "files").mkdir()
    rig.settle(log)
    return log


def test_recorded_files_arrive_under_their_names(rig: Rig) -> None:
    """Any depth, empty, unicode, names that look like patterns, patterns; the key goes to none of the upload URLs."""
    names = ["requirements.txt", "media/images/a_0_b.png", "empty", "ü #%[1].txt", "logs/*.txt"]
    log = with_files(rig, *names)
    for name in [*names[:4], "logs/a.txt", "logs/b.txt", "logs/c.bin", "unnamed"]:
        path = log.parent / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name == "empty" else f"content of {name}")

    report = rig.sync()

    files = rig.backend.runs["f"].files
    for name in [*names[:4], "logs/a.txt", "logs/b.txt"]:
        assert files[name] == (b"" if name == "empty" else f"content of {name}".encode())
    assert "unnamed" not in files
    assert "logs/c.bin" not in files
    assert rig.only(report).verdict is Verdict.SYNCED


def test_media_may_lie_in_the_folder_of_an_earlier_log(rig: Rig) -> None:
    """After a failed sync of the disk the run goes on in a new folder; only media bear a hash that tells them apart."""
    first = with_files(rig, "media/a_0_f00.txt", "saved.txt")
    second = first.parent.with_name("run-20260921_141321-f") / first.name
    records = logs.simple_records("f", start=logs.START_S + 1)
    logs.make_log(second, *records[:3], logs.files_record("media/a_0_f00.txt", "saved.txt"), *records[3:])
    (first.parent / "files" / "media").mkdir()
    (first.parent / "files" / "media" / "a_0_f00.txt").write_text("media")
    (first.parent / "files" / "saved.txt").write_text("of then")
    rig.settle(second)

    report = rig.sync()

    assert rig.backend.runs["f"].files["media/a_0_f00.txt"] == b"media"
    assert {line for run in report.runs for line in run.missing} == {"saved.txt: missing"}


def test_names_that_lead_out_are_refused_and_named(rig: Rig, tmp_path: Path) -> None:
    """Absolute paths, dots, links out of the run directory and pipes are not read; the rows arrive all the same."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    names = ["../../../secret", str(secret), "link", "folder/secret", "nul\0l", "pipe", "dir", "inside", "../*"]
    log = with_files(rig, *names)
    files = log.parent / "files"
    (files / "link").symlink_to(secret)
    (files / "folder").symlink_to(tmp_path)
    (files / "dir").mkdir()
    (files / "real").write_text("fine")
    (files / "inside").symlink_to(files / "real")
    os.mkfifo(files / "pipe")

    report = rig.sync()

    run = rig.backend.runs["f"]
    assert {name for name in run.files if not name.startswith(("wandb-", "config", "output"))} == {"inside"}
    assert b"secret" not in run.files.values()
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert len(rig.only(report).missing) == 8
    assert len(run.rows) == 5
    assert run.complete
    assert not marker(log).exists()


def test_a_folder_that_became_a_link_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    """Also when that happens between the look at a file and its upload."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "x").write_text("secret")
    log = with_files(rig, "deep/folder/x")
    folder = log.parent / "files" / "deep" / "folder"
    folder.mkdir(parents=True)
    (folder / "x").write_text("public")

    def swap(_: int, operation: str, __: Request) -> None:
        if operation == "CreateRunFiles" and not folder.is_symlink():
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "home")

    rig.backend.before = swap

    report = rig.only(rig.sync())

    assert report.missing == ("deep/folder/x: refused: a folder above it became a link",)
    assert b"secret" not in rig.backend.runs["f"].files.values()


@pytest.mark.parametrize("link", ["files", "files/media"])
def test_folders_that_are_links_are_not_searched(rig: Rig, tmp_path: Path, link: str) -> None:
    """Neither for patterns nor for media: nobody is told what lies elsewhere, and nothing as large as `/` is listed."""
    log = with_files(rig, "**/*.pem")
    (tmp_path / "home" / "media").mkdir(parents=True)
    for name in ("key.pem", "media/key.pem", "media/x.png"):
        (tmp_path / "home" / name).write_text("secret")
    logs.make_log(log, logs.row(9, {"image": {"path": "media/x.png"}}), append=True)
    rig.settle(log)
    (log.parent / "files").rmdir()
    (log.parent / link).parent.mkdir(exist_ok=True)
    (log.parent / link).symlink_to(tmp_path / "home" if link == "files" else tmp_path / "home" / "media")

    assert rig.only(rig.sync()).missing == ("**/*.pem: no file matches",)
    assert b"secret" not in rig.backend.runs["f"].files.values()


def test_a_name_on_disk_that_is_no_text_fails_alone(rig: Rig) -> None:
    """A pattern may match it, but no server takes such a name."""
    log = with_files(rig, "*.txt")
    (log.parent / "files" / "b.txt").write_text("b")
    Path(os.fsdecode(os.fsencode(log.parent / "files") + b"/a\xff.txt")).touch()

    report = rig.only(rig.sync())

    assert report.missing == ("a\\udcff.txt: not a file name",)
    assert rig.backend.runs["f"].files["b.txt"] == b"b"


def test_many_patterns_list_the_files_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may hold any number of them."""
    log = with_files(rig, *(f"{number}*" for number in range(50)))
    (log.parent / "files" / "7up").write_text("7")
    listed = []
    real = runfiles.files_below
    monkeypatch.setattr(runfiles, "files_below", lambda root: listed.append(root) or real(root))

    report = rig.only(rig.sync())

    assert rig.backend.runs["f"].files["7up"] == b"7"
    assert len(report.missing) == 49
    assert len(listed) == 1


@pytest.mark.parametrize("names", [("wandb-summary.json", "config.yaml", "wandb-metadata.json", "output.log")])
def test_files_that_are_made_from_the_log_need_not_lie_there(rig: Rig, names: tuple[str, ...]) -> None:
    """Old logs name them among their files."""
    with_files(rig, *names)

    assert rig.only(rig.sync()).missing == ()
    assert set(rig.backend.runs["f"].files) == set(names)


def test_what_cannot_be_made_from_the_log_is_taken_from_the_disk(rig: Rig) -> None:
    """Logs of before environment records and of runs without a console: their files are the only ones."""
    log = rig.folder / "run-20260921_141320-f" / "run-f.wandb"
    names = ("wandb-metadata.json", "output.log", "config.yaml")
    kept = [
        record for record in logs.simple_records("f") if record.WhichOneof("record_type") in ("run", "history", "exit")
    ]
    logs.make_log(log, logs.header_record(), kept[0], logs.files_record(*names), *kept[1:])
    (log.parent / "files").mkdir()
    for name in names:
        (log.parent / "files" / name).write_text("of the disk")
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    files = rig.backend.runs["f"].files
    assert [files[name] == b"of the disk" for name in names] == [True, True, False]


@pytest.mark.parametrize(
    "place", [{}, {"uploadUrl": ""}, {"uploadUrl": 5}, {"uploadUrl": False}, {"name": []}], ids=str
)
def test_only_a_null_url_says_that_no_upload_is_wanted(rig: Rig, place: dict[str, object]) -> None:
    """Anything else in an answer is no place, and the file is missing."""
    rig.run()
    ask = rig.backend._on_createrunfiles

    def answer(variables: dict[str, Any]) -> Any:
        data = ask(variables)
        files = data["createRunFiles"]["files"]
        data["createRunFiles"]["files"] = [{"name": files[0]["name"], **place}, *files[1:]]
        return data

    rig.backend._on_createrunfiles = answer

    report = rig.only(rig.sync())

    assert report.missing == ("wandb-summary.json: the server gave no place for it",)


def test_a_file_that_grows_is_hashed_and_sent_as_far_as_it_was_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it grows without end; the rest goes with the next sync."""
    log = with_files(rig, "growing.txt")
    path = log.parent / "files" / "growing.txt"
    path.write_text("one")
    find = runfiles.find_safely

    def find_and_grow(*given: Any, **options: Any) -> Any:
        found = find(*given, **options)
        path.write_text("one and two")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(runfiles, "find_safely", find_and_grow)
        rig.sync()
    mark = json.loads(cursor(log).read_text())["files"]["growing.txt"]
    assert (mark["size"], mark["sha256"]) == (3, hashlib.sha256(b"one").hexdigest())
    assert rig.backend.runs["f"].files["growing.txt"] == b"one"

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.runs["f"].files["growing.txt"] == b"one and two"


@pytest.mark.parametrize("recorded", ["big.pt", "*.pt"])
def test_a_file_that_was_removed_once_the_server_had_it_is_not_missing(rig: Rig, recorded: str) -> None:
    """Whoever makes room keeps the verdict and the marker, also when the log grows; a lost cursor knows of nothing."""
    log = with_files(rig, recorded)
    (log.parent / "files" / "big.pt").write_text("weights")
    rig.sync()
    (log.parent / "files" / "big.pt").unlink()
    rig.backend.forget()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert marker(log).exists()
    assert rig.backend.requests == []
    for step in (8, 9):
        logs.make_log(log, logs.row(step), append=True)
        rig.settle(log)
        assert rig.only(rig.sync()).missing == ()
    cursor(log).unlink()
    marker(log).unlink()
    assert len(rig.only(rig.sync()).missing) == 1


def test_a_file_that_was_removed_before_the_server_was_told_of_it_is_missing(rig: Rig) -> None:
    """The bytes alone are not enough."""
    log = with_files(rig, "big.pt")
    (log.parent / "files" / "big.pt").write_text("weights")
    rig.backend.before = lambda _, name, request: (
        Answer(403, {}, b"") if name == "stream" and b'"uploaded"' in request.body else None
    )
    rig.sync()
    rig.backend.before = lambda *_: None
    (log.parent / "files" / "big.pt").unlink()

    assert rig.only(rig.sync()).missing == ("big.pt: missing",)


def test_media_are_not_swept_in_every_pass_over_a_run_that_goes_on(rig: Rig) -> None:
    """The whole log is read for them: once, when the run has ended."""
    log = with_files(rig)
    logs.make_log(log, *logs.simple_records("f", exit_code=None)[:-1], logs.row(9, {"mask": {"path": "media/m.png"}}))
    (log.parent / "files" / "media").mkdir()
    (log.parent / "files" / "media" / "m.png").write_text("mask")
    rig.settle(log)
    rig.sync(following=True)
    assert "media/m.png" not in rig.backend.runs["f"].files
    logs.make_log(log, logs.exit_record(0), append=True)
    rig.settle(log)

    rig.sync(following=True)

    assert rig.backend.runs["f"].files["media/m.png"] == b"mask"


def test_a_missing_file_is_reported_until_it_is_there(rig: Rig) -> None:
    """Partial while it is missing, without a request at each sync; synced once it is there, and only it is sent."""
    log = with_files(rig, "late.bin")
    report = rig.sync()
    assert (rig.only(report).verdict, rig.only(report).missing) == (Verdict.PARTIAL, ("late.bin: missing",))
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []
    (log.parent / "files" / "late.bin").write_bytes(b"here")

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.operations() == ["CreateRunFiles", "put", "stream"]
    assert rig.backend.runs["f"].files["late.bin"] == b"here"


def test_a_changed_file_is_sent_again_and_a_touched_one_is_not(rig: Rig) -> None:
    """Size and time tell a possible change, the hash whether there was one."""
    log = with_files(rig, "a", "b")
    for name in ("a", "b"):
        (log.parent / "files" / name).write_text("same")
    rig.sync()
    rig.backend.forget()
    os.utime(log.parent / "files" / "a", (1, 1))
    (log.parent / "files" / "b").write_text("more than before")

    rig.sync()

    assert [request.url.rpartition("/")[2] for name, request in rig.backend.requests if name == "put"] == ["b"]


@pytest.mark.parametrize("ns", [0, -1_500_000_000, 1 << 63])
def test_a_file_of_an_impossible_year_is_watched_as_any_other(rig: Rig, ns: int) -> None:
    """Archives that are made the same each time date all files to 1970, broken clocks to before it, or to after 2262."""
    log = with_files(rig, "a")
    path = log.parent / "files" / "a"
    path.write_text("one")
    os.utime(path, ns=(ns, ns))
    if path.stat().st_mtime_ns != ns:
        pytest.skip("the file system has no such time")
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.only(rig.sync()).reason == NOTHING_NEW

    path.write_text("two")
    report = rig.only(rig.sync())

    assert (report.verdict, report.files_sent) == (Verdict.SYNCED, 1)
    assert rig.backend.runs["f"].files["a"] == b"two"
    os.utime(path, ns=(ns, ns))
    rig.sync()
    path.unlink()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


def both_logs(rig: Rig) -> tuple[Path, Path]:
    """A run that was resumed, with a file beside each of its logs, and one that both have."""
    first = with_files(rig, "of_first", "of_both")
    second = first.parent.with_name("run-20260921_141321-f") / first.name
    records = logs.simple_records("f", start=logs.START_S + 1)
    logs.make_log(second, *records[:3], logs.files_record("of_second", "of_both"), *records[3:])
    (second.parent / "files").mkdir()
    for log, name in ((first, "of_first"), (second, "of_second"), (first, "of_both"), (second, "of_both")):
        (log.parent / "files" / name).write_text(f"{name} {log.parent.name[-3:]}")
    rig.settle(second)
    return first, second


def test_files_of_several_logs_are_looked_at_and_no_log_is_read_for_them(rig: Rig) -> None:
    """Where nothing has changed the cursors say so; what changes beside any of the logs is sent, and then it is done again."""
    first, second = both_logs(rig)
    assert {run.verdict for run in rig.sync().runs} == {Verdict.SYNCED}
    rig.backend.forget()
    assert {run.reason for run in rig.sync().runs} == {NOTHING_NEW}
    assert preview([rig.folder], SyncSettings(base_url=URL, state_dir=rig.state)).runs[0].todo is Todo.NOTHING

    for log, name in ((first, "of_first"), (second, "of_second"), (second, "of_both")):
        (log.parent / "files" / name).write_text("changed")
        assert NOTHING_NEW not in {run.reason for run in rig.sync().runs}
        assert rig.backend.runs["f"].files[name] == b"changed"
        assert {run.reason for run in rig.sync().runs} == {NOTHING_NEW}
    assert rig.backend.operations().count("put") == 3


def test_files_of_a_log_that_was_sent_before_the_next_one_was_there(rig: Rig) -> None:
    """Each cursor knows files of its own; one that only the first log has is still looked at, and may be taken away."""
    first, second = both_logs(rig)
    away = rig.folder.parent / "away"
    second.parent.rename(away)
    rig.sync()
    away.rename(second.parent)
    rig.sync()
    assert {run.reason for run in rig.sync().runs} == {NOTHING_NEW}

    (first.parent / "files" / "of_first").write_text("changed")
    rig.sync()
    assert rig.backend.runs["f"].files["of_first"] == b"changed"
    (first.parent / "files" / "of_first").unlink()
    assert {run.reason for run in rig.sync().runs} == {NOTHING_NEW}


@pytest.mark.parametrize("answer", [Answer(403, {}, b"expired"), Answer(500, {}, b"")], ids=["403", "500"])
def test_a_file_that_does_not_get_through_never_stops_the_rows(rig: Rig, answer: Answer) -> None:
    """Storage may be behind a firewall: rows, summary and exit arrive, the verdict names the files."""
    log = rig.run()
    rig.backend.before = on("put", answer)

    report = rig.sync(retry_for=5.0)

    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == load(log).rows
    assert run.complete
    assert rig.only(report).verdict is Verdict.PARTIAL
    assert report.exit_code == (1 if answer.status == 403 else 75)
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(run.files) == 4


@pytest.mark.parametrize(
    "line", ["content-length: 5", "Transfer-Encoding : chunked", "Host: elsewhere", "connection: close"]
)
def test_upload_headers_do_not_frame_the_request(rig: Rig, line: str) -> None:
    """A length or a host among them would cut the body, or send it elsewhere in the eyes of a proxy."""
    rig.run()
    ask = rig.backend._on_createrunfiles
    rig.backend._on_createrunfiles = lambda variables: {
        "createRunFiles": ask(variables)["createRunFiles"] | {"uploadHeaders": [line, "X-Upload: yes"]}
    }

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert {tuple(request.headers) for name, request in rig.backend.requests if name == "put"} == {("X-Upload",)}


def test_an_expired_upload_url_is_asked_for_again(rig: Rig) -> None:
    """A 403 on a signed URL gets one new URL before the file counts as missing."""
    rig.run()
    rig.backend.before = on("put", Answer(403, {}, b"expired"), times=1)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


def test_a_file_of_which_the_server_was_not_told_is_told_by_the_next_sync(rig: Rig) -> None:
    """A last request that is refused, or never made, leaves no file without its announcement."""
    log = rig.run(rows=3)
    refused = []

    def refuse_the_first_announcement(_: int, __: str, request: Request) -> Answer | None:
        if isinstance(request.body, bytes) and b'"uploaded"' in request.body and not refused:
            refused.append(request)
            return Answer(403, {}, b"")
        return None

    rig.backend.before = refuse_the_first_announcement
    assert rig.only(rig.sync()).verdict is Verdict.FAILED
    assert not marker(log).exists()

    report = rig.only(rig.sync())

    run = rig.backend.runs["a1b2c3d4"]
    assert report.verdict is Verdict.SYNCED
    assert sorted(run.uploaded) == sorted(run.files)
    assert marker(log).exists()


def test_a_marker_does_not_outlive_a_file_that_could_not_be_announced(rig: Rig) -> None:
    """A log that was synced, a file of it that changed, a refusal: failed, not marked, and told the next time."""
    log = with_files(rig, "notes.txt")
    notes = log.parent / "files" / "notes.txt"
    notes.write_text("one")
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    notes.write_text("two, and longer")
    rig.backend.before = on("stream", Answer(403, {}, b""))
    assert rig.only(rig.sync()).verdict is Verdict.FAILED
    assert not marker(log).exists()

    rig.backend.before = lambda *_: None
    rig.backend.runs["f"].uploaded.clear()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert "notes.txt" in rig.backend.runs["f"].uploaded


def test_no_segment_is_marked_while_a_file_of_the_run_is_missing(rig: Rig) -> None:
    """What the first log names and nobody finds counts for every log of the run."""
    first = with_files(rig, "gone.txt")
    second = rig.run(run_id="f", rows=2, prefix="run-20260922_141320", start=logs.START_S + 86_400)
    report = rig.sync()

    assert [run.verdict for run in report.runs] == [Verdict.PARTIAL, Verdict.PARTIAL]
    assert not marker(first).exists()
    assert not marker(second).exists()


def test_follow_links_reads_what_saved_links_lead_to(rig: Rig, tmp_path: Path) -> None:
    """As the peer's `save` makes them: only regular files, and only where it was asked for; pipes stay refused."""
    original = tmp_path / "model.pt"
    original.write_text("weights")
    log = with_files(rig, "model.pt", "pipe", "gone")
    os.mkfifo(tmp_path / "a-pipe")
    for name, target in {"model.pt": original, "pipe": tmp_path / "a-pipe", "gone": tmp_path / "nothing"}.items():
        (log.parent / "files" / name).symlink_to(target)

    without = rig.only(rig.sync())
    report = rig.only(rig.sync(follow_links=True))

    assert "--follow-links" in without.reason
    assert len(without.missing) == 3
    assert set(report.missing) == {
        "gone: missing (a link to a file that is gone)",
        "pipe: refused: not a regular file",
    }
    assert rig.backend.runs["f"].files["model.pt"] == b"weights"
    assert original.read_text() == "weights"


def test_media_that_only_a_row_names_are_sent(rig: Rig) -> None:
    """Masks, boxes and class tables inside a value, in a nested key, in the summary; nothing that nobody names."""
    log = rig.folder / "run-20260921_141320-f" / "run-f.wandb"
    names = ["media/images/m_0.png", "media/metadata/b.json", "media/table/c \u00fc.json", "media/orphan.png"]
    image = {"_type": "image-file", "path": "media/images/i.png", "masks": {"m": {"_type": "mask", "path": names[0]}}}
    records = logs.simple_records("f")
    rows = [
        logs.row(90, {"image": image, "list": [{"path": "media/not/there.png"}, "media/../../etc/passwd"]}),
        logs.row(91, {("nested", "boxes", "path"): names[1]}),
        logs.summary_record({"classes": {"path": names[2]}}),
    ]
    logs.make_log(log, *records[:-1], logs.files_record("media/images/i.png"), *rows, records[-1])
    for name in [*names, "media/images/i.png"]:
        path = log.parent / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    rig.settle(log)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED
    media = {name for name in rig.backend.runs["f"].files if name.startswith("media/")}
    assert media == {"media/images/i.png", *names[:3]}


def test_thousands_of_files_take_a_handful_of_requests(rig: Rig) -> None:
    """They are asked for in growing batches, told in one request, and their headers are those that the server gave."""
    names = [f"data/f{number:05}" for number in range(3000)]
    log = with_files(rig, *names)
    (log.parent / "files" / "data").mkdir()
    for name in names:
        (log.parent / "files" / name).write_text(name)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED
    asked = [len(body["variables"]["files"]) for body in rig.backend.bodies("CreateRunFiles")]
    assert asked == [64, 256, 1024, 1024, 636]
    assert rig.backend.operations().count("put") == 3004
    assert rig.backend.operations().count("stream") == 2
    assert {request.headers["X-Upload"] for name, request in rig.backend.requests if name == "put"} == {"yes"}
    assert len(rig.backend.runs["f"].uploaded) == 3004


@pytest.mark.parametrize(
    "name", ["[", "]x[", "a\nb", "%41", "#", "?q=1", "a" * 200, "sp ace/ü/日本", "-dash", "~", "*"]
)
def test_odd_names_are_taken_literally(rig: Rig, name: str) -> None:
    """What looks like a pattern, a URL or a line break is a name all the same."""
    log = with_files(rig, name)
    path = log.parent / "files" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.runs["f"].files[name] == b"content"


def test_azures_storage_gets_the_files_of_a_run_in_one_piece(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not larger than its limit goes whole, with its header; the limit is in the artifacts' tests."""
    monkeypatch.setattr(
        rig.backend,
        "_on_createrunfiles",
        lambda variables, ask=rig.backend._on_createrunfiles: {
            "createRunFiles": ask(variables)["createRunFiles"] | {"uploadHeaders": ["x-ms-blob-type: BlockBlob"]}
        },
    )
    rig.run()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert {request.headers["x-ms-blob-type"] for name, request in rig.backend.requests if name == "put"} == {
        "BlockBlob"
    }
