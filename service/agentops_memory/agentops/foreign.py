"""A document that is no export: what it is, by its first bytes or its members."""

import json
import re
from collections.abc import Collection
from typing import BinaryIO

from ..errors import Invalid
from ..http.json_reader import members
from ..telemetry import hidden

HEAD = 64 * 1024  # bytes; JSON lines whose first line is longer are not recognized
NAMED = 5  # members that a refusal names
# Only what looks like a field of a format: another name may be data, which a refusal never quotes.
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

_EXPECTED = (
    "an object with sessions and observations is expected, as `agentops-memory export` writes"
)
_UNREAD = "which no importer reads"
_BY_START = {
    b"SQLite format 3\0": "a SQLite database: `agentops-memory export --db FILE` exports one of "
    "this service",
    b"PK\x03\x04": "a ZIP file: `agentops-memory restore` reads one that `backup` wrote",
    b"\x1f\x8b": "compressed by gzip: decompress it first",
    b"[": f"a list, {_UNREAD}",
    b'"': "a string",
    b"null": "null",
    b"true": "a boolean",
    b"false": "a boolean",
    **dict.fromkeys((b"-", *(b"%d" % digit for digit in range(10))), "a number"),
}
_BY_MEMBER = {
    "prompts": " It looks like an export of Engram: `agentops-memory import` reads one.",
    "results": f" It looks like a list of memories from mem0, {_UNREAD}.",
}


def recognized(file: BinaryIO) -> str | None:
    """Why a file that is no JSON object cannot be imported; None if it is not recognized."""
    file.seek(0)
    head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head:
        kind: str | None = "empty"
    elif _is_json_lines(head):
        kind = f"JSON lines, {_UNREAD}"
    else:
        kind = next((it for start, it in _BY_START.items() if head.startswith(start)), None)
    return kind and f"invalid JSON: {_EXPECTED}, and this is {kind}."


def require_export(file: BinaryIO, lists: Collection[str]) -> None:
    """Invalid for an object that has members, but none of the lists of an export.

    An object without members is an export of nothing, as the original takes it.
    """
    names: dict[str, None] = {}
    count, hint = 0, ""
    for name, place, _ in members(file):
        if name in lists:
            return
        count += place is None  # and else an item of the member before
        if place is None and len(names) < NAMED and _is_shown(name):
            names[name] = None
        hint = hint or _BY_MEMBER.get(name, "")
    if not count:
        return
    more = count - len(names)
    others = f"{more:,} more" if names else "1 member" if more == 1 else f"{more:,} members"
    has = ", ".join([*names, *([others] if more else [])])
    raise Invalid(f"validation failed: {_EXPECTED}; this one has {has}.{hint}")


def _is_shown(name: str) -> bool:
    """Whether a refusal may name a member: it looks like a field, and holds no secret."""
    return bool(_FIELD.fullmatch(name)) and hidden(name) == name


def _is_json_lines(head: bytes) -> bool:
    first, _, rest = head.partition(b"\n")
    if not rest.lstrip().startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False
