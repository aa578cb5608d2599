"""Content that is staged once, shared by rows, and dropped when nobody has it."""

from __future__ import annotations

import copy
import pickle

import pytest
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media.content import ArtifactContents, Content, is_reference
from runferry.writer.media.html import Html
from runferry.writer.runfiles import RunFiles


def below(run, folder=""):
    root = run / folder if folder else run
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_one_medium_under_two_keys_is_one_file(files, landed, tmp_path):
    """The second key names the first one's file, and only the first row brings a files record."""
    page = Html("<b>x</b>", inject=False)

    first, second = landed(page, "one", "0"), landed(page, "two", "5")

    assert first.value == second.value
    assert (len(first.paths), second.paths) == (1, ())
    assert below(tmp_path / "run") == [f"files/{first.paths[0]}"]


def test_a_file_may_go_once_it_was_logged(files, landed, tmp_path):
    """Staging copies: what the caller does to the file afterwards changes nothing, and it can be logged again."""
    source = tmp_path / "page.html"
    source.write_text("first")
    page = Html(source, inject=False)
    landing = landed(page)
    source.unlink()

    assert landed(page, "other").value == landing.value
    assert (files.files / landing.paths[0]).read_text() == "first"


def test_what_is_dropped_leaves_nothing(files, context, tmp_path):
    """A row that goes nowhere takes its staged content with it; the medium can be logged again."""
    page = Html("text", inject=False)
    page.stage(files, context).drop()
    assert below(tmp_path / "run") == []

    assert page.stage(files, context).land("k", "0").paths


def test_content_stays_while_another_row_has_it(files, context):
    """One of two rows is dropped before the other lands, or after."""
    page = Html("text", inject=False)
    first, second = page.stage(files, context), page.stage(files, context)
    first.drop()
    landing = second.land("k", "0")
    second.drop()

    assert (files.files / landing.paths[0]).read_text() == "text"


def test_content_that_is_gone_is_staged_anew(files, context):
    """A row that asks while another's content is being dropped has its own, and no file that is not there."""
    page = Html("text", inject=False)
    first = page.stage(files, context)._file
    first.drop()

    assert not first.retain()
    landing = page.stage(files, context).land("k", "0")
    assert (files.files / landing.paths[0]).read_text() == "text"


def test_a_run_that_goes_on_in_another_directory_has_the_file_there(context, tmp_path):
    """After a failed disk the run has a new directory, which must be whole by itself."""
    where = [tmp_path / "one"]
    files = RunFiles(lambda: where[0], RealFileSystem())
    source = tmp_path / "page.html"
    source.write_text("text")
    page = Html(source, inject=False)
    page.stage(files, context).land("k", "0")
    source.unlink()
    where[0] = tmp_path / "two"

    landing = page.stage(files, context).land("k", "1")

    assert (tmp_path / "two" / "files" / landing.paths[0]).read_text() == "text"


def a_file(tmp_path, text="text"):
    source = tmp_path / "page.html"
    source.write_text(text)
    return source


def test_a_file_that_moves_while_it_is_read(files, context, tmp_path):
    """A row lands on the writer's thread, and a table with the same medium is made meanwhile."""
    page = Html(a_file(tmp_path), inject=False)
    staged = page.stage(files, context)
    (tmp_path / "page.html").unlink()
    read = []

    def use(path):
        if not read:
            read.append(path)
            staged.land("k", "0")  # just when its path was told
        return path.read_text()

    assert page._content.read(use) == "text"
    assert page.cell(ArtifactContents(files))["sha256"]


def test_a_forked_process_reads_the_source(files, context, tmp_path):
    """The copy moved in the other process, which nobody tells: what was given first is still there."""
    page = Html(a_file(tmp_path), inject=False)
    staged = page.stage(files, context)
    staged._file.staged.path.unlink()

    assert page._content.sha256() == Content(b"text", "").sha256()


def test_a_file_is_recorded_though_its_first_row_lost_it(files, context):
    """It landed, and what it was a part of did not: no files record was written. The next row brings it."""
    page = Html("text", inject=False)
    first, second = page.stage(files, context), page.stage(files, context)
    path = first.land("k", "0").paths
    first.drop()

    assert second.land("k", "1").paths == path
    assert page.stage(files, context).land("k", "2").paths == ()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_media_travel_between_processes(copied, files, landed):
    """A loader's worker makes media and sends them; one that was logged already is a new one there."""
    page = Html("text", inject=False)
    landed(page)

    assert landed(copied(page), "k", "9").paths == ("media/html/k_9_982d9e3eb996f559e633.html",)


def test_contents_of_an_artifact_lie_under_their_digest(files, tmp_path):
    """The same content twice is one file with two names; names that lead out are refused."""
    contents = ArtifactContents(files)
    one, two = contents.add("a/one.txt", b"x"), contents.add("two.txt", b"x")
    contents.add_reference("far", "s3://b/k")

    assert [entry.path for entry in contents.entries] == ["a/one.txt", "two.txt", "far"]
    assert (one.local_path, one.size, one.digest) == (two.local_path, 1, "ndTkYSaMgDT1yFZOFVxnpg==")
    assert below(tmp_path / "run", "artifacts") == ["9dd4e461268c8034f5c8564e155c67a6"]
    with pytest.raises(ValueError, match="leads out"):
        contents.add("../x", b"")


def test_the_hash_of_a_file_is_read_in_pieces(tmp_path):
    """As that of the bytes."""
    path = tmp_path / "big"
    path.write_bytes(b"z" * 2_500_000)

    assert Content(path, "").sha256() == Content(b"z" * 2_500_000, "").sha256()


def test_what_lies_elsewhere():
    """Addresses of the usual kinds, and no paths."""
    assert [is_reference(s) for s in ("http://h/x", "https://h", "s3://b/k", "gs://b/k", "/a", "file://x", 3)] == [
        *[True] * 4,
        *[False] * 3,
    ]
