"""docs/metrics.md says what the probes say of their keys. `python tests/sampler/test_metrics_docs.py` writes it anew."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from runferry.sampler import engine, registry
from runferry.sampler.metric import Origin, pattern

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
LISTED = ROOT / "fixtures" / "sampler" / "listed_keys.txt"
HEAD = ("key", "unit", "source", "formula", "when", "origin", "setting", "test")

GPUS = ("nvidia", "amd", "apple", "dcgm")
"""How the names of probes begin that may share keys: their devices are numbered one after the other."""
MACS_ONLY = ("apple", "portable")
"""How the names of probes begin that are never there on Linux, nor are others on a Mac that read /proc."""


class Source(NamedTuple):
    """Who writes some keys."""

    name: str
    file: str
    metrics: tuple
    about: str


def sources():
    """All probes in the order of the registry, then the engine."""
    for name, reference in registry.BUILT_IN.items():
        probe = registry.load(reference)
        about = " ".join((probe.__doc__ or "").split("\n\n")[0].split())
        yield Source(name, probe.__module__.removeprefix("runferry.").replace(".", "/") + ".py", probe.metrics, about)
    yield Source("sampler", "sampler/engine.py", engine.SELF_METRICS, "What each probe costs and how it fares.")


def cells(metric):
    file, _, test = metric.test.rpartition("::")
    row = (
        f"`{metric.key}`",
        metric.unit,
        metric.source,
        metric.formula,
        metric.kind.value,
        metric.origin.value,
        f"`{metric.setting}`" if metric.setting else "",
        f"[{test}](../{file.split('::')[0]})" if metric.test else "",
    )
    return tuple(cell.replace("|", "\\|") for cell in row)


def section(source):
    rows = [HEAD, ("---",) * len(HEAD), *map(cells, source.metrics)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"## {source.name}\n\n{source.about} [{source.file}](../{source.file})\n\n{table}"


def page(before):
    """The page, of which what stands before the first section is written by hand."""
    return before + "\n".join(section(source) for source in sources())


def head(text):
    return text[: text.index("\n## ") + 1]


class Key(NamedTuple):
    """A line of the list: which probes must have a key, and who else has it."""

    family: str
    origin: Origin
    form: str

    @property
    def example(self):
        text = self.form.replace("{i}", "0").replace("{stat}", "p50")
        return re.sub(r"\{(\w+)\}", r"some-\1", text)


def listed():
    for line in LISTED.read_text().splitlines():
        if not line.startswith("#"):
            family, origin, form = line.split(" ", 2)
            yield Key(family, Origin(origin), form)


def providers(key):
    """The metrics under which a listed key is declared."""
    for source in sources():
        if key.family == "host" or source.name.startswith(key.family):
            yield from (metric for metric in source.metrics if metric.matches(key.example))


def test_the_page_has_every_metric_as_it_is():
    """A key that is added, renamed or explained anew changes the page with it."""
    text = PAGE.read_text()
    assert text == page(head(text)), f"run `python tests/sampler/{Path(__file__).name}`"


def test_every_probe_says_what_its_keys_are():
    """Each of our probes declares its keys, with unit and source, each form once."""
    assert [source.name for source in sources() if not source.metrics] == []
    for source in sources():
        forms = [metric.key for metric in source.metrics]
        assert len(forms) == len(set(forms)), source.name
        assert all(metric.unit and metric.source for metric in source.metrics), source.name


def test_every_metric_names_a_test_that_is_there():
    """The test that holds a key's value exists under the name that is given."""
    missing = [
        f"{source.name}: {metric.key}: {metric.test or 'none'}"
        for source in sources()
        for metric in source.metrics
        if not exists(metric.test)
    ]
    assert missing == []


def exists(test):
    file, *scopes = test.split("::")
    path = ROOT / file
    if not file or not path.is_file():
        return False
    text = path.read_text()
    return bool(scopes) and all(
        re.search(rf"^\s*(def|class) {re.escape(scope)}\b", text, re.MULTILINE) for scope in scopes
    )


def test_no_two_probes_claim_one_key():
    """A form of keys is one probe's, but for GPUs of several vendors, which are numbered one after the other."""
    owners = defaultdict(set)
    for source in sources():
        for metric in source.metrics:
            system = "macOS" if source.name.startswith(MACS_ONLY) else "Linux"
            owners[system, re.sub(r"\{\w+\}", "{}", metric.key)].add(source.name)
    several = {form: names for form, names in owners.items() if len(names) > 1}
    assert {form: names for form, names in several.items() if not all(name.startswith(GPUS) for name in names)} == {}


def test_every_listed_key_is_there():
    """No key of the public list, and none that the peer writes, can be missing; each says whose it is."""
    found = {key: [metric.origin for metric in providers(key)] for key in listed()}
    assert [key for key, origins in found.items() if not origins] == []
    assert [key for key, origins in found.items() if key.origin is Origin.LISTED and {*origins} == {Origin.OURS}] == []


def test_forms_of_keys():
    """What varies stands in braces; `{i}` is a whole number, anything else any text, dots and slashes included."""
    assert pattern("gpu.{i}.temp").fullmatch("gpu.10.temp")
    assert not pattern("gpu.{i}.temp").fullmatch("gpu.process.temp")
    assert pattern("disk.{path}.usageGB").fullmatch("disk./mnt/a.b.usageGB")
    assert not pattern("disk.{path}.usageGB").fullmatch("disk..usageGB")
    assert pattern("ipu.{i}.ipu utilisation (session) (%)").fullmatch("ipu.3.ipu utilisation (session) (%)")
    assert not pattern("cpu").fullmatch("cpu.0")


def test_the_list_has_no_key_twice():
    """The list of keys is a list of different ones."""
    assert [key for key, times in Counter(listed()).items() if times > 1] == []


if __name__ == "__main__":
    PAGE.write_text(page(head(PAGE.read_text())))
