"""A run, or several side by side, as one HTML page that needs nothing else: no network, no script, no other file.

Charts are inline SVG, styles are in the page, and a content security policy forbids all else. Whatever a log holds is text:
nothing of it becomes markup, and long things are cut where the page says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..logformat import RunState
from ..logformat.record import Gap
from ..logformat.terminal import plain as without_colours
from ..logformat.words import counted
from .chart_axis import short
from .contents import WHATS
from .markup import text
from .report_charts import Room, grouped, metric_cards, system_cards
from .report_media import picture
from .report_parts import duration, facts, fold, grid, leaves, moment, note, plain, section, table
from .report_series import natural
from .report_style import PAGE_CSS
from .selection import Selection

_STATES = frozenset({"finished", "failed", "crashed", "running", "continued", "ended", "unknown"})
_PLACES = 200
"""Damaged places that are listed."""
_ANCHOR = re.compile('<section id="([a-z]+)"')
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Limits:
    """How much of what may stand in a page."""

    charts: int = 3_000_000
    """Bytes of all charts together. A chart takes up to 40,000, however long it is."""
    table: int = 1_000
    """Rows of a table."""
    console_lines: int = 400
    console: int = 120_000
    """Characters of the console's last lines."""
    picture: int = 64_000
    """Bytes of one picture's file; larger ones are only named."""
    pictures: int = 400_000
    """Bytes of all pictures together."""


@dataclass(frozen=True)
class Source:
    """Where a run was read from, and what only its reader knows."""

    logs: tuple[str, ...] = ()
    """What its logs are called."""
    status: str = ""
    """How it ended, if its reader knows more than the logs say: `crashed`, `running`."""
    folders: tuple[Path, ...] = ()
    """Run directories, in which the files are that it logged."""
    gap_logs: tuple[str, ...] = ()
    """The log of each of `RunState.gaps`, where there are several logs."""


_NOTHING, _EVERYTHING, _USUAL = Source(), Selection(), Limits()


def render(
    state: RunState,
    source: Source = _NOTHING,
    *,
    whats: Sequence[str] = WHATS,
    selection: Selection = _EVERYTHING,
    limits: Limits = _USUAL,
) -> str:
    """The page of one run, whose rows were kept. The same run gives the same page.

    Args:
        state: the run.
        source: what is known besides.
        whats: which of `WHATS` it shows. Damage is always told.
        selection: which metrics have charts, and the steps that these show.
        limits: how much of what.
    """
    room = Room(limits.charts)
    made: tuple[tuple[str, Callable[[], str]], ...] = (
        ("alerts", lambda: _alerts(state)),
        ("run", lambda: _notes(state)),
        ("rows", lambda: _metrics(state, selection, room) + _pictures(state, source, limits)),
        ("samples", lambda: _system(state, selection, room)),
        ("summary", lambda: _tree("summary", "Summary", state.summary, limits)),
        ("config", lambda: _tree("config", "Config", state.config, limits)),
        ("run", lambda: _environments(state, limits)),
        ("console", lambda: _console(state, limits)),
        ("files", lambda: _files(state, limits)),
    )
    sections = [_damage(state, source), *(make() for what, make in made if what in whats), room.said()]
    return page(_name(state, source), _head(state, source), sections)


def page(title: str, head: str, sections: Sequence[str]) -> str:
    """A whole page; `title` is text, the rest is HTML."""
    body = head + _links(sections) + "".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{text(title, 200)}</title><style>{PAGE_CSS}</style></head>\n<body><main>{body}"
        "<footer>Written by runferry export. Numbers at charts have six digits, those in tables all; charts keep the first, least, greatest and last"
        " value of each column of pixels.</footer></main></body></html>\n"
    )


def _name(state: RunState, source: Source) -> str:
    info = state.info
    return info.display_name or info.run_id or (source.logs[-1] if source.logs else "a run")


def status_of(state: RunState, source: Source) -> str:
    """How the run ended, in a word."""
    said = state.status(age=0.0)
    if said != "running":
        return said
    return source.status if source.status in _STATES else "no exit record"


def _head(state: RunState, source: Source) -> str:
    info = state.info
    status = status_of(state, source)
    tags = "".join(f' <span class="tag">{text(tag, 100)}</span>' for tag in info.tags[:50])
    badge = f'<span class="badge {status if status in _STATES else ""}">{text(status)}</span>'
    code = "" if state.exit_code in {0, None} else str(state.exit_code)
    last = "" if state.last_step is None else f"{state.last_step:,}"
    pairs = (
        ("run", info.run_id if info.display_name else ""),
        ("project", "/".join(part for part in (info.entity, info.project) if part)),
        ("group", info.group),
        ("job type", info.job_type),
        ("sweep", info.sweep_id),
        ("host", info.host),
        ("started", moment(info.start_time_ns)),
        ("ran", duration(state.runtime)),
        ("exit code", code),
        ("rows", f"{state.row_count:,}"),
        ("rows left out", f"{state.cut_count:,}, whose steps another log has as well" if state.cut_count else ""),
        ("last step", last),
        ("flipped bits mended", str(len(state.healed) or "")),
        ("resumed from", f"{info.branch_run} at step {info.branch_step}" if info.branch_run else ""),
        ("git", info.git_commit[:12]),
        ("log" if len(source.logs) < 2 else "logs", ", ".join(source.logs[:20])),
    )
    return f'<header><div class="title"><h1>{text(_name(state, source), 300)}</h1>{badge}{tags}</div>{facts(pairs)}</header>'


def _links(sections: Iterable[str]) -> str:
    """Links to the sections that there are. Text of a log has no `<`."""
    anchors = (anchor for part in sections for anchor in _ANCHOR.findall(part))
    links = [f'<a href="#{anchor}">{anchor.capitalize()}</a>' for anchor in anchors]
    return f'<nav aria-label="Parts of this page">{"".join(links)}</nav>' if len(links) > 1 else ""


# -- damage, alerts --------------------------------------------------------------------------------------------------


def _damage(state: RunState, source: Source) -> str:
    """What could not be read, and what is missing by that."""
    parts = []
    if not state.has_run:
        parts.append("There is no run record: nobody can tell which run this is.")
    damage = state.damage
    if damage:
        lost = state.records_lost
        known = "an unknown number of records" if lost is None else counted(lost, "record")
        size = sum(gap.length for gap in damage)
        parts.append(f"{counted(len(damage), 'place')} of the log could not be read: {size:,} bytes, {known} lost.")
    elif state.gaps:
        parts.append(
            f"The log ends inside a record: its last {state.gaps[-1].length:,} bytes hold nothing that is whole."
        )
    if state.bad_records:
        parts.append(f"{counted(state.bad_records, 'record')} could not be understood.")
    lost_values = state.lost()
    broken = [f"{kind}: {'.'.join(path)}" for kind, paths in lost_values.items() for path in islice(paths, 20)]
    if broken:
        parts.append(f"Values that are no JSON: {', '.join(broken)}.")
    if not parts:
        return ""
    logs = source.gap_logs if len(source.gap_logs) == len(state.gaps) else ()
    rows = [
        (*([text(logs[at], 300)] if logs else []), *_gap(state, gap, state.gap_rows[at]))
        for at, gap in enumerate(state.gaps[:_PLACES])
    ]
    heads = (*(["log"] if logs else []), "bytes", "reason", "records lost", "between the steps")
    places = grid(heads, rows) if damage else ""
    if len(state.gaps) > len(rows):
        places += note(f"{counted(len(state.gaps) - len(rows), 'more place')} left out here")
    said = "".join(f"<p>{text(part, 4_000)}</p>" for part in parts)
    return section("damage", "Damage", f'<div class="card box damage" role="note">{said}{fold("Where", places)}</div>')


def _gap(state: RunState, gap: Gap, row: int) -> tuple[str, ...]:
    before = _step(state, row - 1)
    behind = _step(state, row)
    lost = "unknown" if gap.records_lost is None else str(gap.records_lost)
    reason = f"{gap.reason.value}{f': {gap.note}' if gap.note else ''}"
    return (
        f"{gap.offset:,} to {gap.end:,}",
        text(reason, 300),
        lost,
        f"{before or 'the beginning'} and {behind or 'the end'}",
    )


def _step(state: RunState, row: int) -> str:
    if not 0 <= row < len(state.rows):
        return ""
    try:
        step = state.rows.column("_step").get(row)
    except KeyError:
        step = None
    return short(step) if isinstance(step, (int, float)) and not isinstance(step, bool) else f"row {row}"


def _notes(state: RunState) -> str:
    notes = state.info.notes
    return section("notes", "Notes", f'<div class="card box">{text(notes, 20_000)}</div>' if notes else "")


def _alerts(state: RunState) -> str:
    shown = "".join(
        f'<div class="card box alert"><b>{text(alert.level, 20)} {text(alert.title, 500)}</b>\n{text(alert.text, 4_000)}</div>'
        for alert in state.alerts[:100]
    )
    more = note(f"{len(state.alerts) - 100} more left out here") if len(state.alerts) > 100 else ""
    return section("alerts", "Alerts", shown + more)


# -- charts, pictures ------------------------------------------------------------------------------------------------


def _metrics(state: RunState, selection: Selection, room: Room) -> str:
    body = grouped(metric_cards(state, selection, room))
    return section(
        "metrics",
        "Metrics",
        body or note("No metric was logged more than once." if len(state.rows) else "No row was logged."),
    )


def _system(state: RunState, selection: Selection, room: Room) -> str:
    cards, own = system_cards(state, selection, room)
    body = f'<div class="charts">{"".join(cards)}</div>' if cards else ""
    body += fold("The sampler itself", f'<div class="charts">{"".join(own)}</div>' if own else "")
    return section("system", "System", body)


def _pictures(state: RunState, source: Source, limits: Limits) -> str:
    """The latest picture of each key; those for which there is no room, or no file, are named."""
    left, shown, named = limits.pictures, [], []
    for column in state.rows.columns:
        if column.kind != "json" or not len(column):
            continue
        value = column.slice(len(column) - 1, len(column))[0]
        for path, caption in islice(_images(value), 8):
            address = picture(source.folders, path, min(limits.picture, left)) if left > 0 else None
            if address is None:
                named.append(f"{column.name}: {path}")
                continue
            left -= len(address)
            about = f"{text(column.name, 200)}{f': {text(caption, 300)}' if caption else ''}"
            shown.append(f'<figure class="card"><img alt="{about}" src="{address}"><p>{about}</p></figure>')
    body = f'<div class="pictures">{"".join(shown)}</div>' if shown else ""
    if named:
        listed = ", ".join(named[:40]) + (", …" if len(named) > 40 else "")
        body += note(f"Not in this page (too large, not at hand, or no PNG, JPEG, GIF or WebP): {listed[:8_000]}")
    return section("pictures", "Pictures", body, "the latest of each key")


def _images(value: Any) -> Iterable[tuple[str, str]]:
    """Paths and captions of an image, or of a list of them."""
    if not isinstance(value, dict):
        return
    if value.get("_type") == "image-file" and isinstance(value.get("path"), str):
        yield value["path"], str(value.get("caption") or "")
    elif value.get("_type") == "images/separated" and isinstance(value.get("filenames"), list):
        captions = value.get("captions")
        for number, name in enumerate(value["filenames"]):
            if isinstance(name, str):
                yield name, str(captions[number]) if isinstance(captions, list) and number < len(captions) else ""


# -- tables, console, files ------------------------------------------------------------------------------------------


def _tree(anchor: str, title: str, tree: Mapping[str, Any], limits: Limits) -> str:
    """Nested values under dotted names."""
    shown = {key: value for key, value in tree.items() if key != "_wandb"}
    return section(anchor, title, table(sorted(leaves(shown), key=_by_name), limits.table))


def _environments(state: RunState, limits: Limits) -> str:
    """What the run ran on; a run that was resumed has an environment for each log."""
    parts = []
    for number, environment in enumerate(islice(state.environments.values(), 20), 1):
        shown = {key: value for key, value in plain(environment).items() if key != "writer_id"}
        title = "What it ran on" if len(state.environments) == 1 else f"What it ran on, {number}"
        parts.append(fold(title, table(leaves(shown), limits.table)))
    return section("environment", "Environment", "".join(parts))


def _by_name(leaf: tuple[str, Any]) -> tuple[bool, list[tuple[int, str]]]:
    return leaf[0].startswith("_"), natural(leaf[0])


def _console(state: RunState, limits: Limits) -> str:
    lines = [*state.console[-limits.console_lines :], *state.console_rest]
    total = state.console_count + len(state.console_rest)
    shown: list[str] = []
    left = limits.console
    for line in reversed(lines[-limits.console_lines :]):
        said = without_colours(line.text)
        left -= min(len(said), 2_000) + 10
        if left < 0:
            break
        clock = moment(line.timestamp_ns)[11:19]
        mark = "<i>stderr </i>" if line.stream == "stderr" else ""
        shown.append(f"<time>{clock} </time>{mark}{text(said, 2_000)}\n")
    if not shown:
        return ""
    about = f"the last {len(shown):,} of {total:,} lines" if len(shown) < total else counted(total, "line")
    return section(
        "console",
        "Console",
        fold(about, f'<div class="scroll" tabindex="0"><pre class="console">{"".join(reversed(shown))}</pre></div>'),
    )


def _files(state: RunState, limits: Limits) -> str:
    body = (
        fold(counted(len(state.files), "file"), table(state.files.items(), limits.table, ("file", "sent")))
        if state.files
        else ""
    )
    rows = [
        (
            text(artifact.name, 300),
            text(artifact.type, 100),
            text(", ".join(artifact.aliases), 300),
            f"{len(artifact.manifest.contents):,}",
            f"{sum(entry.size for entry in artifact.manifest.contents):,}",
        )
        for artifact in state.artifacts[: limits.table]
    ]
    rows += [
        (text(used.name or used.id, 300), text(used.type, 100), "used", "", "")
        for used in state.used_artifacts[: limits.table]
    ]
    return section("files", "Files", body) + section(
        "artifacts", "Artifacts", grid(("name", "type", "aliases", "files", "bytes"), rows)
    )
