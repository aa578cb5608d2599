"""The same scripts by the peer and by us (`import runferry as wandb`): logs that say the same, read by both readers.

`TABLE` has each script with the differences that it shows; `DIFFERENCES` says what each of them is and why it may be.
A difference that no entry names fails, and so does an entry whose difference has gone.
"""

from __future__ import annotations

import re

import pytest
from runferry.logformat import load
from support import peer, reading
from support.state import ABSENT, Difference, compare

pytestmark = pytest.mark.peer

DIFFERENCES = {
    "a row behind": Difference(
        r"order|end steps|rows 3'",
        lambda ours, theirs: theirs == ABSENT or len(ours) == len(theirs) + 1,
        "a row with a lower step: the peer drops it, we keep it under its step",
    ),
    "a resumed run goes on": Difference(
        r"(order|end steps?|summary _step|run (last )?starting_step)( \d)?|rows \d",
        lambda ours, theirs: ABSENT in (ours, theirs) or ours > theirs,
        "a resumed run counts on from its earlier logs; the peer's begins at 0 and is counted anew by its sync",
    ),
    "resumed without a word": Difference(
        "run (last )?resume",
        lambda ours, theirs: (ours, theirs) in {(True, False), (True, ABSENT)},
        "resume=True marks the log, so that a sync puts it behind the earlier ones; the peer marks only what it names",
    ),
    "a child's rows": Difference(
        r"order|end steps?|rows 1 (child|after)|rows 2|summary (child|of the child|_step)",
        lambda ours, theirs: (
            ABSENT in (ours, theirs) or (ours, theirs) in ((1, 2), (["0", "1"], ["0", "1", "2"]), ([0, 1], [0, 1, 2]))
        ),
        "a run belongs to the process that began it; the peer takes rows of forked children, too",
    ),
    "a program from elsewhere": Difference(
        "artifacts 0 name",
        lambda ours, theirs: (ours, theirs) == ("source-peer", "source-peer-None"),
        "where the program lies elsewhere than the code, the peer names the code after its None",
    ),
    "a picture's step": Difference(
        r"(contents|files) media/images/later_\d+_.*|(rows 20|summary) later\.path",
        lambda ours, theirs: (
            ABSENT in (ours, theirs)
            or (ours[:24], theirs[:23]) == ("media/images/later_20_fc", "media/images/later_7_fc")
        ),
        "a medium's file is named by the row's step; the peer names it by its own count of rows",
    ),
    "a picture of floats": Difference(
        r"(contents|files) media/images/floats_2_\w+\.png|(rows 2|summary) floats\.(path|sha256|size)",
        lambda ours, theirs: ours != theirs,
        "floats that all lie in 0..1 are parts of the full brightness; the peer's picture of them is all but black",
    ),
    "a replaced config value": Difference(
        r"config (deep\.a\.b\.c|model\.width|model\.depth)",
        lambda ours, theirs: ours == ABSENT,
        "config.update replaces a dict in the user's hands; the peer's log merges it into the old one",
    ),
    "NaN in the config": Difference(
        "config nan",
        lambda ours, theirs: (ours, theirs) == ("NaN", None),
        "the peer's config turns NaN into null",
    ),
    "NaN in the summary": Difference(
        "summary not_finite",
        lambda ours, theirs: ours == "NaN" and theirs in {None, ABSENT},
        "the peer's summary turns a NaN that is set by hand into null",
    ),
    "siblings in the summary": Difference(
        r"summary (nest\.b\.c|tree\.x\.y)",
        lambda ours, theirs: theirs == ABSENT,
        "the peer's log loses what stood beside a value that is set inside an object of the summary",
    ),
    "a metric defined late": Difference(
        r"summary (plain|train\.layer0\.mean)\.min",
        lambda ours, theirs: ours > theirs,
        "a summary of a metric that was defined behind some rows begins there; the peer had counted them before",
    ),
    "a step nobody logged": Difference(
        "rows 0 global_step",
        lambda ours, theirs: (ours, theirs) == (ABSENT, 0),
        "where a step metric was never logged, the peer fills in a zero; we fill in what was logged, or nothing",
    ),
    "a time in UTC": Difference(
        "(rows 0|summary) time",
        lambda ours, theirs: ours.removesuffix("+00:00") == theirs.removesuffix("Z"),
        "ISO 8601 spells UTC in two ways; we take Python's",
    ),
    "a changed config": Difference(
        "config lr|(rows 0|summary) a changed config",
        lambda ours, theirs: (ours, theirs) in {(0.2, 0.1), (False, True)},
        "the peer refuses to change a config value without allow_val_change; we take it",
    ),
    "an update counted": reading.AN_UPDATE_COUNTED,
    "the open run counted": Difference(
        "features init_return_run",
        lambda ours, theirs: (ours, theirs) == (ABSENT, True),
        "the peer counts that init gave the open run",
    ),
    "a record of the machine": Difference(
        r"(contents|files) runferry-machine(_\w+)?\.json",
        lambda ours, theirs: ours != ABSENT and theirs == ABSENT,
        "what bounds and shapes the machine, beyond the log's own record, is a file of the run; the peer keeps none",
    ),
    "no wait": Difference(
        r"alerts 4 wait_\w+",
        lambda ours, theirs: ours in {0, ABSENT} and theirs in {60, "60000"},
        "the peer takes a wait of zero for its default of a minute",
    ),
}

TABLE: dict[str, set[str]] = {
    "again": {"a resumed run goes on", "resumed without a word"},
    "alerts": {"no wait"},
    "arrays": set(),
    "artifacts": set(),
    "at_once": {"an update counted"},
    "boards": set(),
    "config_edges": {"an update counted", "NaN in the config", "a replaced config value"},
    "config_forms": {"a replaced config value"},
    "console": {"a record of the machine"},
    "context": set(),
    "ctrl_c": set(),
    "described": {"an update counted"},
    "disabled": set(),
    "dryrun": set(),
    "edits": {
        "NaN in the config",
        "NaN in the summary",
        "a record of the machine",
        "a replaced config value",
        "siblings in the summary",
    },
    "environment": set(),
    "exception": set(),
    "exit_code": set(),
    "extremes": {"NaN in the config"},
    "forks": set(),
    "globs": set(),
    "histograms": set(),
    "identity": set(),
    "images": {"a picture of floats", "a picture's step"},
    "inherited": {"a child's rows"},
    "kinds": set(),
    "loggers": set(),
    "long": set(),
    "loop": set(),
    "media": set(),
    "metrics": {"a metric defined late"},
    "misuse": {"an update counted", "a changed config"},
    "module": set(),
    "nested": {"a metric defined late"},
    "pages": set(),
    "plots": set(),
    "recordings": set(),
    "references": set(),
    "resumed": {"a resumed run goes on"},
    "saves": set(),
    "scalars": {"a row behind"},
    "sequence": {"the open run counted"},
    "settings_object": set(),
    "source_code": {"a program from elsewhere"},
    "spawned": set(),
    "step_metrics": {"a step nobody logged"},
    "steps": set(),
    "summary_forms": {"siblings in the summary"},
    "tables": set(),
    "terminal": set(),
    "texts": {"an update counted"},
    "threads": {"an update counted"},
    "unfinished": set(),
    "values": {"a time in UTC"},
    "wide": set(),
}
"""Script -> the differences that it shows, each of them explained above."""


def allowed(kind):
    return {name: DIFFERENCES[name] for name in TABLE[kind]}


@pytest.mark.parametrize("kind", TABLE)
def test_both_logs_say_the_same_to_both_readers(ours, made, kind):
    """Config, summary, rows, metrics, files, artifacts, alerts, features, console and end, but for what is named."""
    named, other = reading.compared(ours(kind), made(kind), allowed(kind))

    assert ours(kind).stdout == made(kind).stdout
    assert other == [], "\n".join(other)
    assert named == TABLE[kind]


@pytest.mark.parametrize("kind", TABLE)
def test_all_that_a_log_needs_lies_in_its_directory(ours, kind):
    """Files and the contents of artifacts are there, whole and no links, so that the directory may be moved."""
    assert [stranger for log in ours(kind).logs for stranger in reading.strangers(log)] == []


def test_a_resumed_run_has_the_rows_of_the_peers_one_behind_the_other(ours, made):
    """But for its steps, which go on where the peer's begin again."""
    mine, theirs = ([row for log in run.logs for row in load(log).rows] for run in (ours("resumed"), made("resumed")))

    assert [row.pop("_step") for row in mine] == list(range(10))
    assert [row["loss"] for row in mine] == [row["loss"] for row in theirs]


def test_every_script_is_in_the_table():
    """But for those that use what only the peer has: forks, typed values, and one that is killed."""
    assert set(peer.KINDS) - set(TABLE) == {"forked", "killed", "typed"}


def test_every_difference_is_shown_by_a_script():
    """An entry that no script needs would hide something."""
    assert set().union(*TABLE.values()) == set(DIFFERENCES)


def test_every_difference_is_documented():
    """In the words that stand here, and no other."""
    page = (peer.ROOT / "docs" / "drop-in.md").read_text()
    (section,) = re.findall(r"^## In the log\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE))

    assert rows == {name: difference.reason for name, difference in DIFFERENCES.items()}


@pytest.mark.parametrize("page", ["README.md", "docs/drop-in.md"])
def test_the_number_of_scripts_is_told_as_it_is(page):
    """Wherever a page counts them."""
    assert re.findall(r"\b(\d+) scripts\b", (peer.ROOT / page).read_text()) == [str(len(TABLE))]


def test_the_comparison_sees_a_change_of_anything(ours):
    """Each part that it compares, changed in one place, is seen: the table proves something."""
    state = reading.by_us(ours("edits").log)
    for part, value in state.items():
        changed = state | {part: [*value, 1] if isinstance(value, list) else value | {"new": 1}}

        assert compare(state, state, allowed("edits")) == (set(), [])
        assert len(compare(state, changed, allowed("edits"))[1]) == 1, part
