"""Whether probes write only what they say that they may write."""

from __future__ import annotations


def assert_declared(probe, values):
    """Every key of `values` is of a form in `probe.metrics`; a label (`/l:...`) at its end does not count."""
    unknown = [key for key in values if not any(metric.matches(key.partition("/l:")[0]) for metric in probe.metrics)]
    assert not unknown, f"{probe.name} declares no form of {unknown}"
