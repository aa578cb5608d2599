"""The part of ROCm's module `amdsmi` that the probe uses: two devices, as by the binding of ROCm 7.

Limits are in uW on the host and in W in a guest; figures that the driver does not know are "N/A" or all ones.
"""

from __future__ import annotations

from enum import IntEnum


class AmdSmiLibraryException(Exception):  # noqa: N818 - the binding's name
    pass


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class AmdSmiTemperatureType(IntEnum):
    VRAM = 2


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class FakeAmdSmi:
    AmdSmiLibraryException = AmdSmiLibraryException
    AmdSmiMemoryType = AmdSmiMemoryType
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric

    def __init__(self, *, fail=(), broken=False, devices=2):
        self.fail = set(fail)  # names of functions that fail now
        self.broken = broken
        self.devices = devices
        self.is_open = False

    def __getattribute__(self, name):
        if name.startswith("amdsmi_") and name in object.__getattribute__(self, "fail"):
            raise AmdSmiLibraryException(name)
        return object.__getattribute__(self, name)

    def amdsmi_init(self):
        if self.broken:
            raise AmdSmiLibraryException(34)
        self.is_open = True

    def amdsmi_shut_down(self):
        self.is_open = False

    def amdsmi_get_processor_handles(self):
        return list(range(self.devices))

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": 97 + handle, "umc_activity": "N/A" if handle else 41, "mm_activity": "N/A"}

    def amdsmi_get_gpu_memory_usage(self, handle, kind):
        assert isinstance(kind, AmdSmiMemoryType)
        return 150 << 30

    def amdsmi_get_gpu_memory_total(self, handle, kind):
        assert isinstance(kind, AmdSmiMemoryType)
        return 200 << 30

    def amdsmi_get_temp_metric(self, handle, sensor, metric):
        assert (sensor, metric) == (AmdSmiTemperatureType.VRAM, AmdSmiTemperatureMetric.CURRENT)
        return 57

    def amdsmi_get_power_info(self, handle):
        return {
            "current_socket_power": 600 if not handle else "N/A",
            "average_socket_power": 0xFFFFFFFF if handle else "N/A",
        }

    def amdsmi_get_power_cap_info(self, handle):
        return {"power_cap": 750 if handle else 750_000_000}

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": 4_000_000, "counter_resolution": 15.25, "timestamp": 1}

    def amdsmi_get_gpu_mem_overdrive_level(self, handle):
        return 0

    def amdsmi_get_gpu_overdrive_level(self, handle):
        return 0

    def amdsmi_get_gpu_perf_level(self, handle):
        return "AMDSMI_DEV_PERF_LEVEL_AUTO"

    def amdsmi_get_gpu_asic_info(self, handle):
        return {
            "market_name": "AMD Instinct MI300X",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "device_id": "0x74a1",
            "asic_serial": f"0x00A0{handle:012X}",
        }

    def amdsmi_get_gpu_vbios_info(self, handle):
        return {"part_number": "113-M3000100-102", "version": "022.040"}

    def amdsmi_get_gpu_device_bdf(self, handle):
        return f"0000:{0xC1 + handle:02X}:00.0"
