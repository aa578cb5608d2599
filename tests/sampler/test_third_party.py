"""Probes of another distribution that is really installed: files and metadata on the path, as pip leaves them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from runferry.sampler import SamplerSettings, registry, sample_once

CODE = """
from runferry.sampler import Probe, ProbeUnavailableError, Tier


class Rack(Probe):
    name = "rack"
    tier = Tier.THREAD

    def discover(self, ctx):
        return None if ctx.exists("/etc/rack.conf") else "no /etc/rack.conf"

    def sample(self, ctx, out):
        out["rack.inletTemp"] = float(ctx.read("/etc/rack.conf"))


class Library(Rack):
    name = "rack_library"
    tier = Tier.HELPER

    def sample(self, ctx, out):
        import os

        out["rack.libraryPid"] = os.getpid()


class Absent(Rack):
    name = "absent"

    def open(self, ctx):
        raise ProbeUnavailableError("the rack is empty", loud=True)


def broken():
    raise RuntimeError("unreachable")
"""

ENTRIES = """
[runferry.probes]
rack = rack_probes:Rack
rack_library = rack_probes:Library
absent = rack_probes:Absent
gone = rack_probes:NoSuchProbe
no_probe = rack_probes:broken
cpu = rack_probes:Rack
"""


@pytest.fixture
def installed(tmp_path, monkeypatch, machine):
    """A distribution with probes, on the path of this process and of helpers."""
    site = tmp_path / "site-packages"
    info = site / "rack_probes-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "rack_probes.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-probes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    machine.write({"/etc/rack.conf": "23.5"})
    yield machine
    sys.modules.pop("rack_probes", None)


def test_probes_of_an_installed_distribution(installed, clock):
    """Its probes are found by their entry points and run on a thread and in a helper; what is wrong is told by name."""
    warnings = []
    settings = SamplerSettings(self_metrics=False, probe_intervals={"rack": 0}, label="n0")
    values = sample_once(settings, root=str(installed.root), clock=clock, warn=warnings.append).values
    assert values["rack.inletTemp/l:n0"] == 23.5
    assert values["rack.libraryPid/l:n0"] not in {0, os.getpid()}
    assert len(warnings) == 4
    assert "probe 'cpu' of rack_probes:Rack is not used: the name is taken" in warnings
    assert "probe absent is left out: the rack is empty" in warnings
    assert any(line.startswith("probe 'gone' of rack_probes:NoSuchProbe cannot be loaded: ") for line in warnings)
    assert any(line.startswith("probe 'no_probe' of rack_probes:broken cannot be loaded: ") for line in warnings)


@pytest.mark.parametrize(
    ("file", "offered"),
    [
        ("a-1.dist-info/entry_points.txt", True),
        ("a.egg-info/entry_points.txt", True),
        ("EGG-INFO/entry_points.txt", True),
        ("a-1.dist-info/METADATA", False),
        ("a/entry_points.txt", False),
    ],
)
def test_packages_are_listed_only_where_one_may_have_probes(tmp_path, file, offered):
    """Listing them takes longer than all samples of an hour: one look at their files comes first."""
    assert not registry._may_be_offered([str(tmp_path), str(tmp_path / "gone"), str(Path(os.__file__).parent)])
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(ENTRIES)
    assert registry._may_be_offered([str(tmp_path)]) is offered


def test_packages_in_other_places_than_folders_are_listed(tmp_path, monkeypatch):
    """A zip file on the path, or a finder of somebody else's, may hold any."""
    (tmp_path / "packages.zip").write_bytes(b"")
    assert registry._may_be_offered([str(tmp_path / "packages.zip")])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, SimpleNamespace(find_distributions=lambda context: ())])
    assert registry._may_be_offered([])


def test_they_can_be_chosen_and_left_out(installed, clock):
    """`probes` and `skip_probes` hold for them; what is not wanted is not even imported."""
    chosen = SamplerSettings(self_metrics=False, probes=("rack", "rack_library"), skip_probes=("rack_library",))
    warnings = []
    values = sample_once(chosen, root=str(installed.root), clock=clock, warn=warnings.append).values
    assert values == {"rack.inletTemp": 23.5}
    assert warnings == ["probe 'cpu' of rack_probes:Rack is not used: the name is taken"]
    sys.modules.pop("rack_probes", None)
    none = SamplerSettings(probes=("memory",))
    sample_once(none, root=str(installed.root), clock=clock, warn=lambda line: None)
    assert "rack_probes" not in sys.modules
