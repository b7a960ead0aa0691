"""Instants that are known of a row, for one that is out of range."""

from collections.abc import Mapping

_OF_REVISIONS = "(SELECT {0}(at) FROM revisions WHERE memory_id = memories.id{1})"
_BESIDE = """(SELECT at
                FROM revisions o
               WHERE o.memory_id = revisions.memory_id AND o.id {0} revisions.id
            ORDER BY o.id {1}
               LIMIT 1)"""

NEAREST: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sessions", "started_at"): (
        "(SELECT min(created_at) FROM memories WHERE session_id = sessions.id)", "ended_at",
    ),
    ("sessions", "ended_at"): (
        "(SELECT max(last_seen_at) FROM memories WHERE session_id = sessions.id)", "started_at",
    ),
    ("memories", "created_at"): (_OF_REVISIONS.format("min", ""), "updated_at", "last_seen_at"),
    ("memories", "updated_at"): (
        _OF_REVISIONS.format("max", " AND deed <> 'deleted'"), "created_at", "last_seen_at",
    ),
    ("memories", "last_seen_at"): ("updated_at", "created_at"),
    ("memories", "deleted_at"): (
        _OF_REVISIONS.format("max", " AND deed = 'deleted'"), "updated_at", "created_at",
    ),
    ("revisions", "at"): (
        _BESIDE.format("<", "DESC"), _BESIDE.format(">", "ASC"),
        "(SELECT created_at FROM memories WHERE id = memory_id)",
    ),
    ("transcripts", "heard_at"): ("(SELECT started_at FROM sessions WHERE number = session)",),
    ("erasures", "erased_at"): ("bytes_gone_at",),
    ("erasures", "bytes_gone_at"): ("erased_at",),
    ("stores", "created_at"): ("updated_at", "archived_at"),
    ("stores", "updated_at"): ("archived_at", "created_at"),
    ("stores", "archived_at"): ("updated_at", "created_at"),
    ("intents", "created_at"): (
        "(SELECT min(created_at) FROM tasks WHERE tasks.intent = intents.id)",
    ),
    ("tasks", "created_at"): ("started_at", "completed_at"),
    ("tasks", "started_at"): ("completed_at", "created_at"),
    ("tasks", "completed_at"): ("started_at", "created_at"),
    ("ref_entries", "created_at"): ("(SELECT created_at FROM memories WHERE id = memory_id)",),
    ("ref_entries", "ends_at"): (
        "(SELECT expires_at FROM lifecycles l WHERE l.memory_id = ref_entries.memory_id)",
    ),
    ("ref_tags", "created_at"): ("(SELECT created_at FROM memories WHERE id = memory_id)",),
    ("archives", "first_at"): ("last_at",),
    ("archives", "last_at"): ("first_at",),
    ("passes", "undone_at"): ("(SELECT ended_at FROM runs WHERE runs.id = run)",),
    ("runs", "started_at"): ("ended_at", "heard_at"),
    ("runs", "heard_at"): ("ended_at", "started_at"),
    ("runs", "ended_at"): ("heard_at", "started_at"),
    ("runs", "at"): ("started_at",),
    ("proposals", "created_at"): ("updated_at",),
    ("proposals", "updated_at"): ("created_at",),
    ("run_events", "at"): ("(SELECT started_at FROM runs WHERE runs.id = run)",),
    ("versions", "redacted_at"): (
        """(SELECT at
              FROM revisions r
             WHERE r.memory_id = versions.memory_id AND r.number = versions.number)""",
    ),
}  # fmt: skip
"""The instants that are known of a row, the nearest first."""
