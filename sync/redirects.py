"""What to say of a redirect. None is followed: a key must not travel to where an answer points."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

from .transport import Answer, Request

REDIRECTS = frozenset({301, 302, 303, 307, 308})


def explain(what: str, request: Request, answer: Answer, hide: Callable[[bytes], bytes]) -> str:
    """The message for a redirect: where it points, without what may be secret in it, and which base URL to use instead."""
    location = hide(answer.headers["location"][:1000].encode("utf-8", "replace")).decode()
    here = f"{what}: HTTP {answer.status}"
    try:
        target = urlsplit(urljoin(request.url, location))
        host, path = target.netloc.rpartition("@")[2], target.path
    except ValueError:
        host = path = ""
    if not host or target.scheme not in ("http", "https"):
        return f"{here}: a redirect to nowhere, not followed"
    place = f"{target.scheme}://{host}"
    if "Authorization" not in request.headers:
        return f"{here}: redirects to {place}, not followed"
    # Of a base URL that moved, the new one is what stands before the path of the request.
    asked = urlsplit(request.url).path
    for start in ("/graphql", "/files/", "/oidc/"):
        at = asked.rfind(start) if start == "/graphql" else asked.find(start)
        if at >= 0 and path.endswith(asked[at:]):
            base = place + path[: len(path) - len(asked[at:])]
            return f"{here}: redirects to {base}, not followed; set the base URL to that if you trust it (--base-url {base})"
    return f"{here}: redirects to {place}{path}, not followed; is the base URL right?"
