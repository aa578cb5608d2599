"""Where a run is to be seen: the address of its page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

_CLOUD_API = "api.wandb.ai"
_CLOUD_APP = "https://wandb.ai"


def app_url(base_url: str, environ: Mapping[str, str] = os.environ) -> str:
    """The address of the web pages: `WANDB_APP_URL`, wandb.ai for its API, else the server's own."""
    told = environ.get("WANDB_APP_URL", "")
    if urlsplit(told).scheme in {"http", "https"}:
        return told.rstrip("/")
    return _CLOUD_APP if urlsplit(base_url).hostname == _CLOUD_API else base_url.rstrip("/")


def run_url(base_url: str, entity: str, project: str, run_id: str, environ: Mapping[str, str] = os.environ) -> str:
    """The page of a run, as the server names its entity and project."""
    entity, project, run_id = (quote(part, safe="") for part in (entity, project, run_id))
    return f"{app_url(base_url, environ)}/{entity}/{project}/runs/{run_id}"
