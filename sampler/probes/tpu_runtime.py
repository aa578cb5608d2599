"""The TPU runtime's own server, which runs while a program holds the TPU. Needs `h2`: imported where it is asked only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .tpu_grpc import AbsentError, GarbledError, RefusedError, RpcError, ask
from .tpu_wire import Point, encode_request, read_response

METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
ANSWER_WITHIN = 0.5  # s, for all metrics together


class Answers(NamedTuple):
    """The points of each metric that the server has told, and what went wrong.

    `refusal` is the server's no to one of the others, which may only mean that this runtime has no such metric.
    """

    points: dict[str, list[Point]]
    trouble: RpcError | None = None
    refusal: RefusedError | None = None


def fetch(port: int, names: Iterable[str]) -> Answers:
    """Ask for all of them at once; no points and no trouble where there is no server."""
    points: dict[str, list[Point]] = {}
    trouble: RpcError | None = None
    refusal: RefusedError | None = None
    for name, answer in ask(port, METHOD, {name: encode_request(name) for name in names}, ANSWER_WITHIN).items():
        if isinstance(answer, bytes):
            try:
                points[name] = read_response(answer)
            except ValueError as error:
                trouble = GarbledError(f"{name}: {error}")
        elif isinstance(answer, RefusedError):
            refusal = answer
        elif not isinstance(answer, AbsentError):
            trouble = answer
    return Answers(points, trouble, refusal)
