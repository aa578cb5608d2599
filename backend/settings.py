"""What `runferry serve` can be told."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from .limits import STYLES, UNLIMITED, Rates


@dataclass(frozen=True)
class ServeSettings:
    """Settings of one server; the defaults are safe on a shared machine (loopback, key required)."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: the system picks a free one
    entity: str = "local"  # for runs that name no entity
    auth: bool = True
    api_key_file: Path | None = None
    gzip: bool = True  # announces FILESTREAM_GZIP and reads gzip bodies; without it they are answered 415
    structured_console: bool = False  # announces STRUCTURED_CONSOLE_LOGS
    limit: int | None = None  # counted requests per window and project; None: no limit
    window_s: float = 60.0
    rates: Rates = UNLIMITED  # further limits, per second
    limit_headers: str = "fields"  # how quotas are told: one of limits.STYLES
    crash_after_s: float = 300.0  # silence after which an unfinished run is called crashed
    refuse_deleted: bool = False  # the id of a deleted run is not given out again: 409
    faults: Path | None = None
    request_log: Path | None = None

    def __post_init__(self) -> None:
        if not self.auth and not self.loopback:
            raise ValueError(f"no API key check is for loopback only, and {self.host!r} is not; leave the check on")
        if self.limit is not None and (self.limit < 1 or self.window_s <= 0):
            raise ValueError("a rate limit needs at least 1 request and a window above 0 seconds")

        if self.limit_headers not in STYLES:
            raise ValueError(f"quotas are told in one of these ways: {', '.join(STYLES)}")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
