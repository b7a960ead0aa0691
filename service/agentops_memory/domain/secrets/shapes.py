"""Secrets recognized by their shape: tokens, private keys, and labelled values.

Precision goes before recall: a shape is one that ordinary text does not have. What only
looks random (a hash, an identifier, an image) is not a secret, nor is a placeholder
(`$PASSWORD`, `<token>`, `xxxxxxxx`).
"""

import re
from collections.abc import Iterator
from itertools import chain

from .assignments import LONGEST
from .labels import LABELS, PASSWORD
from .tokens import MIN_ALTERNATIONS, SecretSpan, alternations, tokens

SHAPES = {
    "age-key": "secret keys of age (AGE-SECRET-KEY-1...)",
    "anthropic-key": "keys of Anthropic (sk-ant-...)",
    "authorization": "credentials in a header (Bearer, Basic, Token ...); auth of Docker, npm",
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
    "labelled-secret": "random characters beside a label that ends in key, token, secret, password",
    "memory-key": "keys of this service (amk_...)",
    "npm-token": "tokens of npm (npm_...), and what follows :_authToken=",
    "openai-key": "keys of OpenAI, and of those who took over their form (sk-..., sk-proj-...)",
    "password": "the value of a name such as DB_PASSWORD, CLIENT_SECRET; mysql -p, sshpass",
    "private-key": "private keys in PEM or PGP armor, closed or cut off, in base64, as JWK",
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
"""Every kind of shape, with its description."""

BLANK = 8  # repeated characters at the end of a masked value


def secrets(text: str) -> Iterator[SecretSpan]:
    """The spans of everything that has the shape of a secret; they may overlap.

    Takes linear time.
    """
    raw = text.encode("latin-1", "replace")
    lowered = raw.lower()
    found = chain(
        tokens(text, raw),
        _labelled(text, lowered),
        _private_keys(text),
        _web_keys(text, lowered),
        _data_sources(text),
    )
    return (span for span in found if not _is_placeholder(text[span.start : span.end]))


def _labelled(text: str, lowered: bytes) -> Iterator[SecretSpan]:
    """Labelled secrets: each label is tried only where its keyword occurs.

    `lowered` is the lower-case text in Latin-1, a byte for each character.
    """
    for word, labels in LABELS.items():
        at = lowered.find(word)
        while at >= 0:
            next_at = at + 1
            for label in labels:
                found = label.pattern.match(text, at)
                if not found:
                    continue
                start, end = found.span("secret")
                if label.holds(found):
                    yield SecretSpan(start, end, label.kind)
                    next_at = max(next_at, end)
                elif label is PASSWORD and end - start > LONGEST:  # else quadratic time
                    next_at = max(next_at, end)
            at = lowered.find(word, next_at)


def _private_keys(text: str) -> Iterator[SecretSpan]:
    """Armored private keys, up to their END line, or as far as the armor goes without one."""
    if "PRIVATE KEY" not in text:
        return
    for begin in _KEY_BEGIN.finditer(text):
        dashes = text.find("-----", begin.end())
        end = _KEY_END.match(text, dashes) if dashes >= 0 else None
        if end and _KEY_LINE.search(text, begin.end(), dashes):
            yield SecretSpan(begin.start(), end.end(), "private-key")
        elif not end and (rest := _KEY_REST.match(text, begin.end())):
            yield SecretSpan(begin.start(), rest.end(), "private-key")


def _web_keys(text: str, lowered: bytes) -> Iterator[SecretSpan]:
    """The private members of JSON Web Keys."""
    if b'"kty' in lowered:
        for found in _WEB_KEY.finditer(text):
            yield SecretSpan(*found.span("secret"), "private-key")


def _data_sources(text: str) -> Iterator[SecretSpan]:
    """The password in user:...@tcp(host), a data source name of Go."""
    if "@tcp(" in text:
        for found in _DATA_SOURCE.finditer(text):
            yield SecretSpan(*found.span("secret"), "connection-password")


def _is_placeholder(secret: str) -> bool:
    """Whether this is a variable, a mask or a placeholder in place of a secret."""
    return _is_masked(secret) or _STAND_IN.fullmatch(secret) is not None


def _is_masked(secret: str) -> bool:
    """Whether this is at most a prefix, and then one repeated character."""
    end = secret[-BLANK:]
    if len(end) < BLANK or end[0] not in "xX*.0" or end != end[0] * BLANK:
        return False
    return alternations(secret.rstrip(end[0])) <= MIN_ALTERNATIONS


_STAND_IN = re.compile(
    r"\$\([^()]*\)|\$\{[^{}]*\}|\$[A-Z_][A-Z0-9_]*|\$[a-z_]+"  # shell
    r"""|\{+[A-Za-z_ .()\[\]'":!|-]*\}+|\{\d\}"""  # templates
    r"|<[^<>]*>|%[A-Za-z_]+%|%s|%\([A-Za-z_]+\)s"
    r"|x+|X+|\*+|\.+|-+|_+|\u2026+|\u2022+"
    r"|REDACTED|(?:\[REDACTED:[A-Za-z0-9._-]+\])+"
)
_KEY_BEGIN = re.compile("-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile("-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile("[A-Za-z0-9+/=]{16}")
_KEY_REST = re.compile(
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
