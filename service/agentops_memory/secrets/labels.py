"""Secrets recognized by the label beside them: `api_key: ...`, `://user:...@host`."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .assignments import (
    ASSIGNMENT,
    PLACEHOLDER,
    TYPE,
    VALUE_OF,
    follows,
    is_named,
    is_password,
    is_reference,
)
from .chance import SHORTEST, UUID, is_random


def _is_no_word(secret: str) -> bool:
    """Whether this is not a plain word such as `authentication` or `YOUR_TOKEN`."""
    return _WORD.fullmatch(secret) is None


def _is_basic(secret: str) -> bool:
    """Whether this is the base64 of `user:password`."""
    try:
        return _PAIR.fullmatch(b64decode(secret).decode("latin-1")) is not None
    except ValueError:
        return False


def _is_option(value: str) -> bool:
    """Whether this may be the password in `mysql -p...`: no variable and no placeholder."""
    return not (is_reference(value) or _PORTS.fullmatch(value))


def _is_credential(secret: str) -> bool:
    return is_random(secret) or re.fullmatch(UUID, secret) is not None


class _Label(NamedTuple):
    """A pattern for a label with its secret, and a predicate on the match."""

    kind: str
    pattern: re.Pattern[str]
    holds: Callable[[re.Match[str]], bool]


def _label(
    kind: str, pattern: str, is_secret: Callable[[str], bool] = lambda _: True, after: str = ""
) -> _Label:
    flags = re.ASCII | re.IGNORECASE
    before = re.compile(after, flags)

    def holds(found: re.Match[str]) -> bool:
        return is_secret(found["secret"]) and follows(before, found)

    return _Label(kind, re.compile(pattern, flags), holds)


def _random(label: str) -> _Label:
    """A label for random characters: `api_key: ...`, `--api-key ...`."""
    between = (
        rf"{_IS}|{TYPE}[ \t]{{0,4}}=[ \t]{{0,4}}{_QUOTE}|(?P<option>[ \t]{{1,4}}{_QUOTE})"
        r"""|(?P<next>\\{0,3}["'],[ \t]{0,4}\\{0,3}["'])"""
    )
    pattern = rf"(?P<name>{label})(?:{between}){_RANDOM}"
    return _Label("labelled-secret", re.compile(pattern, re.ASCII | re.IGNORECASE), is_named)


def _passwords(label: str) -> list[_Label]:
    """Labels for a password in a connection string (;Password=...;) and in a URL's query."""
    value = rf"{_EQUALS}(?!/){_NO_CODE}(?P<secret>{_QUOTED}|{_UNQUOTED}%s)"
    return [
        _connection(f"(?:(?<=;)|(?<=; )){label}{value % '+'}"),
        _connection(rf"{label}{value % '{1,256}+'}(?=;\s?[a-z][\w ]{{1,30}}=)"),
        _connection(rf"""(?<=[?&]){label}={_NO_CODE}(?P<secret>[^\s&#;"'`<>\\]+)"""),
    ]


PASSWORD = _Label("password", ASSIGNMENT, is_password)
_connection = partial(_label, "connection-password")
_WORD = re.compile(r"[A-Z]?[a-z._~/-]+|[A-Z._/-]+")
_PORTS = re.compile(r"[\d.:]+(?:/\w+)?")
_PAIR = re.compile("[!-9;-~]+:[!-~]+")

_KEY_BEGINS = (
    f"-----BEGIN {label}PRIVATE KEY"
    for label in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ")
)
_KEY_IN_BASE64 = "|".join(
    b64encode(begin[: len(begin) // 3 * 3].encode()).decode() for begin in _KEY_BEGINS
)

_QUOTE = r"""(?:\\{0,3}["'`])?"""
_IS = (
    rf"{_QUOTE}\]?(?:\*\*)?(?:\s{{0,40}}(?:=>|:[=-]|[=:>\uff1a])|{VALUE_OF})(?:\*\*)?\s{{0,40}}"
    rf"(?:[rbuf]{{1,2}}(?=[\"']))?{_QUOTE}(?:base64:)?"
)
_HEADER = rf"authorization{_QUOTE}\s{{0,4}}[:=,]\s{{0,4}}{_QUOTE}"
# With spaces around it no mere name may follow: that is code.
_EQUALS = r"(?:=|\s?=\s?(?![a-z_.]++\s?(?:[;,)\r\n]|$)))"
_GAP = r"(?:[ \t]{1,4}|%20)"
_CREDENTIAL = r"(?P<secret>[A-Za-z0-9][A-Za-z0-9._~+/|:=-]{6,}[A-Za-z0-9_=-])"
# An argument in quotes goes up to the closing quote, spaces and all.
_OPENED = r"""(?P<quote>\\{0,3}["'])?"""
_WORD_GIVEN = r"""[^\s"'`$<{][^\s"'`]{0,127}"""
_GIVEN = (
    r"""(?P<secret>(?(quote)(?:(?![\s"'`$<{])(?:(?!(?P=quote))[^\r\n]){1,128}(?=(?P=quote))"""
    rf"|{_WORD_GIVEN})|{_WORD_GIVEN}))"
)
_ARGUMENT = _OPENED + _GIVEN
_BASE64 = "[A-Za-z0-9+/]"
_SENTENCE_END = r"""[.:!?](?:[\s"'`)\]<&\\\x1b]|[^\x00-\x7f]|$)"""
_RANDOM = (
    rf"(?P<secret>[A-Za-z0-9_~+/-]{{{SHORTEST},}}+={{0,2}}+)"
    rf"(?:(?![.:!?(\[{{$%@=*])|(?={_SENTENCE_END}))"
)
_LIBPQ_VALUE = r"""'[^'\r\n]{1,256}'|[^\s,;()"'`{$<%][^\s,;()"'`]{0,255}+"""
_QUOTED = r"""\{[^{}\r\n]{1,256}\}|'[^'\r\n]{1,256}'"""
_UNQUOTED = r"""[^\s;"'`]"""
_PLAIN = r"""[^\s/:@"'`\[]"""
_IN_ADDRESS = (
    rf"{_PLAIN}*+(?:{PLACEHOLDER}{_PLAIN}*+)*:"
    r"(?!\d{1,5}(?:[,;|)\]}>?#&<\\]|[^\x00-\x7f]))"  # a port, and later an address of mail
    r"""(?P<secret>[^\s/@"'`]++(?:@[^\s/@"'`,;]*+)*)@(?!sha256:)"""
)

# The rest of a command, which backslashes may part, and no prose.
_REST = r"(?:(?!,\s|\s(?:then|and|or|run|compose|ssh)\s)[^\n;|&]|(?<=\\)\n)*"
_LOGIN = (
    r"(?:sshpass(?: -\S{1,64})*|(?:mongo(?:sh|dump|restore|import|export)?"
    rf"|(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|registry|az) login)\b{_REST})\Z"
)
_GAPS = r"[ \t]+(?:\\\n[ \t]*)?"
# Only options of its own, and a database, stand between this command and the password.
_MYSQL = (
    r"(?:mysql|mariadb)[a-z-]{0,8}(?:\.exe)?"
    rf"(?:{_GAPS}\w+(?={_GAPS}-(?:[uh]|-user|-host)))?(?>(?:{_GAPS}-\S+"
    rf"""(?:{_GAPS}(?:"[^"\n]*"|'[^'\n]*'|[^\s"'\\-]\S*))?)*)(?:{_GAPS})?\Z"""
)

_DATABASE = (
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?)(?:\+[a-z0-9]{1,16})?\Z"
)
_NO_CODE = (  # `null`, `os.getcwd()`, `${PWD}/x`, the rest of `== x`
    r"(?![=>]|\$[({]|\$[a-z_]{1,64}/|(?:null|none|nil|undefined|true|false)(?![^\s;,)&])"
    r"""|[a-z_][\w.]{0,64}+\((?:[\s;"'`]|$|[^\s;"'`]{0,64}?\)))"""
)
_LIBPQ = "(?:host(?:addr)?|port|user|dbname|sslmode|connect_timeout)="
# By the word, in lower case, that each begins with; what two of them find, the first names.
# What is repeated without a limit never runs over that word again, or always succeeds: else
# hostile text takes quadratic time.
LABELS = {
    b"secret": [
        _label(
            "aws-secret-key",
            rf"secret[_-]?access[_-]?key{_IS}(?P<secret>{_BASE64}{{40}})(?!{_BASE64})",
        ),
        _label(
            "aws-secret-key",
            r"secret[ _-]?access[ _-]?key(?:[ \t]{1,4}|[ `]{0,3}\|[ `]{0,3}| \[\w{0,24}\]: )"
            rf"(?P<secret>{_BASE64}{{40}})(?!{_BASE64})",
            is_random,
        ),
        _random("secret(?:[_-]?key)?"),
        PASSWORD,
    ],
    b"/api/webhooks/": [_label("webhook", r"/api/webhooks/\d{15,22}/(?P<secret>[a-z0-9_-]{40,})")],
    b"atatt3": [_label("service-token", "(?P<secret>atatt3[a-z0-9_=-]{60,})")],
    b"auth": [
        _label(
            "authorization",
            rf"{_HEADER}(?:bearer|basic|token|bot|apikey|ssws){_GAP}{_CREDENTIAL}",
            _is_no_word,
        ),
        _label(
            "authorization",
            rf"{_HEADER}(?:[a-z][\w-]{{1,30}}{_GAP})?(?!credential=){_CREDENTIAL}",
            _is_credential,
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
    ],
    b"bearer": [_label("authorization", rf"bearer{_GAP}(?=\S{{20}}){_CREDENTIAL}", is_random)],
    b"curl": [
        _connection(
            r"curl\b(?:[^\n;|&c]|(?<=\\)\n|&(?!&)|c(?!url\b)){0,300}?\s(?:-u|--user)[ =]?"
            rf"""{_OPENED}[^\s:"'`$<{{]{{1,64}}:{_GIVEN}""",
            _is_no_word,
        )
    ],
    b" -p": [
        _label("password", f" -p[ =]?{_ARGUMENT}", _is_option, after=_LOGIN),
        _label("password", f" (?-i:-p){_ARGUMENT}", _is_option, after=_MYSQL),
    ],
    b"redis-cli": [
        _label(
            "password",
            r"redis-cli\b[^\n;|&]{0,120}?\s(?:-a|--pass)[ =](?!(?:option|is|flag|argument)\b)"
            rf"{_ARGUMENT}",
            _is_option,
        )
    ],
    b"hooks.slack.com/": [
        _label("webhook", r"hooks\.slack\.com/[a-z]+/(?P<secret>[a-z0-9/_-]{20,})")
    ],
    b"ls0tls1crudjti": [
        _label(
            "private-key",
            rf"(?P<secret>(?-i:{_KEY_IN_BASE64}){_BASE64}{{32,}}+"
            rf"(?>(?:\r?\n[ \t]{{0,40}}+{_BASE64}{{32,}}+)*)={{0,2}})",
        )
    ],
    b"pass": [
        _random("passw(?:or)?d"),
        *_passwords("password"),
        _connection(rf"password={_NO_CODE}(?P<secret>{_LIBPQ_VALUE})(?=[ \t]{{1,4}}{_LIBPQ})"),
        _connection(
            rf"password={_NO_CODE}(?P<secret>{_LIBPQ_VALUE})(?![^\s\"'`\\])",
            after=rf"""(?<![\w.]){_LIBPQ}[^\s,;()"]{{1,256}}[ \t]{{1,4}}\Z""",
        ),
        _connection(
            r"""password\s{1,8}["']?(?![{<$%]|(?-i:[A-Z_]+)\b)(?P<secret>[^\s"'`]{1,256})""",
            after=r"machine\s{1,8}\S{1,128}\s{1,8}login\s{1,8}\S{1,64}\s{1,8}\Z",
        ),
        PASSWORD,
    ],
    b"pwd": [*_passwords("pwd"), PASSWORD],
    b"identified by": [PASSWORD],
    b"sig=": [_label("azure-key", r"(?<=[?&;])sig=(?P<secret>[a-z0-9+/%]{40,}={0,2})")],
    b"token": [
        _label(
            "aws-secret-key",
            r"(?:(?<=session)|(?<=session[_-])|(?<=security)|(?<=security[_-]))"
            rf"token{_IS}(?P<secret>{_BASE64}{{100,}}={{0,2}})",
        ),
        _random("token"),
    ],
    b"key": [
        _label(
            "azure-key",
            r"(?:(?<=sharedaccess)|(?<=sharedaccess[_-])|(?<=account)|(?<=account[_-]))"
            rf"key{_IS}(?P<secret>{_BASE64}{{40,}}={{0,2}})",
        ),
        _random("(?:(?<=[a-z0-9_-])|(?<=api ))key"),
    ],
    b"xoxd-": [_label("slack-token", "(?P<secret>xoxd-[a-z0-9%+/_=-]{20,})")],
    b"~": [
        _label(
            "azure-key",
            r"(?<=[a-z0-9_~.-]{3}[0-9](?-i:Q))~(?P<secret>[a-z0-9_~.-]{31,34})(?![a-z0-9_~.-])",
            is_random,
        )
    ],
    b"://": [
        _connection("://" + _IN_ADDRESS),
        _connection(
            r"""://[^\s/:@"'`]{0,128}+:(?!\d{1,5}[/?#,;])"""
            r"""(?P<secret>[^\s/@"'`<>()]{0,128}+/[^\s@"'`<>()]{0,256}+)@""",
            after=_DATABASE,
        ),
    ],
    rb":\/\/": [_connection(r":\\/\\/" + _IN_ADDRESS)],
    b"%3a%2f%2f": [
        _connection(r"%3a%2f%2f[a-z0-9._~+-]{0,128}+%3a(?P<secret>[a-z0-9._~+!*()%-]{1,256}?)%40")
    ],
    b"/webhookb2/": [_label("webhook", "/webhookb2/(?P<secret>[a-z0-9@/-]{60,})")],
}
