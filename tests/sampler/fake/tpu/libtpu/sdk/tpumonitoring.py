"""libtpu's module of that name: answers from the JSON file that LIBTPU_ANSWERS names."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Metric:
    def __init__(self, entry):
        self._entry = entry

    def data(self):
        return self._entry["data"]

    def description(self):
        return self._entry["description"]


class Monitoring:
    """The module's functions over one set of answers."""

    def __init__(self, answers):
        self._answers = answers

    def list_supported_metrics(self):
        return self._answers["supported"]

    def get_metric(self, name):
        if name not in self._answers["metrics"]:
            raise ValueError(f"metric {name} is not supported")
        return Metric(self._answers["metrics"][name])


def _module():
    return Monitoring(json.loads(Path(os.environ["LIBTPU_ANSWERS"]).read_text()))


def list_supported_metrics():
    return _module().list_supported_metrics()


def get_metric(name):
    return _module().get_metric(name)
