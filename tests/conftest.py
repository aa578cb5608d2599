"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says how loaded the machine is, and nothing of what is tested.
settings.register_profile("runferry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("runferry")
