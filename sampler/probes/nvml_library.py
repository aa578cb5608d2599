"""Where NVML lies and how it is loaded: found without loading it, initialised from wherever it is."""

from __future__ import annotations

import ntpath
from collections.abc import Callable, Mapping
from typing import Any

from .nvml_calls import LIBRARY_NOT_FOUND, code_of

# Any of these says that a driver is there: the kernel module, its control device, Windows' driver under WSL.
LINUX_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"  # not in the linker's path in every distribution


def _windows_libraries(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where drivers for Windows put it: since 2017, before, and where the user says."""
    named = environ.get("NVML_DLL_PATH")
    return (
        ntpath.join(environ.get("WINDIR", "C:/Windows"), "System32", "nvml.dll"),
        ntpath.join(environ.get("ProgramFiles", "C:/Program Files"), "NVIDIA Corporation", "NVSMI", "nvml.dll"),
        *((named,) if named else ()),
    )


def driver_signs(platform: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Files of which one is there wherever a driver is; `platform` as `sys.platform`."""
    return _windows_libraries(environ) if platform == "win32" else LINUX_SIGNS


def load_library(path: str) -> Any:
    """Load a C library. OSError if it is not there."""
    from ctypes import CDLL  # for helpers only: the sampler's own process needs none of it

    return CDLL(path)


def initialise(
    nvml: Any,
    platform: str,
    environ: Mapping[str, str],
    load: Callable[[str], Any] = load_library,
) -> None:
    """Load and initialise the library; what the binding does not find is looked for where else it may lie.

    Raises:
        Exception: the binding's own (`code_of` tells which), as it came from the driver.
    """
    try:
        nvml.nvmlInit()
    except Exception as error:  # classes are built at run time
        if code_of(error) != LIBRARY_NOT_FOUND:
            raise
        for path in _windows_libraries(environ) if platform == "win32" else (WSL_LIBRARY,):
            try:
                nvml.nvmlLib = load(path)
            except OSError:  # not there either
                continue
            nvml.nvmlInit()
            return
        raise
