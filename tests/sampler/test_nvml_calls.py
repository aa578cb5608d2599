"""How calls into NVML fail, and where its library is found."""

from __future__ import annotations

import subprocess
import sys

import pytest
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes import nvml_library
from runferry.sampler.probes.nvidia import NvidiaProbe
from runferry.sampler.probes.nvml_calls import (
    MOST_REGROWS,
    PATIENCE,
    SELDOM,
    Calls,
    DeviceLostError,
    Getters,
    LibraryClosedError,
)
from runferry.sampler.probes.nvml_fields import Field, Fields


class CodeError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.value = code


class Scripted:
    """A call that raises the given codes one after the other (None: it works), the last one for ever."""

    def __init__(self, *codes):
        self.codes = list(codes)
        self.calls = 0

    def __call__(self, *_):
        code = self.codes[min(self.calls, len(self.codes) - 1)]
        self.calls += 1
        if code is not None:
            raise code if isinstance(code, Exception) else CodeError(code)
        return "result"


def ticks(calls, call, count):
    """The results at so many ticks."""
    results = []
    for _ in range(count):
        results.append(calls.get("name", call))
        calls.tick += 1
    return results


@pytest.mark.parametrize("code", [3, 13, 4, 22, 25, 26, 2, AttributeError("no such function in this binding")])
def test_what_can_never_work_is_asked_once(code):
    """Not supported, not found, no permission, wrong version, deprecated, invalid: no use in asking again."""
    call = Scripted(code, None)
    assert ticks(Calls(), call, 30) == [None] * 30
    assert call.calls == 1


@pytest.mark.parametrize("code", [999, 21, 10, 27, 19, 20, 23, 8, ValueError("an answer that makes no sense")])
def test_what_passes_is_asked_for_ever(code):
    """Three failures in a row make the call seldom, never give it up; a success makes it frequent again."""
    call = Scripted(*[code] * (PATIENCE + 1), None, code, None)
    results = ticks(Calls(), call, PATIENCE + 2 * SELDOM + 2)
    back = PATIENCE - 1 + 2 * SELDOM
    assert results[:back] == [None] * back
    assert results[back:] == ["result", None, "result"]


@pytest.mark.parametrize("code", [0, 6])
def test_nothing_there_is_no_failure(code):
    """An empty list, which the binding raises as success, and "not found" make no call seldom."""
    call = Scripted(*[code] * 10, None)
    assert ticks(Calls(), call, 11) == [None] * 10 + ["result"]


@pytest.mark.parametrize("code", [15, 16, 28])
def test_lost_devices(code):
    """Fell off the bus, needs a reset, not found: the device is gone, whatever the call."""
    with pytest.raises(DeviceLostError, match=f"code {code}"):
        Calls().get("name", Scripted(code))


@pytest.mark.parametrize("code", [1, 9, 12, 18])
def test_library_without_state(code):
    """Uninitialised, no driver, no library, another version: the library's matter, and no call's."""
    with pytest.raises(LibraryClosedError, match=f"code {code}"):
        Calls().get("name", Scripted(code))


@pytest.mark.parametrize(("result", "told"), [(2**32 - 1, None), (2**64 - 1, None), (2**32, 2**32), (0, 0)])
def test_blank_result(result, told):
    """All ones of either width is no value, and no failure."""
    calls = Calls()
    assert [calls.get("name", lambda: result) for _ in range(PATIENCE + 1)] == [told] * (PATIENCE + 1)
    assert calls.due("name")


def test_forgiven_calls_are_asked_again():
    """What was refused, failed or put off is as new."""
    calls, call = Calls(), Scripted(3, 999, 999, 999, None)
    assert ticks(calls, call, 1) == [None]
    calls.forgive()
    assert ticks(calls, call, 3) == [None] * 3
    assert not calls.due("name")
    calls.forgive()
    assert ticks(calls, call, 1) == ["result"]


def test_list_that_grows_while_it_is_read_is_read_again():
    """Insufficient size is tried again at once, with new room each time; only a list that never stops costs the tick."""
    call = Scripted(*[7] * MOST_REGROWS, None)
    assert Calls().get("name", call) == "result"
    endless = Scripted(7)
    calls = Calls()
    assert calls.get("name", endless) is None
    assert endless.calls == MOST_REGROWS + 1
    assert calls.get("name", Scripted(None)) == "result"


def test_older_variant_takes_over_for_good():
    """Where the driver lacks the newer call the older one is used at the same tick, and the newer one is left alone."""
    newer, older = Scripted(13), Scripted(None)
    calls = Calls()
    assert [calls.get("name", newer, older) for _ in range(3)] == ["result"] * 3
    assert (newer.calls, older.calls) == (1, 3)


def test_passing_error_does_not_fall_back():
    """An older call may mean something else: a moment's failure of the newer one must not mix the two in one chart."""
    newer, older = Scripted(999, None), Scripted(None)
    calls = Calls()
    assert [calls.get("name", newer, older) for _ in range(2)] == [None, "result"]
    assert older.calls == 0


def test_negative_temperature(gpus, fixture_json):
    """The newer call has a sign; the older one's result is read as if it had one. Both are asked by name."""
    data = fixture_json("nvml-h100x2.json")
    data["devices"][0]["temperature_signed"] = -7
    values = gpus(data).next()
    assert (values["gpu.0.temp"], values["gpu.1.temp"]) == (-7.0, 62.0)
    data["devices"][1]["temperature"] = 2**32 - 3
    assert gpus(data).next()["gpu.1.temp"] == -3.0


def test_function_that_the_binding_lacks(gpus, fake_pynvml, monkeypatch):
    """An old version of the binding costs what it lacks only."""
    monkeypatch.delattr(fake_pynvml.FakeNvml, "nvmlDeviceGetFanSpeed_v2")
    monkeypatch.delattr(fake_pynvml.FakeNvml, "nvmlDeviceGetTotalEnergyConsumption")
    values = gpus("nvml-rtx4090.json").next()
    assert values["gpu.0.fanSpeed"] == 38
    assert "gpu.0.energyJoules" not in values
    assert "gpu.0.powerWatts" in values


class FieldsOf:
    """An NVML that tells fields by number: (code, type, member, value)."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def nvmlDeviceGetFieldValues(self, handle, wanted):  # noqa: N802 - NVML's name
        self.asked.append([field.number for field in wanted])
        return [self.answers[f"f{field.number}"] for field in wanted]


class Answer:
    def __init__(self, code, kind=0, **members):
        self.nvmlReturn, self.valueType = code, kind
        self.value = type("Value", (), members)


def test_fields_by_the_type_of_their_value():
    """Each member of the union; what is not supported is not asked again, what passes is."""
    nvml = FieldsOf(
        f1=Answer(0, 0, dVal=1.5), f2=Answer(0, 1, uiVal=2), f3=Answer(0, 3, ullVal=2**60), f4=Answer(0, 5, siVal=-4),
        f5=Answer(3), f6=Answer(999), f7=Answer(0, 99), f8=Answer(0, 1, uiVal=2**32 - 1),
    )  # fmt: skip
    fields = Fields(nvml, "handle", Calls())
    wanted = [Field(number) for number in range(1, 9)]
    found = fields.read("group", wanted)
    assert {field.number: value for field, value in found.items()} == {1: 1.5, 2: 2, 3: 2**60, 4: -4}
    fields.read("group", wanted)
    assert nvml.asked[1] == [1, 2, 3, 4, 6, 7, 8]
    assert [number for number in range(1, 9) if fields.refused("group", Field(number))] == [5]


def test_field_that_fails_now_and_then_is_not_put_off():
    """Failures that are not in a row do not make a field seldom."""
    nvml, calls = FieldsOf(f1=Answer(999)), Calls()
    fields = Fields(nvml, "handle", calls)
    for tick in range(3 * PATIENCE):
        calls.tick = tick
        nvml.answers["f1"] = Answer(0, 3, ullVal=1) if tick % PATIENCE == 0 else Answer(999)
        fields.read("group", [Field(1)])
    assert len(nvml.asked) == 3 * PATIENCE


def test_lost_device_in_a_field():
    """One value that says that the device is gone says it for all."""
    with pytest.raises(DeviceLostError):
        Fields(FieldsOf(f1=Answer(15)), "handle", Calls()).read("group", [Field(1)])


def test_getters_keep_their_arguments_apart():
    """The same function with other arguments is another call: one that is refused costs the other nothing."""

    class Nvml:
        @staticmethod
        def nvmlDeviceGetClockInfo(handle, clock):  # noqa: N802 - NVML's name
            if clock == 0:
                raise CodeError(3)
            return 1000 + clock

    get = Getters(Nvml, "handle", Calls())
    assert (get("ClockInfo", 0), get("ClockInfo", 1)) == (None, 1001)


class Elsewhere:
    """An NVML that the binding itself does not find."""

    def __init__(self, code=12):
        self.code = code
        self.nvmlLib = None

    def nvmlInit(self):  # noqa: N802 - NVML's name
        if self.nvmlLib is None:
            raise CodeError(self.code)


@pytest.mark.parametrize(
    ("platform", "environ", "path"),
    [
        ("linux", {}, "/usr/lib/wsl/lib/libnvidia-ml.so.1"),
        ("win32", {"NVML_DLL_PATH": "D:/nvml.dll"}, "D:/nvml.dll"),
    ],
)
def test_library_in_another_place(platform, environ, path):
    """Under WSL and where the user says it is, it is loaded by its path."""

    def load(tried):
        if tried != path:
            raise OSError(tried)
        return f"library of {tried}"

    nvml = Elsewhere()
    nvml_library.initialise(nvml, platform, environ, load)
    assert nvml.nvmlLib == f"library of {path}"


def test_library_that_was_found_is_not_looked_for_elsewhere():
    """A driver that is not loaded is not helped by another copy of its library."""
    nvml = Elsewhere(9)
    with pytest.raises(CodeError, match="code 9"):
        nvml_library.initialise(nvml, "linux", {}, lambda path: path)
    assert nvml.nvmlLib is None


@pytest.mark.parametrize("code", [12, 9])
def test_library_nowhere(code):
    """What is found nowhere, or finds no driver, fails as the binding said."""

    def load(tried):
        raise OSError(tried)

    with pytest.raises(CodeError, match=f"code {code}"):
        nvml_library.initialise(Elsewhere(code), "linux", {}, load)


def test_signs_of_a_driver():
    """Windows' drivers show by the library's places, Linux' by the kernel module's files."""
    signs = nvml_library.driver_signs("win32", {"WINDIR": "C:\\Windows", "ProgramFiles": "C:\\Programs"})
    assert signs == ("C:\\Windows\\System32\\nvml.dll", "C:\\Programs\\NVIDIA Corporation\\NVSMI\\nvml.dll")
    assert "/dev/dxg" in nvml_library.driver_signs("linux", {})


def test_scripted_faults(gpus, fixture_json, fake_pynvml, monkeypatch):
    """The faults of the fixture one by one: a passing one, a lasting one, a slow one, no permission, a lost device."""
    slept = []
    monkeypatch.setattr(fake_pynvml.time, "sleep", slept.append)
    faults = fixture_json("nvml-faults.json")["script"]
    mismatch = [fault for fault in faults if fault["fn"] == "nvmlInit"]
    with pytest.raises(ProbeUnavailableError, match="reload the kernel module") as caught:
        gpus("nvml-h100x2.json", script=mismatch)
    assert caught.value.loud
    lost = {"fn": "nvmlDeviceGetTemperature", "device": 1, "call": 3, "raise": "NVML_ERROR_GPU_IS_LOST"}
    probe = gpus("nvml-h100x2.json", script=[*(fault for fault in faults if fault not in mismatch), lost])
    told = [probe.next() for _ in range(5)]
    assert ["gpu.0.gpu" in values for values in told] == [True, False, True, True, True]
    assert not any("gpu.1.powerWatts" in values or "gpu.process.0.gpu" in values for values in told)
    assert ["gpu.1.lost" in values for values in told] == [False, False, True, True, True]
    assert 30 in slept
    assert "gpu.1.lost" in probe.next(after=60)  # its handle, asked for the fourth time, is refused
    assert "gpu.1.temp" in probe.next(after=60)


def test_the_training_process_loads_none_of_it():
    """Where the sampler runs there is the probe and what it says of its keys; all else is for the helper."""
    code = "import sys; import runferry.sampler.probes.{0}; print(*sorted(set(sys.modules) & {1}))"
    heavy = "{'ctypes', 'pynvml', 'runferry.sampler.probes.nvml_device', 'runferry.sampler.probes.nvidia_dcgm_library'}"
    for module in ("nvidia", "nvidia_dcgm"):
        command = [sys.executable, "-c", code.format(module, heavy)]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == []


def test_closing_without_having_opened():
    """A probe that found no driver has nothing to release."""
    NvidiaProbe().close()
