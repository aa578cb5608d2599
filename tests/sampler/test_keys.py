"""Whose keys find room in a record."""

from __future__ import annotations

from typing import ClassVar

import pytest
from runferry.sampler import Probe, ProbeUnavailableError, SamplerSettings, Tier, registry
from runferry.sampler.engine import Engine
from runferry.sampler.keys import LONGEST_KEY, KeyTable
from runferry.sampler.metric import Metric
from runferry.sampler.probes.disk_io import DiskIoProbe
from runferry.sampler.probes.net_links import NetLinksProbe
from runferry.sampler.probes.nfs import NfsProbe

CAP = 20
MOUNT = "device s:/{0} mounted on /{0} with fstype nfs4 statvers=1.1\n\tREAD: 1 1 0 1 1 1 1 1 0\n"


class Many(Probe):
    """Writes more keys than there is room for."""

    name = "many"

    def __init__(self, form="many.{}", count=2 * CAP):
        self.form, self.count = form, count

    def sample(self, ctx, out):
        out.update({self.form.format(number): 1 for number in range(self.count)})


class Device(Many):
    """A device of the machine's, that is asked in a thread."""

    name = "device"
    tier = Tier.THREAD
    metrics: ClassVar = (Metric("gpu.{i}.temp", "C", "a call"), Metric("gpu.{i}.odd", "C", "", setting="extended"))

    def __init__(self, opening=None):
        super().__init__("gpu.{}.temp", CAP // 2)
        self.opening = opening

    def open(self, ctx):
        if self.opening:
            raise self.opening


class Endpoint(Many):
    name = "openmetrics"


class Interfaces(Many):
    name = "network"
    metrics: ClassVar = (
        Metric("network.sent", "bytes", "a file"),
        Metric("network.{interface}.sent", "bytes", "a file", setting="per_interface"),
    )

    def __init__(self):
        super().__init__("network.veth{}.sent")

    def sample(self, ctx, out):
        super().sample(ctx, out)
        out["network.sent"] = 1


@pytest.fixture
def run(clock, machine, monkeypatch):
    """One tick of our probes and those of others: the values and the warnings."""
    engines = []

    def run(ours, others=(), ticks=2, **settings):
        monkeypatch.setattr(registry, "built_in", lambda *args, **kwargs: ours)
        monkeypatch.setattr(registry, "third_party", lambda *args: others)
        samples, warnings = [], []
        settings = SamplerSettings(**{"self_metrics": False, "key_cap": CAP, **settings})
        engine = Engine(settings, samples.append, clock=clock, root=str(machine.root), warn=warnings.append)
        engines.append(engine)
        engine.open()
        engine.open_third_party()
        for _ in range(ticks):  # the device comes at the end of the first, at the latest
            engine.tick(grace=20)
        return samples[-1].values, [line for line in warnings if "/stat" not in line and "process" not in line]

    run.engines = engines
    yield run
    for engine in engines:
        engine.close(1.0)


@pytest.mark.parametrize(
    ("probe", "files"),
    [
        (NetLinksProbe(), {"/proc/net/dev": "".join(f"veth{n}: {' '.join('0' * 16)}\n" for n in range(50))}),
        (NfsProbe(), {"/proc/self/mountstats": "".join(MOUNT.format(n) for n in range(50))}),
        (DiskIoProbe(), {"/proc/diskstats": "".join(f"8 {n} sd{n} {' '.join('0' * 11)}\n" for n in range(50))}),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_a_crowd_leaves_room(run, machine, probe, files):
    """Thousands of interfaces, mounts or disks have half of the cap; what the host has once is no part of that."""
    machine.write(files)
    values, _ = run([probe, Device()], extended=True, disk_paths=("/nowhere",))
    once = [key for key in values if key in {"disk.in", "disk.out"}]
    assert len(once) == 2 * isinstance(probe, DiskIoProbe)
    assert len([key for key in values if key.startswith("gpu.")]) == CAP // 2 - len(once)


@pytest.mark.parametrize(
    ("ours", "others"),
    [([Endpoint()], []), ([Interfaces()], []), ([], [Many()]), ([Endpoint(), Interfaces()], [Many()])],
)
def test_a_late_device_finds_room(run, ours, others):
    """Endpoints, interfaces and probes of others have half of the cap together, however many keys they write."""
    values, warnings = run([*ours, Device()], others, per_interface=True)
    devices = [key for key in values if key.startswith("gpu.")]
    own = ["network.sent"] if "network.sent" in values else []
    assert own == ["network.sent"] * any(isinstance(probe, Interfaces) for probe in ours)
    assert len(values) == CAP
    assert len(devices) == CAP // 2 - len(own)
    assert len([line for line in warnings if line.startswith("more than 10 metric keys (half of key_cap)")]) == 1


def test_values_that_are_none_take_no_room():
    """A guest's key has a place when it has a value; keys that are known go on."""
    table = KeyTable(label=None, cap=2, warn=lambda line: None)
    assert table.guests({"a": float("nan"), "b": 1, "c": 2}) == {"b": 1}
    assert table.guests({"b": float("nan")}).keys() == {"b"}
    assert table.clean({"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2}


class Rival(Many):
    """Of another package; writes what a device of ours writes, and more."""

    name = "rival"

    def __init__(self):
        super().__init__()

    def sample(self, ctx, out):
        out.update({"gpu.0.temp": 99, "gpu.1.temp": 99, "gpu.0.odd": 99, "gpu.0.tempo": 99})


def test_a_key_of_ours_is_not_overridden(run):
    """A probe of others loses keys that one of ours declares under these settings, with one warning."""
    values, warnings = run([Device()], [Rival()])
    assert (values["gpu.0.temp"], values["gpu.1.temp"]) == (1, 1)
    assert (values["gpu.0.odd"], values["gpu.0.tempo"]) == (99, 99)
    assert warnings == ["probe rival: keys that probe device writes are left out, the first is 'gpu.0.temp'"]


def test_a_key_of_ours_is_free_where_its_device_is_not(run):
    """Where our probe finds nothing, another package's may write the same keys."""
    values, warnings = run([Device(ProbeUnavailableError("no device"))], [Rival()])
    assert values["gpu.0.temp"] == 99
    assert warnings == []


def _table(**settings):
    warnings = []
    return KeyTable(**{"label": None, "cap": CAP, "warn": warnings.append, **settings}), warnings


@pytest.mark.parametrize(
    ("label", "key", "kept"),
    [
        (None, "k" * LONGEST_KEY, True),
        (None, "k" * (LONGEST_KEY + 1), False),
        ("n", "k" * (LONGEST_KEY - 4), True),
        ("n", "k" * (LONGEST_KEY - 3), False),  # `/l:n` is part of it
        (None, "\u00e9" * (LONGEST_KEY // 2), True),
        (None, "\u00e9" * (LONGEST_KEY // 2) + "k", False),
    ],
)
def test_how_long_a_key_may_be(label, key, kept):
    """In bytes, with the label; a longer one is told."""
    table, warnings = _table(label=label)
    assert (len(table.clean({key: 1})), len(warnings)) == (kept, not kept)


@pytest.mark.parametrize(("value", "kept"), [(1 << 64, True), (-(1 << 64), True), ((1 << 64) + 1, False)])
def test_how_large_an_integer_may_be(value, kept):
    """No counter is larger; its text could be as long as memory."""
    table, _ = _table()
    assert table.clean({"k": value}) == ({"k": value} if kept else {})


def test_keys_that_never_end_are_not_kept(run):
    """A probe of another package that makes up a key at each sample costs no memory."""

    class Endless(Probe):
        name = "endless"
        ticks = 0

        def sample(self, ctx, out):
            self.ticks += 1
            out.update({f"k{self.ticks}.{number}": 1 for number in range(CAP)})

    _, warnings = run([], [Endless()], ticks=20)
    assert len(warnings) == 1
    assert len(run.engines[0]._claims) <= 2 * CAP
