"""Secrets never reach a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import is_secret_name, redact_argv, redact_text
from runferry.sampler.redact import MARK

HEX40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ASIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "gho_" + "a1B2" * 9,
        "github_pat_" + "11ABCDEFG0abcdefghijkl_" + "x" * 40,
        "glpat-" + "x1y2z3x1y2z3x1y2z3x1",
        "sk-" + "proj-" + "A1b2C3d4" * 6,
        "sk-" + "ant-api03-" + "A1b2C3d4" * 6,
        "xoxb-" + "123456789012-abcdefABCDEF",
        "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
        "npm_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0." + "abc-_def",
        "wandb_v1_" + "Ab1_" * 12,
        "local-" + HEX40,
        "sk_live_" + "a1B2" * 6,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_token_shapes(token):
    """Known token shapes are taken out wherever they stand; what surrounds them stays."""
    redacted = redact_text(f"run with {token} now")
    assert redacted == (f"run with {MARK} now", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:s3cret@host/x.git", f"https://me:{MARK}@host/x.git"),
        ("postgres://u:p@ss@db:5432/x", f"postgres://u:{MARK}@db:5432/x"),
        ("https://averylongtokenwithoutshape@host/x", f"https://{MARK}@host/x"),
        ("git@github.com:me/repo.git", "git@github.com:me/repo.git"),
        ("https://host/x?api_key=abc&lr=1", f"https://host/x?api_key={MARK}&lr=1"),
        ("WANDB_API_KEY=abc python", f"WANDB_API_KEY={MARK} python"),
        ('{"password": "x y", "lr": 1}', None),
        ("db.password=hunter2", f"db.password={MARK}"),
        ("secret: hunter2", f"secret: {MARK}"),
        ("Authorization: Bearer abc", f"Authorization: {MARK}"),
    ],
)
def test_values_beside_telling_names(text, expected):
    """A value after a name such as password, api_key or secret goes, whatever it looks like; so do URL passwords."""
    redacted = redact_text(text).text
    if expected is None:
        assert "x y" not in redacted
        assert '"lr": 1' in redacted
    else:
        assert redacted == expected


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens=512",
        "pad_token=<pad>",
        "tokenizer=gpt2",
        "--eos-token=</s>",
        "use_auth_token=True",
        "sort_key=name",
        f"commit={HEX40}",
        f"--revision {HEX40}",
        "task: translate",
        "sha256:" + "a" * 64,
    ],
)
def test_what_is_no_secret_stays(text):
    """Words of a model's vocabulary, numbers, switches and named commits are not secrets."""
    assert redact_text(text) == (text, 0)


def test_arguments():
    """The argument after a key-like option goes whatever its shape; other options and model options stay."""
    argv = ["--api-key", "abc", "--lr", "3e-4", "--pad-token", "<pad>", "--token", "--fast", "-password", "x", HEX40]
    redacted = redact_argv(argv)
    expected = [
        "--api-key",
        MARK,
        "--lr",
        "3e-4",
        "--pad-token",
        "<pad>",
        "--token",
        "--fast",
        "-password",
        MARK,
        HEX40,
    ]
    assert redacted.args == expected
    assert redacted.removed == 2
    assert redact_argv(["--commit", HEX40, "--hub_token=abc", f"wandb.key={HEX40}"]).args == [
        "--commit",
        HEX40,
        f"--hub_token={MARK}",
        f"wandb.key={MARK}",
    ]


@pytest.mark.parametrize(
    ("name", "secret"),
    [("apiKey", True), ("HF_TOKEN", True), ("aws_secret_access_key", True), ("SLURM_JWT", True), ("dbPassword", True),
     ("hftoken", True), ("tokens", False), ("bos_token", False), ("keyboard", False), ("secretary", False)],
)  # fmt: skip
def test_names(name, secret):
    """Names of credentials by their last words, in any spelling."""
    assert is_secret_name(name) is secret


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_redacting_twice_changes_nothing(text):
    """Redaction never fails and is idempotent."""
    once = redact_text(text)
    assert redact_text(once.text).text == once.text


def test_long_text_is_linear():
    """A megabyte of near misses is done at once: no pattern backtracks without bound."""
    for piece in ("api_key", "-----BEGIN PRIVATE KEY-----", "https://a:", "token-", "eyJ", "a" * 39 + " "):
        redact_text(piece * (100_000 // len(piece)))
