"""Public ids, cursors that are of one list, and the instants that bound one, in RFC 3339."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime

from ..errors import NotFound
from ..recall.text.instants import dashed, exact

STORE, ENTRY, VERSION, EVENT = "memstore", "mem", "memver", "evt"

_HEX = re.compile("[0-9a-f]{32}", re.ASCII)


def public_id(kind: str, uid: str) -> str:
    """A stable id on the wire: `mem_` and 32 digits."""
    return f"{kind}_{uid.replace('-', '')}"


def uid_of(kind: str, id_: str) -> str | None:
    prefix, _, digits = id_.partition("_")
    is_one = prefix == kind and _HEX.fullmatch(digits)
    return dashed(digits) if is_one else None


def known_uid(kind: str, id_: str, sentence: str) -> str:
    uid = uid_of(kind, id_)
    if uid is None:
        raise NotFound(sentence)
    return uid


_MARK = 8  # bytes that tell of which list a cursor is


def cursor(listed: Sequence[object], after: str) -> str:
    """What tells a client where the next page of a list begins: after a position in it.

    `listed` is all that makes the list another one, as JSON can hold it.
    """
    mark = hashlib.sha256(json.dumps([*listed, after]).encode()).digest()[:_MARK]
    return base64.urlsafe_b64encode(mark + after.encode()).decode().rstrip("=")


def position(listed: Sequence[object], text: str) -> str | None:
    """The position after which a page begins; None for what is no cursor of this list."""
    try:
        padded = text + "=" * (-len(text) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True)[_MARK:].decode()
    except ValueError:
        return None
    return after if text == cursor(listed, after) else None


def instant(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """The instant in RFC 3339 text, as `exact` reads it, in which a space may stand for a plus."""
    text = text[:-6] + text[-6:].replace(" ", "+")  # what a plus is in a query
    return exact(text, needs_offset=needs_offset, rounds_up=rounds_up)
