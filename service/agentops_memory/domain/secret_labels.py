"""Secrets that are known by the label beside them: `api_key: ...`, `://user:...@host`."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .secret_tokens import Span

MIN_TURNS = 3  # from a letter to a digit or back; words with a version have fewer
REACH = 160  # characters before a label that are looked at


def labelled(text: str, lowered: bytes) -> Iterator[Span]:
    """What stands beside a label, tried wherever the first word of a label stands.

    `lowered` is the text in Latin-1 and lower case, a byte for each character.
    """
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


def turns(text: str) -> int:
    """How often a letter follows a digit, or a digit a letter."""
    return len(_TURN.findall(text))


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
    if turns(secret) < MIN_TURNS:
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


_WORD = re.compile(r"[A-Z]?[a-z._~/-]+|[A-Z._/-]+")
_PAIR = re.compile("[!-9;-~]+:[!-~]+")
_TURN = re.compile("(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")

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
