"""Xid errors from the kernel's log, for drivers that report no events. Reading it usually takes privileges."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_RECORD = 1 << 13  # bytes; the kernel cuts records at 8 KiB
_MOST_RECORDS = 1000  # of one look: a flood must not hold the sampler
_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)[^)]*\): (\d+)")

Bus = tuple[int, int, int]  # domain, bus, device


def parse_bus(text: str) -> Bus | None:
    """A PCI address such as `00000000:1B:00.0`, None if it is none."""
    found = re.fullmatch(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)\..*", text)
    if found is None:
        return None
    domain, bus, device = (int(part, 16) for part in found.groups())
    return domain, bus, device


class KernelLog:
    """What the kernel says from now on. `path` is /dev/kmsg, of which each read gives one record."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    def open(self) -> bool:
        """Begin to listen; False where that is not allowed."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(self._fd, 0, os.SEEK_END)
            except (OSError, AttributeError):  # the latter on Windows
                self.close()
        return self._fd is not None

    def new_xids(self) -> Iterator[tuple[Bus, int]]:
        """Device and code of each Xid since the last call."""
        for _ in range(_MOST_RECORDS):
            if self._fd is None:
                return
            try:
                record = os.read(self._fd, _RECORD)
            except BrokenPipeError:  # records were overwritten before they were read: the next one is there
                continue
            except OSError:  # nothing new
                return
            if not record:
                return
            for domain, bus, device, code in _XID.findall(record):
                yield (int(domain, 16), int(bus, 16), int(device, 16)), int(code)

    def close(self) -> None:
        """Close it; may be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
