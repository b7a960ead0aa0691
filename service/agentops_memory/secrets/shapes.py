"""Secrets recognized by their shape: tokens, private keys, and labelled values.

Precision goes before recall: ordinary text does not have these shapes. Text that only looks
random (a hash, an identifier, an image) is not a secret, nor is a dummy value (`$PASSWORD`,
`<token>`, `xxxxxxxx`).
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache, cached_property, partial

from ..light import dataclass
from .assignments import (
    ASSIGNMENT,
    PLACEHOLDER,
    SHORTEST_TOKEN,
    TYPE,
    UUID,
    VALUE_OF,
    has_secret_name,
    is_assigned,
    is_preceded_by,
    is_random,
    is_reference,
    is_secret,
)


def _is_no_word(secret: str) -> bool:
    """Whether the value is not a plain word such as `authentication` or `YOUR_TOKEN`."""
    return _WORD.fullmatch(secret) is None


def _is_basic(secret: str) -> bool:
    """Whether the value is the base64 of `user:password`."""
    try:
        return _PAIR.fullmatch(b64decode(secret).decode("latin-1")) is not None
    except ValueError:
        return False


def _is_option(value: str) -> bool:
    """Whether the value may be the password in `mysql -p...`: no variable, dummy or port."""
    return not (is_reference(value) or _PORTS.fullmatch(value))


@dataclass(frozen=True, kw_only=True)
class _Label:
    """A pattern for a label with its secret, and a predicate that a match must satisfy."""

    kind: str
    text: str
    holds: Callable[[re.Match[str]], bool]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when first needed: all labels take 30 ms, and many commands need none."""
        return re.compile(self.text, re.ASCII | re.IGNORECASE)


def _label(
    kind: str, pattern: str, is_secret: Callable[[str], bool] = lambda _: True, after: str = ""
) -> _Label:
    before = re.compile(after, re.ASCII | re.IGNORECASE)

    def holds(match: re.Match[str]) -> bool:
        return is_secret(match["secret"]) and is_preceded_by(match, before)

    return _Label(kind=kind, text=pattern, holds=holds)


def _random(label: str) -> _Label:
    """Return a label for random characters: `api_key: ...`, `--api-key ...`."""
    between = (
        rf"{_IS}|{TYPE}[ \t]{{0,4}}=[ \t]{{0,4}}{_QUOTE}|(?P<option>[ \t]{{1,4}}{_QUOTE})"
        r"""|(?P<next>\\{0,3}["'],[ \t]{0,4}\\{0,3}["'])"""
    )
    pattern = rf"(?P<name>{label})(?:{between}){_RANDOM}"
    return _Label(kind="labelled-secret", text=pattern, holds=has_secret_name)


def _passwords(label: str) -> list[_Label]:
    """Return labels for a password in a connection string (;Password=...;) or a URL's query."""
    value = rf"{_EQUALS}(?!/){_NO_CODE}(?P<secret>{_QUOTED}|{_UNQUOTED}%s)"
    return [
        _connection(f"(?:(?<=;)|(?<=; )){label}{value % '+'}"),
        _connection(rf"{label}{value % '{1,256}+'}(?=;\s?[a-z][\w ]{{1,30}}=)"),
        _connection(rf"""(?<=[?&]){label}={_NO_CODE}(?P<secret>[^\s&#;"'`<>\\]+)"""),
    ]


PASSWORD = _Label(
    kind="password", text=ASSIGNMENT, holds=lambda match: is_assigned(match) and is_secret(match)
)
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
# With spaces around `=`, a bare name must not follow: it would be code.
_EQUALS = r"(?:=|\s?=\s?(?![a-z_.]++\s?(?:[;,)\r\n]|$)))"
_GAP = r"(?:[ \t]{1,4}|%20)"
_CREDENTIAL = r"(?P<secret>[A-Za-z0-9][A-Za-z0-9._~+/|:=-]{6,}[A-Za-z0-9_=-])"
# A quoted argument extends to the closing quote, including spaces.
_OPENED = r"""(?P<quote>\\{0,3}["'])?"""
_ARGUMENT_WORD = r"""[^\s"'`$<{][^\s"'`]{0,127}"""
_ARGUMENT_VALUE = (
    r"""(?P<secret>(?(quote)(?:(?![\s"'`$<{])(?:(?!(?P=quote))[^\r\n]){1,128}(?=(?P=quote))"""
    rf"|{_ARGUMENT_WORD})|{_ARGUMENT_WORD}))"
)
_ARGUMENT = _OPENED + _ARGUMENT_VALUE
_BASE64 = "[A-Za-z0-9+/]"
_SENTENCE_END = r"""[.:!?](?:[\s"'`)\]<&\\\x1b]|[^\x00-\x7f]|$)"""
_RANDOM = (
    rf"(?P<secret>[A-Za-z0-9_~+/-]{{{SHORTEST_TOKEN},}}+={{0,2}}+)"
    rf"(?:(?![.:!?(\[{{$%@=*])|(?={_SENTENCE_END}))"
)
_LIBPQ_VALUE = r"""'[^'\r\n]{1,256}'|[^\s,;()"'`{$<%][^\s,;()"'`]{0,255}+"""
_QUOTED = r"""\{[^{}\r\n]{1,256}\}|'[^'\r\n]{1,256}'"""
_UNQUOTED = r"""[^\s;"'`]"""
_PLAIN = r"""[^\s/:@"'`\[]"""
_IN_ADDRESS = (
    rf"{_PLAIN}*+(?:{PLACEHOLDER}{_PLAIN}*+)*:"
    r"(?!\d{1,5}(?:[,;|)\]}>?#&<\\]|[^\x00-\x7f]))"  # a port, with a mail address after it
    r"""(?P<secret>[^\s/@"'`]++(?:@[^\s/@"'`,;]*+)*)@(?!sha256:)"""
)

# The rest of a command, which a backslash may continue on the next line; not prose.
_COMMAND = r"(?:(?!,\s|\s(?:then|and|or|run|compose|ssh)\s)[^\n;|&]|(?<=\\)\n)*"
_LOGIN = (
    r"(?:sshpass(?: -\S{1,64})*|(?:mongo(?:sh|dump|restore|import|export)?"
    rf"|(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|registry|az) login)\b{_COMMAND})\Z"
)
_GAPS = r"[ \t]+(?:\\\n[ \t]*)?"
# Only options and a database may stand between this command and the password.
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
# By the lower-case keyword that each label begins with. If two labels find one secret, the first
# names it. An unlimited repetition never runs over that keyword again, or always succeeds;
# otherwise hostile text would take quadratic time.
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
            lambda secret: is_random(secret) or re.fullmatch(UUID, secret) is not None,
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
            rf"""{_OPENED}[^\s:"'`$<{{]{{1,64}}:{_ARGUMENT_VALUE}""",
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


_SAFE = "[A-Za-z0-9_-]"  # base64url
_HEX = "[0-9a-f]"
_WITH_DIGIT = "(?=[A-Za-z_-]{0,40}[0-9])"
_SNOWFLAKE = "[DTjz][AEIMQUYcgk][w-z0-5](?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){4,5}"
_GITLAB = "(?:pat|ptt|dt|rt|rtr|cbt|ft|imt|oas|soat|ffct)"
_ROUTE = r"(?:\.[0-9a-z]{2,})*"

# (kind, prefix, the rest). Unlimited repetitions are allowed only at the end of the rest;
# elsewhere, hostile text would take quadratic time. A prefix has a fixed length and begins with
# a letter, so that `re` skips other letters fast.
_DISTINCT = (
    ("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58,}"),
    ("digitalocean-token", "do[opr]_v1_", f"{_HEX}{{64,}}"),
    ("docker-token", "dckr_[op]at_", f"{_SAFE}{{20,}}"),
    ("github-token", "github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{40,}"),
    ("google-key", "GOCSPX-", f"{_SAFE}{{20,}}"),
    ("memory-key", "amk_", f"[a-z0-9]{{8,16}}_{_SAFE}{{43,}}"),
    ("pypi-token", "pypi-AgE", f"{_SAFE}{{50,}}"),
    ("service-token", "CFPAT-", f"{_SAFE}{{40,}}"),
    ("service-token", "NRAK-", "[A-Z0-9]{27,}"),
    ("service-token", "PMAK-", f"{_HEX}{{24}}-{_HEX}{{34,}}"),
    ("service-token", r"atlasv1\.", f"{_SAFE}{{60,}}"),
    ("service-token", "figd_", f"{_SAFE}{{40,}}"),
    ("service-token", "glc_eyJ", f"{_BASE64}{{32,}}"),
    ("service-token", "glsa_", "[A-Za-z0-9]{32}_[0-9A-Fa-f]{8,}"),
    ("service-token", "lin_api_", "[A-Za-z0-9]{32,}"),
    ("service-token", "lsv2_(?:pt|sk)_", f"{_HEX}{{32}}_{_HEX}{{10,}}"),
    ("service-token", "nvapi-", f"{_SAFE}{{60,}}"),
    ("service-token", "ops_eyJ", f"{_BASE64}{{100,}}"),
    ("service-token", "rubygems_", f"{_HEX}{{48,}}"),
    ("service-token", "shp(?:at|ca|pa|ss)_", "[0-9A-Fa-f]{32,}"),
    ("service-token", r"snyk_[us]at\.", r"[0-9A-Za-z]{8}\.[A-Za-z0-9_.-]{40,}"),
    ("service-token", "sntrys_", "[A-Za-z0-9+/_]{60,}"),
    ("service-token", "sntryu_", f"{_HEX}{{64,}}"),
    ("service-token", "sq0(?:at|cs)p-", f"{_SAFE}{{22,}}"),
    ("service-token", "xkeysib-", f"{_HEX}{{64}}-[A-Za-z0-9]{{16,}}"),
    ("stripe-key", "whsec_", f"{_BASE64}{{24,}}"),
)

# The same for prefixes that could also be the end of a word.
_WORDLIKE = (
    ("aws-key-id", "A(?:KI|SI|BI|CC)A", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("gitlab-token", "GR1348941", f"{_SAFE}{{20,}}"),
    ("google-key", "1//0", f"{_WITH_DIGIT}{_SAFE}{{40,}}"),
    ("google-key", "AIza", f"{_SAFE}{{35,}}"),
    ("service-token", "ABSKQmVkcm9ja0FQSUtleS", f"{_BASE64}{{60,}}"),
    ("service-token", "ATBB", "(?=[A-Za-z]{0,30}[0-9])[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("service-token", "ATCTT3", f"{_SAFE}{{60,}}"),
    ("service-token", "EAA[B-Z]", "[A-Za-z0-9]{100,}"),
    ("service-token", "LTAI", f"{_WITH_DIGIT}[A-Za-z0-9]{{20}}(?![A-Za-z0-9])"),
    ("service-token", "dapi", f"{_HEX}{{32}}(?![A-Za-z0-9])"),
    ("telegram-token", "AA", f"(?<=[0-9]{{8}}:AA){_SAFE}{{33,}}"),
    ("twilio-key", "SK", f"{_HEX}{{32}}(?![A-Za-z0-9])"),
    ("anthropic-key", "sk-ant-", f"{_WITH_DIGIT}{_SAFE}{{24,}}"),
    *(
        ("discord-token", first, rf"{_SNOWFLAKE}{_SAFE}{{0,4}}\.{_SAFE}{{6}}\.{_SAFE}{{27,}}")
        for first in "MNO"
    ),
    ("doppler-token", r"dp\.", r"(?:pt|ct|sa|said|scim|audit)\.[A-Za-z0-9]{40,}"),
    ("doppler-token", r"dp\.st\.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    ("github-token", "gh[pousr]_", "[A-Za-z0-9]{36,}"),
    ("gitlab-token", "gl", f"{_GITLAB}-{_WITH_DIGIT}{_SAFE}{{20,}}{_ROUTE}"),
    ("gitlab-token", "glagent-", f"{_SAFE}{{40,}}{_ROUTE}"),
    ("google-key", r"ya29\.", f"{_SAFE}{{20,}}"),
    ("huggingface-token", "hf_", "[A-Za-z0-9]{34}(?![A-Za-z0-9])"),
    ("npm-token", "npm_", "[A-Za-z0-9]{36,}"),
    ("openai-key", "sk-", "(?=[A-Za-z]{0,30}[0-9])[A-Za-z0-9]{32,}"),
    ("openai-key", "sk-", f"(?:proj|svcacct|service|admin)-{_WITH_DIGIT}{_SAFE}{{20,}}"),
    ("openai-key", "sk-or-v1-", f"{_HEX}{{32,}}"),
    ("sendgrid-key", r"SG\.", rf"{_SAFE}{{16,32}}\.{_SAFE}{{32,}}"),
    ("service-token", "HRKU-", f"{_SAFE}{{36,}}"),
    ("service-token", r"dt0c01\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64,}"),
    ("service-token", "fm2_", f"{_BASE64}{{100,}}"),
    ("service-token", "gsk_", "[A-Za-z0-9]{48,}"),
    ("service-token", "ntn_", "[A-Za-z0-9]{40,}"),
    ("service-token", "pat", rf"[A-Za-z0-9]{{14}}\.{_HEX}{{64,}}"),
    ("service-token", "pat-(?:na|eu|ap)[0-9]-", UUID),
    ("service-token", "phx_", "(?=[A-Za-z]{0,30}[0-9])[A-Za-z0-9]{32,}"),
    ("service-token", "pplx-", "[A-Za-z0-9]{40,}"),
    ("service-token", "pscale_", f"(?:tkn|oauth|pw)_{_WITH_DIGIT}{_SAFE}{{32,}}"),
    ("service-token", "pul-", f"{_HEX}{{40,}}"),
    ("service-token", "r8_", "[A-Za-z0-9]{37}(?![A-Za-z0-9])"),
    ("service-token", "sb_secret_", f"{_WITH_DIGIT}{_SAFE}{{20,}}"),
    ("service-token", "sbp_", f"{_HEX}{{40,}}"),
    ("service-token", "sk-lf-", UUID),
    ("service-token", r"sk\.eyJ", rf"{_SAFE}{{20,}}\.{_SAFE}{{20,}}"),
    ("service-token", "tskey-", "[a-z]{3,10}-[A-Za-z0-9]{8,24}-[A-Za-z0-9]{20,}"),
    ("service-token", "tvly-", f"{_WITH_DIGIT}{_SAFE}{{28,}}"),
    ("service-token", "vc[aciprk]_", f"{_WITH_DIGIT}{_SAFE}{{24,}}"),
    ("service-token", "xai-", "[A-Za-z0-9]{60,}"),
    ("slack-token", "xapp-", "[0-9]-[A-Za-z0-9-]{15,}"),
    ("slack-token", "xox[a-ce-z]-", "(?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9-]{15,}"),
    ("slack-token", r"xoxe\.xox[bp]-", "[0-9]-[A-Za-z0-9-]{15,}"),
    ("stripe-key", "rk_(?:live|test)_", "[A-Za-z0-9]{16,}"),
    ("stripe-key", "sk_(?:live|test)_", "[A-Za-z0-9]{16,}"),
    ("vault-token", r"hv[sbr]\.", f"{_WITH_DIGIT}{_SAFE}{{24,}}"),
)

# Letters and digits that may stand before a word: the end of an escape (\n, %3D, \u003d) or of a
# terminal color (\x1b[31m).
_ESCAPES = (
    r"\\[nrt]", "%[0-9A-Fa-f]{2}", r"\\u00[0-9A-Fa-f]{2}", r"[\[;][0-9]m", r"[\[;][0-9]{2}m",
)  # fmt: skip


def _at_start(prefix: str) -> str:
    """Return a pattern for this prefix at the beginning of a word."""
    escaped = "|".join(f"(?<={escape}{prefix})" for escape in _ESCAPES)
    return f"{prefix}(?:(?<![A-Za-z0-9]{prefix})|{escaped})"


@cache
def token_pattern() -> tuple[re.Pattern[str], list[str]]:
    """Return one alternation of all shapes, and the kind of each of its groups."""
    shapes = [prefix + tail for _, prefix, tail in _DISTINCT]
    shapes += [_at_start(prefix) + tail for _, prefix, tail in _WORDLIKE]
    pattern = re.compile("|".join(f"{it}()" for it in shapes))
    return pattern, [kind for kind, *_ in (*_DISTINCT, *_WORDLIKE)]


LONG_RUN = b"a" * 20  # as long as the shortest token
RUN_MASK = bytes(
    ord("a" if re.match("[A-Za-z0-9+/_.-]", chr(code)) else " ") for code in range(256)
)
AZURE_DEVOPS = re.compile(_at_start("") + "[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])")

# Three parts, or five when encrypted. The pattern finds all parts before it looks for the
# beginning in the first part, which makes it linear.
_SIGNED = rf"\.eyJ{_SAFE}{{5,}}\.{_SAFE}{{10,}}"
_ENCRYPTED = rf"\.{_SAFE}*\.{_SAFE}{{10,}}\.{_SAFE}{{10,}}\.{_SAFE}{{10,}}"
JWT = re.compile(
    rf"(?<!{_SAFE})(?={_SAFE}++(?:{_SIGNED}|{_ENCRYPTED}))"
    rf"{_SAFE}*?(?P<secret>eyJ{_SAFE}{{9,}}(?:{_SIGNED}|{_ENCRYPTED}))"
)

DUMMY_VALUE = re.compile(
    r"\$\([^()]*\)|\$\{[^{}]*\}|\$[A-Z_][A-Z0-9_]*|\$[a-z_]+"  # shell
    r"""|\{+[A-Za-z_ .()\[\]'":!|-]*\}+|\{\d\}"""  # templates
    r"|<[^<>]*>|%[A-Za-z_]+%|%s|%\([A-Za-z_]+\)s"
    r"|x+|X+|\*+|\.+|-+|_+|\u2026+|\u2022+"
    rf"|REDACTED|(?:{PLACEHOLDER})+"
)
KEY_BEGIN = re.compile("-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_END = re.compile("-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_LINE = re.compile("[A-Za-z0-9+/=]{16}")
KEY_ARMOR = re.compile(
    r"(?>(?:[\s\\>|#*]{0,40}+[A-Za-z][A-Za-z-]{2,30}+: [^\r\n\\]{0,200}+(?=[\r\n\\])){0,5})"
    r"""(?>(?:[\s\\>|#*"',]{0,40}+[A-Za-z0-9+/=]{16,}+)+)"""
    r"""(?:(?<!=)[\s\\>|#*"',]{1,40}+[A-Za-z0-9+/]{1,15}+={0,2}(?=["'\\]{0,3}(?:[\r\n]|$)))?"""
)
_WEB_KEY = re.compile(
    r"""["'](?:d|k|p|q|dp|dq|qi)\\{0,3}["']\s{0,4}:\s{0,4}\\{0,3}["'](?P<secret>[A-Za-z0-9_-]{16,}+)"""
)
_DATA_SOURCE = re.compile(
    r"""(?<![A-Za-z0-9_.-])(?!REDACTED:)[A-Za-z0-9_.-]{1,64}:(?!//)(?P<secret>[^\s@"'`]{1,128})@tcp\("""
)
# Private members of JSON Web Keys, and passwords in Go's data source names: (lower-case hint, kind,
# pattern). Text without the hint is not searched.
HINTED = ((b'"kty', "private-key", _WEB_KEY), (b"@tcp(", "connection-password", _DATA_SOURCE))
# Every secret contains one of these, in lower case; most short texts contain none.
HINT = re.compile(
    b"|".join(map(re.escape, (*LABELS, b"private key", *(hint for hint, *_ in HINTED))))
    + rb"|[a-z0-9+/_.-]{%d}" % len(LONG_RUN)
)

KINDS = frozenset(
    {kind for kind, *_ in (*_DISTINCT, *_WORDLIKE)}
    | {label.kind for labels in LABELS.values() for label in labels}
    | {"jwt", "private-key"}
)
"""Every kind of secret that is recognized by its shape; docs/security.md describes each."""
