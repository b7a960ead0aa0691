"""Public ids: a prefix that tells the kind, and the stable id in hexadecimal."""

import re

from ..errors import NotFound
from ..recall.text.ids import dashed

STORE, ENTRY, VERSION, EVENT = "memstore", "mem", "memver", "evt"

_HEX = re.compile("[0-9a-f]{32}", re.ASCII)


def public_id(kind: str, uid: str) -> str:
    """How a stable id is shown: `mem_` and 32 digits."""
    return f"{kind}_{uid.replace('-', '')}"


def uid_of(kind: str, shown: str) -> str | None:
    """The stable id in a public one; none for what is no such id."""
    prefix, _, digits = shown.partition("_")
    is_one = prefix == kind and _HEX.fullmatch(digits)
    return dashed(digits) if is_one else None


def known_uid(kind: str, shown: str, sentence: str) -> str:
    """The stable id in a public one; NotFound, with the sentence, for what is no such id."""
    uid = uid_of(kind, shown)
    if uid is None:
        raise NotFound(sentence)
    return uid
