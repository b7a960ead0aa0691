"""Secrets assigned to a telling name: `DB_PASSWORD=...`, `password: ...`, `api_key: ...`."""

import re

MIN_ALTERNATIONS = 3  # from a letter to a digit or back; words with a version have fewer
SHORTEST_TOKEN = 16  # characters; shorter text counts as random by its alternations alone
LONGEST_TOKEN = 256  # characters of a token that are examined; more would not change the result
LONGEST_PIECE = 3  # most characters, on average, of a piece of random text in mixed case
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def alternations(text: str) -> int:
    """Count the places where a letter follows a digit, or a digit a letter."""
    return len(_ALTERNATION.findall(text))


def is_random(secret: str) -> bool:
    """Whether letters, digits and cases alternate as in random text.

    Text with punctuation must also be in mixed case, or contain a digest. False for paths,
    resource names, camelCase, UUIDs and public SSH keys.
    """
    is_mixed = secret != secret.lower() and secret != secret.upper()
    if _PUBLIC.match(secret) or not (secret.isalnum() or is_mixed or _DIGEST.search(secret)):
        return False
    alternating = alternations(secret)
    if alternating >= MIN_ALTERNATIONS or len(secret) < SHORTEST_TOKEN:
        return alternating >= MIN_ALTERNATIONS
    start = secret[:LONGEST_TOKEN]
    pieces = _PIECE.findall(start)
    unlikely = len(_UNLIKELY.findall(" ".join(pieces)))
    if is_mixed and (len(pieces) + unlikely) * LONGEST_PIECE > len(start):
        return True
    is_hexadecimal = _HEXADECIMAL.fullmatch(secret) is not None
    return alternating > 0 and (is_hexadecimal or alternating + unlikely >= MIN_ALTERNATIONS)


_ALTERNATION = re.compile("(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
# The parts of camelCase: `total` `Price`, `HTTP` `Response`, `Event` `V2`. The parts of words have
# more than four characters on average, the parts of random text fewer than two.
_PIECE = re.compile("[A-Z]?[a-z]+|(?<![A-Z])[A-Z][0-9]+(?![0-9a-z])|[A-Z]+(?![a-z])|[0-9]+")
# Letter pairs found in under 0.1 % of the words of prose and code. Pairs of dummies (`xxxx`,
# `abcdefgh`) and of `proxy`, `PKCS` and `IPv6` are left out.
_UNLIKELY = re.compile(
    "(?=a[joq]|b[ghkqvwxz]|c[bgjqwxz]|d[jkqxz]|f[bhjkqvwxz]|g[bjkqvwxz]|h[bcfgjkqvwxz]|i[hqwy]"
    "|j[bcdfghlmnpqrtvwxyz]|k[bdfjmpqvxz]|l[hjqwxz]|m[fghjkqvwxz]|n[qxz]|o[qz]|p[bjxz]"
    "|q[abcdefghijkmnopstvwxyz]|r[hjqxz]|s[jxz]|t[jq]|u[hjqwyz]|v[bdfghjklmnpqrtuxyz]"
    "|w[bfgjkmpqtuvyz]|x[bfghjknoqruvwz]|y[fghjkquvwx]|z[bcdfghjklmnpqrstuvwxy])",
    re.IGNORECASE,
)
_HEXADECIMAL = re.compile("[0-9a-f]+|[0-9A-F]+")
# Such as Mailgun's key-..., Mailchimp's ...-us12 and Plaid's access-production-...
_DIGEST = re.compile(
    f"(?<![0-9a-f])[0-9a-f]{{32,}}(?![0-9a-f])|access-[a-z]+-{UUID}"
    r"|\A(?:key|django-insecure)-[A-Za-z0-9]{24,}\Z"
)
_PUBLIC = re.compile("AAAA[BCE]3Nza")  # the start of a public SSH key


REACH = 160  # characters of lookbehind before a name


def is_preceded_by(match: re.Match[str], pattern: re.Pattern[str]) -> bool:
    """Whether the pattern matches just before this match (a bounded lookbehind)."""
    start = match.start()
    return pattern.search(match.string, max(0, start - REACH), start) is not None


def is_literal(match: re.Match[str]) -> bool:
    """Whether the value is a literal: quoted, right after its operator, or alone in its line."""
    if match["between"].strip() in ("(", "|"):
        return False
    if match["quote"] is not None:
        return True
    if match.string[match.end("secret") : match.end("secret") + 1] in (",", ")", "]"):
        return _is_pair(match)
    if match["between"] in ("=", ":-", ">") or "value" in match["between"].lower():
        return True
    return match["between"].isspace() or is_alone(match)


def _is_pair(match: re.Match[str]) -> bool:
    """Whether the value is one of several `A=b,C=d` variables, or in a line of such pairs."""
    if match["between"] != "=":
        return False
    text, end = match.string, match.end("secret")
    if match["name"].isupper():
        return _PAIR.match(text, end) is not None
    pairs = _PAIRS.match(text, end)
    is_line = pairs is not None and _LINE_END.match(text, pairs.end()) is not None
    return is_line and is_preceded_by(match, _LINE_BEGIN)


def is_alone(match: re.Match[str]) -> bool:
    """Whether the assignment is alone in its line, except for a comment."""
    ends_line = _LINE_END.match(match.string, match.end()) is not None
    return ends_line and is_preceded_by(match, _LINE_BEGIN)


def is_text(match: re.Match[str]) -> bool:
    """Whether the value cannot be code: in quotes, after capitals, after `=` without spaces."""
    if match["quote"] not in (None, "`"):
        return True
    after = match.string[match.end("secret") : match.end("secret") + 1]
    if after in (",", ")", "]"):
        return _is_pair(match)
    is_plain = is_literal(match) and not is_spaced(match) and after != ";"
    return match["name"].isupper() or is_plain


def is_spaced(match: re.Match[str]) -> bool:
    """Whether the assignment has the form `name = value`, as in code."""
    return "=" in match["between"] and match["between"] != "="


_LINE_BEGIN = re.compile(
    r"(?:^|[\r\n]|\\n|\x1b\[\d{0,2}m)[ \t>|#+*/0-9.)-]{0,40}"
    r"(?:(?:export|set|env|arg|setx?|let|const|var|readonly|local|-e|--env)[ \t])?"
    r"""\\{0,3}["'`]?[\w.$:-]{0,80}\Z""",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"""\\{0,3}["'`]?[ \t]*(?:$|[\r\n]|\\{1,2}[nr\r\n]|\x1b\[|[ \t](?:#|//))""")
_PAIR = re.compile(r",[A-Z_][A-Z0-9_]*=")
_PAIRS = re.compile(r"""(?:, ?[\w.-]{1,32}=[^\s,()\[\]"'`;\\]{1,64}){1,8}""")


MARK = "[REDACTED:"
PLACEHOLDER = re.escape(MARK) + r"[A-Za-z0-9._-]++\]"  # in place of a secret, with its kind or id
SHORTEST, LONGEST = 8, 256  # characters of a password
LONGEST_WORD = 20  # characters before a name in which a word can make it harmless


def has_secret_name(match: re.Match[str]) -> bool:
    """Whether the value is random and has the name of a secret (not `public_key`, `page_token`)."""
    prefix = match.string[max(0, match.start() - LONGEST_WORD) : match.start()]
    before = prefix.rstrip(" _-").lower()
    return (
        is_random(match["secret"])
        and not before.endswith(_NO_SECRETS.get(match["name"].lower(), ()))
        and not (_SHORT_HASH.fullmatch(match["secret"]) and not prefix.endswith(("_", "-")))
        and not (before.endswith("signing") and _FINGERPRINT.fullmatch(match["secret"]))
        and (match["option"] is None or is_preceded_by(match, _OPTION))
        and (match["next"] is None or _is_argument(match))
    )


def is_reference(value: str) -> bool:
    """Whether the value is a reference to another value, or a dummy."""
    return _REFERENCE.match(value) is not None or _DUMMY_VALUE.fullmatch(value) is not None


def is_assigned(match: re.Match[str]) -> bool:
    """Whether the text between the name and the value makes it an assignment."""
    between, is_quoted = match["between"].strip(), match["quote"] is not None
    match between:
        case "":  # or SQL: `WITH PASSWORD '...'`, `IDENTIFIED BY '...'`
            name = match["name"].lower()
            is_sql = match["quote"] == "'" and name in ("password", "identified by")
            return is_sql or is_preceded_by(match, _OPTION)
        case ",":
            return is_quoted and _is_argument(match)
        case "||" | "??" | "or" | "(":
            return is_quoted
        case ">":
            is_closed = match.string.startswith("</", match.end("secret"))
            return is_closed and is_preceded_by(match, _OPENING)
        case _:
            return True


def _is_argument(match: re.Match[str]) -> bool:
    """Whether the value is a getter's default, or the next item of an argument list."""
    return is_preceded_by(match, _GETTER) or is_preceded_by(match, _ITEM)


def is_secret(match: re.Match[str]) -> bool:
    """Whether the value is a secret, not code, a reference, a dummy or a plain word.

    If the name is in capitals, as of an environment variable, a plain word counts as a secret.
    """
    value = re.sub(PLACEHOLDER, "", match["secret"])
    if not SHORTEST <= len(value) <= LONGEST or is_reference(value):
        return False
    is_call = match["quote"] in (None, "`") and _CALL.match(value) is not None
    if is_call and not (_OPEN.search(value) and is_alone(match)):
        return False
    if any(char.isspace() for char in value):
        words = (word.strip("()[].,:") for word in value.split())
        return any(map(_is_complex, words)) or _APP_PASSWORD.fullmatch(value) is not None
    if _is_outcome(match):
        return _is_complex(value) and _NUMBER.fullmatch(value) is None
    if _WORDS.fullmatch(value):
        may_be_password = _NO_PASSWORD.search(value) is None and not _is_resource(match, value)
        return may_be_password and _is_variable(match, value)
    return not _is_name(match, value) and (is_literal(match) or _is_complex(value))


def _is_outcome(match: re.Match[str]) -> bool:
    """Whether the name is `pass` as in a test's result, without a user name before it."""
    is_pass = match["name"].lower().rstrip("_0123456789") == "pass"
    return is_pass and not is_preceded_by(match, _WORD_BEFORE) and not is_preceded_by(match, _USER)


def _is_variable(match: re.Match[str], value: str) -> bool:
    """Whether a word is a password because its name is in capitals, or it is alone in its line."""
    if "." in value.rstrip("."):
        is_line = match["between"] == "=" and is_alone(match)
        is_variable = match["quote"] is None and match["name"].isupper() and not is_spaced(match)
        return (is_line or (is_variable and is_text(match))) and not _IN_CODE.search(value)
    is_lower = _LOWER.fullmatch(match["secret"]) is not None
    if match["name"].isupper():
        return is_lower or match["quote"] is None
    return is_lower and match["between"] == "=" and is_alone(match)


def _is_name(match: re.Match[str], value: str) -> bool:
    """Whether the value is the name of a variable, a file or a resource, maybe with digits.

    Where the value cannot be code, mixed case, a dot or `#` rule out a name.
    """
    if _is_resource(match, value):
        return not (match["name"].isupper() and re.fullmatch(UUID, value))
    is_bare = match["quote"] is None and not match["name"].isupper()
    if is_bare and value.isidentifier() and _MENTION.search(value):
        return True
    is_dotted = match["quote"] in (None, "`") and _DOTTED.match(value) is not None
    if not is_dotted and _NAME.fullmatch(value) is None:
        return False
    if _IN_CODE.search(value) or not (_is_complex(value) or is_text(match)):
        return True
    if value not in (value.lower(), value.upper()):
        return False
    return _ONE_CASE.fullmatch(value) is None or (is_bare and value.isidentifier())


def _is_resource(match: re.Match[str], value: str) -> bool:
    """Whether the value is the resource name of a secret, as in Kubernetes."""
    is_secret = match["name"][:6].lower() == "secret" and _RESOURCE.fullmatch(value) is not None
    return is_secret and not (match["name"].isupper() and "." in value)


def _is_complex(value: str) -> bool:
    """Whether letters, digits and punctuation are mixed as in a password: `S3cr3tP@ss!`."""
    if _MAIL.fullmatch(value) or len(value) < SHORTEST:
        return False
    has_punctuation = _PUNCTUATION.search(value) is not None
    has_digit = any(char.isdigit() for char in value)
    is_mixed = has_digit or value not in (value.lower(), value.upper())
    return (has_punctuation and is_mixed) or alternations(value) >= MIN_ALTERNATIONS


_FINGERPRINT = re.compile("[0-9A-F]{40}")  # of a GPG key
_SHORT_HASH = re.compile("[0-9a-f]{16,19}")  # of a .NET assembly, or a commit
_NO_SECRETS = {
    "token": tuple(
        """
        csrf xsrf forgery middleware verification page next forward backward starting continuation
        cursor sync client idempotency request unit resume cancellation
        """.split()
    ),
    "key": tuple(
        """
        public pub publishable site host verify verification verifying primary foreign natural
        composite unique candidate surrogate cache topic sort partition shard index hash group
        lookup object file blob s3 asset image folder document doc node row record column item
        entity content message event issue idempotency dedup dedupe deduplication routing query
        registry project version translation state restore metric config lock parent map mon gpg
        pgp recv apt authorized
        """.split()
    ),
}

_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|(?:(?<![a-z])|(?<=require)|(?<=\\[nrt]))pass"
    r"|(?-i:(?<=[a-z])Pass)|pwd|secret(?:[_-]?(?:key(?:[_-]?base)?|token))?)(?:_?\d{1,2})?"
    r"|identified by"
)
TYPE = r"(?:[ \t]?:[ \t]?[&\w.\[\]]{2,32}(?:[ \t]\|[ \t]None)?)"
VALUE_OF = (
    r"""[ \t]{0,4}[,;]?[\s>+#*/-]{0,60}\\{0,3}["']?(?:parameter)?value\\{0,3}["']?[ \t]{0,20}[:=]"""
)
_OPERATOR = r"(?:=>|:=|\?=|=(?![=~])|:(?![:=-])|\uff1a)(?:\*\*)?"
_BLOCK = r"[ \t]{1,4}[|>][+-]?[ \t]{0,4}(?:\r\n?|\n)[ \t>|#+*/-]{1,40}"
_WRAPPER = r"(?:secretstr(?:ing)?\(|(?:convertto-)?securestring[( ](?:-string )?)"
# Scripts that are written without spaces.
_CJK = r"[\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]"
# The end of a value without quotes.
_END = rf"""[.,;:)\]}}>|\\]{{0,4}}(?:[\s"'`\x1b]|$|{_CJK})|</|\\[nrt]|[&,;]\s?[\w. ]{{1,31}}[=:]"""
_BARE = rf"""(?>(?:{PLACEHOLDER}|(?!{_END})[^\s"'`\x00-\x1f]){{{SHORTEST},}})"""
_QUOTED = rf"(?>(?:(?!(?P=quote))(?:\\[^\r\n]|[^\r\n\\])){{{SHORTEST},{LONGEST}}})(?=(?P=quote))"
ASSIGNMENT = (
    rf"(?P<name>{_NAMES})"
    rf"(?:\\{{0,3}}[\"'`])?[\])]{{0,2}}(?:\*\*)?"
    rf"(?P<between>=(?!=)|:-|>|{VALUE_OF}[ \t]{{0,8}}"
    rf"|(?:{TYPE}[ \t]{{0,4}}=(?![=~])|[ \t]{{0,40}}{_OPERATOR})(?:{_BLOCK}|[ \t]{{0,40}})"
    r"|[ \t]{0,4}(?:,|\|\||\?\?|or)[ \t]{1,4}|,|[ \t]{1,40}\|[ \t]{1,40}|\([ \t]?|[ \t]{1,4})"
    rf"(?:{_WRAPPER}?[rbuf@]{{0,2}}(?=[\"']))?(?P<quote>\\{{0,3}}[\"'`])?(?P<secret>(?(quote)(?:{_QUOTED})|(?:{_BARE})))"
)

_OPTION = re.compile(r"(?<![\w-])(?:--[\w.-]*|require|(?:env|setx?) [\w.-]*)\Z", re.IGNORECASE)
_GETTER = re.compile(
    r"""(?:env\w*|get|fetch|config|getOrDefault|define)\(\s?\\{0,3}["'][\w.-]*\Z""", re.IGNORECASE
)
_ITEM = re.compile(r"""["']--[\w.-]*\Z""")  # an item of an argument list
_WORD_BEFORE = re.compile(r"(?<!\\)\w[.-]?\Z")
_USER = re.compile(
    r"""(?:user(?:name)?|login)\\{0,3}["']?\s?[=:]\s?\\{0,3}["']?[^\s"',;]{1,64}["']?"""
    r"""[\s,;&]{1,3}\\{0,3}["']?\Z""",
    re.IGNORECASE,
)
_OPENING = re.compile(r"<[\w:.-]*\Z")
_REFERENCE = re.compile(
    r"\$[({]|\$[A-Za-z_]\w*(?:[/.:\\\]]|\Z)|\$\w{1,20}\$|.*(?:\$[({]|\{\{|<%|#\{|%\(|\(\?)"
    r"|\{[A-Za-z_. -]*\}|<[^<>]*>|%\w+%|\[|\^|__\w+__\Z"
    r"|(?:\.{0,2}|~|%\w+%|[A-Za-z]:)[/\\]|[A-Za-z][A-Za-z0-9+.-]*://"
    r"|[+.,) ].*[+.,( ]\Z|[,);]|<[\w -]*\Z|\d+(?:\.\d+)+\Z"
    r"|[@:][A-Za-z_]+\Z|@Microsoft\.|[*&!][A-Za-z_.:-]+\d{0,3}\Z|ENC[\[(]"
    r"|(?:vault|op|env|file|ssm|sm|arn|ref|secrets?|secretref|aws|gcp|azure|kv|keyring|sops)[:+]"
    r"|(?:\{?(?:sha|ssha|md5|bcrypt|cipher|pbkdf2|scrypt|argon2\w*)[\w-]{0,16}[:}$])",
    re.IGNORECASE,
)
_IDENTIFIER = r"[&*!-]?[A-Za-z_$][\w$]*"
_MEMBER = r"(?:(?:\.|::|->|[?!]\.)[A-Za-z_$][\w$]*)"
# A call, an index or a type that no letter follows; or the start of one.
_CALL = re.compile(rf"{_IDENTIFIER}{_MEMBER}*(?:->)?[(\[{{<](?!.*[)\]}}][^\W_])|[(\[{{|&]|=|--")
# An unclosed bracket with text after it; in code, it is closed or ends its line.
_OPEN = re.compile(r"[(\[{][^()\[\]{}]+\Z")
_DOTTED = re.compile(rf"{_IDENTIFIER}{_MEMBER}+\W{{0,3}}\Z")
_FILLERS = """
    my your our the a an some any new old here in of for is be to or not no super very top pass
    word changeme changeit changethis change replaceme replace insert enter fill put set add use me
    it this that password passwd passphrase pwd secret secrets token tokens key keys credential
    credentials example sample placeholder dummy fake mock test testing todo fixme tbd foo bar baz
    qux default postgres postgresql mysql mariadb mongo mongodb redis rabbit rabbitmq minio guest
    root admin administrator user username prod production dev development local localhost staging
    redacted hidden masked none null nil undefined empty unset required optional nullable string
    text varchar true false unknown missing value random strong secure generate generated min max
    length char chars character characters long safe db database app api auth jwt client server
    from env base64 utf8 bcrypt scrypt argon2 argon2i argon2d argon2id pbkdf2 sha1 sha-256 sha-384
    sha-512 passwort kennwort sha256 sha384 sha512 md5 hs256 int8 int16 int32 int64 uint8 uint32
    uint64 byte bytes bytes32 array float32 float64
""".split()
_FILLER = "|".join(sorted(_FILLERS, key=len, reverse=True))
_DUMMY_VALUE = re.compile(
    rf"[<\[({{]?(?>(?:(?:{_FILLER})[-_. /|]{{0,3}})+)(?:1(?:2(?:3\d*)?)?)?[!.*>\])}}]?"
    r"|[x*.\-_0?#\u2026\u2022]{8,}|(.)\1*",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[^\W\d_]+(?:[-_./:|\\'\u2019,&]{1,2}[^\W\d_]+)*[-_.!?:]{0,3}")
_LOWER = re.compile("[a-z]+(?:-[a-z]+)*")
_NO_PASSWORD = re.compile(
    r"[A-Z]+(?:_[A-Z]+)+\Z|passw|pwd|secret|token|credential"
    r"|[/:|\\,&?!'\u2019]|[a-z]{3}ed\Z|(?<=[a-z])[A-Z](?=[a-z])"
)
_APP_PASSWORD = re.compile("[a-z]{4}(?: [a-z]{4}){3}")  # as Google shows it
_NAME = re.compile(
    r"(?:[A-Za-z]+\d{0,3}|\d{1,4})(?:[_./:#|\\](?:[A-Za-z]+\d{0,3}|\d{1,4}))+[-_./]?"
)
_RESOURCE = re.compile("[a-z0-9]+(?:[-_./][a-z0-9]+)+")
# Words in capitals joined by underscores are the name of a constant.
_ONE_CASE = re.compile(r"[a-z0-9]+(?:[._#][a-z0-9]+)+|[A-Z0-9]+(?:[.#][A-Z0-9]+)+")
_MENTION = re.compile("passw|passphrase|pwd|secret|token|credential", re.IGNORECASE)
# Parts of a name in code: the words that it mentions, its first word, its suffix.
_IN_CODE = re.compile(
    rf"{_MENTION.pattern}|::|->|\\|\A\W?(?:args|cfg|cls|com|conf|config\w*|context|ctx|data|each"
    r"|env|environ|event|form|input|local|model|module|options|opts|org|os|params|payload|process"
    r"|props|req|request|response|result|row|self|settings|state|this|user|var)\."
    r"|\.(?:com|conf|crt|html?|io|jks|js|json|key|md|net|org|p12|pem|pfx|py|sh|toml|ts|txt|xml"
    r"|ya?ml)\Z",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[\d.,/]+%?")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PUNCTUATION = re.compile(r"""[!@#$%^&*?+=~;{}()\[\]\\]""")
