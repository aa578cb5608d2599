"""Which image this container was made of, by the Kubernetes API of the cluster that it runs in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from .context import Context
from .gathering import Fact, Fields

WITHIN = 3.0  # s; the peer's, too
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/"
_PORTS = ("KUBERNETES_SERVICE_PORT_HTTPS", "KUBERNETES_PORT_443_TCP_PORT")
_LONGEST = 4 << 20  # bytes; etcd keeps objects of 1.5 MiB at most
_LONGEST_ID = 1024  # characters
_LOG_MOUNT = "/dev/termination-log"


def kubernetes_facts(ctx: Context, environ: Mapping[str, str]) -> dict[str, Fact]:
    """The fact, in a pod that has the token of a service account, unless `WANDB_DOCKER` names the image; else none.

    The token goes to the cluster's own server and to nobody else, which the account's certificates tell from others.
    """
    host, pod = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("HOSTNAME")
    port = next((environ[name] for name in _PORTS if environ.get(name)), "443")
    if not host or not pod or "WANDB_DOCKER" in environ or not ctx.exists(_ACCOUNT + "token"):
        return {}
    from .http import Endpoint  # here, and not on the fact's thread: see `registry.load_modules`

    def ask() -> Fields:
        token = (ctx.read(_ACCOUNT + "token") or "").strip()
        if not token:
            raise PermissionError("the token of the pod's service account cannot be read, or is empty")
        namespace = environ.get("KUBERNETES_NAMESPACE") or (ctx.read(_ACCOUNT + "namespace") or "").strip() or "default"
        server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        endpoint = Endpoint(
            f"{server}/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}",
            {"Authorization": f"Bearer {token}"},
            authority=ctx.path(_ACCOUNT + "ca.crt"),
        )
        answer = endpoint.get(accept="application/json", connect_within=WITHIN, within=WITHIN, longest=_LONGEST)
        return {"docker": image_id(json.loads(answer.body), _container(ctx))}

    return {"Kubernetes": ask}


def image_id(pod: Any, container: str | None) -> str | None:
    """The image of the container of that name in a pod's status, of the first one if none is named; None if unknown."""
    status = pod.get("status") if isinstance(pod, Mapping) else None
    statuses = status.get("containerStatuses") if isinstance(status, Mapping) else None
    found = [each for each in statuses if isinstance(each, Mapping)] if isinstance(statuses, list) else []
    ours = [each for each in found if each.get("name") == container] or found
    name = ours[0].get("imageID") if ours else None
    if not isinstance(name, str) or not name.isprintable() or len(name) > _LONGEST_ID:
        return None
    return name.removeprefix("docker-pullable://") or None


def _container(ctx: Context) -> str | None:
    """Our container's name: a pod's others (proxies, loggers) may stand before it.

    Kubelet mounts the file of last words from its folder `pods/{uid}/containers/{name}`.
    """
    for line in (ctx.read("/proc/self/mountinfo") or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 4 and fields[4] == _LOG_MOUNT and (found := re.search(r"/containers/([^/]+)/", fields[3])):
            return found[1]
    return None
