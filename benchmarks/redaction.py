"""`python -m benchmarks.redaction`: what redaction costs, and that it is linear."""

import base64
import random
import sys
import time
from itertools import islice

from agentops_memory.secrets.redaction import DEFAULT_RULES, Rules

from . import corpus

SIZE = 250_000  # characters, and then twice as many
LONG = 2_000_000  # characters of an ordinary text
ROUNDS = 3
TRIES = 6  # a ratio that is too high by chance is measured again
MOST = 2.2  # times the time for twice the text
VALUES = 200

DASHES = "-----"
KEY = f"{DASHES}BEGIN PRIVATE KEY{DASHES}"
# What is repeated as often as it fits.
HOSTILE = (
    "<private>", "</private>", "<private></private>", "<", "< ", "<private",
    "AKIA", "AIza", "SK", "dapi", "eyJ", "eyJ.", "eyJ-", "eyJaaaaaaaaaa.", "eyJaaaaaaaaaa-",
    ".eyJaaaaaaaaaa", "eyJaaaaaaaaaa.eyJaaaaaaaaaa.", "ghp_", "github_pat_", "glpat-", "npm_",
    "pypi-AgE", "xoxb-", "xoxd-", "xapp-1-", "sk-", "sk-ant-", "sk-proj-", "sk_live_", "whsec_",
    "sntrys_", "glc_eyJ", "SG.", "SG.aaaaaaaaaaaaaaaa", "hvs.", "hf_", "dp.st.", "amk_aaaaaaaa_",
    "ATATT3", "MTIz", "MTIzMTIzMTIzMTIzMTIz.",
    f"{DASHES}BEGIN ", KEY, f"{DASHES}END PRIVATE KEY{DASHES}", f"{KEY}\nName: x\n", f"{KEY}a: b",
    f"{KEY}aaaaaaaaaaaaaaaa ",
    "://", "://a", "://a:", "://a:b", "://u:p@", "a:b@", "@", "://[REDACTED:a]", "[REDACTED:a]",
    "Bearer ", "Bearer a", "Authorization: ", "Authorization: Bearer ", "bearer%20aaaaaaaaaaaaaaaa",
    "password=", ";password=", "?password=", "&password=a", "password={", "password='", "pwd=a;b ",
    "secret=", "secret:a1", "api_key: ", "api_key=a1b2c3d4", "access_token", "AccountKey=",
    "secret_access_key=", "session_token=a", "&sig=", "&sig=a", "12345678:AA",
    "token=", "token=a1", "page_token=", "--token ", "--api-key a1", "**API key:** ", "_authToken=",
    '"auth":"', '"auth":"YTph', "LS0tLS1CRUdJTi", "LS0tLS1CRUdJTiBQUklWQVRFIEtF", "~", "1Q~a",
    "curl ", "curl -u a:", "curl -u a", "password=a host=", "host=a password=", "password==",
    "?password==", "; password = a", ";password=$(", "machine ", "machine a login b password ",
    "secret access key ", "postgres://a:", "postgres://a:/", "a:b@tcp(", "a:@tcp(", "AZDO", "1//0",
    "ABSK", "ATBB", "ATCTT3", "fm2_", "nvapi-", "pat-na1-", "snyk_uat.", "a<Private>",
    "hooks.slack.com/services/", "/api/webhooks/123456789012345678/", "/webhookb2/",
    "mysql -p", "mysql -pa ", "sshpass -p", " login -p a", "redis-cli ", "redis-cli -a ", "a_key=",
    "a_key=a1", "secret", "pass", "pwd", "password=a(", "password=a1", "password: a1 ", "PASS=my",
    'password="', 'password="a1', "password='a\\", "password =", "password:\n ", "PASSWORD=a.b",
    "password: |\n ", "PASSWORD value=", "name: PASSWORD\n", "secret(", "SECRET=a,", "PASS=a;b",
    "PASSWORD=a(a", "PASSWORD=a.b#c ", "API_KEY=aBcDeFgHiJkLmNoP ", "api_key=jqvxzjqvxzjqvxz1 ",
    "--password ", "getenv('PASSWORD', ", '"kty":"d":"', "authorization: a ", "identified by '",
    "a", "A", "0", " ", "\n", "\t", ".", "-", "_", "/", "+", "=", "\\", "'", '"', ":", ";", "%",
    "{", "aB3", "aB3+/", "a1-", "a_", "A.b", "\\n", "é", "数", "😀",
)  # fmt: skip

# What stands before and after something repeated.
FRAMED = (
    ("", "eyJ-", ".eyJaaaaaa.aaaaaaaaaaa"), ("", "-eyJ", ".eyJaaaaaa.!"),
    ("eyJaaaaaaaaaa.eyJ", "-", ""), ("eyJaaaaaaaaaa.", "eyJaa.", "!"),
    ("ghp_", "a", ""), ("sk-", "a", ""), ("SG.", "a", ".!"), ("xoxb-", "-", ""),
    ("whsec_", "a", "!"), ("://", "a", ""), ("://a:", "a", ""), ("://a:", "a@", "!"),
    ("://", "a:", "!"), ("://a:", "@", ""), ("://[REDACTED:", "a", "]:"), ("[REDACTED:", "a", "]"),
    ("Bearer ", ".", ""), ("Bearer a", "-", "!"), ("Bearer ", "a1", ""),
    ("Authorization: Bearer a", "~", "!"), ("api_key=", "a", "("), ("api_key=", "a1", "("),
    ("AccountKey=", "a", ""), (";Password=", "x", ""), ("Password=", "a", ""),
    ("Password='", "a", ""), ("<", " ", ""), ("<", " ", "private>"), ("<private", " ", ""),
    (KEY, "a", ""), (KEY, " ", "a"), (KEY, "aaaaaaaaaaaaaaaa ", ""), (KEY, "\nName: x", ""),
    (KEY, "a: ", ""), ("LS0tLS1CRUdJTiBQUklWQVRFIEtF", "a", "!"), ("curl ", "-", ""),
    ("postgres://a:", "/", ""), ("a:", "b", "@tcp("), ('"auth":"', "a", '"'), ("token=", "a", "("),
    ("; password = ", "a", "("), ("password=", "a", "("), ("password=", "a1", ""),
    ("password=", "a.", ""), ("password='", "a1", ""), ("password: ", " ", ""),
    ("PASSWORD", " ", "value=a"), ("password=", "[REDACTED:a]", ""), ("PASSWORD=", "my", "!"),
    ("password=", ")", "a"), ("password=", ";a", "="), ("mysql ", "a ", "-pa"),
    (":_authToken=", "a", "!"), ("password=", "a(", ""), ("PASSWORD=", "a.b", ""),
    ("api_key=", "aB", ""), ("api_key=", "jq", "1"),
)  # fmt: skip


def main() -> None:
    """Print the rate of ordinary texts, then the time and the growth of hostile ones."""
    print(f"{'ordinary text':44} {'characters':>11} {'ms':>9} {'MB/s':>7}")
    for name, text, rules in _ordinary():
        _print(name, len(text), _seconds(rules, text))
    print(f"\n{'hostile text':44} {'characters':>11} {'ms':>9} {'MB/s':>7} {'growth':>7}")
    texts = [*(("", part, "") for part in HOSTILE), *FRAMED]
    slow = [text for text in texts if _growth(*text, DEFAULT_RULES) > MOST]
    for value in ("a" * 8, "ab" * 50, "a" * 8192, "ab" * 4096, "a" * 4000 + "b" + "a" * 4000):
        rules = Rules(values=(("x", value),))
        slow += [("", part, "") for part in ("a", "ab") if _growth("", part, "", rules) > MOST]
    if slow:
        sys.exit(f"More than {MOST} times the time for twice the text: {slow}")


def _ordinary() -> list[tuple[str, str, Rules]]:
    chance = random.Random(1)  # noqa: S311 - a fixed text, not a secret
    noise = chance.randbytes(LONG)
    prose, code = _prose(), _code()
    values = tuple((str(n), base64.b64encode(chance.randbytes(24)).decode()) for n in range(VALUES))
    return [
        ("prose", prose, DEFAULT_RULES),
        ("prose of 50,000 characters", prose[:50_000], DEFAULT_RULES),
        ("a title of 60 characters", prose[:60], DEFAULT_RULES),
        ("code", code, Rules(allowed=frozenset({"pass"}))),  # its one secret, of an example
        ("base64", base64.b64encode(noise).decode()[:LONG], DEFAULT_RULES),
        ("base64 for addresses", base64.urlsafe_b64encode(noise).decode()[:LONG], DEFAULT_RULES),
        ("hexadecimal", noise.hex()[:LONG], DEFAULT_RULES),
        ("Chinese", ("数据库连接池在高峰时耗尽了。" * (LONG // 10))[:LONG], DEFAULT_RULES),
        ("prose with a secret a thousand", _with_secrets(prose), DEFAULT_RULES),
        (f"prose, {VALUES} registered values", prose, Rules(values=values)),
    ]


def _prose() -> str:
    return " ".join(corpus.prompts(1, LONG // 400))[:LONG]


def _code() -> str:
    pieces = islice(corpus.pieces(1), LONG // 200)
    return "\n".join(piece.content for piece in pieces)[:LONG]


def _with_secrets(text: str) -> str:
    token = "gh" + "p_" + "q7Rw2Zk9Lm4Xc8Vb3Nt6" * 2
    return f" {token} ".join(text[at : at + 1000] for at in range(0, len(text), 1000))


def _growth(before: str, part: str, after: str, rules: Rules) -> float:
    """How many times longer twice the text takes."""
    single, double = (before + part * (size // len(part)) + after for size in (SIZE, 2 * SIZE))
    once, twice = _seconds(rules, single), _seconds(rules, double)
    for _ in range(TRIES):
        if twice / once <= MOST:
            break
        once, twice = min(once, _seconds(rules, single)), min(twice, _seconds(rules, double))
    name = f"{before} {part} {after}".strip() if before or after else part
    _print(repr(name), len(double), twice, f"{twice / once:7.2f}")
    return twice / once


def _print(name: str, characters: int, seconds: float, growth: str = "") -> None:
    rate = characters / seconds / 1e6
    print(f"{name:44} {characters:11,} {seconds * 1e3:9.3f} {rate:7.1f} {growth}".rstrip())


def _seconds(rules: Rules, text: str) -> float:
    """What the text takes, in the best of some rounds."""
    return min(_round(rules, text) for _ in range(ROUNDS))


def _round(rules: Rules, text: str) -> float:
    began = time.process_time()
    rules.redacted(text)
    return time.process_time() - began


if __name__ == "__main__":
    main()
