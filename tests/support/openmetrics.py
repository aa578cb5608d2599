"""A strict reader of the OpenMetrics text format, as far as counters, gauges and infos go."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"(?P<name>{_NAME})(?:\{{(?P<labels>[^}}]*)\}})? (?P<value>\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_SUFFIX = {"counter": "_total", "gauge": "", "info": "_info"}
_UNITS = ("seconds", "bytes")


def parse(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Sample name -> labels -> value. Fails on anything that the format does not allow."""
    assert text.endswith("\n# EOF\n")
    lines = text.removesuffix("# EOF\n").splitlines()
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    seen: set[str] = set()
    family = kind = ""
    told: set[str] = set()
    for line in lines:
        if line.startswith("# "):
            _, word, name, value = line.split(" ", 3)
            assert re.fullmatch(_NAME, name)
            if word == "TYPE":
                assert name not in seen, f"{name} stands twice"
                assert value in _SUFFIX
                seen.add(name)
                family, kind, told = name, value, set()
                continue
            assert (word in {"UNIT", "HELP"}, name, word in told) == (True, family, False), line
            told.add(word)
            assert word != "UNIT" or (value in _UNITS and name.endswith(f"_{value}")), line
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match["name"] == family + _SUFFIX[kind], line
        assert "HELP" in told, f"{family} has no help"
        assert ("UNIT" in told) == family.endswith(_UNITS), f"{family}: unit"
        labels = _LABEL.findall(match["labels"] or "")
        assert ",".join(f'{label}="{value}"' for label, value in labels) == (match["labels"] or ""), line
        values = samples.setdefault(match["name"], {})
        assert tuple(labels) not in values, f"{line}: twice"
        values[tuple(labels)] = float(match["value"])
        assert kind != "counter" or values[tuple(labels)] >= 0
    return samples
