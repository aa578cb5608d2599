"""Names of files, made from whatever keys there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.writer.media.names import file_name, safe_key
from runferry.writer.runfiles import safe_relative

SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("img", "img_7_0123456789abcdef0123.png"),
        ("a/b.c d", "a/b.c d_7_0123456789abcdef0123.png"),
        ("../../etc/passwd", "__/__/etc/passwd_7_0123456789abcdef0123.png"),
        ("/abs", "abs_7_0123456789abcdef0123.png"),
        ("a//b", "a/b_7_0123456789abcdef0123.png"),
        ("", "_7_0123456789abcdef0123.png"),
        ("a\0\nb", "a__b_7_0123456789abcdef0123.png"),
        ("..\\x", ".._x_7_0123456789abcdef0123.png"),
        ("\udcff", "\ufffd_7_0123456789abcdef0123.png"),
    ],
)
def test_a_key_becomes_a_file_name(key, name):
    """Key, step and hash; slashes are folders, and nothing leads out of the folder."""
    assert file_name(key, "7", SHA, ".png") == name


@given(st.text(max_size=400) | st.lists(st.sampled_from(["..", ".", "x", "", "\\..", "C:"])).map("/".join))
def test_every_key_has_a_name_that_a_file_system_takes(key):
    """Relative, below the folder, no component beyond 255 bytes, the hash whole."""
    name = file_name(key, "summary", SHA, ".table.json")

    assert safe_relative(f"media/table/{name}") == f"media/table/{name}"
    assert all(0 < len(part.encode()) <= 255 for part in name.split("/"))
    assert name.endswith("_summary_0123456789abcdef0123.table.json")


def test_a_key_on_windows_loses_what_files_there_cannot_have():
    """Colons, stars, names of devices, dots and spaces at the end."""
    assert safe_key("CON/com1.x/aux", windows=True) == "CON_/com1_.x/aux_"
    assert safe_key("console/com/a.con", windows=True) == "console/com/a.con"
    assert safe_key("a./b /../c..", windows=True) == "a_/b_/._/c._"
    assert safe_key("CON/a.", windows=False) == "CON/a."
    assert safe_key('a:b*c?"<d>|e\\f', windows=True) == "a_b_c___d__e_f"
    assert safe_key('a:b*"', windows=False) == 'a:b*"'


def test_a_very_long_key_is_cut_to_a_path_that_can_be_opened():
    """Thousands of folders are no path."""
    for key in ("d/" * 5000 + "é" * 400, "é" * 200 + "/x"):
        name = file_name(key, "1", SHA, ".png")

        assert len(name.encode()) < 2000
        assert all(len(part.encode()) <= 255 for part in name.split("/"))
