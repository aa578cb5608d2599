"""Take secrets out of text before it is written: by the name beside a value, and by the shape of known tokens.

Secrets are recognised by rules, so the rules err on the side of hiding: a commit hash may be hidden (it looks like a
40-digit API key) unless its name says that it is one. Values of model options such as `--pad-token` stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MARK = "[redacted]"

_NAME_ENDS = (
    r"api[-_]?keys?|access[-_]?key(?:[-_]?id)?|secret(?:[-_]?(?:access[-_]?)?key)?|private[-_]?key|account[-_]?key"
    r"|license[-_]?key|token|jwt|passw(?:or)?d|passphrase|passwd|pwd|secrets?|credentials?|authorization|bearer"
)
# `--pad-token <pad>`, `eos_token=</s>`: words of the model's vocabulary, not credentials
_MODEL_TOKEN = re.compile(
    r"(?:pad|eos|bos|unk|mask|sep|cls|eot|image|audio|video|special|stop|start|end|begin|prefix|suffix|separator"
    r"|max|min|num|per|new|add|trigger|placeholder)[-_.]?token$",
    re.IGNORECASE,
)
_PLAIN_VALUE = re.compile(r"(?:true|false|none|null|yes|no|on|off|-?\d{1,6})$", re.IGNORECASE)
_SECRET_NAME = re.compile(rf"(?:^|[-_.]|(?<=[a-z])(?=[A-Z]))(?:{_NAME_ENDS})$", re.IGNORECASE)
_JOINED_NAME = re.compile(r"(?:api|access|secret|private|auth)(?:key|token)$|(?:hf|hub|wandb)token$", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"(?<![\w.-])(?P<name>-{{0,2}}[\w.-]{{0,80}}?(?:{_NAME_ENDS}))(?P<between>[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"']?)"
    r"(?P<value>(?:(?:bearer|basic|token)\s+)?[^\s\"'&;,}\]]+)",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,256}:)(?P<value>[^\s/@]{1,512})(?=@)", re.IGNORECASE
)
_URL_USER = re.compile(r"(?P<before>\bhttps?://)(?P<value>[^\s/:@]{20,512})(?=@)", re.IGNORECASE)

_SHAPES = re.compile(
    "|".join(  # noqa: FLY002 - one shape a line
        (
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----).){0,16384}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?",
            r"\bwandb_v1_[A-Za-z0-9_-]{20,}",  # W&B, newer
            r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",  # model hub
            r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS key id
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bglpat-[A-Za-z0-9_-]{16,}",  # GitLab
            r"\bsk-[A-Za-z0-9_-]{20,}",  # model providers
            r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
            r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
            r"\bAIza[A-Za-z0-9_-]{35}",  # Google API key
            r"\bya29\.[A-Za-z0-9_-]{20,}",  # Google OAuth
            r"\b(?:npm|dckr_pat|pypi|nvapi)[_-][A-Za-z0-9_-]{24,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",  # JSON web token
            r"(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/-]{16,}=*",  # HTTP authorization
        )
    ),
    re.DOTALL,
)
_HEX_KEY = re.compile(r"(?<![A-Za-z0-9])(?:local-)?[0-9a-f]{40}(?![A-Za-z0-9])")  # W&B API key; also a commit hash
_HASH_NAME = re.compile(r"(?:commit|sha1?|rev|revision|ref|hash|digest|checksum|git)[\"']?[\s=:@/]*$", re.IGNORECASE)
_HASH_NAME_REACH = 24  # characters before a hash in which its name is looked for


class Redacted(NamedTuple):
    """Text without its secrets, and how many were taken out."""

    text: str
    removed: int


class RedactedArgs(NamedTuple):
    """Arguments without their secrets, and how many were taken out."""

    args: list[str]
    removed: int


def is_secret_name(name: str) -> bool:
    """Whether an option, variable or config key of this name holds a credential."""
    name = name.lstrip("-")
    return bool(_SECRET_NAME.search(name) or _JOINED_NAME.search(name)) and not _MODEL_TOKEN.search(name)


def redact_text(text: str, *, before: str = "") -> Redacted:
    """Replace credentials in `text` by `MARK`. `before` is what preceded it, which may say that a hash is a commit."""
    count = 0

    def mark(match: re.Match[str]) -> str:
        nonlocal count
        groups = match.groupdict()
        if groups.get("value") == MARK:
            return match[0]
        count += 1
        return f"{groups.get('before') or ''}{MARK}"

    def mark_assigned(match: re.Match[str]) -> str:
        nonlocal count
        if not is_secret_name(match["name"]) or _PLAIN_VALUE.match(match["value"]) or match["value"].startswith(MARK):
            return match[0]
        count += 1
        return f"{match['name']}{match['between']}{MARK}"

    def mark_hex(match: re.Match[str]) -> str:
        nonlocal count
        preceding = (before + " " + match.string[: match.start()])[-_HASH_NAME_REACH:]
        if _HASH_NAME.search(preceding):
            return match[0]
        count += 1
        return MARK

    text = _URL_PASSWORD.sub(mark, text)
    text = _URL_USER.sub(mark, text)
    text = _SHAPES.sub(mark, text)
    text = _ASSIGNMENT.sub(mark_assigned, text)
    text = _HEX_KEY.sub(mark_hex, text)
    return Redacted(text, count)


def redact_argv(argv: Sequence[str]) -> RedactedArgs:
    """Redact each argument; the one after an option such as `--api-key` is a secret whatever its shape."""
    args: list[str] = []
    count = 0
    before = ""
    for arg in argv:
        follows_option = before.startswith("-") and "=" not in before and is_secret_name(before)
        if follows_option and not arg.startswith("--") and not _PLAIN_VALUE.match(arg):
            args.append(MARK)
            count += 1
        else:
            text, found = redact_text(arg, before=before)
            args.append(text)
            count += found
        before = arg
    return RedactedArgs(args, count)
