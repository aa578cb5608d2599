"""The page of a run: what it says is what the log holds, it needs nothing, and nothing of a log is more than text in it."""

from __future__ import annotations

import base64
import math
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import runferry
from runferry.export import Options, export
from runferry.export.markup import text
from runferry.export.report import Limits, Source, render
from runferry.export.report_charts import curves
from runferry.export.report_compare import render_comparison
from runferry.export.report_media import picture
from runferry.export.report_series import pauses, sample_groups
from runferry.export.report_units import scaled, unit_of
from runferry.export.selection import Selection
from runferry.logformat import RunState, messages, read_records
from support import logs
from support.htmlpage import Page

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> javascript:alert(1) \x1b[31m\u202egnp\x00"
TAGS = set(
    re.findall(
        r"\w+",
        "html head meta title style body main header h1 h2 h3 span b ul li nav a section div p figure figcaption svg path text rect "
        "circle data details summary table thead tbody tr th td code pre time i img footer",
    )
)
"""All that pages are made of."""
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


def log_of(tmp_path, *records, name="r1"):
    return logs.make_log(tmp_path / f"run-20260921_141320-{name}" / f"run-{name}.wandb", *records)


def state_of(tmp_path, *records):
    head = (logs.header_record(), logs.run_record("r1", config={"lr": 0.001, "model": {"layers": 3}}))
    return runferry.load(log_of(tmp_path, *head, *records))


def page_of(tmp_path, *records, **options):
    return Page(render(state_of(tmp_path, *records), **options))


def metric(**fields):
    return messages.Record(metric=messages.MetricRecord(**fields))


def charts(page):
    """What each chart is called, to its description."""
    return {found["aria-label"].partition(":")[0]: found["aria-label"] for found in page.having("svg")}


def described(text):
    """A chart's numbers as its description has them."""
    count, low, high = re.search(r": ([\d,]+) values by .*?, from (\S+) to (\S+?)(?: |,|$)", text).groups()
    return int(count.replace(",", "")), float(low.replace(",", "")), float(high.replace(",", ""))


# -- what it says ----------------------------------------------------------------------------------------------------


def test_the_page_says_what_the_state_holds(tmp_path):
    """Name, times, config, summary, console, alerts, files and artifacts stand in the page, values exact."""
    log = logs.simple_run(tmp_path, rows=50, display_name="my run", notes="a\nb", tags=["t1", "t2"])
    artifact = messages.ArtifactRecord(name="weights", type="model", aliases=["best"])
    alert = messages.Record(alert=messages.AlertRecord(title="High", text="too high", level="WARN"))
    logs.make_log(log, logs.files_record("a.txt"), messages.Record(artifact=artifact), alert, append=True)
    state = runferry.load(log)
    html = render(state, Source(("my.wandb",)))
    page = Page(html)
    for said in (
        "my run",
        "finished",
        "t1",
        "a\nb",
        "2026-09-21 14:13:20 UTC",
        "my.wandb",
        "step 49",
        "weights",
        "best",
        "a.txt",
        "too high",
    ):
        assert said in page.text, said
    assert {float(found["value"]) for found in page.having("data")} == {state.rows[-1]["loss"]}
    for value in (0.001, 3, 0.25, state.summary["loss"], state.summary["_timestamp"]):
        assert f"<td>{value!r}</td>" in html
    assert described(charts(page)["loss"]) == (50, pytest.approx(1 / 50), 1.0)
    assert "cpu" in charts(page)
    assert page.leads_out() == []


def test_the_same_run_gives_the_same_page(tmp_path):
    """No clock and no chance is in the page."""
    log = logs.simple_run(tmp_path)
    assert render(runferry.load(log)) == render(runferry.load(log))


def test_metrics_are_grouped_by_their_prefixes_in_natural_order(tmp_path):
    """Cards stand below their prefix, those alone in theirs at the top, and 2 stands before 10."""
    keys = ["train/b", "train/a", "lr", "val/x", "layer10", "layer2"]
    page = page_of(tmp_path, *[logs.row(step, dict.fromkeys(keys, step)) for step in range(3)])
    assert list(charts(page)) == ["layer2", "layer10", "lr", "val/x", "train/a", "train/b"]


def test_hidden_metrics_and_step_metrics_are_honoured(tmp_path):
    """A hidden metric has no chart; one with a step metric goes by that, nested names and globs included."""
    definitions = [
        metric(name="secret", options=messages.MetricOptions(hidden=True)),
        metric(glob_name="val/*", step_metric="epoch"),
        metric(name="deep.loss", step_metric="epoch"),
        metric(name="odd", step_metric="never logged"),
    ]
    rows = [
        logs.row(step, {"secret": 1, "val/loss": step, ("deep", "loss"): step, "odd": step, "epoch": step // 10})
        for step in range(30)
    ]
    shown = charts(page_of(tmp_path, *definitions, *rows))
    by = {name: re.search("values by ([^,]+)", said)[1] for name, said in shown.items()}
    assert by == {"val/loss": "epoch", "deep.loss": "epoch", "epoch": "step", "odd": "step"}


def test_values_without_the_step_metric_are_counted_not_drawn(tmp_path):
    """Where the row lacks the metric that a chart goes by, the page says how many values are missing in it."""
    rows = [logs.row(step, {"loss": step, **({"epoch": step} if step % 2 else {})}) for step in range(10)]
    page = page_of(tmp_path, metric(name="loss", step_metric="epoch"), *rows)
    assert "5 values without epoch not drawn" in page.text
    assert "min 0 · max 9 at 9" in page.text


def test_only_numbers_have_charts(tmp_path):
    """Texts, nulls and objects among numbers are no points; a key that was logged once is in the summary only."""
    values = [1, "two", None, 3.5, {"four": 4}, [5], True, 6]
    rows = [
        logs.row(step, {"mixed": value, "text": "a", **({"once": 1} if not step else {})})
        for step, value in enumerate(values)
    ]
    page = page_of(tmp_path, *rows)
    assert described(charts(page)["mixed"]) == (3, 1.0, 6.0)
    assert {"text", "once"}.isdisjoint(charts(page))


def test_nan_and_infinity_are_told(tmp_path):
    """The page says how many values are no finite numbers, and where the first one is."""
    values = [b"1.0", b"NaN", b"2.0", b"Infinity", b"NaN"]
    page = page_of(tmp_path, *[logs.row(step * 10, {"a": value}) for step, value in enumerate(values)])
    assert "2 NaN, the first at 10" in page.text
    assert "1 infinite, the first at 30" in page.text
    assert "NaN" in page.text


def test_selected_keys_and_steps_only(tmp_path):
    """`--keys` and `--steps` choose charts and what these show."""
    state = state_of(tmp_path, *[logs.row(step, {"a": step, "b": step}) for step in range(100)])
    page = Page(render(state, selection=Selection(("a",), 10, 20)))
    assert {name: described(said) for name, said in charts(page).items()} == {"a": (10, 10.0, 19.0)}


def test_only_what_is_asked_for_is_in_the_page(tmp_path):
    """Parts that are not wanted are left out."""
    log = logs.simple_run(tmp_path, rows=5)
    page = Page(render(runferry.load(log), whats=("config",)))
    assert [found["id"] for found in page.having("section")] == ["config"]


# -- damage ----------------------------------------------------------------------------------------------------------


def damaged_state(tmp_path):
    """A log of 2,000 rows with 300 bytes of garbage in the middle."""
    log = log_of(tmp_path, logs.header_record(), logs.run_record("r1"), *[logs.row(step) for step in range(2000)])
    content = bytearray(log.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = b"\x55" * 300
    log.write_bytes(content)
    return runferry.load(log)


def test_damage_is_told_and_shaded_and_not_drawn_over(tmp_path):
    """The page names the bytes and the steps around them, the band lies between these, and the line ends there."""
    state = damaged_state(tmp_path)
    steps = [row["_step"] for row in state.rows]
    before, behind = next((one, two) for one, two in pairwise(steps) if two - one > 1)
    html = render(state)
    page = Page(html)
    assert f"{len(state.gaps)} place" in page.text
    assert f"the log is damaged between {before:,} and {behind:,}" in page.text
    assert f"{before:,} and {behind:,}" in page.text
    assert f"{state.gaps[0].offset:,} to {state.gaps[0].end:,}" in page.text
    assert re.search(r'<path class="c0 d0" d="([^"]+)"', html)[1].count("M") == 2


def test_gaps_know_their_rows_however_the_log_is_read(tmp_path):
    """Record by record or in batches, a gap is known to lie before the same row."""
    state = damaged_state(tmp_path)
    again = RunState().add_all(read_records(next(tmp_path.glob("*/*.wandb"))))
    assert state.gap_rows == again.gap_rows
    steps = [row["_step"] for row in state.rows]
    assert [steps[row] - steps[row - 1] > 1 for row in {*state.gap_rows}] == [True] * len({*state.gap_rows})


def test_a_log_that_ends_in_a_record_is_no_damage(tmp_path):
    """A torn tail is said to be one; no band is drawn."""
    log = log_of(tmp_path, logs.header_record(), logs.run_record("r1"), *[logs.row(step) for step in range(20)])
    log.write_bytes(log.read_bytes()[:-5])
    page = Page(render(runferry.load(log)))
    assert "ends inside a record" in page.text
    assert "no exit record" in page.text
    assert page.having("rect") == []


@pytest.mark.parametrize("content", [b"", b"garbage" * 20], ids=["empty", "no log"])
def test_a_file_that_holds_no_run_still_has_a_page(tmp_path, content):
    """Nothing to show is said, not raised."""
    log = log_of(tmp_path)
    log.write_bytes(content)
    page = Page(render(runferry.load(log)))
    assert "no run record" in page.text
    assert "No row was logged." in page.text


# -- untrusted -------------------------------------------------------------------------------------------------------


def test_nothing_of_a_log_becomes_markup(tmp_path):
    """A log in which every text is hostile makes a page of text: no tag, attribute, address or control of it."""
    log = log_of(
        tmp_path,
        logs.header_record(),
        logs.run_record(
            "r1",
            project=HOSTILE,
            entity=HOSTILE,
            display_name=HOSTILE,
            notes=HOSTILE,
            run_group=HOSTILE,
            job_type=HOSTILE,
            host=HOSTILE,
            sweep_id=HOSTILE,
            tags=[HOSTILE],
            config={HOSTILE: HOSTILE, "list": [HOSTILE], "t": {"_type": HOSTILE, "path": HOSTILE}},
        ),
        logs.environment_record(program=HOSTILE, args=[HOSTILE], username=HOSTILE),
        metric(name="m", step_metric=HOSTILE),
        *[
            logs.row(step, {HOSTILE: step, f"{HOSTILE}/x": step, (HOSTILE, HOSTILE): step, "m": step, "text": HOSTILE})
            for step in range(3)
        ],
        *[
            logs.row(step, {f"h{HOSTILE}": {"_type": "histogram", "bins": [0, 1], "values": [1]}})
            for step in range(3, 6)
        ],
        logs.row(7, {f"i{HOSTILE}": {"_type": "image-file", "path": HOSTILE, "caption": HOSTILE}}),
        *[
            logs.sample(at, {HOSTILE: at, f"gpu.0.gpu/l:{HOSTILE}": at, f"gpu.1.gpu/l:{HOSTILE}": at})
            for at in range(3)
        ],
        logs.output(f"{HOSTILE}\n"),
        logs.output(f"{HOSTILE}\n", stderr=True),
        logs.summary_record({HOSTILE: HOSTILE}),
        logs.files_record(HOSTILE),
        messages.Record(alert=messages.AlertRecord(title=HOSTILE, text=HOSTILE, level=HOSTILE)),
        messages.Record(artifact=messages.ArtifactRecord(name=HOSTILE, type=HOSTILE, aliases=[HOSTILE])),
        messages.Record(use_artifact=messages.UseArtifactRecord(name=HOSTILE, type=HOSTILE)),
    )
    state = runferry.load(log)
    for html in (
        render(state, Source((HOSTILE,), folders=(log.parent,))),
        render_comparison([(state, Source((HOSTILE,)))] * 2),
    ):
        page = Page(html)
        assert page.leads_out() == []
        assert {tag for tag, _ in page.tags} <= TAGS
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
        assert "\\u202e" in page.text
        assert "<script>alert(1)</script>" in page.text  # as text


def test_lone_surrogates_can_be_written(tmp_path):
    """A JSON text may hold half a character; the page is UTF-8 all the same."""
    page = render(state_of(tmp_path, logs.row(0, {"a": b'"\\ud800"'}), logs.summary_record({"b": b'"x\\udfffy"'})))
    assert page.encode()


def test_the_policy_forbids_all_that_the_page_does_not_need(tmp_path):
    """The page's own policy allows inline style and embedded pictures, and nothing else."""
    page = page_of(tmp_path)
    policy = next(
        found["content"] for found in page.having("meta") if found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


# -- pictures --------------------------------------------------------------------------------------------------------


def files_of(tmp_path):
    folder = tmp_path / "run-x-r1"
    (folder / "files" / "media").mkdir(parents=True)
    (folder / "files" / "media" / "a.png").write_bytes(PNG)
    return folder


def test_a_small_picture_stands_in_the_page(tmp_path):
    """The latest picture of a key is embedded; one that is too large, or not there, is named."""
    folder = files_of(tmp_path)
    (folder / "files" / "media" / "b.png").write_bytes(PNG + b"\0" * 100_000)
    rows = [logs.row(0, {key: {"_type": "image-file", "path": f"media/{key}.png", "caption": "c"} for key in "abc"})]
    page = page_of(tmp_path, *rows, source=Source(folders=(folder,)))
    assert [base64.b64decode(found["src"].partition(",")[2]) for found in page.having("img")] == [PNG]
    assert "b: media/b.png, c: media/c.png" in page.text


def test_pictures_together_have_a_cap(tmp_path):
    """Where the page has no room for more pictures, the others are named."""
    folder = files_of(tmp_path)
    rows = [logs.row(0, {f"k{at}": {"_type": "image-file", "path": "media/a.png"} for at in range(9)})]
    page = page_of(tmp_path, *rows, source=Source(folders=(folder,)), limits=Limits(pictures=300))
    assert 0 < len(page.having("img")) < 9
    assert "k8: media/a.png" in page.text


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "media/../../secret.png", "/etc/passwd", "media//a.png", "", ".", "media", "media/link.png",
     "dirlink/a.png", "media/a.png\0", "C:\\a.png", "media/pipe.png", "media/text.png", "media/vector.svg"],
)  # fmt: skip
def test_only_regular_pictures_inside_the_run_directory_are_read(tmp_path, name):
    """A path that leads out, through a link, to no regular file, or to no picture gives nothing."""
    folder = files_of(tmp_path)
    media = folder / "files" / "media"
    (folder / "secret.png").write_bytes(PNG)
    (media / "link.png").symlink_to(media / "a.png")
    (folder / "files" / "dirlink").symlink_to(media)
    os.mkfifo(media / "pipe.png")
    (media / "text.png").write_text("<svg onload=alert(1)>")
    (media / "vector.svg").write_text("<svg onload=alert(1)/>")
    assert picture((folder,), name, 10_000) is None
    assert picture((folder,), "media/a.png", 10_000) is not None


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_long_texts_are_cut_and_it_is_said(tmp_path):
    """10 MB in one value, one line, one name: the page stays small, and says how long they are."""
    long = "x" * 10_000_000
    state = state_of(
        tmp_path,
        logs.config_record({"long": long, "list": [long]}),
        logs.output(f"{long}\n"),
        messages.Record(run=messages.RunRecord(run_id="r1", display_name=long, notes=long, tags=[long])),
        *[logs.row(step, {long: step}) for step in range(2)],
    )
    html = render(state)
    assert len(html) < 200_000
    assert "10,000,000 characters in all" in html


def test_many_charts_are_capped_and_it_is_said_which_are_missing(tmp_path):
    """Thousands of metrics fill the room that charts have; the others are counted and named."""
    keys = [f"k{at:04}" for at in range(2000)]
    state = state_of(tmp_path, *[logs.row(step, dict.fromkeys(keys, step)) for step in range(3)])
    html = render(state, limits=Limits(charts=100_000))
    page = Page(html)
    shown = len(charts(page))
    assert 20 < shown < 200
    assert f"No room left on this page for {2000 - shown} charts: k{shown:04}" in page.text
    assert "1,000 more rows left out here" not in page.text
    assert "more rows left out here" in page.text
    assert len(html) < 400_000


def test_the_console_is_its_last_lines_with_stderr_marked(tmp_path):
    """Of a long console the end is shown without colours, and how much there was."""
    lines = [logs.output(f"\x1b[32mline {at}\x1b[0m\n", at) for at in range(1000)]
    page = page_of(tmp_path, *lines, logs.output("broken\n", 1000, stderr=True))
    assert "the last 400 of 1,001 lines" in page.text
    assert "line 999" in page.text
    assert "line 600\n" not in page.text
    assert "stderr broken" in page.text
    assert "\x1b" not in page.text


def test_ten_charts_of_noise_are_less_than_a_megabyte(tmp_path):
    """However long the series are, a page of ten is below 1 MB."""
    import random

    rng = random.Random(5)
    rows = [logs.row(step, {f"k{at}": rng.random() for at in range(10)}) for step in range(3000)]
    html = render(state_of(tmp_path, *rows))
    assert len(charts(Page(html))) == 10
    assert len(html) < 400_000


# -- system metrics --------------------------------------------------------------------------------------------------


def test_devices_of_a_kind_share_a_chart(tmp_path):
    """GPUs, nodes, and pairs such as sent and received are series of one chart; bytes are shown in what reads well."""
    values = {f"gpu.{at}.gpu": 50.0 + at for at in range(4)} | {"network.sent": 3 * 2.0**30, "network.recv": 2.0**30}
    values |= {"cpu/l:n0": 1.0, "cpu/l:n1": 2.0, "sampler.cpu.errors": 0.0}
    state = state_of(tmp_path, *[logs.sample(at, values) for at in range(5)])
    titles = [(group.title, [name for name, _ in group.columns]) for group in sample_groups(state.samples.columns)]
    assert titles == [
        ("gpu.*.gpu", ["0", "1", "2", "3"]),
        ("cpu", ["n0", "n1"]),
        ("network.sent, recv", ["recv", "sent"]),
        ("sampler.cpu.errors", ["errors"]),
    ]
    shown = charts(Page(render(state)))
    assert shown["gpu.*.gpu"] == "gpu.*.gpu: 20 values by seconds since the start, from 50 to 53 %"
    assert shown["network.sent, recv"].endswith("from 1 to 3 GiB")


def test_units_are_those_of_the_documentation():
    """Every key that docs/metrics.md lists has the unit that it says there."""
    named = {"degrees C": "°C", "us": "µs"}
    units = {"%", "MiB", "GiB", "bytes", "bytes/s", "1/s", "W", "J", "kWh", "MHz", "ms", "Mbit/s", "GT/s", "s", "cores"}
    example = {"path": "/data", "device": "sda", "interface": "eth0", "stat": "p50", "resource": "cpu", "kind": "some"}
    listed = re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert len(listed) > 200
    for form, unit in listed:
        key = re.sub(r"\{(\w+)\}", lambda part: example.get(part[1], "3" if part[1] in {"i", "port"} else "name"), form)
        expected = named.get(unit, unit if unit in units else "")
        assert (form, unit_of(key), unit_of(f"{key}/l:node 1")) == (form, expected, expected)


def test_amounts_of_bytes_are_scaled():
    """The prefix is the one of the largest value; other units stay."""
    assert scaled("bytes", 5 * 2.0**30) == (2.0**30, "GiB")
    assert scaled("bytes/s", 5 * 2.0**20) == (2.0**20, "MiB/s")
    assert scaled("MiB", 5 * 2.0**20) == (2.0**20, "TiB")
    assert scaled("bytes", 5) == (1.0, "B")
    assert scaled("W", 1e9) == (1.0, "W")


def test_a_pause_in_sampling_is_not_drawn_over():
    """Between two logs of a resumed run nothing was sampled."""
    assert pauses([0, 1, 2, 3, 100, 101]) == [(3, 100)]
    assert pauses([0, 1, 2.5, 4]) == []
    assert pauses([5, 5, 5, 5]) == []


# -- several runs ----------------------------------------------------------------------------------------------------


def test_runs_are_compared_in_one_page(tmp_path):
    """Each metric has one chart with a series for each run, and only values that differ are in the tables."""
    runs = []
    for at in range(3):
        records = [logs.row(step, {"loss": step * at, **({"only": step} if at == 2 else {})}) for step in range(5)]
        head = logs.run_record(f"r{at}", display_name="same", config={"lr": at, "opt": "adam"})
        runs.append((runferry.load(log_of(tmp_path, logs.header_record(), head, *records, name=f"r{at}")), Source()))
    page = Page(render_comparison(runs))
    assert {name: described(said) for name, said in charts(page).items()} == {
        "loss": (15, 0.0, 8.0),
        "only": (5, 0.0, 4.0),
    }
    assert "same (r0)" in page.text
    assert "1 key the same" in page.text
    assert "adam" not in page.text
    only = [found["class"] for found in page.having("path") if found.get("class", "").startswith("c2")]
    assert len(only) == 2  # the third run has the third colour in both charts
    assert page.leads_out() == []


def test_runs_go_into_one_page_or_a_page_each(tmp_path):
    """`-o page.html` with several runs compares them; a folder gets a report for each."""
    for at in range(2):
        logs.simple_run(tmp_path / "wandb", run_id=f"r{at}")
    options = Options("html", selection=Selection(every=2))
    apart = export([tmp_path / "wandb"], tmp_path / "out", options)
    assert [Path(*outcome.files).relative_to(tmp_path) for outcome in apart] == [
        Path("out/r0/report.html"),
        Path("out/r1/report.html"),
    ]
    together = export([tmp_path / "wandb"], tmp_path / "both.html", options)
    assert {*map(str, (Path(*outcome.files) for outcome in together))} == {str(tmp_path / "both.html")}
    assert "2 runs" in Page((tmp_path / "both.html").read_text()).text
    assert {tuple(outcome.notes) for outcome in apart + together} == {("--every: charts show all rows, thinned",)}
    refused = export([tmp_path / "wandb"], tmp_path / "both.html" / "a.html", options)
    assert [len(outcome.problems) for outcome in refused] == [1, 1]


def test_values_that_are_no_number_in_all_runs_do_not_differ(tmp_path):
    """NaN is like NaN here; what only one run has is a difference."""
    states = [
        RunState().add_all(
            read_records(
                log_of(
                    tmp_path,
                    logs.run_record(name, config={"same": math.nan, "lr": lr}),
                    logs.row(0, {"s": math.nan, "d": lr}),
                    name=name,
                )
            )
        )
        for name, lr in (("a", 1), ("b", math.nan))
    ]
    html = render_comparison([(state, Source()) for state in states])

    assert "<td>lr</td><td>1</td><td>NaN</td>" in html
    assert "<td>d</td><td>1</td><td>NaN</td>" in html
    assert "<td>same</td>" not in html
    assert "<td>s</td>" not in html


@pytest.mark.parametrize(
    "char",
    [
        "\0",
        "\x1b",
        "\x7f",
        "\x9f",
        "\u061c",
        "\u200b",
        "\u200e",
        "\u200f",
        "\u202a",
        "\u202e",
        "\u2066",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\U000e0041",
    ],
)
def test_what_is_not_seen_is_written_out(char):
    """And what turns the order of characters; tabs and ends of lines stay."""
    assert text(f"a\t{char}\n") == f"a\t{ascii(char)[1:-1]}\n".replace("\\0", "\\x00")


def test_a_metric_by_another_metric_in_some_runs_is_compared_by_step(tmp_path):
    """Where runs disagree on what a metric goes by, its chart goes by step."""
    definition = metric(name="loss", step_metric="epoch")
    rows = [logs.row(step, {"loss": step, "epoch": step * 10}) for step in range(5)]
    states = [state_of(tmp_path / "a", definition, *rows), state_of(tmp_path / "b", *rows)]
    assert [next(curves(state, Selection(("loss",)))).places.name for state in states] == ["epoch", "step"]
    html = render_comparison([(state, Source()) for state in states], selection=Selection(("loss",)))
    assert charts(Page(html))["loss"].startswith("loss: 10 values by step")
    assert ">40</text>" not in html  # a tick of the epochs


def test_absurd_rows_are_drawn(tmp_path):
    """Numbers at the ends of what doubles can be, steps beyond 2^53, huge integers: a page all the same."""
    values = [b"1e308", b"-1e308", b"5e-324", b"123456789012345678901234567890", b"-0.0", b"1" + b"0" * 400]
    rows = [logs.row(2**62 + step * 1000, {"a": value}) for step, value in enumerate(values)]
    page = page_of(tmp_path, *rows)
    assert "6 values by step" in charts(page)["a"]
    assert math.isfinite(described(charts(page)["a"])[1])
