"""Every kind of fault at every request of a run with rows, samples, console, files, an artifact and an alert.

After the fault the verdict and the exit code are right and nothing is marked that is not there; once the server is healthy,
another sync leaves exactly what a clean sync leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import messages
from runferry.sync import Report, Retryable, Verdict
from runferry.sync.transport import Answer, Request
from support import logs
from support.artifactlogs import artifact, entry, run_with
from support.syncrig import Rig, marker

BODY_BYTES = 2_000
CONTENTS = (b"first content\n", b"second content\n")
OPTIONAL = {"ServerFeaturesQuery", "RunResumeStatus"}
"""Questions that a server may decline: it is taken for one that has no such feature, or no such run."""
RUN_ENDS = {"UpsertBucket", "stream", "end"}
"""Requests without which nothing of a run gets on; all others fail one item."""


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    answer: Callable[[Rig], Answer | Exception]
    applied: bool = False
    """Whether the server had done what was asked."""
    passes: bool = True
    """Whether the same request gets through when it is sent again."""
    skips: frozenset[str] = field(default_factory=frozenset)
    """Operations for which it is no fault."""


def says(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Callable[[Rig], Answer]:
    return lambda _: Answer(status, headers or {}, body)


def breaks(message: str, seconds: float = 0.0) -> Callable[[Rig], Exception]:
    """A connection that ends without an answer, after some time."""

    def fail(rig: Rig) -> Exception:
        rig.clock.sleep(seconds)
        return Retryable(message)

    return fail


LIMITS = {
    "reset": {"RateLimit-Reset": "7"},
    "remaining": {"RateLimit-Limit": "10", "RateLimit-Remaining": "0", "RateLimit-Reset": "7"},
    "after": {"Retry-After": "3"},
    "date": {"Retry-After": "Mon, 21 Sep 2026 14:20:00 GMT"},
    "structured": {"RateLimit": '"default";r=0;t=7', "RateLimit-Policy": '"default";q=10;w=60'},
    "garbage": {"RateLimit-Reset": "soon", "Retry-After": "-1"},
    "bare": {},
}
FAULTS: dict[str, Fault] = {
    **{str(status): Fault(says(status, body=b"no"), passes=False) for status in (400, 403, 404, 409, 410, 422, 501)},
    "401": Fault(says(401, body=b"who are you"), passes=False),
    "413": Fault(says(413), passes=False),
    **{f"429 {name}": Fault(says(429, headers)) for name, headers in LIMITS.items()},
    **{str(status): Fault(says(status)) for status in (408, 425, 500, 502, 504)},
    "503": Fault(says(503, {"Retry-After": "2"})),
    "reset before": Fault(breaks("connection reset")),
    "reset after": Fault(breaks("connection reset"), applied=True),
    "hang": Fault(breaks("no answer in time", 60.0)),
    "hang after": Fault(breaks("no answer in time", 60.0), applied=True),
    "half an answer": Fault(says(200, body=b'{"data": {"up'), applied=True, skips=frozenset({"put"})),
    "an answer that is a page": Fault(says(200, body=b"<html>"), skips=frozenset({"put"})),
}


def make(folder: Path) -> Rig:
    """A rig with the run: some bodies of rows, samples and console lines, two files, an artifact of two contents, an alert."""
    folder.mkdir(exist_ok=True)
    rig = Rig(folder)
    log = run_with(
        rig,
        *(logs.output(f"line {number}\n", at=number) for number in range(20)),
        messages.Record(alert=messages.AlertRecord(title="Title", text="Body text", level="WARN")),
        artifact("ds", [entry("a.txt", CONTENTS[0]), entry("dir/b.txt", CONTENTS[1])]),
        logs.files_record("one.txt", "deep/two.txt"),
        contents=CONTENTS,
        rows=30,
    )
    for name in ("one.txt", "deep/two.txt"):
        path = log.parent / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    rig.settle(log)
    return rig


def state(rig: Rig) -> Any:
    """All that the server holds, in the form in which it compares."""
    backend = rig.backend
    run = backend.runs["a"]
    variables = {key: value for key, value in run.variables.items() if key != "id"}
    artifacts = Counter(
        (item.input["artifactCollectionName"], item.input["digest"], item.state, str(sorted(item.contents.items())))
        for item in backend.artifacts.values()
        if item.state == "COMMITTED"
    )
    return {
        **{name: run.stream(name) for name in run.lines},
        "summary": run.summary,
        "files": run.files,
        "uploaded": sorted(set(run.uploaded)),
        "end": (run.complete, run.exit_code),
        "variables": variables,
        "artifacts": artifacts,
        "blobs": backend.blobs,
    }


def sync(rig: Rig) -> Report:
    return rig.sync(body_bytes=BODY_BYTES, retry_for=600.0)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """The requests of a sync without faults, and what it leaves."""
    rig = make(tmp_path_factory.mktemp("clean"))
    report = sync(rig)
    assert [run.verdict for run in report.runs] == [Verdict.SYNCED]
    assert len(rig.backend.alerts) == 1
    return rig.backend.operations(), state(rig)


def strike(rig: Rig, fault: Fault, number: int) -> list[str]:
    """Let the fault happen to the request of that number; afterwards the list holds its operation."""
    struck: list[str] = []

    def at(now: int, operation: str, request: Request) -> Any:
        if now != number or operation in fault.skips:
            return None
        # The last body has no lines, so there is nothing to halve.
        struck.append("end" if operation == "stream" and b'"files"' not in request.body else operation)
        return fault.answer(rig)

    if fault.applied:
        rig.backend.after = at
    else:
        rig.backend.before = at
    return struck


def expected(fault: str, operation: str) -> tuple[Verdict, int]:
    """The verdict and exit code of a sync whose request of that operation met the fault, once."""
    if FAULTS[fault].passes or (fault == "413" and operation == "stream"):
        return Verdict.SYNCED, 0
    if operation == "put":
        # A signed URL that is refused is asked for anew, once, and a fault that happens once is over then.
        return (Verdict.SYNCED, 0) if fault in ("401", "403") else (Verdict.PARTIAL, 1)
    if fault == "401":
        return Verdict.FAILED, 2
    if operation in OPTIONAL and fault != "403":
        return Verdict.SYNCED, 0
    if operation == "UpsertBucket" and fault == "409":  # tried again: servers answer so while they make the run
        return Verdict.SYNCED, 0
    if operation in RUN_ENDS | OPTIONAL:
        return Verdict.FAILED, 1
    return Verdict.PARTIAL, 1


def check(folder: Path, name: str, number: int, clean: tuple[list[str], Any]) -> None:
    """One cell of the matrix."""
    rig = make(folder)
    log = next(rig.folder.glob("run-*/run-*.wandb"))
    struck = strike(rig, FAULTS[name], number)

    report = sync(rig)

    where = f"{name} at request {number} ({', '.join(struck) or 'none'})"
    if struck:
        verdict, code = expected(name, struck[0])
        said = rig.only(report)
        assert (said.verdict, report.exit_code) == (verdict, code), f"{where}: {said.reason}"
        assert marker(log).exists() == (verdict is Verdict.SYNCED), where
    rig.backend.before = rig.backend.after = lambda *_: None
    again = sync(rig)
    assert (rig.only(again).verdict, again.exit_code) == (Verdict.SYNCED, 0), f"{where}: {rig.only(again).reason}"
    assert marker(log).exists(), where
    assert state(rig) == clean[1], where
    twice = sum(count > 1 for (_, stream, _), count in rig.backend.written.items() if stream != "console")
    assert max(rig.backend.written.values()) <= 3, where
    assert twice <= max(Counter(body_of(rig)).values(), default=0), where
    may_repeat = FAULTS[name].applied and struck == ["NotifyScriptableRunAlert"]
    assert len(rig.backend.alerts) == 1 + may_repeat, where
    rig.backend.forget()
    sync(rig)
    assert rig.backend.requests == [], where


def body_of(rig: Rig) -> list[int]:
    """For each row and sample, which body it came with first: the largest group is the most that may come twice."""
    groups: list[int] = []
    for number, body in enumerate(rig.backend.bodies()):
        for part in body.get("files", {}).values():
            groups += [number] * len(part["content"])
    return groups


SOME = 11  # of so many cells, one is in the quick suite


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_some_requests_costs_nothing_in_the_end(tmp_path: Path, name: str, clean: Any) -> None:
    """A fixed sample of the matrix: verdict, exit code and marker are right, and the next sync completes the run."""
    place = list(FAULTS).index(name)
    for number in range(1, len(clean[0]) + 1):
        if (number + place) % SOME == 0:
            check(tmp_path / str(number), name, number, clean)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_any_request_costs_nothing_in_the_end(tmp_path: Path, name: str, clean: Any) -> None:
    """The whole matrix."""
    for number in range(1, len(clean[0]) + 1):
        check(tmp_path / str(number), name, number, clean)
