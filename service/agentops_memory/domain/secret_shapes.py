"""Secrets that are known by their shape: tokens, private keys, and what stands beside a label.

Precision goes before reach: a shape is one that ordinary text does not have. What
only looks random (a hash, an identifier, an image) is no secret here, nor is what
stands in place of one (`$PASSWORD`, `<token>`, `xxxxxxxx`).
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from .secret_tokens import Span, tokens

SHAPES = {
    "age-key": "secret keys of age (AGE-SECRET-KEY-1...)",
    "anthropic-key": "keys of Anthropic (sk-ant-...)",
    "authorization": "what follows Bearer, Basic or Token in a header; bearer tokens",
    "aws-key-id": "access key ids of AWS (AKIA..., ASIA...)",
    "aws-secret-key": "secret access keys and session tokens of AWS, beside their label",
    "azure-key": "AccountKey and SharedAccessKey of Azure, and signatures in its addresses",
    "connection-password": "the password in scheme://user:...@host, ;Password=... or ?password=...",
    "digitalocean-token": "tokens of DigitalOcean (dop_v1_..., doo_v1_..., dor_v1_...)",
    "discord-token": "bot tokens of Discord",
    "docker-token": "access tokens of Docker Hub (dckr_pat_...)",
    "doppler-token": "tokens of Doppler (dp.pt...., dp.st....)",
    "github-token": "tokens of GitHub (ghp_..., gho_... and their like, github_pat_...)",
    "gitlab-token": "tokens of GitLab (glpat-... and its relatives)",
    "google-key": "keys of Google (AIza...), its OAuth tokens (ya29....) and secrets (GOCSPX-...)",
    "huggingface-token": "tokens of Hugging Face (hf_...)",
    "jwt": "JSON Web Tokens, signed or encrypted",
    "labelled-secret": "random characters beside a label such as api_key, client_secret, password",
    "memory-key": "keys of this service (amk_...)",
    "npm-token": "tokens of npm (npm_...)",
    "openai-key": "keys of OpenAI, and of those who took over their form (sk-..., sk-proj-...)",
    "private-key": "private keys in PEM or PGP armor, closed or cut off",
    "pypi-token": "tokens of PyPI (pypi-...)",
    "sendgrid-key": "keys of SendGrid (SG....)",
    "service-token": "tokens of other services that have a prefix of their own",
    "slack-token": "tokens of Slack (xoxb-..., xoxp-..., xapp-...)",
    "stripe-key": "keys and webhook secrets of Stripe (sk_live_..., rk_live_..., whsec_...)",
    "telegram-token": "bot tokens of Telegram; the number of the bot stays",
    "twilio-key": "API keys of Twilio (SK...)",
    "vault-token": "tokens of HashiCorp Vault (hvs...., hvb...., hvr....)",
    "webhook": "the secret part of a webhook's address (Slack, Discord, Teams)",
}
"""Every kind of shape, and what has it."""

MIN_TURNS = 3  # from a letter to a digit or back; words with a version have fewer
BLANK = 8  # equal signs at the end of what was blanked out


def secrets(text: str) -> Iterator[Span]:
    """Everything in a text that has the shape of a secret; spans may overlap.

    The time is linear in the text, and short for a text without secrets.
    """
    raw = text.encode("latin-1", "replace")
    found = chain(tokens(text, raw), _labelled(text, raw.lower()), _private_keys(text))
    return (span for span in found if not _stands_for_one(text[span.start : span.end]))


def _labelled(text: str, lowered: bytes) -> Iterator[Span]:
    """What stands beside a label, tried wherever the first word of a label stands."""
    for word, labels in _LABELS.items():
        at = lowered.find(word)
        while at >= 0:
            next_at = at + 1
            for label in labels:
                found = label.pattern.match(text, at)
                if found and label.is_secret(found["secret"]):
                    start, end = found.span("secret")
                    yield Span(start, end, label.kind)
                    next_at = max(next_at, end)
            at = lowered.find(word, next_at)


def _private_keys(text: str) -> Iterator[Span]:
    """Armored keys: to their end, or as far as the armor goes when the end is missing."""
    if "PRIVATE KEY" not in text:
        return
    for begin in _KEY_BEGIN.finditer(text):
        dashes = text.find("-----", begin.end())
        end = _KEY_END.match(text, dashes) if dashes >= 0 else None
        if end and _KEY_LINE.search(text, begin.end(), dashes):
            yield Span(begin.start(), end.end(), "private-key")
        elif not end and (rest := _KEY_REST.match(text, begin.end())):
            yield Span(begin.start(), rest.end(), "private-key")


def _stands_for_one(secret: str) -> bool:
    """Whether this is a variable, a blank or a placeholder where a secret would stand."""
    end = secret[-BLANK:]
    is_blank = len(end) == BLANK and end[0] in "xX*.0" and end == end[0] * BLANK
    return is_blank or _STAND_IN.fullmatch(secret) is not None


def _is_any(_: str) -> bool:
    return True


def _is_no_word(secret: str) -> bool:
    """Whether this is more than a word: `authentication`, `YOUR_TOKEN`."""
    return _WORD.fullmatch(secret) is None


def _is_random(secret: str) -> bool:
    """Whether letters and digits alternate as in no name, and signs stand in mixed case only.

    So paths, resource names and UUIDs are not random.
    """
    if len(_TURN.findall(secret)) < MIN_TURNS:
        return False
    return secret.isalnum() or (secret != secret.lower() and secret != secret.upper())


class _Label(NamedTuple):
    """A pattern for a label and the secret beside it."""

    kind: str
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool]


def _label(kind: str, pattern: str, is_secret: Callable[[str], bool] = _is_any) -> _Label:
    return _Label(kind, re.compile(pattern, re.ASCII | re.IGNORECASE), is_secret)


def _random(label: str) -> _Label:
    return _label("labelled-secret", label + _IS + _RANDOM, _is_random)


def _passwords(label: str) -> list[_Label]:
    """A password among pairs (;Password=...; or Password=...;Server=...) and in an address."""
    value = rf"\s?=\s?(?!/)(?P<secret>{_QUOTED}|{_UNQUOTED}%s)"
    return [
        _label("connection-password", pattern)
        for pattern in (
            f"(?:(?<=;)|(?<=; )){label}{value % '+'}",
            rf"{label}{value % '{1,256}+'}(?=;\s?[a-z][\w ]{{1,30}}=)",
            rf"""(?<=[?&]){label}=(?P<secret>[^\s&#;"'`<>\\]+)""",
        )
    ]


_STAND_IN = re.compile(
    r"\$\([^()]*\)|\$\{[^{}]*\}|\$[A-Z_][A-Z0-9_]*|\$[a-z_]+"  # shell
    r"""|\{+[A-Za-z_ .()\[\]'":!|-]*\}+|\{\d\}"""  # templates
    r"|<[^<>]*>|%[A-Za-z_]+%|%s|%\([A-Za-z_]+\)s"
    r"|x+|X+|\*+|\.+|-+|_+|\u2026+|\u2022+"
    r"|REDACTED|(?:\[REDACTED:[A-Za-z0-9._-]+\])+"
)
_WORD = re.compile(r"[A-Z]?[a-z._~/-]+|[A-Z._/-]+")
_TURN = re.compile("(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")

_KEY_BEGIN = re.compile("-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile("-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile("[A-Za-z0-9+/=]{16}")
_KEY_REST = re.compile(
    r"(?:[\s\\>|#*]{0,40}+[A-Za-z][A-Za-z-]{2,30}+: [^\r\n\\]{0,200}+(?=[\r\n\\])){0,5}+"
    r"""(?:[\s\\>|#*"',]{0,40}+[A-Za-z0-9+/=]{16,}+)++"""
    r"""(?:(?<!=)[\s\\>|#*"',]{1,40}+[A-Za-z0-9+/]{1,15}+={0,2}(?=["'\\]{0,3}(?:[\r\n]|$)))?"""
)

_QUOTE = r"""(?:\\{0,3}["'`])?"""
_IS = rf"{_QUOTE}\s{{0,4}}(?:=>|:=|[=:>])\s{{0,4}}{_QUOTE}"
_GAP = r"(?:[ \t]{1,4}|%20)"
_CREDENTIAL = r"(?P<secret>[A-Za-z0-9][A-Za-z0-9._~+/|:=-]{6,}[A-Za-z0-9_=-])"
_BASE64 = "[A-Za-z0-9+/]"
_RANDOM = r"(?P<secret>[A-Za-z0-9_~+/-]{20,}+={0,2}+)(?![.:(\[{$%@=!*?])"
_QUOTED = r"""\{[^{}\r\n]{1,256}\}|'[^'\r\n]{1,256}'"""
_UNQUOTED = r"""[^\s;"'`]"""
_PLAIN = r"""[^\s/:@"'`\[]"""
_IN_ADDRESS = (
    rf"{_PLAIN}*+(?:\[REDACTED:[A-Za-z0-9._-]++\]{_PLAIN}*+)*:"
    r"(?!\d{1,5}[,;|)\]}>?#&<\\])"  # a port, and later an address of mail
    r"""(?P<secret>[^\s/@"'`]++(?:@[^\s/@"'`,;]*+)*)@(?!sha256:)"""
)

# By the word, in lower case, that each begins with; what two of them find, the first names.
# What is repeated without a limit never runs over that word again, or always succeeds: else
# hostile text takes quadratic time.
_LABELS = {
    b"secret": [
        _label(
            "aws-secret-key",
            rf"secret[_-]?access[_-]?key{_IS}(?P<secret>{_BASE64}{{40}})(?!{_BASE64})",
        ),
        _random("secret(?:[_-]?key)?"),
    ],
    b"access": [
        _label("azure-key", rf"(?<=shared)access[_-]?key{_IS}(?P<secret>{_BASE64}{{40,}}={{0,2}})"),
        _random("access[_-]?(?:key|token)"),
    ],
    b"account": [
        _label("azure-key", rf"account[_-]?key{_IS}(?P<secret>{_BASE64}{{40,}}={{0,2}})"),
    ],
    b"api": [
        _random("api[_-]?(?:key|token|secret)"),
        _label("webhook", r"(?<=/)api/webhooks/\d{15,22}/(?P<secret>[a-z0-9_-]{40,})"),
    ],
    b"atatt3": [_label("service-token", "(?P<secret>atatt3[a-z0-9_=-]{60,})")],
    b"auth": [
        _label(
            "authorization",
            rf"authorization{_QUOTE}\s{{0,4}}[:=,]\s{{0,4}}{_QUOTE}"
            rf"(?:bearer|basic|token|bot|apikey){_GAP}{_CREDENTIAL}",
            _is_no_word,
        ),
        _random("auth[_-]?(?:key|token)"),
    ],
    b"bearer": [
        _label("authorization", rf"bearer{_GAP}(?=\S{{20}}){_CREDENTIAL}", _is_random),
    ],
    b"hooks.slack.com/": [
        _label("webhook", r"hooks\.slack\.com/[a-z]+/(?P<secret>[a-z0-9/_-]{20,})"),
    ],
    b"passw": [_random("passw(?:or)?d"), *_passwords("password")],
    b"pwd": _passwords("pwd"),
    b"refresh": [_random("refresh[_-]?token")],
    b"security": [
        _label("aws-secret-key", rf"security[_-]?token{_IS}(?P<secret>{_BASE64}{{100,}}={{0,2}})"),
    ],
    b"session": [
        _label("aws-secret-key", rf"session[_-]?token{_IS}(?P<secret>{_BASE64}{{100,}}={{0,2}})"),
    ],
    b"sig=": [_label("azure-key", r"(?<=[?&;])sig=(?P<secret>[a-z0-9+/%]{40,}={0,2})")],
    b"xoxd-": [_label("slack-token", "(?P<secret>xoxd-[a-z0-9%+/_=-]{20,})")],
    b":aa": [_label("telegram-token", "(?<=[0-9]{8}):(?P<secret>(?-i:AA)[a-z0-9_-]{33,})")],
    b"://": [_label("connection-password", "://" + _IN_ADDRESS)],
    rb":\/\/": [_label("connection-password", r":\\/\\/" + _IN_ADDRESS)],
    b"%3a%2f%2f": [
        _label(
            "connection-password",
            r"%3a%2f%2f[a-z0-9._~+-]{0,128}+%3a(?P<secret>[a-z0-9._~+!*()%-]{1,256}?)%40",
        ),
    ],
    b"/webhookb2/": [_label("webhook", "/webhookb2/(?P<secret>[a-z0-9@/-]{60,})")],
}
