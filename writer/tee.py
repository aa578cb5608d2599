"""What Python code writes to `sys.stdout` and `sys.stderr`, taken where it is written.

The `write` of the stream objects themselves is replaced, so that whoever holds one (logging handlers do) is heard too.
`writelines` and `print` call it. Bytes for `sys.stdout.buffer` are taken at that object, which also serves the streams
that are made around it later (`sys.stdout = io.TextIOWrapper(sys.stdout.buffer)`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol


class Sink(Protocol):
    """Who is told."""

    def add(self, stream: str, data: str | bytes) -> None:
        """`stream` ("stdout" or "stderr") has written it. Never raises."""


class _Depth(threading.local):
    """How many methods of one capture this thread is in.

    Only what the outermost one writes is told: below it a text stream passes the same on to its buffer, and our own
    warnings about the log must not become output to be logged.
    """

    count = 0


_MISSING = object()


class _Replaced:
    """One method of one object, replaced until `restore`."""

    def __init__(self, target: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._target, self._name = target, name
        self._before = vars(target).get(name, _MISSING) if hasattr(target, "__dict__") else _MISSING
        self._ours = make(getattr(target, name))
        setattr(target, name, self._ours)

    def restore(self) -> None:
        """Put back what was there, unless somebody has replaced ours since: it then passes on, and logs nothing."""
        with suppress(Exception):  # whatever the type of a stream does when it is asked
            if vars(self._target).get(self._name) is self._ours:
                if self._before is _MISSING:
                    delattr(self._target, self._name)
                else:
                    setattr(self._target, self._name, self._before)


class _Proxy:
    """Stands in `sys` for a stream whose `write` cannot be replaced."""

    def __init__(self, stream: Any, write: Callable[[str], Any]) -> None:
        self.stream, self.write = stream, write

    def writelines(self, lines: Iterable[str]) -> None:
        """The stream's own would pass us by."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class StreamTees:
    """Takes both streams, or those named. The stream comes first: what the log makes of it never disturbs it."""

    def __init__(self, sink: Sink, names: Iterable[str] = ("stdout", "stderr")) -> None:
        self._sink: Sink | None = sink
        self._names = tuple(names)
        self._depth = _Depth()  # not shared: what one capture is told is news to another
        self._replaced: list[_Replaced] = []
        self._proxies: list[tuple[str, _Proxy]] = []

    def start(self) -> None:
        """Begin. Streams that are made or put in place later are not taken, but for those that write to one of these."""
        for name in self._names:
            stream = getattr(sys, name, None)
            if stream is None:  # a process without a console
                continue
            try:
                self._replaced.append(_Replaced(stream, "write", self._telling(name)))
            except Exception:  # an object that takes no attributes
                with suppress(Exception):
                    proxy = _Proxy(stream, self._telling(name)(stream.write))
                    self._proxies.append((name, proxy))
                    setattr(sys, name, proxy)
                continue
            with suppress(Exception):  # no buffer, or a detached one
                buffer = stream.buffer
                for method in ("flush", "tell"):  # they write what text waits to the buffer
                    self._replaced.append(_Replaced(stream, method, self._silent))
                self._replaced.append(_Replaced(buffer, "write", self._telling(name)))

    def stop(self) -> None:
        """End, and leave the streams as they were found."""
        self._sink = None
        for replaced in reversed(self._replaced):
            replaced.restore()
        self._replaced.clear()
        for name, proxy in self._proxies:
            if getattr(sys, name, None) is proxy:
                setattr(sys, name, proxy.stream)
        self._proxies.clear()

    def sync(self) -> None:
        """What is written is told at once."""

    def abandon(self) -> None:
        """In a forked child: the streams are as they were found."""
        self.stop()

    def _telling(self, name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """The replacement for a `write`: it writes, and then tells what was written."""
        depth = self._depth

        def make(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def write(data: Any, /) -> Any:
                sink = self._sink
                if sink is None or depth.count:
                    return original(data)
                depth.count += 1
                try:
                    count = original(data)
                    try:  # noqa: SIM105 - `suppress` costs 0.5 us
                        sink.add(name, data if type(data) is str else _written(data, count))
                    except Exception:  # noqa: S110 - a fault of ours must not look like one of print
                        pass
                finally:
                    depth.count -= 1
                return count

            return write

        return make

    def _silent(self, original: Callable[..., Any]) -> Callable[..., Any]:
        depth = self._depth

        def method(*arguments: Any) -> Any:
            depth.count += 1
            try:
                return original(*arguments)
            finally:
                depth.count -= 1

        return method


def _written(data: Any, count: Any) -> str | bytes:
    """A copy that nobody changes later; of bytes, as many as were taken (a raw stream may take fewer, or none)."""
    if isinstance(data, str):
        return str.__str__(data)  # the text of a subclass
    return memoryview(data).tobytes()[: count or 0]
