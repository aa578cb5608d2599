"""The record of an artifact: digest, ids, names, and what readers find in it."""

from __future__ import annotations

import gzip
import json
import random

from runferry.logformat import messages
from runferry.logformat.wire import fields
from runferry.writer.artifact_record import (
    ManifestEntry,
    artifact_body,
    base64_md5,
    internal_name,
    manifest_digest,
    manifest_lines,
    new_client_id,
)

HELLO = "XUFAKrxLKna5cZ2REBfFkg=="


def parsed(body):
    """The message in a record's bytes."""
    ((number, _, start, end),) = fields(body)
    assert number == 8
    return messages.ArtifactRecord.FromString(body[start:end])


def of(entries, **given):
    """A record with these contents."""
    known = {"run_id": "abc", "project": "p", "entity": "", "name": "ds", "type_": "dataset"}
    return parsed(artifact_body(**{**known, "entries": entries, **given}))


def test_the_digest_is_the_peers():
    """Digests that the peer wrote for the same contents, in whatever order they come."""
    one, two = ManifestEntry("a.txt", HELLO), ManifestEntry("two.txt", HELLO)
    assert manifest_digest([]) == "64e7c61456b10382e2f3b571ac24b659"
    assert manifest_digest([one]) == "541f289bb3c6ae786d51e7288e523543"
    assert manifest_digest([two, one]) == manifest_digest([one, two]) == "62272e68ef85e45c79beafb4b9bb12fd"


def test_a_file_digest_is_base64():
    """MD5 of the bytes of `hello`."""
    assert base64_md5(bytes.fromhex("5d41402abc4b2a76b9719d911017c592")) == HELLO


def test_a_record_says_what_it_was_given():
    """Every field, and the contents sorted by name."""
    entries = [
        ManifestEntry("z", "https://x/z", ref="https://x/z", extra={"etag": "1"}),
        ManifestEntry("a", HELLO, size=5, local_path="/runs/artifacts/5d", skip_cache=True),
    ]
    record = of(
        entries,
        description="d",
        metadata={"k": [1, None], "é": 2},
        aliases=["best", "latest"],
        tags=["t"],
        client_id="c",
        sequence_client_id="s",
        base_id="b",
        distributed_id="D",
        finalize=False,
        ttl_s=86400,
        incremental=True,
        user_created=True,
        use_after_commit=True,
    )
    assert (record.run_id, record.project, record.name, record.type) == ("abc", "p", "ds", "dataset")
    assert record.digest == manifest_digest(entries)
    assert record.digest_algorithm == "MANIFEST_MD5"
    assert json.loads(record.metadata) == {"k": [1, None], "é": 2}
    assert (list(record.aliases), list(record.tags)) == (["best", "latest"], ["t"])
    assert (record.client_id, record.sequence_client_id, record.base_id) == ("c", "s", "b")
    assert (record.distributed_id, record.finalize, record.ttl_duration_seconds) == ("D", False, 86400)
    assert record.incremental_beta1 and record.user_created and record.use_after_commit  # noqa: PT018 - three flags
    manifest = record.manifest
    assert (manifest.version, manifest.storage_policy) == (1, "wandb-storage-policy-v1")
    assert [(item.key, item.value_json) for item in manifest.storage_policy_config] == [("storageLayout", '"V2"')]
    file, reference = manifest.contents
    assert (file.path, file.digest, file.size, file.local_path, file.skip_cache) == (
        *entries[1][:3],
        entries[1].local_path,
        True,
    )
    assert (reference.ref, reference.digest, reference.size) == ("https://x/z", "https://x/z", 0)
    assert [(item.key, item.value_json) for item in reference.extra] == [("etag", '"1"')]


def test_ids_are_made_where_none_are_given():
    """128 characters of digits and small letters, and no seed brings one back."""
    random.seed(0)
    first = new_client_id()
    random.seed(0)
    assert len(first) == 128
    assert first.isalnum()
    assert first == first.lower() != new_client_id()
    record = of([])
    assert len(record.client_id) == len(record.sequence_client_id) == 128
    assert record.client_id != record.sequence_client_id


def test_a_large_manifest_lies_in_a_file():
    """The record then names the file only; each line of it is one content."""
    entries = [ManifestEntry("b", HELLO, size=5, local_path="/x"), ManifestEntry("a", "s3://y", ref="s3://y")]
    record = of(entries, manifest_file="/runs/artifacts/ff")
    assert record.manifest.manifest_file_path == "/runs/artifacts/ff"
    assert not record.manifest.contents
    assert record.digest == manifest_digest(entries)
    packed = manifest_lines(entries)
    assert packed == manifest_lines(reversed(entries))
    assert packed[4:8] == bytes(4)  # gzip's time of the file: none, or it would be another file each second
    assert [json.loads(line) for line in gzip.decompress(packed).splitlines()] == [
        {"path": "a", "digest": "s3://y", "ref": "s3://y"},
        {"path": "b", "digest": HELLO, "size": 5, "local_path": "/x"},
    ]


def test_internal_names():
    """What a key may have and a name may not is left out; the checksum tells such keys apart."""
    assert internal_name("run-abc-table") == "run-abc-table"
    assert internal_name("run-abc-a/b") == "run-abc-ab-N_kzww"
    assert internal_name("run-abc-a b") != internal_name("run-abc-a/b")


def test_text_that_is_no_unicode():
    """A lone surrogate in a name becomes U+FFFD: readers take no record with it."""
    record = of([ManifestEntry("x\udcff", HELLO)])
    assert record.manifest.contents[0].path == "x\ufffd"
