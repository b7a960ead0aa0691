"""Rows of entries, as the domain has them."""
# ruff: noqa: PLC0414

from typing import Any

from ...memory.model.memory import Memory, MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import (
    end_of,
    instant,
    tag_tuple,
)
from ..model.entries import RefEntry, RefEntryId, ref_entry_id, stable_id
from ..runs import RUN as RUN
from ..runs import payload_text as payload_text
from ..runs import run_of as run_of

ENTRY = "e.name, m.uid, m.id, m.content, m.tags, m.created_at, l.expires_at"

PROVENANCE = """e.name, m.uid, m.id, e.run, e.node, e.agent, e.method, m.duplicates,
                m.last_seen_at"""


def named(id_: RefEntryId, *, has_no_name: bool = True) -> str:
    """The entries of a ref that have had an id: a name is free again after a deletion.

    A stable id is the id of those alone that have no name.
    """
    if stable_id(id_) is None:
        return """refs f
                  JOIN ref_entries e ON f.ref = :ref AND e.space_id = f.space_id AND e.name = :name
                  JOIN memories m ON m.id = e.memory_id"""
    nameless = "AND e.name IS NULL" if has_no_name else ""
    return f"""memories m
               JOIN ref_entries e ON m.uid = :uid AND e.memory_id = m.id {nameless}
               JOIN refs f ON f.space_id = e.space_id AND f.ref = :ref"""


def names(ref: MemoryRef, id_: RefEntryId) -> dict[str, object]:
    """The values that `named` names."""
    return {"ref": ref, "name": id_, "uid": stable_id(id_)}


def entry_of(row: Any) -> RefEntry:
    """The entry in a row of ENTRY."""
    name, uid, id_, content, tags, created_at, expires_at = row
    return RefEntry(
        id=ref_entry_id(uid, name),
        memory=MemoryId(id_),
        uid=uid,
        content=content,
        tags=tag_tuple(tags),
        created_at=instant(created_at),
        expires_at=end_of(id_, expires_at),
    )


def measures(memory: Memory) -> dict[str, int]:
    content = memory.text.content
    return {"size": len(content.encode()), "length": len(content)}
