"""What a request can be refused for."""

from __future__ import annotations


class BadRequestError(ValueError):
    """The request is not what the protocol has; sending it again will not help (HTTP 400)."""


class NotFoundError(LookupError):
    """What the request is about is not on this server (HTTP 404)."""


class TooLargeError(ValueError):
    """A body is above its cap (HTTP 413)."""


class ConflictError(ValueError):
    """What the request wants to make cannot be made again (HTTP 409)."""
