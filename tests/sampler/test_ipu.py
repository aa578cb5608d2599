"""Graphcore IPUs through a fake `gcipuinfo` that answers from recorded shapes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import SamplerSettings
from runferry.sampler.context import Context
from runferry.sampler.probe import ProbeUnavailableError
from runferry.sampler.probes.ipu import IpuProbe, read_attribute

FAKE = Path(__file__).parent / "fake" / "ipu"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sampler"


class FakeInfo:
    """The module, with the answers that its one object gives call by call; the first goes to `open`."""

    def __init__(self, answers):
        spec = importlib.util.spec_from_file_location("fake_gcipuinfo", FAKE / "gcipuinfo.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.gcipuinfo = lambda: module.gcipuinfo(answers)


@pytest.fixture
def ipus(machine, sampled):
    """Open the probe on lists of devices; 4242 is the monitored process, `children` are below it."""

    def start(*answers, children=()):
        machine.process(4242, children=children)
        for child in children:
            machine.process(child, parent=4242)
        return sampled(IpuProbe(FakeInfo([answers[0], *answers])), machine.context())

    return start


@pytest.fixture
def generations(fixture_json):
    return fixture_json("gcipuinfo-getDevices.json"), fixture_json("gcipuinfo-getDevices-2.json")


def test_first_sample(ipus, generations):
    """Only our devices; units move from the values into the keys; integral numbers are integers; no power, no key."""
    values = ipus(*generations).next()
    of_one = {key.removeprefix("ipu.1."): value for key, value in values.items() if key.startswith("ipu.1.")}
    assert of_one == {
        "average board temp (C)": 31.4,
        "average die temp (C)": 38,
        "clock (MHz)": 1500,
        "ipu power (W)": 118.25,
        "ipu utilisation (%)": 21.25,
        "ipu utilisation (session) (%)": 15.65,
        "link speed (GT/s)": 16,
        "id": 1,
        "board ipu index": 1,
        "link width": 8,
        "link correctable error count": 0,
        "numa node": 0,
        "parity error count": 0,
        "user process id": 4242,
    }
    assert values["ipu.2.average die temp (C)"] == 39  # "39C": no space before the unit
    assert "ipu.2.ipu power (W)" not in values  # "N/A"
    assert not [key for key in values if key.startswith(("ipu.0.", "ipu.3."))]


def test_later_samples_have_what_moves(ipus, generations):
    """From the second sample on a device has temperatures, clock, power and utilisation only, and they are new."""
    probe = ipus(*generations)
    probe.next()
    values = probe.next()
    assert values["ipu.1.ipu power (W)"] == 141.5
    assert values["ipu.2.ipu power (W)"] == 118.25
    assert {key.removeprefix("ipu.1.") for key in values if key.startswith("ipu.1.")} == {
        "average board temp (C)",
        "average die temp (C)",
        "clock (MHz)",
        "ipu power (W)",
        "ipu utilisation (%)",
        "ipu utilisation (session) (%)",
    }


def test_other_attributes_come_first_and_when_they_change(ipus, generations):
    """An error count that rises is told when it does, and not again."""
    first, second = generations
    second[1]["parity error count"] = "2"
    probe = ipus(first, second)
    assert [probe.next().get("ipu.1.parity error count") for _ in range(3)] == [0, 2, None]


def test_device_of_a_child(ipus, generations):
    """A device held by a descendant of the monitored process is ours too; one taken later starts with all attributes."""
    first, second = generations
    first[0]["user process id"] = "1"
    probe = ipus(first, second, children=(456,))
    assert "ipu.0.clock (MHz)" not in probe.next()
    values = probe.next()
    assert values["ipu.0.user process id"] == 456
    assert "ipu.0.link speed (GT/s)" in values
    assert "ipu.1.link speed (GT/s)" not in values


def test_attributes_of_the_tool(fixture_json):
    """The vendor's own listing parses line by line as the module's answers do."""
    lines = (FIXTURES / "gc-info-device.txt").read_text().splitlines()[1:]
    pairs = (line.strip().partition(": ") for line in lines)
    read = dict(filter(None, (read_attribute(name, text) for name, _, text in pairs)))
    assert read["ipu utilisation (session) (%)"] == 15.65
    assert read["link speed (GT/s)"] == 16
    assert "board serial number" not in read  # 0000.0000.000001
    assert "driver version" not in read


def test_metadata(ipus, generations):
    """The hardware record lists all devices of the host."""
    metadata = ipus(*generations).probe.metadata()["ipu"]
    assert metadata["device_count"] == 4
    assert metadata["vendor"] == "Graphcore"
    assert metadata["devices"][1] == {"id": "1", "board ipu index": "1", "board type": "C600"}


def test_host_without_devices(ipus):
    """The module alone, on a login node of a cluster, is no device."""
    with pytest.raises(ProbeUnavailableError, match="no device"):
        ipus([])


def test_only_where_the_module_is(machine, monkeypatch):
    """Without the module no helper is started; where it is found nothing is imported to find it."""
    assert "gcipuinfo" in IpuProbe().discover(machine.context())
    monkeypatch.syspath_prepend(str(FAKE))
    importlib.invalidate_caches()
    assert IpuProbe().discover(machine.context()) is None
    assert "gcipuinfo" not in sys.modules


@pytest.mark.parametrize("failure", ["raise RuntimeError('no libgcipuinfo')", "import no_such_module"])
def test_a_module_that_fails_at_its_import(machine, monkeypatch, tmp_path, failure):
    """Whatever the import raises is a reason to leave the probe out, told as it was."""
    (tmp_path / "gcipuinfo.py").write_text(failure)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(ProbeUnavailableError, match=r"gcipuinfo cannot be loaded: .*no"):
        IpuProbe().open(machine.context())
    assert "gcipuinfo" not in sys.modules


def test_numbers_in_place_of_texts(ipus, generations):
    """A module that tells numbers as numbers is understood, too; a device without an id has no key to stand under."""
    first, _ = generations
    first[1] |= {"user process id": 4242, "parity error count": 3}
    del first[2]["id"]
    values = ipus(first).next()
    assert values["ipu.1.parity error count"] == 3
    assert {key.split(".")[1] for key in values} == {"1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16),
        ("9007199254740992", 1 << 53),
        ("18446744073709551615", 2.0**64),  # a float cannot tell it from its neighbours: no int that looks exact
        ("1e308", 1e308),
        ("-3", -3),
        ("0.5", 0.5),
        ("1_000", None),
        ("nan", None),
        ("-inf", None),
    ],
)
def test_numbers(text, value):
    """Integers where they are exact, finite numbers else, in nobody's spelling but the common one."""
    read = read_attribute("board ipu index", text)
    assert read == (None if value is None else ("board ipu index", value))
    assert read is None or type(read[1]) is type(value)


def test_in_the_helper(monkeypatch, from_helper):
    """End to end: the helper imports the module, and the device of this process has values."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.setenv("GCIPUINFO_ANSWERS", str(FIXTURES / "gcipuinfo-getDevices.json"))
    metadata, values = from_helper(IpuProbe(), Context(SamplerSettings(pid=4242)))
    assert metadata["ipu"]["device_count"] == 4
    assert values["ipu.1.ipu power (W)"] == 118.25


@given(st.text(), st.text())
def test_any_attribute(name, text):
    """Whatever an attribute says: a finite number or nothing, and the name is kept."""
    read = read_attribute(name, text)
    if read is not None:
        assert read[0].startswith(name)
        assert float("-inf") < read[1] < float("inf")
