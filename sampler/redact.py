"""Take secrets out of text before it is written: by the name beside a value, and by the shape of known tokens.

Rules guess. A name such as `api_key` hides its value whatever it looks like; the words of a model's vocabulary
(`pad_token`) and numbers of tokens do not. 40 hexadecimal digits are an API key where what stands before says key,
token, login or the like, and a commit or checksum elsewhere: nothing else tells them apart.

No pattern walks through a text. Words that a rule needs are found as plain text, and unbroken stretches of token
characters on a copy that has only two letters; at each such place a pattern looks at a bounded stretch. So any text
takes time in proportion to its length, and 50 MB of prose or numbers well under a second.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

MARK = "[redacted]"
LEAST_KNOWN = 12
"""Characters of an environment variable's value that is hidden wherever it stands: shorter ones may be words."""

# -- names -----------------------------------------------------------------------------------------------------------

_KEYS_OF = (
    r"api|access|account|secret|private|license|signing|encryption|ssh|deploy|master|auth|storage|service|client"
    r"|consumer|subscription|webhook|shared|wandb|openai|anthropic|hf|aws|azure|gcp|datadog|dd|comet|neptune"
)
_WORD = r"(?:^|[-_.\d]|(?-i:(?<=[a-z])(?=[A-Z])))"
"""Where a word of a name begins."""
_ACCOUNTS = (
    r"db|database|user|root|admin|login|mail|smtp|imap|sql|postgres|pg|redis|mongo|proxy|https?|ftp|ssh|sudo|ldap|mqtt"
    r"|server|service|vault|keystore"
)
_SECRET_NAME = re.compile(
    rf"(?:{_WORD}(?:{_KEYS_OF})[-_.]?keys?(?:[-_]?id)?|(?:api|access|secret|private|auth)[-_.]?keys?(?:[-_]?id)?"
    rf"|(?:{_ACCOUNTS})[-_.]?pass|token|jwt|passw(?:or)?ds?|passphrase|passwd|pwd|secrets?|credentials?|authorization"
    r"|bearer|cookie|auth|connection[-_]?string)(?:(?<!token)[-_.]?\d{1,2})?$",  # `api_key_2`
    re.IGNORECASE,
)
# `--pad-token <pad>`, `eos_token=</s>`: words of the model's vocabulary, not credentials
_MODEL_TOKEN = re.compile(
    rf"{_WORD}(?:pad(?:ding)?|[bes]os|eo[dimt]|boi|so[it]|unk(?:nown)?|oov|mask(?:ed)?|sep|cls|class|image|img|audio|video"
    r"|speech|text|patch|region|object|special|stop|start|end|begin|prefix|suffix|separator|delimiter|split|blank|space"
    r"|newline|word|max|min|num|n|per|new|next|prev|first|last|add|trigger|placeholder|virtual|target|draft|forced"
    r"|decoder|assistant|system|think|tool|response|answer|query|context|null|empty|dummy|label|instance|initializer"
    r"|concept|modifier|identifier|rare|register|reg|dist|distill|pooling|latent|memory|language|lang|timestamp|fim)"
    r"[-_.]?token$",
    re.IGNORECASE,
)
_VOCABULARY = re.compile(r"<[^<>]{1,32}>$|\[[A-Za-z_]{1,16}\d{0,3}\]?$|[\W_]+$")  # `<|user|>`, `[CLS]`, `|`
_WORKING_FOLDER = re.compile(r"(?:old)?pwd$", re.IGNORECASE)
_PATH = re.compile(r"[/\\~.]|[A-Za-z]:[/\\]")
_STRONG_NAME = re.compile(r"pass|pwd|secret|credential|key", re.IGNORECASE)
_HOLDER_NAME = re.compile(r"(?:secrets?|credentials?|passwords?|api[-_]?keys?)$", re.IGNORECASE)
_NO_VALUE = re.compile(r"(?:true|false|none|null|yes|no|on|off)?$", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d{1,6})?$")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether an option, variable or config key of this name holds a credential."""
    name = name.lstrip("-")
    return bool(_SECRET_NAME.search(name)) and not _MODEL_TOKEN.search(name)


def holds_secrets(name: str) -> bool:
    """Whether all that lies below a config key of this name is secret: `secrets`, `credentials`, `api_keys`."""
    return is_secret_name(name) and bool(_HOLDER_NAME.search(name))


def is_secret_value(name: str, value: str) -> bool:
    """Whether `value` can be the credential that a secret name promises: no switch, number or word of tokens, folder."""
    if value.startswith(MARK[:-1]) or _NO_VALUE.match(value):
        return False
    if _WORKING_FOLDER.match(name.lstrip("-")) and _PATH.match(value):
        return False
    return bool(_STRONG_NAME.search(name)) or not (_NUMBER.match(value) or _VOCABULARY.match(value))


# -- rules -----------------------------------------------------------------------------------------------------------

_LONG = 16  # token characters without a break: what has fewer is no token
_STRETCH = bytes(ord("a") if chr(byte).isalnum() or chr(byte) in "_-" else ord(" ") for byte in range(128)) + b" " * 128
_SHAPES = (
    r"(?:(?<=\\)[nrt]|(?<=%)[0-9A-Fa-f]{2})?(?P<value>"
    + "|".join(  # noqa: FLY002 - one shape a line; before it, what may escape it
        (
            r"wandb_v1_[A-Za-z0-9_-]{20,}",  # W&B, newer
            r"local-[0-9a-f]{40}(?![A-Za-z0-9])",  # W&B, of a server of one's own
            r"(?:hf|api_org)_[A-Za-z0-9]{20,}",  # model hub
            r"(?:AKIA|ASIA)[0-9A-Z]{16}(?!\w)",  # AWS key ids
            r"gh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
            r"github_pat_[A-Za-z0-9_]{20,}",
            r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{16,}",  # GitLab
            # model providers; a digit and a capital, or 32 hexadecimal digits: `sk-learn-pipeline-of-yesterday` is none
            r"sk-(?:(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[A-Z])|(?=(?:or-v1-)?[0-9a-f]{32}))[A-Za-z0-9_-]{20,}",
            r"(?:gsk_|xai-|pplx-|r8_)[A-Za-z0-9]{36,}",
            r"lsv2_(?:pt|sk)_[0-9a-f]{32}",
            r"dapi[0-9a-f]{32}(?![A-Za-z0-9])",  # Databricks
            r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
            r"xox[abeoprs]-[A-Za-z0-9-]{12,}",  # Slack
            r"AIza[A-Za-z0-9_-]{35}",  # Google: API key, client secret
            r"GOCSPX-[A-Za-z0-9_-]{20,}",
            r"npm_[A-Za-z0-9]{36,}",
            r"pypi-Ag[A-Za-z0-9_-]{40,}",
            r"dckr_pat_[A-Za-z0-9_-]{20,}",
            r"nvapi-[A-Za-z0-9_-]{24,}",
            r"eyJ[A-Za-z0-9_-]{8,16384}\.[A-Za-z0-9_-]{4,16384}\.[A-Za-z0-9_-]*",  # JSON web token
        )
    )
    + ")"
)
_FOUND = {
    "-----BEGIN ": r"(?P<value>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----).){0,16384}"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)",
    "ya29.": r"(?<![\w-])(?P<value>ya29\.[A-Za-z0-9_-]{20,})",  # Google OAuth
    "whsec_": r"(?<![\w-])(?P<value>whsec_[A-Za-z0-9+/]{16,})",  # Stripe
    "hvs.": r"(?<![\w-])(?P<value>hvs\.[A-Za-z0-9_-]{20,})",  # Vault
    "SG.": r"(?<![\w-])(?P<value>SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,})",  # SendGrid
    "Signature=": r"(?<=[-?&\s])Signature=(?P<value>(?=[^\s&]{0,64}\d)[A-Za-z0-9%+/=_~-]{20,})",  # signed URLs and calls
    "sig=": r"(?<=[?&;\"'\s])sig=(?P<value>[A-Za-z0-9%+/=]{20,})",  # Azure's shared access signature
    "hooks.slack.com/services/": r"hooks\.slack\.com/services/(?P<value>[A-Za-z0-9/]{10,})",
    "/api/webhooks/": r"/api/webhooks/(?P<value>\d+/[\w-]{20,})",  # Discord
}
"""Shapes that need not begin with a long stretch: the text that they are found by, and the pattern from there."""
_URL = "://"
_USERINFO = (
    r"://(?:(?P<user>[^\s/:@\"']{20,512})(?P<both>:[^\s/\"']{0,512})?"  # a user as long as that is a token
    r"|[^\s/:@\"']{0,256}:(?P<password>[^\s/\"']{1,512}))@"
)
_BEARER = r"bearer\s{1,4}(?P<value>(?=[A-Za-z0-9._~+/-]{0,64}\d)[A-Za-z0-9._~+/-]{16,}={0,2})"
_NAME_ANCHORS = ("key", "token", "secret", "pass", "pwd", "cred", "auth", "jwt", "cookie", "connection", "bearer", "login", "wandb")  # fmt: skip
"""In lower case: parts of every secret name, and what stands before an API key of 40 hexadecimal digits."""
_NAME_REACH = 80  # characters of a name before and behind its anchor
_NAME_CHARACTERS = string.ascii_letters + string.digits + "_.-"
_NAME_REST = rf"[\w.-]{{0,{_NAME_REACH}}}"
_SIGN = (
    r"=>|(?:[:?+]|\|\|)?={1,3}|:|%3[AD]"
    r"|(?-i:(?<=[A-Z0-9][\"']),(?=\s?[\"'](?![A-Z0-9_]{1,80}[\"'])))"  # `getenv("API_KEY", "x")`, and no further name
)
_BARE = (  # to the next blank or quote, or to what separates it from a further name, or ends a bracket
    r"(?:[^\s\"'&;,}\]\\]|[&;,](?!\s|$|[\"']?[\w.-]{1,64}[\"']?\s?[=:])|[}\]](?![\s&;,})\]\"']|$))+"
)
_VALUE = (
    r"\s{0,4}(?:[|>][-+]?\s{1,16}|\s{0,16}-[ \t]{1,4})?(?:"  # a block or a list of YAML
    r"[bfru]{0,2}(?P<quote>\\{0,3}(?:\"{3}|'{3}|[\"']))(?P<quoted>(?:(?!(?P=quote))(?:\\.|.)){1,4096})(?P=quote)"
    rf"|\\{{0,3}}[\"']?(?P<bare>(?:(?:bearer|basic|token)\s+)?{_BARE}))"
)


def _assigned_by(sign: str) -> str:
    return rf"\\{{0,3}}[\"']?\]?\s{{0,4}}(?:{sign}|{_SIGN}){_VALUE}"


_ASSIGNED = {
    "text": _assigned_by(_SIGN),
    "code": _assigned_by(r":\s{0,4}[\w.\[\], |]{1,60}="),  # `api_key: str = "..."`
    "option": _assigned_by(r"(?<=[ \t])(?![-=:])"),  # `--api-key x`
}
"""What stands behind a secret name, by where that stands."""
_FURTHER_COOKIES = r"(?:;\s?[^\s\"';,]+)+"
_FIELD = r"\w{1,32}=(?:\"[^\"\n]{0,4096}\"|[^\s\"',]{1,4096})"
_CREDENTIALS = (
    rf"[A-Za-z][\w-]{{0,31}}[ \t]{{1,4}}(?:{_FIELD}(?:,[ \t]{{0,4}}{_FIELD}){{0,32}}|(?!-)[^\s\"']{{1,4096}})"
)
"""A header's scheme, `ApiKey`, `Digest` or any other, and what it is given: one word, or values by name."""
_HEX_KEY = r"(?<![A-Za-z0-9])[0-9a-f]{40}(?![A-Za-z0-9])"
_HEX_REACH = 32  # characters between `login` and the key
_HEX_NEAR = rf"[^\n]{{0,{_HEX_REACH}}}?(?P<value>{_HEX_KEY})"
_HASH_BEFORE = re.compile(
    r"(?:commit|sha1?|rev|revision|ref|hash|digest|checksum|git|md5|etag)[\"']?[\s=:]*$|[@/#]$", re.IGNORECASE
)
_KEY_BEFORE = re.compile(r"key|token|secret|pass|login|auth|wandb|cred", re.IGNORECASE)
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

Span = tuple[int, int]


@cache  # one entry per rule
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, made when its anchor is met for the first time: most processes meet none of them."""
    return re.compile(pattern, re.DOTALL | re.IGNORECASE if pattern in _ANY_CASE else re.DOTALL)


_ANY_CASE = {*_ASSIGNED.values(), _BEARER, _USERINFO}


class Redacted(NamedTuple):
    """Text without its secrets, and how many were taken out."""

    text: str
    removed: int


class RedactedArgs(NamedTuple):
    """Arguments without their secrets, and how many were taken out."""

    args: list[str]
    removed: int


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials that the environment holds by name: they are secret wherever else they stand."""
    return tuple(
        value
        for name, value in environ.items()
        if len(value) >= LEAST_KNOWN and is_secret_name(name) and is_secret_value(name, value)
    )


def redact_text(text: str, *, before: str = "", known: Sequence[str] = (), code: bool = False) -> Redacted:
    """Replace credentials in `text` by `MARK`.

    Args:
        text: any.
        before: what preceded it, a name or an option, which may say what 40 hexadecimal digits are.
        known: strings that are secret wherever they stand (`known_secrets`).
        code: the text is source code: of what is assigned to a secret name only literals in quotes are hidden.
    """
    long = list(_long_stretches(text))
    spans = [*_shapes(text, long), *_found(text), *_urls(text)]
    spans += _named(text, code=code, digests=bool(long))
    for secret in known:
        spans += ((at, at + len(secret)) for at in _places(text, secret))
    if before and _KEY_BEFORE.search(before) and not _HASH_BEFORE.search(before):
        keys = _compiled(_HEX_KEY).finditer(text[:4096])
        spans += (match.span() for match in keys if not _HASH_BEFORE.search(text, 0, match.start()))
    return _cut(text, spans) if spans else Redacted(text, 0)


def _cut(text: str, spans: list[Span]) -> Redacted:
    pieces: list[str] = []
    at = removed = 0
    for start, end in sorted(spans):
        if start >= at:
            pieces += (text[at:start], MARK)
            removed += 1
        at = max(at, end)
    return Redacted("".join((*pieces, text[at:])), removed)


def _places(text: str, anchor: str) -> Iterator[int]:
    at = text.find(anchor)
    while at >= 0:
        yield at
        at = text.find(anchor, at + len(anchor))


def _long_stretches(text: str) -> Iterator[int]:
    """Where unbroken stretches of token characters begin."""
    if len(text) < _LONG:
        return
    letters = text.encode("ascii", "replace").translate(_STRETCH)  # one byte per character
    needle = b"a" * _LONG
    at = letters.find(needle)
    while at >= 0:
        yield at
        end = letters.find(b" ", at)
        at = letters.find(needle, end) if end >= 0 else -1


def _shapes(text: str, stretches: Sequence[int]) -> Iterator[Span]:
    for at in stretches:
        match = _compiled(_SHAPES).match(text, at)
        if match is not None:
            yield match.span("value")


def _found(text: str) -> Iterator[Span]:
    for anchor, pattern in _FOUND.items():
        for at in _places(text, anchor):
            match = _compiled(pattern).match(text, at)
            if match is not None:
                yield match.span("value")


def _urls(text: str) -> Iterator[Span]:
    for at in _places(text, _URL):
        match = _compiled(_USERINFO).match(text, at)
        if match is None:
            continue
        if match["password"] is not None:
            if match["password"] != MARK:
                yield match.span("password")
        elif match["both"] or text[max(0, at - 5) : at].lower().endswith(("http", "https")):
            yield match.start("user"), match.end() - 1


def _named(text: str, *, code: bool, digests: bool) -> Iterator[Span]:
    """What is assigned to secret names, bearer tokens, and API keys of 40 digits behind words that say so.

    `digests`: there may be such digits.
    """
    lower = text.lower()
    if len(lower) != len(text):  # some letters become two
        lower = text.translate(_ASCII_LOWER)
    for anchor in _NAME_ANCHORS:
        at = lower.find(anchor)
        while at >= 0:
            rest = _compiled(_NAME_REST).match(text, at)
            end = rest.end() if rest else at + len(anchor)
            head = text[max(0, at - _NAME_REACH) : at]
            name = head[len(head.rstrip(_NAME_CHARACTERS)) :] + text[at:end]
            assigned = _assigned(text, name, end, code=code)
            near = _compiled(_HEX_NEAR).match(text, end) if digests else None
            bearer = _compiled(_BEARER).match(text, at) if anchor == "bearer" else None
            if assigned is not None:
                yield assigned
                end = assigned[1]
            elif bearer is not None:
                yield bearer.span("value")
            elif near is not None and not _HASH_BEFORE.search(text, at, near.start("value")):
                yield near.span("value")
            at = lower.find(anchor, end)


def _assigned(text: str, name: str, after: int, *, code: bool) -> Span | None:
    """The secret that stands behind an assignment to `name`, which ends at `after`."""
    if not is_secret_name(name):
        return None
    place = "option" if name[0] == "-" else "code" if code else "text"
    match = _compiled(_ASSIGNED[place]).match(text, after)
    if match is None:
        return None
    kind = "bare" if match["quoted"] is None else "quoted"
    if (code and kind == "bare") or not is_secret_value(name, match[kind]):
        return None
    start, end = match.span(kind)
    if kind == "bare":
        cookie = name.lower().endswith("cookie")
        header = name.lower().endswith("authorization") and ":" in text[after:start]
        further = (_FURTHER_COOKIES, end) if cookie else (_CREDENTIALS, start) if header else None
        if further is not None and (more := _compiled(further[0]).match(text, further[1])):
            end = max(end, more.end())
    return start, end


def redact_argv(argv: Sequence[str], known: Sequence[str] = (), *, before: str = "") -> RedactedArgs:
    """Redact each argument; what stands behind an option such as `--api-key` is a secret whatever its shape.

    Args:
        argv: the arguments, or any list of texts that may be some.
        known: strings that are secret wherever they stand (`known_secrets`).
        before: what preceded them, as in `redact_text`.
    """
    args: list[str] = []
    count = 0
    for arg in argv:
        name, equals, value = arg.partition("=")
        behind = not arg.startswith("--") and _takes_secret(before)
        if behind:
            name, equals, value = before, "", arg
        if is_secret_name(name) and is_secret_value(name, value) and not any(map(str.isspace, name)):
            args.append(f"{name}={MARK}" if equals else MARK)
            count += 1
            if behind and before.endswith(("s", "S")):  # `--api-keys a b`
                continue
        else:
            text, found = redact_text(arg, before=before, known=known)
            args.append(text)
            count += found
        before = arg
    return RedactedArgs(args, count)


def _takes_secret(option: str) -> bool:
    """Whether the argument behind `option` is its value, and a secret: `--api-key`, `-token`, `WANDB.API_KEY`."""
    if "=" in option or not is_secret_name(option):
        return False
    return option.startswith("-") or ("." in option and (option.isupper() or bool(_STRONG_NAME.search(option))))
