"""Secrets that are known by their shape: tokens, private keys, and what stands beside a label.

Precision goes before reach: a shape is one that ordinary text does not have. What
only looks random (a hash, an identifier, an image) is no secret here, nor is what
stands in place of one (`$PASSWORD`, `<token>`, `xxxxxxxx`).
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from .secret_tokens import Span, tokens

SHAPES = {
    "age-key": "secret keys of age (AGE-SECRET-KEY-1...)",
    "anthropic-key": "keys of Anthropic (sk-ant-...)",
    "authorization": "what follows Bearer, Basic or Token in a header; auth of Docker and npm",
    "aws-key-id": "access key ids of AWS (AKIA..., ASIA...)",
    "aws-secret-key": "secret access keys and session tokens of AWS, beside their label",
    "azure-key": "keys, client secrets and DevOps tokens of Azure, signatures in its addresses",
    "connection-password": "the password in an address, a connection string, netrc, curl -u",
    "digitalocean-token": "tokens of DigitalOcean (dop_v1_..., doo_v1_..., dor_v1_...)",
    "discord-token": "bot tokens of Discord",
    "docker-token": "access tokens of Docker Hub (dckr_pat_...)",
    "doppler-token": "tokens of Doppler (dp.pt...., dp.st....)",
    "github-token": "tokens of GitHub (ghp_..., gho_... and their like, github_pat_...)",
    "gitlab-token": "tokens of GitLab (glpat-... and its relatives)",
    "google-key": "keys of Google (AIza...), its OAuth tokens (ya29...., 1//0...), GOCSPX-...",
    "huggingface-token": "tokens of Hugging Face (hf_...)",
    "jwt": "JSON Web Tokens, signed or encrypted",
    "labelled-secret": "random characters beside a label such as api_key, password, token",
    "memory-key": "keys of this service (amk_...)",
    "npm-token": "tokens of npm (npm_...), and what follows :_authToken=",
    "openai-key": "keys of OpenAI, and of those who took over their form (sk-..., sk-proj-...)",
    "private-key": "private keys in PEM or PGP armor, closed or cut off, also in base64",
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
REACH = 160  # characters before a label that are looked at


def secrets(text: str) -> Iterator[Span]:
    """Everything in a text that has the shape of a secret; spans may overlap.

    The time is linear in the text, and short for a text without secrets.
    """
    raw = text.encode("latin-1", "replace")
    lowered = raw.lower()
    found = chain(
        tokens(text, raw), _labelled(text, lowered), _private_keys(text), _data_sources(text)
    )
    return (span for span in found if not _stands_for_one(text[span.start : span.end]))


def _labelled(text: str, lowered: bytes) -> Iterator[Span]:
    """What stands beside a label, tried wherever the first word of a label stands."""
    for word, labels in _LABELS.items():
        at = lowered.find(word)
        while at >= 0:
            next_at = at + 1
            for label in labels:
                found = label.pattern.match(text, at)
                if found and label.holds(found):
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


def _data_sources(text: str) -> Iterator[Span]:
    """The password in user:...@tcp(host), as Go has it."""
    if "@tcp(" in text:
        for found in _DATA_SOURCE.finditer(text):
            yield Span(*found.span("secret"), "connection-password")


def _stands_for_one(secret: str) -> bool:
    """Whether this is a variable, a blank or a placeholder where a secret would stand."""
    return _is_blank(secret) or _STAND_IN.fullmatch(secret) is not None


def _is_blank(secret: str) -> bool:
    """Whether it ends in equal signs, and no more than a prefix stands before them."""
    end = secret[-BLANK:]
    if len(end) < BLANK or end[0] not in "xX*.0" or end != end[0] * BLANK:
        return False
    return len(_TURN.findall(secret.rstrip(end[0]))) <= MIN_TURNS


def _is_any(_: str) -> bool:
    return True


def _is_no_word(secret: str) -> bool:
    """Whether this is more than a word: `authentication`, `YOUR_TOKEN`."""
    return _WORD.fullmatch(secret) is None


def _is_basic(secret: str) -> bool:
    """Whether this is a user and a password in base64."""
    try:
        return _PAIR.fullmatch(b64decode(secret).decode("latin-1")) is not None
    except ValueError:
        return False


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
    after: re.Pattern[str]

    def holds(self, found: re.Match[str]) -> bool:
        """Whether this is a secret, and after what it has to be."""
        start = found.start()
        return (
            self.is_secret(found["secret"])
            and self.after.search(found.string, max(0, start - REACH), start) is not None
        )


def _label(
    kind: str, pattern: str, is_secret: Callable[[str], bool] = _is_any, after: str = ""
) -> _Label:
    flags = re.ASCII | re.IGNORECASE
    return _Label(kind, re.compile(pattern, flags), is_secret, re.compile(after, flags))


def _random(label: str) -> _Label:
    return _label("labelled-secret", label + _IS + _RANDOM, _is_random)


def _option(label: str) -> _Label:
    """As `--api-key ...`."""
    pattern = rf"(?<=-){label}[ \t]{{1,4}}{_QUOTE}{_RANDOM}"
    return _label("labelled-secret", pattern, _is_random)


def _passwords(label: str) -> list[_Label]:
    """A password among pairs (;Password=...; or Password=...;Server=...) and in an address."""
    value = rf"{_EQUALS}(?!/){_NO_CODE}(?P<secret>{_QUOTED}|{_UNQUOTED}%s)"
    return [
        _label("connection-password", pattern)
        for pattern in (
            f"(?:(?<=;)|(?<=; )){label}{value % '+'}",
            rf"{label}{value % '{1,256}+'}(?=;\s?[a-z][\w ]{{1,30}}=)",
            rf"""(?<=[?&]){label}={_NO_CODE}(?P<secret>[^\s&#;"'`<>\\]+)""",
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
_PAIR = re.compile("[!-9;-~]+:[!-~]+")
_TURN = re.compile("(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")

_KEY_BEGIN = re.compile("-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile("-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile("[A-Za-z0-9+/=]{16}")
_KEY_REST = re.compile(
    r"(?:[\s\\>|#*]{0,40}+[A-Za-z][A-Za-z-]{2,30}+: [^\r\n\\]{0,200}+(?=[\r\n\\])){0,5}+"
    r"""(?:[\s\\>|#*"',]{0,40}+[A-Za-z0-9+/=]{16,}+)++"""
    r"""(?:(?<!=)[\s\\>|#*"',]{1,40}+[A-Za-z0-9+/]{1,15}+={0,2}(?=["'\\]{0,3}(?:[\r\n]|$)))?"""
)

_DATA_SOURCE = re.compile(
    r"""(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{1,64}:(?!//)(?P<secret>[^\s@"'`]{1,128})@tcp\("""
)

_KEY_BEGINS = (
    f"-----BEGIN {label}PRIVATE KEY"
    for label in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ")
)
_KEY_IN_BASE64 = "|".join(
    b64encode(begin[: len(begin) // 3 * 3].encode()).decode() for begin in _KEY_BEGINS
)

_QUOTE = r"""(?:\\{0,3}["'`])?"""
_IS = rf"{_QUOTE}\]?(?:\*\*)?\s{{0,4}}(?:=>|:=|[=:>\uff1a])(?:\*\*)?\s{{0,4}}{_QUOTE}"
# With spaces around it no mere name may follow: that is code.
_EQUALS = r"(?:=|\s?=\s?(?![a-z_.]++\s?(?:[;,)\r\n]|$)))"
_GAP = r"(?:[ \t]{1,4}|%20)"
_CREDENTIAL = r"(?P<secret>[A-Za-z0-9][A-Za-z0-9._~+/|:=-]{6,}[A-Za-z0-9_=-])"
_BASE64 = "[A-Za-z0-9+/]"
_RANDOM = r"(?P<secret>[A-Za-z0-9_~+/-]{20,}+={0,2}+)(?![.:(\[{$%@=!*?])"
_LIBPQ_VALUE = r"""'[^'\r\n]{1,256}'|[^\s,;()"'`{$<%][^\s,;()"'`]{0,255}+"""
_QUOTED = r"""\{[^{}\r\n]{1,256}\}|'[^'\r\n]{1,256}'"""
_UNQUOTED = r"""[^\s;"'`]"""
_PLAIN = r"""[^\s/:@"'`\[]"""
_IN_ADDRESS = (
    rf"{_PLAIN}*+(?:\[REDACTED:[A-Za-z0-9._-]++\]{_PLAIN}*+)*:"
    r"(?!\d{1,5}(?:[,;|)\]}>?#&<\\]|[^\x00-\x7f]))"  # a port, and later an address of mail
    r"""(?P<secret>[^\s/@"'`]++(?:@[^\s/@"'`,;]*+)*)@(?!sha256:)"""
)

_DATABASE = (
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?)(?:\+[a-z0-9]{1,16})?\Z"
)
_NO_CODE = (  # `null`, `os.getcwd()`, `${PWD}/x`, the rest of `== x`
    r"(?![=>]|\$[({]|\$[a-z_]{1,64}/|(?:null|none|nil|undefined|true|false)(?![^\s;,)&])"
    r"""|[a-z_][\w.]{0,64}+\((?:[\s;"'`]|$|[^\s;"'`]{0,64}?\)))"""
)
_LIBPQ = "(?:host(?:addr)?|port|user|dbname|sslmode|connect_timeout)="
_NO_SECRET_TOKEN = "".join(
    f"(?<!{word})(?<!{word}[_-])"
    for word in (
        *("csrf", "xsrf", "forgery", "middleware", "verification"),
        *("page", "next", "forward", "backward", "starting", "continuation", "cursor", "sync"),
        *("client", "idempotency", "request", "unit"),
    )
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
        _label(
            "aws-secret-key",
            r"secret[ _-]?access[ _-]?key(?:[ \t]{1,4}|[ `]{0,3}\|[ `]{0,3}| \[\w{0,24}\]: )"
            rf"(?P<secret>{_BASE64}{{40}})(?!{_BASE64})",
            _is_random,
        ),
        _random("secret(?:[_-]?key)?"),
    ],
    b"access": [
        _label("azure-key", rf"(?<=shared)access[_-]?key{_IS}(?P<secret>{_BASE64}{{40,}}={{0,2}})"),
        _random("access[_-]?key"),
    ],
    b"account": [
        _label("azure-key", rf"account[_-]?key{_IS}(?P<secret>{_BASE64}{{40,}}={{0,2}})"),
    ],
    b"api": [
        _random("api[ _-]?(?:key|secret)"),
        _option("api[_-]?key"),
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
        _label(
            "authorization",
            r"""(?:(?<=["'])auth\\{0,3}["']\s{0,4}:\s{0,4}\\{0,3}["']|(?<=_)auth ?= ?["']?)"""
            rf"(?P<secret>{_BASE64}{{8,4096}}+={{0,2}})",
            _is_basic,
        ),
        _label(
            "npm-token",
            rf"(?<=:_)authtoken ?= ?{_QUOTE}(?P<secret>[a-z0-9_.+/=~:-]{{8,}})",
            _is_no_word,
        ),
        _random("auth[_-]?key"),
    ],
    b"bearer": [
        _label("authorization", rf"bearer{_GAP}(?=\S{{20}}){_CREDENTIAL}", _is_random),
    ],
    b"curl": [
        _label(
            "connection-password",
            r"curl\b(?:[^\n;|&c]|(?<=\\)\n|&(?!&)|c(?!url\b)){0,300}?\s(?:-u|--user)[ =]?"
            r"""["']?[^\s:"'`$<{]{1,64}:(?P<secret>[^\s"'`$<{][^\s"'`]{0,127})""",
            _is_no_word,
        ),
    ],
    b"hooks.slack.com/": [
        _label("webhook", r"hooks\.slack\.com/[a-z]+/(?P<secret>[a-z0-9/_-]{20,})"),
    ],
    b"ls0tls1crudjti": [
        _label(
            "private-key",
            rf"(?P<secret>(?-i:{_KEY_IN_BASE64}){_BASE64}{{32,}}+"
            rf"(?:\r?\n[ \t]{{0,40}}+{_BASE64}{{32,}}+)*+={{0,2}})",
        ),
    ],
    b"passw": [
        _random("passw(?:or)?d"),
        *_passwords("password"),
        _label(
            "connection-password",
            rf"password={_NO_CODE}(?P<secret>{_LIBPQ_VALUE})(?=[ \t]{{1,4}}{_LIBPQ})",
        ),
        _label(
            "connection-password",
            rf"password={_NO_CODE}(?P<secret>{_LIBPQ_VALUE})(?![^\s\"'`\\])",
            after=rf"""(?<![\w.]){_LIBPQ}[^\s,;()"]{{1,256}}[ \t]{{1,4}}\Z""",
        ),
        _label(
            "connection-password",
            r"""password\s{1,8}["']?(?![{<$%]|(?-i:[A-Z_]+)\b)(?P<secret>[^\s"'`]{1,256})""",
            after=r"machine\s{1,8}\S{1,128}\s{1,8}login\s{1,8}\S{1,64}\s{1,8}\Z",
        ),
    ],
    b"pwd": _passwords("pwd"),
    b"sig=": [_label("azure-key", r"(?<=[?&;])sig=(?P<secret>[a-z0-9+/%]{40,}={0,2})")],
    b"token": [
        _label(
            "aws-secret-key",
            r"(?:(?<=session)|(?<=session[_-])|(?<=security)|(?<=security[_-]))"
            rf"token{_IS}(?P<secret>{_BASE64}{{100,}}={{0,2}})",
        ),
        _random(_NO_SECRET_TOKEN + "token"),
        _option(_NO_SECRET_TOKEN + "token"),
    ],
    b"xoxd-": [_label("slack-token", "(?P<secret>xoxd-[a-z0-9%+/_=-]{20,})")],
    b":aa": [_label("telegram-token", "(?<=[0-9]{8}):(?P<secret>(?-i:AA)[a-z0-9_-]{33,})")],
    b"~": [
        _label(
            "azure-key",
            r"(?<=[a-z0-9_~.-]{3}[0-9](?-i:Q))~(?P<secret>[a-z0-9_~.-]{31,34})(?![a-z0-9_~.-])",
            _is_random,
        ),
    ],
    b"://": [
        _label("connection-password", "://" + _IN_ADDRESS),
        _label(
            "connection-password",
            r"""://[^\s/:@"'`]{0,128}+:(?!\d{1,5}[/?#,;])"""
            r"""(?P<secret>[^\s/@"'`<>()]{0,128}+/[^\s@"'`<>()]{0,256}+)@""",
            after=_DATABASE,
        ),
    ],
    rb":\/\/": [_label("connection-password", r":\\/\\/" + _IN_ADDRESS)],
    b"%3a%2f%2f": [
        _label(
            "connection-password",
            r"%3a%2f%2f[a-z0-9._~+-]{0,128}+%3a(?P<secret>[a-z0-9._~+!*()%-]{1,256}?)%40",
        ),
    ],
    b"/webhookb2/": [_label("webhook", "/webhookb2/(?P<secret>[a-z0-9@/-]{60,})")],
}
