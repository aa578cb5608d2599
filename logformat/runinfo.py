"""What the run records of a log say of their run: who it is, where it belongs, when and from where it began."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .elapsed import nanoseconds

_NODE = ".node"  # behind our version, as a header names its writer


def node_version(version: str) -> str:
    """What a header says behind `+` for a log of a further node of a run, in place of our version."""
    return version + _NODE


def is_node(header: Any) -> bool:
    """Whether a HeaderRecord begins the log of a further node of a run.

    Such a log goes beside those of the first node, which it may have begun after and outlive: it has samples and console
    lines, and says nothing of the run's rows, time and end. Only our writer says so.
    """
    producer = header.version_info.producer
    return "+runferry." in producer and producer.endswith(_NODE)


def turn_of(start_ns: int, starts: Collection[int], *, of_node: bool) -> tuple[int, bool, int]:
    """What the logs of one run are sorted by: their start; that of a node before the first node's that began next to it.

    Nodes of one attempt begin together, to the seconds that a launcher and their clocks take. So before a node's log stands
    what the run had taken when the attempt began, and last always stands a log that says how the run ends.

    Args:
        start_ns: of the log, nanoseconds since the epoch.
        starts: of the logs of the run that are of first nodes.
        of_node: whether the log is of a further node.
    """
    if not of_node or not starts:
        return start_ns, True, start_ns
    return min(starts, key=lambda start: abs(start - start_ns)), False, start_ns


@dataclass(slots=True)
class RunInfo:
    """What the run records say; a later record changes the fields that it sets."""

    run_id: str = ""
    entity: str = ""
    project: str = ""
    display_name: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    group: str = ""
    job_type: str = ""
    host: str = ""
    sweep_id: str = ""
    git_remote: str = ""
    git_commit: str = ""
    start_time_ns: int = 0
    """Nanoseconds since the epoch, of the first record that has it; 0 if the log does not say."""
    starting_step: int = 0
    resume: bool = False
    branch_run: str = ""
    branch_step: int | None = None

    def take(self, run: Any) -> None:
        """Take what a RunRecord sets."""
        for ours, theirs in (
            ("run_id", run.run_id),
            ("entity", run.entity),
            ("project", run.project),
            ("display_name", run.display_name),
            ("notes", run.notes),
            ("group", run.run_group),
            ("job_type", run.job_type),
            ("host", run.host),
            ("sweep_id", run.sweep_id),
            ("git_remote", run.git.remote_url),
            ("git_commit", run.git.commit),
            ("start_time_ns", nanoseconds(run.start_time)),
            ("starting_step", run.starting_step),
            ("resume", run.resume),
            ("branch_run", run.branch_point.run),
        ):
            if theirs and (ours != "start_time_ns" or not self.start_time_ns):
                setattr(self, ours, theirs)
        if run.tags:
            self.tags = list(run.tags)
        if run.HasField("branch_point"):
            step = run.branch_point.value
            self.branch_step = int(step) if math.isfinite(step) else None
