"""What a run tells its user."""

from __future__ import annotations

from runferry.writer.report import warn_on_stderr


def test_a_warning_is_one_line(capsys):
    """Also where it repeats an error that has several, as those of JAX's tracers have."""
    warn_on_stderr("x is left out: Error: no value\n  here\r\n\n\nSee https://docs\n")

    assert capsys.readouterr().err == "runferry: WARNING x is left out: Error: no value here See https://docs\n"
