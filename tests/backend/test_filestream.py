"""Decoding of file stream bodies, and the names and sizes that are let in."""

from __future__ import annotations

import contextlib
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.backend.errors import BadRequestError, TooLargeError
from runferry.backend.filestream import Chunk, decode, gunzip, safe_name


def body(**parts):
    return json.dumps(parts).encode()


def test_a_whole_body():
    """Every part of a request arrives as it was sent."""
    update = decode(
        b'{"files":{"wandb-history.jsonl":{"offset":7,"content":["{\\"x\\":NaN}","{}"]}},'
        b'"uploaded":["a/b"],"preempting":true,"complete":true,"exitcode":0}'
    )

    assert update.files == {"wandb-history.jsonl": Chunk(7, ['{"x":NaN}', "{}"])}
    assert (update.uploaded, update.preempting, update.complete, update.exit_code) == (("a/b",), True, True, 0)


def test_an_empty_body_is_a_heartbeat():
    """`{}` carries nothing."""
    update = decode(b"{}")

    assert not update.files
    assert not update.uploaded
    assert not update.complete


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{",
        body(files=[1]),
        body(files={"a": []}),
        body(files={"../a": {"offset": 0, "content": []}}),
        body(files={"a": {"offset": -1, "content": ["x"]}}),
        body(files={"a": {"offset": True, "content": ["x"]}}),
        body(files={"a": {"offset": 0.5, "content": ["x"]}}),
        body(files={"a": {"offset": 1 << 40, "content": ["x"]}}),
        body(files={"a": {"offset": 0, "content": "x"}}),
        body(files={"a": {"offset": 0, "content": [1]}}),
        body(uploaded="a"),
        body(uploaded=["/etc/passwd"]),
        body(complete=True, exitcode="0"),
        body(complete=True, exitcode=1 << 40),
    ],
)
def test_what_the_protocol_does_not_have_is_refused(bad):
    """A malformed part fails the whole request."""
    with pytest.raises(BadRequestError):
        decode(bad)


@pytest.mark.parametrize("name", ["a", "media/images/x.png", "..a", "a..b/c", "ünï", " "])
def test_ordinary_names(name):
    """Names that stay inside the run's folder are let in."""
    assert safe_name(name)


@pytest.mark.parametrize("name", ["", "/a", "\\a", "..", "a/../b", "a\\..\\b", "c:x", "a\0", "x" * 5000, None, 7])
def test_names_that_leave_the_folder(name):
    """Names that would be written elsewhere are not."""
    assert not safe_name(name)


def test_gzip_is_capped():
    """A small body that unpacks to too much is refused before it is unpacked."""
    assert gunzip(gzip.compress(b"x" * 1000), 1000) == b"x" * 1000
    with pytest.raises(TooLargeError):
        gunzip(gzip.compress(b"x" * 1001), 1000)


@pytest.mark.parametrize("damage", [lambda z: z[:-4], lambda z: z + b"more", lambda _: b"no gzip"])
def test_damaged_gzip_is_refused(damage):
    """A body that is cut off or followed by other bytes is not half applied."""
    with pytest.raises(BadRequestError):
        gunzip(damage(gzip.compress(b"hello")), 1000)


@given(st.binary(max_size=200))
def test_no_body_breaks_the_decoder(data):
    """Any bytes at all are decoded or refused, nothing else."""
    with contextlib.suppress(BadRequestError):
        decode(data)
