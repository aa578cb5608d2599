"""No secret of a command line, an environment, a config or a remote gets into the run's directory."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest
from runferry.logformat import load
from runferry.sampler.redact import MARK
from runferry.writer.redaction import Redaction

HEX40 = "9f8e7d6c5b4a39281706f5e4d3c2b1a0deadbeef"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(["MIIEowIBAAKCAQEA7d" * 3] * 4) + "\n-----END RSA PRIVATE KEY-----"
)
ALNUM = "Zq8Rt3Lk9Wm2Xv7Bn4Hs6Jd1Fg5Pc0Ya"

BY_SHAPE = {
    "W&B": "wandb_v1_" + ALNUM * 2,
    "W&B, own server": "local-" + HEX40,
    "hub": "hf_" + ALNUM,
    "hub, organisation": "api_org_" + ALNUM,
    "AWS": "AKIA" + "QWERTYUIOPASDFGH",
    "AWS, session": "ASIA" + "QWERTYUIOPASDFGH",
    "GitHub": "ghp_" + ALNUM,
    "GitHub, OAuth": "gho_" + ALNUM,
    "GitHub, server": "ghs_" + ALNUM,
    "GitHub, fine": "github_pat_" + ALNUM + "_" + ALNUM,
    "GitLab": "glpat-" + ALNUM[:20],
    "OpenAI": "sk-" + "proj-" + ALNUM,
    "Anthropic": "sk-" + "ant-api03-" + ALNUM,
    "hex key": "sk-" + HEX40[:32],
    "Stripe": "sk_live_" + ALNUM,
    "Stripe, hook": "whsec_" + ALNUM,
    "Slack": "xoxb-" + "123456789012-" + ALNUM,
    "Slack, hook": "https://hooks.slack.com/services/" + "T012/B345/" + ALNUM,
    "Discord": "https://discord.com/api/webhooks/" + "123456/" + ALNUM,
    "Google": "AIza" + ALNUM + "abc",
    "Google, OAuth": "ya29." + ALNUM,
    "Google, client": "GOCSPX-" + ALNUM,
    "npm": "npm_" + ALNUM + "abcd",
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + ALNUM,
    "Docker": "dckr_pat_" + ALNUM,
    "OpenRouter": "sk-" + "or-v1-" + HEX40[:32] * 2,
    "Groq": "gsk_" + ALNUM + ALNUM,
    "xAI": "xai-" + ALNUM + ALNUM,
    "Replicate": "r8_" + ALNUM + "abcd",
    "LangSmith": "lsv2_" + "pt_" + HEX40[:32] + "_" + HEX40[:10],
    "Databricks": "dapi" + HEX40[:32],
    "Vault": "hvs." + ALNUM,
    "SendGrid": "SG." + ALNUM[:22] + "." + ALNUM + ALNUM[:11],
    "S3, signed": "https://b.s3.amazonaws.com/k?X-Amz-SignedHeaders=host&X-Amz-Signature=" + HEX40[:32] * 2,
    "NVIDIA": "nvapi-" + ALNUM,
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + ALNUM + "." + ALNUM,
    "PEM": PEM,
    "password in a URL": "postgres://me:" + "S3cr3t" + ALNUM + "@db:5432/x",
    "token in a URL": "https://" + ALNUM + "@host/a.git",
    "Azure, SAS": "https://a.blob.core.windows.net/c?sv=1&sig=" + ALNUM + "%3D",
    "Azure, storage": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + ALNUM + "==;EndpointSuffix=x",
    "header": "Authorization: Bearer " + ALNUM,
    "curl": "curl -H 'X-Api-Key: " + ALNUM + "'",
}
"""Hidden by what they are, wherever they stand."""


def secret_of(text):
    """What must not be found of a text: its longest part without what a reader may see."""
    if text.startswith("-----"):
        return text.splitlines()[1]
    parts = [
        part
        for cut in (
            "Amz-Signature=",
            "&sig=",
            "AccountKey=",
            "Bearer ",
            "Key: ",
            "services/",
            "webhooks/",
            "://me:",
            "://",
        )
        for part in (text.partition(cut)[2],)
        if part
    ]
    return (min(parts, key=len) if parts else text).rstrip("'=;").split("@")[0].split("==")[0]


def everything(folder):
    """All bytes below a folder, and all names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files) + "\n".join(map(str, files)).encode()


PROGRAM = """
import json, os, sys
import runferry
config = json.loads(sys.stdin.read())
with runferry.init(project="p", config=config, settings=runferry.Settings(disable_stats=True)) as run:
    run.config["later"] = config
    run.config["neutral"] = {"word": os.environ["SERVICE_PASSWORD"]}
    run.log({"a": 1})
    run.name = "renamed"
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run whose command, environment, config and remote hold a secret of every kind, as its process left it."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://me:{ALNUM}@host/a.git\n')
    (folder / "train.py").write_text(PROGRAM)
    import json
    import os

    config = {
        "shapes": {f"field {number}": text for number, text in enumerate(BY_SHAPE.values())},
        "list": list(BY_SHAPE.values()),
        "text": "\n".join(BY_SHAPE.values()),
        "json": json.dumps({"private_key": PEM, "password": "horse battery staple"}),
        "nested": [{"db": {"password": "horse battery staple", "port": 5432}}],
        "secrets": {"a": "horse battery staple", "b": ["horse battery staple"]},
        "pin_password": 8675309123,
        "wandb": {"key": HEX40},
        "argv": ["train.py", "--api_key", "horse", "--lr", "1"],
        "env": [{"name": "SERVICE_PASSWORD", "value": "horse"}],
        "folder": str(folder / "data"),
    }
    arguments = [
        *BY_SHAPE.values(), "--api-key", "horse battery staple", "--password=horse battery staple", "--lr", "0.1",
        "API_KEY=horse-battery-staple", "wandb", "login", HEX40,
    ]  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "RUNFERRY", "SLURM"))}
    environ |= {"SLURM_JWT": ALNUM, "SLURM_COMMENT": f"api_key={ALNUM}", "SLURM_JOB_ID": "7"}
    environ |= {"SERVICE_PASSWORD": "correct-horse.battery", "HOME": str(folder), "PWD": str(folder)}
    environ |= {"SLURM_JOB_NAME": "job of correct-horse.battery", "WANDB_DOCKER": "https://me:horse@host/image"}
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=folder, env=environ, input=json.dumps(config), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    return folder / "wandb", done.stderr


@pytest.mark.parametrize("text", BY_SHAPE.values(), ids=BY_SHAPE)
def test_no_secret_of_any_shape_is_in_the_directory(logged, text):
    """As a value, in a list, inside a text, on the command line: not one byte of it."""
    secret = secret_of(text)
    found = everything(logged[0])

    assert len(secret) >= 16
    assert secret.encode() not in found
    assert base64.b64encode(secret.encode()) not in found


def test_no_secret_by_name_is_in_the_directory(logged):
    """Passwords, keys behind options, all that lies below `secrets`, what the environment holds by name."""
    found = everything(logged[0])

    for secret in ("horse", "battery", "8675309", HEX40, ALNUM, "me:Zq"):
        assert secret.encode() not in found


def test_what_is_no_secret_is_there(logged):
    """Structure, numbers and neighbours of secrets stay; the counts are told."""
    (log,) = logged[0].glob("run-*/*.wandb")
    state = load(log)

    assert state.config["nested"] == [{"db": {"password": MARK, "port": 5432}}]
    assert state.config["secrets"] == {"a": MARK, "b": [MARK]}
    assert state.config["pin_password"] == MARK
    assert state.config["neutral"] == {"word": MARK}
    assert state.config["wandb"] == {"key": MARK}
    assert state.config["argv"] == ["train.py", "--api_key", MARK, "--lr", "1"]
    assert state.config["env"] == [{"name": "SERVICE_PASSWORD", "value": MARK}]
    assert state.config["folder"] == str(logged[0].parent / "data")
    assert state.environment.docker == f"https://me:{MARK}@host/image"
    assert state.config["shapes"] == state.config["later"]["shapes"]
    assert "0.1" in state.environment.args
    assert state.environment.git.remote_url == "https://me:@host/a.git"
    assert state.environment.slurm["job_id"] == "7"
    lines = [line.split() for line in logged[1].splitlines() if "hidden in the log" in line]
    told = {words[5]: int(words[1]) for words in lines}
    assert told["command"] == str(state.environment).count(MARK)
    assert told["config"] >= 2 * len(BY_SHAPE)


NO_SECRETS = {
    "max_tokens": "4096 at most",
    "num_tokens": "many of them",
    "tokenizer": "bert-base-uncased-tokenizer",
    "token_type": "word pieces of a text",
    "pad_token": "<pad>",
    "keyboard": "qwertz with umlauts",
    "key_dim": "64 per head",
    "sort_key": "validation_accuracy",
    "passes": "three over the data",
    "author": "Somebody with a long name",
    "authors": ["A very long name indeed"],
    "commit": HEX40,
    "revision": HEX40,
    "base_model": HEX40,
    "dataset": f"org/name@{HEX40}",
    "dataset_md5": HEX40[:32],
    "sha256": HEX40 + HEX40[:24],
    "image": f"registry/team/image@sha256:{HEX40}{HEX40[:24]}",
    "remote": "git@host.example:group/project.git",
    "install": f"git+https://github.com/wandb/wandb@{HEX40}",
    "url": "https://host.example/a/b?c=d&e=f#g",
    "time": "2026-11-30T14:25:00.123456+00:00",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "path": "/scratch/users/somebody/experiments/2026/run-000123/checkpoints",
    "package": "sk-learn-pipeline-of-yesterday",
    "use_auth_token": True,
    "n_token": 5,
    "weights": list(range(20)),
    "command": "python train.py --max-tokens=512 --eos-token=</s> --passes 3",
    "task": "task: translate; language: de",
    "tokenizer_path": f"/cache/snapshots/{HEX40}/tokenizer.json",
    "chat": {"assistant_token": "<|assistant|>", "user_token": "<|user|>", "sos_token": "<sos>"},
    "pwd": "/home/somebody",
    "special": ["<|im_start|>", "access", "secret_of_mana"],
}


def test_what_only_looks_like_one_stays():
    """Model options, hashes of commits and data, times, paths: a config is there to be read."""
    redaction = Redaction({"config"}, {})

    assert {name: redaction.config((name,), value) for name, value in NO_SECRETS.items()} == NO_SECRETS
    assert (redaction.removed, redaction.news()) == (0, "")


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        (("wandb_key",), True),
        (("wandb", "key"), True),
        (("login",), True),
        (("commit",), False),
        (("dataset_hash",), False),
        (("model",), False),
    ],
)
def test_40_digits_are_what_their_name_says(path, hidden):
    """A key of the peer's and a commit look the same."""
    assert (Redaction({"config"}, {}).config(path, HEX40) == MARK) is hidden


def test_40_digits_that_the_environment_calls_a_key():
    """Then they are one wherever they stand; other digits are not."""
    redaction = Redaction({"config"}, {"WANDB_API_KEY": HEX40, "HOME": "/home/me", "SHORT_TOKEN": "abc"})

    assert redaction.config(("model",), f"from {HEX40}") == f"from {MARK}"
    assert redaction.config(("other",), HEX40[::-1]) == HEX40[::-1]
    assert redaction.config(("short",), "abc and /home/me") == "abc and /home/me"


def test_each_part_can_be_left_as_it_is(begin, state):
    """`redact` without config: as given, and nothing is told."""
    config = {"password": "hunter2", "text": BY_SHAPE["hub"]}
    run = begin(config, redact="-config")
    run.config["token"] = "x" * 20
    found = state(*run.finish().paths)

    assert {name: value for name, value in found.config.items() if name != "_wandb"} == config | {"token": "x" * 20}
    assert Redaction((), {}).config(("password",), "hunter2") == "hunter2"


def test_counts_are_told_once_and_a_value_that_is_written_again_counts_once():
    """At the start, and at the end what came since."""
    redaction = Redaction({"config"}, {})
    redaction.config(("password",), "hunter2")
    assert redaction.news().startswith("1 value of the config looks like a secret and is hidden")
    redaction.config(("password",), "hunter3")
    assert redaction.news() == ""
    redaction.config(("a", "tokens"), [BY_SHAPE["hub"], BY_SHAPE["npm"]])
    assert redaction.news().startswith("2 values of the config look like secrets and are hidden")
    assert redaction.removed == 3


def test_what_is_no_secret_any_more_is_not_counted():
    """What is hidden in the log is what stands there last."""
    redaction = Redaction({"config"}, {})
    redaction.config(("password",), "hunter2")
    redaction.config(("password",), None)

    assert (redaction.removed, redaction.news()) == (0, "")


def test_a_changed_value_below_secrets_is_hidden_too():
    """`run.config["secrets"]["a"] = ...` is told by its path."""
    redaction = Redaction({"config"}, {})

    assert redaction.config(("secrets", "a"), "horse") == MARK
    assert redaction.config(("secrets", "a", "on"), True) is True


@pytest.mark.parametrize("size", [40_000_000])
def test_a_value_too_large_for_the_log_is_not_searched(begin, state, size, monkeypatch):
    """It is left out and named; searching it would take a second."""
    monkeypatch.setattr("runferry.writer.redaction.Redaction._text", None)
    warnings = []
    run = begin({"large": "x " * (size // 2)}, warn=warnings.append, log_guides=False)
    found = state(*run.finish().paths)

    assert found.config["large"] is None
    assert ["left out" in warning for warning in warnings] == [True]
