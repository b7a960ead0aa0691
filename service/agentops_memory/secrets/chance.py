"""Text that looks random, as tokens do, and is not made of words."""

import re

MIN_ALTERNATIONS = 3  # from a letter to a digit or back; words with a version have fewer
SHORTEST = 16  # characters of a token; in fewer, only alternations are a sign of chance
LONGEST = 256  # characters of a token in which the other signs are counted: more tell no more
LONGEST_PIECE = 3  # characters, on average, of a piece of random text in mixed case
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def alternations(text: str) -> int:
    """How often a letter follows a digit, or a digit a letter."""
    return len(_ALTERNATION.findall(text))


def is_random(secret: str) -> bool:
    """Whether letters, digits and cases alternate as in random text; with signs, in mixed case.

    False for paths, resource names, camelCase, UUIDs and public keys of SSH.
    """
    is_mixed = secret != secret.lower() and secret != secret.upper()
    if _PUBLIC.match(secret) or not (secret.isalnum() or is_mixed or _DIGEST.search(secret)):
        return False
    alternating = alternations(secret)
    if alternating >= MIN_ALTERNATIONS or len(secret) < SHORTEST:
        return alternating >= MIN_ALTERNATIONS
    start = secret[:LONGEST]
    pieces = _PIECE.findall(start)
    unlikely = len(_UNLIKELY.findall(" ".join(pieces)))
    if is_mixed and (len(pieces) + unlikely) * LONGEST_PIECE > len(start):
        return True
    is_hexadecimal = _HEXADECIMAL.fullmatch(secret) is not None
    return alternating > 0 and (is_hexadecimal or alternating + unlikely >= MIN_ALTERNATIONS)


_ALTERNATION = re.compile("(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
# The parts of camelCase: `total` `Price`, `HTTP` `Response`, `Event` `V2`. Those of words have
# more than four characters on average, those of random text fewer than two.
_PIECE = re.compile("[A-Z]?[a-z]+|(?<![A-Z])[A-Z][0-9]+(?![0-9a-z])|[A-Z]+(?![a-z])|[0-9]+")
# Pairs of letters that fewer than one in a thousand words of prose and code has. Not those of
# `xxxx` and `abcdefgh`, which stand for a token, nor those of `proxy`, `PKCS` and `IPv6`.
_UNLIKELY = re.compile(
    "(?=a[joq]|b[ghkqvwxz]|c[bgjqwxz]|d[jkqxz]|f[bhjkqvwxz]|g[bjkqvwxz]|h[bcfgjkqvwxz]|i[hqwy]"
    "|j[bcdfghlmnpqrtvwxyz]|k[bdfjmpqvxz]|l[hjqwxz]|m[fghjkqvwxz]|n[qxz]|o[qz]|p[bjxz]"
    "|q[abcdefghijkmnopstvwxyz]|r[hjqxz]|s[jxz]|t[jq]|u[hjqwyz]|v[bdfghjklmnpqrtuxyz]"
    "|w[bfgjkmpqtuvyz]|x[bfghjknoqruvwz]|y[fghjkquvwx]|z[bcdfghjklmnpqrstuvwxy])",
    re.IGNORECASE,
)
_HEXADECIMAL = re.compile("[0-9a-f]+|[0-9A-F]+")
# As in Mailgun's key-..., Mailchimp's ...-us12 and Plaid's access-production-...
_DIGEST = re.compile(
    f"(?<![0-9a-f])[0-9a-f]{{32,}}(?![0-9a-f])|access-[a-z]+-{UUID}"
    r"|\A(?:key|django-insecure)-[A-Za-z0-9]{24,}\Z"
)
_PUBLIC = re.compile("AAAA[BCE]3Nza")  # a key of SSH
