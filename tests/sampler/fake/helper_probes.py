"""Probes that misbehave in a helper process, as vendor libraries do."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path

from runferry.sampler import Probe, ProbeUnavailableError, Tier


class Steady(Probe):
    name = "steady"
    tier = Tier.HELPER

    def __init__(self):
        self.count = 0

    def sample(self, ctx, out):
        self.count += 1
        out["steady.count"] = self.count
        out["steady.pid"] = os.getpid()

    def metadata(self):
        return {"gpu_type": "steady"}


class Paths(Steady):
    """Whether modules are looked for in the working folder."""

    name = "paths"

    def sample(self, ctx, out):
        out["paths.of_the_folder"] = int(bool({"", str(Path.cwd())} & set(sys.path)))
        out["paths.safe"] = int("PYTHONSAFEPATH" in os.environ)


class Stuck(Steady):
    """Its second sample never returns."""

    name = "stuck"

    def sample(self, ctx, out):
        super().sample(ctx, out)
        if self.count > 1:
            time.sleep(3600)


class Crashing(Steady):
    name = "crashing"

    def sample(self, ctx, out):
        os._exit(7)


class Chatty(Steady):
    """A library that writes to standard output, at Python's level and below it."""

    name = "chatty"

    def sample(self, ctx, out):
        sys.stdout.write("driver warning\n")
        sys.stdout.flush()
        os.write(1, b"another\n")
        super().sample(ctx, out)


class Failing(Steady):
    name = "failing"

    def sample(self, ctx, out):
        out["failing.before"] = 1
        raise RuntimeError("no luck")


class Odd(Steady):
    """Writes what no record holds, and what JSON cannot."""

    name = "odd"

    def sample(self, ctx, out):
        super().sample(ctx, out)
        out |= {"odd.nan": math.nan, "odd.huge": 10**5000, "odd.object": object(), b"odd.bytes": 1, "odd.good": 1.5}

    def metadata(self):
        return {"gpu_type": b"bytes"}


class Missing(Steady):
    name = "missing"

    def open(self, ctx):
        raise ProbeUnavailableError("no such device", loud=True)


class Stubborn(Steady):
    name = "stubborn"

    def open(self, ctx):
        raise OSError("busy")


class Slow6(Steady):
    """Its second sample takes 6 s."""

    name = "slow6"
    takes = 6.0

    def sample(self, ctx, out):
        super().sample(ctx, out)
        if self.count == 2:
            time.sleep(self.takes)


class Slow25(Slow6):
    """Its second sample takes 25 s."""

    name = "slow25"
    takes = 25.0


class Stopped(Steady):
    """At its second sample a debugger, or the scheduler of a cluster, stops it."""

    name = "stopped"

    def sample(self, ctx, out):
        super().sample(ctx, out)
        if self.count == 2:
            os.kill(os.getpid(), signal.SIGSTOP)


class Rate(Steady):
    """Needs two readings, and is asked once an hour."""

    name = "rate"
    interval = 3600.0

    def sample(self, ctx, out):
        self.count += 1
        if self.count > 1:
            out["rate.value"] = self.count


class Rare(Steady):
    """Is asked once an hour."""

    name = "rare"
    interval = 3600.0
