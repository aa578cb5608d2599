"""Counters of power and of the states of cores that Apple's chips keep, through IOReport."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_void_p

from .apple_figures import CPU, CPU_STATES, ENERGY, GPU, GPU_STATES, Channel
from .apple_native import Libraries, NativeError

_CHANNELS = ((ENERGY, None), (CPU, CPU_STATES), (GPU, GPU_STATES))


class IoReport:
    """`read` gives what the counters counted since it was last called."""

    def __init__(self, libraries: Libraries, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lib = libraries
        self._clock = clock
        self._owned: list[int] = []
        self._last: tuple[int, float] | None = None  # a sample, and when it was taken
        try:
            self._subscribe()
            self._last = self._sample()
        except NativeError:
            self.close()
            raise

    def _subscribe(self) -> None:
        lib = self._lib
        merged: int | None = None
        for group, subgroup in _CHANNELS:
            with lib.string(group) as group_text, lib.string(subgroup) as subgroup_text:
                found = lib.IOReportCopyChannelsInGroup(group_text, subgroup_text, 0, 0, 0)
            if not found:  # this chip has no such counters
                continue
            self._owned.append(found)
            if merged is None:
                merged = found
            else:
                lib.IOReportMergeChannels(merged, found, None)
        if merged is None:
            raise NativeError("IOReport has none of the channels")
        wanted = lib.CFDictionaryCreateMutableCopy(None, lib.CFDictionaryGetCount(merged), merged)
        self._owned.append(wanted)
        channels = c_void_p()
        self._subscription = lib.IOReportCreateSubscription(None, wanted, byref(channels), 0, None)
        self._channels = channels.value
        self._owned += [reference for reference in (self._subscription, self._channels) if reference]
        if not self._subscription:
            raise NativeError("IOReport refused the subscription")

    def _sample(self) -> tuple[int, float]:
        sample = self._lib.IOReportCreateSamples(self._subscription, self._channels, None)
        if not sample:
            raise NativeError("IOReport gave no sample")
        return sample, self._clock()

    def read(self) -> tuple[list[Channel], float]:
        """(channels, seconds that they counted). NativeError where there is no sample now; the next one spans both."""
        now = self._sample()
        last, self._last = self._last, now
        if last is None:
            return [], 0.0
        delta = None
        try:
            delta = self._lib.IOReportCreateSamplesDelta(last[0], now[0], None)
            return list(self._decode(delta)), now[1] - last[1]
        finally:
            self._lib.release(delta, last[0])

    def _decode(self, delta: int | None) -> Iterator[Channel]:
        lib = self._lib
        if not delta:
            return
        with lib.string("IOReportChannels") as key:
            array = lib.CFDictionaryGetValue(delta, key)
        for item in lib.items(array):
            group = lib.text(lib.IOReportChannelGetGroup(item))
            subgroup = lib.text(lib.IOReportChannelGetSubGroup(item))
            name = lib.text(lib.IOReportChannelGetChannelName(item))
            if group == ENERGY:
                unit = lib.text(lib.IOReportChannelGetUnitLabel(item))
                yield Channel(group, subgroup, name, unit, lib.IOReportSimpleGetIntegerValue(item, 0))
            else:
                states = [
                    (
                        lib.text(lib.IOReportStateGetNameForIndex(item, index)),
                        lib.IOReportStateGetResidency(item, index),
                    )
                    for index in range(lib.IOReportStateGetCount(item))
                ]
                yield Channel(group, subgroup, name, states=states)

    def close(self) -> None:
        """Release everything; may be called twice."""
        owned, self._owned = self._owned, []
        last, self._last = self._last, None
        self._lib.release(*owned, last[0] if last is not None else None)
