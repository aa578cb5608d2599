"""What a run tells its user."""

from __future__ import annotations

from runferry.writer.report import WarnOnce, warn_on_stderr


def test_a_warning_is_one_line(capsys):
    """Also where it repeats an error that has several, as those of JAX's tracers have."""
    warn_on_stderr("x is left out: Error: no value\n  here\r\n\n\nSee https://docs\n")

    assert capsys.readouterr().err == "runferry: WARNING x is left out: Error: no value here See https://docs\n"


def test_each_topic_is_named_once_and_no_more_of_them_than_anybody_reads():
    """Code that makes up a name per step fills neither the console nor the memory, and the last line says so."""
    lines = []
    once = WarnOnce(lines.append)
    for number in [0, 0, *range(10_000)]:
        once(f"value x{number}", f"x{number} is left out")

    assert lines[:2] == ["x0 is left out", "x1 is left out"]
    assert len(lines) == WarnOnce.MOST + 1
    assert ["nothing new" in line for line in lines] == [False] * WarnOnce.MOST + [True]
    assert len(once._topics) == WarnOnce.MOST + 1
