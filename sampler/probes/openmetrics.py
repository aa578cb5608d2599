"""Metrics of any endpoint that speaks Prometheus' or OpenMetrics' text format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from ..context import Context
from ..exposition import Exposition
from ..metric import Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from ..series import MOST_SERIES, Chooser, SeriesTable
from ..settings import SamplerSettings

if TYPE_CHECKING:
    from ..http import Endpoint

# DCGM's marks for "no value", of its integers and of its floats
_DCGM_BLANK = float(0x7FFFFFFFFFFFFFF0)
_DCGM_BLANKS = frozenset([2.0**47, 2.0**47 + 1, 2.0**47 + 2, 2.0**47 + 3])


def is_blank(metric: bytes, value: float) -> bool:
    """Whether `value` is what DCGM writes where a device has none."""
    return metric.startswith(b"DCGM_") and (value >= _DCGM_BLANK or value in _DCGM_BLANKS)


def headers_for(settings: SamplerSettings, name: str) -> dict[str, str]:
    """What is sent to the endpoint `name`: the headers for all, but where it has one of its own, in any case."""
    given = settings.open_metrics_http_headers
    shared = {header: value for header, value in given.items() if not isinstance(value, Mapping)}
    own = given.get(name)
    if not isinstance(own, Mapping):
        return shared
    replaced = {header.lower() for header in own}
    return {**{header: value for header, value in shared.items() if header.lower() not in replaced}, **own}


class NoMetricsError(Exception):
    """An answer that holds nothing that could be a metric."""


class OpenMetricsProbe(Probe):
    """`openmetrics.{endpoint}.{metric}.{n}` of one endpoint: each gauge and counter that the filters keep.

    `n` counts the metric's sets of labels in the order in which they appeared; `legend` tells them. Values are as
    exposed. NaN, infinities and DCGM's blanks are left out, but keep their number.
    """

    name = "openmetrics"
    tier = Tier.THREAD
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "openmetrics.{endpoint}.{metric}.{i}",
            unit="as exposed",
            source="GET of the endpoint's URL: samples of gauges and counters",
            setting="open_metrics_endpoints",
            origin=Origin.LISTED,
            test="tests/sampler/test_scraping_peer.py::test_keys_and_values_are_those_of_the_peer",
        ),
    )

    def __init__(self, endpoint: str, url: str, settings: SamplerSettings) -> None:
        self.instance = endpoint
        self._url = url
        self._headers = headers_for(settings, endpoint)
        self._endpoint: Endpoint | None = None
        chooser = Chooser(settings.open_metrics_filters)
        self._series = SeriesTable(endpoint, chooser, self._overflow)
        self.notices: list[str] = [f"{text}; it keeps nothing" for text in chooser.broken]
        self._told_malformed = False

    def __repr__(self) -> str:
        return f"OpenMetricsProbe({self.instance!r})"

    @classmethod
    def instances(cls, settings: SamplerSettings) -> Iterable[OpenMetricsProbe]:
        """One per endpoint."""
        return [cls(name, url, settings) for name, url in settings.open_metrics_endpoints.items()]

    def discover(self, ctx: Context) -> str | None:  # noqa: ARG002 - the base's signature
        """Always: whether it answers is seen at each sample."""
        from .. import http  # noqa: F401 - loaded before there are threads, and only where there are endpoints

        return None

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the base's signature
        """See that the address and the headers can be used."""
        from ..http import AddressError, Endpoint

        try:
            self._endpoint = Endpoint(self._url, self._headers)
        except AddressError as error:
            raise ProbeUnavailableError(str(error), loud=True) from None

    def sample(self, ctx: Context, out: Values) -> None:  # noqa: ARG002 - the base's signature
        """One GET. Raises what went wrong, without an answer or with one that is none."""
        if self._endpoint is None:
            return
        answer = self._endpoint.get()
        exposition = Exposition(answer.body)
        for line in exposition.lines(self._series.wants):
            key = self._series.key_of(line)
            if key is not None:
                if math.isfinite(line.value) and not is_blank(line.name, line.value):
                    out[key] = line.value
                else:
                    out.pop(key, None)  # the last line of a series counts
        if not exposition.typed and answer.body.strip():
            raise NoMetricsError(f"its answer{_kind(answer.content_type)} declares no type of any metric")
        malformed = exposition.malformed + self._series.malformed
        if malformed and not self._told_malformed:
            self._told_malformed = True
            self.notices.append(f"lines of its answer that are not of the format are left out; {malformed} so far")

    def _overflow(self) -> None:
        self.notices.append(
            f"it has more than {MOST_SERIES} series, or too long labels: what goes beyond that is left out;"
            " open_metrics_filters choose"
        )

    def legend(self) -> dict[str, dict[str, str]]:
        """Key -> labels."""
        return dict(self._series.legend)


def _kind(content_type: str) -> str:
    known = re.match(r"[a-z]+/[a-z0-9.+-]{1,40}", content_type)
    return f" ({known[0]})" if known else ""
