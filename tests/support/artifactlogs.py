"""Logs of runs with artifacts and alerts, record by record."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runferry.logformat import messages
from support import logs
from support.syncrig import Rig


def b64md5(data: bytes) -> str:
    """A digest as manifests have it."""
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def entry(path: str, data: bytes | None = None, **fields: Any) -> Any:
    """An entry of a manifest; `data` gives digest and size unless `fields` do."""
    given = {"digest": b64md5(data), "size": len(data)} if data is not None else {}
    return messages.ArtifactManifestEntry(path=path, **{**given, **fields})


def artifact(name: str, entries: Iterable[Any], **fields: Any) -> Any:
    """An artifact record that is whole and an output, unless `fields` say otherwise."""
    listed = sorted(entries, key=lambda item: item.path)
    lines = "".join(f"{item.path}:{item.digest}\n" for item in listed)
    digest = hashlib.md5(f"wandb-artifact-manifest-v1\n{lines}".encode()).hexdigest()
    manifest = messages.ArtifactManifest(
        version=1,
        storage_policy="wandb-storage-policy-v1",
        storage_policy_config=[messages.ManifestItem(key="storageLayout", value_json='"V2"')],
        contents=listed,
    )
    given = {
        "name": name,
        "type": "dataset",
        "digest": digest,
        "client_id": f"client-{name}-{digest}",
        "sequence_client_id": f"sequence-{name}",
        "aliases": ["latest"],
        "finalize": True,
        "manifest": manifest,
        "digest_algorithm": "MANIFEST_MD5",
    }
    return messages.Record(artifact=messages.ArtifactRecord(**{**given, **fields}))


def large(name: str, entries: Iterable[Any], path: Path, **fields: Any) -> Any:
    """An artifact record whose contents are listed in the file `path`, which is written."""
    record = artifact(name, entries, **fields)
    keys = ("path", "digest", "size", "ref", "local_path")
    lines = [
        {key: getattr(item, key) for key in keys if getattr(item, key)} for item in record.artifact.manifest.contents
    ]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    del record.artifact.manifest.contents[:]
    record.artifact.manifest.manifest_file_path = str(path)
    return record


def run_with(rig: Rig, *records: Any, contents: Iterable[bytes] = (), run_id: str = "a", **fields: Any) -> Path:
    """A settled run whose log has these records behind its rows; `contents` lie where our writer puts them."""
    log = rig.folder / f"run-20260921_141320-{run_id}" / f"run-{run_id}.wandb"
    ordinary = logs.simple_records(run_id, **fields)
    logs.make_log(log, *ordinary[:-1], *records, ordinary[-1])
    (log.parent / "files").mkdir(exist_ok=True)
    (log.parent / "artifacts").mkdir(exist_ok=True)
    for data in contents:
        (log.parent / "artifacts" / hashlib.md5(data).hexdigest()).write_bytes(data)
    rig.settle(log)
    return log


def simple(name: str, files: Mapping[str, bytes], **fields: Any) -> Any:
    """An artifact record of files."""
    return artifact(name, [entry(path, data) for path, data in files.items()], **fields)


def alert(title: str, level: str = "WARN", wait_ms: int = 60_000) -> Any:
    """An alert record."""
    return messages.Record(
        alert=messages.AlertRecord(title=title, text=f"about {title}", level=level, wait_duration=wait_ms)
    )
