"""Graphcore's module of that name: answers from the files that GCIPUINFO_ANSWERS names, one per call, the last for ever."""

from __future__ import annotations

import json
import os
from pathlib import Path


class gcipuinfo:  # noqa: N801 - the vendor's name
    def __init__(self, answers=None):
        files = os.environ.get("GCIPUINFO_ANSWERS", "")
        self._answers = answers or [json.loads(Path(name).read_text()) for name in files.split(os.pathsep) if name]
        self._calls = 0
        self._updating = False

    def setUpdateMode(self, on):  # noqa: N802 - the vendor's name
        self._updating = on

    def getDevices(self):  # noqa: N802 - the vendor's name
        """Without update mode the library answers what it has read first."""
        self._calls += 1
        which = self._calls - 1 if self._updating else 0
        return self._answers[min(which, len(self._answers) - 1)]
