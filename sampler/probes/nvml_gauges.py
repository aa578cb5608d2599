"""The values of one NVIDIA device that are always sampled."""

from __future__ import annotations

from typing import Any

from ..probe import Values
from .nvml_calls import BLANKS, Calls, Getters
from .nvml_gpm import Profiler
from .nvml_memory import put_memory

KIB = 1 << 10

# NVML's enumerations
_TEMPERATURE_CORE = 0
_SIGN = 1 << 31  # the older call for temperature has an unsigned result
_CLOCK_GRAPHICS, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2
_ECC_CORRECTED, _ECC_UNCORRECTED = 0, 1
_ECC_SINCE_DRIVER_LOAD, _ECC_DEVICE_MEMORY = 0, 2
_PCIE_TX, _PCIE_RX = 0, 1


class Gauges:
    """Load, memory, temperature, power, clocks, ECC errors, traffic and profiling counters of one device."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls
        self._get = Getters(nvml, handle, calls)
        self._profiler = Profiler(nvml, handle, calls)

    def sample(self, now: float, values: Values, *, aliases: bool, seldom: bool, pcie: bool) -> bool:
        """Write the values at `now` (s); those that are slow only if `seldom`, PCIe rates (40 ms) only if `pcie`.

        `aliases` adds the documented spelling of a key beside the peer's. Returns whether there are profiling counters,
        which tell of traffic.
        """
        self._sample_load(values)
        self._sample_power(values)
        self._sample_clocks(values, seldom=seldom)
        self._sample_errors(values, aliases=aliases)
        return self._sample_traffic(values, now, pcie=pcie)

    def _sample_load(self, values: Values) -> None:
        rates = self._get("UtilizationRates")
        if rates is not None:
            if rates.gpu not in BLANKS:
                values["gpu"] = float(rates.gpu)  # % of the driver's window in which a kernel ran
            if rates.memory not in BLANKS:
                values["memory"] = int(rates.memory)  # % of it with memory traffic, not memory used
        put_memory(values, self._nvml, self._handle, self._calls)
        temperature = self._get("TemperatureV", _TEMPERATURE_CORE, older="Temperature")
        if temperature is not None:
            values["temp"] = float(temperature if temperature < _SIGN else temperature - 2 * _SIGN)

    def _sample_power(self, values: Values) -> None:
        power = self._get("PowerUsage")  # mW
        limit = self._get("EnforcedPowerLimit") if power is not None else None
        if power is not None:
            values["powerWatts"] = power / 1000
        if limit:
            values["enforcedPowerLimitWatts"] = limit / 1000
            values["powerPercent"] = 100 * power / limit
        energy = self._get("TotalEnergyConsumption")  # mJ since the driver was loaded
        if energy is not None:
            values["energyJoules"] = energy / 1000

    def _sample_clocks(self, values: Values, *, seldom: bool) -> None:
        for name, clock in (("smClock", _CLOCK_SM), ("memoryClock", _CLOCK_MEMORY)):
            _put_int(values, name, self._get("ClockInfo", clock))
        _put_int(values, "fanSpeed", self._get_fan())
        if seldom:
            _put_int(values, "graphicsClock", self._get("ClockInfo", _CLOCK_GRAPHICS))
            encoder = self._get("EncoderUtilization")
            if encoder is not None and encoder[0] not in BLANKS:
                values["encoderUtilization"] = float(encoder[0])

    def _get_fan(self) -> int | None:
        """% of the first fan; drivers before 440 know one fan only."""
        nvml, handle = self._nvml, self._handle
        return self._calls.get(
            "fan", lambda: nvml.nvmlDeviceGetFanSpeed_v2(handle, 0), lambda: nvml.nvmlDeviceGetFanSpeed(handle)
        )

    def _sample_errors(self, values: Values, *, aliases: bool) -> None:
        scope = (_ECC_SINCE_DRIVER_LOAD, _ECC_DEVICE_MEMORY)
        _put_int(values, "correctedMemoryErrors", self._get("MemoryErrorCounter", _ECC_CORRECTED, *scope))
        uncorrected = self._get("MemoryErrorCounter", _ECC_UNCORRECTED, *scope)
        _put_int(values, "uncorrectedMemoryErrors", uncorrected)
        if aliases:  # the documented spelling
            _put_int(values, "unCorrectedMemoryErrors", uncorrected)

    def _sample_traffic(self, values: Values, now: float, *, pcie: bool) -> bool:
        """Profiling counters where there are any; else PCIe, a device per tick: each call measures for 20 ms."""
        profile = self._profiler.sample(now)
        if profile is not None:
            values.update(profile)
            return True
        if pcie:
            for name, direction in (("pcieTxBytes", _PCIE_TX), ("pcieRxBytes", _PCIE_RX)):
                rate = self._get("PcieThroughput", direction)  # KiB/s
                if rate is not None:
                    values[name] = float(rate * KIB)
        return False

    def close(self) -> None:
        """Release the profiling samples."""
        self._profiler.close()


def _put_int(values: Values, name: str, value: int | None) -> None:
    if value is not None:
        values[name] = int(value)
