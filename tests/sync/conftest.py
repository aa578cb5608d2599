"""What the tests of whole syncs share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.syncrig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
