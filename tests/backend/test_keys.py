"""Where API keys come from, and what they let in."""

from __future__ import annotations

import base64
import stat

import pytest
from runferry.backend.keys import KEYS_VARIABLE, ApiKeys, UploadSigner, load_keys

KEY_A, KEY_B = "a" * 40, "local-" + "b" * 40


def basic(user, key):
    return "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()


def test_a_key_is_made_once(tmp_path):
    """The first start makes a key that only its owner can read; later starts use it again."""
    first = load_keys(tmp_path / "data", None, {})
    second = load_keys(tmp_path / "data", None, {})

    assert first.keys == second.keys
    assert len(first.keys[0]) == 40
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600


def test_the_file_comes_before_the_environment(tmp_path):
    """A named key file wins over the variable, which wins over the generated key; comments and blanks are skipped."""
    file = tmp_path / "keys"
    file.write_text(f"# team\n\n{KEY_A}\n {KEY_B} \n")

    assert load_keys(tmp_path, file, {KEYS_VARIABLE: "c" * 40}).keys == (KEY_A, KEY_B)
    assert load_keys(tmp_path, None, {KEYS_VARIABLE: f"{KEY_A},{KEY_B}"}).keys == (KEY_A, KEY_B)
    assert not (tmp_path / "api-key").exists()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "short\n"])
def test_a_useless_source_is_an_error(tmp_path, text):
    """No key, or one that clients would refuse, stops the start and does not fall back to another source."""
    (tmp_path / "keys").write_text(text)

    with pytest.raises(ValueError, match="API key"):
        load_keys(tmp_path, tmp_path / "keys", {})


def test_any_user_and_any_of_the_keys():
    """The user name does not matter; each key works, nothing else does."""
    keys = ApiKeys((KEY_A, KEY_B))

    assert keys.accepts(basic("api", KEY_A))
    assert keys.accepts(basic("", KEY_B))
    assert not keys.accepts(basic("api", KEY_A[:-1]))
    assert not keys.accepts(basic(KEY_A, ""))
    assert not keys.accepts(None)


def test_keys_do_not_show():
    """Neither keys nor the signing secret appear when the objects are printed."""
    assert KEY_A not in repr(ApiKeys((KEY_A,)))
    assert "secret" not in repr(UploadSigner(b"secret!"))


def test_a_signed_address_gives_its_name_back():
    """Any file name survives the trip through the address, for a day."""
    signer = UploadSigner(b"s")
    for name in ("a", "dir/ünï code?.txt", "x" * 1000):
        _, _, rest = signer.sign(7, name, now=1000.0).partition("/storage/7/")
        token, _, query = rest.partition("?")
        values = dict(part.split("=") for part in query.split("&"))
        assert signer.check(7, token, values["expires"], values["signature"], 2000.0) == name
        assert signer.check(8, token, values["expires"], values["signature"], 2000.0) is None
        assert signer.check(7, token, values["expires"], values["signature"], 1001.0 + 24 * 3600) is None
