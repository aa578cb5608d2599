"""Secrets never reach a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sampler import is_secret_name, redact_argv, redact_text
from runferry.sampler.redact import MARK, holds_secrets, known_secrets

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
        "user_token=<|user|>",
        "chat_token: [CHAT]",
        "symbol_token=|",
        "PWD=/home/me/project",
        f"password={MARK}",
        "signature=a_function_of_long_name(x)",
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
    ("names", "secret"),
    [
        ("apiKey HF_TOKEN aws_secret_access_key AWS_ACCESS_KEY_ID SLURM_JWT dbPassword hftoken passwd db_pwd", True),
        ("AWS_SESSION_TOKEN admin_token login-token backendToken s3secret PGPASSWORD DB_PASS smtp_pass", True),
        ("bot_token user_token app_token OPENAI_API_KEY_2 apikey2 AWSAccessKeyId openaiApiKey oauth", True),
        ("add_keys embed_keys forward_pass sos_token instance_token word_delimiter_token token1 padToken", False),
        ("storage_key signing-key wandb_key cookie access_token refreshToken client_secret private.key auth", True),
        ("tokens bos_token keyboard secretary max_tokens tokenizer num_tokens token_type key_dim passes author", False),
        ("sort_key primary_key foreign_key key keys n_token next_token pass monkey turkey keypoints authors", False),
    ],
)
def test_names(names, secret):
    """Names of credentials by their last words, in any spelling."""
    assert {name: is_secret_name(name) for name in names.split()} == dict.fromkeys(names.split(), secret)
    assert holds_secrets("secrets")
    assert holds_secrets("api_keys")
    assert not holds_secrets("token")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_redacting_twice_changes_nothing(text):
    """Redaction never fails and is idempotent."""
    once = redact_text(text)
    assert redact_text(once.text).text == once.text


NEAR_MISSES = {
    "one letter": "x",
    "names": "api_key",
    "words": "token ",
    "assignments": "key=\"'",
    "plain values": "auth: ",
    "dots": "token....",
    "PEM": "-----BEGIN PRIVATE KEY-----",
    "PEM, open": "-----BEGIN ",
    "URLs": "://a:",
    "URLs, long": "https://" + "a" * 300 + ":",
    "providers": "sk-",
    "JWT": "eyJ-",
    "JWT, dotted": "eyJaaaaaaaa.",
    "hub": "hf_",
    "newer keys": "wandb_v1_-",
    "headers": "Bearer ",
    "hex": "wandb " + "a" * 39 + " ",
    "hex, one": "a",
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo+/",
    "letters that become two in lower case": "\u0130key=",
    "outside ASCII": "\u00e9\u4e2d\U0001f600",
    "quotes": "secret='\\\"",
    "lists": "tokens=a,",
}


@pytest.mark.parametrize("piece", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_long_text_is_linear(piece):
    """A million characters of near misses are done at once: no pattern walks on, or back, without bound."""
    redact_text(piece * (1_000_000 // len(piece)))


def test_positions_hold_beside_letters_that_become_two():
    """What is found in lower case is where it was."""
    assert redact_text("\u0130\u0130 password=hunter2 \u0130") == (f"\u0130\u0130 password={MARK} \u0130", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"password": "horse \\"battery\\" staple", "lr": 1}', f'{{"password": "{MARK}", "lr": 1}}'),
        ("password='horse battery' lr=1", f"password='{MARK}' lr=1"),
        ("password = b'hunter2' lr=1", f"password = b'{MARK}' lr=1"),
        ('password = """hunter2""" lr=1', f'password = """{MARK}""" lr=1'),
        ('os.environ["API_KEY"] = "hunter2"', f'os.environ["API_KEY"] = "{MARK}"'),
        ("API_KEY ?= hunter2", f"API_KEY ?= {MARK}"),
        ("apiKey := 'hunter2'", f"apiKey := '{MARK}'"),
        ("password: |\n  hunter2\nlr: 1", f"password: |\n  {MARK}\nlr: 1"),
        ("Cookie: a=b; session=c", f"Cookie: {MARK}"),
        ("Authorization: ApiKey hunter2 and more", f"Authorization: {MARK} and more"),
        (
            'Proxy-Authorization: Digest username="u", response="hunter2", qop=auth\nx',
            f"Proxy-Authorization: {MARK}\nx",
        ),
        ("Authorization: AWS4-HMAC-SHA256 Credential=AK/x, Signature=hunter2 -v", f"Authorization: {MARK} -v"),
        ("authorization: hunter2 --lr 3", f"authorization: {MARK} --lr 3"),
        ("AUTHORIZATION=hunter2 python train.py", f"AUTHORIZATION={MARK} python train.py"),
        ("api_key:\n    - hunter2\nlr: 3", f"api_key:\n    - {MARK}\nlr: 3"),
        ('token:\n- "hunter 2"', f'token:\n- "{MARK}"'),
        ("password=abc,def lr=1", f"password={MARK} lr=1"),
        ("password=abc,lr=1", f"password={MARK},lr=1"),
        ("?password=a&b&lr=1", f"?password={MARK}&lr=1"),
        ("{password: a}b]c, lr: 1}", f"{{password: {MARK}, lr: 1}}"),
        ("[{password: abc}]", f"[{{password: {MARK}}}]"),
        ("password=a&b;c,d}e lr=1", f"password={MARK} lr=1"),
        ("t.py --api-key hunter2 --lr 1", f"t.py --api-key {MARK} --lr 1"),
        ("t.py --api-key 'a b' --lr 1", f"t.py --api-key '{MARK}' --lr 1"),
        ("t.py --api-key --lr 1", None),
        ("os.getenv('API_KEY', 'hunter2')", f"os.getenv('API_KEY', '{MARK}')"),
        ("env = ['API_KEY', 'HF_TOKEN', 'HOME']", None),
        ("names = ['api_key', 'lr']", None),
        ("auth_token%3Dhunter2", f"auth_token%3D{MARK}"),
        (f"https://{'a1' * 20}:x-oauth-basic@h/x", f"https://{MARK}@h/x"),
        (f"https://{'a1' * 20}:@h/x", f"https://{MARK}@h/x"),
        (f"https://h/x?X-Amz-Signature={'a1' * 32}&y=1", f"https://h/x?X-Amz-Signature={MARK}&y=1"),
        ("api_keys=abc,def lr=1", f"api_keys={MARK} lr=1"),
        ("Authorization: Basic dXNlcjpwYXNz x", f"Authorization: {MARK} x"),
        ("use Bearer abcdef0123456789abcdef now", f"use Bearer {MARK} now"),
        ("the bearer of-very-bad-news-indeed", None),
        (f"wandb login {HEX40}", f"wandb login {MARK}"),
        (f"wandb login --relogin {HEX40}", f"wandb login --relogin {MARK}"),
        (f"see {HEX40}", None),
        (f"wandb run at commit {HEX40}", None),
        (f"pip install git+https://github.com/wandb/wandb@{HEX40}", None),
        ("line\\nghp_" + "a1B2" * 9, f"line\\n{MARK}"),
        ("password: 123456", f"password: {MARK}"),
        ("token: 123456", None),
        ("password: null", None),
        ("https://a:b@h/x https://c:d@h/y", f"https://a:{MARK}@h/x https://c:{MARK}@h/y"),
    ],
)
def test_what_stands_around_decides(text, expected):
    """Quotes hold a value together; switches and counts are none; 40 digits are what the words before them say."""
    assert redact_text(text).text == (text if expected is None else expected)


@pytest.mark.parametrize(
    "text",
    ["https://me:hunter2@host/x", "password=hunter2", "--api-key hunter2", "secret: hunter2", "Cookie: a=b; c=d"],
)
def test_what_is_hidden_already_is_not_counted_again(text):
    """A run that is begun with what another one logged hides nothing new."""
    once = redact_argv(text.split(" ") if text[0] == "-" else [text])

    assert once.removed == 1
    assert redact_argv(once.args) == (once.args, 0)


def test_overlapping_finds_are_one():
    """A token that also stands beside a telling name, inside a URL, is taken out and counted once."""
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"

    assert redact_text(f"HF_TOKEN={token}") == (f"HF_TOKEN={MARK}", 1)
    assert redact_text(f"https://me:{token}@host/x") == (f"https://me:{MARK}@host/x", 1)


def test_what_the_environment_holds_by_name_is_secret_everywhere():
    """Whatever it looks like; short words are not, nor are model options."""
    known = known_secrets(
        {"DB_PASSWORD": "correct horse", "API_KEY": "abc", "PAD_TOKEN": "[PAD] and more", "HOME": "/root/somewhere"}
    )

    assert known == ("correct horse",)
    assert redact_text("a correct horse b correct horse", known=known) == (f"a {MARK} b {MARK}", 2)
    assert redact_argv(["--note", "my correct horse"], known).args == ["--note", f"my {MARK}"]


def test_source_code_keeps_its_names():
    """In a diff only literals are secrets, and tokens by their shape."""
    code = (
        'def f(token: str, api_key=None):\n    self.password = password\n    key = "k"\n    api_key = "hunter2"\n'
        '    secret: str | None = f"hunter2"\n    DB_PASSWORD: str = environ.get("DB_PASSWORD", "hunter2")\n'
        '    API_KEY: Final = "hunter2"\n'
    )

    assert redact_text(code, code=True) == (code.replace("hunter2", MARK), 4)


def test_an_argument_behind_its_option_goes_whole():
    """Blanks inside an argument do not end it."""
    assert redact_argv(["--password=horse battery", "PASSWORD=a b", "--api-key", "c d"]).args == [
        f"--password={MARK}", f"PASSWORD={MARK}", "--api-key", MARK,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--opts", "WANDB.API_KEY", "a b", "LR", "1"], ["--opts", "WANDB.API_KEY", MARK, "LR", "1"]),
        (["db.password", "hunter2"], ["db.password", MARK]),
        (["--api-keys", "a", "b", "--lr", "1"], ["--api-keys", MARK, MARK, "--lr", "1"]),
        (["-m", "pkg.auth", "serve"], None),
        (["--columns", "token", "label"], None),
        (["--pwd", "/scratch/me"], None),
        (["set password=hunter2 and go"], [f"set password={MARK} and go"]),
        (["--tokenizer", f"/cache/snapshots/{HEX40}/tokenizer.json"], None),
    ],
)
def test_where_an_argument_is_a_value(argv, expected):
    """Behind a dotted name as behind an option; several behind a plural; words alone promise nothing."""
    assert redact_argv(argv).args == (argv if expected is None else expected)


def test_the_working_folder_is_no_secret():
    """Every shell exports PWD, which has a password's name: else each path below it would be hidden."""
    environ = {"PWD": "/home/me/project", "OLDPWD": "/home/me/another", "DB_PWD": "/not/a/folder"}

    assert known_secrets(environ) == ("/not/a/folder",)


TOKENS = ["hf_" + "a1B2" * 8, "ghp_" + "a1B2" * 9, "wandb_v1_" + "Ab1_" * 12, "sk-" + "Ab1-" * 10, "local-" + HEX40]


@given(before=st.text(max_size=60), token=st.sampled_from(TOKENS), after=st.text(max_size=60))
def test_a_token_goes_whatever_stands_around_it(before, token, after):
    """As long as blanks hold it apart: no other find takes its place or a part of it."""
    assert token not in redact_text(f"{before} {token} {after}").text


@given(
    name=st.sampled_from(["password", "api_key", "--hf-token", "DB.Secret", "clientSecret"]),
    sign=st.sampled_from(["=", ": ", " = ", '": "', "='"]),
    value=st.text(st.characters(categories=["Lu", "Ll"]), min_size=7, max_size=40),
    before=st.text(max_size=30),
)
def test_a_value_beside_a_secret_name_goes(name, sign, value, before):
    """However it is assigned, in whatever letters."""
    end = {'": "': '"', "='": "'"}.get(sign, "")
    text = redact_text(f"{before} {name}{sign}{value}{end} lr=0.1").text

    assert value not in text.removeprefix(before)
    assert text.endswith(f"{end} lr=0.1")
