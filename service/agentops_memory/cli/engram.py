"""An export of engram as a document of ours: what is left out is counted, never silent.

It has `version` and `prompts`, ids that are its own, and times as an import reads them,
too. Pure: bytes in, bytes out.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO
from uuid import UUID, uuid5

from ..http.json_reader import entries, members
from ..memory.model.space import UNKNOWN_PROJECT
from ..memory.redactor import MAX_CONTENT, MAX_TAG, MAX_TITLE

OF_ENGRAM = {"version", "prompts"}  # members that a document of ours does not have
LISTS = {"sessions", "observations", "prompts"}
LEFT_OUT = {  # and how each is called
    "prompts": "prompt",
    "personal": "personal observation",
    "deleted": "deleted observation",
    "cut": "overlong ending",
}

CUT = "... [truncated]"  # as engram marks a text that it has cut at 50,000 bytes
_IDS = UUID("5b0e4bd8-7f0c-5d5e-9d0a-6a8f2f0f6f5e")  # of observations without a topic key
_KEPT = (
    "session_id", "type", "title", "content", "scope", "topic_key", "revision_count",
    "duplicate_count", "last_seen_at", "created_at", "updated_at",
)  # fmt: skip

Row = Mapping[str, Any]


def is_engram(file: BinaryIO) -> bool:
    """Whether the document is an export of engram, by its shape."""
    names: set[str] = set()
    for name, _, value in members(file):
        if name == "observations" and isinstance(value, dict):
            return "uid" not in value and (bool(names & OF_ENGRAM) or _has_any(file))
        names |= {name} & (OF_ENGRAM | LISTS)
    return bool(names & OF_ENGRAM) and bool(names & LISTS)


def _has_any(file: BinaryIO) -> bool:
    return any(name in OF_ENGRAM for name, _, _ in members(file))


def converted(file: BinaryIO, left_out: Counter[str]) -> Iterator[bytes]:
    """The document as one of ours, piece by piece; counts what is left out."""
    projects: dict[object, object] = {}
    yield b'{"sessions":['
    comma = b""
    for _, _, row in entries(file, ("sessions",)):
        session = _session(row) if isinstance(row, dict) else row
        if isinstance(session, dict):
            projects[_known(session.get("id"))] = session["project"]
        yield comma + _json(session)
        comma = b","
    yield b'],"observations":['
    comma = b""
    for name, _, row in entries(file, ("observations", "prompts")):
        why = _why_left_out(name, row)
        if why:
            left_out[why] += 1
            continue
        if isinstance(row, dict):
            left_out["cut"] += _is_long(row)
            yield comma + _json(_observation(row, projects))
        else:
            yield comma + _json(row)
        comma = b","
    yield b"]}"


def _session(row: Row) -> dict[str, Any]:
    kept = {name: row.get(name) for name in ("id", "summary", "started_at", "ended_at")}
    return kept | {"project": row.get("project") or UNKNOWN_PROJECT}


def _observation(row: Row, projects: Mapping[object, object]) -> dict[str, Any]:
    kept = {name: row.get(name) for name in _KEPT}
    project = row.get("project") or projects.get(_known(row.get("session_id")))
    tool = row.get("tool_name")
    return kept | {
        "uid": None if row.get("topic_key") or row.get("id") is None else _uid(row),
        "title": _fitting(row.get("title"), MAX_TITLE) or _first_line(row.get("content")),
        "content": _fitting(row.get("content"), MAX_CONTENT),
        "project": project or UNKNOWN_PROJECT,
        "tags": [tool[:MAX_TAG]] if isinstance(tool, str) and tool.strip() else None,
    }


def _why_left_out(name: str, row: object) -> str | None:
    if name == "prompts":
        return "prompts"
    if not isinstance(row, dict):
        return None  # for the import to refuse
    if row.get("deleted_at"):
        return "deleted"
    scope = row.get("scope")
    is_personal = isinstance(scope, str) and scope.strip().lower() == "personal"
    return "personal" if is_personal else None


def _uid(row: Row) -> str:
    """A stable id, by which an observation is known again although its text was changed here."""
    whose = [row.get(name) for name in ("session_id", "id", "created_at")]
    return str(uuid5(_IDS, json.dumps(whose, default=str)))


def _first_line(content: object) -> object:
    return content.strip().partition("\n")[0][:MAX_TITLE] if isinstance(content, str) else content


def _is_long(row: Row) -> bool:
    longest = (("title", MAX_TITLE), ("content", MAX_CONTENT))
    return any(_fitting(row.get(name), most) != row.get(name) for name, most in longest)


def _fitting(text: object, most: int) -> object:
    """The text, cut where it is longer than an observation's."""
    if not isinstance(text, str) or len(text) <= most:
        return text
    return text[: most - len(CUT)] + CUT


def _known(id_: object) -> object:
    """An id as a key: what is none may not be hashable."""
    return id_ if isinstance(id_, str) else None


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
