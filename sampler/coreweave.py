"""Which CoreWeave cluster this is, by the server that tells each of its machines."""

from __future__ import annotations

from collections.abc import Mapping

from .context import Context
from .gathering import Fact, Fields
from .settings import COREWEAVE_PATH, COREWEAVE_URL

WITHIN = 1.0  # s; it stands on the same host
_LONGEST = 1 << 16  # bytes
_LONGEST_VALUE = 256  # characters
_FIELDS = {"cluster_name": "cluster_name", "org_id": "org_id", "region": "region"}
"""Its names -> the record's. The answer also has tokens: nothing else of it is looked at, kept or shown."""
_NAMES = ("sys_vendor", "board_vendor", "chassis_vendor", "product_name", "chassis_asset_tag")


def coreweave_facts(ctx: Context, environ: Mapping[str, str]) -> dict[str, Fact]:
    """The fact, where there is a sign that this machine is one of theirs or the settings name a server; else none.

    Elsewhere the same address may be another cloud's, which has no business with the question.
    """
    settings = ctx.settings
    base, path = settings.coreweave_metadata_base_url, settings.coreweave_metadata_endpoint
    if not base or not ((base, path) != (COREWEAVE_URL, COREWEAVE_PATH) or _is_theirs(ctx, environ)):
        return {}
    from .http import Endpoint  # here, and not on the fact's thread: see `registry.load_modules`

    def ask() -> Fields:
        endpoint = Endpoint(f"{base.rstrip('/')}/{path.lstrip('/')}", environ=environ)
        answer = endpoint.get(accept="text/plain", connect_within=WITHIN, within=WITHIN, longest=_LONGEST)
        return {"coreweave": read_metadata(answer.body.decode("utf-8", "replace"))}

    return {"CoreWeave": ask}


def read_metadata(text: str) -> dict[str, str]:
    """cluster_name, org_id and region of lines `name: value`."""
    pairs = ((name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in text.splitlines()))
    return {
        _FIELDS[name]: value
        for name, value in pairs
        if name in _FIELDS and value.isprintable() and 0 < len(value) <= _LONGEST_VALUE
    }


def _is_theirs(ctx: Context, environ: Mapping[str, str]) -> bool:
    if any(name.startswith("COREWEAVE_") for name in environ):
        return True
    return any("coreweave" in (ctx.read(f"/sys/class/dmi/id/{name}") or "").lower() for name in _NAMES)
