"""What can go wrong between a log and a backend, as types: the retry loop looks at the type and at nothing else.

- `Retryable`: connection, timeout, 408, 425, 5xx, a cut or unreadable answer: worth another attempt
    - `RateLimited`: 429: the project's lane waits; never counted as a failed attempt
- `Permanent`: the server will say the same again: 400, 404, 410, 422, 501, a GraphQL error
    - `AuthError`: 401 (the key) or 403 (this run)
    - `Conflict`: 409
    - `TooLarge`: 413: the caller halves what it sends
        - `TooSlow`: it did not get through in its time: the same
- `OutOfTime`: the retry budget is used up; `cause` is the last failure
- `Interrupted`: the user stopped the sync
- `NoCredentials`: no API key was found; nothing was sent
- `Refused`: we decline to send: it could overwrite what another log wrote
"""

from __future__ import annotations


class SyncError(Exception):
    """Base of all errors that a sync raises on purpose."""


class Retryable(SyncError):  # noqa: N818 - what it is, not that it is an error
    """Worth another attempt. `retry_after` is the server's wish in seconds, None where it gave none."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, status: int | None = None, late: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status
        self.late = late
        """The attempt was ended because it took too long; a smaller body may get through."""


class RateLimited(Retryable):
    """429: too many requests. The lane of the project waits, then the same request goes again."""


class Permanent(SyncError):  # noqa: N818 - what it is, not that it is an error
    """The same request would fail again. `status` is the HTTP status (200 for a GraphQL error)."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class AuthError(Permanent):
    """401: the server does not know the key. 403: the key may not do this."""


class Conflict(Permanent):
    """409: the server's run is in a state that refuses this, e.g. it was deleted."""


class TooLarge(Permanent):
    """413: the body is larger than this server takes."""


class TooSlow(TooLarge):
    """The body did not get through in the time that an attempt has; no word of the server."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=0)


class OutOfTime(SyncError):  # noqa: N818 - what it is, not that it is an error
    """Retrying took longer than the budget. A later sync goes on from the cursor."""

    def __init__(self, message: str, *, cause: Retryable) -> None:
        super().__init__(message)
        self.cause = cause


class Interrupted(SyncError):  # noqa: N818 - what it is, not that it is an error
    """The sync was asked to stop; what was acknowledged is in the cursor."""


class NoCredentials(SyncError):  # noqa: N818 - what it is, not that it is an error
    """No API key was found, or it cannot be sent as a header."""


class Refused(SyncError):  # noqa: N818 - what it is, not that it is an error
    """Sending could overwrite or duplicate rows of another log, so nothing was sent. `try_again`: time may mend it."""

    def __init__(self, message: str, *, try_again: bool = False) -> None:
        super().__init__(message)
        self.try_again = try_again


class UsageError(SyncError):
    """A setting that cannot be followed; nothing was sent."""
