"""runferry: an offline-first experiment logger for machines without a route to the backend.

The public face, and nothing else: each name below is imported from its module on first use, so that
`import runferry` costs milliseconds and touches neither protobuf nor the network.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Config": ".writer",
    "Run": ".writer",
    "Settings": ".writer",
    "Summary": ".writer",
    "finish": ".writer",
    "init": ".writer",
    "log": ".writer",
    "read": ".logformat",
    "load": ".logformat",
    "sync": ".sync",
}

__all__ = ["__version__", "config", "run", "summary", *sorted(_WHERE)]  # noqa: PLE0604 - all are names
